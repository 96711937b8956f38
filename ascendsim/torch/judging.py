"""Results of a pass against float64 ones of the very tensors that torch had."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.numerics.formats.casts import decode
from ascendsim.numerics.formats.dtypes import dtype as lookup_dtype
from ascendsim.studies.precision import float64_references, judge
from ascendsim.torch.passes import OUTPUT_ALONE, mirrored

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.ops.lowering.call import Mask
    from ascendsim.ops.problems.convolution import ConvProblem
    from ascendsim.ops.results import ConvolutionBackwardResult
    from ascendsim.studies.records import JudgedGradient


@default_arithmetic
def judged_forward(
    problem: ConvProblem,
    input: NDArray[Any],
    weight: NDArray[Any],
    bias: Any,
    result: ConvolutionBackwardResult,
) -> tuple[JudgedGradient, ...]:
    """Return the error of an output, which is the grad_input of the result."""
    other = mirrored(problem)
    shape_only = np.zeros(problem.grad_output, input.dtype)
    references = float64_references(other, input, shape_only, weight, OUTPUT_ALONE)
    if bias is not None:
        more = decode(bias, lookup_dtype(bias.dtype)).astype(np.float64)
        references["grad_input"] = references["grad_input"] + more.reshape(-1, *(1,) * problem.rank)
    (output,) = judge(result, references)
    return (replace(output, name="output"),)


def judged_backward(
    problem: ConvProblem,
    given: tuple[NDArray[Any], NDArray[Any], NDArray[Any]],
    mask: Mask,
    result: ConvolutionBackwardResult,
) -> tuple[JudgedGradient, ...]:
    """Return the errors of the gradients that were asked for; `given` are grad_output, input and weight."""
    return judge(result, float64_references(problem, *given, mask))
