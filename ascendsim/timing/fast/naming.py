"""Which slices of global memory the steps of programs name, each found once.

A slice follows from a source (`layouts.py`): the place of the tile that it fills, or else the whole task. So
it is found once for all tasks that name the place, and once for all rounds of a loop, which move it by laps.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

from ascendsim.program.loops.laps import moved, named, told_apart
from ascendsim.program.units import Nest, Part, Step, Unit
from ascendsim.timing.fast.code import CodeBook
from ascendsim.timing.fast.layouts import TASK, Layouts, source_in


class Found(NamedTuple):
    """Slices of one source of a unit, found for one place or task: tensors and indices."""

    tensors: tuple[str, ...]
    indices: tuple[Any, ...]


class Composed(NamedTuple):
    """Slices of one source of a nest: for each segment its shifts, and numbers and laps of what it names."""

    segments: tuple[tuple[range, tuple[tuple[int, int], ...]], ...]


class _Inner(NamedTuple):
    """A source of a step of a nest, and how it follows from one of the nest's.

    `rest` is how the key of the source goes on from the nest's; `own` is the lap of the task itself, `lap`
    the one by which what it names is moved.
    """

    unit: Unit | Nest
    source: int
    task: Part
    rest: tuple[Any, ...]
    own: int
    lap: int


class Namer:
    """Finds what steps name: `found` in order, so that a nest is composed of what stands before it.

    `asked` are the tensors of which slices are told apart, None: all; another one stands for each slice of
    it. `axes` has for each tensor the axis of its index that laps name, if any do.
    """

    def __init__(self, book: CodeBook, layouts: Layouts, asked: frozenset[str] | None = None) -> None:
        self._book = book
        self._asked = asked
        self._layouts = layouts
        self.found: list[Found | Composed] = []
        self.axes: dict[str, int] = {}
        # Numbers of what was found, by the code, the source, and the key of the place or the task.
        self._known: dict[Hashable, int] = {}
        self._told: dict[int, tuple[Any, tuple[Any, int]]] = {}
        self._inner: dict[Nest, dict[int, list[tuple[range, list[_Inner]]]]] = {}

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

    def note(self, tensors: tuple[str, ...], indices: tuple[Any, ...]) -> int:
        """Add slices to what was found; return its number."""
        for name, index in zip(tensors, indices, strict=True):
            if name not in self.axes and (axis := named(index)) >= 0:
                self.axes[name] = axis
        return self._add(Found(tensors, indices))

    def _add(self, found: Found | Composed) -> int:
        self.found.append(found)
        return len(self.found) - 1

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
        numbers = [
            number
            for number in self._book.unit(unit).moving
            if unit.aims is None or unit.aims[number].place == source
        ]
        names = tuple([unit.tensor(number).name for number in numbers])
        indices = [
            unit.slice(number, task).index if self._asked is None or name in self._asked else ()
            for number, name in zip(numbers, names, strict=True)
        ]
        return self.note(names, tuple(indices))

    def _of_nest(self, nest: Nest, source: int, key: Any, task: Any) -> int:
        segments = []
        for shifts, inner in self._inner_of(nest)[source]:
            made = []
            for unit, at, part, rest, begin, lap in inner:
                own = (key, *rest) if rest else key
                number = self._known.get((id(unit), at, own))
                if number is None:
                    of_task = moved(part, -begin) if begin else part
                    number = self._find(unit, at, own, of_task.within(task))
                made.append((number, lap))
            segments.append((shifts, tuple(made)))
        # A block writes its output once, as it stands.
        match segments:
            case [(shifts, ((number, 0),))] if len(shifts) == 1 and shifts[0] == 0:
                return number
        return self._add(Composed(tuple(segments)))

    def _inner_of(self, nest: Nest) -> dict[int, list[tuple[range, list[_Inner]]]]:
        """Return which sources of its steps follow from each source of a nest, segment by segment."""
        known = self._inner.get(nest)
        if known is None:
            known = self._inner[nest] = {source: [] for source in self._layouts.of(nest).sources}
            for part in nest.segments:
                found: dict[int, list[_Inner]] = {}
                for step in nest.steps[part.first : part.last]:
                    for at in self._layouts.of(step.unit).sources:
                        outer = source_in(step, at, nest)
                        found.setdefault(outer, []).append(_inner_source(nest, step, at, outer))
                for outer, inner in found.items():
                    known[outer].append((part.shifts(), inner))
        return known


def _inner_source(nest: Nest, step: Step, source: int, outer: int) -> _Inner:
    part: Any = step.task
    place: Any = () if source == TASK else step.places[source]
    if outer == TASK:
        # A place that none of the nest's begins: what it names is known for this step of this task alone.
        rest: tuple[Any, ...] = (*part, place)
    else:
        rest = () if place == nest.places[outer] else place[1:]
    if not rest:
        return _Inner(step.unit, source, part, rest, 0, step.shift)
    rest, lap = told_apart(rest)
    return _Inner(step.unit, source, part, rest, lap, lap + step.shift)
