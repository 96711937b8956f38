"""Sum one block of products exactly enough to round it: three ways, from fast to general.

1. The extents of the operands prove that doubles hold every partial sum, or the processor notes that it has
   rounded none of them: add.
2. A sum in double and a bound of its error: where both ends of the interval round alike, that is the answer.
   Where it is far from the middle between two singles, and not small, its bits alone show that they do.
3. A sum with its errors, which are summed in turn: where this second sum is exact, both together are the
   exact value; single places where it is not are summed as long integers.

The exact sum of a block is handed on as a *sticky* double (see `panel_rounding`).
"""

from typing import Any, Final, NamedTuple

import numpy as np

from ascendsim.numerics.compiled.jit import called, inlined
from ascendsim.numerics.compiled.packing import fill_magnitudes, group_count
from ascendsim.numerics.compiled.panel_rounding import (
    add_term,
    at,
    columns,
    exact_sum,
    put,
    rounded,
    rows_from,
    sticky_value,
    store,
    tile,
    two_sum,
)
from ascendsim.numerics.compiled.panels import (
    LANES,
    ROWS,
    absolute,
    all_clear,
    any_lane,
    as_bits,
    as_float,
    differs,
    fma,
    nearest_single,
    nonzero,
    out_of_line,
    round_to_nearest,
    round_toward_zero,
    select,
    spread,
    to_single,
    widen,
)
from ascendsim.numerics.compiled.workspace import (
    PANEL,
    KernelModel,
    Workspace,
    extent,
    factors,
    low_product,
    product,
    single_factors,
)

Array = Any
Panel = Any

EXACT_UNITS: Final = 2.0**53
_ZERO: Final = np.float32(0.0)
# What rounding adds to a bound. Into 11 bits or more: 2^-10 of it at most, in any mode (1.001 is above that).
# Low halves of products, which `split3` takes away late: 2^-22 of it. Into subnormal halves: a unit, 2^-24.
_GROWTH: Final = 1.001
_SUBNORMAL: Final = 2.0**-24
# Products that are multiples of this are far from the subnormal singles. Smaller ones could vanish from a
# bound that is summed in singles, which would then be no bound.
SAFE_UNIT: Final = 2.0**-100
_ROUNDOFF: Final = 2.0**-53
# Of a double, the bits that a single has no place for, and what of them is the middle between two singles.
_BELOW_SINGLE: Final = np.int64((1 << 29) - 1)
_MIDDLE: Final = np.int64(1 << 28)
# By how many bits a total may be smaller than a partial sum. It may be so if it is below this share of the
# bound, and a bit is spared for its own rounding.
_CANCELLED: Final = np.int64(12)
_LEAST_SHARE: Final = 1.001 * 2.0**-12
# All errors then are below 2^27 last places: a total and its exact sum may lie on two sides of a power of
# two, but not on two sides of the middle below it.
_MOST_PRODUCTS: Final = (1 << 14) - 1
_SMALLEST_NORMAL: Final = 2.0**-126
# Of a double, the bits that a single has a place for, and its sign.
_IN_SINGLE: Final = np.int64(-(1 << 29))


class PanelBlock(NamedTuple):
    """One block of one panel.

    a, b     where its operands begin, counted from the first packed row and column
    length   products per accumulator; the last block may be short
    bound    no sum of magnitudes of its products is larger; not finite where an operand is not
    unit     all its products are whole multiples of this power of two; infinite where all are zero
    """

    a: int
    b: int
    length: int
    bound: float
    unit: float


@inlined
def widened(reach: float, unit: float, block: PanelBlock) -> tuple[float, float]:
    """Return a bound of the accumulators and a unit of theirs, as they are after one more block.

    What is known stays true: sums are multiples of the common unit, and rounding leaves them so: what does
    not fit the format becomes a multiple of a coarser power of two, except at an overflow toward zero.
    """
    return (reach + block.bound) * _GROWTH + _SUBNORMAL, min(unit, block.unit)


