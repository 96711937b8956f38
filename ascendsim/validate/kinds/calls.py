"""Sums over the kernels of a call, bias gradients and changes of layout, against their estimates."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from ascendsim.errors import DataError
from ascendsim.ops.convolution_backward import estimate
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.transdata import estimate_transdata
from ascendsim.validate.compare import Estimate
from ascendsim.validate.kinds.counters import active_us
from ascendsim.validate.kinds.kernels import gradient_call
from ascendsim.validate.reading import refuse_beyond_memory
from ascendsim.validate.schema import Row

if TYPE_CHECKING:
    from ascendsim.profile import Profile

CALL_NOTE = "all kernels of the call, casts of the result excepted"


def call_us(row: Row, profile: Profile) -> Estimate:
    """Return the microseconds of all kernels that a call runs for one gradient, launches included.

    A grad_weight is of float32, whatever its operands are.

    Raises   AscendSimError if the sizes do not fit each other or the product
    """
    weights = row.kernel == "grad_weight_call"
    formats = (None, "float32" if weights else None, None)
    result = gradient_call(row, profile, (not weights, weights, False), output_dtypes=formats)
    return Estimate(result.time_us, {}, CALL_NOTE)


def bias_us(row: Row, profile: Profile) -> Estimate:
    """Return the microseconds of the sum of a grad_output (N, C, spatial...) over all but its channels.

    Raises   AscendSimError if the shape has no channels
    """
    shape = row.input_shape
    if len(shape) < 3:
        raise DataError(f"input_shape is {'x'.join(map(str, shape))}; give that of grad_output, (N, C, ...)")
    refuse_beyond_memory(prod(shape))
    # Any layer with such a grad_output: one channel in, one tap.
    problem = ConvProblem((shape[0], 1, prod(shape[2:])), (shape[1], 1, 1))
    dtype = row.compute_dtype
    result = estimate(
        problem, dtype, product=profile, output_mask=(False, False, True), l2_start=row.l2_start
    )
    kernel = result.kernels[0]
    return Estimate(kernel.time_us, active_us(kernel.timeline, profile))


def transdata_us(row: Row, profile: Profile) -> Estimate:
    """Return the microseconds of a TransData between row after row and the cube's layouts, or two of these.

    Raises   AscendSimError if the shape is none of an image or a weight
    """
    refuse_beyond_memory(prod(row.input_shape))
    found = estimate_transdata(
        *(row.change, row.input_shape, row.compute_dtype, profile),
        c0=row.c0,
        groups=row.groups,
        l2_start=row.l2_start,
    )
    return Estimate(found.time_us, active_us(found.timeline, profile), "schedule inferred")
