"""Run `fp16-acc(seq:R)` and `fp16-acc(seq-muladd:R)` in vectors of singles, which makes kernels worth it.

RNE, on operands whose products binary32 holds exactly: a sum and its error make a sticky binary32 number,
which with 24 bits against 11 + 2 rounds into binary16 as the exact sum would.

RZ, on any operands: what is cut to binary32 and then to binary16 is what the exact value is cut to.
"""

from typing import Any, Final

from ascendsim.numerics.compiled.extents import is_narrow
from ascendsim.numerics.compiled.jit import called, kernel
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
from ascendsim.numerics.compiled.panel_rounding import RNE, RZ, single_into_half, sticky, two_sum
from ascendsim.numerics.compiled.panels import LANES, ROWS, fma, out_of_line
from ascendsim.numerics.compiled.rounding_mode import round_to_nearest, round_toward_zero

Array = Any

# Products are then whole numbers of 2^-100 and at most 2^100, so that singles hold them: neither gradual
# underflow nor overflow rounds them. Anything below 2^60 would do.
_LIMIT: Final = 2.0**50


def half_chain(a: Array, b: Array, c: Array, fused: bool) -> bool:
    """Add one product to c, or return False without having changed it: the operands do not fit this kernel.

    Shapes   a (m, k), b (k, n), c (m, n), C-contiguous float32; m, k, n positive
    """
    return bool(_half_chain(a, b, c, singles_for(a, b), fused))


@kernel
def _half_chain(a: Array, b: Array, c: Array, singles: Array, fused: bool) -> bool:
    if not (is_narrow(a, _LIMIT) and is_narrow(b, _LIMIT)):
        return False
    first, second, spare = pack(a, b, singles, 0)
    cells, k = whole_panels(c, singles, spare), a.shape[1]
    for j in range(0, cells.columns, LANES):
        for i in range(0, cells.rows, ROWS):
            _panel(singles, first + i * k, second + j * k, cells, i, j, k, fused)
    give_back(cells, c)
    return True


@called
def _panel(singles: Array, a: int, b: int, cells: Accumulators, i: int, j: int, k: int, fused: bool) -> None:
    out_of_line()
    acc = read_panel(cells, i, j)
    for t in range(k):
        term = rows(singles, a + t * ROWS) * columns(singles, b + t * LANES)
        # The product is exact in a single, so this is its one rounding.
        if not fused:
            term = single_into_half(term, RNE)
        # The error of a sum of two singles is a single, whatever their order: no proof is needed for c.
        total, error = two_sum(acc, term)
        acc = single_into_half(sticky(total, error), RNE)
    write_panel(acc, cells, i, j)


def cut_half_chain(a: Array, b: Array, c: Array, fused: bool) -> None:
    """Add one product to c in RZ, whatever the operands are.

    Shapes   a (m, k), b (k, n), c (m, n), C-contiguous float32; m, k, n positive
    """
    _cut_half_chain(a, b, c, singles_for(a, b), fused)


@kernel
def _cut_half_chain(a: Array, b: Array, c: Array, singles: Array, fused: bool) -> None:
    first, second, spare = pack(a, b, singles, 0)
    cells, k = whole_panels(c, singles, spare), a.shape[1]
    round_toward_zero()
    for j in range(0, cells.columns, LANES):
        for i in range(0, cells.rows, ROWS):
            _cut_panel(singles, first + i * k, second + j * k, cells, i, j, k, fused)
    round_to_nearest()
    give_back(cells, c)


@called
def _cut_panel(
    singles: Array, a: int, b: int, cells: Accumulators, i: int, j: int, k: int, fused: bool
) -> None:
    out_of_line()
    acc = read_panel(cells, i, j)
    for t in range(k):
        x, y = rows(singles, a + t * ROWS), columns(singles, b + t * LANES)
        total = fma(x, y, acc) if fused else acc + single_into_half(x * y, RZ)
        acc = single_into_half(total, RZ)
    write_panel(acc, cells, i, j)
