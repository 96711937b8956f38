"""Programs with their costs looked up: the form in which the timing executor reads them."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ascendsim.errors import ProgramError
from ascendsim.program import Cost, Program, Traffic

if TYPE_CHECKING:
    from ascendsim.profile import Profile


class Priced(NamedTuple):
    """What timing needs to know about one instruction; `traffic` is None where no byte moves."""

    cycles: int
    latency_cycles: int
    traffic: Traffic | None
    drains: bool
    least_cycles: int


@dataclass(frozen=True, slots=True)
class PricedProgram:
    """A program, the price of each instruction, the order on each pipe and the place in its queue.

    `queue[i]` is the instruction that must have left the pipe's queue before i fits into it (-1: none);
    `traffic` counts how often each piece of traffic occurs on each pipe.
    """

    program: Program
    prices: list[Priced]
    pipes: list[str]
    orders: dict[str, list[int]]
    queue: list[int]
    traffic: dict[tuple[str, Traffic], int]


class CostBook:
    """Asks each instruction once for its cost, by class, pipe and shape; lives for one timing run."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._prices: dict[tuple[type, str, Hashable], Priced] = {}

    def price(self, program: Program, kind: str) -> PricedProgram:
        """Look up every cost of a program for a core of this kind ("cube" or "vector").

        Raises   ProgramError for a pipe that the product does not have or a cost that cannot be
        """
        known = self._prices
        depths = self._profile.vector_queues if kind == "vector" else self._profile.queues
        prices: list[Priced] = []
        pipes: list[str] = []
        orders: dict[str, list[int]] = {}
        queue: list[int] = []
        for index, instruction in enumerate(program.instructions):
            pipe = instruction.pipe
            key = (instruction.__class__, pipe, instruction.shape)
            priced = known.get(key)
            if priced is None:
                priced = known[key] = _checked(key, instruction.cost(self._profile), instruction.drains)
            order = orders.get(pipe)
            if order is None:
                if pipe not in depths:
                    raise ProgramError(
                        f"instruction {index} ({key[0].__name__}) runs on pipe {pipe}, but "
                        f"a {kind} core of {self._profile.variant} has queues for {', '.join(depths)}"
                    )
                order = orders[pipe] = []
            place = len(order) - depths[pipe]
            queue.append(order[place] if place >= 0 else -1)
            order.append(index)
            prices.append(priced)
            pipes.append(pipe)
        return PricedProgram(program, prices, pipes, orders, queue, _count_traffic(prices, pipes))


def _checked(key: tuple[type, str, Hashable], cost: Cost, drains: bool) -> Priced:
    """Return the price of an instruction whose cost is possible."""
    moved = cost.traffic
    if min(cost.cycles, cost.latency_cycles, cost.least_cycles, moved.bytes if moved else 0) < 0:
        raise ProgramError(f"{key[0].__name__} {key[2]} costs {cost}; cycles and bytes cannot be negative")
    if moved is not None and moved.bytes and moved.peak_bytes_per_cycle <= 0:
        raise ProgramError(
            f"{key[0].__name__} {key[2]} moves bytes at {moved.peak_bytes_per_cycle} per cycle"
        )
    traffic = moved if moved and moved.bytes else None
    return Priced(cost.cycles, cost.latency_cycles, traffic, drains, cost.least_cycles)


def _count_traffic(prices: list[Priced], pipes: list[str]) -> dict[tuple[str, Traffic], int]:
    """Count how often each piece of traffic occurs on each pipe of a program."""
    counts: dict[int, int] = {}
    found: dict[int, tuple[str, Traffic]] = {}
    for priced, pipe in zip(prices, pipes, strict=True):
        if priced.traffic is not None:
            # Equal instructions share their price, pipe included, so its identity will do.
            counts[id(priced)] = counts.get(id(priced), 0) + 1
            found[id(priced)] = pipe, priced.traffic
    result: dict[tuple[str, Traffic], int] = {}
    for key, count in counts.items():
        result[found[key]] = result.get(found[key], 0) + count
    return result
