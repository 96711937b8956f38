"""Checks 28 to 31 of aclnnConvolutionBackward: what the product's inner operators can do."""

from __future__ import annotations

from ascendsim.rules.conv_shapes import indivisible, unequal_batch, unrelated
from ascendsim.rules.cube_math import CUBE_MATH_TYPES, cube_dtype, promote
from ascendsim.rules.limits import first_exceeded
from ascendsim.rules.model import ABSENT
from ascendsim.rules.order import INNER, Check
from ascendsim.rules.view import EIGHT_BITS
from ascendsim.rules.view import CheckedConvolution as Checked


def three_dimensions(v: Checked) -> str | None:
    """Find a 3-D call on a product that has none."""
    if v.rank != 5 or v.product in v.rules.products_3d:
        return None
    return f"input has rank 5, but {v.product} supports 1-D and 2-D only"


def squeezed_grad_weight(v: Checked) -> str | None:
    """Find a grouped 3-D grad_weight in float32 that the operator would squeeze through float16."""
    grad_weight = v.optional("grad_weight")
    concerned = v.product in v.rules.squeezed_grad_weight and v.rank == 5 and v.mask[1] and v.call.groups > 1
    if not concerned or grad_weight is None or grad_weight.dtype != "float32":
        return None
    promoted = promote(v.input_dtypes, v.rules.eight_bit.mixed)
    if v.cube_math_type != 2 and promoted == "float32":
        return None
    what = f"cube_math_type 2 ({CUBE_MATH_TYPES[2]})" if v.cube_math_type == 2 else f"{promoted} inputs"
    return f"grad_weight is float32 with {v.call.groups} groups in 3-D; {what} cannot give it"


def wide_grad_bias(v: Checked) -> str | None:
    """Find an 8-bit grad_bias that is asked for."""
    bias = v.optional("grad_bias")
    if v.product not in v.rules.wide_grad_bias or not v.mask[2] or bias is None:
        return None
    return f"grad_bias is {bias.dtype}; no kernel sums into 8 bits" if bias.dtype in EIGHT_BITS else None


def inner_operators(v: Checked) -> str | None:
    """Find what no inner operator computes: no convolution, no kernel for the dtypes, or above a limit."""
    return unrelated(v) or unequal_batch(v) or indivisible(v) or missing_kernel(v) or first_exceeded(v, INNER)


def missing_kernel(v: Checked) -> str | None:
    """Find dtypes for which the product has no kernel."""
    promoted = promote(v.input_dtypes, v.rules.eight_bit.mixed)
    compute = cube_dtype(promoted, v.cube_math_type, v.rules.cube_math.get(v.product, {}))
    if compute == ABSENT:
        return f"the cube of {v.product} computes {promoted} with no cube_math_type {v.cube_math_type}"
    eight = sorted(set(v.input_dtypes) & set(EIGHT_BITS))
    if not eight or v.rules.eight_bit.kernels == "all":
        return None
    if v.mask[1]:
        return f"no kernel computes grad_weight of {eight[0]}"
    if v.mask[0] and not (v.call.transposed and eight == ["hifloat8"]):
        how = "" if v.call.transposed else ", not transposed"
        return f"no kernel computes grad_input of {eight[0]}{how}"
    return None


INNER_CHECKS = (
    Check("28", "3-D", three_dimensions),
    Check("29", "grouped float32 grad_weight", squeezed_grad_weight),
    Check("30", "8-bit grad_bias", wide_grad_bias, INNER),
    Check("31", "inner operators", inner_operators, INNER),
)
