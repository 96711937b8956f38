"""Grad_input of 910_95 whose kernel is split by the stride, so that no inserted zeros are multiplied."""

from __future__ import annotations

from dataclasses import replace

from ascendsim.ops.tiling.vendor.arch35.dgrad_block import Block, balanced, base_block, longest_k, shorter_ks
from ascendsim.ops.tiling.vendor.arch35.dgrad_l1 import with_steps
from ascendsim.ops.tiling.vendor.arch35.dgrad_parts import Part
from ascendsim.ops.tiling.vendor.arch35.dgrad_plan import plan_of
from ascendsim.ops.tiling.vendor.image_l1 import Steps
from ascendsim.ops.tiling.vendor.layer import FRACTAL, align, ceil_div
from ascendsim.ops.tiling.vendor.plan import VendorPlan

FULL_SIDE, MOST_FULL_CHANNELS = 256, 256


def split_plan(part: Part) -> VendorPlan | None:
    """Return the plan of a split kernel: both operands whole in L1 if they fit; None if nothing fits."""
    block = (_whole(part) if part.split == "hw" else None) or _blocks(part)
    if block is None:
        return None
    return plan_of(block, "kernel_split", through_gm=part.split == "hw" and _through_gm(block))


def _whole(part: Part) -> Block | None:
    """Return the block of whole operands in one copy each, or None where they do not fit."""
    layer = part.layer
    if layer.co > MOST_FULL_CHANNELS:
        return None
    base_m = min(FULL_SIDE, align(layer.in_pixels))
    base_n = min(part.machine.beside(base_m, FULL_SIDE), align(layer.ci))
    block = balanced(Block(part, base_m, base_n, longest_k(part, base_m, base_n)))
    rows = max(block.base_m // layer.input[2], 1) * layer.input[2]
    if rows < block.base_m and rows < layer.in_pixels:
        block = replace(block, single_m=rows, base_m=align(rows))
    steps = Steps(block.slices, block.slices, 1, 1)
    # The weights of all phases stay, and what all kernel depths read.
    phases = layer.kernel[0] * 4
    need = layer.kernel[0] * block.a_bytes(steps) + phases * block.b_bytes(steps)
    return block.holding(steps) if need < part.machine.l1 else None


def _blocks(part: Part) -> Block | None:
    """Return the base block, with a shorter k, then one copy of the weights, then fewer channels.

    Each only where L1, or windows that the slices of a tile do not end on, want it so.
    """
    block = balanced(base_block(part))
    shorter = (replace(block, base_k=base_k) for base_k in shorter_ks(block))
    found = with_steps(block) or next(filter(None, map(with_steps, shorter)), None)
    while found is None:
        found = with_steps(block, 2, 1)
        if found is None:
            if block.base_n <= FRACTAL:
                return None
            block = replace(block, base_n=block.base_n - FRACTAL)
    return replace(found, base_n=align(ceil_div(part.layer.ci, found.columns)))


def _through_gm(block: Block) -> bool:
    """Tell whether the phases of a tile are interleaved through a workspace, as UB cannot hold them."""
    layer, machine = block.part.layer, block.part.machine
    rows = ceil_div(block.single_m or block.base_m, layer.input[2])
    tile = 4 * rows * align(layer.input[2]) * block.base_n * layer.itemsize
    return tile > machine.ub or layer.input[2] % FRACTAL != 0