@inlined
def is_exact(reach: float, unit: float) -> bool:
    """Return whether a double holds every multiple of a unit up to a bound."""
    return reach <= EXACT_UNITS * unit


@inlined
def plain_sum(work: Workspace, block: PanelBlock, acc: Panel, split: bool) -> Panel:
    """Add the products in double."""
    for t in range(block.length):
        x, y = factors(work, block.a, block.b, t)
        acc = fma(x, y, acc)
        if split:
            acc = acc - low_product(work, block.a, block.b, t)
    return acc


@inlined
def error_bound(work: Workspace, block: PanelBlock, start: Panel, cuts: bool) -> Panel:
    """Bound what `plain_sum` loses: two roundings per product or fewer, each 2^-53 of a partial sum.

    Counting three leaves room for the roundings of the bound itself, which is summed in singles, and the
    eight for those of `total - error` and `total + error`. A cut loses up to twice as much as a rounding.
    """
    reach = absolute(to_single(start))
    size = spread(_ZERO) if cuts else reach
    for t in range(block.length):
        x, y = single_factors(work, block.a, block.b, t)
        size = fma(x, y, size)
    units = 3 * block.length + 8
    if cuts:
        # Products that are all zero lose nothing. A bound above zero would leave two answers wherever the
        # accumulator itself is one, since it is cut to another value as soon as anything is taken away.
        size = select(nonzero(size), size + reach, size)
        units = 2 * units
    return widen(size) * spread(units * _ROUNDOFF)


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


class Blocks(NamedTuple):
    """The blocks of one panel, and where in the doubles of a workspace they are.

    left, right    the rows, and the columns of the first step
    steps, size    products per accumulator, and those of a full block
    a, b           where its operands begin, as `PanelBlock` counts
    ours, theirs   extents of the rows and of the columns, of each block
    """

    left: Packed
    right: int
    steps: int
    size: int
    a: int
    b: int
    ours: int
    theirs: int


@inlined
def blocks_of(work: Workspace, i: int, j: int, size: int) -> Blocks:
    """Find the blocks of a panel by its first row and column."""
    group, panel, k = i // ROWS, j // LANES, work.k
    left, right = Packed(work.doubles, work.a + i * k, 1, ROWS), work.b + j * k
    extents = work.a_extents + 2 * group * work.blocks, work.b_extents + 2 * panel * work.blocks
    return Blocks(left, right, k, size, i * k, j * k, *extents)


@inlined
def block_at(work: Workspace, blocks: Blocks, number: int) -> PanelBlock:
    """Return a block by its number."""
    first, ours, theirs = number * blocks.size, blocks.ours + 2 * number, blocks.theirs + 2 * number
    return PanelBlock(
        blocks.a + first * ROWS,
        blocks.b + first * LANES,
        min(blocks.size, blocks.steps - first),
        at(work.doubles, ours) * at(work.doubles, theirs),
        at(work.doubles, ours + 1) * at(work.doubles, theirs + 1),
    )


