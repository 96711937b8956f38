"""The choice of a plan, made once for each gradient of a call; everything else reads it from there.

The search ranks the tilings of grad_input and of grad_weight by what their schedules cost.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import product
from math import prod
from operator import attrgetter
from typing import NamedTuple
from weakref import ref

import numpy as np

from ascendsim.errors import UnsupportedError, refusal
from ascendsim.instructions.cube import FRACTAL_ROWS, round_up
from ascendsim.ops.plan import Plan, Tiling
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.products import DgradGemm, MatmulGemm, WgradGemm
from ascendsim.ops.problems.sliding import Taps, first_box
from ascendsim.ops.schedules.dgrad.nest import Dgrad
from ascendsim.ops.schedules.dgrad.tasks import inserts_in_ub, most_rows
from ascendsim.ops.schedules.wgrad.nest import Wgrad
from ascendsim.ops.tiling.request import PlanRequest
from ascendsim.ops.tiling.search_costs import (
    MOST_M,
    BaseBlock,
    BaseBlocks,
    Ints,
    Rates,
    SearchCosts,
    TapBox,
    blocks,
    even_slices,
    matmul_tiling,
    nothing_fits,
)
from ascendsim.ops.tiling.timed import fastest_of_few
from ascendsim.ops.tiling.vendor.matmul import operator_tiling
from ascendsim.ops.tiling.vendor.operators import first_plan, matmul_plan, product_plan
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
    counts = [-(-box.groups // max(1, base_k // s.c0)) for box in boxes]
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
    raise nothing_fits(gemm.sliding, profile, gemm.sliding.c0)


def _best(gemm: DgradGemm, costs: SearchCosts, *, shorten: bool, in_row: bool) -> list[Tiling]:
    """Return the best tilings with tiles of whole rows or inside a row; nothing if none fits."""
    s = gemm.sliding
    pixels = s.out_size[1] if in_row else s.pixels
    profile, units = costs.rates.profile, (FRACTAL_ROWS, s.c0, s.c0)
    # Where results leave through UB they share it with the pixels of a strided gradient.
    most_m = most_rows(gemm, profile) if inserts_in_ub(gemm, profile) else MOST_M
    found = blocks(profile, s.itemsize, (pixels, gemm.columns), units, most_m)
    fit: list[FittingBlock] = []
    for number, candidate in enumerate(_ranked(gemm, costs, found, in_row=in_row)):
        if fit and number >= SHORT_LIST:
            break
        fitting = best_tiles(gemm, costs, candidate, in_row=in_row)
        while fitting is None and shorten and candidate.base_k > s.c0:
            shorter = BaseBlocks(*(np.array([size]) for size in candidate.block))
            shorter.k[:] = round_up(candidate.base_k // 2, s.c0)
            [candidate] = _ranked(gemm, costs, shorter, in_row=in_row)
            fitting = best_tiles(gemm, costs, candidate, in_row=in_row)
        if fitting is not None:
            fit.append(fitting)
    # Of equal bounds the first stays first; blocks whose k was shortened may be the same tiling.
    return list(dict.fromkeys(each.tiling() for each in sorted(fit, key=attrgetter("bound"))))


def _ranked(gemm: DgradGemm, costs: SearchCosts, found: BaseBlocks, *, in_row: bool) -> Iterator[Candidate]:
    """Yield base blocks, that of the least cycles first, as if loads from GM were free."""
    s, rates = gemm.sliding, costs.rates
    reduction = gemm.all_taps.groups * s.c0
    base_k = even_slices(reduction, np.minimum(found.k, reduction), s.c0)
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


# Slices in a tile in L1 that are tried, where the whole image does not fit.
STEPS = (16, 12, 8, 6, 4, 3, 2, 1)


def wgrad_tilings(gemm: WgradGemm, profile: Profile) -> list[Tiling]:
    """Return the best tilings of a filter product, that of the least bound first.

    Raises   CapacityError if nothing fits
    """
    s = gemm.sliding
    costs = SearchCosts(Rates(profile, gemm.compute_dtype, profile.cores.cube), s, "L0B")
    # Pixels are the reduction: whole fractals of 16 rows for load3d, whole k0 for Mmad.
    k0 = max(16, profile.cube.rates[gemm.compute_dtype].k0)
    sizes, units = (gemm.rows, gemm.all_taps.groups * s.c0), (s.c0, s.c0, k0)
    fitting = _fitting(gemm, costs, blocks(profile, s.itemsize, sizes, units), k0)
    if not len(fitting.step):
        return [_smallest(gemm, profile, k0)]
    splits, bounds = _bounds(gemm, costs, fitting)
    # Of equal ones the first: blocks in order, of each block the fewest parts.
    ways = bounds.shape[1]
    # All ways of splitting a block may come to the same number of parts.
    least = np.argsort(bounds, axis=None, kind="stable")[: ways * SHORT_LIST]
    made = (_tiling(costs, fitting, splits, *divmod(int(at), ways)) for at in least)
    return list(dict.fromkeys(made))[:SHORT_LIST]


def _tiling(costs: SearchCosts, fitting: _FittingBlocks, splits: Ints, place: int, way: int) -> Tiling:
    """Return the tiling of a base block under one of its splits."""
    m, n, copies, _ = (column[place].item() for column in fitting.blocks)
    base_k, step, outputs = (column[place].item() for column in fitting[1:4])
    split = splits[place, way].item()
    base = m, n, base_k, step, step
    return Tiling(
        *base, cl0_buffers=copies, k_split=split, used_cores=min(outputs * split, costs.rates.cores)
    )


class _FittingBlocks(NamedTuple):
    """Base blocks whose operands fit in L1; one entry of each array a block.

    step     slices in a pair of L1 tiles
    outputs  base blocks in the whole output
    box      the taps that an image tile serves
    """

    blocks: BaseBlocks
    base_k: Ints
    step: Ints
    outputs: Ints
    box: TapBox


def _fitting(gemm: WgradGemm, costs: SearchCosts, found: BaseBlocks, k0: int) -> _FittingBlocks:
    """Return the base blocks that fit, each with as long tiles in L1 as do."""
    s, whole, profile = gemm.sliding, gemm.all_taps, costs.rates.profile
    taps = whole.rows * whole.cols
    groups = found.n // s.c0
    # The columns of a block are a run of (channel group, tap). A run that begins inside a group touches one
    # group more than its length says, unless runs and groups fit into each other.
    more = (groups % taps != 0) & (taps % groups != 0)
    channels = np.minimum(whole.channels, -(-groups // taps) + more)
    base_k = even_slices(s.pixels, np.minimum(found.k, round_up(s.pixels, k0)), k0)
    # The whole image at best: its pixels are then fetched in one copy. Longer tiles would be empty in part.
    longest = -(-s.pixels // base_k)
    steps = np.concatenate((longest[:, None], np.minimum(STEPS, longest[:, None])), axis=1)
    pixels = steps * base_k[:, None]
    rows: Ints = found.m[:, None]
    left = round_up(rows, profile.cube.m0) * s.itemsize * pixels
    right = costs.tile_bytes(pixels, TapBox(channels[:, None], whole.rows, whole.cols))
    # Both tiles twice, for ping-pong.
    fits = 2 * (left + right) <= profile.buffers["L1"].capacity_bytes
    kept = fits.any(axis=1)
    step = steps[kept, fits[kept].argmax(axis=1)]
    outputs = gemm.groups * len(gemm.depths) * -(-gemm.rows // found.m) * -(-whole.groups // groups)
    box = TapBox(channels[kept], whole.rows, whole.cols)
    return _FittingBlocks(BaseBlocks(*(c[kept] for c in found)), base_k[kept], step, outputs[kept], box)


def _bounds(gemm: WgradGemm, costs: SearchCosts, fitting: _FittingBlocks) -> tuple[Ints, Ints]:
    """Return the useful splits of each base block's reduction, and the bounds on their cycles."""
    s, rates, ((m, n, copies, _), base_k, step, outputs, box) = gemm.sliding, costs.rates, fitting
    pixels, k, groups = np.minimum(step * base_k, s.pixels), np.minimum(base_k, s.pixels), n // s.c0
    images = gemm.batch * sum(len(pairs) for pairs in gemm.depths) / len(gemm.depths)
    segments = images * -(-s.pixels // pixels)
    per_slice = costs.load_turned(k, m // s.c0) + costs.load_image(k, groups)
    slices_each = pixels / base_k
    # Neither operand is met again within a task, so every segment loads both.
    loads = pixels * m * s.itemsize + costs.tile_bytes(pixels, box)
    mte2 = loads / rates.load_bytes_per_cycle
    each = np.maximum(np.maximum(slices_each * per_slice, slices_each * costs.mmad(m, k, n)), mte2)
    fix = m * n * 4 / rates.store_bytes_per_cycle
    # With two copies in L0C a tile leaves while the next one is added up. Half of its time is charged all the
    # same: a short reduction does not hide all of it.
    exposed = np.where(copies == 1, fix, fix / 2)
    splits = _useful_splits(outputs, rates.cores, np.maximum(1, segments.astype(np.int64)))
    each, exposed, mte2, fix, outputs, segments = (
        column[:, None] for column in (each, exposed, mte2, fix, outputs, segments)
    )
    tasks = outputs * splits
    used = np.minimum(tasks, rates.cores)
    # The busiest core decides, then the first loads and the last tile, which nothing hides.
    bound = -(-tasks // used) * (-(-segments // splits) * each + exposed) + mte2 + fix
    # Zeros must be written, and all cores meet, before the first part can be added.
    meeting = rates.profile.sync.barrier_cycles + outputs * fix / used
    return splits, np.where(splits > 1, bound + meeting, bound)


def _useful_splits(outputs: Ints, cores: int, segments: Ints) -> Ints:
    """Return the numbers of parts to try: one, and those that fill whole rounds of all cores."""
    # One round leaves the fewest parts to add; two or three may cut the rest of a round.
    filling = cores * np.arange(4) // outputs[:, None]
    return np.minimum(np.maximum(filling, 1), segments[:, None])


def _smallest(gemm: WgradGemm, profile: Profile, k0: int) -> Tiling:
    """Return a tiling for images so wide, or kernels so large, that only a part of a row fits in L1."""
    s = gemm.sliding
    # Longest reductions first: they give the fewest Mmads, and the fewest loads for each of them.
    for base_k in (8 * k0, 4 * k0, 2 * k0, k0):
        for groups in (8, 4, 2, 1):
            for rows in (128, 64, 32, 16, s.c0):
                tiling = Tiling(min(rows, gemm.rows), groups * s.c0, base_k)
                if _fits_in_row(gemm, profile, tiling):
                    return _spread(gemm, profile, tiling)
    raise nothing_fits(s, profile, k0)


def _fits_in_row(gemm: WgradGemm, profile: Profile, tiling: Tiling) -> bool:
    """Return whether a tiling whose L1 tiles hold one slice, inside a row, fits in every buffer."""
    s, capacity = gemm.sliding, profile.buffers
    m, n = round_up(tiling.base_m, profile.cube.m0), round_up(tiling.base_n, profile.cube.n0)
    image = s.tile_bytes(tiling.base_k, first_box(gemm.all_taps, tiling.base_n, s.c0), in_row=True)
    needs = {
        "L1": 2 * (m * tiling.base_k * s.itemsize + image),
        "L0A": 2 * m * tiling.base_k * s.itemsize,
        "L0B": 2 * n * tiling.base_k * s.itemsize,
        "L0C": m * n * 4,
    }
    return all(need <= capacity[name].capacity_bytes for name, need in needs.items())


def _spread(gemm: WgradGemm, profile: Profile, tiling: Tiling) -> Tiling:
    """Split the reduction of small base blocks so that all cores have work."""
    # Rough, as nothing is ranked here: these shapes are rare, and any tiling will do.
    blocks_n = -(-gemm.all_taps.groups * gemm.sliding.c0 // tiling.base_n)
    outputs = gemm.groups * len(gemm.depths) * -(-gemm.rows // tiling.base_m) * blocks_n
    segments = gemm.batch * -(-gemm.sliding.pixels // tiling.base_k)
    split = max(1, min(segments, profile.cores.cube // outputs))
    return replace(tiling, k_split=split, used_cores=min(profile.cores.cube, outputs * split))


# What a user may ask for, and what a call asks for besides.
STRATEGIES = ("product", "search", "tuned")
INNER = ("shares", "interface")


def choose(request: PlanRequest, strategy: str = "product") -> Plan:
    """Return the plan of one gradient, or of a matrix product.

    "product"    as the product's operators choose, where their rules are known, else the search
    "search"     this simulator's own search
    "tuned"      as the tuned entries of the first generation were found; other generations have none
    "shares"     the operators' nests of shares, also where a call does not follow them by default
    "interface"  of a matrix product by which the product's interface makes a gradient: its own kernel's

    Raises     CapacityError if no tile fits into the buffers; UnsupportedError of "shares" where the rules
               refuse the layer, and of "tuned" for other generations
    """
    if not isinstance(strategy, str) or strategy not in STRATEGIES + INNER:
        raise refusal("choose: strategy", strategy, f"one of {', '.join(STRATEGIES)}")
    return _remembered(_PlanKey(request.told, strategy, ref(request)))


@dataclass(frozen=True)
class _PlanKey:
    """A key of a request, equal for equal choices; it keeps neither the request nor its profile alive."""

    told: Hashable
    strategy: str
    request: ref[PlanRequest] = field(compare=False)


# A choice depends on nothing but its request. So many are a network of a hundred layers on some products.
@lru_cache(maxsize=2048)
def _remembered(asked: _PlanKey) -> Plan:
    """Return the plan; who asks again for a problem is not kept waiting."""
    request, strategy, why = asked.request(), asked.strategy, ""
    # It is the caller's, who still holds it.
    assert request is not None
    if strategy == "shares":
        return _by_shares(request)
    if strategy == "interface":
        return _by_interface(request)
    if strategy == "tuned":
        return _tuned(request)
    if strategy == "product":
        plan, why = (
            product_plan(request) if isinstance(request.problem, ConvProblem) else matmul_plan(request)
        )
        if plan is not None:
            return replace(plan, chosen_by=plan.chosen_by or "product")

    return replace(search_plan(request), chosen_by="search", instead=why)


def _by_shares(request: PlanRequest) -> Plan:
    if not isinstance(request.problem, ConvProblem):
        raise UnsupportedError("matrix products have no nest that deals shares; leave schedule out")
    # Imported here: the host code of operators that most calls do not use.
    from ascendsim.ops.tiling.vendor.operators import product_tiling

    return replace(product_tiling(request, by_winograd=False), chosen_by="product")


def _tuned(request: PlanRequest) -> Plan:
    found = first_plan(request, tuned=True) if isinstance(request.problem, ConvProblem) else None
    if found is None:
        raise UnsupportedError(
            f"tuned plan of {request.gradient} on {request.profile.variant}: only convolutions of one group "
            "on 910 and 310P have tuned plans, and not the grad_input of transposed ones; take product or "
            "search"
        )
    return found


def _by_interface(request: PlanRequest) -> Plan:
    # Imported here: most calls have no matrix product.
    from ascendsim.ops.tiling.vendor.matmul import vendor_tiling

    tiling, rule = vendor_tiling(request.gemm, request.profile, None, planned=True)
    return Plan("matmul", tiling, chosen_by="product", rule=rule)


def search_plan(request: PlanRequest) -> Plan:
    """Search the plan of one gradient, or of a matrix product.

    Costs of instructions rank the candidates; the best few are timed.

    Raises   CapacityError if no tile fits into the buffers
    """
    gemm, profile = request.gemm, request.profile
    if isinstance(gemm, MatmulGemm):
        # The operator's own plan is one more candidate: it beats what the search finds on many shapes.
        planned, _ = operator_tiling(gemm, profile)
        return Plan("matmul", matmul_tiling(gemm, profile, others=[planned] if planned else []))
    if request.gradient == "grad_input":
        tiling = fastest_of_few(Dgrad, gemm, profile, dgrad_tilings(gemm, profile))
        return Plan("dgrad", replace(tiling, group_merge=request.merge))
    tiling = fastest_of_few(Wgrad, gemm, profile, wgrad_tilings(gemm, profile))
    return Plan("wgrad", replace(tiling, group_merge=request.merge))
