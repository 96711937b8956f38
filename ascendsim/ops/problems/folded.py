"""Gradients of many lines (1-D), as the interface of 910_95 makes them: the lines become rows of one image.

A Transpose brings channels in front of the batch. What follows is a convolution of one image whose rows are
the lines, under a kernel of one row, so that no line meets another:

    input, grad_output (N, C, L) ──Transpose──> (1, C, N, L)
    grad_input (1, Ci, N, L)     ──Transpose──> (N, Ci, L)
    grad_weight (Co, Ci, 1, K)                  as it lies
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from ascendsim.numerics.dtypes import dtype
from ascendsim.ops.problems.convolution import ConvProblem, Pair, stored_name
from ascendsim.profile import Profile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.ops.problems.matmul import MatmulProblem

    Values = NDArray[Any]


# 910B and 910_93; 910_95. What older operators do is not known.
OLDER, NEWEST = "2201", "3510"
# One image of one tap goes to a matrix product while its tensors are no larger than this.
MOST_BYTES = 128 * 2**20


class GradientProduct(NamedTuple):
    """A gradient as one matrix product: left x right, tensors of the call by their names.

    result   shape of the product, and axes: the order in which they make the gradient; () where it
             lies as the gradient does
    """

    problem: MatmulProblem
    left: str
    right: str
    result: tuple[int, ...] = ()
    axes: tuple[int, ...] = ()


def asks_for_product(p: ConvProblem, gradient: str, compute_dtype: str, profile: Profile) -> bool:
    """Return whether the product's interface computes a gradient as a matrix product, whatever the plan does.

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
    """Return the matrix product by which the interface makes a gradient; None where it runs a convolution.

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
    """Return whether the interface looks at a convolution at all: one group, no padding, nothing between."""
    plain = p.groups == 1 and not p.transposed and not any(map(any, p.pads)) and set(p.dilations) == {1}
    return plain and profile.npu_arch in (OLDER, NEWEST)


def covers_image(p: ConvProblem) -> bool:
    """Return whether kernels lie side by side (stride = kernel) and no pixel of the image is left over."""
    covered = tuple(count * step for count, step in zip(p.small_size, p.strides, strict=True))
    return p.kernel == p.strides and covered == p.big_size


def _step_over_kernels(p: ConvProblem, npu_arch: str) -> bool:
    """Return whether kernels lie side by side, without gap or overlap, and the interface takes note of it."""
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


LEAST_KERNEL = 8


class Patches(NamedTuple):
    """A grad_weight whose kernels lie side by side, as a product of patches.

    problem   the convolution of one tap whose grad_weight the kernel makes
    split     shape of input with every axis as (placement, tap); `axes`: their order afterwards
    """

    problem: ConvProblem
    split: tuple[int, ...]
    axes: tuple[int, ...] = (0, 1, 3, 5, 7, 2, 4, 6)

    @classmethod
    def of(cls, p: ConvProblem, profile: Profile) -> Patches | None:
        """Return the form with one tap that the product's interface gives a grad_weight; None without it.

        That each axis along which the kernel has several taps must have 8 of them, and that no pixel may be
        left over, is our reading. A kernel as large as the image is a matrix product (`gradient_product`).

        Source   public ops-nn at e5c3fa932, as read: the operator's interface code
        """
        wide = {size for size in p.kernel if size > 1}
        if not may_be_product(p, profile) or p.kernel == p.big_size:
            return None
        if not wide or min(wide) < LEAST_KERNEL or not covers_image(p):
            return None
        channels = p.big_channels * prod(p.kernel)
        inner = replace(
            p,
            input=(p.batch, channels, *p.grad_output[2:]),
            weight=(p.small_channels, channels, *(1,) * p.rank),
            stride=1,
        )
        pairs = [size for pair in zip(p.small_size, p.kernel, strict=True) for size in pair]
        return cls(inner, (p.batch, p.big_channels, *pairs))


# Batches of lines that are folded, both ends included.
LEAST_BATCH, LARGEST_BATCH = 1500, 4096
# (N, C, L) to (C, N, L) and back.
AXES = (1, 0, 2)


class Folded(NamedTuple):
    """A gradient whose batch becomes rows of one image: `problem` is the convolution of this image."""

    problem: ConvProblem

    @classmethod
    def of(cls, p: ConvProblem, gradient: str, profile: Profile) -> Folded | None:
        """Return the form of a gradient with the batch folded into rows; None if the interface does not fold.

        That both gradients are folded, whatever their groups and formats, that either end of the range is
        part of it, and that each gradient has its own Transposes, is our reading.

        Source   public ops-nn at e5c3fa932, as read: the operator's interface code
        """
        if p.rank > 1 or p.transposed or profile.npu_arch != NEWEST:
            return None
        if not LEAST_BATCH <= p.batch <= LARGEST_BATCH:
            return None
        # Kernels that lie side by side become channels instead.
        if gradient == "grad_weight" and Patches.of(p, profile):
            return None
        (*_, stride), (*_, (left, _)), (*_, gap), (*_, taps) = p.strides, p.pads, p.dilations, p.kernel
        one = ConvProblem(
            (1, p.input[1], p.batch, p.input[2]),
            (*p.weight[:2], 1, taps),
            (1, stride),
            (0, left),
            (1, gap),
            groups=p.groups,
        )
        return cls(one)

    def rows_of(self, values: Values) -> Values:
        """Return (N, C, L) as (1, C, N, L)."""
        return values.transpose(AXES)[None]

    def lines_of(self, values: Values) -> Values:
        """Return (1, C, N, L) as (N, C, L)."""
        rows: Values = values[0]
        return rows.transpose(AXES)


# The kernel of grad_input inserts zeros for strides up to this one.
LARGEST_INNER_STRIDE = 2


class Dilated(NamedTuple):
    """A grad_input that is made with a Dilation kernel.

    spreads   the tensor whose pixels are spread: "grad_output" before the kernel, "grad_input" behind it
    problem   the convolution of stride 1 whose grad_input the kernel makes
    step      how far two pixels come to lie apart, along H and W
    first     row and column of the first pixel; below 0 where the first ones meet padding, and are dropped
    size      H and W of the result
    """

    spreads: str
    problem: ConvProblem
    step: Pair
    first: Pair
    size: Pair

    @classmethod
    def of(cls, p: ConvProblem, compute_dtype: str, profile: Profile) -> Dilated | None:
        """Return the form with a Dilation kernel that the operator gives a grad_input; None without one.

        Source   public ops-nn at e5c3fa932, as read: the operator's interface code
        """
        if not profile.generation.changes_layouts or p.transposed or p.rank == 3:
            return None
        (_, *steps), largest = p.strides, max(p.strides)
        step = steps[0], steps[1]
        if set(p.kernel) == {1} and largest > 1:
            inner = replace(p, input=(*p.input[:2], *p.grad_output[2:]), stride=1, padding=0)
            _, (top, _), (left, _) = p.pads
            return cls("grad_input", inner, step, (-top, -left), p.big_size[1:])
        if largest > LARGEST_INNER_STRIDE and compute_dtype != "bfloat16":
            inner = replace(p, stride=1)
            return cls("grad_output", inner, step, (0, 0), inner.small_size[1:])
        return None

    def spread(self, values: Values) -> Values:
        """Return an activation (N, C, spatial...) of one or two axes with its pixels apart, zeros between."""
        import numpy as np

        axes = values.ndim - 2
        # A line is an image of one row.
        image = values.reshape(*values.shape[:2], *(1,) * (2 - axes), *values.shape[2:])
        made = np.zeros((*image.shape[:2], *self.size), values.dtype)
        taken, places = [], []
        for first, step, count, size in zip(self.first, self.step, image.shape[2:], self.size, strict=True):
            # Pixels that would lie outside are dropped at both ends.
            begin, end = -(-max(0, -first) // step), min(count, -(-(size - first) // step))
            taken.append(slice(begin, end))
            places.append(slice(first + begin * step, size, step))
        made[:, :, *places] = image[:, :, *taken]
        return made.reshape(*values.shape[:2], *self.size[2 - axes :])


def kernel_problem(p: ConvProblem, gradient: str, compute_dtype: str, profile: Profile) -> ConvProblem:
    """Return the convolution whose gradient a kernel makes; Dilation or Transpose does the rest."""
    found: Dilated | Patches | Folded | None
    found = Dilated.of(p, compute_dtype, profile) if gradient == "grad_input" else Patches.of(p, profile)
    found = found or Folded.of(p, gradient, profile)
    return found.problem if found else p
