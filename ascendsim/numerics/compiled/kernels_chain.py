"""Run `seq` and `seq-muladd` under any rounding, and with split products.

A product is exact in a double, and a double and a binary32 number have a sum that a sticky double stands for:
so every step is one correct rounding, without proofs and without exceptions.
"""

from typing import Any

import numpy as np

from ascendsim.numerics.compiled.jit import called, kernel
from ascendsim.numerics.compiled.job import Job, Rules, prepare, product, sizes
from ascendsim.numerics.compiled.operands import copy_in, copy_out, fits, group_count, padded_size
from ascendsim.numerics.compiled.panel_memory import store, tile
from ascendsim.numerics.compiled.panel_rounding import exact_sum, rounded
from ascendsim.numerics.compiled.panels import LANES, ROWS, out_of_line, widen

Array = Any


def chain(a: Array, b: Array, c: Array, rules: Rules) -> None:
    """Add one product to c under `seq`, or with `rules.separate` under `seq-muladd`.

    Shapes   a (m, k), b (k, n), c (m, n), C-contiguous float32; m, k, n positive
    """
    (m, k), n = a.shape, b.shape[1]
    doubles, singles = sizes(m, k, n)
    spare = padded_size(m, n)
    _chain(a, b, c, np.empty((1, doubles)), np.empty((1, singles + spare), np.float32), singles, rules)


@kernel
def _chain(a: Array, b: Array, c: Array, doubles: Array, singles: Array, spare: int, rules: Rules) -> None:
    m, n = group_count(c.shape[0], ROWS) * ROWS, group_count(c.shape[1], LANES) * LANES
    job = prepare(a, b, doubles, singles, rules)
    cells, first = (c, 0) if fits(c) else (singles, spare)
    if not fits(c):
        copy_in(c, singles, spare, n)
    for i in range(0, m, ROWS):
        for j in range(0, n, LANES):
            _panel(job, cells, first + i * n + j, n, i * job.k, j * job.k, rules)
    if not fits(c):
        copy_out(singles, spare, n, c)


@called
def _panel(job: Job, c: Array, place: int, stride: int, a: int, b: int, rules: Rules) -> None:
    out_of_line()
    acc = tile(c, place, stride)
    for t in range(job.k):
        term = product(job, a, b, t, rules.split)
        if rules.separate:
            term = widen(rounded(term, rules.sum, job.doubles, job.result))
        acc = rounded(exact_sum(widen(acc), term), rules.sum, job.doubles, job.result)
    store(acc, c, place, stride)
