"""Rank the tilings of an image product (grad_input)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from ascendsim.instructions.cube import FRACTAL_ROWS, round_up
from ascendsim.ops.plan import Tiling
from ascendsim.ops.problems.products import DgradGemm
from ascendsim.ops.problems.sliding import Taps, first_box
from ascendsim.ops.schedules.dgrad.tasks import inserts_in_ub, most_rows
from ascendsim.ops.tiling.search.costs import (
    MOST_M,
    BaseBlock,
    BaseBlocks,
    Ints,
    Rates,
    SearchCosts,
    blocks,
    even_slices,
    nothing_fits,
)
from ascendsim.profile import Profile

# Loads that compute hides are not free: they meet those of other cores, and memory where L2 misses. This
# share of them decides between tilings that are otherwise equal; from 0.1 to 0.5 the choice hardly changes.
HIDDEN_SHARE = 0.2


class Candidate(NamedTuple):
    """A base block with the cycles of one task on FIX, and the share of the busiest core."""

    bound: float
    block: BaseBlock
    base_k: int
    fix: float
    rounds: int
    used: int


class FittingBlock(NamedTuple):
    """A base block with tiles in L1: slices in either, copies of the right one; and a bound on its cycles."""

    bound: float
    candidate: Candidate
    step_ka: int
    step_kb: int
    copies: int

    def tiling(self) -> Tiling:
        """Return it as a tiling."""
        _, block, base_k, _, _, used = self.candidate
        base = block.m, block.n, base_k, self.step_ka, self.step_kb
        return Tiling(*base, bl1_buffers=self.copies, cl0_buffers=block.copies, used_cores=used)


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
    compute: int


def best_tiles(
    gemm: DgradGemm, costs: SearchCosts, candidate: Candidate, *, in_row: bool
) -> FittingBlock | None:
    """Return the best L1 tiles for a base block, or None if L1 holds none."""
    s, profile, (_, block, _, fix, rounds, _) = gemm.sliding, costs.rates.profile, candidate
    chunks = _chunks(gemm, costs, candidate, in_row=in_row)
    most, depth = chunks[0].step, max((len(pairs) for pairs in gemm.depths), default=1)
    path, capacity = profile.paths["GM_L1"], profile.buffers["L1"].capacity_bytes
    head = path.head_cycles + min(path.latency_cycles, path.in_turn_cycles)
    column_blocks = -(-gemm.columns // block.n)
    # Cycles for each byte of a tile in L1; with zeros inserted less is loaded, but the tile is cleared first.
    right_cycles = 1 / costs.rates.load_bytes_per_cycle
    left_cycles = right_cycles / (s.insert[0] * s.insert[1])
    if s.insert != (1, 1):
        left_cycles += 1 / float(profile.paths["GM_L1"].bytes_per_cycle)
    # What two copies would hide: a tile that leaves while M waits.
    exposed = fix if block.copies == 1 else 0.0
    rights = list(_rights(chunks, depth, column_blocks, rounds, (head, right_cycles)))
    best: FittingBlock | None = None
    for a in chunks:
        # A whole left tile serves all column blocks.
        left_again = 1 if a.step < most or depth > 1 else 1 / min(column_blocks, rounds)
        left_mte2 = left_again * depth * a.tiles * (head + a.left * left_cycles)
        left_start, room = a.left * left_cycles, capacity - 2 * a.left
        for b, copies, right_mte2, stall in rights:
            if copies * b.right > room:
                continue
            mte2 = left_mte2 + right_mte2
            # The shorter tile decides how long the runs of the reduction are that slices are cut from.
            compute = depth * (a if a.step <= b.step else b).compute
            each = max(compute, mte2, fix) + exposed + stall
            bound = left_start + b.right * right_cycles + rounds * (each + HIDDEN_SHARE * mte2) + fix
            if best is None or bound < best.bound:
                best = FittingBlock(bound, candidate, a.step, b.step, copies)
    return best


def _rights(
    chunks: list[_Chunk], depth: int, column_blocks: int, rounds: int, cycles: tuple[int, float]
) -> Iterator[tuple[_Chunk, int, float, float]]:
    """Yield the right tiles in L1 and their copies, what they hold MTE2 for, and how long M waits for them.

    `cycles` are those of one copy, and of each of its bytes.
    """
    head, per_byte = cycles
    for b in chunks:
        # One copy of the weights pays only where they are whole, and so need not come again.
        for copies in (2, 1) if b.step == chunks[0].step else (2,):
            # Whole right tiles stay if every column block has a copy.
            stays = b.step == chunks[0].step and depth == 1 and column_blocks <= copies
            again = min(1.0, column_blocks / rounds) if stays else 1.0
            mte2 = again * depth * b.tiles * (head + b.right * per_byte)
            # What two copies would hide: weights that come while M waits.
            yield b, copies, mte2, b.right * per_byte if copies == 1 and not stays else 0.0


def _chunks(gemm: DgradGemm, costs: SearchCosts, candidate: Candidate, *, in_row: bool) -> list[_Chunk]:
    """Return the L1 tiles of useful lengths for a base block at one kernel depth, longest first."""
    s, whole, block, base_k = gemm.sliding, gemm.all_taps, candidate.block, candidate.base_k
    steps = _useful_steps(whole, base_k, s.c0, -(-whole.groups * s.c0 // base_k))
    boxes = [first_box(whole, step * base_k, s.c0) for step in steps]
    column_bytes = s.c0 * round_up(block.n, costs.rates.profile.cube.n0) * s.itemsize
    # The Mmads of a box are as equal as they can be.
    counts = [-(-box.groups // (base_k // s.c0)) for box in boxes]
    k = np.array([-(-box.groups // count) * s.c0 for box, count in zip(boxes, counts, strict=True)])
    cycles = slice_cycles(gemm, costs, (block.m, k, block.n)).tolist()
    found = []
    for step, box, count, each in zip(steps, boxes, counts, cycles, strict=True):
        # (channel groups, kernel rows, kernel columns) of the whole in those of a box
        tiles = prod(-(-extent // part) for part, extent in zip(box[1::2], whole[1::2], strict=True))
        left = s.tile_bytes(block.m, box, in_row=in_row)
        found.append(_Chunk(step, left, box.groups * column_bytes, tiles, tiles * (count * each)))
    return found


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


def slice_cycles(gemm: DgradGemm, costs: SearchCosts, sizes: tuple[Ints, Ints, Ints]) -> Ints:
    """Bound the cycles of one Mmad and the loads of its operands."""
    (m, k, n), c0 = sizes, gemm.sliding.c0
    weights = costs.load_weights(k, n, backwards=gemm.backwards, taps=gemm.taps)
    return np.maximum(costs.load_image(m, k // c0) + weights, costs.mmad(m, k, n))


# How many of the best base blocks get their L1 tiles compared; the rest only matter if none of these fits.
SHORT_LIST = 6


def dgrad_tilings(gemm: DgradGemm, profile: Profile) -> list[Tiling]:
    """Return the best tilings of an image product, one of a base block, that of the least bound first.

    Raises   CapacityError if nothing fits
    """
    rates = Rates(profile, gemm.compute_dtype, profile.cores.cube)
    costs = SearchCosts(rates, gemm.sliding, "L0A")
    # Tiles inside a row are tried only if no range of whole rows fits, and a shorter reduction in one Mmad
    # than L0 could hold only where those do not fit either.
    for shorten, in_row in product((False, True), (False, True)):
        found = _best(gemm, costs, shorten=shorten, in_row=in_row)
        if found:
            return found
    raise nothing_fits(gemm.sliding, profile, least_k(gemm, profile))


def least_k(gemm: DgradGemm, profile: Profile) -> int:
    """Return the unit of the reduction: a group of channels, and whole fractals."""
    return max(gemm.sliding.c0, profile.cube.rates[gemm.compute_dtype].k0)


def _best(gemm: DgradGemm, costs: SearchCosts, *, shorten: bool, in_row: bool) -> list[Tiling]:
    """Return the best tilings with tiles of whole rows or inside a row; nothing if none fits."""
    s = gemm.sliding
    pixels = s.out_size[1] if in_row else s.pixels
    profile = costs.rates.profile
    unit = least_k(gemm, profile)
    units = FRACTAL_ROWS, s.c0, unit
    # Where results leave through UB they share it with the pixels of a strided gradient.
    most_m = most_rows(gemm, profile) if inserts_in_ub(gemm, profile) else MOST_M
    found = blocks(profile, s.itemsize, (pixels, gemm.columns), units, most_m)
    fit: list[FittingBlock] = []
    for number, candidate in enumerate(_ranked(gemm, costs, found, in_row=in_row)):
        if fit and number >= SHORT_LIST:
            break
        fitting = best_tiles(gemm, costs, candidate, in_row=in_row)
        while fitting is None and shorten and candidate.base_k > unit:
            shorter = BaseBlocks(*(np.array([size]) for size in candidate.block))
            shorter.k[:] = round_up(candidate.base_k // 2, unit)
            [candidate] = _ranked(gemm, costs, shorter, in_row=in_row)
            fitting = best_tiles(gemm, costs, candidate, in_row=in_row)
        if fitting is not None:
            fit.append(fitting)
    # Of equal bounds the first stays first; blocks whose k was shortened may be the same tiling.
    return list(dict.fromkeys(each.tiling() for each in sorted(fit, key=attrgetter("bound"))))


def _ranked(gemm: DgradGemm, costs: SearchCosts, found: BaseBlocks, *, in_row: bool) -> Iterator[Candidate]:
    """Yield base blocks, that of the least cycles first, as if loads from GM were free."""
    s, rates = gemm.sliding, costs.rates
    unit = least_k(gemm, rates.profile)
    reduction = round_up(gemm.all_taps.groups * s.c0, unit)
    base_k = even_slices(reduction, np.minimum(found.k, reduction), unit)
    # A depth that nothing reaches is filled with zeros, not computed; the others meet unequally many depths.
    depths = [len(pairs) for pairs in gemm.depths if pairs]
    tiles = -(-s.out_size[1] // found.m) * s.out_size[0] if in_row else -(-s.pixels // found.m)
    tasks = gemm.groups * gemm.batch * max(1, len(depths)) * tiles * -(-gemm.columns // found.n)
    used = np.minimum(tasks, rates.cores)
    # The busiest core counts: with one task more than cores everything takes twice as long.
    rounds = -(-tasks // used)
    count = sum(depths) / max(1, len(depths)) * -(-reduction // base_k)
    compute = count * slice_cycles(gemm, costs, (found.m, base_k, found.n))
    fix = found.m * found.n * gemm.output.itemsize / rates.store_bytes_per_cycle
    # One accumulator: M waits until it has left. Two: the slower of both pipes.
    each = np.where(found.copies == 1, compute + fix, np.maximum(compute, fix))
    bound = rounds * each + fix
    columns = bound, *found, base_k, fix, rounds, used
    # Of equal ones the first is tried first.
    for place in np.argsort(bound, kind="stable"):
        least, m, n, copies, k, *rest = (column[place].item() for column in columns)
        yield Candidate(least, BaseBlock(m, n, copies, k), *rest)
