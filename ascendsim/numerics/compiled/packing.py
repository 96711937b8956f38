"""Lay operands and accumulators out for the kernels: aligned, in whole panels, with zeros in the rest.

Both operands are packed alike: a in groups of ROWS rows, b in groups of LANES columns, and inside a group one
line per k. So the operands of any block of any panel are contiguous: line group * k + t of a holds
a[group * ROWS + r, t], line group * k + t of b holds b[t, group * LANES + lane].
Padding never meets a real output: it only makes outputs that nobody reads.
"""

from threading import local
from typing import Any, Final, NamedTuple

import numba.core.cgutils
import numpy as np
from llvmlite import ir

from ascendsim.numerics.compiled.jit import called, inlined
from ascendsim.numerics.compiled.panel_rounding import at, put, scalar_bits, scalar_float, store, tile
from ascendsim.numerics.compiled.panels import (
    LANES,
    ROWS,
    Emit,
    Value,
    absolute,
    as_bits,
    as_float,
    equal,
    intrinsic,
    select,
    spread,
    types,
    unpack,
)

Array = Any

# Elements of one type: what a larger call takes is not kept.
MOST_KEPT: Final = 1 << 20


class Scratch(local):
    """The memory that the kernel calls of one thread take in turn, not initialised.

    A call is over before the next one of its thread begins, and reads nothing that it has not written. Fresh
    memory would be cleared by the system page by page, and would lie in no cache.
    """

    def __init__(self) -> None:
        self._kept: dict[type, Array] = {}

    def lend(self, count: int, element: type) -> Array:
        """Return (1, `count` or more) elements of a type."""
        # Two dimensions, as operands have: one type of array fewer to compile the kernels for.
        if count > MOST_KEPT:
            return np.empty((1, count), element)
        kept = self._kept.get(element)
        if kept is None or kept.size < count:
            kept = self._kept[element] = np.empty((1, count), element)
        return kept


# Each thread sees one of its own here.
SCRATCH: Final = Scratch()


Panel = Any

_CACHE_LINE_BYTES: Final = 64
_HIGH_HALF: Final = np.int32(-4096)  # sign, exponent and the upper 11 of 23 fraction bits
_INFINITY: Final = np.float32(np.inf)

MARGIN: Final = 32  # elements that `aligned` may skip or round up to in one array, over several parts


def packed_size(m: int, k: int, n: int) -> int:
    """Return the largest number of elements in both packed operands."""
    return (m + n + ROWS + LANES) * k


def padded_size(m: int, n: int) -> int:
    """Return the largest number of elements in the whole panels of m rows of n accumulators."""
    return (m + ROWS) * (n + LANES)


def singles_for(a: Array, b: Array) -> Array:
    """Return memory of singles for both packed operands and padded accumulators, not initialised."""
    (m, k), n = a.shape, b.shape[1]
    return SCRATCH.lend(packed_size(m, k, n) + padded_size(m, n) + MARGIN, np.float32)


