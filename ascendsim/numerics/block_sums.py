"""Sum one block of products exactly enough to round it: three ways, from fast to general.

1. The extents of the operands prove that doubles hold every partial sum: add.
2. A sum in double and a bound of its error: where both ends of the interval round alike, that is the answer.
3. A sum with its errors, which are summed in turn: where this second sum is exact, both together are the exact
   value; single places where it is not are summed as long integers.

The exact sum of a block is handed on as a *sticky* double (see `panel_rounding`).
"""

from typing import Any, Final, NamedTuple

import numpy as np

from ascendsim.numerics.exact import LIMBS, add_term, sticky_value
from ascendsim.numerics.extents import extent
from ascendsim.numerics.jit import allocating, called, inlined
from ascendsim.numerics.operands import aligned_doubles, aligned_singles, double_operands
from ascendsim.numerics.panel_rounding import Rounding, exact_sum, rounded, two_sum
from ascendsim.numerics.panels import (
    LANES,
    ROWS,
    absolute,
    any_lane,
    as_bits,
    columns,
    differs,
    fma,
    out_of_line,
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

EXACT_UNITS: Final = 2.0**53
SAFE_UNIT: Final = 2.0**-100  # products that are multiples of this are far from the subnormal singles
_ROUNDOFF: Final = 2.0**-53


class Job(NamedTuple):
    """What one kernel call works on: the packed operands, what is known of them, and scratch memory.

    a, b                   packed operands as doubles
    a_low, b_low           low halves of their significands, for `split3`
    a_extents, b_extents   largest magnitude and smallest lowest bit per group and block
    a_size, b_size         magnitudes as singles; a_size[0, 0] is negative until they are filled in
    panels                 three panels of doubles: result, start and flags of a careful sum
    flat_panels            the same memory as one line
    limbs                  a long integer
    """

    a: Array
    b: Array
    a_low: Array
    b_low: Array
    a_extents: Array
    b_extents: Array
    a_size: Array
    b_size: Array
    panels: Array
    flat_panels: Array
    limbs: Array


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


class Block(NamedTuple):
    """One block of one panel: its first lines in packed a and b, how many, and the extent of its products."""

    a: int
    b: int
    count: int
    size: float
    unit: float


@allocating
def prepare(a: Array, b: Array, rules: Rules) -> Job:
    """Pack and measure the operands and set the scratch memory aside."""
    k = a.shape[1]
    packed = double_operands(a, b, rules.split)
    a_size = aligned_singles(packed.a.shape[0], packed.a.shape[1])
    b_size = aligned_singles(packed.b.shape[0], packed.b.shape[1])
    a_size[0, 0] = -1.0
    panels = aligned_doubles(3 * ROWS, LANES)
    return Job(
        packed.a,
        packed.b,
        packed.a_low,
        packed.b_low,
        _extents(packed.a, k, rules.size),
        _extents(packed.b, k, rules.size),
        a_size,
        b_size,
        panels,
        panels.reshape(panels.size),
        np.zeros(LIMBS, np.int64),
    )


@allocating
def _extents(packed: Array, k: int, size: int) -> Array:
    blocks = -(-k // size)
    found = np.empty((packed.shape[0] // k, blocks, 2), np.float64)
    flat, width = packed.reshape(packed.size), packed.shape[1]
    for group in range(found.shape[0]):
        for number in range(blocks):
            first, last = number * size, min((number + 1) * size, k)
            part = extent(flat, (group * k + first) * width, (group * k + last) * width)
            found[group, number, 0], found[group, number, 1] = part
    return found


@inlined
def block_of(job: Job, group: int, panel: int, number: int, k: int, size: int) -> Block:
    """Find a block by its row group, panel of columns and number."""
    first = number * size
    count = min(size, k - first)
    return Block(
        group * k + first,
        panel * k + first,
        count,
        count * job.a_extents[group, number, 0] * job.b_extents[panel, number, 0],
        job.a_extents[group, number, 1] * job.b_extents[panel, number, 1],
    )


@inlined
def plain_sum(job: Job, block: Block, acc: Panel, split: bool) -> Panel:
    """Add the products in double."""
    for t in range(block.count):
        acc = fma(rows(job.a, block.a + t, 0), columns(job.b, block.b + t, 0), acc)
        if split:
            acc = acc - rows(job.a_low, block.a + t, 0) * columns(job.b_low, block.b + t, 0)
    return acc


@inlined
def error_bound(job: Job, block: Block, start: Panel) -> Panel:
    """Bound what `plain_sum` loses: two roundings per product or fewer, each 2^-53 of a partial sum."""
    size = absolute(to_single(start))
    for t in range(block.count):
        size = fma(rows(job.a_size, block.a + t, 0), columns(job.b_size, block.b + t, 0), size)
    return widen(size) * spread((2 * block.count + 8) * _ROUNDOFF)


@called
def fill_sizes(job: Job) -> None:
    """Fill in the magnitudes of the operands, if that has not been done."""
    out_of_line()
    if job.a_size[0, 0] < 0.0:
        for line in range(job.a.shape[0]):
            for r in range(ROWS):
                job.a_size[line, r] = abs(job.a[line, r])
        for line in range(job.b.shape[0]):
            for lane in range(LANES):
                job.b_size[line, lane] = abs(job.b[line, lane])


@called
def careful_sum(job: Job, block: Block, rules: Rules) -> None:
    """Read the accumulators from the second panel of the scratch memory, leave the sums in the first."""
    out_of_line()
    start = tile(job.panels, ROWS, 0)
    if block.size <= EXACT_UNITS * block.unit:
        reach, unit = extent(job.flat_panels, ROWS * LANES, 2 * ROWS * LANES)
        if reach + block.size <= EXACT_UNITS * min(unit, block.unit):
            store(plain_sum(job, block, start, rules.split), job.panels, 0, 0)
            return
    if block.unit < SAFE_UNIT or not _bounded_sum(job, block, start, rules):
        _sum_with_errors(job, block, rules.split)


@inlined
def _bounded_sum(job: Job, block: Block, start: Panel, rules: Rules) -> bool:
    """Sum in double, and tell whether the error cannot change how any of the sums rounds."""
    fill_sizes(job)
    total = plain_sum(job, block, start, rules.split)
    error = error_bound(job, block, start)
    low = rounded(total - error, rules.sum, job.panels)
    high = rounded(total + error, rules.sum, job.panels)
    store(total, job.panels, 0, 0)
    return not any_lane(differs(as_bits(low), as_bits(high)))


@called
def _sum_with_errors(job: Job, block: Block, split: bool) -> None:
    out_of_line()
    total = tile(job.panels, ROWS, 0)
    errors, lost = spread(0.0), spread(0.0)
    for t in range(block.count):
        product = rows(job.a, block.a + t, 0) * columns(job.b, block.b + t, 0)
        if split:
            product = product - rows(job.a_low, block.a + t, 0) * columns(job.b_low, block.b + t, 0)
        total, error = two_sum(total, product)
        errors, second = two_sum(errors, error)
        lost = lost + absolute(second)
    # Without an error the sum is exact; where it is not finite the errors are NaN. Then it stands as it is.
    store(select(differs(errors, spread(0.0)), exact_sum(total, errors), total), job.panels, 0, 0)
    if any_lane(spread(0.0) < lost):
        store(lost, job.panels, 2 * ROWS, 0)
        _sum_as_integers(job, block, split)


@called
def _sum_as_integers(job: Job, block: Block, split: bool) -> None:
    """Sum anew where the third panel of the scratch memory is positive."""
    out_of_line()
    for r in range(ROWS):
        for lane in range(LANES):
            if job.panels[2 * ROWS + r, lane] > 0.0:
                add_term(job.limbs, job.panels[ROWS + r, lane])
                for t in range(block.count):
                    product = job.a[block.a + t, r] * job.b[block.b + t, lane]
                    if split:
                        product -= job.a_low[block.a + t, r] * job.b_low[block.b + t, lane]
                    add_term(job.limbs, product)
                job.panels[r, lane] = sticky_value(job.limbs)
