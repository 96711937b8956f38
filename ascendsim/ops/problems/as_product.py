"""Gradients that the product's interface hands to the operator of matrix products.

Where every tap meets one pixel alone and nothing lies between, gradients are products of the tensors as they
lie in memory:

    kernel as large as the image   grad_input  (N, Ci taps)  = grad_output (N, Co)  x weight (Co, Ci taps)
    (no padding)                   grad_weight (Co, Ci taps) = grad_output^T        x input (N, Ci taps)
    one tap, one image, stride 1   grad_input  (Ci, pixels)  = weight^T             x grad_output (Co, pixels)
    (910_95)                       grad_weight (Co, Ci)      = grad_output          x input^T (pixels, Ci)
    kernels side by side           grad_input  (Ci taps, pixels) of each image = weight^T x grad_output of it
    (stride = kernel, no padding)  and its axes permuted: every tap beside the pixels that it makes
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from ascendsim.numerics.formats.dtypes import dtype
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.hf32 import stored_name
from ascendsim.profile import Profile

if TYPE_CHECKING:
    from ascendsim.ops.problems.matmul import MatmulProblem

# 910B and 910_93; 910_95. What older operators do is not known.
OLDER, NEWEST = "2201", "3510"
# One image of one tap goes to a matrix product while its tensors are no larger than this.
MOST_BYTES = 128 * 2**20


class GradientProduct(NamedTuple):
    """A gradient as one matrix product: left x right, tensors of the call by their names.

    result   shape of what the product makes, and axes: the order in which they make the gradient; () where it
             lies as the gradient does
    """

    problem: MatmulProblem
    left: str
    right: str
    result: tuple[int, ...] = ()
    axes: tuple[int, ...] = ()


def asks_for_product(p: ConvProblem, gradient: str, compute_dtype: str, profile: Profile) -> bool:
    """Tell whether the product's interface makes a matrix product of a gradient, whatever is made of it here.

    Source   public ops-nn at e5c3fa932, as read: the operator's interface code
    """
    if not may_be_product(p, profile):
        return False
    if p.kernel == p.big_size or (gradient == "grad_input" and _step_over_kernels(p, profile.npu_arch)):
        return True
    out, into = p.small_channels, p.big_channels
    elements = (into + out) * prod(p.small_size) + into * out
    one_image = p.batch == 1 and p.kernel == p.strides == (1, 1, 1)
    fits = elements * dtype(stored_name(compute_dtype)).itemsize <= MOST_BYTES
    return profile.npu_arch == NEWEST and one_image and fits


def gradient_product(
    p: ConvProblem, gradient: str, compute_dtype: str, profile: Profile
) -> GradientProduct | None:
    """Return the matrix product that makes a gradient as the interface has it; None: a convolution.

    An image with pixels left over behind its last kernel stays a convolution here: the product would not make
    them.
    """
    if not asks_for_product(p, gradient, compute_dtype, profile):
        return None
    images = gradient == "grad_input"
    out, into = p.small_channels, p.big_channels
    if p.kernel == p.big_size:
        columns = into * prod(p.kernel)
        if images:
            return GradientProduct(_product(p.batch, out, columns), "grad_output", "weight")
        product = _product(out, p.batch, columns, transpose_a=True)
        return GradientProduct(product, "grad_output", "input")
    if max(p.strides) > 1:
        return _side_by_side(p) if covers_image(p) else None
    pixels = prod(p.small_size)
    if images:
        return GradientProduct(_product(into, out, pixels, transpose_a=True), "weight", "grad_output")
    return GradientProduct(_product(out, pixels, into, transpose_b=True), "grad_output", "input")


def may_be_product(p: ConvProblem, profile: Profile) -> bool:
    """Tell whether the interface looks at a convolution at all: one group, no padding, nothing between."""
    plain = p.groups == 1 and not p.transposed and not any(map(any, p.pads)) and set(p.dilations) == {1}
    return plain and profile.npu_arch in (OLDER, NEWEST)


def covers_image(p: ConvProblem) -> bool:
    """Tell whether kernels lie side by side (stride = kernel) and no pixel of the image is left over."""
    covered = tuple(count * step for count, step in zip(p.small_size, p.strides, strict=True))
    return p.kernel == p.strides and covered == p.big_size


def _step_over_kernels(p: ConvProblem, npu_arch: str) -> bool:
    """Tell whether kernels lie side by side, without gap or overlap, and the interface takes note of it."""
    steps = p.strides
    # 910_95 has a kernel of its own for strides of 2 along both axes.
    taken = max(steps) > 1 if npu_arch == OLDER else max(steps) > 2 or steps[1] != steps[2]
    return p.kernel == steps and taken


def _side_by_side(p: ConvProblem) -> GradientProduct:
    """Return grad_input as a product for each image, (Ci taps, pixels), whose axes a Transpose permutes."""
    into, pixels = p.big_channels, prod(p.small_size)
    problem = _product(
        into * prod(p.kernel), p.small_channels, pixels, p.batch, transpose_a=True, shared_a=True
    )
    # (image, channel, taps of D, H, W, pixels of D, H, W); each axis of taps goes behind that of its pixels.
    result = (p.batch, into, *p.kernel, *p.small_size)
    return GradientProduct(problem, "weight", "grad_output", result, (0, 1, 5, 2, 6, 3, 7, 4))


def _product(*sizes: Any, **options: Any) -> MatmulProblem:
    # Imported here: most gradients are no product.
    from ascendsim.ops.problems.matmul import MatmulProblem

    return MatmulProblem(*sizes, **options)
