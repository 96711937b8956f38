"""Programs with their costs looked up: the form in which the SimPy engine reads them."""

from __future__ import annotations

from array import array
from collections.abc import Hashable
from typing import TYPE_CHECKING, NamedTuple

from ascendsim.errors import ProgramError
from ascendsim.program.instruction import Cost, Traffic
from ascendsim.program.posts import VECTOR_CORES, core_of, pipe_on
from ascendsim.program.program import Program

if TYPE_CHECKING:
    from ascendsim.profile import Profile


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
