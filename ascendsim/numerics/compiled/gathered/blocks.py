"""Run `block:K:RNE` on factors that lie anywhere.

The ways to an exact sum are those of `block_sums`. The extents of accumulators are taken while these are in
registers: at the start of a piece of the reduction, and again where a proof fails.
"""

from math import gcd
from typing import Any, Final, NamedTuple

import numpy as np

from ascendsim.numerics.compiled.block_sums import SAFE_UNIT, Block, careful_sum, is_exact
from ascendsim.numerics.compiled.extents import extent
from ascendsim.numerics.compiled.gathered.factor import Factor, Floats, Places, Span
from ascendsim.numerics.compiled.gathered.lanes import reach_and_unit
from ascendsim.numerics.compiled.gathered.places import copy_columns, copy_rows, rows_from
from ascendsim.numerics.compiled.jit import called, inlined, kernel
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
# Runs shorter than this are not worth a table of their extents.
_LEAST_RUN: Final = 4


class Lines(NamedTuple):
    """A factor, and the extents of runs of its elements.

    values, lines, steps   as of a `Factor`; of the left one in doubles
    magnitudes             the values without their signs, as singles; of the right one nothing
    extents                largest magnitude and lowest set bit of each `run` elements of `values`
    run                    how many that are; 0: extents are taken anew where they are needed
    """

    values: Array
    lines: Array
    steps: Array
    magnitudes: Array
    extents: Array
    run: int


class Piece(NamedTuple):
    """A piece of the reduction: its first step, how many there are, and how many blocks these make."""

    first: int
    length: int
    blocks: int


