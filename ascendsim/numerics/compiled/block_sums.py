"""Sum one block of products exactly enough to round it: three ways, from fast to general.

1. The extents of the operands prove that doubles hold every partial sum: add.
2. A sum in double and a bound of its error: where both ends of the interval round alike, that is the answer.
3. A sum with its errors, which are summed in turn: where this second sum is exact, both together are the
   exact value; single places where it is not are summed as long integers.

The exact sum of a block is handed on as a *sticky* double (see `panel_rounding`).
"""

from typing import Any, Final, NamedTuple

from ascendsim.numerics.compiled.exact import add_term, sticky_value
from ascendsim.numerics.compiled.extents import extent
from ascendsim.numerics.compiled.jit import called, inlined
from ascendsim.numerics.compiled.job import PANEL, Job, Rules, factors, low_product, product
from ascendsim.numerics.compiled.operands import fill_magnitudes
from ascendsim.numerics.compiled.panel_memory import at, columns, put, rows, store, tile
from ascendsim.numerics.compiled.panel_rounding import exact_sum, rounded, two_sum
from ascendsim.numerics.compiled.panels import (
    LANES,
    ROWS,
    absolute,
    any_lane,
    as_bits,
    differs,
    fma,
    nonzero,
    out_of_line,
    select,
    spread,
    to_single,
    widen,
)

Panel = Any

EXACT_UNITS: Final = 2.0**53
_GROWTH: Final = 1.001  # a rounding to 11 bits or more, or the low halves of products, add less than this
_SUBNORMAL: Final = 2.0**-24  # and a rounding to a subnormal adds half of this at most
SAFE_UNIT: Final = 2.0**-100  # products that are multiples of this are far from the subnormal singles
_ROUNDOFF: Final = 2.0**-53


class Block(NamedTuple):
    """One block of one panel: where it begins in packed operands, its length, the extent of its products."""

    a: int
    b: int
    length: int
    size: float
    unit: float


@inlined
def block_of(job: Job, i: int, j: int, number: int, size: int) -> Block:
    """Find a block by the first row and column of its panel and its number."""
    group, panel, first = i // ROWS, j // LANES, number * size
    a_extent = job.a_extents + 2 * (group * job.blocks + number)
    b_extent = job.b_extents + 2 * (panel * job.blocks + number)
    length = min(size, job.k - first)
    return Block(
        (group * job.k + first) * ROWS,
        (panel * job.k + first) * LANES,
        length,
        length * at(job.doubles, a_extent) * at(job.doubles, b_extent),
        at(job.doubles, a_extent + 1) * at(job.doubles, b_extent + 1),
    )


@inlined
def widened(reach: float, unit: float, block: Block) -> tuple[float, float]:
    """Return a bound of the accumulators and a unit of theirs, as they are after one more block.

    What is known stays true: sums are multiples of the common unit, and rounding leaves them so.
    """
    return (reach + block.size) * _GROWTH + _SUBNORMAL, min(unit, block.unit)


@inlined
def is_exact(reach: float, unit: float) -> bool:
    """Tell whether a double holds every multiple of a unit up to a bound."""
    return reach <= EXACT_UNITS * unit


@inlined
def plain_sum(job: Job, block: Block, acc: Panel, split: bool) -> Panel:
    """Add the products in double."""
    for t in range(block.length):
        x, y = factors(job, block.a, block.b, t)
        acc = fma(x, y, acc)
        if split:
            acc = acc - low_product(job, block.a, block.b, t)
    return acc


@inlined
def error_bound(job: Job, block: Block, start: Panel) -> Panel:
    """Bound what `plain_sum` loses: two roundings per product or fewer, each 2^-53 of a partial sum.

    Counting three leaves room for the roundings of the bound itself, which is summed in singles.
    """
    size = absolute(to_single(start))
    for t in range(block.length):
        a, b = job.a_size + block.a + t * ROWS, job.b_size + block.b + t * LANES
        size = fma(rows(job.singles, a), columns(job.singles, b), size)
    return widen(size) * spread((3 * block.length + 8) * _ROUNDOFF)


@inlined
def need_sizes(job: Job) -> None:
    """Fill in the magnitudes of the operands, if that has not been done."""
    if at(job.singles, job.a_size) < 0.0:
        _fill_sizes(job)


@called
def _fill_sizes(job: Job) -> None:
    out_of_line()
    fill_magnitudes(job.doubles, job.a, job.a_low, job.singles, job.a_size)


@called
def careful_sum(job: Job, block: Block, rules: Rules) -> None:
    """Turn the accumulators at `start` into sums at `result`."""
    out_of_line()
    start = tile(job.doubles, job.start, LANES)
    if block.size <= EXACT_UNITS * block.unit:
        reach, unit = extent(job.doubles, job.start, job.start + PANEL)
        reach, unit = widened(reach, unit, block)
        if is_exact(reach, unit):
            store(plain_sum(job, block, start, rules.split), job.doubles, job.result, LANES)
            return
    if block.unit < SAFE_UNIT or not _bounded_sum(job, block, start, rules):
        _sum_with_errors(job, block, rules.split)


@inlined
def _bounded_sum(job: Job, block: Block, start: Panel, rules: Rules) -> bool:
    """Sum in double, and tell whether the error cannot change how any of the sums rounds."""
    need_sizes(job)
    total = plain_sum(job, block, start, rules.split)
    error = error_bound(job, block, start)
    low = rounded(total - error, rules.sum, job.doubles, job.result)
    high = rounded(total + error, rules.sum, job.doubles, job.result)
    store(total, job.doubles, job.result, LANES)
    return not any_lane(differs(as_bits(low), as_bits(high)))


@called
def _sum_with_errors(job: Job, block: Block, split: bool) -> None:
    out_of_line()
    total = tile(job.doubles, job.start, LANES)
    errors, lost = spread(0.0), spread(0.0)
    for t in range(block.length):
        total, error = two_sum(total, product(job, block.a, block.b, t, split))
        errors, second = two_sum(errors, error)
        lost = lost + absolute(second)
    # Without an error the sum is exact; where it is not finite the errors are NaN. Then it stands as it is.
    found = select(nonzero(errors), exact_sum(total, errors), total)
    store(found, job.doubles, job.result, LANES)
    if any_lane(nonzero(lost)):
        store(lost, job.doubles, job.flags, LANES)
        _sum_as_integers(job, block, split)


@called
def _sum_as_integers(job: Job, block: Block, split: bool) -> None:
    """Sum anew where the flags are positive."""
    out_of_line()
    for place in range(PANEL):
        if at(job.doubles, job.flags + place) > 0.0:
            a, b = block.a + place // LANES, block.b + place % LANES
            lowest = highest = add_term(job.doubles, job.limbs, at(job.doubles, job.start + place))
            for t in range(block.length):
                x, y = t * ROWS + a, t * LANES + b
                exact = at(job.doubles, job.a + x) * at(job.doubles, job.b + y)
                if split:
                    exact -= at(job.doubles, job.a_low + x) * at(job.doubles, job.b_low + y)
                index = add_term(job.doubles, job.limbs, exact)
                lowest, highest = min(lowest, index), max(highest, index)
            put(job.doubles, job.result + place, sticky_value(job.doubles, job.limbs, lowest, highest))
