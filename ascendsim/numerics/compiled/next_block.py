"""Take a panel through blocks whose partial sums doubles hold, its sums in registers from block to block."""

from typing import Any, Final, NamedTuple

import numpy as np

from ascendsim.numerics.compiled.crossing import next_block
from ascendsim.numerics.compiled.jit import inlined
from ascendsim.numerics.compiled.panel_memory import columns, rows_from
from ascendsim.numerics.compiled.panels import LANES, as_bits, as_float, fma, spread, to_single, widen

Array = Any
Panel = Any

# The smallest single, a bound that leaves room to the largest, and how far `split` is proven.
SMALLEST: Final = 2.0**-149
_LARGE: Final = 2.0**127
_SPLIT_UNITS: Final = 2.0**53 * (1.0 - 2.0**-28)
_TIMES_2_29: Final = 2.0**29
# Of a double, the bits that a single has a place for, and its sign.
_IN_SINGLE: Final = np.int64(-(1 << 29))


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
    return unit >= SMALLEST and reach <= min(_LARGE, _SPLIT_UNITS * unit)


@inlined
def add_normal_blocks(
    left: Packed, right: Array, place: int, length: int, size: int, acc: Panel, cuts: bool
) -> Panel:
    """Return the same as `add_blocks`, sooner, if `is_normal` and none of the accumulators is -0.

    cuts   sums are cut, while the processor rounds toward zero; accumulators may be -0 then
    """
    total, last = widen(acc), (length - 1) // size * size
    for first in range(0, last, size):
        total = add_steps(left, right, place, first, first + size, total)
        total = cut(total) if cuts else split(total)
    return to_single(add_steps(left, right, place, last, length, total))


@inlined
def cut(x: Panel) -> Panel:
    """Round doubles that are multiples of SMALLEST toward zero to singles; -0 stays.

    Singles below the normal ones have fewer bits than are left here, and such multiples need no more.
    """
    return as_float(as_bits(x) & spread(_IN_SINGLE))


@inlined
def split(x: Panel) -> Panel:
    """Round doubles to singles by two operations that go beside multiply-adds; conversions hold these up.

    It is Veltkamp's splitting. 2^29 x + x has its last place where a single as large as x has it, and 2^29 x
    is a whole multiple of that place, with an even number of them where x is in the middle of two singles. So
    the first operation rounds x as a conversion does, and the second takes 2^29 x off, exactly.

    Where the sum reaches the next power of two, its last place is twice as large. It does so only for an x
    less than 2^-29 of itself below a power of two, which rounds up to that. 2^29 x is a whole multiple of the
    last place then as well, unless x is odd in its 53rd bit: an odd number of units just below 2^53.

    Assumes  multiples of SMALLEST, so that singles below the normal ones are exact already; -0 becomes +0
    """
    return fma(x, spread(-_TIMES_2_29), x * spread(_TIMES_2_29 + 1.0))


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
