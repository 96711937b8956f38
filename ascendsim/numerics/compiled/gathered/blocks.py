"""Run `block:K:RNE` on factors that lie anywhere.

The ways to an exact sum are those of `block_sums`. The extents of accumulators are taken while these are in
registers: at the start of a piece of the reduction, and again where a proof fails.
"""

from typing import Any, Final

import numpy as np

from ascendsim.numerics.compiled.block_sums import SAFE_UNIT, Block, careful_sum, is_exact, is_far_from_ties
from ascendsim.numerics.compiled.gathered.factor import Factor, Floats, Places, Span
from ascendsim.numerics.compiled.gathered.measured import (
    Lines,
    Piece,
    left_lines,
    measure_columns,
    measure_rows,
    right_lines,
)
from ascendsim.numerics.compiled.gathered.places import copy_columns, copy_rows, rows_from
from ascendsim.numerics.compiled.jit import called, inlined, kernel
from ascendsim.numerics.compiled.lanes import reach_and_unit
from ascendsim.numerics.compiled.long_integer import LIMBS, clear
from ascendsim.numerics.compiled.packing import (
    MARGIN,
    aligned,
    fill_magnitudes,
    group_count,
)
from ascendsim.numerics.compiled.panel_memory import at, columns, put, store, tile
from ascendsim.numerics.compiled.panel_rounding import RNE, Rounding
from ascendsim.numerics.compiled.panels import (
    LANES,
    ROWS,
    absolute,
    any_lane,
    as_bits,
    differs,
    fma,
    out_of_line,
    spread,
    to_single,
    widen,
)
from ascendsim.numerics.compiled.workspace import PANEL, KernelModel, Workspace

Array = Any
Panel = Any

