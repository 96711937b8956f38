"""Run a kernel for its cycles.

Time is an integer number of cycles of the cube clock. Each core obeys four rules.

1. The scalar unit issues instructions in program order, `issue_cycles` each, into the queue of their pipe.
   When the queue is full it waits until the pipe has taken up an instruction:
   issue[i] = max(issue[i-1] + issue_cycles, start[the instruction `depth` places earlier on the pipe]).
2. A pipe runs its instructions in order. One starts when it has been issued, the one before has left the
   pipe, and what it waits for on other pipes is over, plus `flag_cycles` for the wake-up:
   start[i] = max(issue[i], end[before], done[j] + flag for after_done, end[j] + flag for after_end);
   one that `drains` also waits for done[before].
3. It holds the pipe for its cycles and then while its bytes flow: end[i] = start[i] + cycles + flow.
4. Results become visible `latency_cycles` later, and in the order of the pipe:
   done[i] = max(done[before], end[i] + latency).

**Who needs a simulator?** Only the flow in rule 3 depends on other cores; everything else follows from what
came before on the same core. So SimPy sees nothing but transfers: one event when a transfer reaches its
links, one settlement per link and cycle, one event when transfers leave (`links.py`). The rest is a
recurrence. Each scalar unit and each pipe walks through it as a coroutine that stops only where a value is
missing; it leaves a note at the instruction that it waits for, and whoever finds the value out wakes it. No
event is created unless somebody has to wait. A coroutine may run ahead of simulated time. A transfer may
not, and never needs to: what decides its arrival is known, at the latest, when the last transfer before it
has ended.

Equal cores may be folded into one of that weight: its flows then count that many times on the shared links,
which is exactly what equal cores do to them.

Equal cores have equal shares at any time, so a faster figure never costs them cycles. Unequal cores that
share a link may lose by one, as on silicon: a transfer that comes earlier may come in the way of another.
"""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from simpy import Environment

from ascendsim.costing import CostBook, PricedProgram
from ascendsim.errors import ProgramError
from ascendsim.l2 import L2Account, account_of
from ascendsim.program import Core, Kernel, Phase, Traffic
from ascendsim.timeline import CoreTimeline, PhaseTimeline, Timeline
from ascendsim.transfers import Transfers

if TYPE_CHECKING:
    from ascendsim.profile import Profile

UNKNOWN = -1
Walk = Generator[None, None, None]
Work = list[tuple[tuple[Core, ...], PricedProgram]]


class CoreRun:
    """One core (or `weight` equal ones) in one phase: its coroutines and what they have found out."""

    def __init__(
        self, priced: PricedProgram, cores: tuple[Core, ...], memory: Transfers, profile: Profile
    ) -> None:
        count = len(priced.prices)
        self.priced = priced
        self.issue = [UNKNOWN] * count
        self.start = [UNKNOWN] * count
        self.end = [UNKNOWN] * count
        self.done = [UNKNOWN] * count
        self._kind = cores[0].kind
        self._weight = len(cores)
        self._memory = memory
        self._begin = int(memory.env.now)
        self._issue_cycles = profile.scalar.issue_cycles
        self._flag_cycles = profile.sync.flag_cycles
        # Who waits for an instruction to be issued, to start, to end.
        self._for_issue: dict[int, Walk] = {}
        self._for_start: dict[int, Walk] = {}
        self._for_end: dict[int, list[Walk]] = {}
        self._walks = {pipe: self._pipe(pipe) for pipe in priced.orders}
        self._scalar_walk = self._scalar()
        self._ready = [*self._walks.values(), self._scalar_walk]

    def run(self) -> None:
        """Let every coroutine go on whose missing value is known now."""
        ready = self._ready
        while ready:
            next(ready.pop(), None)

    def _scalar(self) -> Walk:
        """Issue the program (rule 1)."""
        issue, start, step = self.issue, self.start, self._issue_cycles
        waiting, ready = self._for_issue, self._ready
        time = self._begin
        for index, ahead in enumerate(self.priced.queue):
            time += step
            if ahead >= 0:
                if start[ahead] < 0:
                    self._for_start[ahead] = self._scalar_walk
                    yield
                if start[ahead] > time:
                    time = start[ahead]
            issue[index] = time
            if index in waiting:
                ready.append(waiting.pop(index))

    def _pipe(self, pipe: str) -> Walk:
        """Run the instructions of one pipe (rules 2 to 4)."""
        program, prices, flag = self.priced.program, self.priced.prices, self._flag_cycles
        issue, start, end, done = self.issue, self.start, self.end, self.done
        after_done, after_end = program.after_done, program.after_end
        for_start, for_end, ready = self._for_start, self._for_end, self._ready
        free = visible = self._begin
        for index in self.priced.orders[pipe]:
            if issue[index] < 0:
                self._for_issue[index] = self._walks[pipe]
                yield
            cycles, latency, traffic, drains = prices[index]
            time = issue[index]
            if time < free:
                time = free
            if drains and time < visible:
                time = visible
            for other in after_done[index]:
                if done[other] < 0:
                    for_end.setdefault(other, []).append(self._walks[pipe])
                    yield
                if time < done[other] + flag:
                    time = done[other] + flag
            for other in after_end[index]:
                if end[other] < 0:
                    for_end.setdefault(other, []).append(self._walks[pipe])
                    yield
                if time < end[other] + flag:
                    time = end[other] + flag
            start[index] = time
            if index in for_start:
                ready.append(for_start.pop(index))
            free = time + cycles
            if traffic is not None:
                latency += self._transfer(free, traffic, pipe)
                yield
                free = int(self._memory.env.now)
            end[index] = free
            if visible < free + latency:
                visible = free + latency
            done[index] = visible
            if index in for_end:
                ready.extend(for_end.pop(index))

    def _transfer(self, at: int, traffic: Traffic, pipe: str) -> int:
        """Send bytes at cycle `at`, wake the pipe when they have arrived; return the latency of the links."""
        memory, walk = self._memory, self._walks[pipe]
        transfer = memory.transfer(self._kind, traffic)
        arrival = memory.env.timeout(at - memory.env.now)
        arrival.callbacks.append(lambda _: memory.send(transfer, self._weight, lambda: self._wake(walk)))
        return transfer.latency_cycles

    def _wake(self, walk: Walk) -> None:
        """Go on with a pipe whose transfer has ended in this cycle."""
        self._ready.append(walk)
        self.run()


