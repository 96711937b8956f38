"""Lay operands out for the kernels: converted once, aligned, padded to whole panels with zeros.

Both operands are packed alike: a in groups of ROWS rows, b in groups of LANES columns, and inside a group one
line per k. So the operands of any block of any panel are contiguous: line group * k + t of a holds
a[group * ROWS + r, t], line group * k + t of b holds b[t, group * LANES + lane].
Padding never meets a real output: it only makes outputs that nobody reads.
"""

from typing import Any, Final

import numpy as np

from ascendsim.numerics.compiled.jit import called
from ascendsim.numerics.compiled.panel_memory import at, put, scalar_bits, scalar_float
from ascendsim.numerics.compiled.panels import LANES, ROWS

Array = Any  # a numpy array, as the compiler sees it

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


@called
def group_count(count: int, unit: int) -> int:
    """Return how many groups hold so many rows or columns, the last one perhaps in part."""
    return -(-count // unit)


@called
def aligned(array: Array, offset: int) -> int:
    """Return the next offset in an array that starts a cache line."""
    address = array.ctypes.data + offset * array.itemsize
    return int(offset + (-address % _CACHE_LINE_BYTES) // array.itemsize)


@called
def fill_rows(a: Array, target: Array, first: int) -> int:
    """Pack a from an offset on, and return where it ends."""
    m, k = a.shape
    for i in range(group_count(m, ROWS) * ROWS):
        place = first + i // ROWS * ROWS * k + i % ROWS
        for t in range(k):
            put(target, place + t * ROWS, at(a, i * k + t) if i < m else np.float32(0.0))
    return int(first + group_count(m, ROWS) * ROWS * k)


@called
def fill_columns(b: Array, target: Array, first: int) -> int:
    """Pack b from an offset on, and return where it ends."""
    k, n = b.shape
    for group in range(group_count(n, LANES)):
        width = min(LANES, n - group * LANES)
        for t in range(k):
            place = first + (group * k + t) * LANES
            for lane in range(width):
                put(target, place + lane, at(b, t * n + group * LANES + lane))
            for lane in range(width, LANES):
                put(target, place + lane, np.float32(0.0))
    return int(first + group_count(n, LANES) * LANES * k)


@called
def fill_low_halves(doubles: Array, start: int, stop: int, first: int) -> None:
    """Put what the lower 12 of 24 significand bits of packed operands are worth at another offset."""
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


@called
def fits(c: Array) -> bool:
    """Tell whether c consists of whole panels, so that a kernel can work in place."""
    return bool(c.shape[0] % ROWS == 0 and c.shape[1] % LANES == 0)


@called
def copy_in(c: Array, singles: Array, first: int, stride: int) -> None:
    """Copy c to memory with longer rows, and fill up with zeros."""
    m, n = c.shape
    for i in range(group_count(m, ROWS) * ROWS):
        for j in range(stride):
            inside = i < m and j < n
            put(singles, first + i * stride + j, at(c, i * n + j) if inside else np.float32(0.0))


@called
def copy_out(singles: Array, first: int, stride: int, c: Array) -> None:
    """Copy the valid part back."""
    m, n = c.shape
    for i in range(m):
        for j in range(n):
            put(c, i * n + j, at(singles, first + i * stride + j))
