"""Where the cycles of a kernel went: plain records, which both engines make."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection, Hashable, Mapping
from typing import Generic, NamedTuple, TypeVar

from ascendsim.errors import ProgramError
from ascendsim.profile import Profile
from ascendsim.program.instruction import PIPES, Cost, Traffic
from ascendsim.program.kernel import Core
from ascendsim.program.places import VECTOR_CORES, core_of, pipe_on
from ascendsim.program.program import Program

Work = TypeVar("Work")


class TimedPhase(NamedTuple, Generic[Work]):
    """One phase: from `begin` (all cores start) to `end` (the last result is visible), in cycles."""

    name: str
    begin: int
    end: int
    cores: tuple[Work, ...]


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


PhaseTimes = TimedPhase[CoreTimes]


class PhaseAlone(NamedTuple):
    """A phase as it runs in any kernel that misses nothing in L2: its times, and the bytes that it moves."""

    times: PhaseTimes
    bytes: Mapping[str, int]

    def begun(self, at: int) -> PhaseTimes:
        """Return its times if it begins in another cycle."""
        by = at - self.times.begin
        cores = [core._replace(done=core.done + by) for core in self.times.cores]
        return PhaseTimes(self.times.name, at, self.times.end + by, tuple(cores))


class TimedKernel(NamedTuple, Generic[Work]):
    """A timed kernel; the first phase begins when the scalar units are through with its entry.

    `bytes` are the bytes moved by source: "l2_read" and "l2_write" are all traffic of the cores with L2,
    "memory" is what crosses the link to main memory, "memory_read" of it inwards and "memory_write" outwards.
    `left` is what the kernel leaves of tensors in L2, if it is known what there was before.
    """

    kernel: str
    cycles: int
    phases: tuple[TimedPhase[Work], ...]
    bytes: Mapping[str, int]
    left: Mapping[str, tuple[int, ...]] | None = None

    @property
    def entry_cycles(self) -> int:
        """Cycles of every core's scalar unit from the entry of the kernel to its first instruction."""
        return self.phases[0].begin if self.phases else 0

    @property
    def cores(self: KernelTimes) -> set[Core]:
        """The cores that have work in at least one phase."""
        return set().union(*[work.cores for phase in self.phases for work in phase.cores])


KernelTimes = TimedKernel[CoreTimes]  # where the cycles went; a `Timeline` has all spans in its place


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
            busy[pipe], waiting.get(pipe, {}), times.cycles - busy[pipe] - sum(waiting.get(pipe, {}).values())
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
    """Return the message for a kernel with which the cycles of a call pass the bound."""
    return (
        f"kernel {kernel}: with it the cycles pass {stop_above:,}, the bound (stop_above); leave it out to "
        "have all of them timed"
    )


class Priced(NamedTuple):
    """The cost of one instruction as timing reads it; `traffic` is None where no byte moves."""

    cycles: int
    latency_cycles: int
    traffic: Traffic | None
    drains: bool
    least_cycles: int
    pace_cycles: int
    piece_cycles: int
    lead_cycles: int


class PricedProgram(NamedTuple):
    """A program, the price of each instruction, the order on each pipe and the place in its queue.

    `queue[i]` is the instruction that must have left the pipe's queue before i fits into it (-1: none);
    `moving` are the instructions that move bytes.
    """

    program: Program
    prices: list[Priced]
    orders: dict[str, array[int]]
    queue: array[int]
    moving: list[int]


class CostBook:
    """Asks each instruction once for its cost, by class, pipe and shape; lives for one timing run."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        # A program repeats few shapes many times; working out a cost, in fractions, is what is slow.
        self._prices: dict[tuple[type, str, Hashable], Priced] = {}

    def price(self, program: Program, kind: str) -> PricedProgram:
        """Look up every cost of a program for a core of this kind ("cube" or "vector").

        Raises   ProgramError for a pipe that the product does not have or a cost that cannot be
        """
        depths = depths_of(self._profile, kind)
        prices: list[Priced] = []
        orders: dict[str, array[int]] = {}
        moving: list[int] = []
        known = self._prices
        for index, (instruction, pipe) in enumerate(zip(program.instructions, program.pipes, strict=True)):
            key = (instruction.__class__, instruction.pipe, instruction.shape)
            # The pipe is part of the key because one class may run on several (`PipeBarrier`).
            priced = known.get(key)
            if priced is None:
                priced = known[key] = checked(key, instruction.cost(self._profile), instruction.drains)
            order = orders.get(pipe)
            if order is None:
                # A pipe without a queue is one that this kind of core does not have.
                if pipe not in depths:
                    raise no_queue(program, index, kind, self._profile)
                order = orders[pipe] = array("q")
            order.append(index)
            prices.append(priced)
            if priced.traffic is not None:
                moving.append(index)
        queue = array("q", [-1]) * len(prices)
        # A queue of depth d takes an instruction when the one d places ahead on its pipe has been taken up.
        for pipe, order in orders.items():
            for index, ahead in zip(order[depths[pipe] :], order, strict=False):
                queue[index] = ahead
        # Timing and L2 look at bytes only where some move, which is at few instructions of a program.
        return PricedProgram(program, prices, orders, queue, moving)


def depths_of(profile: Profile, kind: str) -> dict[str, int]:
    """Return the depths of the queues of a core, and of those beside it, by the names of the pipes."""
    if kind == "vector":
        return dict(profile.vector_queues)
    beside = {
        pipe_on(core, pipe): depth
        for core in range(1, 1 + VECTOR_CORES)
        for pipe, depth in profile.vector_queues.items()
    }
    return {**profile.queues, **beside}


def no_queue(program: Program, index: int, kind: str, profile: Profile) -> ProgramError:
    """Return the error of an instruction on a pipe that its core does not have."""
    pipe = program.pipes[index]
    name = type(program.instructions[index]).__name__
    if kind == "vector" and core_of(pipe):
        return ProgramError(
            f"instruction {index} ({name}) runs on pipe {pipe}, but its program is that of a vector core; "
            "only the program of a cube core covers others"
        )
    own, depths = (
        ("vector", profile.vector_queues) if kind == "vector" or core_of(pipe) else ("cube", profile.queues)
    )
    return ProgramError(
        f"instruction {index} ({name}) runs on pipe {pipe}, but "
        f"a {own} core of {profile.variant} has queues for {', '.join(depths)}"
    )


def checked(key: tuple[type, str, Hashable], cost: Cost, drains: bool) -> Priced:
    """Return the price of an instruction whose cost is possible."""
    if not isinstance(cost, Cost):
        raise ProgramError(
            f"{key[0].__name__} {key[2]}: cost(profile) returned {cost!r}; it must be a Cost: end it with "
            "`return Cost(cycles)`"
        )
    # Time that runs backwards would not fail in the simulation; it would only give wrong cycles.
    moved = cost.traffic
    own = cost.cycles, cost.latency_cycles
    more = cost.least_cycles, cost.pace_cycles, cost.piece_cycles, cost.lead_cycles
    if min(*own, *more, moved.bytes if moved else 0) < 0:
        raise ProgramError(f"{key[0].__name__} {key[2]} costs {cost}; cycles and bytes cannot be negative")
    if moved is not None and moved.bytes and moved.peak_bytes_per_cycle <= 0:
        raise ProgramError(
            f"{key[0].__name__} {key[2]} moves bytes at {moved.peak_bytes_per_cycle} per cycle"
        )
    # Traffic without bytes needs no link; with one it would wait for its turn there.
    traffic = moved if moved and moved.bytes else None
    return Priced(*own, traffic, drains, *more)
