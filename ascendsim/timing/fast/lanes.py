"""The transfers of a program for the account of L2: which slice each names, loops and all, by numbers."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ascendsim.program.laps import Lap, first_lap, moved
from ascendsim.program.laps import named as lap_axis
from ascendsim.program.program import Program
from ascendsim.program.units import Segment, Unit
from ascendsim.timing.fast.code import CodeBook
from ascendsim.timing.l2.lanes import comparable, next_place

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]


def traffics_of(program: Program, book: CodeBook) -> NDArray[np.int32]:
    """Return the number of the traffic of every transfer, in program order."""
    return _of_transfers(program, lambda unit: book.unit(unit).traffics)


def cores_of(program: Program, book: CodeBook) -> NDArray[np.int32]:
    """Return the core of the program that each transfer belongs to, in program order."""
    return _of_transfers(program, lambda unit: book.unit(unit).cores)


def _of_transfers(program: Program, of_unit: Callable[[Unit], Sequence[int]]) -> NDArray[np.int32]:
    """Lay a number of each transfer of the units end to end, loops and all."""
    made = [np.empty(0, np.int32)]
    for part in program.segments:
        once: list[int] = []
        for step in program.steps[part.first : part.last]:
            once.extend(of_unit(step.unit))
        made.append(np.tile(np.array(once, np.int32), part.times))
    return np.concatenate(made)


# Which of the three rows of a slice is its lap.
LAP = np.array([[0], [1], [0]], np.int64)


class Sequential(NamedTuple):
    """The place of a transfer that names no slice."""

    begin: int
    bytes: int


class _Named(NamedTuple):
    """The slices that a unit names for a task: tensor and index of each transfer that moves bytes."""

    tensors: tuple[str, ...]
    indices: tuple[Any, ...]


class SliceBook:
    """Numbers the slices of GM that the programs of a phase name.

    Loops move slices by laps: a slice is known by what it is without its lap, and by the lap.
    """

    def __init__(self, book: CodeBook) -> None:
        self._book = book
        self._programs: list[list[tuple[range, list[_Named], list[int]]]] = []
        # Programs share steps, and most tasks differ by their lap alone, so most slices are found once. By
        # identity, which is fast, and by the task without its lap. What an identity is of is kept.
        self._met: dict[tuple[int, int], tuple[_Named, int, Any]] = {}
        self._named: dict[tuple[int, Hashable], _Named] = {}
        self._axes: dict[str, int] = {}

    def meet(self, program: Program) -> None:
        """Take in a program, after those before it."""
        newest: dict[str, int] = {}
        met = []
        for part in program.segments:
            # A transfer that names no slice goes on from where the one before it ended, round by round.
            for shifts in self._rounds(program, part):
                named, own = [], []
                for unit, task, shift in program.steps[part.first : part.last]:
                    found, lap = self._slices(unit, task, newest)
                    if found.tensors:
                        named.append(found)
                        own.append(shift + lap)
                met.append((shifts, named, own))
        self._programs.append(met)

    def _rounds(self, program: Program, part: Segment) -> list[range]:
        shifts = part.shifts()
        steps = program.steps[part.first : part.last]
        if all(min(self._book.unit(step.unit).moving, default=0) >= 0 for step in steps):
            return [shifts]
        return [range(shift, shift + 1) for shift in shifts]

    def _slices(self, unit: Unit, task: Any, newest: dict[str, int]) -> tuple[_Named, int]:
        """Return the slices of a step as its task names them at lap 0, and its lap."""
        if min(self._book.unit(unit).moving, default=0) < 0:
            return self._found(unit, task, newest), 0
        met = self._met.get((id(unit), id(task)))
        if met is None:
            lap = int(first_lap(task) or 0)
            bare = moved(task, -lap)
            found = self._named.get((id(unit), bare))
            if found is None:
                found = self._named[id(unit), bare] = self._found(unit, bare, newest)
            met = self._met[id(unit), id(task)] = found, lap, task
        return met[:2]

    def _found(self, unit: Unit, task: Any, newest: dict[str, int]) -> _Named:
        """Find the slices of a unit for a task."""
        code = self._book.unit(unit)
        tensors: list[str] = []
        indices: list[Any] = []
        places = list(unit.slices(task)) if code.moving else []
        for number, traffic in zip(code.moving, code.traffics, strict=True):
            if number < 0:
                unnamed = self._book.traffics[traffic]
                tensors.append(unnamed.tensor.name)
                indices.append(Sequential(*next_place(unnamed, newest)))
                continue
            tensor, index = places[number]
            tensors.append(tensor.name)
            indices.append(index)
            if tensor.name not in self._axes and (axis := lap_axis(index)) >= 0:
                self._axes[tensor.name] = axis
        return _Named(tuple(tensors), tuple(indices))

    def numbers(self) -> list[Numbers]:
        """Return for each program the number of the slice of every transfer, in program order."""
        known: dict[Hashable, int] = {}
        rows: dict[int, NDArray[np.int64]] = {}
        result = []
        for met in self._programs:
            made = [np.empty((3, 0), np.int64)]
            for shifts, named, own in met:
                parts = []
                for found in named:
                    row = rows.get(id(found))
                    if row is None:
                        row = rows[id(found)] = self._row(found, known)
                    parts.append(row)
                if parts:
                    once = np.concatenate(parts, axis=1)
                    once[1] += once[2] * np.repeat(own, [part.shape[1] for part in parts])
                    made += [once + once[2] * shift * LAP for shift in shifts]
            result.append(np.concatenate(made, axis=1)[:2])
        laps = 1 + max((int(found[1].max(initial=0)) for found in result), default=0)
        return [found[0] * laps + found[1] for found in result]

    def _row(self, found: _Named, known: dict[Hashable, int]) -> NDArray[np.int64]:
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
