"""Measure the operands of pieces of a reduction, as `block_sums` wants it; runs of elements only once."""

from math import gcd
from typing import Any, NamedTuple

import numpy as np

from ascendsim.numerics.compiled.gathered.factor import Factor, Places, Values
from ascendsim.numerics.compiled.jit import called, inlined, kernel
from ascendsim.numerics.compiled.panel_rounding import at, put
from ascendsim.numerics.compiled.panels import LANES, ROWS, out_of_line
from ascendsim.numerics.compiled.workspace import (
    Workspace,
    bound,
    extent,
    measure,
    measure_side_by_side,
    sum_up,
    sums_of_four,
)

Array = Any


class Lines(NamedTuple):
    """A factor, and the extents of runs of its elements.

    values, lines, steps   as of a `Factor`
    extents                of each `run` elements of `values`: largest magnitude (of rows: sum of magnitudes)
                           and lowest set bit
    line_runs, step_runs   where lines and steps lie, counted in runs
    run                    how many elements that are; 0: extents are taken anew where they are needed
    """

    values: Array
    lines: Array
    steps: Array
    extents: Array
    line_runs: Array
    step_runs: Array
    run: int


class Piece(NamedTuple):
    """A piece of the reduction: its first step, how many there are, and how many blocks these make."""

    first: int
    length: int
    blocks: int


def left_lines(a: Factor, cuts: Places, block: int) -> Lines:
    """Return a left factor, measured where blocks are made of whole runs of ROWS elements or more."""
    run = gcd(a.run, block)
    # A block that begins inside a run has other extents than whole runs.
    whole = run % ROWS == 0 and not np.any(cuts[:-1] % run) and not np.any(a.lines % run)
    run = run if whole else 0
    return _lines(a, run, _runs(a.values, run, a.values.sums, True))


def right_lines(b: Factor) -> Lines:
    """Return a right factor, measured where the columns of a panel lie side by side."""
    run = LANES if _are_side_by_side(b) else 0
    return _lines(b, run, _runs(b.values, run, b.values.extents, False))


def _lines(factor: Factor, run: int, extents: Array) -> Lines:
    unit = max(run, 1)
    runs = factor.lines // unit, factor.steps // unit
    return Lines(factor.values.singles, factor.lines, factor.steps, extents, *runs, run)


def _are_side_by_side(b: Factor) -> bool:
    """Tell whether the columns of each panel lie side by side, from a whole multiple of LANES on."""
    panels = b.lines.reshape(-1, LANES)
    first = panels[:, :1]
    together = np.array_equal(panels, first + np.arange(LANES))
    return together and not np.any(first % LANES) and not np.any(b.steps % LANES)


def _runs(values: Values, run: int, known: dict[int, Array], summed: bool) -> Array:
    """Return the extents of each run; of what is over at the end none, as no panel is there."""
    if run not in known:
        singles = values.singles
        found = known[run] = np.empty(2 * (singles.size // run) if run else 0)
        if run:
            _measure_all(singles, run, found, summed)
    return known[run]


@kernel
def _measure_all(values: Array, run: int, extents: Array, summed: bool) -> None:
    size = values.size // run * run
    if not summed:
        measure(values, 0, size, run, extents, 0)
        return
    for start in range(0, size, run):
        w, x, y, z = sums_of_four(values, start, start + run)
        put(extents, start // run * 2, bound((w + x) + (y + z)))
        put(extents, start // run * 2 + 1, extent(values, start, start + run)[1])


@called
def measure_rows(
    a: Lines, line: int, stop: int, piece: Piece, work: Workspace, packed: int, table: int, block: int
) -> None:
    """Put the extents of a piece and of each of its blocks, for each group of ROWS lines.

    packed   where the lines have been laid out
    """
    out_of_line()
    place = table
    for i in range(line, stop, ROWS):
        if a.run > 0:
            _combine_rows(a, i, piece, work, place + 2, block)
        else:
            first = packed + (i - line) * piece.length
            measure_side_by_side(work.doubles, first, piece.length * ROWS, block * ROWS, place + 2)
        sum_up(work.doubles, place + 2, piece.blocks, place, True)
        place += 2 * (1 + piece.blocks)


@called
def measure_columns(b: Lines, j: int, piece: Piece, work: Workspace, block: int) -> None:
    """Put the extents of a piece and of each of its blocks, for the columns that have been copied."""
    out_of_line()
    place = work.b_extents + 2
    if b.run > 0:
        _combine_columns(b, j, piece, work, place, block)
    else:
        measure(work.doubles, work.b, piece.length * LANES, block * LANES, work.doubles, place)
    sum_up(work.doubles, place, piece.blocks, work.b_extents, False)


@called
def _combine_rows(a: Lines, line: int, piece: Piece, work: Workspace, place: int, block: int) -> None:
    """Put the extents of each block of a group of ROWS lines from those of its runs."""
    runs = a.line_runs
    lines = at(runs, line), at(runs, line + 1), at(runs, line + 2), at(runs, line + 3)
    for start in range(0, piece.length, block):
        w, x, y, z, finest = 0.0, 0.0, 0.0, 0.0, np.inf
        for step in range(piece.first + start, piece.first + min(start + block, piece.length), a.run):
            run = at(a.step_runs, step)
            # Two by two: one comparison after the other would wait for the one before.
            w_size, w_least = _extents_at(a, lines[0] + run)
            x_size, x_least = _extents_at(a, lines[1] + run)
            y_size, y_least = _extents_at(a, lines[2] + run)
            z_size, z_least = _extents_at(a, lines[3] + run)
            w, x, y, z = w + w_size, x + x_size, y + y_size, z + z_size
            finest = min(finest, min(min(w_least, x_least), min(y_least, z_least)))
        put(work.doubles, place, max(max(w, x), max(y, z)))
        put(work.doubles, place + 1, finest)
        place += 2


@called
def _combine_columns(b: Lines, j: int, piece: Piece, work: Workspace, place: int, block: int) -> None:
    """Put the extents of each block of the columns of a panel, which are one run at every step."""
    columns = at(b.line_runs, j)
    for start in range(0, piece.length, block):
        largest, finest = 0.0, np.inf
        for step in range(piece.first + start, piece.first + min(start + block, piece.length)):
            most, least = _extents_at(b, columns + at(b.step_runs, step))
            largest, finest = max(largest, most), min(finest, least)
        put(work.doubles, place, largest)
        put(work.doubles, place + 1, finest)
        place += 2


@inlined
def _extents_at(factor: Lines, run: int) -> tuple[float, float]:
    return at(factor.extents, 2 * run), at(factor.extents, 2 * run + 1)
