"""Run `block:K:RNE` on factors that lie anywhere."""

from typing import Any, Final, NamedTuple

import numpy as np

from ascendsim.numerics.compiled.block_sums import SMALLEST
from ascendsim.numerics.compiled.gathered.block_panels import add_piece
from ascendsim.numerics.compiled.gathered.cuts import Cuts
from ascendsim.numerics.compiled.gathered.factor import Factor, Floats, Places, Span
from ascendsim.numerics.compiled.gathered.measured import (
    Lines,
    Piece,
    left_lines,
    measure_columns,
    measure_rows,
    right_lines,
)
from ascendsim.numerics.compiled.gathered.packed import pack_rows, panel_of
from ascendsim.numerics.compiled.gathered.places import copy_columns
from ascendsim.numerics.compiled.jit import called, kernel
from ascendsim.numerics.compiled.packing import MARGIN, aligned, group_count
from ascendsim.numerics.compiled.panel_rounding import LIMBS, RNE, Rounding, at, clear, put
from ascendsim.numerics.compiled.panels import LANES, ROWS, out_of_line
from ascendsim.numerics.compiled.workspace import PANEL, KernelModel, Workspace

Array = Any

# Rows whose extents and elements stay in the nearer caches while a piece of the reduction is added to them.
_LINES: Final = 256


class Blocks:
    """Products under `block:K:RNE`, whose factors are measured once.

    Shapes   a (m, k), b (n, k), m and n whole multiples of ROWS and LANES
    Cuts     of all reductions; blocks begin at each, and full blocks end at all but the ends of Mmads
    block    products of a block
    """

    def __init__(self, a: Factor, b: Factor, cuts: Places, block: int) -> None:
        self._a, self._b = left_lines(a, cuts, block), right_lines(b)
        usual = Rounding(RNE, False, 0.0)
        self._model = KernelModel(block, usual, False, usual, False)

    def add(self, rows: Span, columns: Span, cuts: Cuts, c: Floats, begins: bool = False) -> None:
        """Add some rows and columns of every product to those of c (products, m, n), or to +0."""
        longest, block = cuts.longest(), self._model.block
        if not longest:
            return
        lines = min(rows.stop - rows.start, _LINES)
        groups, parts = lines // ROWS, group_count(longest, block)
        measured = 2 * (groups + 1) * (1 + parts) + 2 * groups * ((columns.stop - columns.start) // LANES)
        packed = longest * (lines + ROWS + LANES)
        doubles = np.empty(packed + 3 * PANEL + LIMBS + measured + 5 * MARGIN)
        singles = np.empty(longest * (ROWS + LANES) + MARGIN, np.float32)
        _blocks(
            self._a,
            self._b,
            cuts.places,
            cuts.firsts,
            c,
            doubles,
            singles,
            longest,
            rows,
            columns,
            self._model,
            begins,
        )


class Tables(NamedTuple):
    """Where the doubles hold what is known of the rows of a piece, and of accumulators.

    packed    the rows, laid out for panels
    extents   of each group of rows: those of the piece, then those of each of its blocks
    sums      of each panel: a bound of its accumulators, and a unit of theirs
    """

    packed: int
    extents: int
    sums: int


@kernel
def _blocks(
    a: Lines,
    b: Lines,
    cuts: Array,
    firsts: Array,
    c: Array,
    doubles: Array,
    singles: Array,
    longest: int,
    rows: Span,
    columns: Span,
    model: KernelModel,
    begins: bool,
) -> None:
    lines = min(rows.stop - rows.start, _LINES)
    work, tables = _shared_out(doubles, singles, longest, group_count(longest, model.block), lines)
    for product in range(firsts.size - 1):
        own = at(firsts, product), at(firsts, product + 1)
        for line in range(rows.start, rows.stop, _LINES):
            some = Span(line, min(line + _LINES, rows.stop))
            _rows(a, b, cuts, own, c, product, some, columns, work, tables, model, begins)


@called
def _rows(
    a: Lines,
    b: Lines,
    cuts: Array,
    own: tuple[int, int],
    c: Array,
    product: int,
    rows: Span,
    columns: Span,
    work: Workspace,
    tables: Tables,
    model: KernelModel,
    begins: bool,
) -> None:
    """Add the pieces of one product to some rows of its accumulators, or to +0."""
    out_of_line()
    width, groups = c.shape[2], (rows.stop - rows.start) // ROWS
    corner = product * c.shape[1] * width
    for panel in range(groups * ((columns.stop - columns.start) // LANES)):
        # As long as nothing is known of accumulators, nothing bounds them, and they may be -0. Those that are
        # +0 are multiples of anything.
        put(work.doubles, tables.sums + 2 * panel, 0.0 if begins else np.inf)
        put(work.doubles, tables.sums + 2 * panel + 1, np.inf if begins else 0.5 * SMALLEST)
    for cut in range(own[0], own[1] - 1):
        first, length = at(cuts, cut), at(cuts, cut + 1) - at(cuts, cut)
        piece = Piece(first, length, group_count(length, model.block))
        from_zero = begins and cut == own[0]
        pack_rows(a, a.run, rows, (first, first + length), work.doubles, tables.packed)
        measure_rows(a, rows.start, rows.stop, piece, work, tables.packed, tables.extents, model.block)
        for j in range(columns.start, columns.stop, LANES):
            copy_columns(b, j, first, first + length, work.doubles, work.b)
            measure_columns(b, j, piece, work, model.block)
            put(work.singles, work.b_single, -1.0)
            sums = tables.sums + (j - columns.start) // LANES * 2 * groups
            for i in range(rows.start, rows.stop, ROWS):
                group, cell = (i - rows.start) // ROWS, corner + i * width + j
                left = panel_of(work.doubles, tables.packed, a.run, i - rows.start, length)
                known = tables.extents + group * 2 * (1 + piece.blocks)
                add_piece(a, i, left, piece, work, known, sums + 2 * group, c, cell, from_zero, model)


@called
def _shared_out(
    doubles: Array, singles: Array, longest: int, parts: int, lines: int
) -> tuple[Workspace, Tables]:
    """Share out the memory for pieces of at most `longest` steps and `parts` blocks, and for so many rows."""
    result = aligned(doubles, 0)
    start, flags, limbs = result + PANEL, result + 2 * PANEL, result + 3 * PANEL
    clear(doubles, limbs)
    b = aligned(doubles, limbs + LIMBS)
    packed = b + longest * LANES
    a = packed + longest * lines
    b_extents = a + longest * ROWS
    extents = b_extents + 2 * (1 + parts)
    b_single = aligned(singles, 0)
    a_single = b_single + longest * LANES
    # As if they were filled in: this is done block by block, where it is needed.
    put(singles, a_single, 0.0)
    places = (a, b, 0, 0, 0, b_extents, 0, 0, start, result, flags, limbs, a_single, b_single, 0)
    tables = Tables(packed, extents, extents + lines // ROWS * 2 * (1 + parts))
    return Workspace(doubles, singles, longest, parts, *places), tables
