"""How fast can a panel of accumulators be at most?  Printed by `python -m benchmarks.gradients`.

The operands of one panel lie in the nearest cache and nothing is proven, measured or copied: what is left are
the multiply-adds and, under `block:16:RNE`, the rounding of the accumulators to singles after every block, as
the products do it. No product can be faster than that, nor a whole call.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np

from ascendsim.numerics.compiled.block_sums import Packed, add_normal_blocks
from ascendsim.numerics.compiled.jit import kernel
from ascendsim.numerics.compiled.panel_rounding import columns, rows, store, tile
from ascendsim.numerics.compiled.panels import LANES, ROWS, fma
from ascendsim.program.places import aligned_empty
from benchmarks.accumulation import seconds

STEPS, BLOCK, ROUNDS, RUNS = 96, 16, 64, 300

Array = Any


@kernel
def _seq(a: Array, b: Array, c: Array, rounds: int) -> None:
    for _ in range(rounds):
        acc = tile(c, 0, LANES)
        for t in range(STEPS):
            acc = fma(rows(a, t * ROWS), columns(b, t * LANES), acc)
        store(acc, c, 0, LANES)


@kernel
def _block(a: Array, b: Array, c: Array, rounds: int) -> None:
    for _ in range(rounds):
        acc = add_normal_blocks(Packed(a, 0, 1, ROWS), b, 0, STEPS, BLOCK, tile(c, 0, LANES), False)
        store(acc, c, 0, LANES)


def panel_gmacs(model: str) -> float:
    """Return the best GMAC/s of one panel under `seq:RNE` or `block:16:RNE`."""
    run, element = (_seq, np.float32) if model == "seq:RNE" else (_block, np.float64)
    a, b = _ones(STEPS * ROWS, element), _ones(STEPS * LANES, element)
    c = _ones(ROWS * LANES, np.float32)
    run(a, b, c, ROUNDS)
    best = min(seconds(lambda: run(a, b, c, ROUNDS), perf_counter) for _ in range(RUNS))
    return ROWS * LANES * STEPS * ROUNDS / best / 1e9


def _ones(count: int, element: type[np.floating[Any]]) -> Array:
    # On cache lines, where the kernels put their operands.
    values = aligned_empty(count * element(0).itemsize // 4).view(element)
    values.fill(1)
    return values