@called
def group_count(count: int, unit: int) -> int:
    """Return the number of groups of `unit` that hold `count` rows or columns; the last may be partial."""
    return -(-count // unit)


@called
def aligned(array: Array, offset: int) -> int:
    """Return the next offset in an array that starts a cache line."""
    # numpy aligns arrays to 16 bytes only; a vector across two cache lines takes two loads.
    address = array.ctypes.data + offset * array.itemsize
    return int(offset + (-address % _CACHE_LINE_BYTES) // array.itemsize)


@called
def pack(a: Array, b: Array, target: Array, offset: int) -> tuple[int, int, int]:
    """Pack both operands behind an offset; return where a begins, where b begins, and where b ends."""
    first = aligned(target, offset)
    second = _pack_rows(a, target, first)
    return first, second, _pack_columns(b, target, second)


@called
def _pack_rows(a: Array, target: Array, first: int) -> int:
    m, k = a.shape
    whole = m // ROWS * ROWS
    for i in range(0, whole, ROWS):
        # All rows of a group at once: side by side they are written as they follow each other.
        for t in range(k):
            place = first + i * k + t * ROWS
            for row in range(ROWS):
                put(target, place + row, at(a, (i + row) * k + t))
    for i in range(whole, group_count(m, ROWS) * ROWS):
        for t in range(k):
            place = first + whole * k + t * ROWS + i - whole
            put(target, place, at(a, i * k + t) if i < m else np.float32(0.0))
    return int(first + group_count(m, ROWS) * ROWS * k)


@called
def _pack_columns(b: Array, target: Array, first: int) -> int:
    k, n = b.shape
    for group in range(group_count(n, LANES)):
        width = min(LANES, n - group * LANES)
        for t in range(k):
            place = first + (group * k + t) * LANES
            # Two loops without a branch: one `if` per element, as for a, is slow where rows of b are copied.
            for lane in range(width):
                put(target, place + lane, at(b, t * n + group * LANES + lane))
            for lane in range(width, LANES):
                put(target, place + lane, np.float32(0.0))
    return int(first + group_count(n, LANES) * LANES * k)


@called
def fill_low_halves(doubles: Array, start: int, stop: int, first: int) -> None:
    """Put what the lower 12 of 24 significand bits of packed operands are worth at another offset.

    Special  of Inf and NaN +0: the whole product says what they make; Inf - Inf here would make NaN of Inf
    """
    for index in range(stop - start):
        single = np.float32(at(doubles, start + index))
        high = scalar_float(np.int32(scalar_bits(single) & _HIGH_HALF))
        put(doubles, first + index, single - high if abs(single) < _INFINITY else np.float32(0.0))


@called
def fill_magnitudes(doubles: Array, start: int, stop: int, singles: Array, first: int) -> None:
    """Put the magnitudes of packed operands into other memory as singles."""
    for index in range(stop - start):
        put(singles, first + index, np.float32(abs(at(doubles, start + index))))


@called
def fill_singles(doubles: Array, start: int, stop: int, singles: Array, first: int) -> None:
    """Put packed operands into other memory as singles."""
    for index in range(stop - start):
        put(singles, first + index, np.float32(at(doubles, start + index)))


class Accumulators(NamedTuple):
    """The accumulators of one call in whole panels: c itself, or a copy that zeros fill up.

    values          memory of singles
    first           offset of the first accumulator
    rows, columns   how many there are, whole multiples of ROWS and LANES (columns of c itself: any number)
    """

    values: Array
    first: int
    rows: int
    columns: int


@called
def whole_panels(c: Array, singles: Array, spare: int, skipped: int = 0) -> Accumulators:
    """Return c where it consists of whole panels, otherwise a copy of it at offset `spare`.

    skipped   columns of the first whole panels, which the copy leaves out
    """
    m, n = c.shape
    rows, columns = group_count(m, ROWS) * ROWS, group_count(n - skipped, LANES) * LANES
    if rows == m and skipped + columns == n:
        return Accumulators(c, 0, rows, n)
    for i in range(rows):
        for j in range(columns):
            inside = i < m and skipped + j < n
            value = at(c, i * n + skipped + j) if inside else np.float32(0.0)
            put(singles, spare + i * columns + j, value)
    # Counted from column 0 on as well, where nothing lies.
    return Accumulators(singles, spare - skipped, rows, columns)


@called
def give_back(cells: Accumulators, c: Array, skipped: int = 0) -> None:
    """Copy the valid part of the accumulators to c, unless they lie there."""
    m, n = c.shape
    if cells.rows == m and cells.columns == n:
        return
    for i in range(m):
        for j in range(skipped, n):
            put(c, i * n + j, at(cells.values, cells.first + i * cells.columns + j))


@inlined
def read_panel(cells: Accumulators, i: int, j: int) -> Panel:
    """Return the panel whose first accumulator is in row i, column j."""
    return tile(cells.values, cells.first + i * cells.columns + j, cells.columns)


@inlined
def write_panel(panel: Panel, cells: Accumulators, i: int, j: int) -> None:
    """Put a panel back where `read_panel` found it."""
    store(panel, cells.values, cells.first + i * cells.columns + j, cells.columns)


cgutils: Any = numba.core.cgutils

_MINUS_ZERO: Final = np.int32(-0x80000000)
_ONE: Final = np.int32(1)
_NOTHING: Final = np.int32(0)
_EXPONENT: Final = np.int32(0x7F800000)
_FRACTION: Final = np.int32(0x007FFFFF)
_MAGNITUDE: Final = np.int32(0x7FFFFFFF)
_LAST_BIT: Final = 2.0**-23
_SMALLEST: Final = 2.0**-149


def _reduced(name: str, comparison: str) -> Any:
    """Make an operation (panel of 32-bit integers) -> integer: the largest or smallest, read as unsigned."""

    def emit(builder: Value, x: Value, y: Value) -> Value:
        return builder.select(builder.icmp_unsigned(comparison, x, y), x, y)

    combine: Emit = emit

    def operation(_typing: Value, panel: Value) -> Value:
        def codegen(_context: Value, builder: Value, _sig: Value, args: Value) -> Value:
            first, *others = unpack(builder, args[0])
            for row in others:
                first = combine(builder, first, row)
            kind = ir.FunctionType(ir.IntType(32), [first.type])
            full_name = f"llvm.vector.reduce.{name}.v{LANES}i32"
            return builder.call(cgutils.get_or_insert_function(builder.module, kind, full_name), [first])

        return types.int32(panel), codegen

    return intrinsic(operation)


_most = _reduced("umax", ">")
_least = _reduced("umin", "<")


def _folded(builder: Any, row: Any, stop: int, combine: Emit, lanes: int = LANES) -> Any:
    """Combine one half of a vector with the other, until `lanes` lanes are left."""
    while lanes > stop:
        lanes //= 2
        halves = [
            builder.shuffle_vector(
                row, row, ir.Constant(ir.VectorType(ir.IntType(32), lanes), list(range(at, at + lanes)))
            )
            for at in (0, lanes)
        ]
        row = combine(builder, *halves)
    return row


def _every_fourth(_typing: Any, panel: Any) -> Any:
    def codegen(_context: Any, builder: Any, _sig: Any, args: Any) -> Any:
        four = _folded(builder, unpack(builder, args[0])[0], ROWS, lambda b, x, y: b.fadd(x, y))
        largest = _folded(builder, four, 1, lambda b, x, y: b.select(b.fcmp_ordered(">", x, y), x, y), ROWS)
        total = _folded(builder, four, 1, lambda b, x, y: b.fadd(x, y), ROWS)
        # A NaN would be lost among others, but not in their sum.
        infinity = ir.Constant(total.type, float("inf"))
        found = builder.select(builder.fcmp_ordered("<", total, infinity), largest, infinity)
        return builder.extract_element(found, ir.Constant(ir.IntType(32), 0))

    return types.float64(panel), codegen


# Panel of doubles, none below zero, whose rows are all the same -> the largest of the sums of every fourth
# lane, from the first to the fourth on; infinity unless all are finite.
largest_sum = intrinsic(_every_fourth)


@inlined
def larger(x: Panel, y: Panel) -> Panel:
    """Return the larger ones of integers."""
    return select(x < y, y, x)


@inlined
def smaller(x: Panel, y: Panel) -> Panel:
    """Return the smaller ones of integers."""
    return select(x < y, x, y)


@inlined
def lowest_bits(magnitudes: Panel) -> Panel:
    """Return the lowest set bit of each single as integers that are ordered as these bits are.

    The result holds the bits of the power of two, less one; for zero the largest integer. `lowest_of` gives
    the smallest.
    """
    # As `extents.extent` does it: x & (x - 1) clears the lowest bit, unless that is the hidden one.
    bits = as_bits(magnitudes)
    cleared = bits & (bits - spread(_ONE))
    rest = select(equal(bits & spread(_FRACTION), spread(_NOTHING)), spread(_NOTHING), cleared)
    return (as_bits(magnitudes - as_float(rest)) - spread(_ONE)) & spread(_MAGNITUDE)


@inlined
def largest_of(bits: Panel) -> float:
    """Return the largest of magnitudes of singles; not finite if any of them is not."""
    return np.float64(scalar_float(_most(bits)))


@inlined
def lowest_of(bits: Panel) -> float:
    """Return the smallest result of `lowest_bits`; infinity if all are zero."""
    smallest = _least(bits)
    return np.inf if smallest == _MAGNITUDE else np.float64(scalar_float(np.int32(smallest + _ONE)))


@inlined
def reach_and_unit(accumulators: Panel) -> tuple[float, float]:
    """Return the largest magnitude of singles, and a power of two that divides all of them.

    Zeros    are multiples of anything: without another value the unit is infinite
    Special  Inf and NaN give a magnitude that no finite bound admits
    """
    bits = as_bits(absolute(accumulators))
    return _reach_and_unit(bits, bits - spread(_ONE))


@inlined
def stripe_reach_and_unit(values: Any, first: int, count: int, stride: int) -> tuple[float, float]:
    """Return largest magnitude and unit of panels that lie below each other: lines `stride` apart."""
    bits = as_bits(absolute(tile(values, first, stride)))
    most, least = bits, (bits - spread(_ONE)) & spread(_MAGNITUDE)
    for panel in range(1, count):
        bits = as_bits(absolute(tile(values, first + panel * ROWS * stride, stride)))
        most, least = larger(most, bits), smaller(least, (bits - spread(_ONE)) & spread(_MAGNITUDE))
    return _reach_and_unit(most, least)


@inlined
def _reach_and_unit(most: Panel, least: Panel) -> tuple[float, float]:
    """Return reach and unit from the bits of the largest magnitude and of the smallest less one."""
    # Bits of positive floats are ordered as the floats are. One less makes the largest number of all of zero.
    largest, smallest = _most(most), _least(least)
    if (smallest & _MAGNITUDE) == _MAGNITUDE:
        return 0.0, np.inf
    power = np.float64(scalar_float(np.int32((smallest + _ONE) & _EXPONENT)))
    return np.float64(scalar_float(largest)), max(power * _LAST_BIT, _SMALLEST)
