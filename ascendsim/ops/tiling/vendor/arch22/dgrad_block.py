"""The basic blocks of grad_input on 910B and 910_93, for 16-bit operands of one group."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ascendsim.ops.tiling.vendor.image_l1 import PINGPONG, ImageL1, Steps
from ascendsim.ops.tiling.vendor.layer import (
    FRACTAL,
    Layer,
    Machine,
    align,
    ceil_div,
    floor_to,
    is_whole,
    largest_whole,
)
from ascendsim.ops.tiling.vendor.plan import VendorPlan

# The longer side of a block and the shorter one: with float32 they fill L0C of 128 KiB.
LONG, SHORT = 256, 128
MOST_K = 64
# Above this width, rows that are no whole fractals are not worth cutting fine.
WIDE = 64
# What the operators take for the part of L2 that one kernel may rely on.
L2_SHARE_BYTES = 144 << 20


def basic_block(layer: Layer, machine: Machine) -> VendorPlan | None:
    """Return the plan of basic blocks; None where the operator takes another one, or no tile fits in L1."""
    if layer.itemsize != 2 or layer.groups > 1 or layer.transposed_forward:
        return None
    for block, copies in _blocks(layer, machine):
        steps = _steps(block, *copies)
        if steps is not None:
            return _plan(block, steps)
    return None


def _plan(block: ImageL1, steps: Steps) -> VendorPlan:
    """Return the plan of a block with its tiles in L1, cut into tasks."""
    layer, cores = block.layer, block.machine.cores
    single_m = _rows_of_a_task(block)
    tasks = _tasks(block, single_m)
    return VendorPlan(
        *("basic_block", block.base_m, block.base_n, block.base_k, steps.a, steps.b),
        single_core_m=single_m,
        single_core_n=block.base_n,
        single_core_k=align(layer.co),
        al1_buffers=steps.a_buffers,
        bl1_buffers=steps.b_buffers,
        used_cores=min(tasks, cores),
        tasks=tasks,
        order=("m", "batch", "d", "n"),
        resident="b" if steps.b_buffers == 1 and steps.b == block.slices else "",
    )


def _blocks(layer: Layer, machine: Machine) -> Iterator[tuple[ImageL1, tuple[int, int]]]:
    """Yield the operator's block with the copies of its tiles, then smaller ones.

    Fewer pixels or channels come first, then a shorter k. Copies are given up last, of the smallest block:
    those of the weights, of grad_output, then both.
    """
    block = first = _base_block(layer, machine)
    yield first, PINGPONG[0]
    while max(block.base_m, block.base_n) > FRACTAL:
        # A fractal of the longer side at a time, of equal ones the channels, as the operators of grad_weight
        # and of 910_95 do: no record tells it of this one.
        m, n = block.base_m, block.base_n
        block = replace(block, base_n=n - FRACTAL) if n >= m else replace(block, base_m=m - FRACTAL)
        yield block, PINGPONG[0]
    for base_k in range(first.base_k - FRACTAL, 0, -FRACTAL):
        if is_whole(base_k, first.window):
            block = replace(block, base_k=base_k)
            yield block, PINGPONG[0]
    for copies in PINGPONG[1:]:
        yield block, copies


def _base_block(layer: Layer, machine: Machine) -> ImageL1:
    """Return the base block: the longer side along the longer of pixels and channels."""
    half = machine.l0_half // layer.itemsize
    pixels, channels = align(layer.in_pixels), align(layer.ci)
    window, reduction = layer.taps * FRACTAL, layer.taps * align(layer.co)
    shorter = machine.beside(LONG, SHORT)
    long, short = (LONG, shorter) if pixels >= channels else (shorter, LONG)
    base_k = largest_whole(min(MOST_K, reduction), window) or FRACTAL
    base_n, base_m = min(short, channels), min(long, pixels)
    edge = floor_to(half // base_k, FRACTAL)
    # A short reduction leaves room in L0 for longer sides, as far as L0C has it.
    if base_n < LONG and base_k < MOST_K:
        base_m = min(edge, floor_to(machine.l0c_floats // base_n, FRACTAL), pixels)
    if base_m < LONG and base_k < MOST_K:
        base_n = min(edge, floor_to(machine.l0c_floats // base_m, FRACTAL), channels)
    longest = floor_to(half // max(base_m, base_n), FRACTAL)
    base_k = largest_whole(min(longest, reduction), window) or base_k
    return ImageL1(layer, machine, base_m, base_n, base_k)


def _steps(block: ImageL1, a_buffers: int, b_buffers: int) -> Steps | None:
    """Return the slices that L1 holds of both operands: all weights if they fit, else as even as can be."""
    if (a_buffers, b_buffers) == PINGPONG[0] and block.layer.kernel[0] == 1:
        for step in range(block.slices, 0, -1):
            resident = Steps(step, block.slices, 2, 1)
            if block.slices % step == 0 and block.fits(resident):
                return resident
    found = [
        steps
        for steps in (_equal_shares(block, a_buffers, b_buffers), _ladder(block, a_buffers, b_buffers))
        if steps is not None and block.fits(steps)
    ]
    return max(found, key=lambda steps: steps.a + steps.b, default=None)


def _equal_shares(block: ImageL1, a_buffers: int, b_buffers: int) -> Steps | None:
    """Return steps that give each operand half of L1, in whole windows, of which one divides the other."""
    empty = Steps(0, 0, a_buffers, b_buffers)
    half = block.machine.l1 // 2
    # Windows of each operand in a tile; a base_k of several windows takes that many at a time.
    unit = max(1, block.base_k // block.window)
    one = empty._replace(a=ceil_div(block.window, block.base_k))
    a, b = (
        min(block.layer.co1, half // each) // unit
        for each in (max(1, block.a_bytes(one) // unit), b_buffers * block.column_bytes)
    )
    if not a or not b:
        return None
    a, b = (count * unit for count in _dividing(a, b))
    return empty._replace(a=a * block.window // block.base_k, b=b * block.window // block.base_k)


def _dividing(a: int, b: int) -> tuple[int, int]:
    """Return the two counts, one of them rounded down, so that one divides the other and most is loaded."""
    large, small = max(a, b), min(a, b)
    pairs = [(floor_to(large, part), part) for part in range(small, 0, -1)]
    large, small = max(pairs, key=sum)
    return (large, small) if a >= b else (small, large)


def _ladder(block: ImageL1, a_buffers: int, b_buffers: int) -> Steps | None:
    """Return the largest equal steps that fit, up to one window."""
    for step in range(min(block.slices, block.layer.taps), 0, -1):
        steps = Steps(step, step, a_buffers, b_buffers)
        if block.fits(steps):
            return steps
    return None


def _rows_of_a_task(block: ImageL1) -> int:
    """Return the pixels of a task: whole rows, more of them where rows are wide and no whole fractals."""
    layer, cores = block.layer, block.machine.cores
    height, width = layer.input[1:]
    least = min(max(block.base_m // width, 1) * width, align(layer.in_pixels))
    if width > WIDE and width % FRACTAL:
        for parts in range(1, ceil_div(layer.in_pixels, least) + 1):
            single_m = ceil_div(height, parts) * width
            tasks = _tasks(block, single_m)
            if (tasks % cores == 0 or tasks >= cores**2) and _footprint(block, single_m) <= L2_SHARE_BYTES:
                return single_m
    elif layer.batch * layer.input[0] % cores == 0:
        # Images and depths alone keep all cores equally busy: rows need not be cut.
        return ceil_div(layer.in_pixels, width) * width
    return least


def _tasks(block: ImageL1, single_m: int) -> int:
    """Return the tasks of an operator whose tasks have so many pixels."""
    layer = block.layer
    images = layer.batch * layer.input[0]
    return ceil_div(layer.in_pixels, single_m) * images * ceil_div(layer.ci, block.base_n)


def _footprint(block: ImageL1, single_m: int) -> int:
    """Estimate the bytes that all cores touch at a time: the weights, and both sides of their pixels."""
    layer = block.layer
    weights = layer.ci * layer.co * layer.kernel[0] * layer.taps
    each = single_m * (layer.ci + layer.co * layer.kernel[0])
    return (weights + block.machine.cores * each) * layer.itemsize
