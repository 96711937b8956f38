"""The transfers of a program in order, loops and all, and what the slice of each follows from."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ascendsim.program.loops.labels import place_in
from ascendsim.program.program import Program
from ascendsim.program.units import Nest, Step, Unit
from ascendsim.timing.fast.code import CodeBook
from ascendsim.timing.fast.ragged import numbers_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.int32]

# The slices of a source that is no place follow from the whole task.
TASK = -1
NONE = np.empty(0, np.int32)


class Layout(NamedTuple):
    """The transfers of a unit or a nest in order, loops unrolled.

    Of each the number of its traffic, its core, from which of `sources` its slice follows, and which of the
    slices of that source it is. A source is the number of a place of the step, or TASK; `counts` are the
    slices of each.
    """

    # Lists, as most have few transfers: a small array takes as long to make as a large one.
    traffics: list[int]
    cores: list[int]
    source: list[int]
    slices: list[int]
    sources: tuple[int, ...]
    counts: tuple[int, ...]


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
        return Layout(list(code.traffics), list(code.cores), source, slices, sources, tuple(counts.values()))

    def _of_nest(self, nest: Nest) -> Layout:
        """Lay those of its steps end to end; a source of a step is one of the nest's, or follows from one."""
        sources: dict[int, int] = {}
        counts: list[int] = []
        made = Layout([], [], [], [], (), ())
        for part in nest.segments:
            before, begin = counts.copy(), len(made.source)
            for step in nest.steps[part.first : part.last]:
                inner = self.of(step.unit)
                if inner.sources:
                    made.traffics.extend(inner.traffics)
                    made.cores.extend(inner.cores)
                    _place(step, inner, nest, sources, counts, made)
            # Each turn goes on where the one before it has ended, source by source.
            grown = [count - old for count, old in zip_longest(counts, before, fillvalue=0)]
            source, slices = made.source[begin:], made.slices[begin:]
            for turn in range(1, part.times):
                made.slices.extend([at + turn * grown[of] for of, at in zip(source, slices, strict=True)])
            for column in (made.traffics, made.cores, made.source):
                column.extend(column[begin:] * (part.times - 1))
            counts = [count + (part.times - 1) * each for count, each in zip(counts, grown, strict=True)]
        return made._replace(sources=tuple(sources), counts=tuple(counts))

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


def _place(
    step: Step, inner: Layout, nest: Nest, sources: dict[int, int], counts: list[int], made: Layout
) -> None:
    """Add to the layout of a nest of which source each transfer of a step is, and which slice of that.

    `sources` numbers those of the nest met so far; `counts` are the slices of each, which become more.
    """
    numbers, begins = [], []
    for source, count in zip(inner.sources, inner.counts, strict=True):
        number = sources.setdefault(source_in(step, source, nest), len(sources))
        if number == len(counts):
            counts.append(0)
        numbers.append(number)
        begins.append(counts[number])
        counts[number] += count
    made.source.extend([numbers[source] for source in inner.source])
    made.slices.extend([begins[of] + at for of, at in zip(inner.source, inner.slices, strict=True)])


def source_in(step: Step, source: int, nest: Nest) -> int:
    """Return the source of a nest that a source of one of its steps follows from."""
    return TASK if source == TASK else place_in(step.places[source], nest.places)
