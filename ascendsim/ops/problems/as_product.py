"""Gradients that the product's interface hands to the operator of matrix products.

Where every tap meets one pixel alone and nothing lies between, both gradients are products of the tensors as
they lie in memory:

    kernel as large as the image   grad_input  (N, Ci taps)  = grad_output (N, Co)  x weight (Co, Ci taps)
    (no padding)                   grad_weight (Co, Ci taps) = grad_output^T        x input (N, Ci taps)
    one tap, one image, stride 1   grad_input  (Ci, pixels)  = weight^T             x grad_output (Co, pixels)
    (910_95)                       grad_weight (Co, Ci)      = grad_output          x input^T (pixels, Ci)
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ascendsim.numerics.formats.dtypes import dtype
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.hf32 import stored_name
from ascendsim.ops.problems.matmul import MatmulProblem
from ascendsim.profile import Profile

# 910B and 910_93; 910_95. What older operators do is not known.
OLDER, NEWEST = "2201", "3510"
# One image of one tap goes to a matrix product while its tensors are no larger than this.
MOST_BYTES = 128 * 2**20


@dataclass(frozen=True)
class GradientProduct:
    """A gradient as one matrix product: left x right, tensors of the call by their names."""

    problem: MatmulProblem
    left: str
    right: str


def gradient_product(
    p: ConvProblem, gradient: str, compute_dtype: str, profile: Profile
) -> GradientProduct | None:
    """Return the matrix product that the product's interface makes of a gradient; None: a convolution kernel.

    Source   public ops-nn at e5c3fa932, as read: the operator's interface code
    """
    plain = p.groups == 1 and not p.transposed and not any(map(any, p.pads)) and set(p.dilations) == {1}
    if not plain or profile.npu_arch not in (OLDER, NEWEST):
        return None
    images = gradient == "grad_input"
    out, into = p.small_channels, p.big_channels
    if p.kernel == p.big_size:
        columns = into * prod(p.kernel)
        if images:
            return GradientProduct(MatmulProblem(p.batch, out, columns), "grad_output", "weight")
        product = MatmulProblem(out, p.batch, columns, transpose_a=True)
        return GradientProduct(product, "grad_output", "input")
    pixels = prod(p.small_size)
    elements = (into + out) * pixels + into * out
    one_image = p.batch == 1 and p.kernel == p.strides == (1, 1, 1)
    fits = elements * dtype(stored_name(compute_dtype)).itemsize <= MOST_BYTES
    if profile.npu_arch != NEWEST or not one_image or not fits:
        return None
    if images:
        return GradientProduct(MatmulProblem(into, out, pixels, transpose_a=True), "weight", "grad_output")
    return GradientProduct(MatmulProblem(out, pixels, into, transpose_b=True), "grad_output", "input")
