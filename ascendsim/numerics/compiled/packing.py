"""Lay operands and accumulators out for the kernels: aligned, in whole panels, zeros in what is over.

Both operands are packed alike: a in groups of ROWS rows, b in groups of LANES columns, and inside a group one
line per k. So the operands of any block of any panel are contiguous: line group * k + t of a holds
a[group * ROWS + r, t], line group * k + t of b holds b[t, group * LANES + lane].
Padding never meets a real output: it only makes outputs that nobody reads.
"""

from typing import Any, Final, NamedTuple

import numpy as np

from ascendsim.numerics.compiled.jit import called, inlined
from ascendsim.numerics.compiled.panel_memory import at, put, scalar_bits, scalar_float, store, tile
from ascendsim.numerics.compiled.panels import LANES, ROWS
from ascendsim.numerics.compiled.scratch import SCRATCH

Array = Any  # a numpy array, as the compiler sees it
Panel = Any

_CACHE_LINE_BYTES: Final = 64
_HIGH_HALF: Final = np.int32(-4096)  # sign, exponent and the upper 11 of 23 fraction bits
_INFINITY: Final = np.float32(np.inf)

MARGIN: Final = 32  # elements that `aligned` may skip or round up to in one array, over several parts


def packed_size(m: int, k: int, n: int) -> int:
    """Return how many elements both packed operands take at most."""
    return (m + n + ROWS + LANES) * k


def padded_size(m: int, n: int) -> int:
    """Return how many elements m rows of n accumulators take at most in whole panels."""
    return (m + ROWS) * (n + LANES)


def singles_for(a: Array, b: Array) -> Array:
    """Return memory of singles for both packed operands and padded accumulators, not initialised."""
    (m, k), n = a.shape, b.shape[1]
    return SCRATCH.lend(packed_size(m, k, n) + padded_size(m, n) + MARGIN, np.float32)


@called
def group_count(count: int, unit: int) -> int:
    """Return how many groups hold so many rows or columns, the last one perhaps in part."""
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
