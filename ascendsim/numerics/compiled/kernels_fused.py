"""Run `seq` and `seq-muladd` in RNE on the machine's own binary32 arithmetic.

A fused multiply-add is c <- R(c + a*b) for all binary32 operands, and a multiplication is R(a*b): these two
models need no proof, no widening and no special cases.
"""

from typing import Any

import numpy as np

from ascendsim.numerics.compiled.jit import called, inlined, kernel
from ascendsim.numerics.compiled.operands import (
    MARGIN,
    aligned,
    copy_in,
    copy_out,
    fill_columns,
    fill_rows,
    fits,
    group_count,
    packed_size,
    padded_size,
)
from ascendsim.numerics.compiled.panel_memory import columns, rows, store, tile
from ascendsim.numerics.compiled.panels import LANES, ROWS, fma, out_of_line

Array = Any


def seq(a: Array, b: Array, c: Array, fused: bool) -> None:
    """Add one product to c, fused (`seq:RNE`) or with rounded products (`seq-muladd:RNE`).

    Shapes   a (m, k), b (k, n), c (m, n), C-contiguous float32; m, k, n positive
    """
    (m, k), n = a.shape, b.shape[1]
    singles = np.empty((1, packed_size(m, k, n) + padded_size(m, n) + MARGIN), np.float32)
    _seq(a, b, c, singles, fused)


@kernel
def _seq(a: Array, b: Array, c: Array, singles: Array, fused: bool) -> None:
    a_packed = aligned(singles, 0)
    b_packed = fill_rows(a, singles, a_packed)
    spare = fill_columns(b, singles, b_packed)
    m, k, n = group_count(c.shape[0], ROWS) * ROWS, a.shape[1], group_count(c.shape[1], LANES) * LANES
    cells, first = (c, 0) if fits(c) else (singles, spare)
    if not fits(c):
        copy_in(c, singles, spare, n)
    _run(singles, a_packed, b_packed, cells, first, m, k, n, fused)
    if not fits(c):
        copy_out(singles, spare, n, c)


@called
def _run(singles: Array, a: int, b: int, c: Array, first: int, m: int, k: int, n: int, fused: bool) -> None:
    out_of_line()
    for j in range(0, n, LANES):
        for i in range(0, m, ROWS):
            place = first + i * n + j
            if fused:
                _fused_panel(singles, a + i * k, b + j * k, c, place, n, k)
            else:
                _muladd_panel(singles, a + i * k, b + j * k, c, place, n, k)


@inlined
def _fused_panel(singles: Array, a: int, b: int, c: Array, place: int, stride: int, k: int) -> None:
    acc = tile(c, place, stride)
    for t in range(k):
        acc = fma(rows(singles, a + t * ROWS), columns(singles, b + t * LANES), acc)
    store(acc, c, place, stride)


@inlined
def _muladd_panel(singles: Array, a: int, b: int, c: Array, place: int, stride: int, k: int) -> None:
    acc = tile(c, place, stride)
    for t in range(k):
        acc = acc + rows(singles, a + t * ROWS) * columns(singles, b + t * LANES)
    store(acc, c, place, stride)
