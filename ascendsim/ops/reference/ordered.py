"""grad_input by definition: plain loops over NCHW tensors that add in the order in which the cube adds.

Every product of the convolution is written out as a matrix product on im2col operands and handed, slice by
slice, to the accumulation model: the Fraction twin for small problems, the compiled model for larger ones. A
model that rounds once for the whole reduction (`exact`) takes the slices of a part joined into one product.
No tile, no instruction and no executor takes part.

**Order of grad_input**, for each of its pixels: kernel depth from the first tap to the last; channels of the
other side in groups of C0 = 32 bytes; kernel rows, kernel columns; channels in the group. The backward
direction takes rows and columns from the last tap to the first (the order of the pixels that it reads); a
forward, which the grad_input of a transposed convolution is, from the first to the last. Channels that the
last group lacks, pixels in the padding, and the zeros that a stride inserts between pixels are multiplied as
+0, so that they take their place in a block and turn an infinite weight into NaN. A kernel depth that meets
no depth of the other side is left out. A plan may split the kernel by the stride, or take its taps in
passes.

**The part of the plan** (`DgradOrder`): where an Mmad begins, since the blocks of the accumulation model
start anew with every Mmad, and into how many parts the reduction is cut. `WgradOrder` is that of the
other gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.numerics.accumulation import products_of
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.orders import DgradOrder, StreamOrder, WgradOrder

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.numerics.accumulation import AccumulationModel

    Floats = NDArray[np.float32]
    Slices = Sequence[tuple[Floats, Floats]]
    Reduce = Callable[[Slices, tuple[int, int]], Floats]


LANES = 64  # float32 elements of one vector command: 256 bytes


def add_in_order(parts: Sequence[Floats] | Floats) -> Floats:
    """Add arrays, or the rows of one, one after the other, each sum rounded to float32."""
    # numpy adds float32 arrays element by element, each sum rounded to nearest even, as the vector cores do.
    if len(parts) == 1:
        return parts[0].copy()
    with np.errstate(over="ignore", invalid="ignore"):
        total: Floats = np.add(parts[0], parts[1])
        for part in parts[2:]:
            total += part
    return total


def add_to_zeros(sums: Sequence[Floats]) -> Floats:
    """Return the sum of the parts of a grad_input; a single one stands for itself.

    L0C begins anew with every part, so of several even the first is added to the zero in global memory.
    """
    return sums[0] if len(sums) == 1 else add_in_order([np.zeros_like(sums[0]), *sums])


def add_as_tree(parts: Floats) -> Floats:
    """Add the rows of `parts` in pairs, then the sums in pairs, and so on; an odd one waits for its turn."""
    rows = list(parts)
    with np.errstate(over="ignore", invalid="ignore"):
        while len(rows) > 1:
            pairs = [np.add(rows[at], rows[at + 1]) for at in range(0, len(rows) - 1, 2)]
            rows = pairs + rows[len(pairs) * 2 :]
    total: Floats = rows[0].copy()
    return total


@default_arithmetic
def bias_gradient(grad_output: Floats, parts: int) -> Floats:
    """Return grad_bias in float32, before the conversion to its format.

    Shapes   grad_output (N, C, spatial...) -> (C,)
    Order    the images are cut into `parts`; in each, element e of every image's channel is added to lane
             e % 64, image after image; then lanes by halves, 32 + 32, 16 + 16, ...; then the parts in order
    """
    batch = grad_output.shape[0]
    flat = grad_output.reshape(batch, grad_output.shape[1], -1)
    sums = []
    for part in range(parts):
        images = flat[batch * part // parts : batch * (part + 1) // parts]
        with np.errstate(over="ignore", invalid="ignore"):
            sums.append(_lane_sum(images))
    return add_in_order(np.stack(sums))


def _lane_sum(images: Floats) -> Floats:
    """Return the sum of each channel of (images, C, elements)."""
    # As many at a time as there are lanes: `sum` of numpy would add pairwise, in an order of its own. A lane
    # that begins at +0 is never -0, so that lanes which get nothing more need no care.
    if images.shape[2] == 1:
        # One lane alone gets elements, as in a linear layer; adding the others' zeros changes none.
        own: Floats = np.add.accumulate(images[:, :, 0], axis=0)[-1:].sum(axis=0) + np.float32(0)
        return own
    lanes = np.zeros((images.shape[1], LANES), np.float32)
    for image in images:
        for first in range(0, image.shape[1], LANES):
            some = image[:, first : first + LANES]
            lanes[:, : some.shape[1]] += some
    while lanes.shape[1] > 1:
        half = lanes.shape[1] // 2
        lanes = lanes[:, :half] + lanes[:, half:]
    total: Floats = lanes[:, 0]
    return total


# Exact fractions are the definition, and some thousand times slower than the compiled model, which equals
# them bit for bit (that is tested). So small problems take the one, larger ones the other.
TWIN_LIMIT_MACS = 20_000


def reduction_of(model: AccumulationModel, macs: int) -> Reduce:
    """Return a function that adds the slices of one reduction, in order, to zeros of a shape.

    The Fraction twin below TWIN_LIMIT_MACS, else the compiled model.

    Raises   ConfigError if the block of the model is not a number yet
    """
    if macs < TWIN_LIMIT_MACS:
        from ascendsim.numerics.accumulation_twins import accumulate_twin as multiply
    else:
        multiply = _compiled

    def reduce(slices: Slices, shape: tuple[int, int]) -> Floats:
        c = np.zeros(shape, np.float32)
        for a, b in products_of(model, slices):
            c = multiply(model, a, b, c)
        return c

    return reduce


def _compiled(model: AccumulationModel, a: Floats, b: Floats, c: Floats) -> Floats:
    from ascendsim.numerics.compiled.accumulate import accumulate

    accumulate(model, np.ascontiguousarray(a), np.ascontiguousarray(b), c)
    return c


def sources(problem: ConvProblem, axis: int, *, forward: bool) -> NDArray[np.int_]:
    """Return where each output reads along one axis, for each kernel tap: (taps, outputs), -1 for a zero.

    `forward` slides the kernel over the big side; backward goes from the big side to the small one.
    """
    stride, dilation = problem.strides[axis], problem.dilations[axis]
    pad, taps = problem.pads[axis][0], problem.kernel[axis]
    read, made = problem.small_size[axis], problem.big_size[axis]
    if forward:
        read, made = made, read
    # A row and a column for each pair, written out: this is the definition that `Sliding` is tested against.
    table = np.full((taps, made), -1)
    for tap in range(taps):
        for out in range(made):
            if forward:
                place, rest = out * stride + tap * dilation - pad, 0
            else:
                place, rest = divmod(out + pad - tap * dilation, stride)
            if rest == 0 and 0 <= place < read:
                table[tap, out] = place
    return table


def im2col(plane: Floats, rows: NDArray[np.int_], cols: NDArray[np.int_]) -> Floats:
    """Return im2col of one plane: (C, H, W) -> (C, row taps, column taps, output pixels), -1 reading zero."""
    # One row and one column of zeros at the end: index -1 reads them, so that a zero is an element like any
    # other. It takes its place in a block, and an infinite weight times it is NaN, as on the cube.
    channels, height, width = plane.shape
    framed = np.zeros((channels, height + 1, width + 1), np.float32)
    framed[:, :height, :width] = plane
    taken = np.stack([np.stack([framed[:, r][:, :, c] for c in cols], axis=1) for r in rows], axis=1)
    return taken.reshape(channels, len(rows), len(cols), -1)


def reduction_by_groups(values: Floats, c0: int) -> Floats:
    """Bring (C, row taps, column taps, n) to (C1 * row taps * column taps * C0, n), missing channels zero."""
    # +0 takes the place of channels that the last group lacks: the cube multiplies whole groups, and a block
    # of the accumulation model counts what it multiplies.
    channels, rows, cols, n = values.shape
    groups = -(-channels // c0)
    padded = np.zeros((groups * c0, rows, cols, n), np.float32)
    padded[:channels] = values
    return padded.reshape(groups, c0, rows, cols, n).transpose(0, 2, 3, 1, 4).reshape(-1, n)


def append_slices(
    parts: Sequence[list[tuple[Floats, Floats]]], a: Floats, b: Floats, runs: Sequence[Sequence[int]], c0: int
) -> None:
    """Append to each part its slices of both matrices, which `runs` gives in groups of C0."""
    first = 0
    for part, slices in zip(parts, runs, strict=True):
        for groups in slices:
            last = first + groups * c0
            part.append((a[:, first:last], b[first:last]))
            first = last
    assert first == len(b)


def ordered_dgrad(
    problem: ConvProblem, grad_output: Floats, weight: Floats, order: DgradOrder, reduce: Reduce
) -> Floats:
    """Return the accumulators of grad_input, before the conversion to its format.

    Shapes   grad_output and weight as `problem` says, on the grid that the cube multiplies -> as input
    """
    forward = problem.transposed
    depth_of, row_of, col_of = (sources(problem, axis, forward=forward) for axis in range(3))
    step = 1 if forward else -1
    row_of, col_of = row_of[::step], col_of[::step]
    source_size, made_size = problem.output_size, problem.input_size
    kernels = weight.reshape(problem.groups, problem.small_channels, problem.big_channels, *problem.kernel)
    kernels = (kernels.swapaxes(1, 2) if forward else kernels)[..., ::step, ::step]
    reduced, columns = kernels.shape[1:3]
    source = grad_output.reshape(problem.batch, problem.groups, reduced, *source_size)
    result = np.zeros((problem.batch, problem.groups, columns, *made_size), np.float32)
    for image, group, depth in np.ndindex(problem.batch, problem.groups, made_size[0]):
        parts: list[list[tuple[Floats, Floats]]] = [[] for _ in order.runs()]
        for tap, found in enumerate(depth_of[:, depth]):
            # Nothing is loaded for this depth, so nothing is added: not even zeros begin a block.
            if found < 0:
                continue
            a = reduction_by_groups(im2col(source[image, group, :, found], row_of, col_of), order.c0).T
            b = reduction_by_groups(kernels[group, :, :, tap].transpose(0, 2, 3, 1), order.c0)
            append_slices(parts, a, b, order.runs(), order.c0)
        c = add_to_zeros([reduce(slices, (made_size[1] * made_size[2], columns)) for slices in parts])
        result[image, group, :, depth] = c.T.reshape(columns, *made_size[1:])
    return result.reshape(problem.input)


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
    """Return the contribution of each part of the reduction to grad_weight: (parts, *weight)."""
    numbers = range(order.k_split)
    return np.stack([_wgrad_part(problem, grad_output, input, order, part, reduce) for part in numbers])


def _streamed_wgrad(
    problem: ConvProblem, grad_output: Floats, input: Floats, order: WgradOrder, reduce: Reduce
) -> Floats:
    """Return grad_weight with some blocks added in parts, as stream-K does, and the others as a whole."""
    assert order.stream is not None
    whole = _wgrad_part(problem, grad_output, input, replace(order, k_split=1, stream=None), 0, reduce)
    parts = _parts(problem, grad_output, input, order, reduce)
    sums = add_as_tree(parts) if order.tree else add_in_order(parts)
    chosen = streamed_elements(problem, order.stream).reshape(problem.weight)
    return np.where(chosen, sums, whole)


def streamed_elements(problem: ConvProblem, stream: StreamOrder) -> NDArray[np.bool_]:
    """Return which elements of weight lie in the blocks that stream-K cuts.

    Shapes   (groups, channels of the small side, of the big side, kernel depths, taps of a depth)
    """
    rows, columns, taps = problem.small_channels, problem.big_channels, prod(problem.kernel[1:])
    windows = -(-columns // stream.c0)
    chosen = np.zeros((problem.groups, rows, problem.kernel[0], windows * taps * stream.c0), bool)
    for group, depth, first_row, count, first, wide in stream.blocks:
        chosen[group, first_row : first_row + count, depth, first : first + wide] = True
    # The columns of a block go through (group of c0 channels, tap, channel).
    ordered = chosen.reshape(*chosen.shape[:3], windows, taps, stream.c0).transpose(0, 1, 3, 5, 2, 4)
    return ordered.reshape(problem.groups, rows, windows * stream.c0, -1, taps)[:, :, :columns]


def _wgrad_part(
    problem: ConvProblem, grad_output: Floats, input: Floats, order: WgradOrder, part: int, reduce: Reduce
) -> Floats:
    """Return the contribution of one part of the reduction to grad_weight; +0 where it adds nothing."""
    small_side, big_side = (input, grad_output) if problem.transposed else (grad_output, input)
    groups, (_, kernel_h, kernel_w) = problem.groups, problem.kernel
    rows, columns = problem.small_channels, problem.big_channels
    small = small_side.reshape(problem.batch, groups, rows, problem.small_size[0], -1)
    big = big_side.reshape(problem.batch, groups, columns, *problem.big_size)
    row_of, col_of = (sources(problem, axis, forward=True) for axis in (1, 2))
    pixels = numbered_pixels(*problem.small_size[1:], order.strip_w)
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


def numbered_pixels(height: int, width: int, strip_w: int) -> NDArray[np.int_]:
    """Return the pixels of an image in the order in which strips of columns number them; 0: row after row."""
    rows, step = np.arange(height * width).reshape(height, width), strip_w or width
    return np.concatenate([rows[:, left : left + step].reshape(-1) for left in range(0, width, step)])


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
    found, numbered = [], numbered_pixels(*problem.small_size[1:], order.strip_w)
    for small_depth, big_depth in enumerate(meets):
        for image in range(problem.batch):
            for first, pixels in stream.ranges:
                place = small_depth * problem.batch + image
                if stream.axis == "height":
                    place = numbered[first] // problem.small_size[2]
                if big_depth >= 0 and place // stream.length == part:
                    found.append((small_depth, int(big_depth), image, first, first + pixels))
    return found
