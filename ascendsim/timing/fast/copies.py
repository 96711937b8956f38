"""Copies of code for the compiled engine: one for every turn of the rings with which it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ascendsim.program.loops.turns import Turns
from ascendsim.timing.fast.compiled import state as f
from ascendsim.timing.fast.ragged import numbers_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Table = NDArray[np.int64]


class Copies:
    """The rows of the code table: instructions as they are written, again for each turn of their slots."""

    def __init__(self) -> None:
        self._rows: dict[tuple[int, int, Turns | None], tuple[int, int]] = {}
        self._count = 0
        # Of each copy its first instruction, its last, and the number of its turns; 0: as it is written.
        self._copied: list[tuple[int, int, int]] = []
        self._turns: dict[Turns | None, int] = {None: 0}

    def rows(self, first: int, last: int, turns: Turns | None) -> tuple[int, int]:
        """Return the first and the last row of some instructions with these turns, as a range."""
        known = self._rows.get((first, last, turns))
        if known is None:
            known = self._rows[first, last, turns] = self._count, self._count + last - first
            self._count = known[1]
            self._copied.append((first, last, self._turns.setdefault(turns, len(self._turns))))
        return known

    def tables(self, code: Table, uses: Table) -> dict[str, Table]:
        """Return the tables `code`, `units` and `uses` (`compiled/state.py`) of all copies.

        code   rows of the instructions as they are written
        uses   the slots that these use, as in the table
        """
        copied = np.array(self._copied, np.int64).reshape(-1, 3)
        sizes = copied[:, 1] - copied[:, 0]
        if len(self._turns) == 1 and np.array_equal(copied[:, 1], np.cumsum(sizes)):
            # Usual of small kernels: all as it is written, from the first instruction on.
            return {"code": code[: self._count], "units": copied[:, 1], "uses": uses}
        rows = code[numbers_of(copied[:, 0], sizes)]
        counts = rows[:, f.LAST_USE] - rows[:, f.FIRST_USE]
        own = uses[numbers_of(rows[:, f.FIRST_USE], counts)]
        rows[:, f.LAST_USE] = np.cumsum(counts)
        rows[1:, f.FIRST_USE], rows[:1, f.FIRST_USE] = rows[:-1, f.LAST_USE], 0
        if len(self._turns) > 1:
            most = 1 + int(own.max(initial=0)) // 2
            turned = np.tile(np.arange(most), (len(self._turns), 1))
            for turns, number in self._turns.items():
                if turns is not None:
                    turned[number, : len(turns)] = turns[:most]
            of_rows = np.repeat(copied[:, 2], sizes)
            own = 2 * turned[np.repeat(of_rows, counts), own // 2] + own % 2
        return {"code": rows, "units": np.cumsum(sizes), "uses": own}
