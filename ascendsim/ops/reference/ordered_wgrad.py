"""grad_weight by definition, as `ordered.py` says it of grad_input.

**Order**, for each kernel depth: the pairs of depths that meet, images, pixels, row after row or strip after
strip. Padding multiplies +0; nothing is filled up at the end of a row of pixels.

**The part of the plan** (`WgradOrder`): where an Mmad begins; into how many parts the reduction is cut; and,
where the parts are added atomically, in which order they arrived.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.reference.ordered import im2col, sources
from ascendsim.ops.reference.sums import add_as_tree, add_in_order
from ascendsim.ops.schedules.order import StreamOrder, WgradOrder

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.ops.reference.ordered import Floats, Reduce

# Small depth, big depth, image, first pixel and end of a run of the reduction of grad_weight.
Segment = tuple[int, int, int, int, int]


def ordered_wgrad(
    problem: ConvProblem, grad_output: Floats, input: Floats, order: WgradOrder, reduce: Reduce
) -> Floats:
    """Return grad_weight in float32, before the conversion to its format.

    Shapes   grad_output and input as `problem` says, on the grid that the cube multiplies -> as weight
    """
    if order.stream is not None:
        return _streamed_wgrad(problem, grad_output, input, order, reduce)
    # A part that reduces nothing is +0. Kept apart, that is the zero with which its place was filled. Added
    # atomically, it stands for nothing: x + 0 is x, and the sum, which began at +0, is never -0.
    parts = _parts(problem, grad_output, input, order, reduce)
    if order.arrivals is None:
        return add_as_tree(parts) if order.tree else add_in_order(parts)
    # Atomic additions begin at the zeros of the fill, parts kept apart at part 0 itself.
    arrived = np.take_along_axis(parts, order.arrivals.reshape(parts.shape), axis=0)
    return add_in_order(np.concatenate([np.zeros_like(parts[:1]), arrived]))


def _parts(
    problem: ConvProblem, grad_output: Floats, input: Floats, order: WgradOrder, reduce: Reduce
) -> Floats:
    """Return what each part of the reduction adds to grad_weight: (parts, *weight)."""
    numbers = range(order.k_split)
    return np.stack([_wgrad_part(problem, grad_output, input, order, part, reduce) for part in numbers])


def _streamed_wgrad(
    problem: ConvProblem, grad_output: Floats, input: Floats, order: WgradOrder, reduce: Reduce
) -> Floats:
    """Return grad_weight of which stream-K adds some blocks in parts, and the rest is added as a whole."""
    assert order.stream is not None
    whole = _wgrad_part(problem, grad_output, input, replace(order, k_split=1, stream=None), 0, reduce)
    parts = _parts(problem, grad_output, input, order, reduce)
    sums = add_as_tree(parts) if order.tree else add_in_order(parts)
    return np.where(_streamed(problem, order.stream), sums, whole)


def _streamed(problem: ConvProblem, stream: StreamOrder) -> NDArray[np.bool_]:
    """Return which elements of weight lie in the blocks that stream-K cuts."""
    rows, columns, taps = problem.small_channels, problem.big_channels, problem.kernel[1:]
    chosen = np.zeros((problem.groups, rows, columns, problem.kernel[0], *taps), bool)
    for group, depth, first_row, count, first, wide in stream.blocks:
        for column in range(first, first + wide):
            window, at = divmod(column, taps[0] * taps[1] * stream.c0)
            tap, channel = divmod(at, stream.c0)
            if window * stream.c0 + channel < columns:
                place = window * stream.c0 + channel, depth, tap // taps[1], tap % taps[1]
                chosen[group, first_row : first_row + count, *place] = True
    return chosen.reshape(problem.weight)


def _wgrad_part(
    problem: ConvProblem, grad_output: Floats, input: Floats, order: WgradOrder, part: int, reduce: Reduce
) -> Floats:
    """Return what one part of the reduction adds to grad_weight; +0 where it adds nothing."""
    small_side, big_side = (input, grad_output) if problem.transposed else (grad_output, input)
    groups, (_, kernel_h, kernel_w) = problem.groups, problem.kernel
    rows, columns = problem.small_channels, problem.big_channels
    small = small_side.reshape(problem.batch, groups, rows, problem.small_size[0], -1)
    big = big_side.reshape(problem.batch, groups, columns, *problem.big_size)
    row_of, col_of = (sources(problem, axis, forward=True) for axis in (1, 2))
    pixels = _numbered_pixels(problem, order)
    result = np.zeros((groups, rows, columns, *problem.kernel), np.float32)
    for group, tap in np.ndindex(groups, problem.kernel[0]):
        shape = (rows, columns * kernel_h * kernel_w)
        slices = []
        for small_depth, big_depth, image, first, last in _mmads(problem, order, tap, part):
            a = small[image, group, :, small_depth, pixels[first:last]].T
            b = im2col(big[image, group, :, big_depth], row_of, col_of)[..., pixels[first:last]]
            slices.append((a, b.reshape(shape[1], -1).T))
        result[group, :, :, tap] = reduce(slices, shape).reshape(rows, columns, kernel_h, kernel_w)
    return result.reshape(problem.weight)


def _numbered_pixels(problem: ConvProblem, order: WgradOrder) -> list[int]:
    """Return the pixels of an image of the small side, in the order in which they are numbered."""
    _, height, width = problem.small_size
    step = order.strip_w or width
    return [
        row * width + column
        for left in range(0, width, step)
        for row in range(height)
        for column in range(left, min(left + step, width))
    ]


def _mmads(
    problem: ConvProblem, order: WgradOrder, tap: int, part: int
) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield (small depth, big depth, image, first pixel, end) of the Mmads of one part at a kernel depth."""
    meets = sources(problem, 0, forward=True)[tap]
    images, numbers = order.grid[part] if order.grid else (range(problem.batch), range(len(order.ranges)))
    segments = [
        (small_depth, int(big_depth), image, first, first + pixels)
        for small_depth, big_depth in enumerate(meets)
        if big_depth >= 0
        for image in images
        for first, pixels in (order.ranges[number] for number in numbers)
    ]
    # Parts of equal length up to one, wherever images or depths end; a part of a grid is cut already.
    parts, at_part = (1, 0) if order.grid else (order.k_split, part)
    begin, end = (len(segments) * at // parts for at in (at_part, at_part + 1))
    chosen = segments[begin:end]
    # Or shares of one image at one depth, or what stream-K cuts.
    if order.shares:
        chosen = _share(problem, order, segments, part)
    elif order.stream is not None:
        chosen = _stream_part(problem, order, order.stream, meets, part)
    for small_depth, big_depth, image, first, last in chosen:
        # Counted from the beginning of the range: the tiles in L1 hold one range, and no Mmad reads two.
        for at, stop in pairwise([*range(first, last, order.base_k), last]):
            yield small_depth, big_depth, image, at, stop


def _share(problem: ConvProblem, order: WgradOrder, segments: list[Segment], part: int) -> list[Segment]:
    """Return the segments of one share of an image at a small depth."""
    place, share = divmod(part, len(order.shares))
    of_image, of_depth = divmod(place, problem.small_size[0])
    begin = sum(order.shares[:share])
    firsts = [first for first, _ in order.ranges[begin : begin + order.shares[share]]]
    return [
        segment
        for segment in segments
        if (segment[0], segment[2]) == (of_depth, of_image) and segment[3] in firsts
    ]


def _stream_part(
    problem: ConvProblem, order: WgradOrder, stream: StreamOrder, meets: NDArray[np.int_], part: int
) -> list[Segment]:
    """Return the segments of one part that stream-K cuts."""
    found, numbered = [], _numbered_pixels(problem, order)
    for small_depth, big_depth in enumerate(meets):
        for image in range(problem.batch):
            for first, pixels in stream.ranges:
                place = small_depth * problem.batch + image
                if stream.axis == "height":
                    place = numbered[first] // problem.small_size[2]
                if big_depth >= 0 and place // stream.length == part:
                    found.append((small_depth, int(big_depth), image, first, first + pixels))
    return found
