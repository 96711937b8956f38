"""Run `seq`, `seq-muladd` and `block:K` in RNE on factors that lie anywhere.

Chains go by the processor's own arithmetic. The ways to the exact sum of a block are those of `block_sums`. A
bound and a unit of the accumulators go along from piece to piece; the accumulators themselves are looked at
only where these prove nothing any more.
"""

from typing import Any, Final, NamedTuple

import numpy as np

from ascendsim.numerics.compiled.block_sums import (
    Blocks,
    Packed,
    PanelBlock,
    add_clear,
    add_normal_blocks,
    add_within,
    block_at,
    is_exact,
    is_normal,
    left_of,
    sum_with_errors,
)
from ascendsim.numerics.compiled.jit import called, inlined, kernel
from ascendsim.numerics.compiled.lines import (
    FactorLines,
    LineRuns,
    ReductionPiece,
    copy_columns,
    copy_rows,
    measure_columns,
    measure_rows,
    pack_rows,
    panel_of,
)
from ascendsim.numerics.compiled.packing import (
    MARGIN,
    aligned,
    group_count,
    reach_and_unit,
)
from ascendsim.numerics.compiled.panel_rounding import (
    LIMBS,
    RNE,
    Rounding,
    at,
    clear,
    columns,
    put,
    store,
    tile,
)
from ascendsim.numerics.compiled.panels import (
    LANES,
    ROWS,
    fma,
    has_rounded,
    out_of_line,
    round_to_nearest,
    spread,
    to_single,
    widen,
)
from ascendsim.numerics.compiled.workspace import PANEL, KernelModel, Workspace
from ascendsim.numerics.factor import Cuts, Elements, Factor, FactorRange, Floats, Places

Array = Any

_CHAIN_LINES: Final = 512  # rows whose elements stay in the nearer caches while a piece is added to them


class Chain:
    """Adds products one by one: `seq:RNE` by fused multiply-adds; `seq-muladd:RNE` rounds each product first.

    Shapes   a (m, k), b (n, k), m and n whole multiples of ROWS and LANES
    Cuts     of all reductions, anywhere
    """

    def __init__(self, a: Factor, b: Factor, cuts: Places, fused: bool) -> None:
        self._product = a.elements, b.elements
        # Rows are copied in whole runs where pieces begin with one.
        whole = a.run % ROWS == 0 and not np.any(cuts[:-1] % a.run)
        self._run, self._fused = a.run if whole else 0, fused

    def add(
        self, rows: FactorRange, columns: FactorRange, cuts: Cuts, c: Floats, begins: bool = False
    ) -> None:
        """Add some rows and columns of every product to those of c (products, m, n), or to +0."""
        longest = cuts.longest
        if not longest:
            return
        a, b = self._product
        memory = np.empty(longest * (LANES + min(rows.stop - rows.start, _CHAIN_LINES)) + MARGIN, np.float32)
        how = self._run, self._fused, begins
        _chains(a, b, cuts.places, cuts.firsts, c, rows, columns, memory, longest, *how)


@kernel
def _chains(
    a: Elements,
    b: Elements,
    cuts: Array,
    firsts: Array,
    c: Array,
    rows: FactorRange,
    columns: FactorRange,
    memory: Array,
    longest: int,
    run: int,
    fused: bool,
    begins: bool,
) -> None:
    right, width = aligned(memory, 0), c.shape[2]
    packed = right + longest * LANES
    for product in range(firsts.size - 1):
        corner = product * c.shape[1] * width
        for line in range(rows.start, rows.stop, _CHAIN_LINES):
            stop = min(line + _CHAIN_LINES, rows.stop)
            for piece in range(at(firsts, product), at(firsts, product + 1) - 1):
                first, last = at(cuts, piece), at(cuts, piece + 1)
                from_zero = begins and piece == at(firsts, product)
                pack_rows(a, run, (line, stop), (first, last), memory, packed)
                for j in range(columns.start, columns.stop, LANES):
                    copy_columns(b, j, first, last, memory, right)
                    for i in range(line, stop, ROWS):
                        left = panel_of(memory, packed, run, i - line, last - first)
                        _panel(left, last - first, right, c, corner + i * width + j, fused, from_zero)


