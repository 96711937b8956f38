"""Write the spans of a call as a Chrome trace, which Perfetto and chrome://tracing open.

One process per core, one thread per pipe in the order in which data flow through them, plus a process for the
host's view (launches, kernels, what crosses L2 and main memory). `docs/traces.md` shows how to read one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ascendsim.files import replacing
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.ops.results import KernelResult
from ascendsim.program.instruction import PIPES, Instruction, Traffic
from ascendsim.program.kernel import Core
from ascendsim.program.places import bare, core_of
from ascendsim.report.words import core_name
from ascendsim.timing.timeline import (
    CoreTimeline,
    PhaseTimeline,
    deliveries,
    issue_cycles,
    levels,
    released_by,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.profile import Profile
    from ascendsim.timing.timeline import Timeline


Event = dict[str, Any]

DEVICE_PID = 1
LAUNCH_TID, KERNEL_TID = 1, 2
# Far apart, so that the number of a process shows the kind and the index of its core.
_FIRST_CORE_PID = {"cube": 1_000, "vector": 2_000}
PHASE_TID = 0
# From memory to the cube and back, as data flow; S, which moves none, below all others.
ROWS = ("MTE2", "MTE1", "M", "FIX", "V", "MTE3", "S")
assert sorted(ROWS) == sorted(PIPES)
# An arrow begins and ends half a cycle inside of its spans, where no rounding puts it beside them.
_INSIDE = 0.5


class TraceClock(NamedTuple):
    """From the cycles of a kernel to the time stamps of the trace."""

    begin_us: float
    mhz: float

    def us(self, cycle: float) -> float:
        """Return when a cycle of the kernel is."""
        # Picoseconds: floats with all their digits would double the size of the file.
        return round(self.begin_us + cycle / self.mhz, 6)


class TraceRow(NamedTuple):
    """A line of the trace: the thread of a process."""

    pid: int
    tid: int


def core_pid(core: Core) -> int:
    """Return the number of a core's process."""
    return _FIRST_CORE_PID[core.kind] + core.index


def pipe_row(core: Core, pipe: str) -> TraceRow:
    """Return the line of one pipe of a core."""
    return TraceRow(core_pid(core), ROWS.index(pipe) + 1)


def span(
    row: TraceRow, category: str, name: str, clock: TraceClock, cycles: tuple[float, float], args: Event
) -> Event:
    """Return a span from one cycle to another."""
    begin, end = (clock.us(cycle) for cycle in cycles)
    # The difference of what is written, so that a span never reaches into the next one on its line.
    times = {"ts": begin, "dur": round(end - begin, 6)}
    return {"ph": "X", "cat": category, "pid": row.pid, "tid": row.tid, "name": name, **times, "args": args}


def arrow(
    number: int, name: str, clock: TraceClock, begin: tuple[TraceRow, int], end: tuple[TraceRow, float]
) -> list[Event]:
    """Return a flow that leaves a span which is over in cycle `begin`, and arrives in cycle `end`."""
    (out, left), (into, arrived) = begin, end
    about = {"cat": "data", "id": number, "name": name}
    return [
        {"ph": "s", **about, "pid": out.pid, "tid": out.tid, "ts": clock.us(left - _INSIDE)},
        # "e": to the span about it, not to the next one that begins.
        {"ph": "f", "bp": "e", **about, "pid": into.pid, "tid": into.tid, "ts": clock.us(arrived)},
    ]


def inside(start: int, end: int, after: int) -> float | None:
    """Return a cycle of a span in which an arrow may arrive from one that was over in cycle `after`.

    None if the span is over before that.
    """
    # Who takes a tile piece by piece begins before it is whole, and has all of it at its end.
    return next((at for at in (start + _INSIDE, end - _INSIDE) if at >= after - _INSIDE), None)


def counter(pid: int, name: str, ts: float, values: Mapping[str, float]) -> Event:
    """Return the values of a counter from a time stamp on."""
    return {"ph": "C", "cat": "counter", "pid": pid, "tid": 0, "name": name, "ts": ts, "args": dict(values)}