class Blocks:
    """Products under `block:K:RNE`, whose factors are measured once.

    Shapes   a (m, k), b (n, k), m and n whole multiples of ROWS and LANES
    Cuts     of the reduction; blocks begin at each, and full blocks end at all but the ends of Mmads
    block    products of a block
    """

    def __init__(self, a: Factor, b: Factor, cuts: Places, block: int) -> None:
        run = gcd(a.run, block)
        # A block that begins inside a run has other extents than whole runs.
        run = run if run >= _LEAST_RUN and not np.any(cuts[:-1] % run) else 0
        values, none = a.values.astype(np.float64), np.empty(0, np.float32)
        self._a = Lines(values, a.lines, a.steps, np.abs(a.values), _extents(values, run), run)
        run = LANES if _are_side_by_side(b) else 0
        self._b = Lines(b.values, b.lines, b.steps, none, _extents(b.values, run), run)
        self._cuts = cuts
        usual = Rounding(RNE, False, 0.0)
        self._model = KernelModel(block, usual, False, usual, False)

    def add(self, rows: Span, columns: Span, c: Floats) -> None:
        """Add the product to some rows and columns of c (m, n)."""
        longest, block = int(np.diff(self._cuts).max()), self._model.block
        groups = min(rows.stop - rows.start, _LINES) // ROWS
        measured = 2 * (groups + 3) * -(-longest // block)
        doubles = np.empty(longest * (ROWS + LANES) + 3 * PANEL + LIMBS + measured + 4 * MARGIN)
        singles = np.empty(longest * (ROWS + LANES) + MARGIN, np.float32)
        _blocks(self._a, self._b, self._cuts, c, doubles, singles, longest, rows, columns, self._model)


def _are_side_by_side(b: Factor) -> bool:
    """Tell whether the columns of each panel lie side by side, from a whole multiple of LANES on."""
    panels = b.lines.reshape(-1, LANES)
    first = panels[:, :1]
    together = np.array_equal(panels, first + np.arange(LANES))
    return together and not np.any(first % LANES) and not np.any(b.steps % LANES)


def _extents(values: Array, run: int) -> Array:
    """Return the extents of each run of an array; of what is over at its end none, as no panel is there."""
    extents = np.empty(2 * (len(values) // run) if run else 0)
    if run:
        _measure_all(values, run, extents)
    return extents


@kernel
def _measure_all(values: Array, run: int, extents: Array) -> None:
    _measure(values, 0, values.size // run * run, run, extents, 0)


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
            _measure_rows(a, line, stop, piece, work, table, model.block)
            for j in range(columns.start, columns.stop, LANES):
                copy_columns(b, j, first, first + length, doubles, work.b)
                _measure_columns(b, j, piece, work, model.block)
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
    b_extents, c_extents = a_extents + 2 * parts, a_extents + 4 * parts
    b_single = aligned(singles, 0)
    a_single = b_single + longest * LANES
    # As if they were filled in: this is done block by block, where it is needed.
    put(singles, a_single, 0.0)
    places = (a, b, 0, 0, a_extents, b_extents, c_extents, start, result, flags, limbs, a_single, b_single, 0)
    return Workspace(doubles, singles, longest, parts, *places), c_extents + 2


@called
def _measure(values: Array, first: int, size: int, part: int, target: Array, place: int) -> None:
    """Put the extents of each part of an array one after the other; of the last part, what there is of it."""
    out_of_line()
    for start in range(0, size, part):
        largest, finest = extent(values, first + start, first + min(start + part, size))
        # A NaN would be lost among other magnitudes; an infinity says as well that nothing is proven.
        put(target, place, largest if largest <= np.inf else np.inf)
        put(target, place + 1, finest)
        place += 2


@called
def _measure_rows(
    a: Lines, line: int, stop: int, piece: Piece, work: Workspace, table: int, block: int
) -> None:
    """Put the extents of each block of a piece, for each group of ROWS lines."""
    out_of_line()
    first, place = piece.first, table
    for i in range(line, stop, ROWS):
        if a.run > 0:
            _combine(a, i, ROWS, a.run, piece, work, place, block)
        else:
            copy_rows(a, i, first, first + piece.length, work.doubles, work.a)
            _measure(work.doubles, work.a, piece.length * ROWS, block * ROWS, work.doubles, place)
        place += 2 * piece.blocks


@called
def _measure_columns(b: Lines, j: int, piece: Piece, work: Workspace, block: int) -> None:
    """Put the extents of each block of a piece of the columns that have been copied."""
    out_of_line()
    if b.run > 0:
        _combine(b, j, 1, 1, piece, work, work.b_extents, block)
    else:
        size, part = piece.length * LANES, block * LANES
        _measure(work.doubles, work.b, size, part, work.doubles, work.b_extents)


@called
def _combine(
    factor: Lines, line: int, lines: int, stride: int, piece: Piece, work: Workspace, place: int, block: int
) -> None:
    """Put the extents of each block of some lines from those of its runs, one for every `stride` steps."""
    for start in range(0, piece.length, block):
        largest, finest = 0.0, np.inf
        first, stop = piece.first + start, piece.first + min(start + block, piece.length)
        for step in range(first, stop, stride):
            for one in range(line, line + lines):
                found = (at(factor.lines, one) + at(factor.steps, step)) // factor.run * 2
                largest = max(largest, at(factor.extents, found))
                finest = min(finest, at(factor.extents, found + 1))
        put(work.doubles, place, largest)
        put(work.doubles, place + 1, finest)
        place += 2


@inlined
def _panel(
    a: Lines, i: int, piece: Piece, work: Workspace, known: int, c: Array, cell: int, model: KernelModel
) -> None:
    """Add a piece to the panel whose first accumulator is at `cell`."""
    acc = tile(c, cell, c.shape[1])
    reach, unit = reach_and_unit(acc)
    w, x, y, z = at(a.lines, i), at(a.lines, i + 1), at(a.lines, i + 2), at(a.lines, i + 3)
    for number in range(piece.blocks):
        block = _block(work, known, number, model.block, piece.length)
        begin, right = piece.first + number * model.block, work.b + block.b
        start = widen(acc)
        total = start
        for t in range(block.length):
            left = rows_from(a.values, at(a.steps, begin + t), w, x, y, z)
            total = fma(left, columns(work.doubles, right + t * LANES), total)
        # As `widened` has it: sums stay whole multiples of the common unit, whatever rounding does to them.
        reach, unit = (reach + block.bound) * _GROWTH, min(unit, block.unit)
        if not is_exact(reach, unit):
            # What the accumulators really are is often better known: they have been rounded meanwhile.
            reach, unit = reach_and_unit(acc)
            reach, unit = (reach + block.bound) * _GROWTH, min(unit, block.unit)
        found = to_single(total)
        if not is_exact(reach, unit):
            _need_magnitudes(work, piece.length)
            size = absolute(acc)
            for t in range(block.length):
                left = rows_from(a.magnitudes, at(a.steps, begin + t), w, x, y, z)
                size = fma(left, columns(work.singles, work.b_single + block.b + t * LANES), size)
            error = widen(size) * spread((3 * block.length + 8) * _ROUNDOFF)
            found, high = to_single(total - error), to_single(total + error)
            if block.unit < SAFE_UNIT or any_lane(differs(as_bits(found), as_bits(high))):
                store(start, work.doubles, work.start, LANES)
                _careful(a, i, begin, work, block, model)
                found = to_single(tile(work.doubles, work.result, LANES))
        acc = found
    store(acc, c, cell, c.shape[1])


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
