"""The transfers of a program in order, loops and all, and what the slice of each follows from."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

from ascendsim.program.loops.labels import place_in
from ascendsim.program.loops.laps import told_apart
from ascendsim.program.units import Nest, Step, Unit
from ascendsim.timing.fast.code import CodeBook
from ascendsim.timing.fast.naming import TASK, Finder, Finders


class Layout(NamedTuple):
    """The transfers of a unit or a nest in order, loops unrolled.

    Of each the number of its traffic, its core, its source: the number of the place of the step from which
    its slice follows, or TASK; the number of its finder, and by how much its slice is moved if laps move it.
    """

    # Lists, as most have few transfers: a small array takes as long to make as a large one.
    traffics: list[int]
    cores: list[int]
    sources: list[int]
    finders: list[int]
    laps: list[int]


class Layouts:
    """The layouts of all code of a kernel, each worked out once."""

    def __init__(self, book: CodeBook) -> None:
        self._book = book
        self._known: dict[Unit | Nest, Layout] = {}
        self._finders = Finders()
        # How sources of steps follow from those of nests, by number.
        self._ways: dict[Hashable, int] = {}

    @property
    def finders(self) -> Sequence[Finder]:
        """How slices are found, by the numbers that layouts have."""
        return self._finders.made

    def of(self, code: Unit | Nest) -> Layout:
        """Return the layout of a unit or a nest."""
        known = self._known.get(code)
        if known is None:
            known = self._of_unit(code) if isinstance(code, Unit) else self._of_nest(code)
            self._known[code] = known
        return known

    def _of_unit(self, unit: Unit) -> Layout:
        code = self._book.unit(unit)
        sources = [TASK if unit.aims is None else unit.aims[at].place for at in code.moving]
        transfers = zip(code.moving, code.traffics, strict=True)
        finders = [self._finders.of_unit(unit, at, traffic) for at, traffic in transfers]
        return Layout(list(code.traffics), list(code.cores), sources, finders, [0] * len(sources))

    def _of_nest(self, nest: Nest) -> Layout:
        """Lay those of its steps end to end; the source of each is one of the nest's."""
        made = Layout([], [], [], [], [])
        for part in nest.segments:
            begin = len(made.laps)
            for step in nest.steps[part.first : part.last]:
                self._append(made, nest, step)
            once = made.laps[begin:]
            made.laps[begin:] = [lap + by for by in part.shifts() for lap in once]
            for column in made[:-1]:
                column.extend(column[begin:] * (part.times - 1))
        return made

    def _append(self, made: Layout, nest: Nest, step: Step) -> None:
        """Add the transfers of a step of a nest."""
        inner = self.of(step.unit)
        part: Any = step.task
        # By source of the step: that of the nest, the number of how it follows, and the lap.
        follows: dict[int, tuple[int, int, int]] = {}
        within = self._finders.within
        for source, finder, by in zip(inner.sources, inner.finders, inner.laps, strict=True):
            known = follows.get(source)
            if known is None:
                outer, rest, lap = _follows(nest, step, source)
                # A place that is the nest's own tells the slice whichever part of its task names it.
                way = -1 if part.kind is None and not rest else self._way(outer, rest)
                known = follows[source] = outer, way, lap
            outer, way, lap = known
            made.sources.append(outer)
            made.finders.append(finder if way < 0 else within(finder, way, part, lap))
            made.laps.append(lap + step.shift + by)
        made.traffics.extend(inner.traffics)
        made.cores.extend(inner.cores)

    def _way(self, outer: int, rest: tuple[Any, ...]) -> int:
        return self._ways.setdefault((outer == TASK, rest), len(self._ways))


def _follows(nest: Nest, step: Step, source: int) -> tuple[int, tuple[Any, ...], int]:
    """Return the source of a nest that one of its steps follows from, how its key goes on, and its lap."""
    part: Any = step.task
    if source == TASK:
        outer, rest = TASK, (*part, ())
    else:
        place: Any = step.places[source]
        # Among the places of the same ring: another one may have an equal place for other tiles.
        ring = step.unit.rings[source]
        own = [number for number, of in enumerate(nest.rings) if of == ring]
        at = place_in(place, tuple([nest.places[number] for number in own]))
        outer = own[at] if at >= 0 else TASK
        # A place that none of the nest's begins: what it names is known for this step of this task alone.
        rest = (*part, place) if outer == TASK else () if place == nest.places[outer] else place[1:]
    return (outer, *told_apart(rest)) if rest else (outer, rest, 0)
