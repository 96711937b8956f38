"""A call to an operator with everything resolved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ascendsim.numerics.accumulation.models import AccumulationModel
from ascendsim.numerics.accumulation.settings import MathSettings
from ascendsim.numerics.formats.controls import OVERFLOW_RULES, conversion_overflow, fixpipe_overflow
from ascendsim.numerics.formats.dtypes import DType, dtype
from ascendsim.ops.lowering.generations import HF32_TIES, Generation, generation
from ascendsim.ops.plan import Plan
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.dgrad import DgradGemm
from ascendsim.ops.problems.hf32 import as_multiplied, full_name, stored_name
from ascendsim.ops.problems.packed import C0_BYTES
from ascendsim.ops.problems.views import View
from ascendsim.ops.problems.wgrad import WgradGemm
from ascendsim.ops.schedules.base import Schedule
from ascendsim.ops.schedules.catalogue import schedule_named

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ascendsim.profile import Profile

    Tensors = dict[str, NDArray[Any]]

INPUTS = ("grad_output", "input", "weight")
GRADIENTS = ("grad_input", "grad_weight", "grad_bias")
Mask = tuple[bool, bool, bool]


@dataclass(frozen=True)
class Call:
    """All that fixes the kernels of a call, besides the values in its tensors.

    compute_dtype   what the cube multiplies: a name of a format, or hf32
    dtypes          storage format of grad_output, input, weight, grad_input, grad_weight, grad_bias
    plans           gradient -> how the cube computes it, for those that are computed
    views           where the elements of those inputs lie that are not contiguous
    fixpipe         which of the vendor's pages says when Fixpipe saturates (controls.FIXPIPE_PRESETS)
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

    def schedule(self, gradient: str) -> Schedule:
        """Return the loop nest that the plan of a gradient asks for, bound to this call."""
        plan = self.plans[gradient]
        gemm = (DgradGemm if gradient == "grad_input" else WgradGemm).of(self.problem, self.compute_dtype)
        sums = self.generation.deterministic_sum if self.deterministic else "atomic"
        return schedule_named(plan.schedule)(gemm, plan.tiling, self.profile, sums)

    @property
    def math(self) -> MathSettings:
        """Arithmetic of the convolution backward kernels that write float32."""
        return self.cube_math("convolution backward", "float32")

    def cube_math(self, operation: str, target: str, *, by_vector: bool = False) -> MathSettings:
        """Return the arithmetic of a cube kernel with results in format `target`.

        `operation` is a key of `generations.HF32_TIES`; `by_vector` says that vector cores convert the
        results, not Fixpipe.
        """
        if not by_vector and self.profile.has_path("L0C", "GM") and is_described(self.profile):
            overflow = fixpipe_overflow(self.profile.npu_arch, target, self.fixpipe)
        else:
            overflow = vector_overflow(self.profile, target)
        return MathSettings(self.accumulation, HF32_TIES[operation], overflow)

    @property
    def generation(self) -> Generation:
        """What the operators of this generation do around the cube."""
        return generation(self.profile.npu_arch)

    @property
    def squeezed(self) -> bool:
        """Whether a float32 grad_weight passes through float16 on its way out."""
        return (
            self.generation.squeezes_groups
            and self.problem.groups > 1
            and self.storage.bits == 16
            and self.dtypes["grad_weight"] == "float32"
        )

    @property
    def storage(self) -> DType:
        """Format in which GM and L1 hold the operands of the cube."""
        return dtype(stored_name(self.compute_dtype))

    @property
    def operand(self) -> DType:
        """Format whose grid the operands lie on inside the cube."""
        return dtype(full_name(self.compute_dtype, self.profile))

    def multiplied(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the values that the cube multiplies for stored ones."""
        return as_multiplied(values, self.compute_dtype, self.profile, self.math.hf32_ties)

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


def is_described(profile: Profile) -> bool:
    """Whether the overflow rules know this generation of the core; a user's own machine may have another."""
    return profile.npu_arch in {rules.npu_arch for rules in OVERFLOW_RULES}


def vector_overflow(profile: Profile, target: str) -> str:
    """Return how a vector conversion overflows; on a machine that is no product it delivers Inf and NaN."""
    return conversion_overflow(profile.npu_arch, target) if is_described(profile) else "ieee"
