"""Add a piece of a reduction to one panel of accumulators under `block:K:RNE`.

The ways to an exact sum are those of `block_sums`. A bound and a unit of the accumulators go along from piece
to piece; the accumulators themselves are looked at only where these prove nothing any more.
"""

from typing import Any, Final

import numpy as np

from ascendsim.numerics.compiled.block_sums import (
    SAFE_UNIT,
    SMALLEST,
    Block,
    Packed,
    add_blocks,
    add_normal_blocks,
    add_steps,
    careful_sum,
    is_exact,
    is_far_from_ties,
    is_normal,
)
from ascendsim.numerics.compiled.gathered.measured import Lines, Piece
from ascendsim.numerics.compiled.gathered.places import copy_rows
from ascendsim.numerics.compiled.jit import called, inlined
from ascendsim.numerics.compiled.packing import fill_magnitudes, has_minus_zero, reach_and_unit
from ascendsim.numerics.compiled.panel_rounding import at, columns, put, rows_from, store, tile
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
from ascendsim.numerics.compiled.workspace import KernelModel, Workspace

Array = Any
Panel = Any

_GROWTH: Final = 1.001  # what rounding adds to a bound at most, and more
_SUBNORMAL: Final = 2.0**-150  # what it adds to a subnormal single, however small that is: half a unit
_ROUNDOFF: Final = 2.0**-53


@inlined
def add_piece(
    a: Lines,
    i: int,
    left: Packed,
    piece: Piece,
    work: Workspace,
    known: int,
    sums: int,
    c: Array,
    cell: int,
    from_zero: bool,
    model: KernelModel,
) -> None:
    """Add a piece to the panel whose first accumulator is at `cell`, or to +0."""
    acc = spread(np.float32(0.0)) if from_zero else tile(c, cell, c.shape[2])
    # What has been known of the accumulators since they were last looked at, then what they are.
    reach, unit = at(work.doubles, sums), at(work.doubles, sums + 1)
    most, least = _widened(reach, unit, _whole(work, known, piece), piece.blocks)
    if not is_exact(most, least):
        reach, unit = _looked_at(acc, unit)
        most, least = _widened(reach, unit, _whole(work, known, piece), piece.blocks)
    proven = is_exact(most, least)
    if not proven:
        # Block by block the extents are closer.
        proven, most, least = True, reach, unit
        for number in range(piece.blocks):
            block = _block(work, known, number, model.block, piece.length)
            most, least = _widened(most, least, block, 1)
            proven = proven and is_exact(most, least)
    if proven and is_normal(most, least):
        acc = add_normal_blocks(left, work.doubles, work.b, piece.length, model.block, acc, False)
    elif proven:
        acc = add_blocks(left, work.doubles, work.b, piece.length, model.block, acc)
    else:
        for number in range(piece.blocks):
            block = _block(work, known, number, model.block, piece.length)
            reach, unit = _widened(reach, unit, block, 1)
            # What the accumulators really are is often better known: they have been rounded meanwhile.
            if not is_exact(reach, unit):
                reach, unit = _looked_at(acc, unit)
                reach, unit = _widened(reach, unit, block, 1)
            exact = is_exact(reach, unit)
            acc = _checked(a, i, left, piece, work, block, number * model.block, acc, exact, model)
        most, least = reach, unit
    put(work.doubles, sums, most)
    put(work.doubles, sums + 1, least)
    store(acc, c, cell, c.shape[2])


@inlined
def _looked_at(acc: Panel, unit: float) -> tuple[float, float]:
    """Return a bound of accumulators as they are, and a unit of theirs, of which one has been known."""
    reach, seen = reach_and_unit(acc)
    # Sums that are whole multiples of a single never become -0, which looks like any other zero.
    if unit < SMALLEST and has_minus_zero(acc):
        return reach, unit
    return reach, max(unit, seen)


@inlined
def _widened(reach: float, unit: float, block: Block, roundings: int) -> tuple[float, float]:
    """Return a bound and a unit of accumulators as they are after a block, or after all blocks of a piece.

    Sums stay whole multiples of the common unit, whatever rounding does, as `block_sums.widened` has it. Each
    rounding adds 2^-24 of a bound at most, so that _GROWTH is room enough for as many as a piece can have;
    but where a sum is a subnormal single, half a unit of those, which may be as much as the bound itself.
    """
    return (reach + block.bound) * _GROWTH + roundings * _SUBNORMAL, min(unit, block.unit)


@inlined
def _checked(
    a: Lines,
    i: int,
    left: Packed,
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
    total = add_steps(left, work.doubles, work.b, first, first + block.length, widen(acc))
    found = to_single(total)
    if not proven and not is_far_from_ties(total, found, block):
        _need_magnitudes(work, piece.length)
        w, x, y, z = at(a.lines, i), at(a.lines, i + 1), at(a.lines, i + 2), at(a.lines, i + 3)
        size = absolute(acc)
        for t in range(block.length):
            rows = rows_from(a.values, at(a.steps, begin + t), w, x, y, z)
            size = fma(absolute(rows), columns(work.singles, work.b_single + block.b + t * LANES), size)
        error = widen(size) * spread((3 * block.length + 8) * _ROUNDOFF)
        found, high = to_single(total - error), to_single(total + error)
        if block.unit < SAFE_UNIT or any_lane(differs(as_bits(found), as_bits(high))):
            store(widen(acc), work.doubles, work.start, LANES)
            _careful(a, i, begin, work, block, model)
            found = to_single(tile(work.doubles, work.result, LANES))
    return found


@inlined
def _whole(work: Workspace, known: int, piece: Piece) -> Block:
    """Return all blocks of a panel as if they were one."""
    return _extents_of(work, known, work.b_extents, 0, piece.length)


@inlined
def _block(work: Workspace, known: int, number: int, size: int, steps: int) -> Block:
    """Find a block of a panel by its number; `known` is where the extents of the panel's lines are."""
    ours, theirs = known + 2 * (1 + number), work.b_extents + 2 * (1 + number)
    return _extents_of(work, ours, theirs, number * size, min(size, steps - number * size))


@inlined
def _extents_of(work: Workspace, ours: int, theirs: int, first: int, length: int) -> Block:
    return Block(
        first * ROWS,
        first * LANES,
        length,
        at(work.doubles, ours) * at(work.doubles, theirs),
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
