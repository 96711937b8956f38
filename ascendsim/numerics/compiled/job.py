"""Share out the memory of one kernel call, and fill it with operands as doubles.

Every product of two binary32 values is exact in a double; so is one without the product of the low halves.
"""

from typing import Any, Final, NamedTuple

from ascendsim.numerics.compiled.exact import LIMBS, clear
from ascendsim.numerics.compiled.extents import extent
from ascendsim.numerics.compiled.jit import called, inlined
from ascendsim.numerics.compiled.operands import (
    MARGIN,
    aligned,
    fill_columns,
    fill_low_halves,
    fill_rows,
    group_count,
)
from ascendsim.numerics.compiled.panel_memory import columns, put, rows
from ascendsim.numerics.compiled.panel_rounding import Rounding
from ascendsim.numerics.compiled.panels import LANES, ROWS, out_of_line, spread

Array = Any
Panel = Any

PANEL: Final = ROWS * LANES


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
               a_extents, ...   largest magnitude and smallest lowest bit, per group and block;
                                those of c, per row group, are for the kernel to fill in
               start            a panel: accumulators before a careful sum
               result           a panel: sticky sums after it, and scratch memory for rounding
               flags            a panel: positive where a sum is not found yet
               limbs            a long integer
    singles    a_size, b_size   magnitudes of the operands; a_size is negative until they are filled in
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
    c_extents: int
    start: int
    result: int
    flags: int
    limbs: int
    a_size: int
    b_size: int


def sizes(m: int, k: int, n: int) -> tuple[int, int]:
    """Return how many doubles and singles `prepare` needs at most; what stays untouched costs nothing."""
    packed = (m + n + ROWS + LANES) * k
    return 4 * packed + 3 * PANEL + LIMBS + MARGIN, packed + MARGIN


@called
def prepare(a: Array, b: Array, doubles: Array, singles: Array, rules: Rules) -> Job:
    """Pack and measure the operands, and share the memory out."""
    out_of_line()
    k = a.shape[1]
    blocks = group_count(k, rules.size)
    result = aligned(doubles, 0)
    start, flags, limbs = result + PANEL, result + 2 * PANEL, result + 3 * PANEL
    clear(doubles, limbs)
    a_packed = aligned(doubles, limbs + LIMBS)
    b_packed = fill_rows(a, doubles, a_packed)
    a_low = fill_columns(b, doubles, b_packed)
    b_low = a_low + b_packed - a_packed
    extents = b_low + a_low - b_packed
    if rules.split:
        fill_low_halves(doubles, a_packed, a_low, a_low)
    row_groups, column_groups = group_count(a.shape[0], ROWS), group_count(b.shape[1], LANES)
    more_extents = extents + 2 * row_groups * blocks
    measure(doubles, a_packed, doubles, extents, row_groups, ROWS, k, rules.size)
    measure(doubles, b_packed, doubles, more_extents, column_groups, LANES, k, rules.size)
    a_size = aligned(singles, 0)
    put(singles, a_size, -1.0)
    b_size = a_size + b_packed - a_packed
    last_extents = more_extents + 2 * column_groups * blocks
    packed = (a_packed, b_packed, a_low, b_low, extents, more_extents, last_extents)
    return Job(doubles, singles, k, blocks, *packed, start, result, flags, limbs, a_size, b_size)


@called
def measure(
    values: Array, first: int, doubles: Array, extents: int, groups: int, width: int, lines: int, size: int
) -> None:
    """Put the extents of every group of `lines` lines, in parts of `size` lines, one after the other."""
    place = extents
    for group in range(groups):
        for start in range(0, lines, size):
            line, stop = first + group * lines * width, min(start + size, lines)
            largest, finest = extent(values, line + start * width, line + stop * width)
            put(doubles, place, largest)
            put(doubles, place + 1, finest)
            place += 2


@inlined
def factors(job: Job, a: int, b: int, t: int) -> tuple[Panel, Panel]:
    """Return the operands of product t of a panel, or block, that begins so far into packed a and b."""
    return rows(job.doubles, job.a + a + t * ROWS), columns(job.doubles, job.b + b + t * LANES)


@inlined
def low_product(job: Job, a: int, b: int, t: int) -> Panel:
    """Return the product of the low halves of the same operands, +0 where it is zero.

    Taking +0 away leaves every zero its sign.
    """
    x, y = rows(job.doubles, job.a_low + a + t * ROWS), columns(job.doubles, job.b_low + b + t * LANES)
    return x * y + spread(0.0)


@inlined
def product(job: Job, a: int, b: int, t: int, split: bool) -> Panel:
    """Return product t, which a double holds exactly, with or without that of the low halves."""
    x, y = factors(job, a, b, t)
    exact = x * y
    if split:
        exact = exact - low_product(job, a, b, t)
    return exact
