"""Share out the memory of one kernel call, and fill it with operands as doubles.

Every product of two binary32 values is exact in a double: 24 + 24 bits fit 53, and the exponents -298 to 256
are far inside a double's. So is one without the product of the low halves: that has the sign of the whole
product and its unit, so taking it away leaves a number of no more bits.
"""

from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

from ascendsim.numerics.compiled.extents import measure_columns, measure_side_by_side, sum_up
from ascendsim.numerics.compiled.jit import called, inlined
from ascendsim.numerics.compiled.long_integer import LIMBS, clear
from ascendsim.numerics.compiled.packing import (
    MARGIN,
    aligned,
    fill_low_halves,
    group_count,
    pack,
    packed_size,
    padded_size,
)
from ascendsim.numerics.compiled.panel_memory import columns, put, rows
from ascendsim.numerics.compiled.panel_rounding import Rounding
from ascendsim.numerics.compiled.panels import LANES, ROWS, out_of_line, spread
from ascendsim.numerics.compiled.scratch import SCRATCH

Array = Any
Panel = Any

PANEL: Final = ROWS * LANES


class KernelModel(NamedTuple):
    """The accumulation model, as the compiler takes it.

    block      products per block
    sum        rounding of the sum
    separate   round the sum of products alone, then add it to c (`block-add`)
    add        rounding of that addition
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
    """Return all fields of a model one after the other."""
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
    extra              offset behind those, of what was asked for besides
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
               a_whole, b_whole per group: the same of all its blocks as one
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
    that stay untouched cost nothing. The next kernel of this thread gets the same.
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
    """Return the same from the singles: operands or magnitudes, whichever the kernel has filled in."""
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
