"""What the cube reads of stored tensors, and the gradients between the exact ones and the result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ascendsim.numerics.casts import round_to
from ascendsim.numerics.dtypes import dtype as lookup_dtype
from ascendsim.ops.lowering.call import GRADIENTS, INPUTS, leaves_in
from ascendsim.ops.lowering.formats import cube_overflow, vector_overflow
from ascendsim.ops.problems.convolution import ConvProblem, as_multiplied
from ascendsim.ops.reference.float64 import gradients_float64
from ascendsim.profile import Profile
from ascendsim.studies.arithmetic.formats import format_of, quantise
from ascendsim.studies.modes.losses import SUM_STEP, LossSteps, RangeEnd, range_ends, unbounded

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Float64 = NDArray[np.float64]
    Floats = NDArray[np.float32]
    Mask = tuple[bool, bool, bool]

OPERANDS = {
    "grad_input": ("grad_output", "weight"),
    "grad_weight": ("grad_output", "input"),
    "grad_bias": ("grad_output",),
}


@dataclass(frozen=True)
class GradientStages:
    """The gradients between truth and result, by name, all times the loss scale; and sums of |a b|.

    free   `rounded` of formats whose range has no end
    ends   `free` but for one end of the range of one tensor
    """

    truth: Mapping[str, Float64]
    stored: Mapping[str, Float64]
    read: Mapping[str, Float64]
    rounded: Mapping[str, Float64]
    free: Mapping[str, Float64]
    ends: Mapping[str, tuple[RangeEnd, ...]]
    magnitudes: Mapping[str, Float64]


@dataclass(frozen=True)
class Reading:
    """The cube's reading of stored tensors, and the format of outgoing gradients.

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

    def free_operands(
        self, given: Mapping[str, Float64], stored: Mapping[str, Floats], gradient: str
    ) -> dict[str, Float64]:
        """Return the same of formats whose range has no end; HF32 has that of float32."""
        read = self.operands(stored, gradient)
        if self.compute.startswith("hf32") and gradient != "grad_bias":
            return {name: values.astype(np.float64) for name, values in read.items()}
        cast = gradient != "grad_bias" and self.compute != self.dtype
        found: dict[str, Float64] = {}
        for name, values in given.items():
            free = unbounded(values, stored[name], lookup_dtype(self.dtype))
            found[name] = unbounded(free, read[name], lookup_dtype(self.compute)) if cast else free
        return found

    def formats_out(self, gradient: str) -> tuple[str, ...]:
        """Return the formats to which a gradient is rounded on its way out, one after the other."""
        compute = "hf32" if self.compute.startswith("hf32") else self.compute
        names = dict.fromkeys((*GRADIENTS, *INPUTS), self.dtype)
        steps = [leaves_in(gradient, names, compute, direct=self.direct)]
        if gradient == "grad_weight" and self._squeezed:
            steps.append("float16")
        return tuple(dict.fromkeys((*steps, self.dtype)))

    def top(self, gradient: str) -> float:
        """Return the largest value that a tensor keeps on its way to a gradient."""
        read = self.dtype if gradient == "grad_bias" else self.compute
        return min(lookup_dtype(name).max_finite for name in (self.dtype, read))

    def losses(self, gradient: str, result: Float64, steps: GradientStages) -> LossSteps:
        """Return the steps that separate the causes of a gradient's losses."""
        leaving = self.formats_out(gradient)
        cast = gradient != "grad_bias" and self.compute != self.dtype
        formats = (self.dtype, *(self.compute,) * cast, *leaving)
        storing = 2 * 2.0 ** -(lookup_dtype(self.dtype).mantissa_bits + 1)
        return LossSteps(
            result,
            steps.rounded[gradient],
            steps.free[gradient],
            steps.ends[gradient],
            steps.magnitudes[gradient],
            formats,
            leaving,
            allowed(self, gradient) + storing + SUM_STEP,
        )

    @property
    def _squeezed(self) -> bool:
        """Whether the shipped operator takes a float32 grad_weight of groups through float16."""
        shipped = self.profile.generation.squeezes_groups and not self.direct
        half = lookup_dtype(self.compute).bits == 16
        return shipped and half and self.problem.groups > 1 and self.dtype == "float32"

    def leaving(self, exact: Float64, gradient: str) -> Float64:
        """Round an exact gradient to the formats in which it leaves, as the product has what lies beyond."""
        for name in self.formats_out(gradient):
            rounded = quantise(exact, format_of(name)).astype(np.float64)
            if cube_overflow(self.profile, name) != "ieee":
                top = lookup_dtype(name).max_finite
                rounded = np.where(np.isfinite(exact), np.clip(rounded, -top, top), rounded)
            exact = rounded
        return exact

    def leaving_free(self, exact: Float64, gradient: str) -> Float64:
        """Round it to the same formats without an end of their range."""
        for name in self.formats_out(gradient):
            exact = unbounded(exact, quantise(exact, format_of(name)).astype(np.float64), lookup_dtype(name))
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
    """Return the exact gradients of the operands that the cube reads."""
    found: dict[str, Float64] = {}
    for name, alone in _each(mask):
        found |= gradients_of(reading.problem, reading.operands(stored, name), alone)
    return found


def free_of_range(
    reading: Reading,
    given: Mapping[str, Float64],
    stored: Mapping[str, Floats],
    read: Mapping[str, Float64],
    mask: Mask,
) -> tuple[dict[str, Float64], dict[str, tuple[RangeEnd, ...]]]:
    """Return the gradients that formats without an end of their range would leave, and what each end takes.

    read   the exact gradients of what the cube reads: where no operand loses range, they are the same
    """
    found: dict[str, Float64] = {}
    ends: dict[str, tuple[RangeEnd, ...]] = {}
    for name, alone in _each(mask):
        free, operands = reading.free_operands(given, stored, name), reading.operands(stored, name)
        taken = [
            (tensor, top, {**free, tensor: values})
            for tensor in OPERANDS[name]
            for top, values in range_ends(operands[tensor], free[tensor], reading.top(name))
        ]
        exact = gradients_of(reading.problem, free, alone)[name] if taken else read[name]
        found[name] = reading.leaving_free(exact, name)
        by_operand = (
            RangeEnd(tensor, top, reading.leaving_free(gradients_of(reading.problem, x, alone)[name], name))
            for tensor, top, x in taken
        )
        leaving = min(lookup_dtype(one).max_finite for one in reading.formats_out(name))
        by_itself = range_ends(reading.leaving(exact, name), found[name], leaving)
        ends[name] = (*by_operand, *(RangeEnd(name, top, values) for top, values in by_itself))
    return found, ends


def _each(mask: Mask) -> Iterator[tuple[str, Mask]]:
    """Yield each wanted gradient with the mask that asks for it alone."""
    for at, name in enumerate(GRADIENTS):
        if mask[at]:
            yield name, (at == 0, at == 1, at == 2)


def allowed(reading: Reading, gradient: str) -> float:
    """Return the largest error by roundings of formats alone, relative to the sum of the terms' magnitudes.

    Both operands are rounded where the cube reads another format than is stored; then the gradient is.
    """
    cast = gradient != "grad_bias" and reading.compute != reading.dtype
    formats = (*(reading.compute,) * (2 * cast), *reading.formats_out(gradient))
    return sum(2.0 ** -(lookup_dtype(name).mantissa_bits + 1) for name in formats)
