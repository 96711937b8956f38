"""Sum one block of products exactly enough to round it: three ways, from fast to general.

1. The extents of the operands prove that doubles hold every partial sum: add.
2. A sum in double and a bound of its error: where both ends of the interval round alike, that is the answer.
3. A sum with its errors, which are summed in turn: where this second sum is exact, both together are the
   exact value; single places where it is not are summed as long integers.

The exact sum of a block is handed on as a *sticky* double (see `panel_rounding`).
"""

from typing import Any, Final, NamedTuple

from ascendsim.numerics.exact import add_term, sticky_value
from ascendsim.numerics.extents import extent
from ascendsim.numerics.jit import called, inlined
from ascendsim.numerics.operands import (
    MARGIN,
    aligned,
    fill_columns,
    fill_low_halves,
    fill_magnitudes,
    fill_rows,
    group_count,
    groups,
    packed_size,
)
from ascendsim.numerics.panel_rounding import Rounding, exact_sum, rounded, two_sum
from ascendsim.numerics.panels import (
    LANES,
    ROWS,
    absolute,
    any_lane,
    as_bits,
    at,
    columns,
    differs,
    fma,
    out_of_line,
    put,
    rows,
    select,
    spread,
    store,
    tile,
    to_single,
    widen,
)

Array = Any
Panel = Any

PANEL: Final = ROWS * LANES
EXACT_UNITS: Final = 2.0**53
SAFE_UNIT: Final = 2.0**-100  # products that are multiples of this are far from the subnormal singles
_ROUNDOFF: Final = 2.0**-53


class Rules(NamedTuple):
    """The model's parameters, as the compiler takes them.

    size       products per block
    sum        rounding of the sum
    separate   round the sum of products alone, then add it to c (`block-add`)
    add        rounding of that addition
    split      leave out the products of the operands' low halves
    """

    size: int
    sum: Rounding
    separate: bool
    add: Rounding
    split: bool


class Job(NamedTuple):
    """The memory of one kernel call, and at which offsets it holds what.

    doubles    a, b             packed operands, one after the other
               a_low, b_low     low halves of their significands, for `split3`
               a_extents, ...   largest magnitude and smallest lowest bit, per group and block
               start            a panel: accumulators before a careful sum
               result           a panel: sticky sums after it, and scratch memory for rounding
               flags            a panel: positive where a sum is not found yet
    singles    a_size, b_size   magnitudes of the operands; a_size is negative until they are filled in
    limbs                       a long integer
    k, blocks                   products per output, and blocks of them
    """

    doubles: Array
    singles: Array
    limbs: Array
    k: int
    blocks: int
    a: int
    b: int
    a_low: int
    b_low: int
    a_extents: int
    b_extents: int
    start: int
    result: int
    flags: int
    a_size: int
    b_size: int


class Block(NamedTuple):
    """One block of one panel: where it begins in packed operands, its length, the extent of its products."""

    a: int
    b: int
    length: int
    size: float
    unit: float


def sizes(m: int, k: int, n: int, size: int) -> tuple[int, int]:
    """Return how many doubles and singles `prepare` needs at most."""
    packed, lines = packed_size(m, k, n), groups(m, ROWS) + groups(n, LANES)
    return 2 * packed + 2 * lines * groups(k, size) + 3 * PANEL + MARGIN, packed + MARGIN


