"""Which slices of global memory the steps of programs name, each found once.

A slice follows from a source (`layouts.py`): the place of the tile that it fills, or else the whole task. So
it is found once for all tasks that name the place, in whichever units, and once for all rounds of a loop,
which move it by laps.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from itertools import chain
from typing import Any, NamedTuple

from ascendsim.program.loops.laps import moved, named, told_apart
from ascendsim.program.units import Nest, Step, Unit
from ascendsim.timing.fast.code import CodeBook
from ascendsim.timing.fast.layouts import TASK, Layouts

# Slices of one source of a unit, found for one place or task: their numbers.
Found = tuple[int, ...]


class Slice(NamedTuple):
    """A slice of a tensor, as if its lap were 0; without an index where nobody asks which one it is."""

    tensor: str
    index: tuple[Any, ...]  # type: ignore[assignment]  # hides tuple.index


class Namer:
    """Finds what steps name: `found` in order, so that a nest is composed of what stands before it.

    What is found of a unit are numbers of `slices`. `asked` are the tensors of which these are told apart,
    None: all; another one stands for each slice of it. `axes` has for each tensor the axis of its index that
    laps name, if any do.
    """

    def __init__(self, book: CodeBook, layouts: Layouts, asked: frozenset[str] | None = None) -> None:
        self._book = book
        self._asked = asked
        self._layouts = layouts
        self.found: list[Found] = []
        self.slices: list[Slice] = []
        self.axes: dict[str, int] = {}
        # Numbers of what was found, by the code, the source, and the key of the place or the task.
        self._known: dict[Hashable, int] = {}
        # Numbers of slices, by the number of the aim and the key. Of each unit and source its transfers, each
        # by its place among the instructions on GM, and their aims.
        self._sliced: dict[tuple[int, Hashable], int] = {}
        self._aims: dict[Hashable, int] = {}
        self._aimed: dict[tuple[Unit, int], list[tuple[int, int]]] = {}
        self._told: dict[int, tuple[Any, tuple[Any, int]]] = {}

    def of_step(self, step: Step, source: int) -> tuple[int, int]:
        """Return the number of what a source of a step names, as if its lap were 0, and the lap."""
        unit, task, _, places, in_loop, _ = step
        if isinstance(unit, Unit) and unit.aims is None:
            # As it is written.
            return self._find(unit, source, None, None), 0
        place = task if source == TASK else places[source]
        key, lap = self._told_apart(place) if in_loop else (place, 0)
        number = self._known.get((id(unit), source, key))
        if number is None:
            number = self._find(unit, source, key, moved(task, -lap) if lap else task)
        return number, lap

    def _told_apart(self, place: Any) -> tuple[Any, int]:
        """Return the key of a place and its lap, once for all programs that share the loop it stands in."""
        # By identity, as a lap equals a number; what is known is kept alive.
        known = self._told.get(id(place))
        if known is None:
            known = self._told[id(place)] = (place, told_apart(place))
        return known[1]

    def note(self, slices: Iterable[Slice]) -> int:
        """Add slices to what was found; return its number."""
        return self._add(tuple(map(self._numbered, slices)))

    def _numbered(self, slice_: Slice) -> int:
        """Append a slice; return its number."""
        name, index = slice_
        if name not in self.axes and (axis := named(index)) >= 0:
            self.axes[name] = axis
        self.slices.append(slice_)
        return len(self.slices) - 1

    def _add(self, found: Found) -> int:
        self.found.append(found)
        return len(self.found) - 1

    def _find(self, unit: Unit | Nest, source: int, key: Hashable, task: Any) -> int:
        """Return the number of the slices of a source of some code, for a task."""
        known = id(unit), source, key
        number = self._known.get(known)
        if number is None:
            if isinstance(unit, Unit):
                number = self._add(self._of_unit(unit, source, key, task))
            else:
                number = self._of_nest(unit, source, key, task)
            self._known[known] = number
        return number

    def _of_unit(self, unit: Unit, source: int, key: Hashable, task: Any) -> Found:
        numbers = []
        for at, aim in self._aimed_of(unit, source):
            number = self._sliced.get((aim, key))
            if number is None:
                number = self._sliced[aim, key] = self._numbered(self._slice(unit, at, task))
            numbers.append(number)
        return tuple(numbers)

    def _slice(self, unit: Unit, at: int, task: Any) -> Slice:
        name = unit.tensor(at).name
        return Slice(name, unit.slice(at, task).index if self._asked is None or name in self._asked else ())

    def _aimed_of(self, unit: Unit, source: int) -> list[tuple[int, int]]:
        """Return the transfers of a source of a unit: their places among those on GM, and their aims."""
        known = self._aimed.get((unit, source))
        if known is None:
            code, aims = self._book.unit(unit), unit.aims
            known = self._aimed[unit, source] = [
                (at, self._aim(unit, at, traffic))
                for at, traffic in zip(code.moving, code.traffics, strict=True)
                if aims is None or aims[at].place == source
            ]
        return known

    def _aim(self, unit: Unit, at: int, traffic: int) -> int:
        """Return the number of how a transfer of some unit finds its slice."""
        # A slice as it is written is that of its instruction alone.
        own: Hashable = unit, at
        aim = own if unit.aims is None else (*unit.aims[at][:2], traffic)
        try:
            return self._aims.setdefault(aim, len(self._aims))
        except TypeError:
            # An argument cannot be hashed, such as a slice; then nobody knows whether another one equals it.
            return self._aims.setdefault(own, len(self._aims))

    def _of_nest(self, nest: Nest, source: int, key: Any, task: Any) -> int:
        numbers = []
        for unit, at, part, rest, lap in self._layouts.of(nest).inner[source]:
            own = (key, *rest) if rest else key
            number = self._known.get((id(unit), at, own))
            if number is None:
                of_task = moved(part, -lap) if lap else part
                number = self._find(unit, at, own, of_task.within(task))
            numbers.append(number)
        if len(numbers) == 1:
            return numbers[0]
        return self._add(tuple(chain.from_iterable([self.found[number] for number in numbers])))
