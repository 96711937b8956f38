"""The error of a gradient, split into what storage, cast, output and accumulation make of it.

Four gradients in float64 stand between the tensors as given and the result, each the exact gradient of what
one step more has left of them:

    truth    of the tensors as they were given
    stored   of those in their storage format, multiplied by the loss scale
    read     of what the cube reads of the stored ones: rounded to float16, or to HF32
    rounded  `read`, rounded once to the formats in which the gradient leaves the core and is stored

Storage is stored - truth, cast is read - stored, output is rounded - read, accumulation is result - rounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ascendsim.numerics.formats.casts import round_to
from ascendsim.numerics.formats.dtypes import dtype as lookup_dtype
from ascendsim.ops.lowering.call import GRADIENTS, INPUTS, leaves_in, vector_overflow
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.hf32 import as_multiplied
from ascendsim.ops.reference.float64 import gradients_float64
from ascendsim.studies.arithmetic.formats import format_of, quantise

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.profile import Profile

    Floats = NDArray[np.float32]
    Float64 = NDArray[np.float64]
    Mask = tuple[bool, bool, bool]


@dataclass(frozen=True)
class Steps:
    """The gradients between truth and result, by name, all times the loss scale; and sums of |a b|."""

    truth: Mapping[str, Float64]
    stored: Mapping[str, Float64]
    read: Mapping[str, Float64]
    rounded: Mapping[str, Float64]
    magnitudes: Mapping[str, Float64]


@dataclass(frozen=True)
class Reading:
    """How the cube reads stored tensors, and how gradients leave.

    dtype    in which all tensors of the call are stored
    compute  what the cube reads, as the result of a call names it
    direct   gradients leave in their own format (a choice of the rule set)
    """

    problem: ConvProblem
    profile: Profile
    dtype: str
    compute: str
    direct: bool

    def operands(self, stored: Mapping[str, Floats], gradient: str) -> dict[str, Floats]:
        """Return the tensors that a gradient is made of; grad_bias never meets the cube."""
        if gradient == "grad_bias" or self.compute == self.dtype:
            return dict(stored)
        if self.compute.startswith("hf32"):
            # The grad_input of a transposed convolution runs as a plain one.
            forward = gradient == "grad_input" and self.problem.transposed
            operation = "convolution_forward" if forward else "convolution_backward"
            ties = self.profile.generation.hf32_ties[operation]
            return {name: as_multiplied(x, "hf32", self.profile, ties) for name, x in stored.items()}
        overflow = vector_overflow(self.profile, self.compute)
        return {name: round_to(x, self.compute, overflow=overflow) for name, x in stored.items()}

    def formats_out(self, gradient: str) -> tuple[str, ...]:
        """Return the formats to which a gradient is rounded on its way out, one after the other."""
        compute = "hf32" if self.compute.startswith("hf32") else self.compute
        names = dict.fromkeys((*GRADIENTS, *INPUTS), self.dtype)
        steps = [leaves_in(gradient, names, compute, direct=self.direct)]
        if gradient == "grad_weight" and self._squeezed:
            steps.append("float16")
        return tuple(dict.fromkeys((*steps, self.dtype)))

    @property
    def _squeezed(self) -> bool:
        """Whether the shipped operator takes a float32 grad_weight of groups through float16."""
        shipped = self.profile.generation.squeezes_groups and not self.direct
        half = lookup_dtype(self.compute).bits == 16
        return shipped and half and self.problem.groups > 1 and self.dtype == "float32"

    def leaving(self, exact: Float64, gradient: str) -> Float64:
        """Round an exact gradient to the formats in which it leaves."""
        for name in self.formats_out(gradient):
            exact = quantise(exact, format_of(name)).astype(np.float64)
        return exact


def gradients_of(problem: ConvProblem, tensors: Mapping[str, Any], mask: Mask) -> dict[str, Float64]:
    """Return the wanted gradients in float64, by name."""
    grad_output, input, weight = (tensors[name] for name in INPUTS)
    made = gradients_float64(problem, grad_output, input, weight, mask)
    return {name: values for name, values in zip(GRADIENTS, made, strict=True) if values is not None}


def magnitudes_of(problem: ConvProblem, tensors: Mapping[str, Any], mask: Mask) -> dict[str, Float64]:
    """Return the sums of the magnitudes of the terms of the wanted gradients."""
    return gradients_of(problem, {name: np.abs(values) for name, values in tensors.items()}, mask)


def read_by(reading: Reading, stored: Mapping[str, Floats], mask: Mask) -> dict[str, Float64]:
    """Return the exact gradients of what the cube reads."""
    found: dict[str, Float64] = {}
    for at, name in enumerate(GRADIENTS):
        alone = (mask[0] and at == 0, mask[1] and at == 1, mask[2] and at == 2)
        if mask[at]:
            found |= gradients_of(reading.problem, reading.operands(stored, name), alone)
    return found


def norm(values: Float64) -> float:
    """Return the L2 norm of a tensor."""
    return float(np.linalg.norm(values))
