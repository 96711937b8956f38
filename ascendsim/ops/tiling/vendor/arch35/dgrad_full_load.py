"""Grad_input of 910_95 with all weights in L1 for as long as a core works."""

from __future__ import annotations

from dataclasses import replace
from math import gcd

from ascendsim.ops.tiling.vendor.arch35.dgrad_block import (
    LONGEST,
    LONGEST_NARROW,
    MANY_TAPS,
    ONE_TAP,
    Block,
    longest_k,
    many_taps,
)
from ascendsim.ops.tiling.vendor.arch35.dgrad_parts import Part
from ascendsim.ops.tiling.vendor.arch35.dgrad_plan import plan_of
from ascendsim.ops.tiling.vendor.image_l1 import Steps
from ascendsim.ops.tiling.vendor.layer import FRACTAL, align, ceil_div, floor_to
from ascendsim.ops.tiling.vendor.plan import VendorPlan

# Below this balance of multiply-adds against loads, loads bound a product; so do writes of a short reduction.
LOADS_BOUND, SHORT = 512, 128
MOST_WIDTH = 512
# Bytes of columns for reductions longer than so many.
COLUMN_BYTES = ((1024, 128), (512, 256), (256, 512), (0, 1024))
# A split along H may leave the busiest core this much more than its even share.
UNEVEN = 1.25


def full_load(part: Part) -> VendorPlan | None:
    """Return the plan with resident weights; None where they do not fit or would not pay."""
    layer, machine = part.layer, part.machine
    pixels, channels = layer.in_pixels, align(layer.ci)
    if layer.kernel[0] > 1 or pixels <= channels or layer.input[2] > MOST_WIDTH or layer.itemsize == 1:
        return None
    bound = pixels * channels < LOADS_BOUND * (pixels + channels) or part.reduction <= SHORT
    if not bound or part.taps not in ("all", "c04"):
        return None
    # L1 must have room twice for the weights of as many columns as a block begins with.
    _, columns = MANY_TAPS if many_taps(part) else ONE_TAP
    if 2 * part.reduction * min(channels, columns) * layer.itemsize > machine.l1:
        return None
    block = _block(part)
    block, depth = _shares(block)
    for step in range(block.slices, 0, -1):
        steps = Steps(step, block.slices, 2, 1)
        if block.slices % step == 0 and block.fits(steps):
            tasks = block.tasks // layer.input[0] * ceil_div(layer.input[0], depth)
            used = min(tasks, machine.cores)
            fitting = replace(block, steps=steps)
            more = {"single_core_d": depth, "tasks": tasks, "used_cores": used, "resident": "b"}
            return plan_of(fitting, "full_load", **more)
    return None


def _block(part: Part) -> Block:
    """Return the base block: wide where the reduction is short, and tall as far as L0C holds it."""
    layer, machine = part.layer, part.machine
    channels = align(layer.ci)
    most = next(size for least, size in COLUMN_BYTES if part.reduction > least) // layer.itemsize
    base_n = min(most, channels)
    double = part.reduction <= SHORT and channels >= min(2 * part.reduction, SHORT)
    room = machine.l0c_floats // (2 if double else 1) // base_n
    tallest = LONGEST_NARROW if base_n <= FRACTAL else LONGEST
    base_m = min(tallest, floor_to(room, FRACTAL), align(layer.in_pixels))
    return Block(part, base_m, base_n, longest_k(part, base_m, base_n))


def _shares(block: Block) -> tuple[Block, int]:
    """Return the block with the pixels of a task, and its depths: all cores equally busy if possible."""
    part, cores = block.part, block.part.machine.cores
    layer = part.layer
    depths, height, width = layer.input
    outer = layer.batch * block.columns
    if outer * depths * height % cores == 0:
        rest = cores // gcd(cores, outer)
        by_depth = gcd(rest, depths)
        by_height = rest // by_depth
        rows, depth = ceil_div(height, by_height), depths // by_depth
        single_m = rows * width
    else:
        even = outer * depths * height / cores
        rows = next(
            rows
            for rows in range(height, 0, -1)
            if ceil_div(outer * depths * ceil_div(height, rows), cores) * rows <= UNEVEN * even or rows == 1
        )
        single_m, depth = align(rows * width), 1
    return replace(block, single_m=single_m, base_m=min(block.base_m, align(single_m))), depth
