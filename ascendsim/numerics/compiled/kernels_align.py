"""Run `align`: per block, terms cut to a common exponent, summed exactly, rounded once.

In double everything is exact: a term scaled by a power of two, cut to a whole number, and the sums of such
numbers (at most 2^16 terms of 34 bits). Where operands are narrow and the sums fit, the same is done in
singles and 32-bit integers, where the truncating conversion is the cut.
"""

from typing import Any, Final

import numpy as np

from ascendsim.numerics.compiled.extents import extent, is_narrow
from ascendsim.numerics.compiled.jit import called, inlined, kernel
from ascendsim.numerics.compiled.job import Job, Rules, factors, low_product, prepare, sizes
from ascendsim.numerics.compiled.operands import (
    copy_in,
    copy_out,
    fill_singles,
    fits,
    group_count,
    padded_size,
)
from ascendsim.numerics.compiled.panel_memory import at, columns, rows, scalar_bits, store, tile
from ascendsim.numerics.compiled.panel_rounding import exact_sum, into_single, rounded
from ascendsim.numerics.compiled.panels import (
    LANES,
    ROWS,
    absolute,
    as_bits,
    as_float,
    equal,
    fma,
    integer_to_double,
    out_of_line,
    select,
    spread,
    to_integer,
    truncated,
    widen,
)

Array = Any
Panel = Any

_INFINITY: Final = np.inf
_EXPONENT8: Final = 0x7FF << 52
_MINUS_ZERO: Final = -(1 << 63)
_SMALLEST8: Final = 2.0**-600  # below any exponent of a product, and still with a reciprocal
_EXPONENT4: Final = np.int32(0x7F800000)
_SMALLEST4: Final = np.float32(2.0**-89)
_LIMIT: Final = 2.0**30  # of operands; products are then at least 2^-60, sums of cut terms at least 2^-88
_ACCUMULATOR_LIMIT: Final = 2.0**62
_ACCUMULATOR_UNIT: Final = 2.0**-88
_INTEGERS: Final = 2.0**31
_MINUS_ZERO_BITS: Final = np.int32(-(1 << 31))


def align(a: Array, b: Array, c: Array, rules: Rules, fraction_bits: int, with_c: bool) -> None:
    """Add one product to c under `align`, c being cut like the products if `with_c`.

    Shapes   a (m, k), b (k, n), c (m, n), C-contiguous float32; m, k, n positive
    """
    (m, k), n = a.shape, b.shape[1]
    doubles, singles = sizes(m, k, n)
    memory = np.empty((1, doubles)), np.empty((1, singles + padded_size(m, n)), np.float32)
    _align(a, b, c, *memory, singles, rules, fraction_bits, with_c)


@kernel
def _align(
    a: Array,
    b: Array,
    c: Array,
    doubles: Array,
    singles: Array,
    spare: int,
    rules: Rules,
    bits: int,
    with_c: bool,
) -> None:
    m, n = group_count(c.shape[0], ROWS) * ROWS, group_count(c.shape[1], LANES) * LANES
    job = prepare(a, b, doubles, singles, rules)
    narrow = _fits_integers(a, b, c, rules, bits)
    if narrow:
        fill_singles(doubles, job.a, job.a_low, singles, job.a_size)
    cells, first = (c, 0) if fits(c) else (singles, spare)
    if not fits(c):
        copy_in(c, singles, spare, n)
    for j in range(0, n, LANES):
        for i in range(0, m, ROWS):
            if narrow:
                _integer_panel(job, cells, first + i * n + j, n, i * job.k, j * job.k, rules, bits, with_c)
            else:
                _panel(job, cells, first + i * n + j, n, i * job.k, j * job.k, rules, bits, with_c)
    if not fits(c):
        copy_out(singles, spare, n, c)


