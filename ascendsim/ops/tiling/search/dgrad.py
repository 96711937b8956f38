"""Choose the tiling of an image product (grad_input)."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import NamedTuple

from ascendsim.cube.tile_reads import TapRows, round_up
from ascendsim.errors import CapacityError
from ascendsim.ops.plan import Tiling
from ascendsim.ops.problems.dgrad import DgradGemm
from ascendsim.ops.problems.taps import Taps, first_box
from ascendsim.ops.tiling.search.rates import BaseBlock, Rates, blocks, even_slice, im2col_read, nothing_fits
from ascendsim.profile import Profile

# How many of the best base blocks get their L1 tiles compared; the rest only matter if none of these fits.
SHORT_LIST = 6

# Loads that compute hides are not free: they meet those of other cores, and memory where L2 misses. This
# share of them decides between tilings that are otherwise equal; from 0.1 to 0.5 the choice hardly changes.
HIDDEN_SHARE = 0.2


class _Candidate(NamedTuple):
    """A base block with the cycles of one task on FIX, and the share of the busiest core."""

    bound: float
    block: BaseBlock
    base_k: int
    fix: float
    rounds: int
    used: int


class _Chunk(NamedTuple):
    """The reduction that a tile in L1 may hold: slices of base_k, and what follows for one task.

    left, right   bytes of a tile of either operand
    tiles         tiles of one operand
    compute       cycles of all Mmads with their loads into L0
    """

    step: int
    left: int
    right: int
    tiles: int
    compute: float


def dgrad_tiling(gemm: DgradGemm, profile: Profile) -> Tiling:
    """Choose the tiling of an image product.

    Raises   CapacityError if nothing fits
    """
    rates = Rates(profile, gemm.compute_dtype, profile.cores.cube)
    # Tiles inside a row are tried only if no range of whole rows fits, and a shorter reduction in one Mmad
    # than L0 could hold only where those do not fit either.
    for shorten, in_row in product((False, True), (False, True)):
        found = _best(gemm, rates, shorten=shorten, in_row=in_row)
        if found is not None:
            return found
    raise CapacityError(nothing_fits(gemm.sliding, profile))


def _best(gemm: DgradGemm, rates: Rates, *, shorten: bool, in_row: bool) -> Tiling | None:
    """Return the best tiling with tiles of whole rows or inside a row, or None if nothing fits."""
    s = gemm.sliding
    pixels = s.out_size[1] if in_row else s.pixels
    found = blocks(rates.profile, s.itemsize, (pixels, gemm.columns), (16, s.c0, s.c0))
    ranked = sorted((_rank(gemm, rates, block, in_row=in_row) for block in found), key=lambda c: c.bound)
    best: tuple[float, Tiling] | None = None
    for number, candidate in enumerate(ranked):
        # Loads only add to a bound without them: no later candidate can be better than such a best one.
        if best is not None and (number >= SHORT_LIST or candidate.bound >= best[0]):
            break
        fitting = _with_chunks(gemm, rates, candidate, in_row=in_row)
        while fitting is None and shorten and candidate.base_k > s.c0:
            block = candidate.block._replace(k=round_up(candidate.base_k // 2, s.c0))
            candidate = _rank(gemm, rates, block, in_row=in_row)
            fitting = _with_chunks(gemm, rates, candidate, in_row=in_row)
        if fitting is not None and (best is None or fitting[0] < best[0]):
            best = fitting
    return best[1] if best else None


def _rank(gemm: DgradGemm, rates: Rates, block: BaseBlock, *, in_row: bool) -> _Candidate:
    """Bound the cycles of a base block as if loads from GM were free."""
    s = gemm.sliding
    reduction = gemm.all_taps.groups * s.c0
    base_k = even_slice(reduction, min(block.k, reduction), s.c0)
    # A depth that nothing reaches is filled with zeros, not computed; the others meet unequally many depths.
    depths = [len(pairs) for pairs in gemm.depths if pairs]
    tiles = s.pixel_tile_count(block.m, in_row=in_row)
    tasks = gemm.groups * gemm.batch * max(1, len(depths)) * tiles * -(-gemm.columns // block.n)
    used = min(tasks, rates.cores)
    # The busiest core counts: with one task more than cores everything takes twice as long.
    rounds = -(-tasks // used)
    count = sum(depths) / max(1, len(depths)) * -(-reduction // base_k)
    compute = count * _slice_cycles(gemm, rates, block, base_k)
    fix = block.m * block.n * gemm.output.itemsize / rates.store_bytes_per_cycle
    # One accumulator: M waits until it has left. Two: the slower of both pipes.
    each = compute + fix if block.copies == 1 else max(compute, fix)
    return _Candidate(rounds * each + fix, block, base_k, fix, rounds, used)


def _slice_cycles(gemm: DgradGemm, rates: Rates, block: BaseBlock, k: int) -> int:
    """Bound the cycles of one Mmad and the loads of its operands."""
    s, groups = gemm.sliding, k // gemm.sliding.c0
    load = rates.load_left(im2col_read(s, block.m, groups))
    taps = gemm.all_taps.rows * gemm.all_taps.cols
    load += rates.load_right(TapRows(taps, gemm.backwards, 0, groups, s.c0, block.n, s.itemsize))
    return max(load, rates.mmad(block.m, k, block.n))


def _with_chunks(
    gemm: DgradGemm, rates: Rates, candidate: _Candidate, *, in_row: bool
) -> tuple[float, Tiling] | None:
    """Return the bound and the tiling with the best L1 tiles for a base block, or None if L1 holds none."""
    s, (_, block, base_k, fix, rounds, used) = gemm.sliding, candidate
    whole, capacity = gemm.all_taps, rates.profile.buffers["L1"].capacity_bytes
    most = -(-whole.groups * s.c0 // base_k)
    steps = _useful_steps(whole, base_k, s.c0, most)
    chunks = [_chunk(gemm, rates, candidate, step, in_row=in_row) for step in steps]
    depth = max((len(pairs) for pairs in gemm.depths), default=1)
    head = rates.profile.paths["GM_L1"].head_cycles
    column_blocks = -(-gemm.columns // block.n)
    # Cycles for each byte of a tile in L1; with zeros inserted less is loaded, but the tile is cleared first.
    right_cycles = 1 / rates.load_bytes_per_cycle
    left_cycles = right_cycles / (s.insert[0] * s.insert[1])
    if s.insert != (1, 1):
        left_cycles += 1 / float(rates.profile.paths["GM_L1"].bytes_per_cycle)
    best: tuple[float, Tiling] | None = None
    for a, b, copies in product(chunks, chunks, (2, 1)):
        # One copy of the weights pays only where they are whole, and so need not come again.
        if (copies == 1 and b.step < most) or 2 * a.left + copies * b.right > capacity:
            continue
        # A whole left tile serves all column blocks; whole right tiles stay if every column block has a copy.
        left_again = 1 if a.step < most or depth > 1 else 1 / min(column_blocks, rounds)
        stays = b.step == most and depth == 1 and column_blocks <= copies
        right_again = min(1.0, column_blocks / rounds) if stays else 1.0
        mte2 = left_again * depth * a.tiles * (head + a.left * left_cycles)
        mte2 += right_again * depth * b.tiles * (head + b.right * right_cycles)
        # What two copies would hide: weights that come while M waits, a tile that leaves while M waits.
        stall = b.right * right_cycles if copies == 1 and not stays else 0.0
        exposed = fix if block.copies == 1 else 0.0
        # The shorter tile decides how long the runs of the reduction are that slices are cut from.
        compute = depth * min(a, b, key=lambda chunk: chunk.step).compute
        each = max(compute, mte2, fix) + exposed + stall
        start = a.left * left_cycles + b.right * right_cycles
        bound = start + rounds * (each + HIDDEN_SHARE * mte2) + fix
        if best is None or bound < best[0]:
            base = block.m, block.n, base_k, a.step, b.step
            best = bound, Tiling(*base, bl1_buffers=copies, cl0_buffers=block.copies, used_cores=used)
    return best


def _chunk(gemm: DgradGemm, rates: Rates, candidate: _Candidate, step: int, *, in_row: bool) -> _Chunk:
    """Return what L1 tiles of so many slices mean for a base block, at one kernel depth."""
    s, whole, block = gemm.sliding, gemm.all_taps, candidate.block
    box = first_box(whole, step * candidate.base_k, s.c0)
    left = s.tile_bytes(block.m, box, in_row=in_row)
    right = box.groups * s.c0 * round_up(block.n, rates.profile.cube.n0) * s.itemsize
    # (channel groups, kernel rows, kernel columns) of the whole in those of a box
    tiles = prod(-(-extent // part) for part, extent in zip(box[1::2], whole[1::2], strict=True))
    # The Mmads of a box are as equal as they can be.
    count = -(-box.groups // max(1, candidate.base_k // s.c0))
    compute = count * _slice_cycles(gemm, rates, block, -(-box.groups // count) * s.c0)
    return _Chunk(step, left, right, tiles, tiles * compute)


def _useful_steps(whole: Taps, base_k: int, c0: int, most: int) -> list[int]:
    """Return steps to try, longest first: the whole, halves of it by channel groups, parts of one group."""
    # A box is a run of whole channel groups, or of whole kernel rows of one group: steps in between would
    # leave a part of the tile empty.
    per_channel = whole.rows * whole.cols * c0
    channels, steps = whole.channels, {1}
    while channels >= 1:
        steps.add(-(-channels * per_channel // base_k))
        if channels == 1:
            break
        channels = -(-channels // 2)
    steps |= {max(1, per_channel // base_k // part) for part in (2, 4, 8)}
    return sorted({min(step, most) for step in steps}, reverse=True)
