"""The keywords of a call, resolved: product, arithmetic, plans and notes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ascendsim.errors import (
    ConfigError,
    UnsupportedError,
    did_you_mean,
    is_bool,
    items,
    refusal,
    shown,
    truth,
    whole,
)
from ascendsim.frozen import cached_property
from ascendsim.numerics.accumulation import BINARY32_MIN_EXPONENT, AccumulationModel
from ascendsim.numerics.dtypes import dtype
from ascendsim.ops.lowering.call import GRADIENTS, INPUTS, Call, leaves_in
from ascendsim.ops.lowering.notes import (
    PACKED_NOTE,
    ROWS_NOTE,
    STRIDED_NOTE,
    UNPACKED_NOTE,
    UNTIMED_NOTE,
    whose_tilings,
)
from ascendsim.ops.options.budget import (
    budget_given,
    reckoned_bytes,
    require_bytes,
    require_instructions,
    require_products,
)
from ascendsim.ops.options.keywords import CHOICES, CallOptions, Keywords, ProductOptions, l2_start_given
from ascendsim.ops.plan import Plan, Tiling
from ascendsim.ops.problems.convolution import ConvProblem, stored_name
from ascendsim.ops.problems.views import View
from ascendsim.ops.tiling.choose import STRATEGIES
from ascendsim.ops.tiling.given import plan_of, says_fields, schedules_given, tilings_given
from ascendsim.ops.tiling.request import LayerPlans, PartialPlan, PlanRequest, is_plan_file, plan_given
from ascendsim.profile import Profile, is_file_name, load_profile
from ascendsim.rules import ConvolutionBackwardCall, ConvTbcBackwardCall, Decision
from ascendsim.rules.typed import typed
from ascendsim.timing.l2 import l2_note

if TYPE_CHECKING:
    from ascendsim.ops.lowering.call import Mask
    from ascendsim.ops.lowering.graph import Graph
    from ascendsim.ops.problems.matmul import MatmulProblem


def require_known(function: str, given: Iterable[str], names: Sequence[str]) -> None:
    """Refuse keywords that a function does not take.

    Raises   TypeError, as Python does, with near misses
    """
    for name in given:
        if name not in names:
            hint = did_you_mean(name, names, f"it takes {', '.join(names)}")
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}; {hint}")


def order_given(order: Any) -> str | int:
    """Return an order of execution as its name or its seed, before anything is computed.

    Raises   ConfigError for one without a meaning
    """
    if isinstance(order, str) and order in ("program", "arrival"):
        return order
    seed = None if isinstance(order, str) else whole(order)
    if seed is None or seed < 0:
        raise refusal("order", order, '"program", "arrival" or a whole number of 0 or more, the seed')
    return seed


# More than any machine has cores; each takes memory.
MOST_THREADS = 1024


def thread_count(threads: Any, *, timing: bool) -> int:
    """Return how many threads share the products of a call.

    Raises   ConfigError unless it is a whole number up to MOST_THREADS; and with timing, which is true or
             false, where one thread runs all
    """
    if not is_bool(timing):
        raise ConfigError(f"timing is {shown(timing)}; it must be true or false")
    count = whole(threads)
    if count is None or not 1 <= count <= MOST_THREADS:
        raise ConfigError(f"threads is {shown(threads)}; it must be a whole number from 1 to {MOST_THREADS}")
    if timing and count > 1:
        raise ConfigError(f"threads is {count}, but only a call with timing=False shares its work")
    return count


def strides_of(given: Any) -> dict[str, tuple[int, ...]]:
    """Return the strides of those gradients that are given some, in elements.

    Raises   ConfigError for anything but some gradients' strides by name
    """
    if given is None:
        return {}
    wrong = refusal("output_strides", given, 'strides by name, such as {"grad_input": (512, 16, 4, 1)}')
    if not isinstance(given, Mapping):
        raise wrong
    strides = {name: found for name, steps in given.items() if (found := items(steps)) is not None}
    if len(strides) < len(given):
        raise wrong
    if unknown := [shown(name) for name in strides if name not in GRADIENTS]:
        raise ConfigError(f"output_strides has {', '.join(unknown)}; it takes {', '.join(GRADIENTS)}")
    return strides


LONGEST_MODEL = 200  # no model has a name half as long; a message should stay short


def options_of(function: str, given: Mapping[str, Any], known: type = CallOptions) -> Options:
    """Return the options that a function was called with.

    Raises   TypeError for a keyword that it does not take, as Python does, with near misses; ConfigError for
             a value without a meaning
    """
    # The TypedDict is read, so that what a type checker accepts and what runs are the same list.
    require_known(function, given, list(known.__annotations__))
    return Options(**given, operands=("a", "b")) if known is ProductOptions else Options(**given)


@dataclass(frozen=True)
class Options(Keywords):
    """The keywords of a call, checked.

    l2_start       kept as `l2_start_given` returns it
    operands       names of the operator's operands, the one that was written last first
    Raises         ConfigError for a value without a meaning
    """

    operands: InitVar[tuple[str, ...]] = INPUTS

    def __post_init__(self, operands: tuple[str, ...]) -> None:
        """Refuse values without a meaning."""
        for name, known in CHOICES.items():
            value, optional = getattr(self, name), getattr(Keywords, name) is None
            # By its type first: a value without a hash, or that compares element by element, is in no table.
            if not (optional and value is None) and (not isinstance(value, str) or value not in known):
                raise refusal(name, value, f"one of {', '.join(known)}" + ", or None" * optional)
        object.__setattr__(self, "l2_start", l2_start_given(self.l2_start, operands))
        if not isinstance(self.rules, str | Path):
            raise refusal("rules", self.rules, "the name of a rule set, or the path of a .toml file")
        if not isinstance(self.product, str | Path | Profile):
            raise refusal("product", self.product, "a name, the path of a .toml file, or a loaded Profile")
        model = self.accumulation
        if not isinstance(model, str | AccumulationModel | None) or len(str(model)) > LONGEST_MODEL:
            raise refusal("accumulation", self.accumulation, "the text of a model, a model or None")
        for name in ("most_instructions", "most_bytes"):
            object.__setattr__(self, name, budget_given(name, getattr(self, name)))
        if self.deterministic is not None and truth(self.deterministic) is None:
            raise refusal("deterministic", self.deterministic, "true, false or None")
        if is_plan_file(self.tiling):
            # Imported here: most calls name no file.
            from ascendsim.ops.tiling.plan_files import read_plans

            object.__setattr__(self, "tiling", read_plans(cast("Path", self.tiling)).plans)
        plans = tuple(self.tiling.values()) if isinstance(self.tiling, Mapping) else (self.tiling,)
        if says_fields(self.tiling):
            plans = (plan_given(cast("Mapping[str, Any]", self.tiling)),)
        if self.tiling is not None and not all(map(_is_plan, plans)):
            others = f"one of {', '.join(STRATEGIES)}, a file, or None"
            rule = f'a Tiling, {{"grad_input": Tiling(...), ...}}, {others}'
            raise refusal("tiling", self.tiling, rule)
        self._check_output_dtypes()
        _ = self.wanted_strides  # wrong strides are refused at once

    def _check_output_dtypes(self) -> None:
        if self.output_dtypes is None:
            return
        given = items(self.output_dtypes)
        if given is None:
            raise refusal("output_dtypes", self.output_dtypes, "three formats, None: default")
        if len(given) != 3:
            raise ConfigError(
                f"output_dtypes has {len(given)} entries {shown(given)}; it needs three, None: default"
            )
        object.__setattr__(self, "output_dtypes", given)
        _ = self.wanted_dtypes  # an unknown format is refused at once

    @cached_property
    def wanted_strides(self) -> dict[str, tuple[int, ...]]:
        """Strides of the gradients that are not to lie row by row."""
        return strides_of(self.output_strides)

    @cached_property
    def profile(self) -> Profile:
        """The product."""
        return self.product if isinstance(self.product, Profile) else load_profile(self.product)

    def within(self, graph: Graph) -> Graph:
        """Return the graph of a call, if it has no more instructions than are wanted.

        Raises   BudgetError
        """
        require_instructions(graph, self.profile, self.most_instructions, self.most_bytes)
        return graph

    def require_products(self, call: Call, wanted: Mask) -> None:
        """Refuse a call, before it is lowered, whose products have more instructions than are wanted.

        Raises   BudgetError
        """
        require_products(call, wanted, self.most_instructions, self.most_bytes)

    def require_room(self, *shapes: Sequence[int]) -> None:
        """Refuse a call whose tensors, given and made, need more bytes than are wanted.

        Raises   BudgetError
        """
        require_bytes(reckoned_bytes(shapes), self.most_bytes, "its tensors")

    @property
    def asked_product(self) -> str | Profile:
        """The product for the rules: a name unchanged, since they know products without a file."""
        name = self.product
        return name if isinstance(name, str) and not is_file_name(name) else self.profile

    @property
    def wanted_dtypes(self) -> tuple[str | None, ...]:
        """Formats of the gradients by canonical name, None where the default is wanted."""
        wanted = (None, None, None) if self.output_dtypes is None else self.output_dtypes
        return tuple(None if name is None else dtype(name).name for name in wanted)

    def model(self, compute_dtype: str) -> AccumulationModel:
        """Return the accumulation model for a compute dtype on this product.

        Raises   UnsupportedError if the product's cube does not multiply it
        """
        # Asked of the product before the model: a user's model does not make a cube multiply a format.
        profile = self.profile
        if compute_dtype not in profile.cube.rates or (
            self.accumulation is None and compute_dtype not in profile.accumulation
        ):
            raise UnsupportedError(
                f"the cube of {profile.variant} does not multiply {compute_dtype}; it does "
                + ", ".join(name for name in profile.cube.rates if name in profile.accumulation)
            )
        model = profile.accumulation[compute_dtype] if self.accumulation is None else self.accumulation
        return _resolved(model, compute_dtype, profile.cube.rates[compute_dtype].block_k)

    def call(self, problem: ConvProblem, decision: Decision, views: Mapping[str, View]) -> Call:
        """Return everything that fixes the kernels of a decided call."""
        # Only the two products have a plan: grad_bias is a sum on the vector cores.
        cube = [name for name, wanted in zip(GRADIENTS[:2], decision.wanted[:2], strict=True) if wanted]
        compute, direct = decision.compute_dtype, decision.direct_outputs
        in_one_order = self.one_order(decision)
        made = (
            leaves_in("grad_input", decision.dtypes, compute, direct=direct) if decision.wanted[0] else None
        )
        return Call(
            problem,
            self.profile,
            compute,
            dict(decision.dtypes),
            self.model(compute),
            in_one_order,
            self.plans(problem, cube, compute, made, deterministic=in_one_order),
            {name: view for name, view in views.items() if not view.is_contiguous},
            self.fixpipe,
            direct,
            self.layout != Keywords.layout,
        )

    def refuse_strides(self, call: ConvolutionBackwardCall | ConvTbcBackwardCall, decision: Decision) -> None:
        """Refuse strides of a decided call whose tensors lie packed.

        Raises   ConfigError
        """
        if self.layout == Keywords.layout:
            return
        checked = typed(call)
        for name in (*INPUTS, *decision.wanted_gradients):
            tensor = getattr(checked, name)
            if tensor is not None and not tensor.is_contiguous:
                raise ConfigError(
                    f'layout is "{self.layout}", whose tensors have no strides, but those of {name} of shape '
                    f'{tensor.shape} are {tensor.strides}; leave strides out, or take "NCHW"'
                )

    def one_order(self, decision: Decision) -> bool:
        """Return whether the parts of grad_weight are added in one order."""
        if decision.determinism == "fixed":
            return True
        if self.deterministic is not None:
            return bool(self.deterministic)
        return decision.determinism == "product" and self.profile.deterministic_default

    def plans(
        self,
        problem: ConvProblem | MatmulProblem,
        gradients: Sequence[str],
        compute_dtype: str,
        out_dtype: str | None = None,
        *,
        deterministic: bool = False,
    ) -> dict[str, Plan]:
        """Return the plan of each gradient of a call, as the user gives it, or chosen."""
        tilings = tilings_given(self.tiling, gradients)
        schedules = schedules_given(self.schedule, gradients)
        asked = compute_dtype, self.profile, out_dtype, deterministic
        return {
            gradient: plan_of(
                PlanRequest(problem, gradient, *asked), tilings.get(gradient), schedules.get(gradient)
            )
            for gradient in gradients
        }

    def notes(
        self, decision: Decision, plans: Mapping[str, Plan], *, strided: bool, timing: bool = True
    ) -> tuple[str, ...]:
        """Return the sentences that a reader of the result must know.

        plans    of the gradients that the cube makes
        timing   whether the result has cycles
        """
        tilings = whose_tilings(plans)
        found = [*tilings, l2_note(self.l2_start)] if timing else [UNTIMED_NOTE, *tilings]
        changes = self.profile.generation.changes_layouts
        if timing and not changes:
            found.insert(0, ROWS_NOTE)
        if timing and self.layout != Keywords.layout:
            found.insert(0, PACKED_NOTE if changes else UNPACKED_NOTE)
        found.append(f"Call checked by the rule set `{self.rules}`.")
        if strided:
            found.append(STRIDED_NOTE)
        if decision.determinism == "fixed" and self.deterministic is not None and not self.deterministic:
            found.append(f"{decision.product} adds grad_weight in one order; deterministic changes nothing.")
        if not decision.empty and self.model(decision.compute_dtype).half:
            # The vendor's cube has one only in its older generations, and only for float16.
            half = self.profile.generation.half_accumulator and decision.compute_dtype == "float16"
            if not half:
                found.append(
                    f"The cube of {self.profile.variant} cannot accumulate {decision.compute_dtype} products "
                    "in float16; the asked accumulation model is a study, not the machine."
                )
            if timing:
                found.append("With a float16 accumulator the cycles are those of a float32 one.")
        return (*found, *decision.warnings)


@lru_cache(maxsize=64)  # asked for twice in each call, in the same words in every step of a training run
def _resolved(model: str | AccumulationModel, compute_dtype: str, block_k: int) -> AccumulationModel:
    """Return a model, or the model that a text names, for a format on a cube of `block_k` k a cycle."""
    if isinstance(model, str):
        model = AccumulationModel.parse(model)
    operand = dtype(stored_name(compute_dtype))
    # A model that names its smallest exponent keeps it; else the operands', if they have one, is taken.
    said = model.ftz_in_exponent != BINARY32_MIN_EXPONENT
    smallest = None if said or operand.tapered else operand.min_exponent
    return model.resolve(block_k, smallest)


def _is_plan(given: object) -> bool:
    """Return whether a value is a plan, or a way to choose one."""
    return isinstance(given, Tiling | Plan | PartialPlan | LayerPlans | Mapping) or (
        isinstance(given, str) and given in STRATEGIES
    )