@called
def _panel(
    job: Job, c: Array, place: int, stride: int, a: int, b: int, rules: Rules, bits: int, with_c: bool
) -> None:
    out_of_line()
    acc = tile(c, place, stride)
    for first in range(0, job.k, rules.size):
        length = min(rules.size, job.k - first)
        start = widen(acc)
        total = _block(job, a + first * ROWS, b + first * LANES, length, start, rules.split, bits, with_c)
        acc = rounded(total, rules.sum, job.doubles, job.result)
    store(acc, c, place, stride)


@inlined
def _block(
    job: Job, a: int, b: int, length: int, start: Panel, split: bool, bits: int, with_c: bool
) -> Panel:
    """Return the sum of one block as a sticky double."""
    mask = spread(_EXPONENT8)
    top = spread(_SMALLEST8)
    if with_c:
        top = _larger(top, as_float(as_bits(start) & mask))
    for t in range(length):
        x, y = factors(job, a, b, t)
        top = _larger(top, as_float(as_bits(x) & mask) * as_float(as_bits(y) & mask))
    shift = spread(bits << 52)
    scale = as_float(spread(2046 << 52) + shift - as_bits(top))
    whole = spread(0.0)
    if with_c:
        whole = whole + truncated(start * scale)
    plain = start
    for t in range(length):
        x, y = factors(job, a, b, t)
        term = x * y
        plain = fma(x, y, plain)
        if split:
            low = low_product(job, a, b, t)
            term, plain = term - low, plain - low
        whole = whole + truncated(term * scale)
    total = whole * as_float(as_bits(top) - shift)
    if not with_c:
        total = exact_sum(start, total)
    # The plain sum knows what the cut one cannot: special values, and whether every term was -0.
    total = select(equal(as_bits(plain), spread(_MINUS_ZERO)), plain, total)
    return select(absolute(plain) < spread(_INFINITY), total, plain)


@inlined
def _larger(x: Panel, y: Panel) -> Panel:
    return select(x < y, y, x)


@called
def _fits_integers(a: Array, b: Array, c: Array, rules: Rules, bits: int) -> bool:
    """Tell whether products are exact in singles, sums fit 32 bits, and no accumulator can become -0."""
    if rules.split or rules.sum.half or rules.sum.flush_below > 0.0:
        return False
    if (4.0 * rules.size + 2.0) * 2.0**bits > _INTEGERS:
        return False
    largest, finest = extent(c, 0, c.size)
    if not (largest <= _ACCUMULATOR_LIMIT and finest >= _ACCUMULATOR_UNIT):
        return False
    minus_zeros = 0
    for index in range(c.size):
        minus_zeros += scalar_bits(at(c, index)) == _MINUS_ZERO_BITS
    return minus_zeros == 0 and is_narrow(a, _LIMIT) and is_narrow(b, _LIMIT)


@called
def _integer_panel(
    job: Job, c: Array, place: int, stride: int, a: int, b: int, rules: Rules, bits: int, with_c: bool
) -> None:
    """Do the same for operands that fit; the sum of a block is exact, so into_single can round it."""
    out_of_line()
    a, b = job.a_size + a, job.b_size + b
    mask, shift = spread(_EXPONENT4), spread(np.int32(bits << 23))
    acc = tile(c, place, stride)
    for first in range(0, job.k, rules.size):
        stop = min(first + rules.size, job.k)
        top = spread(_SMALLEST4)
        if with_c:
            top = _larger(top, as_float(as_bits(acc) & mask))
        for t in range(first, stop):
            x, y = rows(job.singles, a + t * ROWS), columns(job.singles, b + t * LANES)
            top = _larger(top, as_float(as_bits(x) & mask) * as_float(as_bits(y) & mask))
        scale = as_float(spread(np.int32(254 << 23)) + shift - as_bits(top))
        whole = to_integer(acc * scale) if with_c else spread(np.int32(0))
        for t in range(first, stop):
            x, y = rows(job.singles, a + t * ROWS), columns(job.singles, b + t * LANES)
            whole = whole + to_integer(x * y * scale)
        total = integer_to_double(whole) * widen(as_float(as_bits(top) - shift))
        if not with_c:
            total = exact_sum(widen(acc), total)
        acc = into_single(total, rules.sum.mode)
    store(acc, c, place, stride)
