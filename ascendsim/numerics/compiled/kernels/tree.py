"""Run `tree`: per block, rounded products summed in pairs, every sum rounded, the root added to c.

Both pairings are one walk over the leaves, two at a time, that adds what is on a stack as soon as a subtree
is complete. `adjacent` meets the leaves in their order. `halves` pairs leaf t with leaf t + size/2 first,
which is the same walk over the leaves in bit-reversed order.
"""

from typing import Any, Final

import numpy as np

from ascendsim.numerics.compiled.jit import called, inlined, kernel
from ascendsim.numerics.compiled.packing import (
    Accumulators,
    fill_singles,
    give_back,
    read_panel,
    whole_panels,
    write_panel,
)
from ascendsim.numerics.compiled.panel_memory import store, tile
from ascendsim.numerics.compiled.panel_rounding import is_plain, rounded, sum_for
from ascendsim.numerics.compiled.panels import LANES, ROWS, out_of_line, spread, widen
from ascendsim.numerics.compiled.rounding_mode import round_to_nearest, round_toward_zero
from ascendsim.numerics.compiled.workspace import (
    PANEL,
    KernelModel,
    Memory,
    Workspace,
    memory_for,
    prepare,
    product,
    single_factors,
)

Array = Any
Panel = Any

# The stack holds at most one finished subtree of each height. Blocks have at most 2^16 leaves, and no subtree
# of a single leaf is stored, so 16 panels are enough.
_LEVELS: Final = 16
_PLUS_ZERO: Final = np.float32(0.0)


def tree(a: Array, b: Array, c: Array, model: KernelModel, halves: bool) -> None:
    """Add one product to c under `tree` with blocks of two or more, pairing halves or neighbours.

    Shapes   a (m, k), b (k, n), c (m, n), C-contiguous float32; m, k, n positive
    """
    _tree(a, b, c, memory_for(a, b, _LEVELS * PANEL), model, halves)


@kernel
def _tree(a: Array, b: Array, c: Array, memory: Memory, model: KernelModel, halves: bool) -> None:
    work = prepare(a, b, memory, model)
    cells = whole_panels(c, memory.singles, memory.spare)
    # A product rounded once into a single is what the machine's own multiplication gives, and likewise a sum:
    # then no double is needed.
    plain = is_plain(model.sum) and not model.split
    if plain:
        fill_singles(work.doubles, work.a, work.a_low, work.singles, work.a_single)
    if model.sum.cuts:
        round_toward_zero()
    for j in range(0, cells.columns, LANES):
        for i in range(0, cells.rows, ROWS):
            # Two functions, so that the plain one keeps its registers free of what the other needs.
            if plain:
                _plain_panel(work, cells, i, j, model, halves)
            else:
                _rounding_panel(work, cells, i, j, model, halves)
    round_to_nearest()
    give_back(cells, c)


@called
def _plain_panel(
    work: Workspace, cells: Accumulators, i: int, j: int, model: KernelModel, halves: bool
) -> None:
    out_of_line()
    _panel(work, cells, i, j, model, halves, True)


@called
def _rounding_panel(
    work: Workspace, cells: Accumulators, i: int, j: int, model: KernelModel, halves: bool
) -> None:
    out_of_line()
    _panel(work, cells, i, j, model, halves, False)


@inlined
def _panel(
    work: Workspace, cells: Accumulators, i: int, j: int, model: KernelModel, halves: bool, plain: bool
) -> None:
    acc = read_panel(cells, i, j)
    for first in range(0, work.k, model.block):
        a, b = i * work.k + first * ROWS, j * work.k + first * LANES
        root = _root(work, a, b, min(model.block, work.k - first), model, halves, plain)
        acc = _sum(work, acc, root, model, plain)
    write_panel(acc, cells, i, j)


@inlined
def _root(
    work: Workspace, a: int, b: int, length: int, model: KernelModel, halves: bool, plain: bool
) -> Panel:
    """Return the root over a block of `length` products and as many missing leaves as the size asks for."""
    pairs = model.block // 2
    top = work.extra
    for pair in range(pairs):
        leaf = _bit_reversed(pair, pairs) if halves else 2 * pair
        partner = leaf + (pairs if halves else 1)
        left = _leaf(work, a, b, leaf, length, model, plain)
        node = _sum(work, left, _leaf(work, a, b, partner, length, model, plain), model, plain)
        # A binary counter: each trailing one of the pair's number is a finished subtree of that height, which
        # this node completes to the next.
        top, complete = work.extra, pair
        while complete & 1:
            node = _sum(work, tile(work.singles, top, LANES), node, model, plain)
            top, complete = top + PANEL, complete >> 1
        store(node, work.singles, top, LANES)
    return tile(work.singles, top, LANES)


@inlined
def _leaf(work: Workspace, a: int, b: int, t: int, length: int, model: KernelModel, plain: bool) -> Panel:
    """Return rounded product t, +0 where it is missing."""
    if t >= length:
        leaf = spread(_PLUS_ZERO)
    elif plain:
        x, y = single_factors(work, a, b, t)
        leaf = x * y
    else:
        leaf = rounded(product(work, a, b, t, model.split), model.sum, work.doubles, work.result)
    return leaf


@inlined
def _sum(work: Workspace, x: Panel, y: Panel, model: KernelModel, plain: bool) -> Panel:
    if plain:
        return x + y
    return rounded(sum_for(model.sum, widen(x), widen(y)), model.sum, work.doubles, work.result)


@called
def _bit_reversed(index: int, count: int) -> int:
    """Return an index below `count`, a power of two, with its bits in reverse order."""
    result = 0
    while count > 1:
        result, index, count = 2 * result + (index & 1), index >> 1, count >> 1
    return result
