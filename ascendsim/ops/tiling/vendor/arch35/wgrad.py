"""The grad_weight of 910_95: tiles of the result dealt to all cores, the last round cut by stream-K."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from ascendsim.cube.tile_reads import round_up
from ascendsim.ops.tiling.vendor.arch35.wgrad_block import Block
from ascendsim.ops.tiling.vendor.layer import FRACTAL, Layer, Machine, align, ceil_div, floor_to
from ascendsim.ops.tiling.vendor.plan import VendorPlan
from ascendsim.ops.tiling.vendor.stream import Tail, tail_of

LONGEST = 256
# Slices of base_k in both tiles of a step, where they are as many as are tried, and as few.
DEEPEST, LEAST_DEPTH = 16, 2
STRIP = 128
# Wider rows are worked on in strips of columns; half as wide ones where padding of columns is beyond a byte.
MOST_COLUMNS = 512
# What one load3d can say of a kernel: a byte each for extent, gap and padding, six bits for the stride.
MOST_BYTE, MOST_STRIDE, MOST_WINDOW = 255, 63, 65536


def stream_k(given: Layer, machine: Machine) -> VendorPlan | None:
    """Return the plan of grad_weight; None where no tile fits in L1."""
    factor = merge_factor(given, machine)
    layer = given.merged(factor)
    block = _fitted(_base_block(layer, machine))
    if block is None:
        return None
    block = _recut(block)
    tail = tail_of(layer, _tasks(block), machine.cores)
    if tail.axis == "height":
        block = _refitted(replace(block, height=tail.length))
    return _plan(block, tail, factor)


def merge_factor(layer: Layer, machine: Machine) -> int:
    """Return how many groups are computed as one: as fill fractals, if the buffers hold their block."""
    factor = layer.merge_factor(FRACTAL)
    rows, columns = align(layer.co * factor), align(layer.ci * factor) * layer.taps
    # Vector cores pick the diagonal blocks out of the merged one, in float32, with room for the result.
    in_ub = 2 * rows * columns * 4 + LONGEST <= machine.ub
    fits = max(rows, columns) <= LONGEST and 4 * rows * columns <= machine.l0c and in_ub
    return factor if fits else 1


def _base_block(layer: Layer, machine: Machine) -> Block:
    """Return the base block: sides as even as they come, of whole windows where that is possible."""
    base_n = _even(_columns(layer))
    unit = layer.taps * FRACTAL if layer.taps == 9 else FRACTAL
    base_m = _even(align(layer.co))
    base_n = machine.beside(base_m, base_n)
    if base_n > unit:
        base_n = floor_to(base_n, unit)
    block = Block(layer, machine, base_m, base_n, FRACTAL)
    return replace(block, base_k=_longest_k(block))


def _window(layer: Layer) -> int:
    """Return the columns of a window: all taps of a fractal's channels (two C0 groups of float32)."""
    return layer.taps * max(FRACTAL, layer.c0)


def _columns(layer: Layer) -> int:
    """Return the columns of the product at one kernel depth, in whole windows."""
    return round_up(layer.ci * layer.taps, _window(layer))


