"""Run `seq` and `seq-muladd` in RNE and RZ on the machine's own binary32 arithmetic.

A fused multiply-add is c <- R(c + a*b) for all binary32 operands, and a multiplication is R(a*b): these two
models need no proof, no widening and no special cases, whichever way the processor rounds.
"""

from typing import Any

from ascendsim.numerics.compiled.jit import called, inlined, kernel
from ascendsim.numerics.compiled.packing import (
    Accumulators,
    give_back,
    pack,
    read_panel,
    singles_for,
    whole_panels,
    write_panel,
)
from ascendsim.numerics.compiled.panel_memory import columns, rows
from ascendsim.numerics.compiled.panels import LANES, ROWS, fma, out_of_line
from ascendsim.numerics.compiled.rounding_mode import round_to_nearest, round_toward_zero

Array = Any


def seq(a: Array, b: Array, c: Array, fused: bool, cuts: bool) -> None:
    """Add one product to c, fused (`seq`) or with rounded products (`seq-muladd`).

    Modes    RNE, with `cuts` RZ
    Shapes   a (m, k), b (k, n), c (m, n), C-contiguous float32; m, k, n positive
    """
    _seq(a, b, c, singles_for(a, b), fused, cuts)


@kernel
def _seq(a: Array, b: Array, c: Array, singles: Array, fused: bool, cuts: bool) -> None:
    first, second, spare = pack(a, b, singles, 0)
    cells = whole_panels(c, singles, spare)
    if cuts:
        round_toward_zero()
    _run(singles, first, second, cells, a.shape[1], fused)
    round_to_nearest()
    give_back(cells, c)


@called
def _run(singles: Array, a: int, b: int, cells: Accumulators, k: int, fused: bool) -> None:
    out_of_line()
    for j in range(0, cells.columns, LANES):
        for i in range(0, cells.rows, ROWS):
            # Two loops, not one with a branch in it: `fused` is settled before the products begin.
            if fused:
                _fused_panel(singles, a + i * k, b + j * k, cells, i, j, k)
            else:
                _muladd_panel(singles, a + i * k, b + j * k, cells, i, j, k)


@inlined
def _fused_panel(singles: Array, a: int, b: int, cells: Accumulators, i: int, j: int, k: int) -> None:
    acc = read_panel(cells, i, j)
    for t in range(k):
        acc = fma(rows(singles, a + t * ROWS), columns(singles, b + t * LANES), acc)
    write_panel(acc, cells, i, j)


@inlined
def _muladd_panel(singles: Array, a: int, b: int, cells: Accumulators, i: int, j: int, k: int) -> None:
    acc = read_panel(cells, i, j)
    for t in range(k):
        # The compiler may not contract these two into one fused step: nothing here allows it to.
        acc = acc + rows(singles, a + t * ROWS) * columns(singles, b + t * LANES)
    write_panel(acc, cells, i, j)
