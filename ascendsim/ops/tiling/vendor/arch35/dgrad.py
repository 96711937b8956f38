"""The grad_input of 910_95: which of its plans a layer gets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ascendsim.ops.tiling.vendor.arch35.dgrad_block import LONGEST, Block, balanced, base_block, longest_k
from ascendsim.ops.tiling.vendor.arch35.dgrad_full_load import full_load
from ascendsim.ops.tiling.vendor.arch35.dgrad_l1 import legalised, with_steps
from ascendsim.ops.tiling.vendor.arch35.dgrad_parts import LONG_REDUCTION, Part, part_of, split_part
from ascendsim.ops.tiling.vendor.arch35.dgrad_plan import plan_of
from ascendsim.ops.tiling.vendor.arch35.dgrad_split import split_plan
from ascendsim.ops.tiling.vendor.arch35.dgrad_weights import turned_first
from ascendsim.ops.tiling.vendor.layer import FRACTAL, Layer, Machine, align, ceil_div
from ascendsim.ops.tiling.vendor.plan import VendorPlan

LEAST_SIDE = 64
# Fewer tasks than this many rounds are worth looking for the count that fits the cores.
FEW_ROUNDS = 2.5


def grad_input(given: Layer, machine: Machine) -> VendorPlan | None:
    """Return the plan of grad_input: the first of the operator's strategies that takes the layer, or None."""
    factor = merge_factor(given, machine)
    layer = given.merged(factor)
    split = split_part(layer, machine)
    plan = split_plan(split) if split is not None else None
    part = part_of(layer, machine)
    # Only blocks that fill L0C add a long reduction in segments; the kinds before take it whole.
    plan = plan or small_shape(part) or full_load(part) or inner_product(replace(part, cut=True))
    if plan is None:
        return None
    plan = replace(plan, group_merge=factor)
    if not turned_first(plan, given):
        return plan
    # Two vector cores beside each cube core turn 16 channels of input for one of grad_output at a time.
    turning = ceil_div(given.co * ceil_div(given.ci, FRACTAL), 2)
    used = min(machine.cores, max(plan.tasks, turning))
    return replace(plan, transpose_first=True, used_cores=used)


def merge_factor(layer: Layer, machine: Machine) -> int:
    """Return how many groups are computed as one: vector cores build their block-diagonal weights in UB."""
    factor = layer.merge_factor(layer.c0)
    merged = layer.merged(factor)
    # Channels of input come in fractals of 16, also of float32; those of grad_output in C0.
    block = merged.co1 * merged.taps * align(merged.ci) * layer.c0 * layer.itemsize
    return factor if 2 * block + 256 <= machine.ub else 1


def inner_product(part: Part) -> VendorPlan | None:
    """Return the plan of blocks that fill L0C; None if not even the smallest fits in L1."""
    first = base_block(part)
    block = balanced(first)
    found = with_steps(block)
    if found is not None:
        return plan_of(found, "inner_product")
    smaller = legalised(block)
    if smaller is None:
        return None
    found = replace(smaller, base_n=align(ceil_div(part.layer.ci, smaller.columns)))
    # Tasks stay as they are while blocks are as tall as before.
    if smaller.base_m < block.base_m:
        found = balanced(replace(found, single_m=0))
    # A tile that was cut to fit in L1 keeps the copies in L0C that the first one had.
    return plan_of(found, "inner_product", cl0_buffers=first.l0c_copies)


def small_shape(part: Part) -> VendorPlan | None:
    """Return the plan of a product with few tasks: as few rounds as can be, with the least to load."""
    layer, machine = part.layer, part.machine
    count = ceil_div(align(layer.in_pixels) * align(layer.ci) * 4, machine.l0c) * part.images
    few = count < FEW_ROUNDS * machine.cores and count % machine.cores != 0
    if not few or layer.co * layer.taps > LONG_REDUCTION or part.taps not in ("all", "c04"):
        return None
    best: tuple[tuple[int, ...], Block] | None = None
    for block in _counts(part):
        load = part.channel_bytes(block.base_m) + block.column_bytes
        key = ceil_div(block.tasks, machine.cores), load, -block.tasks
        if best is None or key < best[0]:
            best = key, block
    if best is None:
        return None
    block = best[1]
    block = replace(block, base_k=longest_k(part, block.base_m, block.base_n))
    found = with_steps(block) or legalised(block)
    return plan_of(found, "small_shape") if found is not None else None


def _counts(part: Part) -> list[Block]:
    """Return the blocks that cut pixels and channels into equal parts and fit in L0C."""
    return [
        Block(part, base_m, base_n, FRACTAL)
        for base_m in _equal_parts(align(part.layer.in_pixels))
        for base_n in _equal_parts(align(part.layer.ci))
        if base_m * base_n <= part.machine.l0c_floats
    ]


def _equal_parts(side: int) -> list[int]:
    """Return the sizes that cut a side into one part, two, and so on."""
    sizes: dict[int, Any] = {}
    for parts in range(1, ceil_div(side, FRACTAL) + 1):
        size = align(ceil_div(side, parts))
        if size < min(LEAST_SIDE, side):
            break
        if size <= LONGEST:
            sizes[size] = None
    return list(sizes)
