"""Checks 28 to 31 of aclnnConvolutionBackward: the abilities of the product's inner operators."""

from __future__ import annotations

from ascendsim.rules.checked import CheckedConvolution
from ascendsim.rules.common import inner_limits
from ascendsim.rules.convolution.shapes import indivisible, unequal_batch, unrelated
from ascendsim.rules.cube_math import CUBE_MATH_TYPES, EIGHT_BITS
from ascendsim.rules.model import ABSENT
from ascendsim.rules.order import INNER, Check


def three_dimensions(c: CheckedConvolution) -> str | None:
    """Find a 3-D call on a product that has none."""
    if c.rank != 5 or c.product in c.rules.products_3d:
        return None
    return f"input has rank 5, but {c.product} supports 1-D and 2-D only"


# 2-D calls lose the same precision silently; only 3-D ones are refused.
def squeezed_grad_weight(c: CheckedConvolution) -> str | None:
    """Find a grouped 3-D grad_weight in float32 that the operator would squeeze through float16."""
    grad_weight = c.optional("grad_weight")
    concerned = c.product in c.rules.squeezed_grad_weight and c.rank == 5 and c.mask[1] and c.call.groups > 1
    if not concerned or grad_weight is None or grad_weight.dtype != "float32":
        return None
    if c.cube_math_type != 2 and c.promoted_dtype == "float32":
        return None
    what = (
        f"cube_math_type 2 ({CUBE_MATH_TYPES[2]})" if c.cube_math_type == 2 else f"{c.promoted_dtype} inputs"
    )
    return f"grad_weight is float32 with {c.call.groups} groups in 3-D; {what} cannot give it"


def wide_grad_bias(c: CheckedConvolution) -> str | None:
    """Find an 8-bit grad_bias that is asked for."""
    bias = c.optional("grad_bias")
    if c.product not in c.rules.wide_grad_bias or not c.mask[2] or bias is None:
        return None
    return f"grad_bias is {bias.dtype}; no kernel sums into 8 bits" if bias.dtype in EIGHT_BITS else None


def inner_operators(c: CheckedConvolution) -> str | None:
    """Find what no inner operator computes: no convolution, no kernel for the dtypes, or above a limit."""
    # The operator leaves these to shape inference, whose failure it turns into 561103. The simulator asks
    # whatever the mask wants, since it has no kernel for shapes that are no convolution.
    return unrelated(c) or unequal_batch(c) or indivisible(c) or missing_kernel(c) or inner_limits(c)


def missing_kernel(c: CheckedConvolution) -> str | None:
    """Find dtypes for which the product has no kernel."""
    # Page 004 forgot to forbid what the cube of the 310P cannot do: such a call is well formed and fails
    # inside.
    if c.compute_dtype == ABSENT:
        return (
            f"the cube of {c.product} computes {c.promoted_dtype} with no cube_math_type {c.cube_math_type}"
        )
    eight = sorted(set(c.input_dtypes) & set(EIGHT_BITS))
    if not eight or c.rules.eight_bit.kernels == "all":
        return None
    if c.mask[1]:
        # hifloat8 passes check 8 with a float32 grad_weight, but no such kernel is registered.
        return f"no kernel computes grad_weight of {eight[0]}"
    if c.mask[0] and not (c.call.transposed and eight == ["hifloat8"]):
        how = "" if c.call.transposed else ", not transposed"
        return f"no kernel computes grad_input of {eight[0]}{how}"
    return None


INNER_CHECKS = (
    Check("28", "3-D", three_dimensions),
    Check("29", "grouped float32 grad_weight", squeezed_grad_weight),
    Check("30", "8-bit grad_bias", wide_grad_bias, INNER),
    Check("31", "inner operators", inner_operators, INNER),
)
