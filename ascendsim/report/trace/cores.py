"""The events of one core in one phase: its instructions, their waits, what they hand on, full buffers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any, NamedTuple

from ascendsim.ops.results import KernelResult
from ascendsim.program.kernel import Core
from ascendsim.program.places import bare, core_of
from ascendsim.report.trace.events import (
    PHASE_TID,
    Clock,
    Event,
    Row,
    arrow,
    core_pid,
    counter,
    inside,
    pipe_row,
    span,
)
from ascendsim.report.trace.traffic import Bytes
from ascendsim.report.words import core_name
from ascendsim.timing.timeline import (
    CoreTimeline,
    PhaseTimeline,
    deliveries,
    issue_cycles,
    levels,
    released_by,
)


class Drawn(NamedTuple):
    """A core of a phase of a kernel, of which the first `taken` instructions are drawn."""

    kernel: KernelResult
    phase: PhaseTimeline
    core: CoreTimeline
    taken: int

    def row(self, index: int) -> Row:
        """Return the line that an instruction is on."""
        pipe = self.core.program.pipes[index]
        return pipe_row(self.core.cores[0].beside(core_of(pipe)), bare(pipe))

    def said(self, index: int) -> str:
        """Name an instruction, its number and its pipe."""
        program = self.core.program
        return f"{type(program.instructions[index]).__name__} {index} on {program.pipes[index]}"


class Context(NamedTuple):
    """What the events of all cores share: time, names of kinds of cores, bytes, numbers of arrows."""

    clock: Clock
    kinds: Mapping[str, str]
    moved: Bytes
    numbers: count[int]


def core_events(drawn: Drawn, context: Context) -> Iterator[Event]:
    """Yield all events of a core in a phase."""
    own, phase = drawn.core.cores[0], drawn.phase
    row = Row(core_pid(own), PHASE_TID)
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


def _instructions(drawn: Drawn, context: Context) -> Iterator[Event]:
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


def _moved(drawn: Drawn, index: int, moved: Bytes) -> dict[str, Any]:
    """Say what an instruction moves over the shared links."""
    instruction = drawn.core.program.instructions[index]
    traffic = moved.of(instruction)
    if traffic is None:
        return {}
    # Instructions of one cost may be on two tensors, of which their slices tell.
    tensor = instruction.gm.tensor if instruction.gm is not None else traffic.tensor
    return {"bytes": traffic.bytes, "direction": traffic.kind, "tensor": tensor.name}


def _full_queues(drawn: Drawn, clock: Clock) -> Iterator[Event]:
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


def _arrows(drawn: Drawn, context: Context) -> Iterator[Event]:
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
    """Return what a product calls its cores of each kind."""
    return {kind: core_name(core_structure, kind) for kind in ("cube", "vector")}
