"""Run the cores of a phase for their cycles, in SimPy: the definition of what timing is.

Time is an integer number of cycles of the cube clock. A kernel begins with what the scalar units take from
its entry to the first instruction. From there each core obeys four rules.

1. The scalar unit issues instructions in program order, `issue_cycles` each, into the queue of their pipe.
   When the queue is full it waits until the pipe has taken up an instruction:
   issue[i] = max(issue[i-1] + issue_cycles, start[the instruction `depth` places earlier on the pipe]).
2. A pipe runs its instructions in order. One starts when it has been issued, the one before has left the
   pipe, and what it waits for on other pipes is over, plus `flag_cycles` for the wake-up:
   start[i] = max(issue[i], end[before], done[j] + flag for after_done, end[j] + flag for after_end);
   one that `drains` also waits for done[before]. One that trails others holds its pipe from then on, but its
   work begins with the first piece of each: begin[i] = max(start[i], start[j] + lead), else start[i].
3. It holds the pipe for its cycles and then while its bytes flow, but for its least cycles in all, and for a
   piece longer than what it trails: last[i] = max(begin[i] + cycles + flow, done[j] + piece),
   end[i] = max(last[i], begin[i] + least).
4. Results become visible `latency_cycles` after the last byte, in the order of the pipe:
   done[i] = max(done[before], end[i], last[i] + latency, begin[i] + pace + latency).

**Who needs a simulator?** Only the flow in rule 3 depends on other cores; everything else follows from what
came before on the same core. So SimPy sees nothing but transfers: one event for each cycle in which one
begins or one of its flows may end. The rest follows by sums and maxima. Each scalar unit and each pipe goes
through its instructions as a coroutine that stops only where a value is missing; it leaves a note at the
instruction that it waits for, and whoever finds the value out wakes it.
A coroutine may run ahead of simulated time; a transfer that it sends then begins at its later cycle. How long
a transfer takes may change until it has ended, as others begin and end on its links (`links.py`), so what
follows it waits for its end.

A program may cover a cube core and the vector cores beside it. Each of them has its own scalar unit, which
issues its own instructions in program order, its own pipes and its own port on the links; a hand-over between
them is a wait like any other.

Equal cores may be folded into one with their number as its weight: its rates are those of each core.

Apart from rates all rules are sums and maxima. So a faster figure never costs cycles where no transfer shares
anything: no link is asked for more than its total, and no two pipes of a core use one link. Elsewhere who is
earlier may come in the way of another (`links.py`).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from simpy import Environment, Event
from simpy.events import NORMAL

from ascendsim.errors import ProgramError
from ascendsim.program.kernel import Core, Team
from ascendsim.program.places import VECTOR_CORES, core_of
from ascendsim.timing.l2.phase import HIT, Outcomes
from ascendsim.timing.links import Sharer, Transfers
from ascendsim.timing.timeline import CoreTimeline, PhaseTimeline
from ascendsim.timing.times import PricedProgram

if TYPE_CHECKING:
    from ascendsim.profile import Profile

# No cycle is negative, so a negative number marks a cycle that is not known yet.
UNKNOWN = -1


Coroutine = Generator[None, None, None]


class CoreRun:
    """One program in one phase, of one core or of equal ones: its coroutines and what they have found out."""

    def __init__(self, priced: PricedProgram, cores: tuple[Core, ...], outcomes: Outcomes) -> None:
        count = len(priced.prices)
        self.priced = priced
        self.cores = cores
        self.outcomes = outcomes
        # Each core of the program has a port of its own.
        self.sharers = [
            Sharer(cores[0].beside(number).kind, len(cores)) for number in range(len(priced.program.sizes))
        ]
        # Arrays of 64-bit integers: lists would take several times the memory for each figure.
        unknown = array("q", [UNKNOWN]) * count
        self.issue = unknown[:]
        self.start = unknown[:]
        self.end = unknown[:]
        self.done = unknown[:]
        # Who waits for an instruction to be issued, to start, to end.
        self._for_issue: dict[int, Coroutine] = {}
        self._for_start: dict[int, list[Coroutine]] = {}
        self._for_end: dict[int, list[Coroutine]] = {}
        self._ready: list[Coroutine] = []

    def begin(self, env: Environment, memory: Transfers, profile: Profile) -> None:
        """Start all coroutines in this cycle."""
        self._env = env
        self._memory = memory
        self._begin = int(env.now)
        self._issue_cycles = profile.scalar.issue_cycles
        self._flag_cycles = profile.sync.flag_cycles
        # Coroutines and not processes of SimPy: a process takes an event for each value that it waits for,
        # while most values are known already or follow in this same cycle without the clock.
        self._pipes = {pipe: self._pipe(pipe) for pipe in self.priced.orders}
        self._issuing = [self._scalar(core) for core in range(len(self.sharers))]
        self._ready = [*self._pipes.values(), *self._issuing]
        self.run()

    def run(self) -> None:
        """Let every coroutine go on whose missing value is known now."""
        # In any order: each value is found once, from values that are known, so the order shows nowhere.
        ready = self._ready
        while ready:
            next(ready.pop(), None)

    def _scalar(self, core: int) -> Coroutine:
        """Issue the instructions of one core of the program (rule 1)."""
        issue, start, each = self.issue, self.start, self._issue_cycles
        waiting, ready = self._for_issue, self._ready
        time = self._begin
        belongs = self.priced.program.core_of if len(self.sharers) > 1 else None
        for index, ahead in enumerate(self.priced.queue):
            if belongs is not None and belongs(index) != core:
                continue
            time += each
            if ahead >= 0:
                # Everything after it in the program waits as well: the scalar unit never issues out of order.
                if start[ahead] < 0:
                    self._for_start.setdefault(ahead, []).append(self._issuing[core])
                    yield
                if start[ahead] > time:
                    time = start[ahead]
            issue[index] = time
            if index in waiting:
                ready.append(waiting.pop(index))

    def _pipe(self, pipe: str) -> Coroutine:
        """Run the instructions of one pipe (rules 2 to 4)."""
        program, prices, flag = self.priced.program, self.priced.prices, self._flag_cycles
        issue, start, end, done = self.issue, self.start, self.end, self.done
        done_back, end_back, trails = program.done_back, program.end_back, program.trail_back
        for_start, for_end, ready = self._for_start, self._for_end, self._ready
        memory, sharer, wake = self._memory, self.sharers[core_of(pipe)], partial(self._wake, pipe)
        # All that a pipe carries from one instruction to the next: when it is free, and its newest result.
        free = visible = self._begin
        for index in self.priced.orders[pipe]:
            if issue[index] < 0:
                self._for_issue[index] = self._pipes[pipe]
                yield
            # From here on it is the innermost loop of timing: plain comparisons are faster than `max`.
            cycles, latency, traffic, drains, least, pace, piece, _ = prices[index]
            time = issue[index]
            if time < free:
                time = free
            if drains and time < visible:
                time = visible
            for over, back in ((done, done_back), (end, end_back)):
                for distance in back[index]:
                    other = index - distance
                    if over[other] < 0:
                        for_end.setdefault(other, []).append(self._pipes[pipe])
                        yield
                    if time < over[other] + flag:
                        time = over[other] + flag
            start[index] = time
            if index in for_start:
                ready.extend(for_start.pop(index))
            if index in trails:
                time = yield from self._begin_of_work(pipe, index, time)
            free = time + cycles
            if traffic is not None:
                transfer = memory.transfer(sharer.kind, traffic, self.outcomes.get(index, HIT))
                memory.send(free, sharer, pipe, transfer, wake)
                # Nothing of this pipe goes on before the end is certain: a later start would be a guess.
                yield
                free = int(self._env.now)
                latency += transfer.latency_cycles
            if index in trails:
                free = yield from self._last_piece(pipe, index, free, piece)
            # `visible` is that of the instruction before; results come out in the order of the pipe.
            if visible < free + latency:
                visible = free + latency
            if pace and visible < time + pace + latency:
                visible = time + pace + latency
            # After the result: the least is how soon the next may follow, not how late this one shows.
            if free < time + least:
                free = time + least
                if visible < free:
                    visible = free
            end[index] = free
            done[index] = visible
            if index in for_end:
                ready.extend(for_end.pop(index))

    def _begin_of_work(self, pipe: str, index: int, time: int) -> Generator[None, None, int]:
        """Return when the work of an instruction begins that trails others."""
        for other in self.priced.program.trailed(index):
            if self.start[other] < 0:
                self._for_start.setdefault(other, []).append(self._pipes[pipe])
                yield
            time = max(time, self.start[other] + self.priced.prices[other].lead_cycles)
        return time

    def _last_piece(self, pipe: str, index: int, free: int, piece: int) -> Generator[None, None, int]:
        """Return when an instruction that trails others is through with the last piece of them."""
        for other in self.priced.program.trailed(index):
            if self.done[other] < 0:
                self._for_end.setdefault(other, []).append(self._pipes[pipe])
                yield
            free = max(free, self.done[other] + piece)
        return free

    def _wake(self, pipe: str) -> None:
        """Go on with a pipe whose transfer has ended in this cycle."""
        # What this end makes known may wake others of the core, and they others again, all in this cycle.
        self._ready.append(self._pipes[pipe])
        self.run()


def time_phase(
    name: str,
    teams: Sequence[Team[PricedProgram]],
    outcomes: Sequence[Outcomes],
    begin: int,
    profile: Profile,
) -> PhaseTimeline:
    """Run all cores of one phase from cycle `begin` to the cycle in which the last result is visible."""
    # An environment of its own for each phase: a barrier leaves nothing that could reach over it.
    env = Environment(begin)
    runs = [
        CoreRun(program, cores, made)
        for team, made in zip(teams, outcomes, strict=True)
        for cores, program in team.each()
    ]
    sharers = [sharer for run in runs for sharer in run.sharers]
    paired = any(len(run.sharers) > VECTOR_CORES for run in runs)
    memory = Transfers(profile, sharers, partial(appointment, env), paired)
    for run in runs:
        run.begin(env, memory, profile)
    env.run()
    spans = []
    for run in runs:
        # No event is left, and yet a coroutine waits: nobody will ever find out what it waits for.
        if UNKNOWN in run.done:
            raise ProgramError(
                f"phase {name}: instruction {run.done.index(UNKNOWN)} of core {run.cores[0]} never starts: "
                "its waits go in a circle; waits must point backwards, as ProgramBuilder.build() makes them"
            )
        spans.append(CoreTimeline(run.cores, run.priced.program, run.issue, run.start, run.end, run.done))
    end = max((max(core.done) for core in spans if core.done), default=begin)
    return PhaseTimeline(name, begin, end, tuple(spans))


def appointment(env: Environment, cycle: int, call: Callable[[], None]) -> None:
    """Schedule a bare event, which is cheaper than a process or a `Timeout`."""
    event = Event(env)
    event._ok = True
    event._value = None
    assert event.callbacks is not None
    event.callbacks.append(lambda _: call())
    env.schedule(event, NORMAL, cycle - int(env.now))
