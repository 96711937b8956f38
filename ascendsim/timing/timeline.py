"""Spans of a timed kernel, and pure functions on them.

What a pipe does is told from the spans alone. Between two instructions a pipe is idle until the next one is
issued; from then on it waits for whatever let it start in the end. So for every pipe of every core busy,
waiting and idle add up to the cycles of the kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ascendsim.program.instruction import PIPES
from ascendsim.program.kernel import Core
from ascendsim.program.program import Program


@dataclass(frozen=True, slots=True)
class CoreTimeline:
    """Spans of one core in one phase; `cores` are all cores it stands for (more than one when folded).

    All of these are indexed like `program.instructions`, in absolute cycles of the kernel:
    `issue` when the scalar unit handed it to its pipe, `start` when the pipe took it up, `end` when the pipe
    was free again, `done` when its result was visible.
    """

    cores: tuple[Core, ...]
    program: Program
    issue: Sequence[int]
    start: Sequence[int]
    end: Sequence[int]
    done: Sequence[int]


@dataclass(frozen=True, slots=True)
class PhaseTimeline:
    """One phase: from `begin` (all cores start) to `end` (the last result is visible), in cycles."""

    name: str
    begin: int
    end: int
    cores: tuple[CoreTimeline, ...]


@dataclass(frozen=True, slots=True)
class Timeline:
    """A timed kernel; the first phase begins when the scalar units are through with the kernel's entry.

    `bytes` are the bytes moved by source: "l2_read" and "l2_write" are all traffic of the cores with L2,
    "memory" is what crosses the link to main memory, "memory_read" of it inwards and "memory_write" outwards.
    """

    kernel: str
    cycles: int
    phases: tuple[PhaseTimeline, ...]
    bytes: Mapping[str, int]

    @property
    def entry_cycles(self) -> int:
        """Cycles of every core's scalar unit from the entry of the kernel to its first instruction."""
        return self.phases[0].begin if self.phases else 0


@dataclass(frozen=True, slots=True)
class Occupation:
    """The cycles of one pipe of one core by what they went into.

    busy     an instruction held the pipe; for S, it was issuing, or preparing at the entry of the kernel
    waiting  cause -> cycles in which an instruction had been issued and waited: for a result or a free slot
             of that pipe (its own name: until it had drained); for S, for room in that pipe's queue
    idle     nothing was issued to it
    """

    busy: int
    waiting: Mapping[str, int]
    idle: int


def occupation(timeline: Timeline, core: Core) -> dict[str, Occupation]:
    """Return where the cycles of the kernel went, for each pipe that the core used."""
    busy: dict[str, int] = {}
    waiting: dict[str, dict[str, int]] = {}
    for phase in timeline.phases:
        for work in phase.cores:
            # A folded core has the spans of the one that ran for it.
            if core in work.cores:
                # Once for the kernel, not for each phase: the entry comes before the first.
                busy.setdefault("S", timeline.entry_cycles)
                for pipe, cycles in busy_cycles(work, phase.begin).items():
                    busy[pipe] = busy.get(pipe, 0) + cycles
                for pipe, cause, cycles in _waits(work, phase.begin):
                    causes = waiting.setdefault(pipe, {})
                    causes[cause] = causes.get(cause, 0) + cycles
    return {
        pipe: Occupation(
            busy[pipe],
            waiting.get(pipe, {}),
            timeline.cycles - busy[pipe] - sum(waiting.get(pipe, {}).values()),
        )
        for pipe in PIPES
        if pipe in busy
    }


def busy_cycles(work: CoreTimeline, begin: int) -> dict[str, int]:
    """Return the busy cycles of each pipe that a core used in a phase that began at cycle `begin`."""
    busy = {"S": len(work.issue) * issue_cycles(work, begin)}
    for instruction, start, end in zip(work.program.instructions, work.start, work.end, strict=True):
        # From start to end, though bytes may be slow to come: who holds a pipe keeps others from it.
        pipe = instruction.pipe
        busy[pipe] = busy.get(pipe, 0) + end - start
    return busy


def issue_cycles(work: CoreTimeline, begin: int) -> int:
    """Return what the scalar unit took per instruction: nothing delays the first one."""
    # Read off the spans, so that who looks at a timeline needs no profile.
    return work.issue[0] - begin if work.issue else 0


def _waits(work: CoreTimeline, begin: int) -> Iterator[tuple[str, str, int]]:
    """Yield (pipe, cause, cycles) of every wait of a core in a phase."""
    each, issued = issue_cycles(work, begin), begin
    before: dict[str, int] = {}
    for index, instruction in enumerate(work.program.instructions):
        pipe = instruction.pipe
        # Only a full queue makes the scalar unit wait, and the queue is that of the instruction's pipe.
        if work.issue[index] > issued + each:
            yield "S", pipe, work.issue[index] - issued - each
        issued = work.issue[index]
        last = before.get(pipe)
        ready = max(issued, begin if last is None else work.end[last])
        if work.start[index] > ready:
            cause, _ = released_by(work, index, last)
            yield pipe, work.program.instructions[cause].pipe, work.start[index] - ready
        before[pipe] = index


def released_by(work: CoreTimeline, index: int, last: int | None) -> tuple[int, int]:
    """Return the instruction that an instruction waited for longest, and when that one was over.

    `last` is the one before on its pipe. Only for an instruction that waited after it had been issued and its
    pipe was free.
    """
    program = work.program
    # Flags take equally long, so the wait that was over last is the one that let it start.
    times = [(work.done[other], other) for other in program.after_done[index]]
    times += [(work.end[other], other) for other in program.after_end[index]]
    if program.instructions[index].drains and last is not None and work.done[last] == work.start[index]:
        return last, work.done[last]
    time, other = max(times)
    return other, time


def average_busy(timeline: Timeline) -> dict[str, float]:
    """Return the busy cycles of each pipe, averaged over the used cores of the kinds that have the pipe."""
    totals: dict[str, int] = {}
    kinds: dict[str, set[str]] = {}
    used: set[Core] = set()
    for phase in timeline.phases:
        for work in phase.cores:
            used.update(work.cores)
            for pipe, cycles in busy_cycles(work, phase.begin).items():
                totals[pipe] = totals.get(pipe, 0) + cycles * len(work.cores)
                kinds.setdefault(pipe, set()).add(work.cores[0].kind)
    # Over the cores that have the pipe at all: profilers list cube and vector cores apart.
    busy = {
        pipe: totals[pipe] / sum(core.kind in kinds[pipe] for core in used)
        for pipe in PIPES
        if pipe in totals
    }
    return busy | {"S": busy["S"] + timeline.entry_cycles} if busy else busy


def bound_by(busy: Mapping[str, float]) -> str:
    """Return the busiest pipe apart from S ("S" if there is no other)."""
    # S issues for all the others and is busy whatever binds; of equals the first in the order of PIPES.
    return max((pipe for pipe in PIPES if pipe != "S" and pipe in busy), key=lambda p: busy[p], default="S")
