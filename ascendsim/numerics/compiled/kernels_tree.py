"""Run `tree`: per block, rounded products summed in pairs, every sum rounded, the root added to c.

Both pairings are one walk over the leaves, two at a time, that adds what is on a stack as soon as a subtree
is complete. `adjacent` meets the leaves in their order. `halves` pairs leaf t with leaf t + size/2 first,
which is the same walk over the leaves in bit-reversed order.
"""

from typing import Any, Final

import numpy as np

from ascendsim.numerics.compiled.jit import called, inlined, kernel
from ascendsim.numerics.compiled.job import PANEL, Job, Rules, prepare, product, sizes
from ascendsim.numerics.compiled.operands import (
    copy_in,
    copy_out,
    fill_singles,
    fits,
    group_count,
    padded_size,
)
from ascendsim.numerics.compiled.panel_memory import columns, rows, store, tile
from ascendsim.numerics.compiled.panel_rounding import exact_sum, is_plain, rounded
from ascendsim.numerics.compiled.panels import LANES, ROWS, out_of_line, spread, widen

Array = Any
Panel = Any

_LEVELS: Final = 16  # blocks have at most 2^16 leaves
_PLUS_ZERO: Final = np.float32(0.0)


def tree(a: Array, b: Array, c: Array, rules: Rules, halves: bool) -> None:
    """Add one product to c under `tree` with blocks of two or more, pairing halves or neighbours.

    Shapes   a (m, k), b (k, n), c (m, n), C-contiguous float32; m, k, n positive
    """
    (m, k), n = a.shape, b.shape[1]
    doubles, singles = sizes(m, k, n)
    stack = singles + padded_size(m, n)
    memory = np.empty((1, doubles)), np.empty((1, stack + _LEVELS * PANEL), np.float32)
    _tree(a, b, c, *memory, singles, stack, rules, halves)


@kernel
def _tree(
    a: Array,
    b: Array,
    c: Array,
    doubles: Array,
    singles: Array,
    spare: int,
    stack: int,
    rules: Rules,
    halves: bool,
) -> None:
    m, n = group_count(c.shape[0], ROWS) * ROWS, group_count(c.shape[1], LANES) * LANES
    job = prepare(a, b, doubles, singles, rules)
    cells, first = (c, 0) if fits(c) else (singles, spare)
    if not fits(c):
        copy_in(c, singles, spare, n)
    plain = is_plain(rules.sum) and not rules.split
    if plain:
        fill_singles(doubles, job.a, job.a_low, singles, job.a_size)
    for j in range(0, n, LANES):
        for i in range(0, m, ROWS):
            place = first + i * n + j
            if plain:
                _plain_panel(job, cells, place, n, i * job.k, j * job.k, stack, rules, halves)
            else:
                _panel(job, cells, place, n, i * job.k, j * job.k, stack, rules, halves)
    if not fits(c):
        copy_out(singles, spare, n, c)


@called
def _plain_panel(
    job: Job, c: Array, place: int, stride: int, a: int, b: int, stack: int, rules: Rules, halves: bool
) -> None:
    out_of_line()
    acc = tile(c, place, stride)
    for first in range(0, job.k, rules.size):
        length = min(rules.size, job.k - first)
        acc = acc + _root(job, a + first * ROWS, b + first * LANES, length, stack, rules, halves, True)
    store(acc, c, place, stride)


@called
def _panel(
    job: Job, c: Array, place: int, stride: int, a: int, b: int, stack: int, rules: Rules, halves: bool
) -> None:
    out_of_line()
    acc = tile(c, place, stride)
    for first in range(0, job.k, rules.size):
        length = min(rules.size, job.k - first)
        root = _root(job, a + first * ROWS, b + first * LANES, length, stack, rules, halves, False)
        acc = _sum(job, acc, root, rules, False)
    store(acc, c, place, stride)


@inlined
def _root(
    job: Job, a: int, b: int, length: int, stack: int, rules: Rules, halves: bool, plain: bool
) -> Panel:
    """Return the root over a block of `length` products and as many missing leaves as the size asks for."""
    pairs = rules.size // 2
    top = stack
    for pair in range(pairs):
        leaf = _bit_reversed(pair, pairs) if halves else 2 * pair
        partner = leaf + (pairs if halves else 1)
        left = _leaf(job, a, b, leaf, length, rules, plain)
        node = _sum(job, left, _leaf(job, a, b, partner, length, rules, plain), rules, plain)
        top, complete = stack, pair
        while complete & 1:
            node = _sum(job, tile(job.singles, top, LANES), node, rules, plain)
            top, complete = top + PANEL, complete >> 1
        store(node, job.singles, top, LANES)
    return tile(job.singles, top, LANES)


@inlined
def _leaf(job: Job, a: int, b: int, t: int, length: int, rules: Rules, plain: bool) -> Panel:
    """Return rounded product t, +0 where it is missing."""
    if t >= length:
        leaf = spread(_PLUS_ZERO)
    elif plain:
        leaf = rows(job.singles, job.a_size + a + t * ROWS) * columns(job.singles, job.b_size + b + t * LANES)
    else:
        leaf = rounded(product(job, a, b, t, rules.split), rules.sum, job.doubles, job.result)
    return leaf


@inlined
def _sum(job: Job, x: Panel, y: Panel, rules: Rules, plain: bool) -> Panel:
    return x + y if plain else rounded(exact_sum(widen(x), widen(y)), rules.sum, job.doubles, job.result)


@called
def _bit_reversed(index: int, count: int) -> int:
    """Return an index below `count`, a power of two, with its bits in reverse order."""
    result = 0
    while count > 1:
        result, index, count = 2 * result + (index & 1), index >> 1, count >> 1
    return result
