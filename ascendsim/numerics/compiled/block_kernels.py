"""Run `block`, `block-add` and `exact`: per block, one rounding of the exact sum of its products."""

from typing import Any, Final

import numpy as np

from ascendsim.numerics.compiled.block_sums import (
    SAFE_UNIT,
    Packed,
    PanelBlock,
    add_clear,
    add_normal_blocks,
    add_within,
    block_at,
    blocks_of,
    careful_sum,
    error_bound,
    is_exact,
    is_normal,
    need_magnitudes,
    plain_sum,
    widened,
)
from ascendsim.numerics.compiled.jit import called, inlined, kernel
from ascendsim.numerics.compiled.packing import (
    Accumulators,
    give_back,
    pack,
    reach_and_unit,
    read_panel,
    singles_for,
    stripe_reach_and_unit,
    whole_panels,
    write_panel,
)
from ascendsim.numerics.compiled.panel_rounding import (
    RNE,
    RZ,
    at,
    columns,
    is_plain,
    rounded,
    rows,
    single_into_half,
    sticky,
    store,
    sum_for,
    tile,
    two_sum,
)
from ascendsim.numerics.compiled.panels import (
    LANES,
    ROWS,
    any_lane,
    as_bits,
    differs,
    fma,
    out_of_line,
    round_to_nearest,
    round_toward_zero,
    spread,
    to_single,
    widen,
)
from ascendsim.numerics.compiled.workspace import (
    KernelModel,
    Memory,
    PlainModel,
    Workspace,
    is_narrow,
    memory_for,
    named,
    prepare,
    product,
)

Array = Any
Panel = Any

# An overflow toward zero ends in 65504, a multiple of 32 but of no larger power of two: a coarser unit would
# not hold for what follows. The largest single needs no care: a proven sum is at most 2^53 times 32.
_LARGEST_UNIT: Final = 32.0
# So many roundings to singles together add less to a bound than `widened` adds.
_MOST_BLOCKS: Final = 1 << 12
_LARGE: Final = 2.0**127  # a bound that leaves room to the largest single


def block(a: Array, b: Array, c: Array, how: PlainModel) -> None:
    """Add one product to c under `block`, `block-add` or `exact` (one block of all k).

    Shapes   a (m, k), b (k, n), c (m, n), C-contiguous float32; m, k, n positive
    """
    _block(a, b, c, *memory_for(a, b), how)


@kernel
def _block(
    a: Array, b: Array, c: Array, doubles: Array, singles: Array, spare: int, extra: int, how: PlainModel
) -> None:
    memory, model = Memory(doubles, singles, spare, extra), named(how)
    work = prepare(a, b, memory, model)
    # What is whole in c stays there.
    rows, columns = c.shape
    whole = columns // LANES * LANES if rows % ROWS == 0 else 0
    edge = whole_panels(c, memory.singles, memory.spare, whole)
    if model.sum.cuts:
        round_toward_zero()
    _run(work, Accumulators(c, 0, rows, columns), 0, whole, model)
    if whole < columns:
        _run(work, edge, whole, whole + edge.columns, model)
    round_to_nearest()
    give_back(edge, c, whole)


