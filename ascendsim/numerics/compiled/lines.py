"""Lines of a factor for panels: taken from their places, laid out close together, and measured.

Where they come from, the rows of one panel may be so far apart that they drive each other out of the nearest
cache; the columns of one are copied to lie together. The operands of a piece of a reduction are measured as
`block_sums` wants it, runs of elements only once.
"""

from collections.abc import Callable
from math import gcd
from typing import Any, Final, NamedTuple, Self

import numpy as np
from llvmlite import ir

from ascendsim.numerics.compiled.block_sums import Packed
from ascendsim.numerics.compiled.jit import called, inlined, kernel
from ascendsim.numerics.compiled.panel_rounding import at, make_array, put
from ascendsim.numerics.compiled.panels import (
    LANES,
    ROWS,
    SCALARS,
    Value,
    intrinsic,
    out_of_line,
    types,
    vector,
)
from ascendsim.numerics.compiled.workspace import (
    Workspace,
    bound,
    extent,
    measure,
    measure_side_by_side,
    sum_up,
    sums_of_four,
)
from ascendsim.numerics.factor import Elements, Factor, Places, Values

Array = Any

# Elements that are copied at once where steps follow each other: a group of float32 channels, or of float16.
RUN: Final = 8
LONG_RUN: Final = 16


def _copier(count: int) -> Callable[..., Any]:
    """Make an operation that copies so many elements which lie together, singles perhaps to doubles."""

    def copy(_typing: Value, values: Value, _source: Value, target: Value, _goal: Value) -> Value:
        def codegen(context: Value, builder: Value, sig: Value, args: Value) -> Value:
            kinds = [ir.VectorType(vector(SCALARS[one.dtype]).element, count) for one in (values, target)]
            arrays = zip(sig.args[::2], args[::2], args[1::2], kinds, strict=True)
            places = [
                builder.bitcast(
                    builder.gep(make_array(t)(context, builder, x).data, [place]), kind.as_pointer()
                )
                for t, x, place, kind in arrays
            ]
            # Singles may begin anywhere: a vector's own alignment, assumed otherwise, would fault.
            lanes = builder.load(places[0], align=4)
            wide = lanes if kinds[0] == kinds[1] else builder.fpext(lanes, kinds[1])
            builder.store(wide, places[1], align=4)
            return context.get_dummy_value()

        return types.void(values, types.intp, target, types.intp), codegen

    return intrinsic(copy)  # type: ignore[no-any-return]


# (values, source, target, goal)
copy_lanes, copy_four, copy_run, copy_long_run = (_copier(count) for count in (LANES, ROWS, RUN, LONG_RUN))


@called
def copy_columns(b: Any, line: int, first: int, last: int, target: Array, place: int) -> None:
    """Copy LANES lines of a factor along some steps to `target`: LANES elements together for each step."""
    out_of_line()
    start, together = at(b.lines, line), True
    for lane in range(LANES):
        together = together and at(b.lines, line + lane) == start + lane
    for step in range(first, last):
        goal, source = place + (step - first) * LANES, at(b.steps, step)
        if together:
            copy_lanes(b.values, start + source, target, goal)
        else:
            for lane in range(LANES):
                put(target, goal + lane, at(b.values, at(b.lines, line + lane) + source))


@called
def copy_rows(a: Any, line: int, first: int, last: int, target: Array, place: int) -> None:
    """Copy ROWS lines of a factor along some steps to `target`: ROWS elements side by side for each step."""
    out_of_line()
    for step in range(first, last):
        for row in range(ROWS):
            value = at(a.values, at(a.lines, line + row) + at(a.steps, step))
            put(target, place + (step - first) * ROWS + row, value)


@kernel
def write_rows(a: Elements, first: int, last: int, out: Array) -> None:
    """Write some steps of a factor out, line by line: (lines, last - first)."""
    width = last - first
    for line in range(a.lines.size):
        start = at(a.lines, line)
        for step in range(first, last):
            put(out, line * width + step - first, at(a.values, start + at(a.steps, step)))


@kernel
def write_columns(b: Elements, first: int, last: int, out: Array) -> None:
    """Write some steps of a factor out, step by step: (last - first, lines)."""
    width = b.lines.size
    for step in range(first, last):
        start = at(b.steps, step)
        for line in range(width):
            put(out, (step - first) * width + line, at(b.values, at(b.lines, line) + start))


