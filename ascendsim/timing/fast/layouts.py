"""The transfers of a program in order, loops and all, and what the slice of each follows from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ascendsim.program.loops.rings import place_in
from ascendsim.program.program import Program
from ascendsim.program.units import Nest, Step, Unit
from ascendsim.timing.fast.code import CodeBook

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

    traffics: Numbers
    cores: Numbers
    source: Numbers
    slices: Numbers
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
        for source in found:
            slices.append(counts[source])
            counts[source] += 1
        return Layout(
            np.array(code.traffics, np.int32),
            np.array(code.cores, np.int32),
            np.array([sources.index(source) for source in found], np.int32),
            np.array(slices, np.int32),
            sources,
            tuple(counts.values()),
        )

    def _of_nest(self, nest: Nest) -> Layout:
        """Lay those of its steps end to end; a source of a step is one of the nest's, or follows from one."""
        sources: dict[int, int] = {}
        counts: list[int] = []
        made: list[tuple[Numbers, ...]] = [(NONE,) * 4]
        for part in nest.segments:
            before = np.array(counts, np.int32)
            once = [(NONE,) * 4]
            for step in nest.steps[part.first : part.last]:
                inner = self.of(step.unit)
                if inner.sources:
                    once.append((inner.traffics, inner.cores, *_placed(step, inner, nest, sources, counts)))
            columns = [np.concatenate(column) for column in zip(*once, strict=True)]
            # Each turn goes on where the one before it has ended, source by source.
            grown = np.array(counts, np.int32)
            grown[: len(before)] -= before
            made.append(tuple(columns))
            made += [(*columns[:3], columns[3] + turn * grown[columns[2]]) for turn in range(1, part.times)]
            for number, each in enumerate(grown.tolist()):
                counts[number] += (part.times - 1) * each
        whole = [np.concatenate(column) for column in zip(*made, strict=True)]
        return Layout(whole[0], whole[1], whole[2], whole[3], tuple(sources), tuple(counts))

    def traffics(self, program: Program) -> Numbers:
        """Return the number of the traffic of every transfer, in program order."""
        known = self._traffics.get(program)
        if known is None:
            found = [self.of(step.unit).traffics for step in program.steps]
            known = self._traffics[program] = _end_to_end(program, found)
        return known

    def cores(self, program: Program) -> Numbers:
        """Return the core of the program that each transfer belongs to, in program order."""
        if len(program.sizes) == 1:
            return np.zeros(len(self.traffics(program)), np.int32)
        return _end_to_end(program, [self.of(step.unit).cores for step in program.steps])


def _placed(
    step: Step, inner: Layout, nest: Nest, sources: dict[int, int], counts: list[int]
) -> tuple[Numbers, Numbers]:
    """Return the source, in a nest, of each transfer of a step, and which slice of that it is.

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
    if len(numbers) == 1:
        return inner.source + np.int32(numbers[0]), inner.slices + np.int32(begins[0])
    return np.array(numbers, np.int32)[inner.source], np.array(begins, np.int32)[inner.source] + inner.slices


def source_in(step: Step, source: int, nest: Nest) -> int:
    """Return the source of a nest that a source of one of its steps follows from."""
    return TASK if source == TASK else place_in(step.places[source], nest.places)


def _end_to_end(program: Program, of_steps: Sequence[Numbers]) -> Numbers:
    """Lay a number of each transfer of the steps end to end, loops and all."""
    made = [NONE]
    for part in program.segments:
        once = np.concatenate([NONE, *of_steps[part.first : part.last]])
        made.append(once if part.times == 1 else np.tile(once, part.times))
    return np.concatenate(made)
