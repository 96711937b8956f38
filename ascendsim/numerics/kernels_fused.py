"""Run `seq` and `seq-muladd` in RNE on the machine's own binary32 arithmetic.

A fused multiply-add is c <- R(c + a*b) for all binary32 operands, and a multiplication is R(a*b): these two
models need no proof, no widening and no special cases.
"""

from typing import Any

from ascendsim.numerics.jit import inlined, kernel
from ascendsim.numerics.operands import copy_valid, fits, padded, single_columns, single_rows
from ascendsim.numerics.panels import LANES, ROWS, columns, fma, rows, store, tile

Array = Any


@kernel
def seq(a: Array, b: Array, c: Array, fused: bool) -> None:
    """Add one product to c, fused (`seq:RNE`) or with rounded products (`seq-muladd:RNE`)."""
    k = a.shape[1]
    a_packed, b_packed = single_rows(a), single_columns(b)
    work = c if fits(c) else padded(c)
    for j in range(0, work.shape[1], LANES):
        for i in range(0, work.shape[0], ROWS):
            if fused:
                _fused_panel(a_packed, b_packed, work, i, j, k)
            else:
                _muladd_panel(a_packed, b_packed, work, i, j, k)
    if not fits(c):
        copy_valid(work, c, c.shape)


@inlined
def _fused_panel(a: Array, b: Array, c: Array, i: int, j: int, k: int) -> None:
    a_base, b_base = i // ROWS * k, j // LANES * k
    acc = tile(c, i, j)
    for t in range(k):
        acc = fma(rows(a, a_base + t, 0), columns(b, b_base + t, 0), acc)
    store(acc, c, i, j)


@inlined
def _muladd_panel(a: Array, b: Array, c: Array, i: int, j: int, k: int) -> None:
    a_base, b_base = i // ROWS * k, j // LANES * k
    acc = tile(c, i, j)
    for t in range(k):
        acc = acc + rows(a, a_base + t, 0) * columns(b, b_base + t, 0)
    store(acc, c, i, j)
