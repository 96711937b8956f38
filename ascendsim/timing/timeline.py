"""Spans of a timed kernel, and pure functions on them.

What a pipe does is told from the spans alone. Between two instructions a pipe is idle until the next one is
issued; from then on it waits for whatever let it start in the end. So for every pipe of every core busy,
waiting and idle add up to the cycles of the kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ascendsim.program.kernel import Core
from ascendsim.program.posts import bare, core_of, pipe_on, seen_from
from ascendsim.program.program import Program
from ascendsim.timing.times import CoreTimes, KernelTimes, PhaseTimes


@dataclass(frozen=True, slots=True)
class CoreTimeline:
    """Spans of one program in one phase; `cores` are all cores it stands for (more than one when folded).

    The program of a cube core may cover the vector cores beside it; `program.pipes` tells them apart.

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


def work_of(phase: PhaseTimeline, core: Core) -> tuple[CoreTimeline | None, int]:
    """Return the work that covers a core, and the number of the core in its program; None: it has none."""
    for work in phase.cores:
        for number in range(len(work.program.sizes)):
            if core in [one.beside(number) for one in work.cores]:
                return work, number
    return None, 0


def times_of(timeline: Timeline) -> KernelTimes:
    """Return where the cycles of a kernel went, told from its spans."""
    phases = []
    for phase in timeline.phases:
        cores = []
        for work in phase.cores:
            cores += _times_of(work, phase.begin)
        phases.append(PhaseTimes(phase.name, phase.begin, phase.end, tuple(cores)))
    return KernelTimes(timeline.kernel, timeline.cycles, tuple(phases), timeline.bytes)


def _times_of(work: CoreTimeline, begin: int) -> list[CoreTimes]:
    """Return the times of each core of a program, in a phase that began at cycle `begin`."""
    program, each = work.program, issue_cycles(work, begin)
    busy: list[dict[str, int]] = [{"S": size * each} for size in program.sizes]
    waiting: list[dict[str, dict[str, int]]] = [{} for _ in busy]
    done = [begin] * len(busy)
    for index, name in enumerate(program.pipes):
        core, pipe = core_of(name), bare(name)
        # From start to end, though bytes may be slow to come: who holds a pipe keeps others from it.
        busy[core][pipe] = busy[core].get(pipe, 0) + work.end[index] - work.start[index]
        done[core] = max(done[core], work.done[index])
    for name, cause, cycles in _waits(work, begin):
        core = core_of(name)
        causes = waiting[core].setdefault(bare(name), {})
        by = seen_from(core, cause)
        causes[by] = causes.get(by, 0) + cycles
    return [
        CoreTimes(tuple([one.beside(number) for one in work.cores]), *found)
        for number, found in enumerate(zip(busy, waiting, done, strict=True))
    ]


def issue_cycles(work: CoreTimeline, begin: int) -> int:
    """Return what a scalar unit took per instruction: nothing delays the first one."""
    # Read off the spans, so that who looks at a timeline needs no profile.
    return work.issue[0] - begin if work.issue else 0


def _waits(work: CoreTimeline, begin: int) -> Iterator[tuple[str, str, int]]:
    """Yield (pipe, cause, cycles) of every wait of the cores of a program in a phase."""
    each, issued = issue_cycles(work, begin), [begin] * len(work.program.sizes)
    before: dict[str, int] = {}
    pipes = work.program.pipes
    for index, pipe in enumerate(pipes):
        core = core_of(pipe)
        # Only a full queue makes the scalar unit wait, and the queue is that of the instruction's pipe.
        if work.issue[index] > issued[core] + each:
            yield pipe_on(core, "S"), pipe, work.issue[index] - issued[core] - each
        issued[core] = work.issue[index]
        last = before.get(pipe)
        ready = max(issued[core], begin if last is None else work.end[last])
        if work.start[index] > ready:
            cause, _ = released_by(work, index, last)
            yield pipe, pipes[cause], work.start[index] - ready
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
