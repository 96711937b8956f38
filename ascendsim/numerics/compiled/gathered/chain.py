"""Run `seq` and `seq-muladd` in RNE on factors that lie anywhere, by the processor's own arithmetic."""

from typing import Any, Final

import numpy as np

from ascendsim.numerics.compiled.gathered.factor import Elements, Factor, Floats, Places, Span
from ascendsim.numerics.compiled.gathered.places import copy_columns, rows_from
from ascendsim.numerics.compiled.jit import inlined, kernel
from ascendsim.numerics.compiled.packing import MARGIN, aligned
from ascendsim.numerics.compiled.panel_memory import at, columns, store, tile
from ascendsim.numerics.compiled.panels import LANES, ROWS, fma

Array = Any

_LINES: Final = 512  # rows whose elements stay in the nearer caches while a piece is added to them


class Chain:
    """Products under `seq:RNE`, fused, or `seq-muladd:RNE`, with rounded products.

    Shapes   a (m, k), b (n, k), m and n whole multiples of ROWS and LANES; cuts of the reduction, anywhere
    """

    def __init__(self, a: Factor, b: Factor, fused: bool) -> None:
        self._product = a.elements, b.elements
        self._fused = fused

    def add(self, rows: Span, columns: Span, cuts: Places, c: Floats) -> None:
        """Add what lies between the first and the last cut to some rows and columns of c (m, n)."""
        if len(cuts) < 2:
            return
        a, b = self._product
        together = np.empty(int(np.diff(cuts).max()) * LANES + MARGIN, np.float32)
        _chain(a, b, cuts, c, rows, columns, together, self._fused)


@kernel
def _chain(
    a: Elements, b: Elements, cuts: Array, c: Array, rows: Span, columns: Span, together: Array, fused: bool
) -> None:
    place, width = aligned(together, 0), c.shape[1]
    for line in range(rows.start, rows.stop, _LINES):
        for piece in range(cuts.size - 1):
            first, last = at(cuts, piece), at(cuts, piece + 1)
            for j in range(columns.start, columns.stop, LANES):
                copy_columns(b, j, first, last, together, place)
                for i in range(line, min(line + _LINES, rows.stop), ROWS):
                    _panel(a, i, first, last, together, place, c, i * width + j, fused)


@inlined
def _panel(
    a: Elements, i: int, first: int, last: int, right: Array, place: int, c: Array, cell: int, fused: bool
) -> None:
    """Add one piece of the reduction to the panel whose first accumulator is at `cell`."""
    width = c.shape[1]
    acc = tile(c, cell, width)
    w, x, y, z = at(a.lines, i), at(a.lines, i + 1), at(a.lines, i + 2), at(a.lines, i + 3)
    # Two loops, not one with a branch in it: `fused` is settled before the products begin.
    if fused:
        for t in range(first, last):
            left = rows_from(a.values, at(a.steps, t), w, x, y, z)
            acc = fma(left, columns(right, place + (t - first) * LANES), acc)
    else:
        for t in range(first, last):
            left = rows_from(a.values, at(a.steps, t), w, x, y, z)
            acc = acc + left * columns(right, place + (t - first) * LANES)
    store(acc, c, cell, width)