def names(event: Event, named: set[tuple[int, int]], kinds: Mapping[str, str]) -> Iterator[Event]:
    """Yield events that name an event's process and thread, the first time they occur.

    kinds   what the product calls a core of each kind
    """
    pid, tid = event["pid"], event["tid"]
    if pid != DEVICE_PID and (pid, -1) not in named:
        named.add((pid, -1))
        kind = "cube" if pid < _FIRST_CORE_PID["vector"] else "vector"
        yield name("process_name", pid, 0, {"name": f"{kinds[kind]} {pid - _FIRST_CORE_PID[kind]}"})
        yield name("process_sort_index", pid, 0, {"sort_index": pid})
    # A counter belongs to a process, not to one of its threads.
    if event["ph"] != "C" and (pid, tid) not in named:
        named.add((pid, tid))
        if pid == DEVICE_PID:
            label = {LAUNCH_TID: "launch", KERNEL_TID: "kernel"}[tid]
        else:
            label = "phase" if tid == PHASE_TID else ROWS[tid - 1]
        yield name("thread_name", pid, tid, {"name": label})
        yield name("thread_sort_index", pid, tid, {"sort_index": tid})


def name(kind: str, pid: int, tid: int, args: Event) -> Event:
    """Return the event that gives a viewer the name or the place of a process or thread."""
    return {"ph": "M", "pid": pid, "tid": tid, "name": kind, "args": args}


# Of each kernel; a span of a thousand cycles is an eye's width of it.
BINS = 200
L2_NAME, MEMORY_NAME = "L2 GB/s", "main memory GB/s, mean of the kernel"


class Bytes:
    """Traffic of instructions on a product; each instruction is asked once for its cost."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._known: dict[tuple[object, ...], Traffic | None] = {}

    def of(self, instruction: Instruction) -> Traffic | None:
        """Return the traffic of an instruction; None: it moves no byte over a shared link."""
        key = type(instruction), instruction.pipe, instruction.shape
        if key not in self._known:
            traffic = instruction.cost(self._profile).traffic
            self._known[key] = traffic if traffic and traffic.bytes else None
        return self._known[key]


def counters(kernel: KernelResult, clock: TraceClock, moved: Bytes) -> Iterator[Event]:
    """Yield the rates of L2 over time, and of main memory on average, of all cores."""
    timeline = kernel.timeline
    if timeline.cycles <= timeline.entry_cycles:
        return
    edges, rates = l2_rates(timeline, moved)
    shown: dict[str, float] = {}
    for at, cycle in enumerate(edges[:-1]):
        values = {way: _gb_per_s(rate[at], clock) for way, rate in rates.items()}
        # A value holds until the next one.
        if values != shown:
            yield counter(DEVICE_PID, L2_NAME, clock.us(cycle), values)
        shown = values
    yield counter(DEVICE_PID, L2_NAME, clock.us(timeline.cycles), {"read": 0, "write": 0})
    # L2 misses are known for the whole kernel only, so their course is not drawn.
    cycles = timeline.cycles - timeline.entry_cycles
    means = {
        way: _gb_per_s(kernel.bytes.get(f"memory_{way}", 0) / cycles, clock) for way in ("read", "write")
    }
    yield counter(DEVICE_PID, MEMORY_NAME, clock.us(timeline.entry_cycles), means)
    yield counter(DEVICE_PID, MEMORY_NAME, clock.us(timeline.cycles), {"read": 0, "write": 0})


def _gb_per_s(bytes_per_cycle: float, clock: TraceClock) -> float:
    # A byte in each of a million cycles a second is a megabyte a second.
    return round(float(bytes_per_cycle) * clock.mhz / 1e3, 3)


def l2_rates(timeline: Timeline, moved: Bytes) -> tuple[NDArray[np.float64], dict[str, NDArray[np.float64]]]:
    """Return the edges of equal parts of the time after the entry, and in each the bytes in a cycle.

    These are by direction, "read" and "write", of all cores. The bytes of an instruction are spread evenly
    over the time that it holds its pipe.
    """
    cycles = timeline.cycles - timeline.entry_cycles
    edges = np.linspace(timeline.entry_cycles, timeline.cycles, min(BINS, cycles) + 1)
    found: dict[str, list[tuple[int, int, float]]] = {"read": [], "write": []}
    for phase in timeline.phases:
        for work in phase.cores:
            for index, instruction in enumerate(work.program.instructions):
                traffic = moved.of(instruction)
                if traffic is not None:
                    start, end = work.start[index], max(work.end[index], work.start[index] + 1)
                    found[traffic.direction].append((start, end, traffic.bytes * len(work.cores)))
    return edges, {way: _mean_rates(np.array(spans, np.float64), edges) for way, spans in found.items()}


def _mean_rates(spans: NDArray[np.float64], edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean of what flows between edges; a row is (start, end, bytes)."""
    if not len(spans):
        return np.zeros(len(edges) - 1)
    starts, ends, sizes = spans.T
    # The sum of what has flowed is a line with a corner wherever a span begins or ends.
    times = np.concatenate([starts, ends])
    slopes = np.concatenate([sizes, -sizes]) / np.tile(ends - starts, 2)
    order = np.argsort(times, kind="stable")
    times, slope = times[order], np.cumsum(slopes[order])
    sums = np.concatenate([[0.0], np.cumsum(slope[:-1] * np.diff(times))])
    # Adding up floats leaves hairs below 0.
    rates: NDArray[np.float64] = np.maximum(np.diff(np.interp(edges, times, sums)) / np.diff(edges), 0.0)
    return rates


