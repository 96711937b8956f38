"""Share out the memory of one kernel call, and fill it with operands as doubles.

Every product of two binary32 values is exact in a double: 24 + 24 bits fit 53, and the exponents -298 to 256
are far inside a double's. So is one without the product of the low halves: that has the sign of the whole
product and its unit, so taking it away leaves a number of no more bits.
"""

from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

from ascendsim.numerics.compiled.jit import called, inlined
from ascendsim.numerics.compiled.packing import (
    MARGIN,
    SCRATCH,
    aligned,
    fill_low_halves,
    group_count,
    larger,
    largest_of,
    largest_sum,
    lowest_bits,
    lowest_of,
    pack,
    packed_size,
    padded_size,
    smaller,
)
from ascendsim.numerics.compiled.panel_rounding import (
    LIMBS,
    Rounding,
    at,
    clear,
    columns,
    put,
    rows,
    scalar_bits,
    scalar_float,
    tile,
)
from ascendsim.numerics.compiled.panels import LANES, ROWS, absolute, as_bits, out_of_line, spread, to_single

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
    """Return whether all values are zero or have 12 significant bits or fewer between 1/limit and limit.

    The products of two narrow arrays are exact in binary32 as long as the limit stays below 2^60: they have
    24 bits, none below 2^-120, and are at most 2^120. Inf and NaN are not narrow.
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
    """Measure ROWS rows side by side, into the same array: the largest of their sums of magnitudes."""
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
    """Put the results of `measure`, sooner, for parts of an array of doubles that hold singles.

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


Panel = Any

PANEL: Final = ROWS * LANES


class KernelModel(NamedTuple):
    """The accumulation model, as the compiler takes it.

    block      products per block
    sum        rounding of the sum
    separate   round the sum of products alone, then add it to c (`block-add`)
    add        rounding of the addition to c
    split      leave out the products of the operands' low halves
    """

    block: int
    sum: Rounding
    separate: bool
    add: Rounding
    split: bool


# A model as the compiler takes it soonest: it looks up the type of a plain tuple at once, while named ones
# that lie in each other take it as long as a small product.
PlainModel = tuple[int, int, bool, float, bool, bool, int, bool, float, bool, bool]


def plain(model: KernelModel) -> PlainModel:
    """Return all fields of a model in one flat tuple."""
    return (model.block, *model.sum, model.separate, *model.add, model.split)


@inlined
def named(p: PlainModel) -> KernelModel:
    """Return the model with these fields."""
    how, add = Rounding(p[1], p[2], p[3], p[4]), Rounding(p[6], p[7], p[8], p[9])
    return KernelModel(p[0], how, p[5], add, p[10])


class Memory(NamedTuple):
    """Memory for one kernel call, not initialised.

    doubles, singles   all of it, by the type of its elements
    spare              offset in the singles behind what `prepare` uses: room for the padded accumulators
    extra              offset behind those, of additional room that was asked for
    """

    doubles: Array
    singles: Array
    spare: int
    extra: int


class Workspace(NamedTuple):
    """The memory of one kernel call after `prepare`, and at which offsets it holds what.

    doubles    a, b             packed operands, one after the other
               a_low, b_low     low halves of their significands, for `split3`
               a_extents, ...   per group and block: largest magnitude (of rows: largest sum of magnitudes)
                                and smallest lowest bit
               a_whole, b_whole per group: the extents of all its blocks as one
               start            a panel: accumulators before a careful sum
               result           a panel: sticky sums after it, and scratch memory for rounding
               flags            a panel: positive where a sum is not found yet
               limbs            a long integer, zero between two sums
    singles    a_single, b_single   the packed operands or their magnitudes; a_single begins with a negative
                                number until a kernel has filled them in
               extra            as in `Memory`
    k, blocks                   products per output, and blocks of them
    """

    doubles: Array
    singles: Array
    k: int
    blocks: int
    a: int
    b: int
    a_low: int
    b_low: int
    a_extents: int
    b_extents: int
    a_whole: int
    b_whole: int
    start: int
    result: int
    flags: int
    limbs: int
    a_single: int
    b_single: int
    extra: int


