"""Programs with their costs looked up: the form in which the timing executor reads them."""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ascendsim.errors import ProgramError
from ascendsim.program.instruction import Cost, Instruction, Traffic
from ascendsim.program.program import Program
from ascendsim.program.template import Template

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


@dataclass(frozen=True, slots=True)
class PricedProgram:
    """A program, the price of each instruction, the order on each pipe and the place in its queue.

    `queue[i]` is the instruction that must have left the pipe's queue before i fits into it (-1: none);
    `moving` are the instructions that move bytes; `traffic` counts how often which traffic occurs on
    which pipe.
    """

    program: Program
    prices: list[Priced]
    pipes: list[str]
    orders: dict[str, array[int]]
    queue: array[int]
    moving: list[int]
    traffic: dict[tuple[str, Traffic], int]


class _Part(NamedTuple):
    """Prices and pipes of a part of a program (a template, or what is between two).

    `orders` and `moving` say which of its instructions are on each pipe, and which move bytes, by offset.
    """

    prices: tuple[Priced, ...]
    pipes: tuple[str, ...]
    orders: dict[str, list[int]]
    moving: tuple[int, ...]


class CostBook:
    """Asks each instruction once for its cost, by class, pipe and shape; lives for one timing run."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        # A program repeats few shapes many times; working out a cost, in fractions, is what is slow.
        self._prices: dict[tuple[type, str, Hashable], Priced] = {}
        self._templates: dict[Template, _Part] = {}

    def price(self, program: Program, kind: str) -> PricedProgram:
        """Look up every cost of a program for a core of this kind ("cube" or "vector").

        Raises   ProgramError for a pipe that the product does not have or a cost that cannot be
        """
        depths = self._profile.vector_queues if kind == "vector" else self._profile.queues
        prices: list[Priced] = []
        pipes: list[str] = []
        orders: dict[str, array[int]] = {}
        moving: list[int] = []
        for begin, template, instructions in _parts(program):
            part = self._part(template, instructions)
            for pipe, offsets in part.orders.items():
                # A pipe without a queue is one that this kind of core does not have.
                if pipe not in depths:
                    name = type(instructions[offsets[0]]).__name__
                    raise ProgramError(
                        f"instruction {begin + offsets[0]} ({name}) runs on pipe {pipe}, but "
                        f"a {kind} core of {self._profile.variant} has queues for {', '.join(depths)}"
                    )
                if pipe not in orders:
                    orders[pipe] = array("q")
                orders[pipe].extend([begin + offset for offset in offsets])
            prices += part.prices
            pipes += part.pipes
            moving += [begin + offset for offset in part.moving]
        queue = array("q", [-1]) * len(prices)
        # A queue of depth d takes an instruction when the one d places ahead on its pipe has been taken up.
        for pipe, order in orders.items():
            for index, ahead in zip(order[depths[pipe] :], order, strict=False):
                queue[index] = ahead
        # Timing and L2 look at bytes only where some move, which is at few instructions of a program.
        return PricedProgram(
            program, prices, pipes, orders, queue, moving, _count_traffic(moving, prices, pipes)
        )

    def _part(self, template: Template | None, instructions: Sequence[Instruction]) -> _Part:
        """Look up the costs of a part of a program; those of a template only once."""
        if template is None:
            return self._priced(instructions)
        # Where a template recurs its slices of GM are others, but not what any instruction costs.
        if template not in self._templates:
            self._templates[template] = self._priced(instructions)
        return self._templates[template]

    def _priced(self, instructions: Sequence[Instruction]) -> _Part:
        """Look up the costs of consecutive instructions."""
        known = self._prices
        prices: list[Priced] = []
        pipes: list[str] = []
        orders: dict[str, list[int]] = {}
        for offset, instruction in enumerate(instructions):
            pipe = instruction.pipe
            key = (instruction.__class__, pipe, instruction.shape)
            # The pipe is part of the key because one class may run on several (`PipeBarrier`).
            priced = known.get(key)
            if priced is None:
                priced = known[key] = _checked(key, instruction.cost(self._profile), instruction.drains)
            order = orders.get(pipe)
            if order is None:
                order = orders[pipe] = []
            order.append(offset)
            prices.append(priced)
            pipes.append(pipe)
        moving = [offset for offset, priced in enumerate(prices) if priced.traffic is not None]
        return _Part(tuple(prices), tuple(pipes), orders, tuple(moving))


def _parts(program: Program) -> Iterator[tuple[int, Template | None, Sequence[Instruction]]]:
    """Yield where each part of a program begins, its template if it has one, and its instructions."""
    instructions, at = program.instructions, 0
    for begin, template in program.templates:
        if at < begin:
            yield at, None, instructions[at:begin]
        yield begin, template, template.instructions
        at = begin + len(template)
    if at < len(instructions):
        yield at, None, instructions[at:]


def _checked(key: tuple[type, str, Hashable], cost: Cost, drains: bool) -> Priced:
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


def _count_traffic(
    moving: list[int], prices: list[Priced], pipes: list[str]
) -> dict[tuple[str, Traffic], int]:
    """Count how often each traffic occurs on each pipe of a program."""
    counts: dict[int, int] = {}
    found: dict[int, int] = {}
    for index in moving:
        # Equal instructions share their price, pipe included, so its identity will do.
        key = id(prices[index])
        counts[key] = counts.get(key, 0) + 1
        found[key] = index
    result: dict[tuple[str, Traffic], int] = {}
    for key, index in found.items():
        traffic = prices[index].traffic
        assert traffic is not None
        result[pipes[index], traffic] = result.get((pipes[index], traffic), 0) + counts[key]
    return result
