"""Run `fp16-acc(seq:RNE)` and `fp16-acc(seq-muladd:RNE)` on operands whose products binary32 holds exactly.

A sum and its error make a sticky binary32 number: with 24 bits against 11 + 2 it rounds into binary16 as the
exact sum would. Everything stays in vectors of singles, which is what makes it worth a kernel of its own.
"""

from typing import Any, Final

import numpy as np

from ascendsim.numerics.compiled.extents import is_narrow
from ascendsim.numerics.compiled.jit import called, kernel
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
from ascendsim.numerics.compiled.panel_rounding import RNE, single_into_half, sticky, two_sum
from ascendsim.numerics.compiled.panels import LANES, ROWS, out_of_line

Array = Any

_LIMIT: Final = 2.0**50


def half_chain(a: Array, b: Array, c: Array, fused: bool) -> bool:
    """Add one product to c, or return False without having changed it: the operands do not fit this kernel.

    Shapes   a (m, k), b (k, n), c (m, n), C-contiguous float32; m, k, n positive
    """
    (m, k), n = a.shape, b.shape[1]
    singles = np.empty((1, packed_size(m, k, n) + padded_size(m, n) + MARGIN), np.float32)
    return bool(_half_chain(a, b, c, singles, fused))


@kernel
def _half_chain(a: Array, b: Array, c: Array, singles: Array, fused: bool) -> bool:
    if not (is_narrow(a, _LIMIT) and is_narrow(b, _LIMIT)):
        return False
    a_packed = aligned(singles, 0)
    b_packed = fill_rows(a, singles, a_packed)
    spare = fill_columns(b, singles, b_packed)
    m, k, n = group_count(c.shape[0], ROWS) * ROWS, a.shape[1], group_count(c.shape[1], LANES) * LANES
    cells, first = (c, 0) if fits(c) else (singles, spare)
    if not fits(c):
        copy_in(c, singles, spare, n)
    for j in range(0, n, LANES):
        for i in range(0, m, ROWS):
            _panel(singles, a_packed + i * k, b_packed + j * k, cells, first + i * n + j, n, k, fused)
    if not fits(c):
        copy_out(singles, spare, n, c)
    return True


@called
def _panel(singles: Array, a: int, b: int, c: Array, place: int, stride: int, k: int, fused: bool) -> None:
    out_of_line()
    acc = tile(c, place, stride)
    for t in range(k):
        term = rows(singles, a + t * ROWS) * columns(singles, b + t * LANES)
        if not fused:
            term = single_into_half(term, RNE)
        total, error = two_sum(acc, term)
        acc = single_into_half(sticky(total, error), RNE)
    store(acc, c, place, stride)
