"""Choose the plan of an image product (grad_input)."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import NamedTuple

from ascendsim.cube.views import TapRows, round_up
from ascendsim.errors import CapacityError
from ascendsim.ops.plan import Tiling
from ascendsim.ops.problems.dgrad import DgradGemm
from ascendsim.ops.problems.taps import Taps, first_box
from ascendsim.ops.tiling.search.rates import BaseBlock, Rates, blocks, im2col_read, nothing_fits, slices
from ascendsim.profile import Profile

# How many of the best base blocks get their L1 tiles compared; the rest only matter if none of these fits.
SHORT_LIST = 6

# Loads that compute hides are not free: they meet those of other cores, and memory where L2 misses. This
# share of them decides between plans that are otherwise equal; from 0.1 to 0.5 the plans hardly change.
HIDDEN_SHARE = 0.2


class _Candidate(NamedTuple):
    """A base block with the cycles of one task on each pipe, and the share of the busiest core."""

    bound: float
    block: BaseBlock
    base_k: int
    compute: float
    fix: float
    rounds: int
    used: int


def dgrad_tiling(spec: DgradGemm, profile: Profile) -> Tiling:
    """Choose the plan of an image product.

    Raises   CapacityError if nothing fits
    """
    rates = Rates(profile, spec.compute_dtype, profile.cores.cube)
    # Row pieces are tried only if no range of whole rows fits, and a shorter reduction in one Mmad than L0
    # could hold only where those do not fit either.
    for shorten, in_row in product((False, True), (False, True)):
        found = _best(spec, rates, shorten=shorten, in_row=in_row)
        if found is not None:
            return found
    raise CapacityError(nothing_fits(spec.sliding, profile))


def _best(spec: DgradGemm, rates: Rates, *, shorten: bool, in_row: bool) -> Tiling | None:
    """Return the best plan with tiles of whole rows or of row pieces, or None if nothing fits."""
    s = spec.sliding
    pixels = s.out_size[1] if in_row else s.pixels
    found = blocks(rates.profile, s.itemsize, (pixels, spec.columns), (16, s.c0, s.c0))
    ranked = sorted((_rank(spec, rates, block, in_row=in_row) for block in found), key=lambda c: c.bound)
    best: tuple[float, Tiling] | None = None
    for number, candidate in enumerate(ranked):
        if best is not None and (number >= SHORT_LIST or candidate.bound >= best[0]):
            break
        plan = _with_chunks(spec, rates, candidate, in_row=in_row)
        while plan is None and shorten and candidate.base_k > s.c0:
            block = candidate.block._replace(k=round_up(candidate.base_k // 2, s.c0))
            candidate = _rank(spec, rates, block, in_row=in_row)
            plan = _with_chunks(spec, rates, candidate, in_row=in_row)
        if plan is not None and (best is None or plan[0] < best[0]):
            best = plan
    return best[1] if best else None


def _rank(spec: DgradGemm, rates: Rates, block: BaseBlock, *, in_row: bool) -> _Candidate:
    """Bound the cycles of a base block as if loads from GM were free."""
    s = spec.sliding
    reduction = spec.all_taps.groups * s.c0
    base_k = slices(reduction, min(block.k, reduction), s.c0)
    depths = [len(pairs) for pairs in spec.depths if pairs]
    tiles = len(s.pixel_tiles(block.m, in_row=in_row))
    tasks = spec.groups * spec.batch * max(1, len(depths)) * tiles * -(-spec.columns // block.n)
    used = min(tasks, rates.cores)
    rounds = -(-tasks // used)
    count = sum(depths) / max(1, len(depths)) * -(-reduction // base_k)
    compute = count * _slice_cycles(spec, rates, block, base_k)
    fix = block.m * block.n * spec.output.itemsize / rates.store_bytes_per_cycle
    each = compute + fix if block.copies == 1 else max(compute, fix)
    return _Candidate(rounds * each + fix, block, base_k, compute, fix, rounds, used)


def _slice_cycles(spec: DgradGemm, rates: Rates, block: BaseBlock, k: int) -> int:
    """Bound the cycles of one Mmad and the loads of its operands."""
    s, groups = spec.sliding, k // spec.sliding.c0
    load = rates.load_left(im2col_read(s, block.m, groups))
    load += rates.load_right(TapRows(spec.taps, spec.backwards, 0, groups, s.c0, block.n, s.itemsize))
    return max(load, rates.mmad(block.m, k, block.n))


def _with_chunks(
    spec: DgradGemm, rates: Rates, candidate: _Candidate, *, in_row: bool
) -> tuple[float, Tiling] | None:
    """Return the bound and the plan with the best L1 tiles for a base block, or None if L1 holds none."""
    s, block, base_k = spec.sliding, candidate.block, candidate.base_k
    whole, capacity = spec.all_taps, rates.profile.buffers["L1"].capacity_bytes
    columns = round_up(block.n, rates.profile.cube.n0)
    most = -(-whole.groups * s.c0 // base_k)
    boxes = {step: first_box(whole, step * base_k, s.c0) for step in _useful_steps(whole, base_k, s.c0, most)}
    left = {step: s.tile_bytes(block.m, box, in_row=in_row) for step, box in boxes.items()}
    right = {step: box.groups * s.c0 * columns * s.itemsize for step, box in boxes.items()}
    depth = max((len(pairs) for pairs in spec.depths), default=1)
    tiles = {step: _tiles(box, whole) for step, box in boxes.items()}
    head = rates.profile.paths["GM_L1"].head_cycles
    compute = {
        step: depth * tiles[step] * _boxed_cycles(spec, rates, block, base_k, box)
        for step, box in boxes.items()
    }
    column_blocks = -(-spec.columns // block.n)
    # Cycles for each byte of a tile in L1; with zeros inserted less is loaded, but the tile is cleared first.
    right_cycles = 1 / rates.load_bytes_per_cycle
    left_cycles = right_cycles / (s.insert[0] * s.insert[1])
    if s.insert != (1, 1):
        left_cycles += 1 / float(rates.profile.paths["GM_L1"].bytes_per_cycle)
    best: tuple[float, Tiling] | None = None
    for step_a, step_b, copies in product(boxes, boxes, (2, 1)):
        if (copies == 1 and step_b < most) or 2 * left[step_a] + copies * right[step_b] > capacity:
            continue
        # A whole left tile serves all column blocks; whole right tiles stay if every column block has a copy.
        left_again = 1 if step_a < most or depth > 1 else 1 / min(column_blocks, candidate.rounds)
        stays = step_b == most and depth == 1 and column_blocks <= copies
        right_again = min(1.0, column_blocks / candidate.rounds) if stays else 1.0
        mte2 = left_again * depth * tiles[step_a] * (head + left[step_a] * left_cycles)
        mte2 += right_again * depth * tiles[step_b] * (head + right[step_b] * right_cycles)
        stall = right[step_b] * right_cycles if copies == 1 and not stays else 0.0
        start = left[step_a] * left_cycles + right[step_b] * right_cycles
        exposed = candidate.fix if block.copies == 1 else 0.0
        each = max(compute[min(step_a, step_b)], mte2, candidate.fix) + exposed + stall
        bound = start + candidate.rounds * (each + HIDDEN_SHARE * mte2) + candidate.fix
        if best is None or bound < best[0]:
            plan = Tiling(
                block.m,
                block.n,
                base_k,
                step_a,
                step_b,
                bl1_buffers=copies,
                cl0_buffers=block.copies,
                used_cores=candidate.used,
            )
            best = bound, plan
    return best


def _boxed_cycles(spec: DgradGemm, rates: Rates, block: BaseBlock, base_k: int, box: Taps) -> float:
    """Bound the cycles of the Mmads of one box, which are as equal as they can be."""
    c0 = spec.sliding.c0
    count = -(-box.groups // max(1, base_k // c0))
    return count * _slice_cycles(spec, rates, block, -(-box.groups // count) * c0)


def _tiles(box: Taps, whole: Taps) -> int:
    """Return how many tiles like `box` the reduction takes at one kernel depth."""
    parts = zip(box[1::2], whole[1::2], strict=True)
    return prod(-(-extent // part) for part, extent in parts)


def _useful_steps(whole: Taps, base_k: int, c0: int, most: int) -> list[int]:
    """Return steps to try, longest first: the whole, halves of it by channel groups, parts of one group."""
    per_channel = whole.rows * whole.cols * c0
    channels, steps = whole.channels, {1}
    while channels >= 1:
        steps.add(-(-channels * per_channel // base_k))
        if channels == 1:
            break
        channels = -(-channels // 2)
    steps |= {max(1, per_channel // base_k // part) for part in (2, 4, 8)}
    return sorted((min(step, most) for step in steps), reverse=True)
