"""A call to an operator with everything resolved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Any

from ascendsim.errors import UnsupportedError, shown, whole
from ascendsim.frozen import cached_property
from ascendsim.instructions.cube import FRACTAL_ROWS
from ascendsim.numerics.accumulation import AccumulationModel, MathSettings
from ascendsim.numerics.dtypes import (
    DTYPES,
    INT8,
    INT32,
    Control,
    DType,
    Integer,
    Named,
    OverflowRules,
    dtype,
    find,
    name_of,
)
from ascendsim.ops.plan import Plan, saying_whose
from ascendsim.ops.problems.convolution import C0_BYTES, ConvProblem, as_multiplied, merged, stored_name
from ascendsim.ops.problems.folded import (
    Dilated,
    Folded,
    GradientProduct,
    Patches,
    asks_for_product,
    gradient_product,
    kernel_problem,
)
from ascendsim.ops.problems.products import DgradGemm, WgradGemm
from ascendsim.ops.problems.views import View
from ascendsim.ops.schedules.base import Schedule, schedule_named
from ascendsim.ops.schedules.dgrad.nest import Dgrad
from ascendsim.ops.schedules.wgrad.cut import narrowed_to
from ascendsim.ops.schedules.wgrad.nest import Wgrad

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ascendsim.ops.operands import Operand
    from ascendsim.ops.problems.matmul import MatmulGemm
    from ascendsim.profile import Generation, Profile

    Tensors = dict[str, NDArray[Any]]


INPUTS = ("grad_output", "input", "weight")
GRADIENTS = ("grad_input", "grad_weight", "grad_bias")
Mask = tuple[bool, bool, bool]


@dataclass(frozen=True)
class Call:
    """The inputs that fix the kernels of a call, without the values in its tensors.

    compute_dtype   what the cube multiplies: a name of a format, or hf32
    dtypes          storage format of grad_output, input, weight, grad_input, grad_weight, grad_bias
    plans           gradient -> how the cube computes it, for those that are computed
    views           where the elements of those inputs and gradients lie that are not contiguous
    fixpipe         which of the vendor's pages says when Fixpipe saturates (controls.FIXPIPE_PRESETS)
    direct_outputs  every gradient leaves the core in its own format (see `RuleSet`)
    packed          tensors lie in the cube's layouts as the call begins, and gradients are left in them
    """

    problem: ConvProblem
    profile: Profile
    compute_dtype: str
    dtypes: dict[str, str]
    accumulation: AccumulationModel
    deterministic: bool
    plans: Mapping[str, Plan]
    views: Mapping[str, View] = field(default_factory=dict)
    fixpipe: str = "ctrl48"
    direct_outputs: bool = False
    packed: bool = False

    def schedule(self, gradient: str) -> Schedule:
        """Return the loop nest that the plan of a gradient asks for, bound to this call."""
        plan, problem = self.plans[gradient], self.problem_of(gradient)
        gemm: DgradGemm | WgradGemm | MatmulGemm
        if product := self.as_product(gradient):
            # Imported here: most calls have no matrix product.
            from ascendsim.ops.problems.matmul import MatmulGemm

            gemm = MatmulGemm.of(product.problem, self.compute_dtype, self.leaves_in(gradient))
        elif gradient == "grad_input":
            gemm = DgradGemm.of(problem, self.compute_dtype, self.leaves_in("grad_input"))
            dilated = self.dilated and self.dilated.spreads == "grad_output"
            if how := "dilated" if dilated else "folded" if self.folded(gradient) else "":
                # A tensor of its own: grad_weight reads grad_output as it is, or folds it for itself.
                gemm = replace(gemm, source=replace(gemm.source, name=f"{gemm.source.name} {how}"))
        else:
            gemm = WgradGemm.of(problem, self.compute_dtype)
        sums = self.generation.deterministic_sum if self.deterministic else "atomic"
        with saying_whose(gradient, plan):
            return schedule_named(plan.schedule)(gemm, plan.tiling, self.profile, sums)

    def as_product(self, gradient: str) -> GradientProduct | None:
        """Return the matrix product that a gradient is made by, if its plan says so."""
        if schedule_named(self.plans[gradient].schedule).makes == gradient:
            return None
        return gradient_product(self.problem, gradient, self.compute_dtype, self.profile)

    def merge_of(self, gradient: str) -> int:
        """Return the number of groups that the plan of a gradient merges into one."""
        return self.plans[gradient].tiling.group_merge

    def problem_of(self, gradient: str) -> ConvProblem:
        """Return the convolution that the cube sees: with merged groups, dilated, of one tap or folded."""
        problem = kernel_problem(self.problem, gradient, self.compute_dtype, self.profile)
        return merged(problem, self.merge_of(gradient))

    @cached_property
    def dilated(self) -> Dilated | None:
        """The form of grad_input with a Dilation kernel; None without one."""
        return Dilated.of(self.problem, self.compute_dtype, self.profile)

    @cached_property
    def patches(self) -> Patches | None:
        """The form of grad_weight whose taps become channels; None without it."""
        return Patches.of(self.problem, self.profile)

    def folded(self, gradient: str) -> Folded | None:
        """Return the form of a gradient whose batch becomes rows of one image; None without it."""
        return Folded.of(self.problem, gradient, self.profile)

    def math(self, gradient: str) -> MathSettings:
        """Return the arithmetic of the kernel that makes a gradient on the cube."""
        if self.as_product(gradient):
            return self.cube_math("matmul", self.leaves_in(gradient))
        # The cube writes grad_weight in float32, whatever the operands are.
        if gradient == "grad_weight":
            return self.cube_math("convolution_backward", "float32")
        # The grad_input of a transposed convolution is a plain convolution, which runs as one on the device.
        operation = "convolution_forward" if self.problem.transposed else "convolution_backward"
        by_vector = self.schedule(gradient).casts_sums
        return self.cube_math(operation, self.leaves_in(gradient), by_vector=by_vector)

    def cube_math(self, operation: str, target: str, *, by_vector: bool = False) -> MathSettings:
        """Return the arithmetic of a cube kernel with results in format `target`.

        `operation` is a key of `Generation.hf32_ties`; `by_vector` says that vector cores convert the
        results, not Fixpipe.
        """
        if by_vector:
            overflow = vector_overflow(self.profile, target)
        else:
            overflow = cube_overflow(self.profile, target, self.fixpipe)
        return MathSettings(self.accumulation, self.generation.hf32_ties[operation], overflow)

    @property
    def generation(self) -> Generation:
        """Choices of the core's generation around the cube."""
        return self.profile.generation

    @property
    def changes_layouts(self) -> bool:
        """Whether kernels of the call bring tensors into the cube's layouts and back (TransData)."""
        return self.generation.changes_layouts and not self.packed

    def leaves_in(self, gradient: str) -> str:
        """Return the format in which a gradient leaves the core, before any Cast kernel."""
        return leaves_in(gradient, self.dtypes, self.compute_dtype, direct=self.direct_outputs)

    @property
    def squeezed(self) -> bool:
        """Whether a float32 grad_weight passes through float16 on its way out."""
        return (
            self.generation.squeezes_groups
            and not self.direct_outputs
            and self.problem.groups > 1
            and self.storage.bits == 16
            and self.dtypes["grad_weight"] == "float32"
        )

    @property
    def storage(self) -> DType:
        """Format in which GM and L1 hold the operands of the cube."""
        return dtype(stored_name(self.compute_dtype))

    def multiplied(self, values: NDArray[np.float32], gradient: str) -> NDArray[np.float32]:
        """Return the values that the cube multiplies for stored ones when it makes a gradient."""
        return as_multiplied(values, self.compute_dtype, self.profile, self.math(gradient).hf32_ties)

    @property
    def c0(self) -> int:
        """Channels in one group of 32 bytes."""
        return C0_BYTES // self.storage.itemsize

    def shape_of(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor of the call."""
        if name == "grad_output":
            return self.problem.grad_output
        if name == "grad_bias":
            return (self.problem.grad_output[1],)
        return self.problem.weight if "weight" in name else self.problem.input


def leaves_in(gradient: str, dtypes: Mapping[str, str], compute_dtype: str, *, direct: bool) -> str:
    """Return the format in which a gradient of a call leaves the core, before any Cast kernel.

    direct   in the format asked for; otherwise as the shipped operator has it
    """
    # Of the cube, float32 is what L0C holds, and the layout of grad_weight is changed before it is cast.
    if gradient == "grad_weight":
        return "float32"
    if direct:
        return dtypes[gradient]
    return dtypes["grad_output"] if gradient == "grad_bias" else stored_name(compute_dtype)


def overflow_rules(profile: Profile) -> OverflowRules:
    """Return the overflow rules of a product's conversions."""
    core = profile.generation
    at_launch = Control(core.inf_nan_at_launch, global_rules=core.global_rules_at_launch)
    return OverflowRules(core.inf_nan_formats, core.fixpipe_saturated_formats, at_launch)


def vector_overflow(profile: Profile, target: str) -> str:
    """Return the overflow rule of a vector core's conversion."""
    return overflow_rules(profile).conversion(target)


def cube_overflow(profile: Profile, target: str, preset: str = "ctrl48") -> str:
    """Return the overflow rule of results from L0C: Fixpipe's, or that of vector cores without a Fixpipe."""
    if profile.has_path("L0C", "GM"):
        return overflow_rules(profile).fixpipe(target, preset)
    return vector_overflow(profile, target)


CUBE_MATH_TYPES = {0: "keep", 1: "allow lower precision", 2: "float16", 3: "HF32"}
FLOATS = tuple(known for known in DTYPES if not known.name.startswith("hf32"))
OPERANDS: tuple[DType | Integer, ...] = (*FLOATS, INT8)


def operand_format(kind: Named) -> str:
    """Return the format of the operands by its name.

    Raises   UnsupportedError for one that no operand has
    """
    _refuse_hf32(kind, "pass float32 with cube_math_type=3")
    return find(kind, OPERANDS).name


def result_format(operands: str, kind: Named | None) -> str:
    """Return the format of the result for the one that was asked for, None: the default.

    Raises   UnsupportedError for one that does not come out
    """
    if operands == INT8.name:
        if kind is not None and name_of(kind) != INT32.name:
            raise UnsupportedError(
                f"matmul: out_dtype is {name_of(kind)}, but products of int8 come out as int32, as the cube "
                "adds them: leave it out, and scale the result yourself"
            )
        return INT32.name
    if kind is not None:
        _refuse_hf32(kind, "take float32")
    return find(operands if kind is None else kind, FLOATS).name


def compute_format(stored: str, cube_math_type: int, profile: Profile) -> str:
    """Return the format in which the cube multiplies operands of a stored format.

    Raises   UnsupportedError if cubeMathType is not 0 to 3 or the product's cube cannot do the conversion
    """
    number = whole(cube_math_type)
    if number not in CUBE_MATH_TYPES:
        raise UnsupportedError(
            f"matmul: cube_math_type is {shown(cube_math_type)}; it must be one of "
            + ", ".join(f"{value} ({name})" for value, name in CUBE_MATH_TYPES.items())
        )
    rates = profile.cube.rates
    lower = "hf32" if "hf32" in rates else "float16"
    wanted = {0: "float32", 1: lower, 2: "float16", 3: "hf32"}[number]
    compute = wanted if stored == "float32" else stored
    if compute not in rates:
        has = ", ".join("hf32 (float32 with cube_math_type 3)" if name == "hf32" else name for name in rates)
        raise UnsupportedError(
            f"matmul: {stored} with cube_math_type {cube_math_type} ({CUBE_MATH_TYPES[number]}) "
            f"needs {compute} in the cube of {profile.variant}, which multiplies {has}"
        )
    return compute


def overflow(profile: Profile, result: str) -> str:
    """Return the overflow rule of a result on its way out of L0C."""
    if result == INT32.name:
        return "ieee"  # nothing is converted
    return cube_overflow(profile, result)


def carrier(operand: Operand) -> NDArray[Any]:
    """Return the values of an operand as the kernels hold them."""
    import numpy as np

    return np.asarray(operand.values, np.int32) if operand.dtype == INT8.name else operand.carrier()


def stored(values: NDArray[Any], result: str) -> Any:
    """Return a result as the user gets it."""
    from ascendsim.numerics.casts import encode

    return values if result == INT32.name else encode(values, result)


def _refuse_hf32(kind: Named, instead: str) -> None:
    """Refuse HF32 as the format of a tensor."""
    name = name_of(kind)
    if name.startswith("hf32"):
        raise UnsupportedError(
            f"matmul: no tensor is {name}, which is how the cube reads float32 operands; {instead}"
        )


def squeezed(gradient: str, through: str, asked: str) -> str:
    """Say that a gradient passes through a narrower format on its way out; nothing where it loses nothing."""
    # float32 is what sums are held in, so a cast from it is the one rounding that the asked format needs.
    if through in ("float32", asked):
        return ""
    return (
        f"{gradient} passes through {through} on its way to {asked}, as in the shipped operator: what "
        f"{through} does not hold is lost. The rule set hardware converts it once."
    )


def merges(call: Call, gradient: str) -> str:
    """Say how merged groups of grad_input spread NaN and Inf; "" for other gradients."""
    merge = min(call.merge_of(gradient), call.problem.groups)
    # The blocks of grad_weight beside the diagonal are dropped, and their values with them.
    if gradient != "grad_input" or merge == 1:
        return ""
    return (
        f"grad_input takes {merge} groups as one, whose weights have zeros beside the diagonal, as in the "
        "shipped operator: Inf or NaN in grad_output of one of them is NaN in grad_input of all (0 x Inf). "
        "A plan with group_merge 1 keeps groups apart."
    )


def by_winograd(schedule: Schedule) -> str:
    """Say that a gradient is made by Winograd, if it is."""
    if not schedule.fixed:
        return ""
    # Imported here: of all nests it is the largest, and hardly a call takes it.
    from ascendsim.ops.schedules.winograd import WgradWinograd

    if not isinstance(schedule, WgradWinograd):
        return ""
    return (
        "grad_weight is made by Winograd, F(2x2, 3x3), which the operator takes for these sizes: 16 products "
        "in place of the direct sum's 36, rounded elsewhere, so that its bits are others. Its cycles were "
        "held against no device."
    )


def narrow_blocks(call: Call, gradient: str, schedule: Schedule) -> str:
    """Say that L1 has no room for the base blocks of a user's plan of grad_weight, so they are narrower."""
    plan = call.plans[gradient]
    if not isinstance(schedule, Wgrad) or plan.by_rule:
        return ""
    t, tasks = plan.tiling, schedule.tasks
    columns = narrowed_to(schedule.gemm, t, tasks.column_blocks)
    if not columns:
        return ""
    runs = max(pixels for _, pixels in tasks.ranges_of_image)
    return (
        f"L1 does not hold the tiles of grad_weight as its plan says: blocks have {columns} columns, where "
        f"base_n is {t.base_n}, over {runs} pixels at a time, where steps are of {t.step_kb * t.base_k}. "
        "So grad_output comes again for each of more blocks; the product's operators "
        "refuse this plan. Take smaller steps, base_k or base_m, or fewer copies in L1."
    )


def padded_rows(call: Call, gradient: str) -> str:
    """Note a user's base_m that fills no whole fractals; the rules take one only for a reason."""
    plan, rows = call.plans[gradient], call.profile.cube.m0
    base, more = plan.tiling.base_m, -plan.tiling.base_m % rows
    # Of grad_weight it is refused; a block of all pixels has nothing to take instead.
    if gradient != "grad_input" or not more or plan.by_rule:
        return ""
    if base >= prod(call.problem_of(gradient).input[2:]):
        return ""
    return (
        f"base_m of grad_input is {base}, no multiple of {rows}: the cube multiplies {base + more} rows for "
        f"a whole block, the last {more} for nothing."
    )


def oversized_blocks(call: Call, gradient: str, schedule: Schedule) -> str:
    """Note base blocks of a user's plan that are larger than the axes that they cut."""
    plan, gemm = call.plans[gradient], schedule.gemm
    if not isinstance(schedule, Dgrad | Wgrad) or plan.by_rule:
        return ""
    if isinstance(gemm, WgradGemm):
        rows, columns, what = gemm.rows, gemm.all_taps.groups * gemm.sliding.c0, "rows"
    else:
        rows, columns, what = gemm.sliding.pixels, gemm.columns, "pixels of an image"
    sides = (("base_m", rows, f"{rows} {what}"), ("base_n", columns, f"{columns} columns"))
    # The last fractal of a side may be begun.
    larger = [
        f"{name} is {getattr(plan.tiling, name)} for {words}"
        for name, side, words in sides
        if getattr(plan.tiling, name) >= side + FRACTAL_ROWS
    ]
    if not larger:
        return ""
    return f"Blocks of {gradient} are cut to what there is: {' and '.join(larger)}."


def not_modelled(call: Call, gradient: str) -> str:
    """Say where the product's operator computes a gradient in a way that has other bits; else nothing."""
    asked = asks_for_product(call.problem, gradient, call.compute_dtype, call.profile)
    if not asked or call.as_product(gradient):
        return ""
    ties = " and in HF32 rounds ties away from zero" if call.compute_dtype == "hf32" else ""
    return (
        f"The operator may compute {gradient} of these shapes by a matrix product, which cuts the "
        f"reduction in its own way{ties}; here a convolution kernel makes it, and the bits are its own."
    )
