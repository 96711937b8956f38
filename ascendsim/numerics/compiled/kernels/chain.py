"""Run `seq` and `seq-muladd` under any rounding, and with split products.

A product is exact in a double, and a double and a binary32 number have a sum that a sticky double stands for:
so every step is one correct rounding, without proofs and without exceptions.
"""

from typing import Any

from ascendsim.numerics.compiled.jit import called, kernel
from ascendsim.numerics.compiled.packing import Accumulators, give_back, read_panel, whole_panels, write_panel
from ascendsim.numerics.compiled.panel_rounding import rounded, sum_for
from ascendsim.numerics.compiled.panels import LANES, ROWS, out_of_line, widen
from ascendsim.numerics.compiled.rounding_mode import round_to_nearest, round_toward_zero
from ascendsim.numerics.compiled.workspace import KernelModel, Memory, Workspace, memory_for, prepare, product

Array = Any


def chain(a: Array, b: Array, c: Array, model: KernelModel) -> None:
    """Add one product to c under `seq`, or with `model.separate` under `seq-muladd`.

    Shapes   a (m, k), b (k, n), c (m, n), C-contiguous float32; m, k, n positive
    """
    _chain(a, b, c, memory_for(a, b), model)


@kernel
def _chain(a: Array, b: Array, c: Array, memory: Memory, model: KernelModel) -> None:
    work = prepare(a, b, memory, model)
    cells = whole_panels(c, memory.singles, memory.spare)
    if model.sum.cuts:
        round_toward_zero()
    for j in range(0, cells.columns, LANES):
        for i in range(0, cells.rows, ROWS):
            _panel(work, cells, i, j, model)
    round_to_nearest()
    give_back(cells, c)


@called
def _panel(work: Workspace, cells: Accumulators, i: int, j: int, model: KernelModel) -> None:
    out_of_line()
    acc = read_panel(cells, i, j)
    for t in range(work.k):
        term = product(work, i * work.k, j * work.k, t, model.split)
        # Back to double, as the sum of a single and a double is what `exact_sum` takes.
        if model.separate:
            term = widen(rounded(term, model.sum, work.doubles, work.result))
        acc = rounded(sum_for(model.sum, widen(acc), term), model.sum, work.doubles, work.result)
    write_panel(acc, cells, i, j)