@inlined
def _panel(left: Packed, length: int, right: int, c: Array, cell: int, fused: bool, from_zero: bool) -> None:
    """Add one piece of the reduction to the panel whose first accumulator is at `cell`, or to +0."""
    acc = spread(np.float32(0.0)) if from_zero else tile(c, cell, c.shape[2])
    # Two loops, not one with a branch in it: `fused` is settled before the products begin.
    if fused:
        for t in range(length):
            acc = fma(left_of(left, t), columns(left.values, right + t * LANES), acc)
    else:
        for t in range(length):
            acc = acc + left_of(left, t) * columns(left.values, right + t * LANES)
    store(acc, c, cell, c.shape[2])


Panel = Any

_GROWTH: Final = 1.001  # what rounding adds to a bound at most, and more
_SUBNORMAL: Final = 2.0**-150  # what it adds to a subnormal single, however small that is: half a unit
_LONGEST_PAUSE: Final = 1023.0
_LARGE: Final = 2.0**127  # a bound that leaves room to the largest single


class Tables(NamedTuple):
    """Places in the doubles of the extents of a piece's rows, and of those of accumulators.

    packed    the rows, laid out for panels
    extents   of each group of rows: those of the piece, then those of each of its blocks
    sums      of each panel: a bound of its accumulators, and a unit of theirs
    luck      as `_add_watched` has it
    """

    packed: int
    extents: int
    sums: int
    luck: int


class Cell(NamedTuple):
    """A panel of accumulators: where its first one is in c, and whether they are +0 whatever c holds."""

    c: Array
    first: int
    from_zero: bool


@inlined
def _read(cell: Cell) -> Panel:
    return spread(np.float32(0.0)) if cell.from_zero else tile(cell.c, cell.first, cell.c.shape[2])


@inlined
def add_piece(
    a: FactorLines,
    i: int,
    left: Packed,
    piece: ReductionPiece,
    work: Workspace,
    known: int,
    tables: Tables,
    sums: int,
    cell: Cell,
    model: KernelModel,
) -> None:
    """Add a piece to the panel at a cell."""
    # What has been known of the accumulators since they were last looked at, then what they are.
    reach, unit = at(work.doubles, sums), at(work.doubles, sums + 1)
    most, least = _widened(reach, unit, _whole(work, known, piece), piece.blocks)
    if not is_exact(most, least):
        reach, unit = _looked_at(_read(cell), unit)
        most, least = _widened(reach, unit, _whole(work, known, piece), piece.blocks)
    if is_normal(most, least) and is_exact(most, least):
        acc = add_normal_blocks(left, work.doubles, work.b, piece.length, model.block, _read(cell), False)
        store(acc, cell.c, cell.first, cell.c.shape[2])
    else:
        blocks = Blocks(left, work.b, piece.length, model.block, 0, 0, known + 2, work.b_extents + 2)
        if not (is_normal(most, least) and _add_watched(work, blocks, tables.luck, cell)):
            _add_unproven(a, i, piece.first, work, blocks, cell, most, least)
            most = np.inf
    put(work.doubles, sums, most)
    put(work.doubles, sums + 1, least)


@called
def _add_unproven(
    a: FactorLines, i: int, first: int, work: Workspace, blocks: Blocks, cell: Cell, most: float, unit: float
) -> None:
    """Add the blocks of a piece that begins at a step, each in whichever way is exact."""
    out_of_line()
    count = group_count(blocks.steps, blocks.size)
    store(widen(_read(cell)), work.doubles, work.start, LANES)
    number = add_clear(work, blocks, 0, most < _LARGE)
    while number < count:
        if not add_within(work, blocks, number):
            _add_carefully(a, i, first + number * blocks.size, work, block_at(work, blocks, number), unit)
        number = add_clear(work, blocks, number + 1, most < _LARGE)
    acc = to_single(tile(work.doubles, work.start, LANES))
    store(acc, cell.c, cell.first, cell.c.shape[2])


@called
def _add_watched(work: Workspace, blocks: Blocks, luck: int, cell: Cell) -> bool:
    """Add a piece whose sums are normal, if doubles happen to hold them all; return whether they do.

    The processor tells: it notes that an operation has rounded. Sums of many bits are rounded nearly always;
    after each failure in a row twice as many pieces are not tried.

    luck   where it is how many pieces are not tried yet, and how many are not after the next failure
    """
    out_of_line()
    waiting, pause = at(work.doubles, luck), at(work.doubles, luck + 1)
    if waiting > 0.0:
        put(work.doubles, luck, waiting - 1.0)
        return False
    round_to_nearest()
    _add_to_result(work, blocks, cell)
    if has_rounded():
        put(work.doubles, luck, pause)
        put(work.doubles, luck + 1, min(2.0 * pause + 1.0, _LONGEST_PAUSE))
        return False
    put(work.doubles, luck + 1, 0.0)
    store(to_single(tile(work.doubles, work.result, LANES)), cell.c, cell.first, cell.c.shape[2])
    return True


