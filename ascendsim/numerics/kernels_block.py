"""Run `block`, `block-add` and `exact`: per block, one rounding of the exact sum of its products."""

from typing import Any, Final

import numpy as np

from ascendsim.numerics.block_sums import (
    EXACT_UNITS,
    SAFE_UNIT,
    Job,
    Rules,
    block_of,
    careful_sum,
    error_bound,
    fill_sizes,
    plain_sum,
    prepare,
)
from ascendsim.numerics.extents import extent
from ascendsim.numerics.jit import allocating, called, inlined, kernel
from ascendsim.numerics.operands import copy_valid, fits, padded
from ascendsim.numerics.panel_rounding import exact_sum, is_plain, rounded
from ascendsim.numerics.panels import (
    LANES,
    ROWS,
    any_lane,
    as_bits,
    differs,
    out_of_line,
    spread,
    store,
    tile,
    to_single,
    widen,
)

Array = Any
Panel = Any

_GROWTH: Final = 1.001  # a rounding, even to 11 bits, makes nothing larger than this
_LARGEST_UNIT: Final = 32.0  # of the largest binary16, in which an overflow toward zero ends


@kernel
def block(a: Array, b: Array, c: Array, rules: Rules) -> None:
    """Add one product to c under `block`, `block-add` or `exact` (one block of all k); k is positive."""
    if fits(c):
        _whole_panels(a, b, c, rules)
    else:
        work = padded(c)
        _whole_panels(a, b, work, rules)
        copy_valid(work, c, c.shape)


@allocating
def _whole_panels(a: Array, b: Array, c: Array, rules: Rules) -> None:
    _run(prepare(a, b, rules), c, c.reshape(c.size), a.shape[1], rules)


@called
def _run(job: Job, c: Array, flat_c: Array, k: int, rules: Rules) -> None:
    usual = is_plain(rules.sum) and not rules.separate and not rules.split
    for i in range(0, c.shape[0], ROWS):
        reach, unit = extent(flat_c, i * c.shape[1], (i + ROWS) * c.shape[1])
        for j in range(0, c.shape[1], LANES):
            if _proven(job, i // ROWS, j // LANES, reach, unit, k, rules):
                _proven_panel(job, c, i, j, k, rules)
            elif usual:
                _bounded_panel(job, c, i, j, k, rules)
            else:
                _careful_panel(job, c, i, j, k, rules)


@inlined
def _proven(job: Job, group: int, panel: int, reach: float, unit: float, k: int, rules: Rules) -> bool:
    """Tell whether doubles hold every partial sum of every block of a panel.

    What is known of an accumulator stays true: rounding leaves multiples of a unit what they are.
    """
    proven = True
    for number in range(job.a_extents.shape[1]):
        part = block_of(job, group, panel, number, k, rules.size)
        if rules.separate:
            reach, unit = 0.0, np.inf
        reach, unit = (reach + part.size) * _GROWTH, min(min(unit, _LARGEST_UNIT), part.unit)
        proven = proven and reach <= EXACT_UNITS * unit
    return proven


@inlined
def _proven_panel(job: Job, c: Array, i: int, j: int, k: int, rules: Rules) -> None:
    """Take one panel through all blocks of k, its accumulators in registers."""
    acc = tile(c, i, j)
    for number in range(job.a_extents.shape[1]):
        part = block_of(job, i // ROWS, j // LANES, number, k, rules.size)
        start = spread(-0.0) if rules.separate else widen(acc)
        acc = _new_accumulators(job, acc, plain_sum(job, part, start, rules.split), rules)
    store(acc, c, i, j)


@inlined
def _new_accumulators(job: Job, acc: Panel, total: Panel, rules: Rules) -> Panel:
    """Round the sum of a block, and for `block-add` its sum with the accumulator."""
    part = rounded(total, rules.sum, job.panels)
    if rules.separate:
        part = rounded(exact_sum(widen(acc), widen(part)), rules.add, job.panels)
    return part


@called
def _bounded_panel(job: Job, c: Array, i: int, j: int, k: int, rules: Rules) -> None:
    """Take one panel through all blocks, trying the error bound first; for sums rounded as usual."""
    out_of_line()
    fill_sizes(job)
    acc = tile(c, i, j)
    for number in range(job.a_extents.shape[1]):
        part = block_of(job, i // ROWS, j // LANES, number, k, rules.size)
        start = widen(acc)
        total = plain_sum(job, part, start, False)
        error = error_bound(job, part, start)
        low, high = to_single(total - error), to_single(total + error)
        if part.unit < SAFE_UNIT or any_lane(differs(as_bits(low), as_bits(high))):
            store(start, job.panels, ROWS, 0)
            careful_sum(job, part, rules)
            low = to_single(tile(job.panels, 0, 0))
        acc = low
    store(acc, c, i, j)


@called
def _careful_panel(job: Job, c: Array, i: int, j: int, k: int, rules: Rules) -> None:
    """Take one panel through all blocks, choosing anew for each block how to sum."""
    out_of_line()
    acc = tile(c, i, j)
    for number in range(job.a_extents.shape[1]):
        part = block_of(job, i // ROWS, j // LANES, number, k, rules.size)
        store(spread(-0.0) if rules.separate else widen(acc), job.panels, ROWS, 0)
        careful_sum(job, part, rules)
        acc = _new_accumulators(job, acc, tile(job.panels, 0, 0), rules)
    store(acc, c, i, j)
