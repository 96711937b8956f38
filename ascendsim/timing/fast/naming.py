"""How transfers find their slices of global memory.

A slice follows from the place of the tile that a transfer fills, or else from the whole task. So it is found
once for all tasks that name the place, and once for all rounds of a loop, which move it by laps.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

from ascendsim.program.loops.laps import moved
from ascendsim.program.units import Part, Unit

# A slice follows from the place of this number of its step, or from the whole task.
TASK = -1


class Finder(NamedTuple):
    """How a transfer finds its slice for a task: by number `at` of those on GM of a unit.

    `path` leads from the task to that of the unit, from the outer to the inner: parts, and their laps.
    """

    unit: Unit
    at: int
    path: tuple[tuple[Part, int], ...] = ()

    @property
    def tensor(self) -> str:
        """The name of its tensor."""
        return self.unit.tensor(self.at).name

    def slice(self, task: Any) -> tuple[Any, ...]:
        """Return the index of the slice for a task, as if all laps of the path were 0."""
        for part, lap in self.path:
            inner: Any = moved(part, -lap) if lap else part
            task = inner.within(task)
        return self.unit.slice(self.at, task).index


class Finders:
    """All finders of a kernel by their numbers: equal numbers find equal slices for equal places."""

    def __init__(self) -> None:
        self.made: list[Finder] = []
        self._known: dict[Hashable, int] = {}

    def of_unit(self, unit: Unit, at: int, traffic: int) -> int:
        """Return the number of how a transfer of a unit finds its slice for a task of this unit."""
        # A slice as it is written is that of its instruction alone.
        own: Hashable = unit, at
        key = own
        if unit.aims is not None and at >= 0:
            find, args, place = unit.aims[at]
            key = find, args, place == TASK, traffic
        try:
            return self._number(key, unit, at)
        except TypeError:
            # An argument cannot be hashed, such as a slice; then nobody knows whether another one equals it.
            return self._number(own, unit, at)

    def _number(self, key: Hashable, unit: Unit, at: int) -> int:
        number = self._known.setdefault(key, len(self.made))
        if number == len(self.made):
            self.made.append(Finder(unit, at))
        return number

    def within(self, inner: int, way: int, part: Part, lap: int) -> int:
        """Return the number of how a transfer of a part of a task finds its slice for that task.

        inner   the number of how it finds it for the part, which has this lap
        way     tells how its place, or its task, goes on from that of the whole
        """
        number = self._known.setdefault((inner, way), len(self.made))
        if number == len(self.made):
            found = self.made[inner]
            self.made.append(found._replace(path=((part, lap), *found.path)))
        return number
