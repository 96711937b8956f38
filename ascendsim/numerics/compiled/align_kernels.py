"""Run `align`: per block, terms cut to a common exponent, summed exactly, rounded once.

In double everything is exact: a term scaled by a power of two, cut to a whole number, and sums of up to
2^16 of these numbers of 34 bits. Where operands are narrow and the sums fit, the same is done in
singles and 32-bit integers, where the truncating conversion is the cut.
"""

from typing import Any, Final

import numpy as np

from ascendsim.numerics.compiled.jit import called, inlined, kernel
from ascendsim.numerics.compiled.packing import (
    Accumulators,
    fill_singles,
    give_back,
    read_panel,
    whole_panels,
    write_panel,
)
from ascendsim.numerics.compiled.panel_rounding import (
    at,
    exact_sum,
    into_single,
    is_plain,
    rounded,
    scalar_bits,
    store,
    sum_for,
    tile,
)
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
    round_to_nearest,
    round_toward_zero,
    select,
    spread,
    to_integer,
    truncated,
    widen,
)
from ascendsim.numerics.compiled.workspace import (
    PANEL,
    KernelModel,
    Memory,
    Workspace,
    extent,
    factors,
    is_narrow,
    low_product,
    memory_for,
    prepare,
    product,
    single_factors,
)

Array = Any
Panel = Any

_INFINITY: Final = np.inf
_EXPONENT8: Final = 0x7FF << 52
_MINUS_ZERO: Final = -(1 << 63)
_SMALLEST8: Final = 2.0**-600  # below any exponent of a product, and still with a reciprocal
_EXPONENT4: Final = np.int32(0x7F800000)
_MINUS_ZERO_BITS: Final = np.int32(-(1 << 31))

# The bounds of the integer form. Its sums must stay below 2^31, so it has at most 28 fraction bits (with one
# product a block). Operands lie in 2^-30 ... 2^30, products in 2^-60 ... 2^60, and cut terms are whole
# numbers of 2^-88. A finer c could have an exponent below `_SMALLEST4`, or none when it is subnormal. A
# larger one, and what it grows to over the blocks, must leave every scale 2^(bits - exponent) a single.
_LIMIT: Final = 2.0**30
_ACCUMULATOR_LIMIT: Final = 2.0**62
_ACCUMULATOR_UNIT: Final = 2.0**-88
_SMALLEST4: Final = np.float32(2.0**-89)  # below any exponent; 2^28 over it is still a single
_INTEGERS: Final = 2.0**31


def align(a: Array, b: Array, c: Array, model: KernelModel, fraction_bits: int, with_c: bool) -> None:
    """Add one product to c under `align`, c being cut like the products if `with_c`.

    Shapes   a (m, k), b (k, n), c (m, n), C-contiguous float32; m, k, n positive
    """
    _align(a, b, c, memory_for(a, b), model, fraction_bits, with_c)


@kernel
def _align(a: Array, b: Array, c: Array, memory: Memory, model: KernelModel, bits: int, with_c: bool) -> None:
    work = prepare(a, b, memory, model)
    narrow = _fits_integers(a, b, c, model, bits)
    if narrow:
        fill_singles(work.doubles, work.a, work.a_low, work.singles, work.a_single)
    cells = whole_panels(c, memory.singles, memory.spare)
    for j in range(0, cells.columns, LANES):
        for i in range(0, cells.rows, ROWS):
            if narrow:
                _integer_panel(work, cells, i, j, model, bits, with_c)
            else:
                _panel(work, cells, i, j, model, bits, with_c)
    give_back(cells, c)


@called
def _panel(
    work: Workspace, cells: Accumulators, i: int, j: int, model: KernelModel, bits: int, with_c: bool
) -> None:
    out_of_line()
    acc = read_panel(cells, i, j)
    for first in range(0, work.k, model.block):
        a, b = i * work.k + first * ROWS, j * work.k + first * LANES
        length = min(model.block, work.k - first)
        total = _block(work, a, b, length, widen(acc), model.split, bits, with_c)
        acc = rounded(total, model.sum, work.doubles, work.result)
    write_panel(acc, cells, i, j)


