"""Choose the tiling of a filter product (grad_weight)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from operator import itemgetter

from ascendsim.cube.tile_reads import Transposed, round_up
from ascendsim.errors import CapacityError
from ascendsim.ops.plan import Tiling
from ascendsim.ops.problems.taps import Taps, first_box
from ascendsim.ops.problems.wgrad import WgradGemm
from ascendsim.ops.tiling.search.rates import BaseBlock, Rates, blocks, even_slice, im2col_read, nothing_fits
from ascendsim.profile import Profile


def wgrad_tiling(gemm: WgradGemm, profile: Profile) -> Tiling:
    """Choose the tiling of a filter product.

    Raises   CapacityError if nothing fits
    """
    s = gemm.sliding
    rates = Rates(profile, gemm.compute_dtype, profile.cores.cube)
    # Pixels are the reduction: whole fractals of 16 rows for load3d, whole k0 for Mmad.
    k0 = max(16, profile.cube.rates[gemm.compute_dtype].k0)
    sizes, units = (gemm.rows, gemm.all_taps.groups * s.c0), (s.c0, s.c0, k0)
    found = (
        candidate
        for block in blocks(profile, s.itemsize, sizes, units)
        for candidate in _candidates(gemm, rates, block, k0)
    )
    best = min(found, key=itemgetter(0), default=None)
    return best[1] if best else _smallest(gemm, profile, k0)


def _candidates(gemm: WgradGemm, rates: Rates, block: BaseBlock, k0: int) -> Iterator[tuple[float, Tiling]]:
    """Yield the bound and the tiling of one base block for each useful split of the reduction."""
    s, profile = gemm.sliding, rates.profile
    taps = s.kernel[0] * s.kernel[1]
    groups = block.n // s.c0
    # The columns of a block are a run of (channel group, tap). A run that begins inside a group touches one
    # group more than its length says, unless runs and groups fit into each other.
    channels = min(gemm.big.shape[3], -(-groups // taps) + (groups % taps != 0 and taps % groups != 0))
    box = gemm.all_taps._replace(channels=channels)
    base_k = even_slice(s.pixels, min(block.k, round_up(s.pixels, k0)), k0)
    step = _slices_in_l1(gemm, profile, block, base_k, box)
    if step is None:
        return
    pixels, k = min(step * base_k, s.pixels), min(base_k, s.pixels)
    images = gemm.batch * sum(len(pairs) for pairs in gemm.depths) / len(gemm.depths)
    segments = images * -(-s.pixels // pixels)
    outputs = gemm.groups * len(gemm.depths)
    outputs *= -(-gemm.rows // block.m) * -(-gemm.all_taps.groups // groups)
    per_slice = rates.load_left(Transposed(block.m // s.c0, pixels, 0, k, s.c0, s.itemsize))
    per_slice += rates.load_right(im2col_read(s, k, groups))
    slices_each = pixels / base_k
    mte1, cube = slices_each * per_slice, slices_each * rates.mmad(block.m, k, block.n)
    # Neither operand is met again within a task, so every segment loads both.
    loads = pixels * block.m * s.itemsize + s.tile_bytes(pixels, box, in_row=False)
    mte2 = loads / rates.load_bytes_per_cycle
    each = max(mte1, cube, mte2)
    fix = block.m * block.n * 4 / rates.store_bytes_per_cycle
    # With two copies in L0C a tile leaves while the next one is added up. Half of its time is charged all the
    # same: a short reduction does not hide all of it.
    exposed = fix if block.copies == 1 else fix / 2
    for split in _useful_splits(outputs, rates.cores, max(1, int(segments))):
        tasks = outputs * split
        used = min(tasks, rates.cores)
        # The busiest core decides, then the first loads and the last tile, which nothing hides.
        bound = -(-tasks // used) * (-(-segments // split) * each + exposed) + mte2 + fix
        if split > 1:
            # Zeros must be written, and all cores meet, before the first part can be added.
            bound += profile.sync.barrier_cycles + outputs * fix / used
        base = block.m, block.n, base_k, step, step
        yield bound, Tiling(*base, cl0_buffers=block.copies, k_split=split, used_cores=used)


def _useful_splits(outputs: int, cores: int, segments: int) -> list[int]:
    """Return the numbers of parts to try: one, and those that fill whole rounds of all cores."""
    # One round leaves the fewest parts to add; two or three may cut the rest of a round.
    splits = {1} | {cores * rounds // outputs for rounds in (1, 2, 3)}
    return sorted(min(split, segments) for split in splits if split >= 1)


def _slices_in_l1(gemm: WgradGemm, profile: Profile, block: BaseBlock, base_k: int, box: Taps) -> int | None:
    """Return how many slices one pair of L1 tiles holds in two copies, or None if not even one fits."""
    s, capacity = gemm.sliding, profile.buffers["L1"].capacity_bytes
    # The whole image at best: its pixels are then fetched in one copy. Both tiles twice, for ping-pong.
    for step in sorted({-(-s.pixels // base_k), 16, 12, 8, 6, 4, 3, 2, 1}, reverse=True):
        pixels = step * base_k
        if pixels >= s.pixels + base_k:
            continue
        left = round_up(block.m, profile.cube.m0) * pixels * s.itemsize
        right = s.tile_bytes(pixels, box, in_row=False)
        if 2 * (left + right) <= capacity:
            return step
    return None


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
    raise CapacityError(nothing_fits(s, profile))


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
    # Rough, as nothing is ranked here: such shapes are rare, and any tiling at all is what is wanted.
    blocks_n = -(-gemm.all_taps.groups * gemm.sliding.c0 // tiling.base_n)
    outputs = gemm.groups * len(gemm.depths) * -(-gemm.rows // tiling.base_m) * blocks_n
    segments = gemm.batch * -(-gemm.sliding.pixels // tiling.base_k)
    split = max(1, min(segments, profile.cores.cube // outputs))
    return replace(tiling, k_split=split, used_cores=min(profile.cores.cube, outputs * split))