class DrawnCore(NamedTuple):
    """A core of a phase of a kernel, and the number of its instructions that are drawn."""

    kernel: KernelResult
    phase: PhaseTimeline
    core: CoreTimeline
    taken: int

    def row(self, index: int) -> TraceRow:
        """Return the line that an instruction is on."""
        pipe = self.core.program.pipes[index]
        return pipe_row(self.core.cores[0].beside(core_of(pipe)), bare(pipe))

    def said(self, index: int) -> str:
        """Name an instruction, its number and its pipe."""
        program = self.core.program
        return f"{type(program.instructions[index]).__name__} {index} on {program.pipes[index]}"


class TraceContext(NamedTuple):
    """Values that the events of all cores share: clock, names of kinds of cores, bytes, numbers of arrows."""

    clock: TraceClock
    kinds: Mapping[str, str]
    moved: Bytes
    numbers: count[int]


def core_events(drawn: DrawnCore, context: TraceContext) -> Iterator[Event]:
    """Yield all events of a core in a phase."""
    own, phase = drawn.core.cores[0], drawn.phase
    row = TraceRow(core_pid(own), PHASE_TID)
    entry = drawn.kernel.timeline.entry_cycles
    # The entry is before the first phase, and each core has its own.
    if entry and phase is drawn.kernel.timeline.phases[0]:
        yield span(row, "entry", "entry", context.clock, (0, entry), {"cycles": entry})
    arguments: Event = {
        "stands_for": _core_names(drawn.core.cores, context.kinds),
        "kernel": drawn.kernel.name,
    }
    if drawn.taken < len(drawn.core.program):
        arguments["first_spans_only"] = drawn.taken
    label = f"{drawn.kernel.name}: {phase.name}"
    yield span(row, "phase", label, context.clock, (phase.begin, phase.end), arguments)
    yield from _instructions(drawn, context)
    yield from _full_queues(drawn, context.clock)
    yield from _arrows(drawn, context)
    for level in levels(drawn.core, drawn.taken):
        pid = core_pid(own.beside(level.core))
        # The phase in the name would make a line of each; phases of a core follow each other.
        yield counter(pid, f"{level.buffer} bytes", context.clock.us(level.cycle), {"held": level.bytes})


def _instructions(drawn: DrawnCore, context: TraceContext) -> Iterator[Event]:
    """Yield each instruction, and before it how long it waited for another one."""
    core, phase = drawn.core, drawn.phase
    # The instruction before on each pipe, which a waiting one had to let go first.
    before: dict[str, int] = {}
    for index in range(drawn.taken):
        pipe, row = core.program.pipes[index], drawn.row(index)
        start, end = core.start[index], core.end[index]
        last = before.get(pipe)
        before[pipe] = index
        # An instruction that is not issued or whose pipe is busy waits for no other; both are in the trace.
        ready = max(core.issue[index], phase.begin if last is None else core.end[last])
        wait: dict[str, Any] = {}
        if start > ready:
            cause, _ = released_by(core, index, last)
            wait = {"waited_cycles": start - ready, "waited_for": drawn.said(cause)}
            what = f"wait for {core.program.pipes[cause]}"
            about = {"cycles": start - ready, "for": drawn.said(cause), "before": drawn.said(index)}
            yield span(row, "wait", what, context.clock, (ready, start), about)
        instruction = core.program.instructions[index]
        details = {
            "index": index,
            "shape": str(instruction.shape),
            "start_cycle": start,
            "cycles": end - start,
            "issued_cycle": core.issue[index],
            "visible_cycle": core.done[index],
            **_moved(drawn, index, context.moved),
            **wait,
        }
        yield span(row, bare(pipe), type(instruction).__name__, context.clock, (start, end), details)