def time_kernel(kernel: Kernel, profile: Profile, *, folded: bool = True, l2_start: str = "warm") -> Timeline:
    """Return the spans of all instructions of a kernel, in cycles of the cube clock, without its launch.

    Options  `folded` runs one core for all that promise to cost the same; the spans are the same without.
             `l2_start` says what L2 holds at the start, "warm" or "cold" (see `l2.py`)
    Raises   ProgramError for a program that breaks the rules of the machine
    """
    with _collector_paused():
        book = CostBook(profile)
        phases = [_priced(phase, book, folded) for phase in kernel.phases]
        misses = account_of(
            ((len(cores), priced) for phase in phases for cores, priced in phase), kernel, profile, l2_start
        )
        now = 0
        timed: list[PhaseTimeline] = []
        for phase, work in zip(kernel.phases, phases, strict=True):
            if timed:
                now += profile.sync.barrier_cycles
            timed.append(_time_phase(phase.name, work, now, profile, misses))
            now = timed[-1].end
    return Timeline(kernel.name, now, tuple(timed), misses.bytes)


def _priced(phase: Phase, book: CostBook, folded: bool) -> Work:
    """Build the programs of one phase and look up their costs."""
    if folded:
        return [(cores, book.price(work.build(), work.core.kind)) for work, cores in phase.folded()]
    return [((work.core,), book.price(work.build(), work.core.kind)) for work in phase.work]


def _time_phase(name: str, work: Work, begin: int, profile: Profile, misses: L2Account) -> PhaseTimeline:
    """Run all cores of one phase from cycle `begin` to the cycle in which the last result is visible."""
    env = Environment(begin)
    memory = Transfers(env, profile, misses.misses)
    runs = [CoreRun(priced, cores, memory, profile) for cores, priced in work]
    for run in runs:
        run.run()
    env.run()
    spans = []
    for (cores, priced), run in zip(work, runs, strict=True):
        if UNKNOWN in run.done:
            raise ProgramError(
                f"phase {name}: instruction {run.done.index(UNKNOWN)} of core {cores[0]} never starts: "
                "its waits go in a circle; waits must point backwards, as ProgramBuilder.build() makes them"
            )
        spans.append(CoreTimeline(cores, priced.program, run.issue, run.start, run.end, run.done))
    end = max((time for core in spans for time in core.done), default=begin)
    return PhaseTimeline(name, begin, end, tuple(spans))


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Pause the garbage collector: a run makes many objects, keeps most, and the search costs 20 %."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
