"""Measure the operands of pieces of a reduction, as `block_sums` wants it; runs of elements only once."""

from math import gcd
from typing import Any, NamedTuple

import numpy as np

from ascendsim.numerics.compiled.extents import extent
from ascendsim.numerics.compiled.gathered.factor import Factor, Places, Values
from ascendsim.numerics.compiled.jit import called, inlined, kernel
from ascendsim.numerics.compiled.panel_memory import at, put
from ascendsim.numerics.compiled.panels import LANES, ROWS, out_of_line
from ascendsim.numerics.compiled.workspace import Workspace

Array = Any


class Lines(NamedTuple):
    """A factor, and the extents of runs of its elements.

    values, lines, steps   as of a `Factor`
    extents                largest magnitude and lowest set bit of each `run` elements of `values`
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
    return _lines(a, run if whole else 0)


def right_lines(b: Factor) -> Lines:
    """Return a right factor, measured where the columns of a panel lie side by side."""
    return _lines(b, LANES if _are_side_by_side(b) else 0)


def _lines(factor: Factor, run: int) -> Lines:
    values, unit = factor.values, max(run, 1)
    runs = factor.lines // unit, factor.steps // unit
    return Lines(values.singles, factor.lines, factor.steps, _extents(values, run), *runs, run)


def _are_side_by_side(b: Factor) -> bool:
    """Tell whether the columns of each panel lie side by side, from a whole multiple of LANES on."""
    panels = b.lines.reshape(-1, LANES)
    first = panels[:, :1]
    together = np.array_equal(panels, first + np.arange(LANES))
    return together and not np.any(first % LANES) and not np.any(b.steps % LANES)


def _extents(values: Values, run: int) -> Array:
    """Return the extents of each run; of what is over at the end none, as no panel is there."""
    if run not in values.extents:
        singles = values.singles
        found = values.extents[run] = np.empty(2 * (singles.size // run) if run else 0)
        if run:
            _measure_all(singles, run, found)
    return values.extents[run]


@kernel
def _measure_all(values: Array, run: int, extents: Array) -> None:
    _measure(values, 0, values.size // run * run, run, extents, 0)


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
            _measure(work.doubles, first, piece.length * ROWS, block * ROWS, work.doubles, place + 2)
        _sum_up(work, place, piece.blocks)
        place += 2 * (1 + piece.blocks)


@called
def measure_columns(b: Lines, j: int, piece: Piece, work: Workspace, block: int) -> None:
    """Put the extents of a piece and of each of its blocks, for the columns that have been copied."""
    out_of_line()
    place = work.b_extents + 2
    if b.run > 0:
        _combine_columns(b, j, piece, work, place, block)
    else:
        _measure(work.doubles, work.b, piece.length * LANES, block * LANES, work.doubles, place)
    _sum_up(work, work.b_extents, piece.blocks)


@inlined
def _sum_up(work: Workspace, place: int, blocks: int) -> None:
    """Put the extents of all blocks together in front of theirs."""
    largest, finest = 0.0, np.inf
    for number in range(1, 1 + blocks):
        largest = max(largest, at(work.doubles, place + 2 * number))
        finest = min(finest, at(work.doubles, place + 2 * number + 1))
    put(work.doubles, place, largest)
    put(work.doubles, place + 1, finest)


@called
def _combine_rows(a: Lines, line: int, piece: Piece, work: Workspace, place: int, block: int) -> None:
    """Put the extents of each block of a group of ROWS lines from those of its runs."""
    runs = a.line_runs
    w, x, y, z = at(runs, line), at(runs, line + 1), at(runs, line + 2), at(runs, line + 3)
    for start in range(0, piece.length, block):
        largest, finest = 0.0, np.inf
        for step in range(piece.first + start, piece.first + min(start + block, piece.length), a.run):
            run = at(a.step_runs, step)
            # Two by two: one comparison after the other would wait for the one before.
            w_most, w_least = _extents_at(a, w + run)
            x_most, x_least = _extents_at(a, x + run)
            y_most, y_least = _extents_at(a, y + run)
            z_most, z_least = _extents_at(a, z + run)
            largest = max(largest, max(max(w_most, x_most), max(y_most, z_most)))
            finest = min(finest, min(min(w_least, x_least), min(y_least, z_least)))
        put(work.doubles, place, largest)
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
