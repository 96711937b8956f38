"""A call to an operator with everything resolved."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Any

from ascendsim.frozen import cached_property
from ascendsim.numerics.accumulation import AccumulationModel, MathSettings
from ascendsim.numerics.dtypes import DType, dtype
from ascendsim.ops.lowering.formats import cube_overflow, vector_overflow
from ascendsim.ops.plan import Plan, saying_whose
from ascendsim.ops.problems.convolution import C0_BYTES, ConvProblem, as_multiplied, merged, stored_name
from ascendsim.ops.problems.folded import (
    Dilated,
    Folded,
    GradientProduct,
    Patches,
    gradient_product,
    kernel_problem,
)
from ascendsim.ops.problems.products import DgradGemm, WgradGemm
from ascendsim.ops.problems.views import View
from ascendsim.ops.schedules.base import Schedule, schedule_named

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

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

    def least_mmads(self, gradient: str, schedule: Schedule) -> int:
        """Return how many Mmads a gradient takes at least: its multiply-adds in whole base blocks."""
        problem, gemm, base = self.problem_of(gradient), schedule.gemm, schedule.tiling.base
        if self.as_product(gradient):
            return int(gemm.mmads(base))
        # Of two channels, and of all that fill up groups besides; a nest may leave out what meets padding.
        each = min(schedule.macs_of(problem), problem.met_macs) // prod(problem.weight[:2])
        return int(each * gemm.channel_pairs // prod(map(min, gemm.sizes, base)))

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


# The programs of a larger call take up more memory than the time to write them is worth: its products alone
# take seconds.
MOST_MACS = 1 << 30


def told_of(call: Call) -> Hashable:
    """Return a key of the call; None if nothing about the call may be remembered."""
    # A schedule of the user's own may be another one tomorrow, under the same name.
    own = any(not isinstance(plan.schedule, str) for plan in call.plans.values())
    if own or call.problem.macs > MOST_MACS:
        return None
    # Two plans are equal whoever chose them, but the kernels say who did.
    plans = [
        (name, plan, plan.chosen_by, plan.instead, plan.rule, plan.file) for name, plan in call.plans.items()
    ]
    mappings = tuple(call.dtypes.items()), tuple(plans), tuple(call.views.items())
    others: tuple[Hashable, ...] = call.accumulation, call.compute_dtype, call.deterministic, call.fixpipe
    others += call.direct_outputs, call.packed
    return call.problem, call.profile.told, call.profile.variant, mappings, others
