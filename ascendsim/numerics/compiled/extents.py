"""Measure operands cheaply, to prove that a block of products can be summed exactly in double precision.

Every value is a whole number of its lowest set bit. So all products of one set of operands with another, and
all their sums, are whole numbers of the product of the two sets' smallest such bits; as long as no sum is
beyond 2^53 of those, doubles hold every one of them exactly, in any order. Operands of 11 bits that differ by
up to some 2^13 in size pass (11 + 13 bits on both sides, and a few for the length of a block), which is what
makes float16 data fast.

How large a sum can be follows from rows whose magnitudes are summed and columns of which the largest is
taken: the product of both bounds what a row and a column make. The largest magnitudes of both times the
number of steps would be three times as much for normal data.
"""

from typing import Any, Final

import numpy as np

from ascendsim.numerics.compiled.jit import called, inlined
from ascendsim.numerics.compiled.lanes import (
    larger,
    largest_of,
    largest_sum,
    lowest_bits,
    lowest_of,
    smaller,
)
from ascendsim.numerics.compiled.panel_memory import at, columns, put, scalar_bits, scalar_float, tile
from ascendsim.numerics.compiled.panels import LANES, ROWS, absolute, as_bits, out_of_line, to_single

Array = Any

_MAGNITUDE: Final = (1 << 63) - 1
_FRACTION: Final = (1 << 52) - 1
_LOW_HALF: Final = (1 << 12) - 1  # of a binary32


@called
def extent(values: Array, start: int, stop: int) -> tuple[float, float]:
    """Return a bound of the magnitudes of part of an array, and the smallest lowest set bit.

    Zeros    have no lowest bit: a set of zeros gives 0 and infinity
    Special  infinity and NaN give a magnitude that no finite bound admits
    """
    # Patterns of positive floats are ordered as the floats are, so integers can be compared, and the loop has
    # no branch: it runs on vectors.
    largest, smallest = 0, _MAGNITUDE
    for index in range(start, stop):
        value = abs(np.float64(at(values, index)))
        magnitude = scalar_bits(value)
        # x & (x - 1) clears the lowest set bit. With an empty fraction that is the hidden one, which the
        # pattern does not show: then the value is its own lowest bit. No single is a subnormal double.
        rest = magnitude & (magnitude - 1) if magnitude & _FRACTION else 0
        lowest_bit = scalar_bits(value - scalar_float(rest))
        largest = max(largest, magnitude)
        smallest = min(smallest, (lowest_bit - 1) & _MAGNITUDE)  # zero wraps round to the largest
    if smallest == _MAGNITUDE:
        return scalar_float(largest), np.inf
    return scalar_float(largest), scalar_float(smallest + 1)


@called
def is_narrow(values: Array, limit: float) -> bool:
    """Tell whether all values are zero or have 12 significant bits or fewer between 1/limit and limit.

    The products of two such arrays are exact in binary32 as long as the limit stays below 2^60: they have 24
    bits, none below 2^-120, and are at most 2^120. Inf and NaN are not narrow.
    """
    low = 0
    for index in range(values.size):
        low |= scalar_bits(at(values, index)) & _LOW_HALF
    largest, finest = extent(values, 0, values.size)
    return low == 0 and largest <= limit and finest * limit >= 1.0


@called
def measure(values: Array, first: int, size: int, part: int, target: Array, place: int) -> None:
    """Put the extents of each part of an array one after the other; of the last part, what there is of it."""
    out_of_line()
    for start in range(0, size, part):
        largest, finest = extent(values, first + start, first + min(start + part, size))
        put(target, place, bound(largest))
        put(target, place + 1, finest)
        place += 2


@called
def measure_side_by_side(values: Array, first: int, size: int, part: int, place: int) -> None:
    """Put the same of ROWS rows side by side, in the same array: the largest of their sums of magnitudes."""
    out_of_line()
    for start in range(0, size, part):
        begin, stop = first + start, first + min(start + part, size)
        if (stop - begin) % LANES == 0:
            largest, finest = _rows_at_once(values, begin, stop)
        else:
            w, x, y, z = sums_of_four(values, begin, stop)
            largest = max(max(bound(w), bound(x)), max(bound(y), bound(z)))
            finest = extent(values, begin, stop)[1]
        put(values, place, largest)
        put(values, place + 1, finest)
        place += 2


@called
def measure_columns(values: Array, first: int, size: int, part: int, target: Array, place: int) -> None:
    """Put the same as `measure`, sooner, of parts of an array of doubles that hold singles.

    part   a whole multiple of LANES, as `size` is
    """
    out_of_line()
    for start in range(0, size, part):
        begin, stop = first + start, first + min(start + part, size)
        if stop - begin >= ROWS * LANES:
            largest, finest = _panels_at_once(values, begin, stop)
        else:
            largest, finest = extent(values, begin, stop)
        put(target, place, bound(largest))
        put(target, place + 1, finest)
        place += 2


@inlined
def sum_up(values: Array, place: int, blocks: int, target: int, summed: bool) -> None:
    """Put the extents of some blocks together as those of one; `summed` are those of rows."""
    largest, total, finest = 0.0, 0.0, np.inf
    for number in range(blocks):
        size = at(values, place + 2 * number)
        largest, total = max(largest, size), total + size
        finest = min(finest, at(values, place + 2 * number + 1))
    put(values, target, total if summed else largest)
    put(values, target + 1, finest)


@inlined
def _panels_at_once(values: Array, start: int, stop: int) -> tuple[float, float]:
    """Return the extent of a whole panel of doubles or more, which hold singles."""
    sizes = absolute(to_single(tile(values, start, LANES)))
    most, least = as_bits(sizes), lowest_bits(sizes)
    for place in range(start + ROWS * LANES, stop, ROWS * LANES):
        # The last panel may take in again what the one before has: that changes neither.
        sizes = absolute(to_single(tile(values, min(place, stop - ROWS * LANES), LANES)))
        most, least = larger(most, as_bits(sizes)), smaller(least, lowest_bits(sizes))
    return largest_of(most), lowest_of(least)


@inlined
def _rows_at_once(values: Array, start: int, stop: int) -> tuple[float, float]:
    """Return the largest sum of magnitudes of ROWS rows side by side, and their smallest lowest set bit."""
    total = absolute(columns(values, start))
    least = lowest_bits(to_single(total))
    for place in range(start + LANES, stop, LANES):
        sizes = absolute(columns(values, place))
        least, total = smaller(least, lowest_bits(to_single(sizes))), total + sizes
    return largest_sum(total), lowest_of(least)


@called
def sums_of_four(values: Array, start: int, stop: int) -> tuple[float, float, float, float]:
    """Return the sums of every fourth magnitude, from the first, second, third and fourth on."""
    # Four at a time, also because one sum alone would wait for each of its additions.
    w = x = y = z = 0.0
    for index in range(start, stop, ROWS):
        w += abs(np.float64(at(values, index)))
        x += abs(np.float64(at(values, index + 1)))
        y += abs(np.float64(at(values, index + 2)))
        z += abs(np.float64(at(values, index + 3)))
    return w, x, y, z


@inlined
def bound(size: float) -> float:
    """Return a size that comparisons can be made with."""
    # A NaN would be lost among other sizes; an infinity says as well that nothing is proven.
    return size if size <= np.inf else np.inf