@inlined
def _block(
    work: Workspace, a: int, b: int, length: int, start: Panel, split: bool, bits: int, with_c: bool
) -> Panel:
    """Return the sum of one block as a sticky double."""
    # A float whose fraction is masked off is the power of two in it, so these products add exponents. A zero
    # operand gives zero, which is never the larger; subnormal singles are normal doubles and need no care.
    mask = spread(_EXPONENT8)
    top = spread(_SMALLEST8)
    if with_c:
        top = _larger(top, as_float(as_bits(start) & mask))
    for t in range(length):
        x, y = factors(work, a, b, t)
        top = _larger(top, as_float(as_bits(x) & mask) * as_float(as_bits(y) & mask))
    # 2^e has the bits (1023 + e) << 52, so 2046 << 52 less those is 2^-e: a reciprocal without a division.
    shift = spread(bits << 52)
    scale = as_float(spread(2046 << 52) + shift - as_bits(top))
    # The term with the largest exponent is never cut away, so a sum of -0 means that all terms are zeros.
    whole = truncated(start * scale) if with_c else spread(0.0)
    plain = start
    for t in range(length):
        x, y = factors(work, a, b, t)
        term = x * y
        plain = fma(x, y, plain)
        if split:
            low = low_product(work, a, b, t)
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
def _fits_integers(a: Array, b: Array, c: Array, model: KernelModel, bits: int) -> bool:
    """Return whether products are exact in singles, sums fit 32 bits, and no accumulator can become -0."""
    # `into_single` knows no binary16 and no flushing; split products need more bits than a single has.
    if model.split or model.sum.half or model.sum.flush_below > 0.0:
        return False
    # With significands below 2 a product is below 4 times the largest power, an accumulator below twice its
    # own, and cutting makes neither larger: so a sum stays below (4 * block + 2) * 2^bits, strictly.
    if (4.0 * model.block + 2.0) * 2.0**bits > _INTEGERS:
        return False
    largest, finest = extent(c, 0, c.size)
    if not (largest <= _ACCUMULATOR_LIMIT and finest >= _ACCUMULATOR_UNIT):
        return False
    # Integers have one zero. Where c holds no -0, none arises later: a sum that cancels is +0.
    minus_zeros = 0
    for index in range(c.size):
        minus_zeros += scalar_bits(at(c, index)) == _MINUS_ZERO_BITS
    return minus_zeros == 0 and is_narrow(a, _LIMIT) and is_narrow(b, _LIMIT)


@called
def _integer_panel(
    work: Workspace, cells: Accumulators, i: int, j: int, model: KernelModel, bits: int, with_c: bool
) -> None:
    """Add operands that fit; the sum of a block is exact, so into_single can round it."""
    out_of_line()
    a, b = i * work.k, j * work.k
    mask, shift = spread(_EXPONENT4), spread(np.int32(bits << 23))
    acc = read_panel(cells, i, j)
    for first in range(0, work.k, model.block):
        stop = min(first + model.block, work.k)
        top = spread(_SMALLEST4)
        if with_c:
            top = _larger(top, as_float(as_bits(acc) & mask))
        for t in range(first, stop):
            x, y = single_factors(work, a, b, t)
            top = _larger(top, as_float(as_bits(x) & mask) * as_float(as_bits(y) & mask))
        scale = as_float(spread(np.int32(254 << 23)) + shift - as_bits(top))
        whole = to_integer(acc * scale) if with_c else spread(np.int32(0))
        for t in range(first, stop):
            x, y = single_factors(work, a, b, t)
            whole = whole + to_integer(x * y * scale)
        total = integer_to_double(whole) * widen(as_float(as_bits(top) - shift))
        if not with_c:
            total = exact_sum(widen(acc), total)
        acc = into_single(total, model.sum.mode)
    write_panel(acc, cells, i, j)


# The stack holds at most one finished subtree of each height. Blocks have at most 2^16 leaves, and no subtree
# of a single leaf is stored, so 16 panels are enough.
_LEVELS: Final = 16
_PLUS_ZERO: Final = np.float32(0.0)


