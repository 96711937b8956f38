"""The slices of global memory that the transfers of a phase name, by numbers, for the account of L2.

What is done for each transfer is done by numpy; `naming.py` finds each slice once.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ascendsim.program.loops.laps import Lap
from ascendsim.program.program import Program
from ascendsim.program.units import Nest, Segment, Step, Unit
from ascendsim.timing.fast.code import CodeBook
from ascendsim.timing.fast.layouts import Layouts
from ascendsim.timing.fast.naming import Namer, Slice
from ascendsim.timing.fast.ragged import numbers_of
from ascendsim.timing.l2.lanes import next_place

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]


class Sequential(NamedTuple):
    """The place of a transfer that names no slice."""

    begin: int
    bytes: int


class _Run(NamedTuple):
    """A segment of a program: the numbers of its steps among all of the book, and how its laps are moved."""

    shifts: range
    steps: NDArray[np.int64]


class _Sources(NamedTuple):
    """Of some code what its layout says, and for each of its sources the number of what is not told apart."""

    columns: NDArray[np.int32]
    sources: list[tuple[int, int | None]]


class _Steps:
    """The transfers of steps, each step once, one step after the other.

    For each transfer which of `named` it is from, which slice of that, and by how much it is moved.
    `named` are numbers of what was found, `laps` by how much each of them is moved. `sizes` are the transfers
    of each step.
    """

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.named: list[int] = []
        self.laps: list[int] = []
        # Of each step what its layout says, and where its own begin in `named`.
        self._columns: list[NDArray[np.int32]] = [np.empty((3, 0), np.int32)]
        self._begins: list[int] = []

    def append(self, columns: NDArray[np.int32], begin: int) -> int:
        """Add a step whose own begin there in `named`; return its number."""
        self.sizes.append(columns.shape[1])
        self._columns.append(columns)
        self._begins.append(begin)
        return len(self.sizes) - 1

    def columns(self) -> tuple[Numbers, NDArray[np.int32], Numbers]:
        """Return for each transfer its place in `named`, which slice it is of that, and its laps."""
        source, slices, laps = np.concatenate(self._columns, axis=1)
        places = source + np.repeat(np.array(self._begins, np.int64), self.sizes)
        return places, slices, laps + np.array(self.laps, np.int64)[places]


class SliceBook:
    """Numbers the slices of GM that the programs of a phase name.

    Loops move slices by laps: a slice is known by what it is without its lap, and by the lap. `asked` are
    the tensors of which slices are told apart, None: all; all transfers of another one have one number.
    """

    def __init__(self, book: CodeBook, layouts: Layouts, asked: frozenset[str] | None = None) -> None:
        self._book = book
        self._layouts = layouts
        self._asked = asked
        self._programs: list[list[_Run]] = []
        self._steps = _Steps()
        # The numbers of steps, by identity: programs share them (`program/loops/chains.py`). With each the
        # step itself, which so is kept alive.
        self._known: dict[int, tuple[int, Step]] = {}
        self._namer = Namer(book, layouts, asked)
        self._sources: dict[Unit | Nest, _Sources] = {}

    def meet(self, program: Program) -> None:
        """Take in a program, after those before it."""
        if any(min(self._book.unit(unit).moving, default=0) < 0 for unit in program.units):
            self._programs.append([self._one_by_one(program)])
        else:
            self._programs.append([self._run(program, part) for part in program.segments])

    def _one_by_one(self, program: Program) -> _Run:
        """Return all transfers of a program of which some name no slice: these go on from each other."""
        newest: dict[str, int] = {}
        slices: list[Slice] = []
        for (_, unit), made in zip(program.placed(), _pieces(program), strict=True):
            code = self._book.unit(unit)
            for number, traffic in zip(code.moving, code.traffics, strict=True):
                if number < 0:
                    unnamed = self._book.traffics[traffic]
                    slices.append(Slice(unnamed.tensor.name, Sequential(*next_place(unnamed, newest))))
                else:
                    tensor, index = made[unit.on_gm[number]].gm
                    slices.append(Slice(tensor.name, index))
        count = len(slices)
        named = self._namer.note(slices)
        columns = np.zeros((3, count), np.int32)
        columns[1] = np.arange(count)
        begin = len(self._steps.named)
        self._steps.named.append(named)
        self._steps.laps.append(0)
        return _Run(range(1), np.array([self._steps.append(columns, begin)]))

    def _run(self, program: Program, part: Segment) -> _Run:
        """Return the transfers of a segment."""
        known = self._known
        steps = program.steps[part.first : part.last]
        for step in steps:
            if id(step) not in known:
                known[id(step)] = self._number(step), step
        return _Run(part.shifts(), np.array([known[id(step)][0] for step in steps], np.int64))

    def _number(self, step: Step) -> int:
        """Take in a step; return its number."""
        columns, sources = self._sources.get(step.unit) or self._sources_of(step.unit)
        steps, shift = self._steps, step.shift
        begin = len(steps.named)
        for at, number in sources:
            lap = 0
            if number is None:
                number, lap = self._namer.of_step(step, at)
            steps.named.append(number)
            steps.laps.append(lap + shift)
        return steps.append(columns, begin)

    def _sources_of(self, code: Unit | Nest) -> _Sources:
        """Return the sources of some code, with a number where nobody asks for slices."""
        layout = self._layouts.of(code)
        names = [self._book.traffics[number].tensor.name for number in layout.traffics]
        sources: list[tuple[int, int | None]] = []
        for number, source in enumerate(layout.sources):
            own = {
                at: name
                for name, of, at in zip(names, layout.source, layout.slices, strict=True)
                if of == number
            }
            told = self._asked is None or not self._asked.isdisjoint(own.values())
            # A tensor as a whole stands for each of its slices.
            whole = None if told else self._namer.note([Slice(own[at], ()) for at in sorted(own)])
            sources.append((source, whole))
        columns = np.array([layout.source, layout.slices, layout.laps], np.int32)
        made = self._sources[code] = _Sources(columns, sources)
        return made

    def numbers(self) -> list[Numbers]:
        """Return for each program the number of the slice of every transfer, in program order."""
        steps, found = self._steps, self._namer.found
        begins = np.cumsum([0, *map(len, found)])
        known: dict[Hashable, int] = {}
        told = np.array([self._told(each, known) for each in self._namer.slices], np.int64).reshape(-1, 3).T
        flat = np.array(list(chain.from_iterable(found)), np.int64)
        places, slices, laps = steps.columns()
        once = told[:, flat[begins[np.array(steps.named, np.int64)][places] + slices]]
        once[1] += once[2] * laps
        sizes = np.array(steps.sizes, np.int64)
        firsts = np.cumsum(sizes) - sizes
        result = []
        for runs in self._programs:
            made = [np.empty((3, 0), np.int64)]
            for shifts, own in runs:
                made.append(_rounds(once[:, numbers_of(firsts[own], sizes[own])], shifts))
            result.append(np.concatenate(made, axis=1)[:2])
        most = 1 + max((int(found[1].max(initial=0)) for found in result), default=0)
        return [found[0] * most + found[1] for found in result]

    def _told(self, slice_: Slice, known: dict[Hashable, int]) -> tuple[int, int, bool]:
        """Return the number of a slice without its lap, its lap, and whether it moves."""
        name, index = slice_
        axis = self._namer.axes.get(name, -1) if index and type(index) is not Sequential else -1
        # A slice of several laps is no lap; what it has in common with others is not looked for anyway.
        if axis >= 0 and isinstance(index[axis], slice):
            axis = -1
        # As `comparable` does: a call for each part would be what is slow.
        key = [name, *[(p.start, p.stop, p.step) if type(p) is slice else p for p in index]]
        lap, moves = 0, False
        if axis >= 0:
            lap, moves, key[1 + axis] = int(index[axis]), type(index[axis]) is Lap, None
        return known.setdefault(tuple(key), len(known)), lap, moves


def _pieces(program: Program) -> Sequence[Sequence[Any]]:
    """Return all instructions in order, unit by unit."""
    made = program.instructions
    return [made[begin : begin + len(unit)] for begin, unit in program.placed()]


def _rounds(once: NDArray[np.int64], shifts: range) -> NDArray[np.int64]:
    """Lay the rows of one round end to end for all, with what moves moved."""
    if len(shifts) == 1 and shifts[0] == 0:
        return once
    made = np.tile(once, len(shifts))
    made[1] += np.outer(shifts, once[2]).ravel()
    return made
