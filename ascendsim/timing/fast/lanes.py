"""The slices of global memory that the transfers of a phase name, by numbers, for the account of L2.

Most tasks name the tiles of others: a tile is found once for all tasks that name its place (`Aim.place`), and
once for all rounds of a loop, which move it by laps. So what is done for each transfer is done by numpy.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ascendsim.program.laps import Lap, moved, told_apart
from ascendsim.program.laps import named as lap_axis
from ascendsim.program.program import Program
from ascendsim.program.units import Nest, Part, Segment, Step, Unit
from ascendsim.timing.fast.code import CodeBook
from ascendsim.timing.fast.layouts import NONE, TASK, Layouts, source_in
from ascendsim.timing.l2.lanes import comparable, next_place

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]


class Sequential(NamedTuple):
    """The place of a transfer that names no slice."""

    begin: int
    bytes: int


class _Found(NamedTuple):
    """Slices of one source of a unit, found for one place or task: tensors and indices."""

    tensors: tuple[str, ...]
    indices: tuple[Any, ...]


class _Composed(NamedTuple):
    """Slices of one source of a nest: for each segment its shifts, and numbers and laps of what it names."""

    segments: tuple[tuple[range, tuple[tuple[int, int], ...]], ...]


class _Inner(NamedTuple):
    """A source of a step of a nest: of which source of the nest it is, and how it follows from that.

    `task` is the task as if the lap were 0; `rest` is how the key of the source goes on from the nest's.
    """

    unit: Unit | Nest
    source: int
    outer: int
    task: Part
    rest: tuple[Any, ...]
    lap: int


class _Run(NamedTuple):
    """A segment of a program: for each transfer which of `named` it is from, and which slice of that.

    `named` are numbers of what was found, `laps` by how much each of them is moved.
    """

    shifts: range
    source: NDArray[np.int64]
    slices: NDArray[np.int32]
    named: list[int]
    laps: list[int]


class SliceBook:
    """Numbers the slices of GM that the programs of a phase name.

    Loops move slices by laps: a slice is known by what it is without its lap, and by the lap.
    """

    def __init__(self, book: CodeBook, layouts: Layouts) -> None:
        self._book = book
        self._layouts = layouts
        self._programs: list[list[_Run]] = []
        # What was found, and its number by the code, the source, and the place or the task.
        self._all: list[_Found | _Composed] = []
        self._known: dict[Hashable, int] = {}
        self._inner: dict[Nest, list[tuple[Segment, list[_Inner]]]] = {}
        self._axes: dict[str, int] = {}

    def meet(self, program: Program) -> None:
        """Take in a program, after those before it."""
        if any(min(self._book.unit(unit).moving, default=0) < 0 for unit in program.units):
            self._programs.append([self._one_by_one(program)])
        else:
            self._programs.append([self._run(program, part) for part in program.segments])

    def _one_by_one(self, program: Program) -> _Run:
        """Return all transfers of a program of which some name no slice: these go on from each other."""
        newest: dict[str, int] = {}
        tensors: list[str] = []
        indices: list[Any] = []
        for (_, unit), made in zip(program.placed(), _pieces(program), strict=True):
            code = self._book.unit(unit)
            for number, traffic in zip(code.moving, code.traffics, strict=True):
                if number < 0:
                    unnamed = self._book.traffics[traffic]
                    tensors.append(unnamed.tensor.name)
                    indices.append(Sequential(*next_place(unnamed, newest)))
                else:
                    tensor, index = made[unit.on_gm[number]].gm
                    tensors.append(tensor.name)
                    indices.append(index)
        count = len(tensors)
        named = self._note(tuple(tensors), tuple(indices))
        return _Run(range(1), np.zeros(count, np.int64), np.arange(count, dtype=np.int32), [named], [0])

    def _run(self, program: Program, part: Segment) -> _Run:
        """Return the transfers of a segment."""
        named: list[int] = []
        laps: list[int] = []
        begins, source, slices = [], [NONE], [NONE]
        for step in program.steps[part.first : part.last]:
            layout = self._layouts.of(step.unit)
            begins.append(len(named))
            source.append(layout.source)
            slices.append(layout.slices)
            for at in layout.sources:
                number, lap = self._of_step(step, at)
                named.append(number)
                laps.append(lap + step.shift)
        of_steps = np.repeat(np.array(begins, np.int64), [len(one) for one in source[1:]])
        return _Run(part.shifts(), np.concatenate(source) + of_steps, np.concatenate(slices), named, laps)

    def _of_step(self, step: Step, source: int) -> tuple[int, int]:
        """Return the number of what a source of a step names, as if its lap were 0, and the lap."""
        unit, task, _, places, in_loop = step
        if isinstance(unit, Unit) and unit.aims is None:
            # As it is written.
            return self._find(unit, source, None, None), 0
        place = task if source == TASK else places[source]
        key, lap = told_apart(place) if in_loop else (place, 0)
        number = self._known.get((id(unit), source, key))
        if number is None:
            number = self._find(unit, source, key, moved(task, -lap) if lap else task)
        return number, lap

    def _find(self, unit: Unit | Nest, source: int, key: Hashable, task: Any) -> int:
        """Return the number of the slices of a source of some code, for a task."""
        known = id(unit), source, key
        number = self._known.get(known)
        if number is None:
            if isinstance(unit, Unit):
                number = self._of_unit(unit, source, task)
            else:
                number = self._of_nest(unit, source, key, task)
            self._known[known] = number
        return number

    def _of_unit(self, unit: Unit, source: int, task: Any) -> int:
        tensors: list[str] = []
        indices: list[Any] = []
        for number in self._book.unit(unit).moving:
            if unit.aims is None or unit.aims[number].place == source:
                tensor, index = unit.slice(number, task)
                tensors.append(tensor.name)
                indices.append(index)
        return self._note(tuple(tensors), tuple(indices))

    def _note(self, tensors: tuple[str, ...], indices: tuple[Any, ...]) -> int:
        for name, index in zip(tensors, indices, strict=True):
            if name not in self._axes and (axis := lap_axis(index)) >= 0:
                self._axes[name] = axis
        self._all.append(_Found(tensors, indices))
        return len(self._all) - 1

    def _of_nest(self, nest: Nest, source: int, key: Any, task: Any) -> int:
        segments = []
        for part, inner in self._inner_of(nest):
            made = []
            for unit, at, outer, of_task, rest, lap in inner:
                if outer == source:
                    own = (key, *rest) if rest else key
                    number = self._known.get((id(unit), at, own))
                    if number is None:
                        number = self._find(unit, at, own, of_task.within(task))
                    made.append((number, lap))
            if made:
                segments.append((part.shifts(), tuple(made)))
        # A block writes its output once, as it stands.
        match segments:
            case [(shifts, ((number, 0),))] if len(shifts) == 1 and shifts[0] == 0:
                return number
        self._all.append(_Composed(tuple(segments)))
        return len(self._all) - 1

    def _inner_of(self, nest: Nest) -> list[tuple[Segment, list[_Inner]]]:
        """Return the sources of the steps of a nest, segment by segment."""
        known = self._inner.get(nest)
        if known is None:
            steps = [
                [self._inner_source(nest, step, at) for at in self._layouts.of(step.unit).sources]
                for step in nest.steps
            ]
            known = self._inner[nest] = [
                (part, [one for of_step in steps[part.first : part.last] for one in of_step])
                for part in nest.segments
            ]
        return known

    def _inner_source(self, nest: Nest, step: Step, source: int) -> _Inner:
        part: Any = step.task
        outer = source_in(step, source, nest)
        rest: tuple[Any, ...] = part
        if source != TASK:
            place: Any = step.places[source]
            rest = () if place == nest.places[outer] else place[1:]
        rest, lap = told_apart(rest)
        return _Inner(step.unit, source, outer, moved(part, -lap), rest, lap + step.shift)

    def numbers(self) -> list[Numbers]:
        """Return for each program the number of the slice of every transfer, in program order."""
        known: dict[Hashable, int] = {}
        rows: list[NDArray[np.int64]] = []
        for found in self._all:
            rows.append(self._row(found, known) if isinstance(found, _Found) else _composed(found, rows))
        begins = np.cumsum([0, *[row.shape[1] for row in rows]])
        pool = np.concatenate([np.empty((3, 0), np.int64), *rows], axis=1)
        result = []
        for runs in self._programs:
            made = [np.empty((3, 0), np.int64)]
            for shifts, source, slices, named, laps in runs:
                once = pool[:, begins[np.array(named, np.int64)][source] + slices]
                once[1] += once[2] * np.array(laps, np.int64)[source]
                made.append(_rounds(once, shifts))
            result.append(np.concatenate(made, axis=1)[:2])
        most = 1 + max((int(found[1].max(initial=0)) for found in result), default=0)
        return [found[0] * most + found[1] for found in result]

    def _row(self, found: _Found, known: dict[Hashable, int]) -> NDArray[np.int64]:
        """Return three rows: slices without their laps by number, their laps, and which of them move."""
        row = np.zeros((3, len(found.tensors)), np.int64)
        for at, (name, index) in enumerate(zip(found.tensors, found.indices, strict=True)):
            axis = -1 if type(index) is Sequential else self._axes.get(name, -1)
            # A slice of several laps is no lap; what it has in common with others is not looked for anyway.
            if axis >= 0 and isinstance(index[axis], slice):
                axis = -1
            if axis >= 0:
                row[1, at] = int(index[axis])
                row[2, at] = type(index[axis]) is Lap
            key = name, *[None if place == axis else comparable(part) for place, part in enumerate(index)]
            row[0, at] = known.setdefault(key, len(known))
        return row


def _pieces(program: Program) -> Sequence[Sequence[Any]]:
    """Return all instructions in order, unit by unit."""
    made = program.instructions
    return [made[begin : begin + len(unit)] for begin, unit in program.placed()]


def _composed(composed: _Composed, rows: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Lay the rows of what a nest names end to end, loops and all."""
    made = [np.empty((3, 0), np.int64)]
    for shifts, named in composed.segments:
        parts = [rows[number] for number, _ in named]
        once = np.concatenate(parts, axis=1)
        once[1] += once[2] * np.repeat([lap for _, lap in named], [part.shape[1] for part in parts])
        made.append(_rounds(once, shifts))
    return np.concatenate(made, axis=1)


def _rounds(once: NDArray[np.int64], shifts: range) -> NDArray[np.int64]:
    """Lay the rows of one round end to end for all, with what moves moved."""
    if len(shifts) == 1 and shifts[0] == 0:
        return once
    made = np.tile(once, len(shifts))
    made[1] += np.outer(shifts, once[2]).ravel()
    return made