def memory_for(a: Array, b: Array, more: int = 0) -> Memory:
    """Return memory for a kernel on these operands, with `more` singles behind the padded accumulators.

    Room is for the most that `prepare` can use (low halves and the extents of blocks of one product); pages
    that stay untouched cost nothing. The next kernel of this thread gets the same workspace.
    """
    doubles, spare, extra = _room(*a.shape, b.shape[1])
    return Memory(SCRATCH.lend(doubles, np.float64), SCRATCH.lend(extra + more, np.float32), spare, extra)


@lru_cache(maxsize=64)
def _room(m: int, k: int, n: int) -> tuple[int, int, int]:
    """Return the doubles of a product of m x k x n, and where `spare` and `extra` begin among its singles."""
    packed = packed_size(m, k, n)
    # Operands, low halves, and two extents per group and block, and per group once more, which are fewer than
    # two packed operands.
    spare = packed + MARGIN
    return 4 * packed + 3 * PANEL + LIMBS + MARGIN, spare, spare + padded_size(m, n)


@called
def prepare(a: Array, b: Array, memory: Memory, model: KernelModel) -> Workspace:
    """Pack and measure the operands, and share the memory out."""
    out_of_line()
    doubles, singles = memory.doubles, memory.singles
    k = a.shape[1]
    blocks = group_count(k, model.block)
    result = aligned(doubles, 0)
    start, flags, limbs = result + PANEL, result + 2 * PANEL, result + 3 * PANEL
    # The limbs are cleared once: every sum leaves them zero.
    clear(doubles, limbs)
    first, second, a_low = pack(a, b, doubles, limbs + LIMBS)
    b_low = a_low + second - first
    a_extents = b_low + a_low - second
    if model.split:
        fill_low_halves(doubles, first, a_low, a_low)
    b_extents = a_extents + 2 * group_count(a.shape[0], ROWS) * blocks
    row_groups, column_groups = group_count(a.shape[0], ROWS), group_count(b.shape[1], LANES)
    a_whole = b_extents + 2 * column_groups * blocks
    b_whole = a_whole + 2 * row_groups
    for group in range(row_groups):
        where, place = first + group * k * ROWS, a_extents + 2 * group * blocks
        measure_side_by_side(doubles, where, k * ROWS, model.block * ROWS, place)
        sum_up(doubles, place, blocks, a_whole + 2 * group, True)
    for group in range(column_groups):
        where, place = second + group * k * LANES, b_extents + 2 * group * blocks
        measure_columns(doubles, where, k * LANES, model.block * LANES, doubles, place)
        sum_up(doubles, place, blocks, b_whole + 2 * group, False)
    # Filled in by the kernels that use them, and by some only when a first panel needs them. No magnitude is
    # below zero, NaN included, so this says that they are not there yet.
    a_single = aligned(singles, 0)
    put(singles, a_single, -1.0)
    b_single = a_single + second - first
    operands = (first, second, a_low, b_low, a_extents, b_extents, a_whole, b_whole)
    others = (start, result, flags, limbs, a_single, b_single, memory.extra)
    return Workspace(doubles, singles, k, blocks, *operands, *others)


@inlined
def factors(work: Workspace, a: int, b: int, t: int) -> tuple[Panel, Panel]:
    """Return the operands of product t of a panel, or block, that begins so far into packed a and b."""
    return rows(work.doubles, work.a + a + t * ROWS), columns(work.doubles, work.b + b + t * LANES)


@inlined
def single_factors(work: Workspace, a: int, b: int, t: int) -> tuple[Panel, Panel]:
    """Return both factors from the singles: operands or magnitudes, whichever the kernel has filled in."""
    x, y = work.a_single + a + t * ROWS, work.b_single + b + t * LANES
    return rows(work.singles, x), columns(work.singles, y)


@inlined
def low_product(work: Workspace, a: int, b: int, t: int) -> Panel:
    """Return the product of the low halves of the same operands, +0 where it is zero.

    Taking +0 away leaves every zero its sign; taking -0 away would make +0 of -0.
    """
    x, y = rows(work.doubles, work.a_low + a + t * ROWS), columns(work.doubles, work.b_low + b + t * LANES)
    return x * y + spread(0.0)


@inlined
def product(work: Workspace, a: int, b: int, t: int, split: bool) -> Panel:
    """Return product t, which a double holds exactly, with or without that of the low halves."""
    x, y = factors(work, a, b, t)
    exact = x * y
    if split:
        exact = exact - low_product(work, a, b, t)
    return exact
