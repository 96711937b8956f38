"""The critical path of a kernel: the chain of causes from its last cycle back to its first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ascendsim.program.kernel import Core
from ascendsim.program.places import bare, core_of
from ascendsim.timing.timeline import CoreTimeline, PhaseTimeline, Timeline, issue_cycles, released_by


class PathStep(NamedTuple):
    """One step of the critical path; the end of one is the begin of the next.

    `cause` is a pipe (the instruction with the number `instruction` held it; S: was being issued), "latency"
    (until its result was visible), "flag" (until another pipe had woken it up), "barrier" (between phases, no
    core) or "entry" (until the scalar units are ready for the first instruction, no core). `pipe` is that of
    the instruction, whatever the cause; "" without one.
    """

    cause: str
    begin: int
    end: int
    phase: str
    core: Core | None = None
    instruction: int = -1
    pipe: str = ""


class _Event(NamedTuple):
    """A point in the life of an instruction."""

    what: str
    instruction: int


def critical_path(timeline: Timeline) -> list[PathStep]:
    """Return the steps that led to the kernel's last cycle, in order; their lengths add up to its cycles.

    Where two causes ended in the same cycle, the pipe comes before the issue and both before another pipe.
    """
    steps: list[PathStep] = []
    begin_of_next = timeline.cycles
    for phase in reversed(timeline.phases):
        if phase.end < begin_of_next:
            steps.append(PathStep("barrier", phase.end, begin_of_next, phase.name))
        # A phase ends with its slowest core; all others could be slower without anybody noticing.
        work = max(phase.cores, key=lambda core: max(core.done, default=-1), default=None)
        if work is not None and work.done:
            steps.extend(_steps_of(phase, work))
        begin_of_next = phase.begin
    if timeline.entry_cycles:
        steps.append(PathStep("entry", 0, timeline.entry_cycles, timeline.phases[0].name))
    return steps[::-1]


def cycles_by_cause(path: list[PathStep]) -> dict[str, int]:
    """Return the cycles of a critical path by cause, the largest first."""
    totals: dict[str, int] = {}
    for step in path:
        totals[step.cause] = totals.get(step.cause, 0) + step.end - step.begin
    return dict(sorted(totals.items(), key=lambda item: -item[1]))


def cycles_by_pipe(path: list[PathStep]) -> dict[str, int]:
    """Return the cycles of a critical path by cause and pipe, in the order of the path.

    By words: "MTE2 busy", "latency of MTE2", "flag to M", "issue by S", "barrier", "entry".
    """
    totals: dict[str, int] = {}
    for step in path:
        said = {"latency": f"latency of {step.pipe}", "flag": f"flag to {step.pipe}", "S": "issue by S"}
        name = said.get(step.cause, f"{step.cause} busy") if step.pipe else step.cause
        totals[name] = totals.get(name, 0) + step.end - step.begin
    return totals


def _steps_of(phase: PhaseTimeline, work: CoreTimeline) -> list[PathStep]:
    """Return the steps of the program that finished last, the last one first."""
    # Backwards: each event has one cause that was over last, while one cause may have many effects.
    times = {"issue": work.issue, "start": work.start, "end": work.end, "done": work.done}
    pipes = work.program.pipes
    previous = _previous(pipes)
    issued = _previous([str(core_of(pipe)) for pipe in pipes]) if len(work.program.sizes) > 1 else None
    event: _Event | None = _Event("done", max(range(len(work.done)), key=work.done.__getitem__))
    steps: list[PathStep] = []
    while event is not None:
        time = times[event.what][event.instruction]
        cause, before = _why(event, work, phase.begin, previous, issued)
        since = phase.begin if before is None else times[before.what][before.instruction]
        # Two events of one cycle make no step, but the chain goes through both.
        if since < time:
            pipe = pipes[event.instruction]
            core = work.cores[0].beside(core_of(pipe))
            steps.append(PathStep(cause, since, time, phase.name, core, event.instruction, bare(pipe)))
        event = before
    return steps


def _why(
    event: _Event, work: CoreTimeline, begin: int, previous: list[int | None], issued: list[int | None] | None
) -> tuple[str, _Event | None]:
    """Return the event that decided when this one happened, and what passed in between.

    `previous` is the instruction before each one on its pipe, `issued` that before it on its core (None: the
    one before in the program, as there is one core).
    """
    index = event.instruction
    last = previous[index]
    match event.what:
        case "done":
            return "latency", _Event("end", index)
        case "end":
            return bare(work.program.pipes[index]), _begun(index, work)
        # The order of these cases is the rule for ties: pipe, issue, flag.
        case "start" if last is not None and work.end[last] == work.start[index]:
            return "", _Event("end", last)
        case "start" if work.issue[index] == work.start[index]:
            return "", _Event("issue", index)
        case "start":
            other, time = released_by(work, index, last)
            return "flag", _Event("end" if work.end[other] == time else "done", other)
    # It was issued: as soon as the scalar unit could, or when its queue had room.
    before = issued[index] if issued is not None else index - 1 if index else None
    since = begin if before is None else work.issue[before]
    if work.issue[index] == since + issue_cycles(work, begin):
        return "S", None if before is None else _Event("issue", before)
    # The depth of the queue is not in the spans; whoever made room was taken up in this very cycle.
    while last is not None and work.start[last] != work.issue[index]:
        last = previous[last]
    assert last is not None, "a late issue has a cause"
    return "", _Event("start", last)


def _begun(index: int, work: CoreTimeline) -> _Event:
    """Return when an instruction had all that it takes: its start, or the last result that it trails."""
    trailed = work.program.trailed(index)
    last = max(trailed, key=lambda other: work.done[other], default=index)
    return _Event("done", last) if trailed and work.done[last] > work.start[index] else _Event("start", index)


def _previous(pipes: Sequence[str]) -> list[int | None]:
    """Return the instruction before each one on its pipe."""
    newest: dict[str, int] = {}
    result: list[int | None] = []
    for index, pipe in enumerate(pipes):
        result.append(newest.get(pipe))
        newest[pipe] = index
    return result