@called
def add_clear(work: Workspace, blocks: Blocks, number: int, roomy: bool) -> int:
    """Add blocks from a number on to the accumulators at `start`, up to one where a quick test says nothing.

    Then the accumulators are those before this block, and `result` has its sums as doubles add them. Only
    where the machine rounds to nearest.

    Each product may add an error of half a last place of a partial sum. No partial sum is larger than the
    total and the bound together, so none is where the total is not small against the bound. A total that lies
    further from the middle between two singles than all these errors rounds as the exact sum does.

    roomy   no sum overflows a single
    """
    out_of_line()
    count, doubles = group_count(blocks.steps, blocks.size), work.doubles
    width, places = np.int64(1), np.int64(min(blocks.size, blocks.steps) + 1) << _CANCELLED
    while width <= places:
        width *= 2
    # Half a last place of a single further, bits that follow a single begin at the middle, and are cut off.
    shift, near = _MIDDLE + width, _BELOW_SINGLE - (2 * width - 1)
    total = tile(doubles, work.start, LANES)
    while number < count:
        store(total, doubles, work.start, LANES)
        block, first = block_at(work, blocks, number), number * blocks.size
        total = add_steps(blocks.left, doubles, blocks.right, first, first + block.length, total)
        bits = as_bits(total) + spread(shift)
        # What has been added changes magnitudes less than the last place of a single.
        clear = all_clear(bits, near, max(block.bound * _LEAST_SHARE, _SMALLEST_NORMAL))
        if not (clear and block.bound < np.inf and roomy and block.length <= _MOST_PRODUCTS):
            store(total, doubles, work.result, LANES)
            return number
        total = as_float(bits & spread(_IN_SINGLE))
        number += 1
    store(total, doubles, work.start, LANES)
    return number


@called
def add_within(work: Workspace, blocks: Blocks, number: int) -> bool:
    """Add a block to the accumulators at `start`; return False if the exact sums may round to others.

    At `result` are its sums as doubles add them. Where both ends of what these may lack round alike, so does
    the exact sum. Three roundings for each product leave room, and eight more for those of the ends.
    """
    out_of_line()
    start, right = tile(work.doubles, work.start, LANES), blocks.right
    first, stop = number * blocks.size, min((number + 1) * blocks.size, blocks.steps)
    total, size = tile(work.doubles, work.result, LANES), absolute(start)
    for t in range(first, stop):
        x, y = left_of(blocks.left, t), columns(work.doubles, right + t * LANES)
        size = fma(absolute(x), absolute(y), size)
    # Doubles lose nothing of a sum that is not finite.
    size = select(size < spread(np.inf), size, spread(0.0))
    error = size * spread((3 * (stop - first) + 8) * _ROUNDOFF)
    low, high = to_single(total - error), to_single(total + error)
    if any_lane(differs(as_bits(low), as_bits(high))):
        return False
    store(widen(low), work.doubles, work.start, LANES)
    return True


@inlined
def need_magnitudes(work: Workspace) -> None:
    """Fill in the magnitudes of the operands, if that has not been done."""
    if at(work.singles, work.a_single) < 0.0:
        _fill_magnitudes(work)


@called
def _fill_magnitudes(work: Workspace) -> None:
    out_of_line()
    fill_magnitudes(work.doubles, work.a, work.a_low, work.singles, work.a_single)


@called
def careful_sum(work: Workspace, block: PanelBlock, model: KernelModel) -> None:
    """Turn the accumulators at `start` into sums at `result`."""
    out_of_line()
    start = tile(work.doubles, work.start, LANES)
    # The first test is without the accumulators: to measure those is worth it only where the products pass.
    if block.bound <= EXACT_UNITS * block.unit:
        reach, unit = extent(work.doubles, work.start, work.start + PANEL)
        reach, unit = widened(reach, unit, block)
        if is_exact(reach, unit):
            store(plain_sum(work, block, start, model.split), work.doubles, work.result, LANES)
            return
    if block.unit < SAFE_UNIT or not _bounded_sum(work, block, start, model):
        # These sums know their errors by rounding to nearest.
        round_to_nearest()
        sum_with_errors(work, block, model.split)
        if model.sum.cuts:
            round_toward_zero()


@inlined
def _bounded_sum(work: Workspace, block: PanelBlock, start: Panel, model: KernelModel) -> bool:
    """Sum in double; return whether the error is too small to change the rounding of any sum."""
    need_magnitudes(work)
    total = plain_sum(work, block, start, model.split)
    error = error_bound(work, block, start, model.sum.cuts)
    # Rounding is monotonic: where both ends go to one value, so does the exact sum between them. Compared as
    # bits, since -0 and +0 are different answers, and a NaN here is one on both sides.
    low = rounded(total - error, model.sum, work.doubles, work.result)
    high = rounded(total + error, model.sum, work.doubles, work.result)
    store(total, work.doubles, work.result, LANES)
    return not any_lane(differs(as_bits(low), as_bits(high)))


