"""Tilings made smaller until every buffer of the machine holds their tiles."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from ascendsim.errors import CapacityError
from ascendsim.ops.plan import Tiling
from ascendsim.ops.schedules.base import Schedule
from ascendsim.ops.schedules.blocks import BlockSchedule
from ascendsim.ops.schedules.wgrad.columns import narrowed_to
from ascendsim.ops.schedules.wgrad.schedule import Wgrad
from ascendsim.ops.tiling.request import PlanRequest

# Every size is a multiple of a fractal, or of a group of channels where those are wider.
FRACTAL = 16
STEPS = ("step_ka", "step_kb")
# What is made smaller where a buffer is short, in this order: what costs least first. Fields that stand
# together are halved in turn, the larger one first.
SHRINK: dict[str, tuple[tuple[str, ...], ...]] = {
    "L1": (("step_m", "step_n"), STEPS, ("base_k",), ("al1_buffers", "bl1_buffers"), ("base_m", "base_n")),
    "L0A": (("base_k",), ("base_m",), ("al0_buffers",)),
    "L0B": (("base_k",), ("base_n",), ("bl0_buffers",)),
    "L0C": (("cl0_buffers",), ("base_m", "base_n")),
    "UB": (("base_m",),),
}


def fitted(tiling: Tiling, kind: type[Schedule], request: PlanRequest) -> Tiling:
    """Return the tiling with what is not fixed made smaller until it fits, on all cores that get work.

    Raises   CapacityError naming the buffer that is short whatever is left open
    """
    partial, most = request.fixed, request.profile.cores.cube
    if partial.block_dim:
        most = min(most, partial.block_dim)
    while True:
        if "used_cores" not in partial.fields:
            tiling = replace(tiling, used_cores=most)
        schedule = kind(request.gemm, tiling, request.profile, request.sums)
        try:
            dealt = [tasks for tasks in schedule.dealt() if tasks]
            _reserve(schedule, dealt)
            if "base_n" in partial.fields:
                _require_width(schedule)
        except CapacityError as error:
            smaller = _smaller(tiling, error.buffer, {*partial.fields, *kind.fixed}, unit_of(request))
            if smaller is None:
                said = ", ".join(f"{name} {value}" for name, value in partial.fields.items())
                raise CapacityError(
                    f"tiling of {kind.makes}: with {said} nothing that is left open makes the tiles fit: "
                    f"{error}",
                    error.buffer,
                ) from None
            tiling = smaller
        else:
            used = tiling.used_cores if "used_cores" in partial.fields else max(1, len(dealt))
            return replace(tiling, used_cores=used)


def unit_of(request: PlanRequest) -> int:
    """Return what every size is a multiple of, in elements."""
    sliding = getattr(request.gemm, "sliding", None)
    return max(FRACTAL, sliding.c0) if sliding else 2 * FRACTAL


def _reserve(schedule: Schedule, dealt: Sequence[Sequence[Any]]) -> None:
    """Reserve the slots of the cores.

    Raises   CapacityError naming buffer, need and capacity
    """
    if isinstance(schedule, BlockSchedule) and type(schedule).program is BlockSchedule.program:
        # The largest first: an error tells what that needs, not what is left over for the last core.
        for sizes in sorted({schedule.tasks.sizes(tasks) for tasks in dealt}, reverse=True):
            schedule.nest(sizes)
    elif dealt:
        # What another nest reserves only its program tells; the first core has the largest tiles as a rule.
        schedule.program(dealt[0])


def _require_width(schedule: Schedule) -> None:
    """Refuse tiles of grad_weight beside which L1 holds narrower blocks than those asked for.

    Raises   CapacityError
    """
    if isinstance(schedule, Wgrad):
        columns = narrowed_to(schedule.gemm, schedule.tiling, schedule.tasks.column_blocks)
        if columns:
            raise CapacityError(
                f"L1 of {schedule.profile.variant} holds the windows of {columns} columns beside "
                f"grad_output, but base_n is {schedule.tiling.base_n}; take smaller steps or fewer copies",
                "L1",
            )


def _smaller(tiling: Tiling, buffer: str, given: Collection[str], unit: int) -> Tiling | None:
    """Return the tiling with one field halved that the buffer hangs on; None if all are given or least."""
    for together in SHRINK.get(buffer, ()):
        free = [name for name in together if name not in given]
        name = max(free, key=lambda field: int(getattr(tiling, field)), default="")
        least = unit if name.startswith("base") else 1
        if not name or getattr(tiling, name) <= least:
            continue
        half = -(-getattr(tiling, name) // (2 * least)) * least
        # Of grad_weight both steps are one: a tile of each operand serves the same pixels.
        if name in STEPS and tiling.step_ka == tiling.step_kb and len(free) == len(together):
            return replace(tiling, step_ka=half, step_kb=half)
        return replace(tiling, **{name: half})
    return None
