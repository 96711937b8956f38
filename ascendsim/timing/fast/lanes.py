"""The slices of global memory that the transfers of a phase name, by numbers, for the account of L2.

What is done for each transfer is done by numpy; each slice is found once (`naming.py`).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ascendsim.program.loops.laps import Lap, moved, named, told_apart
from ascendsim.program.program import Program
from ascendsim.program.units import Unit
from ascendsim.timing.fast.code import CodeBook
from ascendsim.timing.fast.laid import Laid
from ascendsim.timing.fast.layouts import Layouts
from ascendsim.timing.fast.naming import TASK
from ascendsim.timing.l2.lanes import next_place

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]


class Sequential(NamedTuple):
    """The place of a transfer that names no slice."""

    begin: int
    bytes: int


class Slice(NamedTuple):
    """A slice of a tensor, as if its lap were 0; without an index where nobody asks which one it is."""

    tensor: str
    index: tuple[Any, ...]  # type: ignore[assignment]  # hides tuple.index


class _Keys(NamedTuple):
    """What tells places and tasks apart, by numbers: equal ones are the same but for their laps.

    For each step `numbers` has those of its places, then that of its task; `laps` are by how much they are
    moved, and `begins` says where those of each step begin.
    """

    numbers: Numbers
    laps: Numbers
    begins: Numbers


class SliceBook:
    """Numbers the slices of GM that the programs of a phase name.

    Loops move slices by laps: a slice is known by what it is without its lap, and by the lap. `asked` are
    the tensors of which slices are told apart, None: all; all transfers of another one have one number.
    """

    def __init__(
        self, book: CodeBook, layouts: Layouts, laid: Laid, asked: frozenset[str] | None = None
    ) -> None:
        self._book = book
        self._layouts = layouts
        self._laid = laid
        self._slices: list[Slice] = []
        # Of each traffic whether slices of its tensor are told apart.
        names = [traffic.tensor.name for traffic in book.traffics]
        self._told_apart = np.array([asked is None or name in asked for name in names], np.bool_)

    def numbers(self) -> list[Numbers]:
        """Return for each program the number of the slice of every transfer, in program order."""
        alone = {at for at, program in enumerate(self._laid.programs) if self._goes_on(program)}
        laid = self._laid
        if alone:
            others = [program for at, program in enumerate(laid.programs) if at not in alone]
            laid = Laid(self._layouts, others)
        one_by_one = {at: self._one_by_one(self._laid.programs[at]) for at in sorted(alone)}
        slices, by = self._of_steps(laid)
        numbers, laps, moves = _told(self._slices)
        by = laps[slices] + moves[slices] * by
        shifts = 0 if laid.shifts is None else laid.shifts
        most = 1 + max(0, int(laps.max(initial=0)), int(by.max(initial=0))) + int(np.max(shifts, initial=0))
        made: Numbers = (numbers[slices] * most + by)[laid.at]
        if laid.shifts is not None:
            made += moves[slices][laid.at] * laid.shifts
        usual = iter(laid.each(made))
        return [
            numbers[one_by_one[at]] * most + laps[one_by_one[at]] if at in alone else next(usual)
            for at in range(len(self._laid.programs))
        ]

    def _goes_on(self, program: Program) -> bool:
        """Tell whether some transfers of a program name no slice: these go on from each other."""
        return self._book.unnamed and any(
            min(self._book.unit(unit).moving, default=0) < 0 for unit in program.units
        )

    def _one_by_one(self, program: Program) -> list[int]:
        """Return the slices of all transfers of a program, of which some go on from each other."""
        newest: dict[str, int] = {}
        slices = []
        made: Sequence[Any] = program.instructions
        for begin, unit in program.placed():
            code = self._book.unit(unit)
            for number, traffic in zip(code.moving, code.traffics, strict=True):
                if number < 0:
                    unnamed = self._book.traffics[traffic]
                    slice_ = Slice(unnamed.tensor.name, Sequential(*next_place(unnamed, newest)))
                else:
                    tensor, index = made[begin + unit.on_gm[number]].gm
                    slice_ = Slice(tensor.name, index)
                slices.append(self._numbered(slice_))
        return slices

    def _numbered(self, slice_: Slice) -> int:
        self._slices.append(slice_)
        return len(self._slices) - 1

    def _of_steps(self, laid: Laid) -> tuple[Numbers, Numbers]:
        """Return for each transfer of the distinct steps its slice, and by how much that is moved."""
        traffics, _, sources, finders, laps = laid.columns
        # A tensor as a whole stands for each of its slices.
        wholes = [self._numbered(Slice(each.tensor.name, ())) for each in self._book.traffics]
        slices, by = np.array(wholes, np.int64)[traffics], np.zeros(len(traffics), np.int64)
        told = np.flatnonzero(self._told_apart[traffics])
        if not len(told):
            return slices, by
        sources, steps = sources[told], np.repeat(np.arange(len(laid.counts)), laid.counts)[told]
        keys = _keys(laid, tasks=bool((sources == TASK).any()))
        # The task stands behind the places.
        at = keys.begins[steps + (sources == TASK)] + sources
        finds = self._layouts.finders
        kinds, same = np.unique(keys.numbers[at] * len(finds) + finders[told], return_inverse=True)
        # Of each kind any of its transfers.
        some = np.empty(len(kinds), np.int64)
        some[same] = np.arange(len(told))
        numbers = []
        for number, step, lap in zip(
            kinds.tolist(), steps[some].tolist(), keys.laps[at[some]].tolist(), strict=True
        ):
            find, task = finds[number % len(finds)], laid.steps[step].task
            index = find.slice(moved(task, -lap) if lap else task)
            numbers.append(self._numbered(Slice(find.tensor, index)))
        slices[told] = np.array(numbers, np.int64)[same]
        shifts = np.array([step.shift for step in laid.steps], np.int64)
        by[told] = laps[told] + keys.laps[at] + shifts[steps]
        return slices, by


def _told(slices: Sequence[Slice]) -> NDArray[np.int64]:
    """Return three rows: of each slice its number without its lap, its lap, and whether loops move it."""
    axes: dict[str, int] = {}
    for name, index in slices:
        if name not in axes and (axis := named(index)) >= 0:
            axes[name] = axis
    known: dict[Hashable, int] = {}
    told = []
    for name, index in slices:
        axis = axes.get(name, -1) if index and type(index) is not Sequential else -1
        # A slice of several laps is no lap; what it has in common with others is not looked for anyway.
        if axis >= 0 and isinstance(index[axis], slice):
            axis = -1
        # As `comparable` does: a call for each part would be what is slow.
        key = [name, *[(p.start, p.stop, p.step) if type(p) is slice else p for p in index]]
        lap, moves = 0, False
        if axis >= 0:
            lap, moves, key[1 + axis] = int(index[axis]), type(index[axis]) is Lap, None
        told.append((known.setdefault(tuple(key), len(known)), lap, moves))
    return np.array(told, np.int64).reshape(-1, 3).T


def _keys(laid: Laid, *, tasks: bool) -> _Keys:
    """Return the keys of the places of distinct steps, and of their tasks if somebody asks for these."""
    known: dict[Hashable, int] = {None: 0}
    numbers: list[int] = []
    laps: list[int] = []
    told: dict[int, tuple[Any, int]] = {}
    for unit, task, _, places, in_loop, _ in laid.steps:
        # What is as it is written follows from no task.
        written = not tasks or (isinstance(unit, Unit) and unit.aims is None)
        own = (*places, None if written else task)
        if not in_loop:
            numbers += [known.setdefault(place, len(known)) for place in own]
            laps += [0] * len(own)
            continue
        for place in own:
            # By identity, as a lap equals a number.
            if id(place) not in told:
                told[id(place)] = told_apart(place)
            key, lap = told[id(place)]
            numbers.append(known.setdefault(key, len(known)))
            laps.append(lap)
    begins = np.cumsum([0, *[1 + len(step.places) for step in laid.steps]])
    return _Keys(np.array(numbers, np.int64), np.array(laps, np.int64), begins)
