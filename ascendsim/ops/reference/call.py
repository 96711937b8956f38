"""The reference of a whole call: the orders that its plans fix, operands on their grid, output formats."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from ascendsim.instructions.winograd import (
    PIXELS,
    POINTS,
    TAPS,
    WINDOW,
    big_line,
    in_plane,
    small_line,
    taps_line,
)
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.numerics.casts import round_to
from ascendsim.ops.lowering.call import Call
from ascendsim.ops.lowering.formats import vector_overflow
from ascendsim.ops.problems.convolution import ConvProblem, merged
from ascendsim.ops.problems.folded import GradientProduct
from ascendsim.ops.problems.orders import DgradOrder, WgradOrder, WinogradOrder
from ascendsim.ops.reference.ordered import (
    add_in_order,
    add_to_zeros,
    append_slices,
    bias_gradient,
    im2col,
    ordered_dgrad,
    ordered_wgrad,
    reduction_by_groups,
    reduction_of,
    sources,
)
from ascendsim.ops.schedules.vector.channel_sums import bias_parts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.ops.problems.orders import MatmulOrder
    from ascendsim.ops.reference.ordered import Floats, Reduce


def any_wgrad(
    problem: ConvProblem,
    grad_output: Floats,
    input: Floats,
    order: WgradOrder | WinogradOrder,
    reduce: Reduce,
) -> Floats:
    """Return the accumulators of grad_weight in an order by Winograd or a direct one; arguments as there."""
    if isinstance(order, WinogradOrder):
        return winograd_wgrad(problem, grad_output, input, order, reduce)
    return ordered_wgrad(problem, grad_output, input, order, reduce)


def winograd_wgrad(
    problem: ConvProblem, grad_output: Floats, input: Floats, order: WinogradOrder, reduce: Reduce
) -> Floats:
    """Return grad_weight in float32.

    Shapes   grad_output and input as `problem` says, of one group and one depth -> as weight
    """
    small, big = (input, grad_output) if problem.transposed else (grad_output, input)
    small = small.reshape(problem.batch, problem.small_channels, *problem.small_size[1:])
    big = big.reshape(problem.batch, problem.big_channels, *problem.big_size[1:])
    pads = problem.pads[1][0], problem.pads[2][0]
    whole = _taps(small, big, pads, order, range(len(order.clusters)), reduce)
    if order.streamed:
        parts = [order.clusters.part(part, order.parts) for part in range(order.parts)]
        sums = add_in_order(np.stack([_taps(small, big, pads, order, own, reduce) for own in parts]))
        whole = np.where(blocks_in_parts(whole.shape, order), sums, whole)
    return whole.reshape(problem.weight)


def blocks_in_parts(shape: tuple[int, ...], order: WinogradOrder) -> NDArray[np.bool_]:
    """Return which elements are added in parts."""
    chosen = np.zeros(shape, bool)
    for block in order.streamed:
        rows = slice(block.first_small, block.first_small + block.small)
        chosen[rows, block.first_big : block.first_big + block.big] = True
    return chosen


def _taps(
    small: Floats,
    big: Floats,
    pads: tuple[int, int],
    order: WinogradOrder,
    taken: Iterable[int],
    reduce: Reduce,
) -> Floats:
    """Return the sum of some clusters: (small channels, big channels, 3, 3)."""
    points = [(row, column) for row in range(POINTS) for column in range(POINTS)]
    slices: dict[tuple[int, int], list[tuple[Floats, Floats]]] = {point: [] for point in points}
    for number in taken:
        cluster = order.clusters.at(number)
        left, right = [], []
        for row, column in order.clusters.tiles(cluster):
            given = _tile(small[cluster.image], row, column, PIXELS)
            left.append(in_plane(small_line, given))
            given = _tile(big[cluster.image], row - pads[0], column - pads[1], WINDOW)
            right.append(in_plane(big_line, given))
        for i, j in points:
            a = np.stack([tile[i][j] for tile in left], axis=1)  # small channels x tiles
            b = np.stack([tile[i][j] for tile in right], axis=0)  # tiles x big channels
            slices[i, j].append((a, b))
    shape = small.shape[1], big.shape[1]
    sums = [[reduce(slices[i, j], shape) for j in range(POINTS)] for i in range(POINTS)]
    made = in_plane(taps_line, sums)
    return np.stack([np.stack([made[i][j] for j in range(TAPS)], -1) for i in range(TAPS)], axis=-2)


def _tile(image: Floats, row: int, column: int, size: int) -> list[list[Floats]]:
    """Return the pixels of a tile, each with all its channels; +0 outside of the image."""
    channels, height, width = image.shape
    outside = np.zeros(channels, np.float32)
    return [
        [
            image[:, row + i, column + j] if 0 <= row + i < height and 0 <= column + j < width else outside
            for j in range(size)
        ]
        for i in range(size)
    ]


# Rows and columns of the kernel that one pass takes, in the order in which they are added.
Pass = tuple[list[int], list[int]]


def passed_dgrad(
    problem: ConvProblem, grad_output: Floats, weight: Floats, order: DgradOrder, reduce: Reduce
) -> Floats:
    """Return the accumulators of a grad_input whose passes take a row of taps, or one tap.

    Shapes   grad_output and weight as `problem` says, on the grid that the cube multiplies -> as input
    Order    of each pixel: parts, which are channels; in each of them kernel depths, passes from the last tap
             to the first, and in a pass as in `ordered_dgrad`. A tile of pixels leaves out what reads no
             pixel of grad_output there; where nothing is left it is +0
    """
    depth_of = sources(problem, 0, forward=False)
    kernels = weight.reshape(problem.groups, problem.small_channels, problem.big_channels, *problem.kernel)
    source = grad_output.reshape(problem.batch, problem.groups, problem.small_channels, *problem.small_size)
    depths, height, width = problem.big_size
    shape = problem.batch, problem.groups, problem.big_channels, depths, height * width
    result = np.zeros(shape, np.float32)
    for first, pixels in order.tiles:
        met = [taps for taps in _passes(problem, order) if _reads(problem, taps, first, pixels)]
        for image, group, depth in np.ndindex(problem.batch, problem.groups, depths):
            reached = [(tap, int(found)) for tap, found in enumerate(depth_of[:, depth]) if found >= 0]
            if not (met and reached):
                continue
            sums = []
            for channels, runs in _parts(problem, order):
                factors = []
                for (tap, found), taps in product(reached, met):
                    a, b = source[image, group, channels, found], kernels[group, channels, :, tap]
                    left, right = _operands(problem, a, b, taps, order.c0)
                    own = runs[_passes(problem, order).index(taps)]
                    for begin, end in own:
                        factors.append((left[first : first + pixels, begin:end], right[begin:end]))
                sums.append(reduce(factors, (pixels, problem.big_channels)))
            result[image, group, :, depth, first : first + pixels] = add_to_zeros(sums).T
    return result.reshape(problem.input)


def _passes(problem: ConvProblem, order: DgradOrder) -> list[Pass]:
    """Return the passes, the last taps first."""
    rows, cols = (list(reversed(range(taps))) for taps in problem.kernel[1:])
    if order.tap_loop == "kh":
        return [([row], cols) for row in rows]
    return [([row], [col]) for row, col in product(rows, cols)]


def _reads(problem: ConvProblem, taps: Pass, first: int, pixels: int) -> bool:
    """Return whether the copy for a tile of pixels under a pass has a pixel of grad_output in it.

    It takes all columns if the tile lies in several rows, and what lies between those that are read.
    """
    width = problem.big_size[2]
    top, bottom = first // width, (first + pixels - 1) // width
    left, right = (first % width, (first + pixels - 1) % width) if top == bottom else (0, width - 1)
    found = True
    for axis, outs, own in ((1, (top, bottom), taps[0]), (2, (left, right), taps[1])):
        pad, gap, stride = problem.pads[axis][0], problem.dilations[axis], problem.strides[axis]
        places = [out + pad - tap * gap for out in outs for tap in own]
        copied = range(min(places), max(places) + 1)
        found = found and any(pixel * stride in copied for pixel in range(problem.small_size[axis]))
    return found


def _parts(problem: ConvProblem, order: DgradOrder) -> Iterator[tuple[slice, list[list[tuple[int, int]]]]]:
    """Yield the channels of each part, and for each pass the (begin, end) of its slices of the reduction."""
    first = 0
    for slices in order.runs():
        groups = sum(slices) // (problem.kernel[1] * problem.kernel[2])
        left, of_passes = list(slices), []
        for rows, cols in _passes(problem, order):
            ends: list[tuple[int, int]] = []
            at = 0
            while at < groups * len(rows) * len(cols) * order.c0:
                ends.append((at, at + left.pop(0) * order.c0))
                at = ends[-1][1]
            of_passes.append(ends)
        assert not left
        yield slice(first, first + groups * order.c0), of_passes
        first += groups * order.c0


def _operands(problem: ConvProblem, a: Floats, b: Floats, taps: Pass, c0: int) -> tuple[Floats, Floats]:
    """Return both matrices of a pass: (pixels of an image, reduction) and (reduction, channels of input).

    a (channels, H, W) of grad_output, b (channels, channels of input, kernel rows, kernel columns)
    """
    row_of, col_of = (
        sources(problem, axis, forward=False)[own] for axis, own in ((1, taps[0]), (2, taps[1]))
    )
    left = reduction_by_groups(im2col(a, row_of, col_of), c0).T
    taken = b[:, :, taps[0]][:, :, :, taps[1]]
    return left, reduction_by_groups(taken.transpose(0, 2, 3, 1), c0)


def any_dgrad(
    problem: ConvProblem, grad_output: Floats, weight: Floats, order: DgradOrder, reduce: Reduce
) -> Floats:
    """Return the accumulators of grad_input in an order with phases, with passes, or neither."""
    made = phased_dgrad if order.axes else passed_dgrad if order.tap_loop else ordered_dgrad
    return made(problem, grad_output, weight, order, reduce)


def phased_dgrad(
    problem: ConvProblem, grad_output: Floats, weight: Floats, order: DgradOrder, reduce: Reduce
) -> Floats:
    """Return the accumulators of grad_input; a phase of the stride multiplies only the taps that it meets.

    Shapes   grad_output and weight as `problem` says, on the grid that the cube multiplies -> as input
    Order    of each pixel as in `ordered_dgrad`, without the taps that read a zero between pixels; a pixel
             that meets no tap is +0
    """
    depth_of = sources(problem, 0, forward=False)
    rows, cols = problem.strides[1], problem.strides[2] if order.axes == "hw" else 1
    kernels = weight.reshape(problem.groups, problem.small_channels, problem.big_channels, *problem.kernel)
    source = grad_output.reshape(problem.batch, problem.groups, problem.small_channels, *problem.small_size)
    result = np.zeros((problem.batch, problem.groups, problem.big_channels, *problem.big_size), np.float32)
    _, height, width = problem.big_size
    for number, (a, b) in enumerate(np.ndindex(min(rows, height), min(cols, width))):
        row_taps, col_taps = _met(problem, 1, a, rows), _met(problem, 2, b, cols)
        if not (row_taps and col_taps):
            continue
        row_of = sources(problem, 1, forward=False)[row_taps][:, a::rows]
        col_of = sources(problem, 2, forward=False)[col_taps][:, b::cols]
        for image, group, depth in np.ndindex(problem.batch, problem.groups, problem.big_size[0]):
            runs = order.of_phase(number).runs()
            parts: list[list[tuple[Floats, Floats]]] = [[] for _ in runs]
            for tap, found in enumerate(depth_of[:, depth]):
                if found < 0:
                    continue
                taken = kernels[group, :, :, tap][:, :, row_taps][:, :, :, col_taps]
                left = reduction_by_groups(im2col(source[image, group, :, found], row_of, col_of), order.c0).T
                right = reduction_by_groups(taken.transpose(0, 2, 3, 1), order.c0)
                append_slices(parts, left, right, runs, order.c0)
            shape = problem.big_channels, row_of.shape[1], col_of.shape[1]
            made = add_to_zeros([reduce(slices, (shape[1] * shape[2], shape[0])) for slices in parts])
            result[image, group, :, depth, a::rows, b::cols] = made.T.reshape(shape)
    return result.reshape(problem.input)


def _met(problem: ConvProblem, axis: int, first: int, step: int) -> list[int]:
    """Return the taps that pixels first, first + step, ... meet, the last one first."""
    pad, gap = problem.pads[axis][0], problem.dilations[axis]
    return [tap for tap in reversed(range(problem.kernel[axis])) if (first + pad - tap * gap) % step == 0]


Place = tuple[int, int, int]


def merged_dgrad(
    problem: ConvProblem, factor: int, grad_output: Floats, weight: Floats, order: DgradOrder, reduce: Reduce
) -> Floats:
    """Return the accumulators of grad_input; arguments and shapes as of `ordered_dgrad`."""
    whole = merged(problem, factor)
    blocks = np.zeros((whole.groups, whole.small_channels, *whole.weight[1:]), np.float32)
    given = weight.reshape(problem.groups, problem.small_channels, *problem.weight[1:])
    for own, place in _places(problem, factor):
        blocks[place] = given[own]
    made = any_dgrad(
        whole, _filled(grad_output, whole.grad_output), blocks.reshape(whole.weight), order, reduce
    )
    return made[:, : problem.input[1]]


def merged_wgrad(
    problem: ConvProblem,
    factor: int,
    grad_output: Floats,
    input: Floats,
    order: WgradOrder | WinogradOrder,
    reduce: Reduce,
) -> Floats:
    """Return the accumulators of grad_weight; arguments and shapes as of `ordered_wgrad`."""
    whole = merged(problem, factor)
    sides = _filled(grad_output, whole.grad_output), _filled(input, whole.input)
    made = any_wgrad(whole, *sides, order, reduce)
    blocks = made.reshape(whole.groups, whole.small_channels, *whole.weight[1:])
    kept = np.zeros((problem.groups, problem.small_channels, *problem.weight[1:]), np.float32)
    for own, place in _places(problem, factor):
        kept[own] = blocks[place]
    return kept.reshape(problem.weight)


def _places(problem: ConvProblem, factor: int) -> Iterator[tuple[Place, Place]]:
    """Yield (group, row, column) of each element of the weight, and where it stands in the merged one."""
    for group, small, big in np.ndindex(problem.groups, problem.small_channels, problem.big_channels):
        at, block = divmod(group, factor)
        row, column = block * problem.small_channels + small, block * problem.big_channels + big
        yield (group, small, big), (at, row, column)


def _filled(values: Floats, shape: tuple[int, ...]) -> Floats:
    """Return an activation with zeros for the channels that the last merged group lacks."""
    filled = np.zeros(shape, np.float32)
    filled[:, : values.shape[1]] = values
    return filled


def ordered_product(
    product: GradientProduct, operands: Mapping[str, Floats], order: MatmulOrder, reduce: Reduce
) -> Floats:
    """Return the accumulators of left x right, added in slices of base_k, in the order of the gradient.

    operands   tensors of the call by name, on the grid that the cube multiplies, of any shape
    """
    p = product.problem
    made = np.empty((p.batch, p.m, p.n), np.float32)
    for image in range(p.batch):
        a = operands[product.left].reshape(p.stored_a)[0 if p.shared_a else image]
        b = operands[product.right].reshape(p.stored_b)[image]
        a, b = (a.T if p.transpose_a else a), (b.T if p.transpose_b else b)
        firsts = range(0, p.k, order.base_k)
        slices = [(a[:, at : at + order.base_k], b[at : at + order.base_k]) for at in firsts]
        made[image] = reduce(slices, (p.m, p.n))
    return made.reshape(product.result).transpose(product.axes) if product.axes else made


@default_arithmetic
def reference_gradients(
    call: Call,
    grad_output: Floats,
    input: Floats,
    weight: Floats,
    arrivals: NDArray[np.int_] | None = None,
    mask: tuple[bool, bool, bool] = (True, True, True),
) -> dict[str, Floats]:
    """Return grad_input, grad_weight and grad_bias of a call in the ordered arithmetic, those of the mask.

    Shapes    float32 carriers of the call's tensors in the user's layout; so are the results
    arrivals  the order of atomic additions, see `WgradOrder`; None where the parts are added in order
    """
    reduce = reduction_of(call.accumulation, _macs(call))
    given = {"grad_output": grad_output, "input": input, "weight": weight}
    made: dict[str, Floats] = {}
    if mask[0]:
        a, _, w = (_operand(call, "grad_input", name, values) for name, values in given.items())
        made["grad_input"] = _grad_input(call, a, w, reduce)
    if mask[1]:
        a, x, _ = (_operand(call, "grad_weight", name, values) for name, values in given.items())
        sums = _grad_weight(call, a, x, arrivals, reduce)
        made["grad_weight"] = _cast(call, sums, "float16") if call.squeezed else sums
    if mask[2]:
        shape = call.problem.grad_output
        parts = bias_parts(call.profile, shape[0], shape[1])
        made["grad_bias"] = _cast(call, bias_gradient(grad_output, parts), call.leaves_in("grad_bias"))
    return {name: _cast(call, values, call.dtypes[name]) for name, values in made.items()}


def _macs(call: Call) -> int:
    """Return the multiply-adds of the largest product of a call."""
    return max([call.problem_of(name).macs for name in call.plans], default=0)


def _grad_input(call: Call, a: Floats, w: Floats, reduce: Reduce) -> Floats:
    """Return grad_input as it leaves the cube."""
    order, product, dilated = call.schedule("grad_input").order(), call.as_product("grad_input"), call.dilated
    # Parts are added in float32 and converted by vector cores, whose overflow may differ from Fixpipe's.
    target, overflow = call.leaves_in("grad_input"), call.math("grad_input").overflow
    if product:
        sums = ordered_product(product, {"grad_output": a, "weight": w}, order, reduce)
        return round_to(sums.reshape(call.problem.input), target, overflow=overflow)
    problem = dilated.problem if dilated else call.problem
    if dilated and dilated.spreads == "grad_output":
        a = dilated.spread(a)
    if folded := call.folded("grad_input"):
        problem, a, w = folded.problem, folded.rows_of(a), w.reshape(folded.problem.weight)
    sums = merged_dgrad(problem, call.merge_of("grad_input"), a, w, order, reduce)
    if dilated and dilated.spreads == "grad_input":
        sums = dilated.spread(sums)
    if folded:
        sums = folded.lines_of(sums)
    return round_to(sums, target, overflow=overflow)


def _grad_weight(
    call: Call, a: Floats, x: Floats, arrivals: NDArray[np.int_] | None, reduce: Reduce
) -> Floats:
    """Return grad_weight in float32, as it leaves the cube."""
    order = call.schedule("grad_weight").order()
    if product := call.as_product("grad_weight"):
        sums = ordered_product(product, {"grad_output": a, "input": x}, order, reduce)
        return sums.reshape(call.problem.weight)
    # Only parts that are added atomically arrive in an order of their own.
    order = order if arrivals is None else replace(order, arrivals=arrivals)
    problem, patches = call.problem, call.patches
    if patches:
        problem = patches.problem
        x = x.reshape(patches.split).transpose(patches.axes).reshape(problem.input)
    if folded := call.folded("grad_weight"):
        problem, a, x = folded.problem, folded.rows_of(a), folded.rows_of(x)
    sums = merged_wgrad(problem, call.merge_of("grad_weight"), a, x, order, reduce)
    return sums.reshape(call.problem.weight)


def _cast(call: Call, values: Floats, target: str) -> Floats:
    """Return values as a vector kernel converts them into another format."""
    return round_to(values, target, overflow=vector_overflow(call.profile, target))


def _operand(call: Call, gradient: str, name: str, values: Floats) -> Floats:
    """Return a tensor on the grid that the cube multiplies: cast to its storage format, then to HF32."""
    # Two roundings, as on the device: a Cast kernel before the cube, and HF32 as L0 is read.
    stored = _cast(call, values, call.storage.name) if call.dtypes[name] != call.storage.name else values
    return call.multiplied(stored, gradient)
