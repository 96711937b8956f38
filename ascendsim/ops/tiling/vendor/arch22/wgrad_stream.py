"""The deterministic grad_weight of 910B and 910_93: tiles of the result, the last round cut by stream-K."""

from __future__ import annotations

from dataclasses import replace

from ascendsim.ops.tiling.vendor.arch22.wgrad_block import (
    Block,
    block_plan,
    columns_of,
    l0c_copies,
    whole_images,
)
from ascendsim.ops.tiling.vendor.layer import FRACTAL, Layer, Machine, ceil_div
from ascendsim.ops.tiling.vendor.plan import VendorPlan
from ascendsim.ops.tiling.vendor.stream import tail_of


def stream_k(given: Layer, machine: Machine) -> VendorPlan | None:
    """Return the plan in which every element of the result is added by one core, in one order.

    Only the tasks of the last round are cut further; vector cores add their parts in a fixed order. None: no
    tile fits in L1.
    """
    # A task reduces all images and depths for one kernel depth: the kernel's depths are tasks of their own.
    layer = given.merged(given.merge_factor(FRACTAL))
    block = whole_images(layer, machine, columns_of(layer, depths=False))
    if block is None:
        return None
    single_n = _strip(block)
    tasks = _tasks(block, single_n)
    tail = tail_of(layer, tasks, machine.cores)
    used = min(tasks, machine.cores)
    if tail.axis:
        used = max(used if tasks > machine.cores else 0, tasks % machine.cores * tail.ways)
    return replace(
        block_plan(block),
        strategy="stream_k",
        single_core_n=single_n,
        cl0_buffers=l0c_copies(block.base_m, block.base_n, machine),
        used_cores=used,
        tasks=tasks,
        order=("group", "kd", "m", "n"),
        group_merge=given.merge_factor(FRACTAL),
        stream_ways=tail.ways,
        stream_axis=tail.axis,
        zero_first=False,
    )


def _tasks(block: Block, single_n: int) -> int:
    """Return the tasks whose strips of the result have so many columns."""
    layer = block.layer
    strips = ceil_div(block.rows, block.single_m) * ceil_div(block.columns, single_n)
    return strips * layer.groups * layer.kernel[0]


def _strip(block: Block) -> int:
    """Return the columns of a task: wider strips where the tasks then keep all cores busy to the end."""
    # Strips of one window, two, and so on: the first that leaves no core without work, in the last round cut
    # by stream-K if need be. Fewer tasks than cores are all of them in the last round.
    cores = block.machine.cores
    least = block.single_n
    for single_n in range(least, block.columns + 1, least):
        tasks = _tasks(block, single_n)
        tail = tasks % cores
        if not tail or tail * tail_of(block.layer, tasks, cores).ways == cores:
            return single_n
    return least
