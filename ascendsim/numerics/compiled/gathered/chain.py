"""Run `seq` and `seq-muladd` in RNE on factors that lie anywhere, by the processor's own arithmetic."""

from typing import Any, Final

import numpy as np

from ascendsim.numerics.compiled.block_sums import Packed, left_of
from ascendsim.numerics.compiled.gathered.cuts import Cuts
from ascendsim.numerics.compiled.gathered.factor import Elements, Factor, Floats, Places, Span
from ascendsim.numerics.compiled.gathered.packed import pack_rows, panel_of
from ascendsim.numerics.compiled.gathered.places import copy_columns
from ascendsim.numerics.compiled.jit import inlined, kernel
from ascendsim.numerics.compiled.packing import MARGIN, aligned
from ascendsim.numerics.compiled.panel_rounding import at, columns, store, tile
from ascendsim.numerics.compiled.panels import LANES, ROWS, fma, spread

Array = Any

_LINES: Final = 512  # rows whose elements stay in the nearer caches while a piece is added to them


class Chain:
    """Products under `seq:RNE`, fused, or `seq-muladd:RNE`, with rounded products.

    Shapes   a (m, k), b (n, k), m and n whole multiples of ROWS and LANES
    Cuts     of all reductions, anywhere
    """

    def __init__(self, a: Factor, b: Factor, cuts: Places, fused: bool) -> None:
        self._product = a.elements, b.elements
        # Rows are copied in whole runs where pieces begin with one.
        whole = a.run % ROWS == 0 and not np.any(cuts[:-1] % a.run)
        self._run, self._fused = a.run if whole else 0, fused

    def add(self, rows: Span, columns: Span, cuts: Cuts, c: Floats, begins: bool = False) -> None:
        """Add some rows and columns of every product to those of c (products, m, n), or to +0."""
        longest = cuts.longest()
        if not longest:
            return
        a, b = self._product
        memory = np.empty(longest * (LANES + min(rows.stop - rows.start, _LINES)) + MARGIN, np.float32)
        how = self._run, self._fused, begins
        _chains(a, b, cuts.places, cuts.firsts, c, rows, columns, memory, longest, *how)


@kernel
def _chains(
    a: Elements,
    b: Elements,
    cuts: Array,
    firsts: Array,
    c: Array,
    rows: Span,
    columns: Span,
    memory: Array,
    longest: int,
    run: int,
    fused: bool,
    begins: bool,
) -> None:
    right, width = aligned(memory, 0), c.shape[2]
    packed = right + longest * LANES
    for product in range(firsts.size - 1):
        corner = product * c.shape[1] * width
        for line in range(rows.start, rows.stop, _LINES):
            stop = min(line + _LINES, rows.stop)
            for piece in range(at(firsts, product), at(firsts, product + 1) - 1):
                first, last = at(cuts, piece), at(cuts, piece + 1)
                from_zero = begins and piece == at(firsts, product)
                pack_rows(a, run, (line, stop), (first, last), memory, packed)
                for j in range(columns.start, columns.stop, LANES):
                    copy_columns(b, j, first, last, memory, right)
                    for i in range(line, stop, ROWS):
                        left = panel_of(memory, packed, run, i - line, last - first)
                        _panel(left, last - first, right, c, corner + i * width + j, fused, from_zero)


@inlined
def _panel(left: Packed, length: int, right: int, c: Array, cell: int, fused: bool, from_zero: bool) -> None:
    """Add one piece of the reduction to the panel whose first accumulator is at `cell`, or to +0."""
    acc = spread(np.float32(0.0)) if from_zero else tile(c, cell, c.shape[2])
    # Two loops, not one with a branch in it: `fused` is settled before the products begin.
    if fused:
        for t in range(length):
            acc = fma(left_of(left, t), columns(left.values, right + t * LANES), acc)
    else:
        for t in range(length):
            acc = acc + left_of(left, t) * columns(left.values, right + t * LANES)
    store(acc, c, cell, c.shape[2])
