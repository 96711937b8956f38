"""The tiles of grad_input on 910_95 in L1, and smaller blocks where none fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ascendsim.ops.tiling.vendor.arch35.dgrad_block import Block
from ascendsim.ops.tiling.vendor.image_l1 import Steps
from ascendsim.ops.tiling.vendor.layer import FRACTAL, ceil_div, floor_to, is_whole


def with_steps(block: Block, a_buffers: int = 2, b_buffers: int = 2) -> Block | None:
    """Return the block with the slices that L1 holds: half of each reduction in a tile, or equal ones."""
    found = [
        steps
        for steps in (_ladder(block, a_buffers, b_buffers), _even_loads(block, a_buffers, b_buffers))
        if steps is not None and block.fits(steps)
    ]
    return block.holding(max(found, key=lambda steps: steps.a + steps.b, default=None))


def _even_loads(block: Block, a_buffers: int, b_buffers: int) -> Steps | None:
    """Return steps that give each operand half of L1, in an even number of loads: ping and pong alike."""
    part, half = block.part, block.part.machine.l1 // 2
    # grad_output comes in fractals of 16 channels.
    group = max(1, FRACTAL // part.layer.c0) if part.taps != "c04" else 1
    a = half // a_buffers // (part.channel_bytes(block.base_m) * group) * group
    b = half // b_buffers // block.column_bytes
    a, b = (_even_load(part.channel_groups, max(1, share)) for share in (a, b))
    large, small = max(a, b), min(a, b)
    large = floor_to(large, small)
    a, b = (large, small) if a >= b else (small, large)
    steps = (count * part.window // block.base_k for count in (a, b))
    first, second = (max(1, step) for step in steps)
    # Slices of several windows are rounded down, each for itself.
    larger, smaller = max(first, second), min(first, second)
    larger = floor_to(larger, smaller)
    pair = (larger, smaller) if first >= second else (smaller, larger)
    return Steps(*pair, a_buffers, b_buffers)


def _even_load(total: int, share: int) -> int:
    """Return the size of a load that comes an even number of times, at most `share` where that was even."""
    loads = ceil_div(total, share)
    loads = max(loads - loads % 2, min(2, total))
    return ceil_div(total, loads)


def _ladder(block: Block, a_buffers: int, b_buffers: int) -> Steps | None:
    """Return the largest equal steps that fit, up to half of the reduction."""
    part = block.part
    half = ceil_div(part.channel_groups, 2) * part.window
    most = min(half, part.machine.l1 // part.layer.itemsize // (b_buffers * block.base_n))
    for step in range(max(1, most // block.base_k), 0, -1):
        steps = Steps(step, step, a_buffers, b_buffers)
        if block.fits(steps):
            return steps
    return None


def legalised(block: Block) -> Block | None:
    """Return a smaller block whose tiles fit in L1, or None: shorter k first, then shorter sides.

    Only where nothing fits in two copies is one copy tried, of both operands.
    """
    for copies in (2, 1):
        for shorter in _shorter_k(block):
            found = with_steps(shorter, copies, copies)
            if found is not None:
                return found
        found = _smaller(replace(block, base_k=block.part.layer.c0), copies)
        if found is not None:
            return found
    return None


def _shorter_k(block: Block) -> Iterator[Block]:
    """Yield the block with its base_k and with each shorter one that cuts windows evenly."""
    unit = block.part.layer.c0
    for base_k in range(block.base_k, 0, -unit):
        if is_whole(base_k, block.part.window):
            yield replace(block, base_k=base_k)


def _smaller(block: Block, copies: int) -> Block | None:
    """Return the block with sides that one window fits, then with the longest base_k within a row."""
    part = block.part
    while True:
        found = with_steps(block, copies, copies)
        if found is not None:
            break
        m, n = block.base_m, block.base_n
        if max(m, n) <= FRACTAL:
            return None
        # The longer side gives way; of equal ones the channels.
        block = replace(block, base_n=n - FRACTAL) if n >= m else replace(block, base_m=m - FRACTAL)
    limit = min(
        part.machine.l0_half // part.layer.itemsize // max(block.base_m, block.base_n), part.reduction
    )
    row = part.layer.kernel[2] * part.layer.c0
    for base_k in range(floor_to(limit, part.layer.c0), part.layer.c0, -part.layer.c0):
        longer = replace(block, base_k=base_k)
        if (base_k < row or row == part.layer.c0) and is_whole(base_k, part.window):
            step = max(1, ceil_div(part.window, base_k))
            fitting = longer.holding(Steps(step, step, copies, copies))
            if fitting is not None and longer.fits(fitting.steps):
                return fitting
    return found