@called
def pack_rows(a: Any, run: int, lines: Any, steps: Any, target: Array, place: int) -> None:
    """Lay some lines of a factor out along some steps, ROWS lines after the other.

    run      steps that follow each other, from the first one on: a multiple of ROWS. The lines of a panel are
             then one after the other; with 0 they are side by side, step after step
    lines    (first, last), whole panels; steps: (first, last)
    """
    out_of_line()
    first, last = steps
    for line in range(lines[0], lines[1], ROWS):
        goal = place + (line - lines[0]) * (last - first)
        if run > 0:
            for row in range(ROWS):
                _copy_runs(a, run, line + row, first, last, target, goal + row * (last - first))
        elif _are_neighbours(a, line):
            start = at(a.lines, line)
            for step in range(first, last):
                copy_four(a.values, start + at(a.steps, step), target, goal + (step - first) * ROWS)
        else:
            copy_rows(a, line, first, last, target, goal)


@inlined
def _copy_runs(a: Any, run: int, line: int, first: int, last: int, target: Array, goal: int) -> None:
    start = at(a.lines, line)
    long = LONG_RUN if run % LONG_RUN == 0 else RUN if run % RUN == 0 else ROWS
    whole = first + (last - first) // long * long
    if long == LONG_RUN:
        for step in range(first, whole, LONG_RUN):
            copy_long_run(a.values, start + at(a.steps, step), target, goal + step - first)
    elif long == RUN:
        for step in range(first, whole, RUN):
            copy_run(a.values, start + at(a.steps, step), target, goal + step - first)
    else:
        for step in range(first, whole, ROWS):
            copy_four(a.values, start + at(a.steps, step), target, goal + step - first)
    # The last run may be short, and what lies behind it is not ours.
    for step in range(whole, last):
        put(target, goal + step - first, at(a.values, start + at(a.steps, step)))


@inlined
def _are_neighbours(a: Any, line: int) -> bool:
    """Return whether the elements of a panel's lines lie one after the other."""
    together = True
    for row in range(1, ROWS):
        together = together and at(a.lines, line + row) == at(a.lines, line) + row
    return together


@inlined
def panel_of(values: Array, place: int, run: int, line: int, length: int) -> Packed:
    """Return the panel that begins so many lines behind the first one that `pack_rows` has laid out."""
    first = place + line * length
    return Packed(values, first, length, 1) if run > 0 else Packed(values, first, 1, ROWS)


class FactorLines(NamedTuple):
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


class ReductionPiece(NamedTuple):
    """A piece of the reduction: its first step, how many there are, and how many blocks these make."""

    first: int
    length: int
    blocks: int


class LineRuns(NamedTuple):
    """What `FactorLines` says of places alone."""

    lines: Array
    steps: Array
    run: int

    @classmethod
    def left(cls, a: Factor, cuts: Places, block: int) -> Self:
        """Return those of a left factor, in runs where blocks are whole runs of ROWS elements or more."""
        run = gcd(a.run, block)
        # A block that begins inside a run has other extents than whole runs.
        whole = run % ROWS == 0 and not np.any(cuts[:-1] % run) and not np.any(a.lines % run)
        return cls._of(a, run if whole else 0)

    @classmethod
    def right(cls, b: Factor) -> Self:
        """Return those of a right factor, in runs where the columns of a panel lie side by side."""
        return cls._of(b, LANES if _are_side_by_side(b) else 0)

    @classmethod
    def _of(cls, factor: Factor, run: int) -> Self:
        unit = max(run, 1)
        return cls(factor.lines // unit, factor.steps // unit, run)

    def measured(self, factor: Factor, *, summed: bool) -> FactorLines:
        """Return the factor with the extents of its runs; `summed`: sums of magnitudes, as of a left one."""
        values = factor.values
        extents = _runs(values, self.run, values.sums if summed else values.extents, summed)
        return FactorLines(values.singles, factor.lines, factor.steps, extents, *self)


def _are_side_by_side(b: Factor) -> bool:
    """Return whether the columns of each panel lie side by side, from a whole multiple of LANES on."""
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
    a: FactorLines,
    line: int,
    stop: int,
    piece: ReductionPiece,
    work: Workspace,
    packed: int,
    table: int,
    block: int,
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
def measure_columns(b: FactorLines, j: int, piece: ReductionPiece, work: Workspace, block: int) -> None:
    """Put the extents of a piece and of each of its blocks, for the columns that have been copied."""
    out_of_line()
    place = work.b_extents + 2
    if b.run > 0:
        _combine_columns(b, j, piece, work, place, block)
    else:
        measure(work.doubles, work.b, piece.length * LANES, block * LANES, work.doubles, place)
    sum_up(work.doubles, place, piece.blocks, work.b_extents, False)


@called
def _combine_rows(
    a: FactorLines, line: int, piece: ReductionPiece, work: Workspace, place: int, block: int
) -> None:
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
def _combine_columns(
    b: FactorLines, j: int, piece: ReductionPiece, work: Workspace, place: int, block: int
) -> None:
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
def _extents_at(factor: FactorLines, run: int) -> tuple[float, float]:
    return at(factor.extents, 2 * run), at(factor.extents, 2 * run + 1)