@called
def _add_to_result(work: Workspace, blocks: Blocks, cell: Cell) -> None:
    # Out of line: the compiler would move arithmetic, but no call that writes, past a look at the processor.
    out_of_line()
    acc, (left, right, steps, size) = _read(cell), (blocks.left, blocks.right, blocks.steps, blocks.size)
    total = widen(add_normal_blocks(left, work.doubles, right, steps, size, acc, False))
    store(total, work.doubles, work.result, LANES)


@inlined
def _looked_at(acc: Panel, unit: float) -> tuple[float, float]:
    """Return the largest magnitude of accumulators, and a common unit; `unit` is the one known so far."""
    reach, seen = reach_and_unit(acc)
    return reach, max(unit, seen)


@inlined
def _widened(reach: float, unit: float, block: PanelBlock, roundings: int) -> tuple[float, float]:
    """Return a bound and a unit of accumulators as they are after a block, or after all blocks of a piece.

    Sums stay whole multiples of the common unit, whatever rounding does, as `block_sums.widened` has it. Each
    rounding adds 2^-24 of a bound at most, so that _GROWTH is room enough for as many as a piece can have;
    but where a sum is a subnormal single, half a unit of those, which may be as much as the bound itself.
    """
    return (reach + block.bound) * _GROWTH + roundings * _SUBNORMAL, min(unit, block.unit)


@called
def _add_carefully(
    a: FactorLines, i: int, first: int, work: Workspace, block: PanelBlock, unit: float
) -> None:
    """Add a block that begins at a step to the accumulators at `start`, in whichever way is exact.

    `result` has its sums as doubles add them.
    """
    out_of_line()
    reach, unit = _looked_at(to_single(tile(work.doubles, work.start, LANES)), unit)
    if not is_exact(*_widened(reach, unit, block, 1)):
        copy_rows(a, i, first, first + block.length, work.doubles, work.a + block.a)
        sum_with_errors(work, block, False)
    store(widen(to_single(tile(work.doubles, work.result, LANES))), work.doubles, work.start, LANES)


@inlined
def _whole(work: Workspace, known: int, piece: ReductionPiece) -> PanelBlock:
    """Return all blocks of a panel as one block; `known` is where the extents of the panel's lines are."""
    theirs = work.b_extents
    size = at(work.doubles, known) * at(work.doubles, theirs)
    unit = at(work.doubles, known + 1) * at(work.doubles, theirs + 1)
    return PanelBlock(0, 0, piece.length, size, unit)


# Rows whose extents and elements stay in the nearer caches while a piece of the reduction is added to them.
_BLOCK_LINES: Final = 256


