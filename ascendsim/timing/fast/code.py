"""Programs as tables of integers: each unit of code once, whoever runs it."""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ascendsim.errors import ProgramError
from ascendsim.program.instruction import PIPES, Instruction, Traffic
from ascendsim.program.loops.turns import Turns
from ascendsim.program.program import Program
from ascendsim.program.units import Unit
from ascendsim.timing.costing import checked, depths_of, no_queue
from ascendsim.timing.fast.compiled import state as f
from ascendsim.timing.fast.copies import Copies
from ascendsim.timing.fast.trailing import Row, require_known_begins

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.profile import Profile

    Table = NDArray[np.int64]

NUMBERS = {pipe: number for number, pipe in enumerate(PIPES)}


class UnitCode(NamedTuple):
    """A unit as it is written: its instructions among all, and the traffics of its transfers in order.

    `moving` are those of its instructions on GM that move bytes, by their place among all on GM; -1: the
    transfer names no slice. `cores` are the cores of the program that they belong to. `trails`: whether any
    instruction trails others.
    """

    first: int
    last: int
    traffics: tuple[int, ...]
    moving: tuple[int, ...]
    cores: tuple[int, ...]
    trails: bool


class CodeBook:
    """The code, slots and costs of the programs of one kernel; lives for one timing run."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self.traffics: list[Traffic] = []
        # Of each the pipes on which it moves, as bits; and of all of them, those of further cores included.
        self.pipes_of: list[int] = []
        self.movers = 0
        # Whether any transfer names no slice.
        self.unnamed = False
        self._depths: dict[str, dict[str, int]] = {}
        self._units: dict[Unit, UnitCode] = {}
        self._copies = Copies()
        # By instruction: its price, and where the slots end that it uses. Those that trail others, and those
        # on another core than the first, by number.
        self._prices_of = array("q")
        self._ends = array("q")
        self._slots = array("q")
        self._trailing: list[int] = []
        self._beside: dict[int, int] = {}
        # By price: what the engine reads, the pipe, and the traffic (-1: none).
        self._prices = array("q")
        self._pipes: list[int] = []
        self._moved: list[int] = []
        # A program repeats few shapes many times; working out a cost, in fractions, is what is slow.
        self._numbers: dict[tuple[type, str, Hashable], int] = {}
        self._traffics: dict[Traffic, int] = {}

    def check(self, program: Program, kind: str) -> None:
        """Refuse a program with a pipe that this kind of core lacks, waits of its own, or begins told late.

        Raises   ProgramError
        """
        if not program.usual:
            raise ProgramError(
                "a program leaves out waits that follow from its slots, or has others; only the engine simpy "
                "obeys such waits"
            )
        if kind not in self._depths:
            self._depths[kind] = depths_of(self._profile, kind)
        depths = self._depths[kind]
        for pipe in program.used:
            if pipe not in depths:
                raise no_queue(program, program.pipes.index(pipe), kind, self._profile)
        if any(self.unit(unit).trails for unit in program.units):
            require_known_begins(chain.from_iterable(map(self._rows, program.units)))

    def _rows(self, unit: Unit) -> Iterator[Row]:
        """Yield what `trailing.py` asks of each instruction of a unit."""
        code, begin = self.unit(unit), 0
        for made, end, price in zip(
            unit.instructions, unit.uses.ends, self._prices_of[code.first : code.last], strict=True
        ):
            yield Row(unit.uses.slots[begin:end], made.trails, self._moved[price] >= 0)
            begin = end

    def unit(self, unit: Unit) -> UnitCode:
        """Return a unit's place in the tables; it is entered when it is met first."""
        known = self._units.get(unit)
        if known is None:
            known = self._units[unit] = self._enter(unit)
        return known

    def rows(self, unit: Unit, turns: Turns | None) -> tuple[int, int]:
        """Return the first and the last row of the code of a unit with its rings turned on, as a range."""
        code = self.unit(unit)
        return self._copies.rows(code.first, code.last, turns)

    def _enter(self, unit: Unit) -> UnitCode:
        """Append the instructions of a unit to those known."""
        first, numbers, prices = len(self._ends), self._numbers, []
        # For every instruction there is: it is asked for as little as possible.
        for instruction in unit.instructions:
            key = instruction.__class__, instruction.pipe, instruction.shape
            number = numbers.get(key)
            if number is None:
                number = numbers[key] = self._price(instruction, key)
            prices.append(number)
        self._prices_of.extend(prices)
        begin = len(self._slots)
        self._slots.extend(unit.uses.slots)
        self._ends.extend([begin + end for end in unit.uses.ends])
        trailing = [first + at for at, made in enumerate(unit.instructions) if made.trails]
        self._trailing += trailing
        cores = {at: post.core for at, post in unit.posts.items()}
        self._beside |= {first + at: core for at, core in cores.items()}
        moved = self._moved
        moving = [at for at, number in enumerate(prices) if moved[number] >= 0]
        for at in moving:
            self.movers |= 1 << self._pipes[prices[at]] + f.UNIT * cores.get(at, 0)
        named = {at: number for number, at in enumerate(unit.on_gm)}
        places = tuple([named.get(at, -1) for at in moving])
        self.unnamed = self.unnamed or -1 in places
        return UnitCode(
            first,
            first + len(prices),
            tuple([moved[prices[at]] for at in moving]),
            places,
            tuple([cores.get(at, 0) for at in moving]),
            bool(trailing),
        )

    def tables(self) -> dict[str, Table]:
        """Return the tables `code`, `units`, `uses` and `prices` (`state.py`) of all rows asked for."""
        prices, ends = _whole(self._prices_of), _whole(self._ends)
        code = np.zeros((len(prices), f.CODE), np.int64)
        code[:, f.PRICE], code[:, f.LAST_USE] = prices, ends
        code[1:, f.FIRST_USE] = ends[:-1]
        code[:, f.PIPE] = np.array(self._pipes, np.int64)[prices]
        code[:, f.MOVES] = np.array(self._moved, np.int64)[prices] >= 0
        code[self._trailing, f.TRAILS] = 1
        for at, core in self._beside.items():
            code[at, f.PIPE] += f.UNIT * core
        return self._copies.tables(code, _whole(self._slots)) | {"prices": _whole(self._prices)}

    def _price(self, instruction: Instruction, key: tuple[type, str, Hashable]) -> int:
        """Append a cost to the tables; return its number."""
        priced = checked(key, instruction.cost(self._profile), instruction.drains)
        cycles, latency, moved, drains, least, pace, piece, lead = priced
        traffic = -1
        if moved is not None:
            traffic = self._traffics.setdefault(moved, len(self.traffics))
            if traffic == len(self.traffics):
                self.traffics.append(moved)
                self.pipes_of.append(0)
            self.pipes_of[traffic] |= 1 << NUMBERS[key[1]]
        self._prices.extend((cycles, latency, traffic, drains, least, pace, piece, lead))
        self._pipes.append(NUMBERS[key[1]])
        self._moved.append(traffic)
        return len(self._moved) - 1


def _whole(table: array[int]) -> Table:
    # numpy takes no empty buffer, and a program may have no instruction.
    return np.frombuffer(table, np.int64) if table else np.empty(0, np.int64)
