"""The inputs of the choice of a plan: one record that the rules, the search and given plans read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ascendsim.errors import ConfigError, UnsupportedError, is_bool, refusal, shown, whole
from ascendsim.frozen import FrozenMap, cached_property
from ascendsim.ops.plan import WHOLE, Plan, Tiling, require_fields
from ascendsim.ops.problems.convolution import C0_BYTES, ConvProblem, merged, stored_name
from ascendsim.ops.problems.folded import gradient_product, kernel_problem
from ascendsim.ops.problems.products import DgradGemm, WgradGemm
from ascendsim.ops.tiling.vendor.layer import FRACTAL, PLAIN_LAYOUTS, LayerSizes, Layouts, Machine
from ascendsim.profile import Profile

if TYPE_CHECKING:
    from ascendsim.ops.problems.matmul import MatmulProblem


# What a partial plan may say besides the fields of a tiling.
BESIDE = ("schedule", "block_dim")
_ANY = {"base_m": 1, "base_n": 1, "base_k": 1}


@dataclass(frozen=True)
class PartialPlan:
    """The part of a plan that a user fixes.

    fields     fields of a tiling, by name
    schedule   name or class of the loop nest; None: that of the rules
    block_dim  blocks that the kernel is launched with, as msprof counts them: the rules plan for so many
               cores. 0: all cores
    file       the file of plans that it was read from; "": none

    Raises     ConfigError for a value that no tiling takes, or a grid of another number of blocks
    """

    fields: Mapping[str, Any] = field(default_factory=FrozenMap)
    schedule: str | type | None = None
    block_dim: int = 0
    file: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        """Refuse what no tiling takes."""
        if not isinstance(self.fields, Mapping):
            rule = 'fields of a tiling by name, such as {"base_m": 64}'
            raise ConfigError(f"tiling: fields is {shown(self.fields)}; it must be {rule}")
        require_fields("tiling", self.fields)
        blocks = whole(self.block_dim)
        if blocks is None or blocks < 0:
            raise ConfigError(
                f"tiling: block_dim is {shown(self.block_dim)}; it must be a whole number, 0 for all cores"
            )
        object.__setattr__(self, "block_dim", blocks)
        # What a field may be, a tiling says itself: here of one whose other fields do not matter.
        made = Tiling(**{**_ANY, **self.fields})
        object.__setattr__(self, "fields", FrozenMap({name: getattr(made, name) for name in self.fields}))
        if self.block_dim and made.cells > self.block_dim:
            raise ConfigError(
                f"tiling: the grid has {made.cells} cells, but block_dim is {self.block_dim}; leave one of "
                "them out"
            )


class LayerPlans(ABC):
    """Partial plans for some layers of a network; a call takes the one of its own layer."""

    @abstractmethod
    def of(self, problem: ConvProblem, compute_dtype: str) -> PartialPlan | None:
        """Return the partial plan given for a layer; None without one."""


def is_plan_file(given: object) -> bool:
    """Return whether a value names a file of plans, and not a strategy."""
    return isinstance(given, Path) or (isinstance(given, str) and given.endswith((".toml", ".json")))


def plan_given(values: Mapping[str, Any], where: str = "tiling") -> Plan | PartialPlan:
    """Return the plan that a table of fields says: whole if it names a schedule and what every nest reads.

    values   fields of a tiling, `schedule` and `block_dim`
    where    the place that a message names

    Raises   ConfigError naming the place, what was got, and the rule
    """
    require_fields(where, values, BESIDE)
    fields = {name: value for name, value in values.items() if name not in BESIDE}
    schedule, block_dim = values.get("schedule"), whole(values.get("block_dim", 1))
    if schedule is not None and not isinstance(schedule, str | type):
        raise ConfigError(f"{where}: schedule is {shown(schedule)}; it must be a name or a class")
    if block_dim is None or block_dim < 1:
        given = shown(values["block_dim"])
        raise ConfigError(
            f"{where}: block_dim is {given}; it must be a positive integer, the blocks launched"
        )
    try:
        if schedule and "block_dim" not in values and all(name in fields for name in WHOLE):
            return Plan(schedule, Tiling(**fields))
        return PartialPlan(fields, schedule, block_dim if "block_dim" in values else 0)
    except ConfigError as error:
        raise ConfigError(str(error).replace("tiling:", f"{where}:", 1)) from None


GRADIENTS = ("grad_input", "grad_weight")
# More than any convolution has; sizes are counted in 64 bits.
MOST_GROUPS = 2**31 - 1
NOTHING = PartialPlan()


@dataclass(frozen=True)
class PlanRequest:
    """The inputs that the choice of a plan depends on.

    problem        the convolution of the call, or a matrix product
    gradient       "grad_input" or "grad_weight"; "matmul" of a matrix product
    compute_dtype  what the cube multiplies: a format, or "hf32" for float32 that it rounds
    out_dtype      the format in which grad_input or a matrix product leaves the cube; None: the usual one
    deterministic  whether parts of grad_weight may be added in one order only, for which operators plan anew
    group_merge    groups that are computed as one; 0: as many as the product's operator takes
    fixed          what the user fixes of the plan; strategies take it for granted or take no notice
    blocks         blocks to cut the product into, the best grid of so many by the rules; 0: as many as they
                   choose. Operators that go by tasks take no notice of it
    layouts        how the user's tensors lie; only operators of volumes and of 910_95 take notice, as others
                   find every tensor in blocks of channels
    transposed_forward
                   whether grad_input is the forward pass of a transposed convolution, the same kernel; no
                   call runs one

    Raises         ConfigError for a value without a meaning, UnsupportedError for operands that the product's
                   cube does not multiply
    """

    problem: ConvProblem | MatmulProblem
    gradient: str
    compute_dtype: str
    profile: Profile
    out_dtype: str | None = None
    deterministic: bool = False
    group_merge: int = 0
    fixed: PartialPlan = NOTHING
    blocks: int = 0
    layouts: Layouts = PLAIN_LAYOUTS
    transposed_forward: bool = False

    def __post_init__(self) -> None:
        """Refuse what no plan can be chosen for."""
        if not isinstance(self.profile, Profile):
            raise refusal("plan: profile", self.profile, "a Profile, such as load_profile('910B2')")
        made: tuple[str, ...] = GRADIENTS
        if not isinstance(self.problem, ConvProblem):
            # Imported here: most calls have no matrix product.
            from ascendsim.ops.problems.matmul import MatmulProblem

            if not isinstance(self.problem, MatmulProblem):
                rule = "ConvProblem(input=..., weight=...), or MatmulProblem(m, k, n)"
                raise refusal("plan: problem", self.problem, rule)
            made = ("matmul",)
        if not isinstance(self.gradient, str) or self.gradient not in made:
            rule = f"{' or '.join(made)} of a {type(self.problem).__name__}"
            raise refusal("plan: gradient", self.gradient, rule)
        for name in ("deterministic", "transposed_forward"):
            if not is_bool(getattr(self, name)):
                raise refusal(f"plan: {name}", getattr(self, name), "true or false")
        if not isinstance(self.out_dtype, str | None):
            raise refusal("plan: out_dtype", self.out_dtype, "the name of a format, or None")
        if not isinstance(self.layouts, Layouts):
            raise refusal("plan: layouts", self.layouts, "Layouts(...)")
        merge = whole(self.group_merge)
        if merge is None or not 0 <= merge <= MOST_GROUPS:
            rule = f"a whole number up to {MOST_GROUPS}, 0 for as many as the product's operator takes"
            raise refusal("plan: group_merge", self.group_merge, rule)
        self._require_multiplied()

    def _require_multiplied(self) -> None:
        compute_dtype, rates = self.compute_dtype, self.profile.cube.rates
        if not isinstance(compute_dtype, str):
            raise refusal("plan: compute_dtype", compute_dtype, "the name of a format, such as 'float16'")
        if compute_dtype not in rates:
            raise UnsupportedError(
                f"plan: compute_dtype is {shown(compute_dtype)}, which the cube of {self.profile.variant} "
                f"does not multiply; it does {', '.join(rates)}: take one of them, or another product"
            )

    @cached_property
    def told(self) -> tuple[Any, ...]:
        """A key of the values that strategies read, without those that the user fixes."""
        values = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "fixed"}
        return (*({**values, "profile": self.profile.told}.values()),)

    @property
    def sums(self) -> str:
        """The way in which parts of a reduction on different cores are added (`schedules/base.py`)."""
        return self.profile.generation.deterministic_sum if self.deterministic else "atomic"

    @cached_property
    def kernel(self) -> ConvProblem:
        """The convolution that the kernel sees: dilated, of one tap, or folded by kernels beside it."""
        assert isinstance(self.problem, ConvProblem), self.problem
        return kernel_problem(self.problem, self.gradient, self.compute_dtype, self.profile)

    @cached_property
    def usual_merge(self) -> int:
        """The number of groups that the product's operator merges into one; 1: no merge.

        910, 310P, 910B, 910_93   as many as fill groups of C0 channels and fractals, as FRACTAL_Z, the layout
                                  of the weights, has it; one by one where a box of the change of layout, C0
                                  whole channels of one group, does not fit in half of UB
        910_95                    the same where vector cores have room for the block-diagonal weights; of the
                                  grad_input of a transposed convolution, a forward one, no rule is known: 1

        Source   the tilings that the operators' unit tests expect, and their host code; of 910 and 310P,
                 which store weights in the same layout, our reading
        """
        if self.kernel.groups == 1:
            return 1
        layer, machine, weight = self.layer, self.machine, self.gradient == "grad_weight"
        if not self.profile.generation.changes_layouts:
            # Imported here: most calls have one group.
            from ascendsim.ops.tiling.vendor.arch35.dgrad import merge_factor as dgrad_35
            from ascendsim.ops.tiling.vendor.arch35.wgrad import merge_factor as wgrad_35

            if weight:
                return wgrad_35(layer, machine)
            return 1 if self.kernel.transposed else dgrad_35(layer, machine)
        longest = max(layer.ci, layer.co) * layer.c0 * C0_BYTES
        return layer.merge_factor(FRACTAL if weight else layer.c0) if 2 * longest <= machine.ub else 1

    @property
    def merge(self) -> int:
        """The number of groups that are merged into one."""
        return self.group_merge or self.usual_merge

    @cached_property
    def whole(self) -> ConvProblem:
        """The kernel's convolution with its groups merged."""
        return merged(self.kernel, self.merge)

    @cached_property
    def gemm(self) -> Any:
        """The product that a plan cuts, its groups merged."""
        if not isinstance(self.problem, ConvProblem):
            # Imported here: most calls have no matrix product.
            from ascendsim.ops.problems.matmul import MatmulGemm

            return MatmulGemm.of(self.problem, self.compute_dtype, self.out_dtype)
        if self.gradient == "grad_input":
            return DgradGemm.of(self.whole, self.compute_dtype, self.out_dtype)
        return WgradGemm.of(self.whole, self.compute_dtype)

    @cached_property
    def layer(self) -> LayerSizes:
        """The kernel's convolution as the operators' planning code sees it, each group by itself."""
        return LayerSizes.of(
            self.kernel, self.compute_dtype, transposed_forward=self.transposed_forward, layouts=self.layouts
        )

    @property
    def stored(self) -> str:
        """The format in which the operands lie in memory."""
        return stored_name(self.compute_dtype)

    @property
    def machine(self) -> Machine:
        """The product as the operators' planning code sees it."""
        return Machine.of(self.profile)

    @cached_property
    def as_product(self) -> PlanRequest | None:
        """The matrix product by which the product's interface makes the gradient; None: it is none."""
        if not isinstance(self.problem, ConvProblem):
            return None
        found = gradient_product(self.problem, self.gradient, self.compute_dtype, self.profile)
        if found is None:
            return None
        # grad_weight leaves in float32, as that of a convolution kernel.
        made = "float32" if self.gradient == "grad_weight" else self.out_dtype
        return PlanRequest(found.problem, "matmul", self.compute_dtype, self.profile, made)