def tree(a: Array, b: Array, c: Array, model: KernelModel, halves: bool) -> None:
    """Add one product to c under `tree` with blocks of two or more, pairing halves or neighbours.

    Shapes   a (m, k), b (k, n), c (m, n), C-contiguous float32; m, k, n positive
    """
    _tree(a, b, c, memory_for(a, b, _LEVELS * PANEL), model, halves)


@kernel
def _tree(a: Array, b: Array, c: Array, memory: Memory, model: KernelModel, halves: bool) -> None:
    work = prepare(a, b, memory, model)
    cells = whole_panels(c, memory.singles, memory.spare)
    # A product rounded once into a single is what the machine's own multiplication gives, and likewise a sum:
    # then no double is needed.
    plain = is_plain(model.sum) and not model.split
    if plain:
        fill_singles(work.doubles, work.a, work.a_low, work.singles, work.a_single)
    if model.sum.cuts:
        round_toward_zero()
    for j in range(0, cells.columns, LANES):
        for i in range(0, cells.rows, ROWS):
            # Two functions, so that the plain one spends no registers on the needs of the other.
            if plain:
                _plain_panel(work, cells, i, j, model, halves)
            else:
                _rounding_panel(work, cells, i, j, model, halves)
    round_to_nearest()
    give_back(cells, c)


@called
def _plain_panel(
    work: Workspace, cells: Accumulators, i: int, j: int, model: KernelModel, halves: bool
) -> None:
    out_of_line()
    _tree_panel(work, cells, i, j, model, halves, True)


@called
def _rounding_panel(
    work: Workspace, cells: Accumulators, i: int, j: int, model: KernelModel, halves: bool
) -> None:
    out_of_line()
    _tree_panel(work, cells, i, j, model, halves, False)


@inlined
def _tree_panel(
    work: Workspace, cells: Accumulators, i: int, j: int, model: KernelModel, halves: bool, plain: bool
) -> None:
    acc = read_panel(cells, i, j)
    for first in range(0, work.k, model.block):
        a, b = i * work.k + first * ROWS, j * work.k + first * LANES
        root = _root(work, a, b, min(model.block, work.k - first), model, halves, plain)
        acc = _sum(work, acc, root, model, plain)
    write_panel(acc, cells, i, j)


@inlined
def _root(
    work: Workspace, a: int, b: int, length: int, model: KernelModel, halves: bool, plain: bool
) -> Panel:
    """Return the root over a block of `length` products and as many missing leaves as the size asks for."""
    pairs = model.block // 2
    top = work.extra
    for pair in range(pairs):
        leaf = _bit_reversed(pair, pairs) if halves else 2 * pair
        partner = leaf + (pairs if halves else 1)
        left = _leaf(work, a, b, leaf, length, model, plain)
        node = _sum(work, left, _leaf(work, a, b, partner, length, model, plain), model, plain)
        # A binary counter: each trailing one of the pair's number is a finished subtree, which this
        # node completes to one of the next height.
        top, complete = work.extra, pair
        while complete & 1:
            node = _sum(work, tile(work.singles, top, LANES), node, model, plain)
            top, complete = top + PANEL, complete >> 1
        store(node, work.singles, top, LANES)
    return tile(work.singles, top, LANES)


@inlined
def _leaf(work: Workspace, a: int, b: int, t: int, length: int, model: KernelModel, plain: bool) -> Panel:
    """Return rounded product t, +0 where it is missing."""
    if t >= length:
        leaf = spread(_PLUS_ZERO)
    elif plain:
        x, y = single_factors(work, a, b, t)
        leaf = x * y
    else:
        leaf = rounded(product(work, a, b, t, model.split), model.sum, work.doubles, work.result)
    return leaf


@inlined
def _sum(work: Workspace, x: Panel, y: Panel, model: KernelModel, plain: bool) -> Panel:
    if plain:
        return x + y
    return rounded(sum_for(model.sum, widen(x), widen(y)), model.sum, work.doubles, work.result)


@called
def _bit_reversed(index: int, count: int) -> int:
    """Return an index below `count`, a power of two, with its bits in reverse order."""
    result = 0
    while count > 1:
        result, index, count = 2 * result + (index & 1), index >> 1, count >> 1
    return result