@called
def _run(work: Workspace, cells: Accumulators, first: int, last: int, model: KernelModel) -> None:
    """Take columns of accumulators through all blocks, each panel by the fastest way proven for it."""
    out_of_line()
    usual = is_plain(model.sum) and not model.separate and not model.split
    whole = usual and work.blocks <= _MOST_BLOCKS
    for j in range(first, last, LANES):
        # All panels below each other at once, as most need no closer look.
        far, fine = stripe_reach_and_unit(cells.values, cells.first + j, cells.rows // ROWS, cells.columns)
        for i in range(0, cells.rows, ROWS):
            reach, unit = far, fine
            most, least = _whole_bounds(work, i, j, reach, unit) if whole else (np.inf, 0.0)
            if not most < np.inf:
                reach, unit = reach_and_unit(read_panel(cells, i, j))
                most, least = _bounds(work, i, j, reach, unit, model)
            if most < np.inf:
                if usual and is_normal(most, least):
                    _usual_panel(work, cells, i, j, model)
                else:
                    _proven_panel(work, cells, i, j, model)
            elif usual and model.sum.cuts:
                _cut_panel(work, cells, i, j, reach, unit, model)
            elif usual:
                _nearest_panel(work, cells, i, j, reach, model)
            else:
                _careful_panel(work, cells, i, j, model)


@inlined
def _whole_bounds(work: Workspace, i: int, j: int, reach: float, unit: float) -> tuple[float, float]:
    """Return bounds as `_bounds` does, sooner and less tight: as if all blocks were one."""
    ours, theirs = work.a_whole + i // ROWS * 2, work.b_whole + j // LANES * 2
    size = at(work.doubles, ours) * at(work.doubles, theirs)
    finest = at(work.doubles, ours + 1) * at(work.doubles, theirs + 1)
    reach, unit = widened(reach, min(unit, _LARGEST_UNIT), PanelBlock(0, 0, work.k, size, finest))
    return reach if is_exact(reach, unit) else np.inf, unit


@inlined
def _bounds(
    work: Workspace, i: int, j: int, reach: float, unit: float, model: KernelModel
) -> tuple[float, float]:
    """Return a bound and a unit of all partial sums of a panel; infinity if doubles do not hold them."""
    proven, most, least = True, 0.0, np.inf
    blocks = blocks_of(work, i, j, model.block)
    for number in range(work.blocks):
        block = block_at(work, blocks, number)
        if model.separate:  # the sum takes no accumulator in, and what adds the two is exact without a proof
            reach, unit = 0.0, np.inf
        reach, unit = widened(reach, min(unit, _LARGEST_UNIT), block)
        proven = proven and is_exact(reach, unit)
        most, least = max(most, reach), min(least, unit)
    return most if proven else np.inf, least


@inlined
def _usual_panel(work: Workspace, cells: Accumulators, i: int, j: int, model: KernelModel) -> None:
    """Take one panel through all blocks, rounded as the machine rounds doubles into singles."""
    left = Packed(work.doubles, work.a + i * work.k, 1, ROWS)
    acc, columns = read_panel(cells, i, j), work.b + j * work.k
    # Two calls: `cuts` is settled before the products begin.
    if model.sum.cuts:
        acc = add_normal_blocks(left, work.doubles, columns, work.k, model.block, acc, True)
    else:
        acc = add_normal_blocks(left, work.doubles, columns, work.k, model.block, acc, False)
    write_panel(acc, cells, i, j)


@inlined
def _proven_panel(work: Workspace, cells: Accumulators, i: int, j: int, model: KernelModel) -> None:
    """Take one panel through all blocks, its accumulators in registers."""
    acc = read_panel(cells, i, j)
    blocks = blocks_of(work, i, j, model.block)
    for number in range(work.blocks):
        block = block_at(work, blocks, number)
        # A sum on its own begins with -0, which changes no term: +0 would make +0 of a sum of only -0.
        start = spread(-0.0) if model.separate else widen(acc)
        acc = _new_accumulators(work, acc, plain_sum(work, block, start, model.split), model)
    write_panel(acc, cells, i, j)


@inlined
def _new_accumulators(work: Workspace, acc: Panel, total: Panel, model: KernelModel) -> Panel:
    """Round the sum of a block, and for `block-add` its sum with the accumulator."""
    result = rounded(total, model.sum, work.doubles, work.result)
    if model.separate:
        total = sum_for(model.add, widen(acc), widen(result))
        result = rounded(total, model.add, work.doubles, work.result)
    return result


@called
def _nearest_panel(
    work: Workspace, cells: Accumulators, i: int, j: int, reach: float, model: KernelModel
) -> None:
    """Take one panel through all blocks, by tests of nearness to ties."""
    out_of_line()
    blocks = blocks_of(work, i, j, model.block)
    size = at(work.doubles, work.a_whole + i // ROWS * 2) * at(work.doubles, work.b_whole + j // LANES * 2)
    roomy = reach + size < _LARGE
    store(widen(read_panel(cells, i, j)), work.doubles, work.start, LANES)
    number = add_clear(work, blocks, 0, roomy)
    while number < work.blocks:
        if not add_within(work, blocks, number):
            careful_sum(work, block_at(work, blocks, number), model)
            found = widen(to_single(tile(work.doubles, work.result, LANES)))
            store(found, work.doubles, work.start, LANES)
        number = add_clear(work, blocks, number + 1, roomy)
    write_panel(to_single(tile(work.doubles, work.start, LANES)), cells, i, j)


@called
def _cut_panel(
    work: Workspace, cells: Accumulators, i: int, j: int, reach: float, unit: float, model: KernelModel
) -> None:
    """Take one panel through all blocks, by proofs and else by error bounds."""
    out_of_line()
    need_magnitudes(work)
    acc = read_panel(cells, i, j)
    blocks = blocks_of(work, i, j, model.block)
    for number in range(work.blocks):
        block = block_at(work, blocks, number)
        reach, unit = widened(reach, min(unit, _LARGEST_UNIT), block)
        start = widen(acc)
        total = plain_sum(work, block, start, False)
        found = to_single(total)
        if not is_exact(reach, unit):
            error = error_bound(work, block, start, True)
            # As `careful_sum` would ask first, but without a call while the panel is in registers.
            found, high = to_single(total - error), to_single(total + error)
            if block.unit < SAFE_UNIT or any_lane(differs(as_bits(found), as_bits(high))):
                store(start, work.doubles, work.start, LANES)
                careful_sum(work, block, model)
                found = to_single(tile(work.doubles, work.result, LANES))
        acc = found
    write_panel(acc, cells, i, j)


@called
def _careful_panel(work: Workspace, cells: Accumulators, i: int, j: int, model: KernelModel) -> None:
    """Take one panel through all blocks, choosing anew for each block how to sum."""
    out_of_line()
    acc = read_panel(cells, i, j)
    blocks = blocks_of(work, i, j, model.block)
    for number in range(work.blocks):
        block = block_at(work, blocks, number)
        store(spread(-0.0) if model.separate else widen(acc), work.doubles, work.start, LANES)
        careful_sum(work, block, model)
        acc = _new_accumulators(work, acc, tile(work.doubles, work.result, LANES), model)
    write_panel(acc, cells, i, j)


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
            _chain_panel(work, cells, i, j, model)
    round_to_nearest()
    give_back(cells, c)


@called
def _chain_panel(work: Workspace, cells: Accumulators, i: int, j: int, model: KernelModel) -> None:
    out_of_line()
    acc = read_panel(cells, i, j)
    for t in range(work.k):
        term = product(work, i * work.k, j * work.k, t, model.split)
        # Back to double, as the sum of a single and a double is what `exact_sum` takes.
        if model.separate:
            term = widen(rounded(term, model.sum, work.doubles, work.result))
        acc = rounded(sum_for(model.sum, widen(acc), term), model.sum, work.doubles, work.result)
    write_panel(acc, cells, i, j)


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
    _run_fused(singles, first, second, cells, a.shape[1], fused)
    round_to_nearest()
    give_back(cells, c)


@called
def _run_fused(singles: Array, a: int, b: int, cells: Accumulators, k: int, fused: bool) -> None:
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
            _half_panel(singles, first + i * k, second + j * k, cells, i, j, k, fused)
    give_back(cells, c)
    return True


@called
def _half_panel(
    singles: Array, a: int, b: int, cells: Accumulators, i: int, j: int, k: int, fused: bool
) -> None:
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
            _cut_half_panel(singles, first + i * k, second + j * k, cells, i, j, k, fused)
    round_to_nearest()
    give_back(cells, c)


@called
def _cut_half_panel(
    singles: Array, a: int, b: int, cells: Accumulators, i: int, j: int, k: int, fused: bool
) -> None:
    out_of_line()
    acc = read_panel(cells, i, j)
    for t in range(k):
        x, y = rows(singles, a + t * ROWS), columns(singles, b + t * LANES)
        total = fma(x, y, acc) if fused else acc + single_into_half(x * y, RZ)
        acc = single_into_half(total, RZ)
    write_panel(acc, cells, i, j)
