"""The transfers of a program in order, loops and all, and what the slice of each follows from."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ascendsim.program.loops.labels import place_in
from ascendsim.program.loops.laps import told_apart
from ascendsim.program.program import Program
from ascendsim.program.units import Nest, Part, Step, Unit
from ascendsim.timing.fast.code import CodeBook
from ascendsim.timing.fast.ragged import numbers_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.int32]

# The slices of a source that is no place follow from the whole task.
TASK = -1
NONE = np.empty(0, np.int32)


class Inner(NamedTuple):
    """A source of a step of a nest, and how it follows from one of the nest's.

    `rest` is how the key of the source goes on from the nest's; `lap` is the lap of the task itself.
    """

    unit: Unit | Nest
    source: int
    task: Part
    rest: tuple[Any, ...]
    lap: int


class Layout(NamedTuple):
    """The transfers of a unit or a nest in order, loops unrolled.

    Of each the number of its traffic, its core, from which of `sources` its slice follows, which of the
    slices of that source it is, and by how much that is moved if laps move it. A source is the number of a
    place of the step, or TASK; `counts` are the slices of each, those of all rounds of a loop as one. In a
    nest they are the slices of its `inner` sources, one after the other.
    """

    # Lists, as most have few transfers: a small array takes as long to make as a large one.
    traffics: list[int]
    cores: list[int]
    source: list[int]
    slices: list[int]
    laps: list[int]
    sources: tuple[int, ...]
    counts: tuple[int, ...]
    inner: dict[int, list[Inner]]


class Layouts:
    """The layouts of all code of a kernel, each worked out once."""

    def __init__(self, book: CodeBook) -> None:
        self._book = book
        self._known: dict[Unit | Nest, Layout] = {}
        self._traffics: dict[Program, Numbers] = {}

    def of(self, code: Unit | Nest) -> Layout:
        """Return the layout of a unit or a nest."""
        known = self._known.get(code)
        if known is None:
            known = self._of_unit(code) if isinstance(code, Unit) else self._of_nest(code)
            self._known[code] = known
        return known

    def _of_unit(self, unit: Unit) -> Layout:
        code = self._book.unit(unit)
        found = [TASK if unit.aims is None else unit.aims[at].place for at in code.moving]
        sources = tuple(dict.fromkeys(found))
        counts = dict.fromkeys(sources, 0)
        slices = []
        for place in found:
            slices.append(counts[place])
            counts[place] += 1
        source = [sources.index(place) for place in found]
        laps = [0] * len(source)
        columns = list(code.traffics), list(code.cores), source, slices, laps
        return Layout(*columns, sources, tuple(counts.values()), {})

    def _of_nest(self, nest: Nest) -> Layout:
        """Lay those of its steps end to end; a source of a step is one of the nest's, or follows from one."""
        made = _Nest(nest)
        for part in nest.segments:
            begin = len(made.laps)
            for step in nest.steps[part.first : part.last]:
                inner = self.of(step.unit)
                if inner.sources:
                    made.append(step, inner)
            once = made.laps[begin:]
            made.laps[begin:] = [lap + by for by in part.shifts() for lap in once]
            for column in (made.traffics, made.cores, made.source, made.slices):
                column.extend(column[begin:] * (part.times - 1))
        columns = made.traffics, made.cores, made.source, made.slices, made.laps
        return Layout(*columns, tuple(made.inner), tuple(made.counts), made.inner)

    def traffics(self, program: Program) -> Numbers:
        """Return the number of the traffic of every transfer, in program order."""
        known = self._traffics.get(program)
        if known is None:
            known = self._traffics[program] = self._end_to_end(program, lambda layout: layout.traffics)
        return known

    def cores(self, program: Program) -> Numbers:
        """Return the core of the program that each transfer belongs to, in program order."""
        if len(program.sizes) == 1:
            return np.zeros(len(self.traffics(program)), np.int32)
        return self._end_to_end(program, lambda layout: layout.cores)

    def _end_to_end(self, program: Program, column: Callable[[Layout], list[int]]) -> Numbers:
        """Lay a number of each transfer of the steps end to end, loops and all."""
        # Steps are many, and their codes few.
        codes = [step.unit for step in program.steps]
        numbers = {code: number for number, code in enumerate(dict.fromkeys(codes))}
        columns = [column(self.of(code)) for code in numbers]
        flat = np.array(list(chain.from_iterable(columns)), np.int32)
        sizes = np.array([len(each) for each in columns], np.int64)
        firsts = np.cumsum(sizes) - sizes
        of_steps = np.array([numbers[code] for code in codes], np.int64)
        made = [NONE]
        for part in program.segments:
            own = of_steps[part.first : part.last]
            made.append(np.tile(flat[numbers_of(firsts[own], sizes[own])], part.times))
        return np.concatenate(made)


class _Nest:
    """The layout of a nest while it is made: the columns of its transfers, and its sources."""

    def __init__(self, nest: Nest) -> None:
        self._nest = nest
        self.traffics: list[int] = []
        self.cores: list[int] = []
        self.source: list[int] = []
        self.slices: list[int] = []
        self.laps: list[int] = []
        self.inner: dict[int, list[Inner]] = {}
        self.counts: list[int] = []
        # Of each source of the nest its number; of each inner one where its slices begin there.
        self._numbers: dict[int, int] = {}
        self._begins: dict[Hashable, int] = {}

    def append(self, step: Step, inner: Layout) -> None:
        """Add the transfers of a step."""
        numbers, begins, laps = [], [], []
        for source, count in zip(inner.sources, inner.counts, strict=True):
            outer = source_in(step, source, self._nest)
            number = self._numbers.setdefault(outer, len(self._numbers))
            if number == len(self.counts):
                self.counts.append(0)
                self.inner[outer] = []
            found, lap = _inner_source(self._nest, step, source, outer)
            # What follows from the nest's place or task alike is one, whichever round or step names it.
            known = outer, id(step.unit), source, found.rest
            begin = self._begins.get(known)
            if begin is None:
                begin = self._begins[known] = self.counts[number]
                self.counts[number] += count
                self.inner[outer].append(found)
            numbers.append(number)
            begins.append(begin)
            laps.append(lap)
        self.traffics.extend(inner.traffics)
        self.cores.extend(inner.cores)
        self.source.extend([numbers[of] for of in inner.source])
        self.slices.extend([begins[of] + at for of, at in zip(inner.source, inner.slices, strict=True)])
        self.laps.extend([laps[of] + by for of, by in zip(inner.source, inner.laps, strict=True)])


def _inner_source(nest: Nest, step: Step, source: int, outer: int) -> tuple[Inner, int]:
    """Return how a source of a step follows from one of the nest's, and the lap by which that is moved."""
    part: Any = step.task
    place: Any = () if source == TASK else step.places[source]
    if outer == TASK:
        # A place that none of the nest's begins: what it names is known for this step of this task alone.
        rest: tuple[Any, ...] = (*part, place)
    else:
        rest = () if place == nest.places[outer] else place[1:]
    if not rest:
        return Inner(step.unit, source, part, rest, 0), step.shift
    rest, lap = told_apart(rest)
    return Inner(step.unit, source, part, rest, lap), lap + step.shift


def source_in(step: Step, source: int, nest: Nest) -> int:
    """Return the source of a nest that a source of one of its steps follows from."""
    return TASK if source == TASK else place_in(step.places[source], nest.places)
