"""Write the spans of a call as a Chrome trace, which Perfetto and chrome://tracing open.

One process per core, one thread per pipe, plus a process for the host's view (launches, kernels). Time stamps
are microseconds from the start of the call; cycles are in the arguments of each span. A core that stands for
others which do exactly the same is drawn once; its phase span names the others.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ascendsim.ops.results import KernelResult
from ascendsim.program.instruction import PIPES
from ascendsim.program.kernel import Core
from ascendsim.program.posts import bare, core_of
from ascendsim.report.files import replacing
from ascendsim.report.pictures.occupancy import core_name
from ascendsim.timing.timeline import CoreTimeline, PhaseTimeline, released_by

if TYPE_CHECKING:
    from ascendsim.profile import Profile

DEVICE_PID = 1
# Far apart, so that the number of a process tells the kind and the index of its core.
_FIRST_CORE_PID = {"cube": 1_000, "vector": 2_000}
# Above the pipes: Perfetto sorts threads by their number.
_PHASE_TID = 0
Event = dict[str, Any]


def write_trace(path: Path, kernels: Iterable[KernelResult], profile: Profile, max_spans: int) -> int:
    """Write trace.json and return how many spans were left out for size.

    Each kernel gets an equal part of `max_spans`; whole cores are left out before the end of the first one of
    a phase is.
    """
    kernels, clock_mhz = tuple(kernels), profile.clock.cube_mhz
    kinds = {kind: core_name(profile.core_structure, kind) for kind in _FIRST_CORE_PID}
    # In equal parts, so that a long first kernel does not leave the others without a span.
    budget = max(max_spans // max(len(kernels), 1), 1)
    omitted = 0
    # Line by line, so that the memory does not grow with the trace.
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as out:
        out.write('{"displayTimeUnit": "ns", "traceEvents": [\n')
        out.write(json.dumps(_name("process_name", DEVICE_PID, 0, "device")))
        named: set[tuple[int, int]] = set()
        at_us = 0.0
        for kernel in kernels:
            # A difference of two floats, which without a launch may come out a hair below 0.
            launch_us = max(kernel.time_us - kernel.cycles / clock_mhz, 0.0)
            begin_us = at_us + launch_us
            events, left_out = _kernel_events(kernel, begin_us, clock_mhz, kinds, budget)
            omitted += left_out
            host = [_span(DEVICE_PID, 1, f"launch {kernel.name}", at_us, launch_us, {})]
            for event in (*host, *events):
                for line in (*_names(event, named, kinds), event):
                    out.write(",\n" + json.dumps(line))
            at_us += kernel.time_us
        out.write(f'\n], "otherData": {json.dumps({"omitted_spans": omitted, "clock_mhz": clock_mhz})}}}\n')
    return omitted


def _kernel_events(
    kernel: KernelResult, begin_us: float, mhz: float, kinds: Mapping[str, str], budget: int
) -> tuple[Iterator[Event], int]:
    chosen: list[tuple[PhaseTimeline, CoreTimeline, int]] = []
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
                chosen.append((phase, core, taken))
                left += taken
            first_of_kind.add(kind)

    def events() -> Iterator[Event]:
        entry = kernel.timeline.entry_cycles
        arguments = {
            "cycles": kernel.cycles,
            "entry_cycles": entry,
            "bound_by": kernel.bound_by,
            **kernel.bytes,
        }
        yield _span(DEVICE_PID, 2, kernel.name, begin_us, kernel.cycles / mhz, arguments)
        for phase, core, taken in chosen:
            # The entry is before the first phase, and each core has its own.
            if entry and phase is kernel.timeline.phases[0]:
                yield _span(
                    _pid(core.cores[0]), _PHASE_TID, "entry", begin_us, entry / mhz, {"cycles": entry}
                )
            yield from _core_events(kernel, phase, core, taken, begin_us, mhz, kinds)

    return events(), total - left


def _core_events(
    kernel: KernelResult,
    phase: PhaseTimeline,
    core: CoreTimeline,
    taken: int,
    begin_us: float,
    mhz: float,
    kinds: Mapping[str, str],
) -> Iterator[Event]:
    own = core.cores[0]
    pid = _pid(own)
    arguments: dict[str, Any] = {"stands_for": _core_names(core.cores, kinds), "kernel": kernel.name}
    if taken < len(core.program):
        arguments["first_spans_only"] = taken
    label = f"{kernel.name}: {phase.name}"
    duration_us = (phase.end - phase.begin) / mhz
    yield _span(pid, _PHASE_TID, label, begin_us + phase.begin / mhz, duration_us, arguments)
    # The instruction before on each pipe, which a waiting one had to let go first.
    before: dict[str, int] = {}
    for index in range(taken):
        instruction = core.program.instructions[index]
        pipe, start, end = core.program.pipes[index], core.start[index], core.end[index]
        details = {
            "index": index,
            "shape": str(instruction.shape),
            "start_cycle": start,
            "cycles": end - start,
            "issued_cycle": core.issue[index],
            "visible_cycle": core.done[index],
            **_wait(core, phase, index, before.get(pipe)),
        }
        before[pipe] = index
        tid = PIPES.index(bare(pipe)) + 1
        name = type(instruction).__name__
        yield _span(
            _pid(own.beside(core_of(pipe))), tid, name, begin_us + start / mhz, (end - start) / mhz, details
        )


def _wait(core: CoreTimeline, phase: PhaseTimeline, index: int, last: int | None) -> dict[str, Any]:
    """Say how long an instruction waited once it was issued and its pipe free, and for which one."""
    # An instruction that is not issued or whose pipe is busy waits for no other; both are seen in the trace.
    ready = max(core.issue[index], phase.begin if last is None else core.end[last])
    if core.start[index] <= ready:
        return {}
    cause, _ = released_by(core, index, last)
    on = core.program.instructions[cause]
    waited = core.start[index] - ready
    return {
        "waited_cycles": waited,
        "waited_for": f"{type(on).__name__} {cause} on {core.program.pipes[cause]}",
    }


def _span(pid: int, tid: int, name: str, ts: float, dur: float, args: dict[str, Any]) -> Event:
    return {
        "ph": "X",
        "pid": pid,
        "tid": tid,
        "name": name,
        # Picoseconds: floats with all their digits would double the size of the file.
        "ts": round(ts, 6),
        "dur": round(dur, 6),
        "args": args,
    }


def _name(kind: str, pid: int, tid: int, name: str) -> Event:
    return {"ph": "M", "pid": pid, "tid": tid, "name": kind, "args": {"name": name}}


def _names(event: Event, named: set[tuple[int, int]], kinds: Mapping[str, str]) -> Iterator[Event]:
    """Yield what names the event's process and thread, the first time they occur."""
    pid, tid = event["pid"], event["tid"]
    if pid != DEVICE_PID and (pid, -1) not in named:
        named.add((pid, -1))
        kind = "cube" if pid < _FIRST_CORE_PID["vector"] else "vector"
        yield _name("process_name", pid, 0, f"{kinds[kind]} {pid - _FIRST_CORE_PID[kind]}")
    if (pid, tid) not in named:
        named.add((pid, tid))
        if pid == DEVICE_PID:
            label = {1: "launch", 2: "kernel"}[tid]
        else:
            label = "phase" if tid == _PHASE_TID else PIPES[tid - 1]
        yield _name("thread_name", pid, tid, label)
        yield {"ph": "M", "pid": pid, "tid": tid, "name": "thread_sort_index", "args": {"sort_index": tid}}


def _pid(core: Core) -> int:
    return _FIRST_CORE_PID[core.kind] + core.index


def _core_names(cores: tuple[Core, ...], kinds: Mapping[str, str]) -> str:
    """Name cores briefly: "cube core 0-3, 6"."""
    indices = sorted(core.index for core in cores)
    ranges: list[list[int]] = []
    for index in indices:
        if ranges and index == ranges[-1][1] + 1:
            ranges[-1][1] = index
        else:
            ranges.append([index, index])
    text = ", ".join(f"{low}-{high}" if high > low else f"{low}" for low, high in ranges)
    return f"{kinds[cores[0].kind]} {text}"
