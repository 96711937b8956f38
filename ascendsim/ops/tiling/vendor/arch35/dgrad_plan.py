"""The plan of a block of grad_input on 910_95: its tasks, and the order in which they are dealt."""

from __future__ import annotations

from typing import Any

from ascendsim.ops.tiling.vendor.arch35.dgrad_block import Block
from ascendsim.ops.tiling.vendor.layer import ceil_div
from ascendsim.ops.tiling.vendor.plan import VendorPlan


def plan_of(block: Block, strategy: str, **more: Any) -> VendorPlan:
    """Return the plan of a block: its tiles, tasks and their order."""
    part, layer, steps = block.part, block.part.layer, block.steps
    # Windows of depth are used again by the next depth; otherwise weights by the next rows of pixels.
    rows = ceil_div(layer.in_pixels, block.single_m or block.base_m)
    if layer.kernel[0] > 1:
        order = ("batch", "group", "m", "d", "n")
    elif layer.kernel[1] > 1 or rows > block.columns:
        order = ("batch", "group", "d", "m", "n")
    else:
        order = ("batch", "group", "d", "n", "m")
    values: dict[str, Any] = {
        "single_core_m": block.single_m or block.base_m,
        "single_core_n": block.base_n,
        "single_core_k": layer.co,
        "al1_buffers": steps.a_buffers,
        "bl1_buffers": steps.b_buffers,
        "cl0_buffers": block.l0c_copies,
        "used_cores": min(block.tasks, part.machine.cores),
        "tasks": block.tasks,
        "mapping": "interleaved",
        "order": order,
        "taps": part.taps,
        "kernel_split": part.split,
        "k_segment": part.segment,
        "zero_first": part.taps in ("kh", "khkw"),
        **more,
    }
    return VendorPlan(strategy, block.base_m, block.base_n, block.base_k, steps.a, steps.b, **values)
