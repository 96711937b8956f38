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


def gradient_product(
    p: ConvProblem, gradient: str, compute_dtype: str, profile: Profile
) -> GradientProduct | None:
    """Return the matrix product that the product's interface makes of a gradient; None: a convolution kernel.

    Source   public ops-nn at e5c3fa932, as read: the operator's interface code
    """
    if not may_be_product(p, profile):
        return None
    images = gradient == "grad_input"
    out, into = p.small_channels, p.big_channels
    if p.kernel == p.big_size:
        columns = into * prod(p.kernel)
        if images:
            return GradientProduct(_product(p.batch, out, columns), "grad_output", "weight")
        product = _product(out, p.batch, columns, transpose_a=True)
        return GradientProduct(product, "grad_output", "input")
    if images and _lie_side_by_side(p, profile.npu_arch):
        return _side_by_side(p)
    pixels = prod(p.small_size)
    elements = (into + out) * pixels + into * out
    one_image = p.batch == 1 and p.kernel == p.strides == (1, 1, 1)
    fits = elements * dtype(stored_name(compute_dtype)).itemsize <= MOST_BYTES
    if profile.npu_arch != NEWEST or not one_image or not fits:
        return None
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


def _lie_side_by_side(p: ConvProblem, npu_arch: str) -> bool:
    """Tell whether kernels cover the image without gap or overlap, and the interface takes note of it.

    An image with pixels left over at its end stays a convolution here: the product would not make them.
    """
    steps = p.strides
    if not covers_image(p) or max(steps) == 1:
        return False
    # 910_95 has a kernel of its own for strides of 2 along both axes.
    return npu_arch == OLDER or max(steps) > 2 or steps[1] != steps[2]


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
