"""The transfers of some programs in order, loops unrolled: of each distinct step once, then gathered."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, pairwise
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from ascendsim.program.program import Program
from ascendsim.timing.fast.layouts import Layouts
from ascendsim.timing.fast.ragged import numbers_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]
    Columns = NDArray[np.int32]

Whole = TypeVar("Whole", np.int32, np.int64)


class Laid:
    """The distinct steps of some programs, what each transfers, and which steps follow each other.

    Steps are told apart by identity, as programs share them (`program/loops/chains.py`).
    `columns[:, transfer]` has the columns of `Layout` for the transfers of all distinct steps, one step after
    the other, `counts[step]` of them each. Of the transfers of all programs, loops unrolled, `at` has the
    number among those, and `shifts` by how much their laps are moved; None: by nothing.
    """

    def __init__(self, layouts: Layouts, programs: Sequence[Program]) -> None:
        self.programs = programs
        every = list(chain.from_iterable([program.steps for program in programs]))
        steps = {id(step): step for step in every}
        self.steps = list(steps.values())
        numbers = dict(zip(steps, range(len(steps)), strict=True))
        used = [step.unit for step in self.steps]
        codes = {code: number for number, code in enumerate(dict.fromkeys(used))}
        of_steps = np.array([codes[code] for code in used], np.int64)
        made = [layouts.of(code) for code in codes]
        sizes = np.array([len(layout.traffics) for layout in made], np.int64)
        self.counts = sizes[of_steps]
        columns = [list(chain.from_iterable([each[column] for each in made])) for column in range(5)]
        own = numbers_of((np.cumsum(sizes) - sizes)[of_steps], self.counts)
        self.columns = np.array(columns, np.int32)[:, own]
        self._unroll(np.array([numbers[id(step)] for step in every], np.int64))

    def _unroll(self, numbers: Numbers) -> None:
        """Find which transfers follow each other; `numbers` are those of the steps of all programs."""
        # Of each round of each segment its first step, how many it has, and by how much its laps are moved.
        firsts: list[int] = []
        sizes: list[int] = []
        shifts: list[int] = []
        rounds, begin = [0], 0
        for program in self.programs:
            for part in program.segments:
                firsts += [begin + part.first] * part.times
                sizes += [part.last - part.first] * part.times
                shifts += part.shifts()
            begin += len(program.steps)
            rounds.append(len(firsts))
        of_rounds = np.array(sizes, np.int64)
        run = numbers[numbers_of(np.array(firsts, np.int64), of_rounds)]
        counts = self.counts[run]
        self.at: Numbers = numbers_of((np.cumsum(self.counts) - self.counts)[run], counts)
        self.shifts: Numbers | None = None
        if any(shifts):
            self.shifts = np.repeat(np.repeat(np.array(shifts, np.int64), of_rounds), counts)
        steps = np.concatenate([[0], np.cumsum(of_rounds)])[rounds]
        self._edges: list[int] = np.concatenate([[0], np.cumsum(counts)])[steps].tolist()

    def each(self, values: NDArray[Whole]) -> list[NDArray[Whole]]:
        """Cut what there is of each transfer into what there is of each program."""
        return [values[first:last] for first, last in pairwise(self._edges)]

    def traffics(self) -> list[Columns]:
        """Return the numbers of the traffics of each program, in program order."""
        return self.each(self.columns[0][self.at])

    def cores(self) -> list[Columns]:
        """Return the core of its program that each transfer belongs to, program by program."""
        return self.each(self.columns[1][self.at])