class BlockProducts:
    """Products under `block:K:RNE`, whose factors are measured once.

    Shapes   a (m, k), b (n, k), m and n whole multiples of ROWS and LANES
    Cuts     of all reductions; blocks begin at each, and full blocks end at all but the ends of Mmads
    runs     of both factors, as `LineRuns` says
    block    products of a block
    """

    def __init__(self, a: Factor, b: Factor, runs: tuple[LineRuns, LineRuns], block: int) -> None:
        self._a, self._b = runs[0].measured(a, summed=True), runs[1].measured(b, summed=False)
        usual = Rounding(RNE, False, 0.0)
        self._model = KernelModel(block, usual, False, usual, False)

    def add(
        self, rows: FactorRange, columns: FactorRange, cuts: Cuts, c: Floats, begins: bool = False
    ) -> None:
        """Add some rows and columns of every product to those of c (products, m, n), or to +0."""
        longest, block = cuts.longest, self._model.block
        if not longest:
            return
        lines = min(rows.stop - rows.start, _BLOCK_LINES)
        groups, parts = lines // ROWS, -(-longest // block)
        measured = 2 * (groups + 1) * (1 + parts) + 2 * groups * ((columns.stop - columns.start) // LANES)
        packed = longest * (lines + ROWS + LANES)
        doubles = np.empty(packed + 3 * PANEL + LIMBS + measured + 2 + 5 * MARGIN)
        singles = np.empty(0, np.float32)  # of kernels that keep magnitudes
        _blocks(
            self._a,
            self._b,
            cuts.places,
            cuts.firsts,
            c,
            doubles,
            singles,
            longest,
            rows,
            columns,
            self._model,
            begins,
        )


@kernel
def _blocks(
    a: FactorLines,
    b: FactorLines,
    cuts: Array,
    firsts: Array,
    c: Array,
    doubles: Array,
    singles: Array,
    longest: int,
    rows: FactorRange,
    columns: FactorRange,
    model: KernelModel,
    begins: bool,
) -> None:
    lines = min(rows.stop - rows.start, _BLOCK_LINES)
    work, tables = _shared_out(doubles, singles, longest, group_count(longest, model.block), lines)
    for product in range(firsts.size - 1):
        own = at(firsts, product), at(firsts, product + 1)
        for line in range(rows.start, rows.stop, _BLOCK_LINES):
            some = FactorRange(line, min(line + _BLOCK_LINES, rows.stop))
            _rows(a, b, cuts, own, c, product, some, columns, work, tables, model, begins)


@called
def _rows(
    a: FactorLines,
    b: FactorLines,
    cuts: Array,
    own: tuple[int, int],
    c: Array,
    product: int,
    rows: FactorRange,
    columns: FactorRange,
    work: Workspace,
    tables: Tables,
    model: KernelModel,
    begins: bool,
) -> None:
    """Add the pieces of one product to some rows of its accumulators, or to +0."""
    out_of_line()
    width, groups = c.shape[2], (rows.stop - rows.start) // ROWS
    corner = product * c.shape[1] * width
    for panel in range(groups * ((columns.stop - columns.start) // LANES)):
        # As long as nothing is known of accumulators, nothing bounds them. Zeros are multiples of anything.
        put(work.doubles, tables.sums + 2 * panel, 0.0 if begins else np.inf)
        put(work.doubles, tables.sums + 2 * panel + 1, np.inf if begins else 0.0)
    for cut in range(own[0], own[1] - 1):
        first, length = at(cuts, cut), at(cuts, cut + 1) - at(cuts, cut)
        piece = ReductionPiece(first, length, group_count(length, model.block))
        from_zero = begins and cut == own[0]
        pack_rows(a, a.run, rows, (first, first + length), work.doubles, tables.packed)
        measure_rows(a, rows.start, rows.stop, piece, work, tables.packed, tables.extents, model.block)
        for j in range(columns.start, columns.stop, LANES):
            copy_columns(b, j, first, first + length, work.doubles, work.b)
            measure_columns(b, j, piece, work, model.block)
            sums = tables.sums + (j - columns.start) // LANES * 2 * groups
            for i in range(rows.start, rows.stop, ROWS):
                group, cell = (i - rows.start) // ROWS, corner + i * width + j
                left = panel_of(work.doubles, tables.packed, a.run, i - rows.start, length)
                known = tables.extents + group * 2 * (1 + piece.blocks)
                at_panel = Cell(c, cell, from_zero)
                add_piece(a, i, left, piece, work, known, tables, sums + 2 * group, at_panel, model)


@called
def _shared_out(
    doubles: Array, singles: Array, longest: int, parts: int, lines: int
) -> tuple[Workspace, Tables]:
    """Share out the memory for pieces of at most `longest` steps and `parts` blocks, and for so many rows."""
    result = aligned(doubles, 0)
    start, flags, limbs = result + PANEL, result + 2 * PANEL, result + 3 * PANEL
    clear(doubles, limbs)
    b = aligned(doubles, limbs + LIMBS)
    packed = b + longest * LANES
    a = packed + longest * lines
    b_extents = a + longest * ROWS
    places = (a, b, 0, 0, 0, b_extents, 0, 0, start, result, flags, limbs, 0, 0, 0)
    luck = b_extents + 2 * (1 + parts)
    put(doubles, luck, 0.0)
    put(doubles, luck + 1, 0.0)
    extents = luck + 2
    tables = Tables(packed, extents, extents + lines // ROWS * 2 * (1 + parts), luck)
    return Workspace(doubles, singles, longest, parts, *places), tables
