"""Programs as tables of integers: each unit of code once, whoever runs it."""

from __future__ import annotations

from array import array
from collections.abc import Hashable
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from ascendsim.errors import ProgramError
from ascendsim.program.instruction import PIPES, Instruction, Traffic
from ascendsim.program.posts import Post
from ascendsim.program.program import Program
from ascendsim.program.units import Unit
from ascendsim.timing.costing import checked, depths_of, no_queue
from ascendsim.timing.fast.state import BEHIND, CODE, FIRST_USE, LAST_USE, MOVES, PIPE, PRICES, TRAILS, UNIT

if TYPE_CHECKING:
    from ascendsim.profile import Profile

NUMBERS = {pipe: number for number, pipe in enumerate(PIPES)}


class UnitCode(NamedTuple):
    """A unit in the tables: its rows, and the traffics of its transfers in order.

    `moving` are those of its instructions on GM that move bytes, by their place among all on GM; -1: the
    transfer names no slice. `cores` are the cores of the program that they belong to.
    """

    first: int
    last: int
    traffics: tuple[int, ...]
    moving: tuple[int, ...]
    cores: tuple[int, ...]


class CodeBook:
    """The code, slots and costs of the programs of one kernel; lives for one timing run."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self.code = array("q")
        self.uses = array("q")
        self.prices = array("q")
        self.traffics: list[Traffic] = []
        self.trails = False
        # The most slots that an instruction uses.
        self.most_uses = 0
        # A bit for each pipe on which bytes move.
        self.movers = 0
        self._units: dict[Unit, UnitCode] = {}
        # A program repeats few shapes many times; working out a cost, in fractions, is what is slow.
        self._prices: dict[tuple[type, str, Hashable], tuple[int, int, int]] = {}
        self._traffics: dict[Traffic, int] = {}

    def check(self, program: Program, kind: str) -> None:
        """Refuse a program with a pipe that this kind of core does not have, or with waits of its own.

        Raises   ProgramError
        """
        if not program.usual:
            raise ProgramError(
                "a program leaves out waits that follow from its slots, or has others; only the engine simpy "
                "obeys such waits"
            )
        depths = depths_of(self._profile, kind)
        for pipe in program.used:
            if pipe not in depths:
                raise no_queue(program, program.pipes.index(pipe), kind, self._profile)

    def unit(self, unit: Unit) -> UnitCode:
        """Return a unit's place in the tables; it is entered when it is met first."""
        known = self._units.get(unit)
        if known is None:
            known = self._units[unit] = self._enter(unit)
        return known

    def _enter(self, unit: Unit) -> UnitCode:
        """Append the instructions of a unit to the tables."""
        uses, prices, first = self.uses, self._prices, len(self.code) // CODE
        named = {at: number for number, at in enumerate(unit.on_gm)}
        traffics: list[int] = []
        moving: list[int] = []
        cores: list[int] = []
        rows: list[list[int]] = []
        # The innermost loop of building: an instruction is asked for as little as possible.
        posts = unit.posts
        for at, instruction in enumerate(unit.instructions):
            key = instruction.__class__, instruction.pipe, instruction.shape
            known = prices.get(key)
            if known is None:
                known = prices[key] = self._price(instruction, key)
            number, price, traffic = known
            if traffic >= 0:
                traffics.append(traffic)
                moving.append(named.get(at, -1))
            begin = len(uses)
            for slot in instruction.reads:
                uses.append(2 * slot.index)
            for slot in instruction.writes:
                uses.append(2 * slot.index + 1)
            row = [number, price, begin, len(uses), instruction.trails, traffic >= 0, 0]
            if at in posts:
                self._place(row, posts[at])
            if traffic >= 0:
                cores.append(row[PIPE] // UNIT)
                self.movers |= 1 << row[PIPE]
            rows.append(row)
        self._note_behind(rows)
        self.trails = self.trails or any(row[TRAILS] for row in rows)
        self.most_uses = max([self.most_uses, *[row[LAST_USE] - row[FIRST_USE] for row in rows]])
        self.code.extend(chain.from_iterable(rows))
        return UnitCode(first, len(self.code) // CODE, tuple(traffics), tuple(moving), tuple(cores))

    def _place(self, row: list[int], post: Post) -> None:
        """Move an instruction to its core, and add the slots of a hand-over."""
        row[PIPE] += UNIT * post.core
        for slot in post.reads:
            self.uses.append(2 * slot.index)
        for slot in post.writes:
            self.uses.append(2 * slot.index + 1)
        row[LAST_USE] = len(self.uses)

    def _note_behind(self, rows: list[list[int]]) -> None:
        """Note at each instruction which pipes' next transfers need it, or a later one of its pipe."""
        # From the end: from an instruction that a transfer needs back to the transfer before it on that pipe,
        # all on the pipe of the former are needed.
        begins: dict[int, list[tuple[int, int]]] = {}
        needed: dict[int, int] = {}
        for at in range(len(rows) - 1, -1, -1):
            row = rows[at]
            for pipe, bit in begins.get(at, ()):
                needed[pipe] = needed.get(pipe, 0) | bit
            row[BEHIND] = needed.get(row[PIPE], 0)
            if row[MOVES]:
                bit = 1 << row[PIPE]
                needed = {pipe: bits & ~bit for pipe, bits in needed.items()}
                begins = {}
                for source in self._needed(at, rows):
                    begins.setdefault(source, []).append((rows[source][PIPE], bit))

    def _needed(self, at: int, rows: list[list[int]]) -> set[int]:
        """Return the newest instruction on each pipe that an instruction needs, directly or by others."""
        # A few steps back are enough: what is found is used to save time, not to decide.
        wanted = self._read(rows[at])
        newest: dict[int, int] = {}
        for source in range(at - 1, max(-1, at - 9), -1):
            row = rows[source]
            if not wanted.isdisjoint(
                [use - 1 for use in self.uses[row[FIRST_USE] : row[LAST_USE]] if use & 1]
            ):
                newest.setdefault(row[PIPE], source)
                wanted |= self._read(row)
        return set(newest.values())

    def _read(self, row: list[int]) -> set[int]:
        return {use for use in self.uses[row[FIRST_USE] : row[LAST_USE]] if not use & 1}

    def _price(self, instruction: Instruction, key: tuple[type, str, Hashable]) -> tuple[int, int, int]:
        """Append a cost to the tables; return numbers of the pipe, the cost and its traffic (-1: none)."""
        priced = checked(key, instruction.cost(self._profile), instruction.drains)
        cycles, latency, moved, drains, least, pace, piece, lead = priced
        pipe, traffic = NUMBERS[key[1]], -1
        if moved is not None:
            traffic = self._traffics.setdefault(moved, len(self.traffics))
            if traffic == len(self.traffics):
                self.traffics.append(moved)
            self.movers |= 1 << pipe
        self.prices.extend((cycles, latency, traffic, drains, least, pace, piece, lead))
        return pipe, len(self.prices) // PRICES - 1, traffic
