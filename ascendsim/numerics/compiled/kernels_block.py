"""Run `block`, `block-add` and `exact`: per block, one rounding of the exact sum of its products."""

from typing import Any, Final

import numpy as np

from ascendsim.numerics.compiled.block_sums import (
    SAFE_UNIT,
    block_of,
    careful_sum,
    error_bound,
    is_exact,
    need_sizes,
    plain_sum,
    widened,
)
from ascendsim.numerics.compiled.jit import called, inlined, kernel
from ascendsim.numerics.compiled.job import Job, Rules, measure, prepare, sizes
from ascendsim.numerics.compiled.operands import copy_in, copy_out, fits, group_count, padded_size
from ascendsim.numerics.compiled.panel_memory import at, store, tile
from ascendsim.numerics.compiled.panel_rounding import exact_sum, is_plain, rounded
from ascendsim.numerics.compiled.panels import (
    LANES,
    ROWS,
    any_lane,
    as_bits,
    differs,
    out_of_line,
    spread,
    to_single,
    widen,
)

Array = Any
Panel = Any

_LARGEST_UNIT: Final = 32.0  # of the largest binary16, in which an overflow toward zero ends


def block(a: Array, b: Array, c: Array, rules: Rules) -> None:
    """Add one product to c under `block`, `block-add` or `exact` (one block of all k).

    Shapes   a (m, k), b (k, n), c (m, n), C-contiguous float32; m, k, n positive
    """
    (m, k), n = a.shape, b.shape[1]
    doubles, singles = sizes(m, k, n)
    spare = padded_size(m, n)
    _block(a, b, c, np.empty((1, doubles)), np.empty((1, singles + spare), np.float32), singles, rules)


@kernel
def _block(a: Array, b: Array, c: Array, doubles: Array, singles: Array, spare: int, rules: Rules) -> None:
    m, n = group_count(c.shape[0], ROWS) * ROWS, group_count(c.shape[1], LANES) * LANES
    job = prepare(a, b, doubles, singles, rules)
    cells, first = (c, 0) if fits(c) else (singles, spare)
    if not fits(c):
        copy_in(c, singles, spare, n)
    _run(job, cells, first, m, n, rules)
    if not fits(c):
        copy_out(singles, spare, n, c)


@inlined
def _run(job: Job, c: Array, first: int, m: int, n: int, rules: Rules) -> None:
    """Take the accumulators at an offset, m rows of n, through all blocks."""
    usual = is_plain(rules.sum) and not rules.separate and not rules.split
    measure(c, first, job.doubles, job.c_extents, m // ROWS, ROWS, n, n)
    for j in range(0, n, LANES):
        for i in range(0, m, ROWS):
            place, known = first + i * n + j, job.c_extents + i // ROWS * 2
            reach, unit = at(job.doubles, known), at(job.doubles, known + 1)
            if _proven(job, i, j, reach, unit, rules):
                _proven_panel(job, c, place, n, i, j, rules)
            elif usual:
                _bounded_panel(job, c, place, n, i, j, reach, unit, rules)
            else:
                _careful_panel(job, c, place, n, i, j, rules)


@inlined
def _proven(job: Job, i: int, j: int, reach: float, unit: float, rules: Rules) -> bool:
    """Tell whether doubles hold every partial sum of every block of a panel."""
    proven = True
    for number in range(job.blocks):
        part = block_of(job, i, j, number, rules.size)
        if rules.separate:
            reach, unit = 0.0, np.inf
        reach, unit = widened(reach, min(unit, _LARGEST_UNIT), part)
        proven = proven and is_exact(reach, unit)
    return proven


@inlined
def _proven_panel(job: Job, c: Array, place: int, stride: int, i: int, j: int, rules: Rules) -> None:
    """Take one panel through all blocks, its accumulators in registers."""
    acc = tile(c, place, stride)
    for number in range(job.blocks):
        part = block_of(job, i, j, number, rules.size)
        start = spread(-0.0) if rules.separate else widen(acc)
        acc = _new_accumulators(job, acc, plain_sum(job, part, start, rules.split), rules)
    store(acc, c, place, stride)


@inlined
def _new_accumulators(job: Job, acc: Panel, total: Panel, rules: Rules) -> Panel:
    """Round the sum of a block, and for `block-add` its sum with the accumulator."""
    part = rounded(total, rules.sum, job.doubles, job.result)
    if rules.separate:
        part = rounded(exact_sum(widen(acc), widen(part)), rules.add, job.doubles, job.result)
    return part


@called
def _bounded_panel(
    job: Job, c: Array, place: int, stride: int, i: int, j: int, reach: float, unit: float, rules: Rules
) -> None:
    """Take one panel through all blocks, by proofs and else by error bounds; for sums rounded as usual."""
    out_of_line()
    need_sizes(job)
    acc = tile(c, place, stride)
    for number in range(job.blocks):
        part = block_of(job, i, j, number, rules.size)
        reach, unit = widened(reach, min(unit, _LARGEST_UNIT), part)
        start = widen(acc)
        total = plain_sum(job, part, start, False)
        found = to_single(total)
        if not is_exact(reach, unit):
            error = error_bound(job, part, start)
            found, high = to_single(total - error), to_single(total + error)
            if part.unit < SAFE_UNIT or any_lane(differs(as_bits(found), as_bits(high))):
                store(start, job.doubles, job.start, LANES)
                careful_sum(job, part, rules)
                found = to_single(tile(job.doubles, job.result, LANES))
        acc = found
    store(acc, c, place, stride)


@called
def _careful_panel(job: Job, c: Array, place: int, stride: int, i: int, j: int, rules: Rules) -> None:
    """Take one panel through all blocks, choosing anew for each block how to sum."""
    out_of_line()
    acc = tile(c, place, stride)
    for number in range(job.blocks):
        part = block_of(job, i, j, number, rules.size)
        store(spread(-0.0) if rules.separate else widen(acc), job.doubles, job.start, LANES)
        careful_sum(job, part, rules)
        acc = _new_accumulators(job, acc, tile(job.doubles, job.result, LANES), rules)
    store(acc, c, place, stride)
