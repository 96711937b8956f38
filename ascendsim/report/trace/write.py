"""Write a trace line by line, within a bound on its spans."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.ops.results import KernelResult
from ascendsim.report.files import replacing
from ascendsim.report.trace.cores import Context, Drawn, core_events, kinds_of
from ascendsim.report.trace.events import (
    DEVICE_PID,
    KERNEL_TID,
    LAUNCH_TID,
    Clock,
    Event,
    Row,
    name,
    names,
    span,
)
from ascendsim.report.trace.traffic import Bytes, counters

if TYPE_CHECKING:
    from ascendsim.profile import Profile


@default_arithmetic
def write_trace(path: Path, kernels: Iterable[KernelResult], profile: Profile, max_spans: int) -> int:
    """Write trace.json and return how many instructions were left out for size.

    Each kernel gets an equal part of `max_spans` instructions; whole cores are left out before the end of the
    first one of a phase is. Waits, arrows and levels of buffers are those of the instructions that are drawn.
    A core that stands for others which do exactly the same is drawn once; its phase span names the others.
    """
    kernels, clock_mhz = tuple(kernels), profile.clock.cube_mhz
    kinds, moved, numbers = kinds_of(profile.core_structure), Bytes(profile), count(1)
    # In equal parts, so that a long first kernel does not leave the others without a span.
    budget = max(max_spans // max(len(kernels), 1), 1)
    omitted = 0
    # Line by line, so that the memory does not grow with the trace.
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as out:
        out.write('{"displayTimeUnit": "ns", "traceEvents": [\n')
        out.write(_line(name("process_name", DEVICE_PID, 0, {"name": "device"})))
        named: set[tuple[int, int]] = set()
        at_us = 0.0
        for kernel in kernels:
            # A difference of two floats, which without a launch may come out a hair below 0.
            launch_us = max(kernel.time_us - kernel.cycles / clock_mhz, 0.0)
            context = Context(Clock(at_us + launch_us, clock_mhz), kinds, moved, numbers)
            chosen, left_out = _chosen(kernel, budget)
            omitted += left_out
            for event in _kernel_events(kernel, Clock(at_us, 1.0), launch_us, chosen, context):
                for line in (*names(event, named, kinds), event):
                    out.write(",\n" + _line(line))
            at_us += kernel.time_us
        out.write(f'\n], "otherData": {_line({"omitted_spans": omitted, "clock_mhz": clock_mhz})}}}\n')
    return omitted


def _line(event: Event) -> str:
    return json.dumps(event, separators=(",", ":"))


def _chosen(kernel: KernelResult, budget: int) -> tuple[list[Drawn], int]:
    """Return the cores that are drawn, and how many instructions are not."""
    chosen: list[Drawn] = []
    total = left = 0
    for phase in kernel.timeline.phases:
        first_of_kind: set[str] = set()
        for core in phase.cores:
            # A core is shown whole or not at all; of the first of a kind, a part is better than nothing.
            spans = len(core.program)
            total += spans
            room = budget - left
            kind = core.cores[0].kind
            if spans <= room or (kind not in first_of_kind and room > 0):
                taken = min(spans, room)
                chosen.append(Drawn(kernel, phase, core, taken))
                left += taken
            first_of_kind.add(kind)
    return chosen, total - left


def _kernel_events(
    kernel: KernelResult, host: Clock, launch_us: float, chosen: Iterable[Drawn], context: Context
) -> Iterator[Event]:
    """Yield the events of one kernel; the host's clock counts microseconds from before its launch."""
    yield span(Row(DEVICE_PID, LAUNCH_TID), "launch", f"launch {kernel.name}", host, (0, launch_us), {})
    arguments = {
        "cycles": kernel.cycles,
        "entry_cycles": kernel.timeline.entry_cycles,
        "bound_by": kernel.bound_by,
        **kernel.bytes,
    }
    row = Row(DEVICE_PID, KERNEL_TID)
    yield span(row, "kernel", kernel.name, context.clock, (0, kernel.cycles), arguments)
    yield from counters(kernel, context.clock, context.moved)
    for drawn in chosen:
        yield from core_events(drawn, context)
