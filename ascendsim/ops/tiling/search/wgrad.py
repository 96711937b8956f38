"""Rank the tilings of a filter product (grad_weight)."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ascendsim.instructions.cube import round_up
from ascendsim.ops.plan import Tiling
from ascendsim.ops.problems.products import WgradGemm
from ascendsim.ops.problems.sliding import first_box
from ascendsim.ops.tiling.search.costs import (
    BaseBlocks,
    Ints,
    Rates,
    SearchCosts,
    TapBox,
    blocks,
    even_slices,
    nothing_fits,
)
from ascendsim.profile import Profile

# Slices in a tile in L1 that are tried, where the whole image does not fit.
STEPS = (16, 12, 8, 6, 4, 3, 2, 1)
# So many tilings of the least bounds are returned.
SHORT_LIST = 6


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
