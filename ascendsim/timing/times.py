"""Where the cycles of a kernel went: plain records, which both engines make."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import NamedTuple

from ascendsim.program.instruction import PIPES
from ascendsim.program.kernel import Core


class CoreTimes(NamedTuple):
    """One core in one phase; `cores` are all cores it stands for (more than one when folded).

    busy     pipe -> cycles in which an instruction held it; for S, in which it was issuing
    waiting  pipe -> cause -> cycles in which an instruction had been issued and waited for a result or a free
             slot of another pipe (its own name: until it had drained); for S, for room in that pipe's queue
    done     the cycle in which its last result was visible
    """

    cores: tuple[Core, ...]
    busy: Mapping[str, int]
    waiting: Mapping[str, Mapping[str, int]]
    done: int


class PhaseTimes(NamedTuple):
    """One phase: from `begin` (all cores start) to `end` (the last result is visible), in cycles."""

    name: str
    begin: int
    end: int
    cores: tuple[CoreTimes, ...]


class PhaseAlone(NamedTuple):
    """A phase as it runs in any kernel that misses nothing in L2: its times, and the bytes that it moves."""

    times: PhaseTimes
    bytes: Mapping[str, int]

    def begun(self, at: int) -> PhaseTimes:
        """Return its times if it begins in another cycle."""
        by = at - self.times.begin
        cores = [core._replace(done=core.done + by) for core in self.times.cores]
        return PhaseTimes(self.times.name, at, self.times.end + by, tuple(cores))


class KernelTimes(NamedTuple):
    """The cycles of a kernel; the first phase begins when the scalar units are through with its entry.

    `bytes` are the bytes moved by source: "l2_read" and "l2_write" are all traffic of the cores with L2,
    "memory" is what crosses the link to main memory, "memory_read" of it inwards and "memory_write" outwards.
    """

    kernel: str
    cycles: int
    phases: tuple[PhaseTimes, ...]
    bytes: Mapping[str, int]

    @property
    def entry_cycles(self) -> int:
        """Cycles of every core's scalar unit from the entry of the kernel to its first instruction."""
        return self.phases[0].begin if self.phases else 0

    @property
    def cores(self) -> set[Core]:
        """The cores that have work in at least one phase."""
        return set().union(*[work.cores for phase in self.phases for work in phase.cores])


class Occupation(NamedTuple):
    """The cycles of one pipe of one core by what they went into.

    busy     an instruction held the pipe; for S, it was issuing, or preparing at the entry of the kernel
    waiting  cause -> cycles in which an instruction had been issued and waited
    idle     nothing was issued to it
    """

    busy: int
    waiting: Mapping[str, int]
    idle: int


def occupation(times: KernelTimes, core: Core) -> dict[str, Occupation]:
    """Return where the cycles of the kernel went, for each pipe that the core used."""
    busy: dict[str, int] = {}
    waiting: dict[str, dict[str, int]] = {}
    for phase in times.phases:
        for work in phase.cores:
            # A folded core has the times of the one that ran for it.
            if core in work.cores:
                # Once for the kernel, not for each phase: the entry comes before the first.
                busy.setdefault("S", times.entry_cycles)
                for pipe, cycles in work.busy.items():
                    busy[pipe] = busy.get(pipe, 0) + cycles
                for pipe, causes in work.waiting.items():
                    for cause, cycles in causes.items():
                        own = waiting.setdefault(pipe, {})
                        own[cause] = own.get(cause, 0) + cycles
    return {
        pipe: Occupation(
            busy[pipe],
            waiting.get(pipe, {}),
            times.cycles - busy[pipe] - sum(waiting.get(pipe, {}).values()),
        )
        for pipe in PIPES
        if pipe in busy
    }


def average_busy(times: KernelTimes, used: Collection[Core] | None = None) -> dict[str, float]:
    """Return the busy cycles of each pipe, averaged over the used cores of a kind that has the pipe.

    Where cube and vector cores both have it, those count that are busier with it, as profilers list both
    apart: vector cores that only add up what is left at the end would hide what binds the cubes. `used` are
    all cores, where they are known (`KernelTimes.cores`).
    """
    # A dict, as a Counter asks a method of its own for every sum that begins.
    totals: dict[tuple[str, str], int] = {}
    for phase in times.phases:
        for work in phase.cores:
            kind, count = work.cores[0].kind, len(work.cores)
            for pipe, cycles in work.busy.items():
                totals[pipe, kind] = totals.get((pipe, kind), 0) + cycles * count
    cores = Counter([core.kind for core in (times.cores if used is None else used)])
    busy: dict[str, float] = {}
    for pipe in PIPES:
        if means := [totals[pipe, kind] / cores[kind] for kind in cores if (pipe, kind) in totals]:
            busy[pipe] = max(means)
    return busy | {"S": busy["S"] + times.entry_cycles} if busy else busy


def bound_by(busy: Mapping[str, float]) -> str:
    """Return the busiest pipe apart from S ("S" if there is no other)."""
    # S issues for all the others and is busy whatever binds; of equals the first in the order of PIPES.
    return max((pipe for pipe in PIPES if pipe != "S" and pipe in busy), key=lambda p: busy[p], default="S")


def stopped_words(kernel: str, stop_above: int) -> str:
    """Return what is said where a kernel, or a call with it, passes the cycles that are of interest."""
    return (
        f"kernel {kernel}: with it the cycles pass {stop_above:,}, the bound (stop_above); leave it out to "
        "have all of them timed"
    )
