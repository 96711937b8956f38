"""The grad_weight of 910_95: tiles of the result dealt to all cores, the last round cut by stream-K.

Source   host code of the public operator (ops-nn), as read
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from ascendsim.ops.tiling.vendor.arch35.wgrad_block import LONGEST, Block, base_block
from ascendsim.ops.tiling.vendor.layer import FRACTAL, PLAIN, Layer, Machine, align, ceil_div
from ascendsim.ops.tiling.vendor.plan import VendorPlan
from ascendsim.ops.tiling.vendor.stream import Tail
from ascendsim.ops.tiling.vendor.windows import wgrad_rows

# The kinds of stream-K by the vendor's number.
KINDS = ("", "batch_depth", "height")


def stream_k(given: Layer, machine: Machine) -> VendorPlan | None:
    """Return the plan of grad_weight; None where no tile fits in L1."""
    factor = merge_factor(given, machine)
    block = base_block(given.merged(factor), machine)
    if block is None:
        return None
    if factor == 1:
        block = _wider(_higher(block))
    tail = _tail(block)
    if tail.axis != "height":
        return _plan(block, tail, factor)
    cut = _of_rows(block, tail)
    return _plan(cut, tail, factor) if cut else _plan(block, Tail(), factor)


def merge_factor(layer: Layer, machine: Machine) -> int:
    """Return how many groups are computed as one: as fill fractals, if the buffers hold their block."""
    factor = layer.merge_factor(FRACTAL)
    if factor == 1 or layer.layouts.weight != PLAIN:
        return 1
    whole = layer.merged(factor)
    rows, columns = align(whole.co), align(whole.ci) * layer.taps
    if max(rows, columns) > LONGEST or 4 * rows * columns > machine.l0c:
        return 1
    # Vector cores pick the diagonal blocks out of the merged one, in float32. The taps of a channel begin at
    # multiples of 32 bytes in their own copy, unless those of a group, which lie in one piece, do.
    ragged = layer.kernel[0] != 1 or layer.ci * layer.taps % 8
    taps = ceil_div(layer.taps, 8) * 8 if ragged else layer.taps
    in_ub = (columns + factor * layer.ci * taps) * rows * 4 + LONGEST
    slice_bytes = _slice_bytes(whole, machine, rows, columns)
    return factor if in_ub <= machine.ub and slice_bytes <= machine.l1 else 1


def _slice_bytes(whole: Layer, machine: Machine, rows: int, columns: int) -> int:
    """Return what one slice of both operands of a block takes in L1, its base_k not cut to whole rows."""
    block = Block(whole, machine, rows, columns, FRACTAL)
    base_k = min(block.longest_k, ceil_div(whole.out_pixels, whole.c0) * whole.c0)
    image = wgrad_rows(whole, base_k) * whole.input[2] * align(whole.ci)
    return (base_k * rows + image) * whole.itemsize


def _higher(block: Block) -> Block:
    """Return the block with fewer rows, if tasks are few and equal numbers of cores can then share each."""
    layer, cores, width = block.layer, block.machine.cores, block.layer.output[2]
    images, depths = layer.batch * layer.output[0], layer.kernel[0] * layer.groups
    shared = cores % block.tasks == 0 and max(images, layer.output[1]) >= cores // block.tasks
    if block.tasks >= cores or shared:
        return block
    others = ceil_div(block.columns, block.single_n) * depths
    for parts in range(min(ceil_div(block.rows, FRACTAL), cores) // others, 0, -1):
        cut = replace(block, base_m=align(ceil_div(block.rows, parts))).refitted()
        if cut.tasks > cores or cores % cut.tasks:
            continue
        ways = cores // cut.tasks
        if images < ways and cut.base_k < ways * width:
            continue
        if cut.base_m * cut.base_n > block.machine.l0c_floats:
            break
        block = cut.deepened()
        if block.fits:
            break
    return block


def _wider(block: Block) -> Block:
    """Return the block with fewer columns, where more than half of the cores have a task, and not all."""
    layer, cores = block.layer, block.machine.cores
    if not (cores // 2 < block.tasks < cores and block.base_n >= block.base_m):
        return block
    windows, count = ceil_div(block.columns, block.window), ceil_div(block.columns, block.single_n)
    others = ceil_div(block.rows, block.base_m) * layer.kernel[0] * layer.groups
    for parts in range(min(windows, cores // others), count, -1):
        cut = replace(block, base_n=ceil_div(windows, parts) * block.window).refitted()
        if cut.tasks > cores or cut.base_m * cut.base_n > block.machine.l0c_floats:
            continue
        block = cut.deepened()
        if block.fits:
            break
    return block


def _tail(block: Block) -> Tail:
    """Return how the last round is cut: along images and depths, or rows where these give more parts.

    Along rows also where the last part of images is shorter, by its share, than that of rows. The length of a
    part of images is told even where a single one results.
    """
    cores, layer = block.machine.cores, block.layer
    last = block.tasks % cores
    if not 0 < last <= cores // 2:
        return Tail()
    ways = cores // last
    images, height = layer.batch * layer.output[0], layer.output[1]
    of_images, of_rows = ceil_div(images, ways), ceil_div(height, ways)
    rest = Fraction(images % of_images, of_images), Fraction(height % of_rows, of_rows)
    parts = ceil_div(images, of_images), ceil_div(height, of_rows)
    if parts[0] < parts[1] or 0 < rest[0] < rest[1]:
        return Tail(parts[1], "height", of_rows)
    return Tail(parts[0], "batch_depth" if parts[0] > 1 else "", of_images)


def _of_rows(block: Block, tail: Tail) -> Block | None:
    """Return the block of a reduction in parts of rows; None where L1 holds no tile of one."""
    pixels = tail.length * block.layer.output[2]
    base_k = align(min(block.base_k, pixels))
    cut = replace(block, base_k=base_k, step=min(block.step, ceil_div(pixels, base_k)))
    # A shorter base_k may straddle more rows.
    while not cut.fits and cut.step > 1:
        cut = replace(cut, step=cut.step - 1)
    return cut if cut.fits else None


def _plan(block: Block, tail: Tail, factor: int) -> VendorPlan:
    """Return the plan of a block."""
    layer, machine = block.layer, block.machine
    height = tail.length if tail.axis == "height" else layer.output[1]
    images = layer.batch * layer.output[0]
    images = tail.length if tail.length and tail.axis != "height" else images
    host = {
        "singleCoreBatchDout": images,
        "singleCoreHo": height,
        "singleCoreCout": block.base_m,
        "singleCoreCin": block.single_n // layer.taps,
        "streamkType": KINDS.index(tail.axis),
        "splitWo": block.width,
        "iterateOrder": int(block.rows > block.columns),
        "realGroup": layer.groups,
        "al1Bound": block.left,
        "bl1Bound": block.right,
    }
    return VendorPlan(
        *("stream_k", block.base_m, block.base_n, block.base_k, block.step, block.step),
        single_core_m=block.base_m,
        single_core_n=block.single_n,
        single_core_k=height * layer.output[2],
        al1_buffers=block.copies,
        bl1_buffers=block.copies,
        cl0_buffers=2 if 2 * block.base_m * block.base_n <= machine.l0c_floats else 1,
        used_cores=machine.cores,
        tasks=block.tasks,
        mapping="interleaved",
        order=("m", "n", "kd", "group"),
        split="mn",
        group_merge=factor,
        stream_ways=tail.ways,
        stream_axis=tail.axis,
        strip_w=block.strip if block.strip < layer.output[2] else 0,
        taps="khkw" if block.split_taps else "all",
        host=tuple(host.items()),
    )
