"""Measure gradients against float64 ones of the same stored tensors."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.numerics.formats.casts import decode
from ascendsim.numerics.formats.dtypes import dtype as lookup_dtype
from ascendsim.numerics.metrics import error_metrics
from ascendsim.ops.lowering.call import GRADIENTS
from ascendsim.ops.reference.float64 import gradients_float64
from ascendsim.studies.records import JudgedGradient

if TYPE_CHECKING:
    from ascendsim.ops.problems.convolution import ConvProblem
    from ascendsim.ops.results import ConvolutionBackwardResult


@default_arithmetic
def float64_references(
    problem: ConvProblem, grad_output: Any, input: Any, weight: Any, output_mask: tuple[bool, bool, bool]
) -> dict[str, Any]:
    """Return the float64 gradients of tensors as they are stored, by name; None where masked."""
    # Decoding is exact, so that the errors are those of the arithmetic alone, not of storing the tensors.
    carriers = [decode(tensor, lookup_dtype(tensor.dtype)) for tensor in (grad_output, input, weight)]
    made = gradients_float64(problem, carriers[0], carriers[1], carriers[2], output_mask)
    return dict(zip(GRADIENTS, made, strict=True))


@default_arithmetic
def judge(result: ConvolutionBackwardResult, references: Mapping[str, Any]) -> tuple[JudgedGradient, ...]:
    """Measure each gradient of a result against the one of the same name; a masked one is left out."""
    found = ((name, getattr(result, name)) for name in GRADIENTS)
    return tuple(
        JudgedGradient(
            name,
            tuple(gradient.shape),
            str(gradient.dtype),
            # hifloat8 has no numpy dtype: its bytes are those of its codes.
            hashlib.sha256(getattr(gradient, "codes", gradient).tobytes()).hexdigest(),
            error_metrics(gradient, references[name], _judged_as(name, gradient, result.compute_dtype)),
        )
        for name, gradient in found
        if gradient is not None
    )


def _judged_as(name: str, gradient: Any, compute_dtype: str) -> Any:
    """Return the format whose steps are the measure of a gradient's errors."""
    # The accuracy of HF32 is that of its operands, whatever the tensors are stored as; grad_bias is summed on
    # the vector cores and never meets the cube.
    in_hf32 = name != "grad_bias" and compute_dtype.startswith("hf32")
    return lookup_dtype(compute_dtype if in_hf32 else gradient.dtype)
