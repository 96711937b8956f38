"""Take a panel through blocks whose partial sums doubles hold, its sums in registers from block to block."""

from typing import Any, Final, NamedTuple

from ascendsim.numerics.compiled.crossing import (
    AFTER,
    BEFORE,
    LARGE,
    SMALLEST,
    next_block,
    next_normal_block,
)
from ascendsim.numerics.compiled.jit import inlined
from ascendsim.numerics.compiled.panel_memory import columns, rows_from
from ascendsim.numerics.compiled.panels import LANES, fma, to_single, widen

Array = Any
Panel = Any

_LEAST_SIZE: Final = BEFORE + AFTER  # products of a block that `next_normal_block` can leave and enter


class Packed(NamedTuple):
    """The rows of a panel: row r begins at first + r * row, and goes on `step` by step.

    values   memory that holds them
    """

    values: Array
    first: int
    row: int
    step: int


@inlined
def left_of(panel: Packed, t: int) -> Panel:
    """Return the element of each row at a step, in all lanes of the row."""
    first, row = panel.first, panel.row
    return rows_from(panel.values, t * panel.step, first, first + row, first + 2 * row, first + 3 * row)


@inlined
def add_blocks(left: Packed, right: Array, place: int, length: int, size: int, acc: Panel) -> Panel:
    """Return accumulators after so many steps in blocks of a size, each sum rounded once to a single.

    right, place   doubles, LANES for each step from there on
    """
    full = length // size
    if full > 0:
        total = add_steps(left, right, place, 0, size - 1, widen(acc))
        for number in range(1, full):
            first = number * size
            total = _next(left, right, place, first, total)
            total = add_steps(left, right, place, first + 1, first + size - 1, total)
        acc = to_single(add_steps(left, right, place, full * size - 1, full * size, total))
    if full * size < length:
        acc = to_single(add_steps(left, right, place, full * size, length, widen(acc)))
    return acc


@inlined
def is_normal(reach: float, unit: float) -> bool:
    """Tell whether `add_normal_blocks` rounds multiples of a unit up to a bound as conversions do."""
    return unit >= SMALLEST and reach <= LARGE


@inlined
def add_normal_blocks(left: Packed, right: Array, place: int, length: int, size: int, acc: Panel) -> Panel:
    """Return the same as `add_blocks`, sooner, if `is_normal` and none of the accumulators is -0."""
    if size < _LEAST_SIZE or length < 2 * size:
        return add_blocks(left, right, place, length, size, acc)
    full = length // size
    total = add_steps(left, right, place, 0, size - BEFORE, widen(acc))
    first, row = left.first, left.row
    w, x, y, z = first, first + row, first + 2 * row, first + 3 * row
    for number in range(1, full):
        start = number * size - BEFORE
        step, columns = start * left.step, place + start * LANES
        total = next_normal_block(total, left.values, step, left.step, w, x, y, z, right, columns)
        total = add_steps(left, right, place, start + BEFORE + AFTER, start + size, total)
    acc = to_single(add_steps(left, right, place, full * size - BEFORE, full * size, total))
    if full * size < length:
        acc = to_single(add_steps(left, right, place, full * size, length, widen(acc)))
    return acc


@inlined
def add_steps(left: Packed, right: Array, place: int, first: int, stop: int, total: Panel) -> Panel:
    """Return sums with the products of some steps, added in double."""
    for t in range(first, stop):
        total = fma(left_of(left, t), columns(right, place + t * LANES), total)
    return total


@inlined
def _next(left: Packed, right: Array, place: int, t: int, total: Panel) -> Panel:
    """Add the last products of a block to sums, round these, and add the first products of the next, at t."""
    first, row = left.first, left.row
    w, x, y, z = first, first + row, first + 2 * row, first + 3 * row
    last = (t - 1) * left.step
    return next_block(total, left.values, last, left.step, w, x, y, z, right, place + (t - 1) * LANES)