def _moved(drawn: DrawnCore, index: int, moved: Bytes) -> dict[str, Any]:
    """Return the arguments of an event: the bytes an instruction moves over shared links."""
    instruction = drawn.core.program.instructions[index]
    traffic = moved.of(instruction)
    if traffic is None:
        return {}
    # Instructions of one cost may be on two tensors; their slices name the tensor.
    tensor = instruction.gm.tensor if instruction.gm is not None else traffic.tensor
    return {"bytes": traffic.bytes, "direction": traffic.kind, "tensor": tensor.name}


def _full_queues(drawn: DrawnCore, clock: TraceClock) -> Iterator[Event]:
    """Yield when each scalar unit waited for room in the queue of a pipe."""
    core = drawn.core
    each, issued = issue_cycles(core, drawn.phase.begin), dict[int, int]()
    for index in range(drawn.taken):
        pipe = core.program.pipes[index]
        number = core_of(pipe)
        free = issued.get(number, drawn.phase.begin)
        # It takes its cycles for the instruction once there is room.
        if core.issue[index] > free + each:
            row = pipe_row(core.cores[0].beside(number), "S")
            about = {"cycles": core.issue[index] - free - each, "before": drawn.said(index)}
            yield span(row, "wait", f"queue of {pipe} full", clock, (free, core.issue[index] - each), about)
        issued[number] = core.issue[index]


def _arrows(drawn: DrawnCore, context: TraceContext) -> Iterator[Event]:
    """Yield the way of each tile from who makes it to who reads it."""
    core = drawn.core
    for producer, consumer, slot in deliveries(core, drawn.taken):
        over = core.end[producer]
        arrival = inside(core.start[consumer], core.end[consumer], over)
        # What takes no time is no span on its line, and an arrow needs one at both ends.
        if core.start[producer] == over or core.start[consumer] == core.end[consumer] or arrival is None:
            continue
        ends = (drawn.row(producer), over), (drawn.row(consumer), arrival)
        yield from arrow(next(context.numbers), f"{slot.buffer} {slot.name}", context.clock, *ends)


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


def kinds_of(core_structure: str) -> dict[str, str]:
    """Return the product's names of its kinds of cores."""
    return {kind: core_name(core_structure, kind) for kind in ("cube", "vector")}


@default_arithmetic
def write_trace(path: Path, kernels: Iterable[KernelResult], profile: Profile, max_spans: int) -> int:
    """Write trace.json and return how many instructions were left out for size.

    Each kernel gets an equal part of `max_spans` instructions; whole cores are left out before the end of the
    first one of a phase is. Waits, arrows and levels of buffers are those of the instructions that are drawn.
    A core that stands for equal ones is drawn once; its phase span names the others.
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
            launch_us = kernel.launch_us
            context = TraceContext(TraceClock(at_us + launch_us, clock_mhz), kinds, moved, numbers)
            chosen, left_out = _chosen(kernel, budget)
            omitted += left_out
            for event in _kernel_events(kernel, TraceClock(at_us, 1.0), launch_us, chosen, context):
                for line in (*names(event, named, kinds), event):
                    out.write(",\n" + _line(line))
            at_us += kernel.time_us
        out.write(f'\n], "otherData": {_line({"omitted_spans": omitted, "clock_mhz": clock_mhz})}}}\n')
    return omitted


def _line(event: Event) -> str:
    return json.dumps(event, separators=(",", ":"))


def _chosen(kernel: KernelResult, budget: int) -> tuple[list[DrawnCore], int]:
    """Return the cores that are drawn, and how many instructions are not."""
    chosen: list[DrawnCore] = []
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
                chosen.append(DrawnCore(kernel, phase, core, taken))
                left += taken
            first_of_kind.add(kind)
    return chosen, total - left


def _kernel_events(
    kernel: KernelResult,
    host: TraceClock,
    launch_us: float,
    chosen: Iterable[DrawnCore],
    context: TraceContext,
) -> Iterator[Event]:
    """Yield the events of one kernel; the host's clock counts microseconds from before its launch."""
    yield span(TraceRow(DEVICE_PID, LAUNCH_TID), "launch", f"launch {kernel.name}", host, (0, launch_us), {})
    arguments = {
        "cycles": kernel.cycles,
        "entry_cycles": kernel.timeline.entry_cycles,
        "bound_by": kernel.bound_by,
        **kernel.bytes,
    }
    row = TraceRow(DEVICE_PID, KERNEL_TID)
    yield span(row, "kernel", kernel.name, context.clock, (0, kernel.cycles), arguments)
    yield from counters(kernel, context.clock, context.moved)
    for drawn in chosen:
        yield from core_events(drawn, context)


__all__ = ["write_trace"]