@called
def sum_with_errors(work: Workspace, block: PanelBlock, split: bool) -> None:
    """Turn the accumulators at `start` into exact sums at `result`."""
    out_of_line()
    total = tile(work.doubles, work.start, LANES)
    errors, lost = spread(0.0), spread(0.0)
    for t in range(block.length):
        total, error = two_sum(total, product(work, block.a, block.b, t, split))
        errors, second = two_sum(errors, error)
        lost = lost + absolute(second)
    # `errors` is what `total` lacks, up to `lost`. Without an error the sum is exact, and adding +0 would
    # cost a -0 its sign; where it is not finite the errors are NaN. Then it stands as it is.
    found = select(nonzero(errors), exact_sum(total, errors), total)
    store(found, work.doubles, work.result, LANES)
    if any_lane(nonzero(lost)):
        store(lost, work.doubles, work.flags, LANES)
        _sum_as_integers(work, block, split)


@called
def _sum_as_integers(work: Workspace, block: PanelBlock, split: bool) -> None:
    """Sum anew where the flags are positive, which they are nowhere when a sum is Inf or NaN."""
    out_of_line()
    for place in range(PANEL):
        if at(work.doubles, work.flags + place) > 0.0:
            a, b = block.a + place // LANES, block.b + place % LANES
            lowest = highest = add_term(work.doubles, work.limbs, at(work.doubles, work.start + place))
            for t in range(block.length):
                x, y = t * ROWS + a, t * LANES + b
                exact = at(work.doubles, work.a + x) * at(work.doubles, work.b + y)
                if split:
                    exact -= at(work.doubles, work.a_low + x) * at(work.doubles, work.b_low + y)
                index = add_term(work.doubles, work.limbs, exact)
                lowest, highest = min(lowest, index), max(highest, index)
            put(work.doubles, work.result + place, sticky_value(work.doubles, work.limbs, lowest, highest))


# The smallest single, and a bound that leaves room to the largest.
SMALLEST: Final = 2.0**-149
_LARGE: Final = 2.0**127


@inlined
def is_normal(reach: float, unit: float) -> bool:
    """Return whether `add_normal_blocks` rounds multiples of a unit up to a bound as conversions do."""
    return unit >= SMALLEST and reach <= _LARGE


@inlined
def add_normal_blocks(
    left: Packed, right: Array, place: int, length: int, size: int, acc: Panel, cuts: bool
) -> Panel:
    """Return accumulators after `length` steps in blocks of a size, each sum rounded once, if `is_normal`.

    right, place   doubles, LANES for each step from there on
    cuts           sums are cut, while the processor rounds toward zero
    """
    total, last = widen(acc), (length - 1) // size * size
    # By their bits, which goes beside multiply-adds; conversions hold these up. Subnormal singles have fewer
    # bits than are left here, and multiples of SMALLEST need no more.
    for first in range(0, last, size):
        total = add_steps(left, right, place, first, first + size, total)
        total = cut(total) if cuts else nearest_single(total)
    total = add_steps(left, right, place, last, length, total)
    return to_single(cut(total) if cuts else nearest_single(total))


@inlined
def cut(x: Panel) -> Panel:
    """Round doubles that are multiples of SMALLEST toward zero to singles; -0 stays."""
    return as_float(as_bits(x) & spread(_IN_SINGLE))


@inlined
def add_steps(left: Packed, right: Array, place: int, first: int, stop: int, total: Panel) -> Panel:
    """Return sums with the products of some steps, added in double."""
    for t in range(first, stop):
        total = fma(left_of(left, t), columns(right, place + t * LANES), total)
    return total