_GROWTH: Final = 1.001  # what rounding adds to a bound at most, and more
_ROUNDOFF: Final = 2.0**-53
# Rows whose extents and elements stay in the nearer caches while a piece of the reduction is added to them.
_LINES: Final = 512


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

    def add(self, rows: Span, columns: Span, cuts: Places, c: Floats) -> None:
        """Add what lies between the first and the last cut to some rows and columns of c (m, n)."""
        if len(cuts) < 2:
            return
        longest, block = int(np.diff(cuts).max()), self._model.block
        groups = min(rows.stop - rows.start, _LINES) // ROWS
        measured = 2 * (groups + 3) * -(-longest // block)
        doubles = np.empty(longest * (ROWS + LANES) + 3 * PANEL + LIMBS + measured + 4 * MARGIN)
        singles = np.empty(longest * (ROWS + LANES) + MARGIN, np.float32)
        _blocks(self._a, self._b, cuts, c, doubles, singles, longest, rows, columns, self._model)


@kernel
def _blocks(
    a: Lines,
    b: Lines,
    cuts: Array,
    c: Array,
    doubles: Array,
    singles: Array,
    longest: int,
    rows: Span,
    columns: Span,
    model: KernelModel,
) -> None:
    width = c.shape[1]
    work, table = _shared_out(doubles, singles, longest, group_count(longest, model.block))
    for line in range(rows.start, rows.stop, _LINES):
        stop = min(line + _LINES, rows.stop)
        for cut in range(cuts.size - 1):
            first, length = at(cuts, cut), at(cuts, cut + 1) - at(cuts, cut)
            piece = Piece(first, length, group_count(length, model.block))
            measure_rows(a, line, stop, piece, work, table, model.block)
            for j in range(columns.start, columns.stop, LANES):
                copy_columns(b, j, first, first + length, doubles, work.b)
                measure_columns(b, j, piece, work, model.block)
                put(singles, work.b_single, -1.0)
                for i in range(line, stop, ROWS):
                    known = table + (i - line) // ROWS * 2 * piece.blocks
                    _panel(a, i, piece, work, known, c, i * width + j, model)


@called
def _shared_out(doubles: Array, singles: Array, longest: int, parts: int) -> tuple[Workspace, int]:
    """Share out the memory for pieces of at most `longest` steps; return also where extents of lines go."""
    result = aligned(doubles, 0)
    start, flags, limbs = result + PANEL, result + 2 * PANEL, result + 3 * PANEL
    clear(doubles, limbs)
    b = aligned(doubles, limbs + LIMBS)
    a = b + longest * LANES
    a_extents = a + longest * ROWS
    b_extents = a_extents + 2 * parts
    b_single = aligned(singles, 0)
    a_single = b_single + longest * LANES
    # As if they were filled in: this is done block by block, where it is needed.
    put(singles, a_single, 0.0)
    places = (a, b, 0, 0, a_extents, b_extents, start, result, flags, limbs, a_single, b_single, 0)
    return Workspace(doubles, singles, longest, parts, *places), b_extents + 2 * parts


@inlined
def _panel(
    a: Lines, i: int, piece: Piece, work: Workspace, known: int, c: Array, cell: int, model: KernelModel
) -> None:
    """Add a piece to the panel whose first accumulator is at `cell`."""
    acc = tile(c, cell, c.shape[1])
    reach, unit = reach_and_unit(acc)
    proven, size = True, model.block
    most, least = reach, unit
    for number in range(piece.blocks):
        most, least = _widened(most, least, _block(work, known, number, size, piece.length))
        proven = proven and is_exact(most, least)
    if proven:
        for first in range(0, piece.length, size):
            acc = to_single(
                _sum(a, i, piece.first + first, work, first, min(size, piece.length - first), acc)
            )
    else:
        for number in range(piece.blocks):
            block = _block(work, known, number, size, piece.length)
            reach, unit = _widened(reach, unit, block)
            # What the accumulators really are is often better known: they have been rounded meanwhile.
            if not is_exact(reach, unit):
                reach, unit = reach_and_unit(acc)
                reach, unit = _widened(reach, unit, block)
            acc = _checked(a, i, piece, work, block, number * size, acc, is_exact(reach, unit), model)
    store(acc, c, cell, c.shape[1])


@inlined
def _widened(reach: float, unit: float, block: Block) -> tuple[float, float]:
    """Return a bound and a unit of accumulators as they are after a block."""
    # As `block_sums.widened` has it: sums stay whole multiples of the common unit, whatever rounding does.
    return (reach + block.bound) * _GROWTH, min(unit, block.unit)


@inlined
def _sum(a: Lines, i: int, begin: int, work: Workspace, first: int, length: int, acc: Panel) -> Panel:
    """Return accumulators and products from a step on, added in double; `first` is that step in the piece."""
    w, x, y, z = at(a.lines, i), at(a.lines, i + 1), at(a.lines, i + 2), at(a.lines, i + 3)
    total, right = widen(acc), work.b + first * LANES
    for t in range(length):
        left = rows_from(a.values, at(a.steps, begin + t), w, x, y, z)
        total = fma(left, columns(work.doubles, right + t * LANES), total)
    return total


@inlined
def _checked(
    a: Lines,
    i: int,
    piece: Piece,
    work: Workspace,
    block: Block,
    first: int,
    acc: Panel,
    proven: bool,
    model: KernelModel,
) -> Panel:
    """Return the accumulators after a block that begins at a step of its piece; `proven`: doubles hold it."""
    begin = piece.first + first
    total = _sum(a, i, begin, work, first, block.length, acc)
    found = to_single(total)
    if not proven and not is_far_from_ties(total, found, block):
        _need_magnitudes(work, piece.length)
        w, x, y, z = at(a.lines, i), at(a.lines, i + 1), at(a.lines, i + 2), at(a.lines, i + 3)
        size = absolute(acc)
        for t in range(block.length):
            left = rows_from(a.singles, at(a.steps, begin + t), w, x, y, z)
            size = fma(absolute(left), columns(work.singles, work.b_single + block.b + t * LANES), size)
        error = widen(size) * spread((3 * block.length + 8) * _ROUNDOFF)
        found, high = to_single(total - error), to_single(total + error)
        if block.unit < SAFE_UNIT or any_lane(differs(as_bits(found), as_bits(high))):
            store(widen(acc), work.doubles, work.start, LANES)
            _careful(a, i, begin, work, block, model)
            found = to_single(tile(work.doubles, work.result, LANES))
    return found


@inlined
def _block(work: Workspace, known: int, number: int, size: int, steps: int) -> Block:
    """Find a block of a panel by its number; `known` is where the extents of the panel's lines are."""
    ours, theirs = known + 2 * number, work.b_extents + 2 * number
    length = min(size, steps - number * size)
    return Block(
        number * size * ROWS,
        number * size * LANES,
        length,
        length * at(work.doubles, ours) * at(work.doubles, theirs),
        at(work.doubles, ours + 1) * at(work.doubles, theirs + 1),
    )


@called
def _need_magnitudes(work: Workspace, length: int) -> None:
    """Fill in the magnitudes of the columns, if that has not been done."""
    out_of_line()
    # No magnitude is below zero, so this one says that they are not there yet.
    if at(work.singles, work.b_single) < 0.0:
        fill_magnitudes(work.doubles, work.b, work.b + length * LANES, work.singles, work.b_single)


@called
def _careful(a: Lines, i: int, begin: int, work: Workspace, block: Block, model: KernelModel) -> None:
    """Turn the accumulators at `start` into sums at `result`, in whichever way is exact."""
    out_of_line()
    place = work.a + block.a
    copy_rows(a, i, begin, begin + block.length, work.doubles, place)
    fill_magnitudes(work.doubles, place, place + block.length * ROWS, work.singles, work.a_single + block.a)
    careful_sum(work, block, model)