@called
def prepare(a: Array, b: Array, doubles: Array, singles: Array, limbs: Array, rules: Rules) -> Job:
    """Pack and measure the operands, and share the memory out."""
    out_of_line()
    k = a.shape[1]
    blocks = group_count(k, rules.size)
    result = aligned(doubles, 0)
    start, flags, a_packed = result + PANEL, result + 2 * PANEL, result + 3 * PANEL
    b_packed = fill_rows(a, doubles, a_packed)
    a_low = fill_columns(b, doubles, b_packed)
    b_low = a_low + b_packed - a_packed
    extents = b_low + a_low - b_packed
    if rules.split:
        fill_low_halves(doubles, a_packed, a_low, a_low)
    row_groups, column_groups = group_count(a.shape[0], ROWS), group_count(b.shape[1], LANES)
    more_extents = extents + 2 * row_groups * blocks
    _measure(doubles, a_packed, extents, row_groups, ROWS, k, rules.size)
    _measure(doubles, b_packed, more_extents, column_groups, LANES, k, rules.size)
    a_size = aligned(singles, 0)
    put(singles, a_size, -1.0)
    b_size = a_size + b_packed - a_packed
    offsets = (a_packed, b_packed, a_low, b_low, extents, more_extents, start, result, flags, a_size, b_size)
    return Job(doubles, singles, limbs, k, blocks, *offsets)


@called
def _measure(doubles: Array, first: int, extents: int, count: int, width: int, k: int, size: int) -> None:
    place = extents
    for group in range(count):
        for start in range(0, k, size):
            line, stop = first + group * k * width, min(start + size, k)
            largest, finest = extent(doubles, line + start * width, line + stop * width)
            put(doubles, place, largest)
            put(doubles, place + 1, finest)
            place += 2


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
def factors(job: Job, block: Block, t: int) -> tuple[Panel, Panel]:
    """Return the operands of product t of a block."""
    a, b = job.a + block.a + t * ROWS, job.b + block.b + t * LANES
    return rows(job.doubles, a), columns(job.doubles, b)


@inlined
def low_product(job: Job, block: Block, t: int) -> Panel:
    """Return the product of the low halves of the operands of product t of a block."""
    a, b = job.a_low + block.a + t * ROWS, job.b_low + block.b + t * LANES
    return rows(job.doubles, a) * columns(job.doubles, b)


@inlined
def plain_sum(job: Job, block: Block, acc: Panel, split: bool) -> Panel:
    """Add the products in double."""
    for t in range(block.length):
        x, y = factors(job, block, t)
        acc = fma(x, y, acc)
        if split:
            acc = acc - low_product(job, block, t)
    return acc


@inlined
def error_bound(job: Job, block: Block, start: Panel) -> Panel:
    """Bound what `plain_sum` loses: two roundings per product or fewer, each 2^-53 of a partial sum."""
    size = absolute(to_single(start))
    for t in range(block.length):
        a, b = job.a_size + block.a + t * ROWS, job.b_size + block.b + t * LANES
        size = fma(rows(job.singles, a), columns(job.singles, b), size)
    return widen(size) * spread((2 * block.length + 8) * _ROUNDOFF)


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
        if reach + block.size <= EXACT_UNITS * min(unit, block.unit):
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
        x, y = factors(job, block, t)
        product = x * y
        if split:
            product = product - low_product(job, block, t)
        total, error = two_sum(total, product)
        errors, second = two_sum(errors, error)
        lost = lost + absolute(second)
    # Without an error the sum is exact; where it is not finite the errors are NaN. Then it stands as it is.
    found = select(differs(errors, spread(0.0)), exact_sum(total, errors), total)
    store(found, job.doubles, job.result, LANES)
    if any_lane(spread(0.0) < lost):
        store(lost, job.doubles, job.flags, LANES)
        _sum_as_integers(job, block, split)


@called
def _sum_as_integers(job: Job, block: Block, split: bool) -> None:
    """Sum anew where the flags are positive."""
    out_of_line()
    for place in range(PANEL):
        if at(job.doubles, job.flags + place) > 0.0:
            a, b = block.a + place // LANES, block.b + place % LANES
            add_term(job.limbs, at(job.doubles, job.start + place))
            for t in range(block.length):
                x, y = t * ROWS + a, t * LANES + b
                product = at(job.doubles, job.a + x) * at(job.doubles, job.b + y)
                if split:
                    product -= at(job.doubles, job.a_low + x) * at(job.doubles, job.b_low + y)
                add_term(job.limbs, product)
            put(job.doubles, job.result + place, sticky_value(job.limbs))