def _even(side: int) -> int:
    """Return the largest equal part of a side, in whole fractals, that is at most as long as a block."""
    return align(side) if side <= LONGEST else align(side // ceil_div(side, LONGEST))


def _longest_k(block: Block) -> int:
    """Return the longest base_k of both halves of L0, made of whole rows where these are whole fractals."""
    layer, machine = block.layer, block.machine
    left = machine.l0a // (2 * block.base_m * layer.itemsize)
    right = machine.l0b // (2 * block.base_n * layer.itemsize)
    base_k = min(floor_to(min(left, right), FRACTAL), align(block.single_k))
    width = layer.output[2]
    if width < base_k and width % FRACTAL == 0:
        base_k = floor_to(base_k, width)
    return max(FRACTAL, base_k)


def _fitted(block: Block) -> Block | None:
    """Return the block with the deepest tiles that fit; narrower strips, then single taps, where none do."""
    for cut in _cuts(block):
        deep = _deepest(cut)
        if deep is not None:
            return deep
    return None


def _cuts(block: Block) -> Iterator[Block]:
    """Yield the block as it is, then in strips of columns, then with one tap at a time."""
    layer = block.layer
    block = replace(block, split_taps=beyond_load3d(layer))
    most = MOST_COLUMNS if max(layer.pads[2]) <= MOST_BYTE else MOST_COLUMNS // 2
    if layer.output[2] <= most:
        yield block
    strip = STRIP
    while strip >= layer.c0:
        yield replace(block, strip=strip)
        strip //= 2
    if not block.split_taps:
        yield replace(block, strip=layer.c0, split_taps=True)


def beyond_load3d(layer: Layer) -> bool:
    """Tell whether a kernel passes what one load3d can say, so that its taps are loaded one by one."""
    sizes = (*layer.kernel[1:], *layer.dilation[1:], *layer.pads[1], *layer.pads[2])
    window = layer.taps * layer.c0
    return max(sizes) > MOST_BYTE or max(layer.stride[1:]) > MOST_STRIDE or window > MOST_WINDOW


def _deepest(block: Block) -> Block | None:
    """Return the block with the deepest tiles; one copy of them, then less of it, where two do not fit.

    One copy is tried from the deepest on again: of tall kernels many slices read hardly more rows than one.
    """
    for copies, depth in product((2, 1), range(DEEPEST, 0, -LEAST_DEPTH)):
        deep = replace(block, depth=depth, copies=copies)
        if deep.fits:
            return deep
    for base_k in range(block.base_k - FRACTAL, 0, -FRACTAL):
        short = replace(block, depth=LEAST_DEPTH, copies=1, base_k=base_k)
        if short.fits:
            return short
    return _smaller(block)


def _smaller(block: Block) -> Block | None:
    """Return the block with sides that the shortest reduction fits, then the longest that does."""
    small = replace(block, depth=LEAST_DEPTH, copies=1, base_k=FRACTAL)
    while not small.fits:
        m, n = small.base_m, small.base_n
        if max(m, n) <= FRACTAL:
            return None
        # The longer side gives way until both are equal, then both do.
        small = replace(small, base_m=m - FRACTAL if m >= n else m, base_n=n - FRACTAL if n >= m else n)
    longer = (replace(small, base_k=base_k) for base_k in range(_longest_k(small), 0, -FRACTAL))
    return next(block for block in longer if block.fits)


def _tasks(block: Block) -> int:
    """Return the tasks: tiles of the result, at each kernel depth of each group."""
    layer = block.layer
    rows = ceil_div(align(layer.co), block.base_m)
    columns = ceil_div(_columns(layer), _single_n(block))
    return rows * columns * layer.kernel[0] * layer.groups


def _single_n(block: Block) -> int:
    """Return the columns of a task: whole windows."""
    return round_up(block.base_n, _window(block.layer))


def _recut(block: Block) -> Block:
    """Return the block with shorter sides where tasks are too few and no stream-K uses all cores."""
    cores = block.machine.cores
    if _tasks(block) >= cores or _streams_evenly(block):
        return block
    heights = tuple(_shorter(align(block.layer.co), block.base_m, cores))
    widths = tuple(_shorter(_columns(block.layer), block.base_n, cores))
    # Rows first, then columns. Both together where neither is enough, such as for a line of one image.
    sides = (
        *((height, block.base_n) for height in heights),
        *((block.base_m, width) for width in widths),
        *product(heights, widths),
    )
    for height, width in sides:
        cut = replace(block, base_m=height, base_n=width)
        if _streams_evenly(cut):
            return _refitted(cut)
    return block


def _streams_evenly(block: Block) -> bool:
    """Tell whether equal numbers of cores can share the reduction of each task, and no core is left."""
    cores, tasks, layer = block.machine.cores, _tasks(block), block.layer
    return cores % tasks == 0 and cores // tasks <= max(layer.batch * layer.output[0], layer.output[1])


def _shorter(side: int, size: int, most: int) -> Iterator[int]:
    """Yield the equal parts of a side, in whole fractals, that are more than those of a size."""
    for parts in range(ceil_div(side, size) + 1, min(ceil_div(side, FRACTAL), most) + 1):
        yield align(ceil_div(side, parts))


def _refitted(block: Block) -> Block:
    """Return the block with the longest base_k and the deepest tiles of its sides."""
    return _deepest(replace(block, base_k=_longest_k(block))) or block


def _plan(block: Block, tail: Tail, factor: int) -> VendorPlan:
    """Return the plan of a block."""
    layer = block.layer
    double = 2 * block.base_m * block.base_n <= block.machine.l0c_floats
    return VendorPlan(
        *("stream_k", block.base_m, block.base_n, block.base_k, block.step, block.step),
        single_core_m=block.base_m,
        single_core_n=_single_n(block),
        single_core_k=block.single_k,
        al1_buffers=block.copies,
        bl1_buffers=block.copies,
        cl0_buffers=2 if double else 1,
        used_cores=block.machine.cores,
        tasks=_tasks(block),
        mapping="interleaved",
        order=("m", "n", "kd", "group"),
        split="mn",
        group_merge=factor,
        stream_ways=tail.ways,
        stream_axis=tail.axis,
        strip_w=block.strip if block.strip < layer.output[2] else 0,
        taps="khkw" if block.split_taps else "all",
    )
