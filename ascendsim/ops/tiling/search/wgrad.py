"""Choose the plan of a filter product (grad_weight)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ascendsim.cube.views import Transposed, round_up
from ascendsim.errors import CapacityError
from ascendsim.ops.plan import Tiling
from ascendsim.ops.problems.taps import Taps, first_box
from ascendsim.ops.problems.wgrad import WgradGemm
from ascendsim.ops.tiling.search.rates import BaseBlock, Rates, blocks, im2col_read, nothing_fits, slices
from ascendsim.profile import Profile


def wgrad_tiling(spec: WgradGemm, profile: Profile) -> Tiling:
    """Choose the plan of a filter product.

    Raises   CapacityError if nothing fits
    """
    s = spec.sliding
    rates = Rates(profile, spec.compute_dtype, profile.cores.cube)
    k0 = max(16, profile.cube.rates[spec.compute_dtype].k0)
    best: tuple[float, Tiling] | None = None
    columns = spec.all_taps.groups * s.c0
    for block in blocks(profile, s.itemsize, (spec.rows, columns), (s.c0, s.c0, k0)):
        for bound, plan in _candidates(spec, rates, block, k0):
            if best is None or bound < best[0]:
                best = bound, plan
    if best is None:
        return _smallest(spec, profile, k0)
    return best[1]


def _candidates(spec: WgradGemm, rates: Rates, block: BaseBlock, k0: int) -> Iterator[tuple[float, Tiling]]:
    """Yield the bound and the plan of one base block for each useful split of the reduction."""
    s, profile = spec.sliding, rates.profile
    taps = s.kernel[0] * s.kernel[1]
    groups = block.n // s.c0
    channels = min(spec.big.shape[3], -(-groups // taps) + (groups % taps != 0 and taps % groups != 0))
    box = spec.all_taps._replace(channels=channels)
    base_k = slices(s.pixels, min(block.k, round_up(s.pixels, k0)), k0)
    step = _step(spec, profile, block, base_k, box)
    if step is None:
        return
    pixels = min(step * base_k, s.pixels)
    images = spec.batch * sum(len(pairs) for pairs in spec.depths) / len(spec.depths)
    pieces = images * -(-s.pixels // pixels)
    outputs = spec.groups * len(spec.depths)
    outputs *= -(-spec.rows // block.m) * -(-spec.all_taps.groups // groups)
    k = min(base_k, s.pixels)
    per_slice = rates.load_left(Transposed(block.m // s.c0, pixels, 0, k, s.c0, s.itemsize))
    per_slice += rates.load_right(im2col_read(s, k, groups))
    slices_each = pixels / base_k
    mte1, cube = slices_each * per_slice, slices_each * rates.mmad(block.m, k, block.n)
    loads = pixels * block.m * s.itemsize + s.tile_bytes(pixels, box, in_row=False)
    mte2 = loads / rates.load_bytes_per_cycle
    each = max(mte1, cube, mte2)
    fix = block.m * block.n * 4 / rates.store_bytes_per_cycle
    for split in _useful_splits(outputs, rates.cores, max(1, int(pieces))):
        tasks = outputs * split
        used = min(tasks, rates.cores)
        rounds = -(-tasks // used)
        bound = rounds * (-(-pieces // split) * each + (fix if block.copies == 1 else fix / 2)) + mte2 + fix
        if split > 1:
            # Zeros must be written, and all cores meet, before the first part can be added.
            bound += profile.sync.barrier_cycles + outputs * fix / used
        yield (
            bound,
            Tiling(
                block.m, block.n, base_k, step, step, cl0_buffers=block.copies, k_split=split, used_cores=used
            ),
        )


def _useful_splits(outputs: int, cores: int, pieces: int) -> list[int]:
    """Return the numbers of parts to try: one, and those that fill whole rounds of all cores."""
    splits = {1} | {cores * rounds // outputs for rounds in (1, 2, 3)}
    return sorted(min(split, pieces) for split in splits if split >= 1)


def _step(spec: WgradGemm, profile: Profile, block: BaseBlock, base_k: int, box: Taps) -> int | None:
    """Return how many slices one pair of L1 tiles holds in two copies, or None if not even one fits."""
    s, capacity = spec.sliding, profile.buffers["L1"].capacity_bytes
    for step in sorted({-(-s.pixels // base_k), 16, 12, 8, 6, 4, 3, 2, 1}, reverse=True):
        pixels = step * base_k
        if pixels >= s.pixels + base_k:
            continue
        left = round_up(block.m, profile.cube.m0) * pixels * s.itemsize
        right = s.tile_bytes(pixels, box, in_row=False)
        if 2 * (left + right) <= capacity:
            return step
    return None


def _smallest(spec: WgradGemm, profile: Profile, k0: int) -> Tiling:
    """Return a plan for images so wide, or kernels so large, that only pieces of a row fit in L1."""
    s = spec.sliding
    for base_k in (8 * k0, 4 * k0, 2 * k0, k0):
        for groups in (8, 4, 2, 1):
            for rows in (128, 64, 32, 16, s.c0):
                plan = Tiling(min(rows, spec.rows), groups * s.c0, base_k)
                if _fits_in_pieces(spec, profile, plan):
                    return _spread(spec, profile, plan)
    raise CapacityError(nothing_fits(s, profile))


def _fits_in_pieces(spec: WgradGemm, profile: Profile, plan: Tiling) -> bool:
    """Return whether a plan whose L1 tiles hold one slice, in pieces of a row, fits in every buffer."""
    s, capacity = spec.sliding, profile.buffers
    m, n = round_up(plan.base_m, profile.cube.m0), round_up(plan.base_n, profile.cube.n0)
    image = s.tile_bytes(plan.base_k, first_box(spec.all_taps, plan.base_n, s.c0), in_row=True)
    needs = {
        "L1": 2 * (m * plan.base_k * s.itemsize + image),
        "L0A": 2 * m * plan.base_k * s.itemsize,
        "L0B": 2 * n * plan.base_k * s.itemsize,
        "L0C": m * n * 4,
    }
    return all(need <= capacity[name].capacity_bytes for name, need in needs.items())


def _spread(spec: WgradGemm, profile: Profile, plan: Tiling) -> Tiling:
    """Split the reduction of a small plan so that all cores have work."""
    blocks_n = -(-spec.all_taps.groups * spec.sliding.c0 // plan.base_n)
    outputs = spec.groups * len(spec.depths) * -(-spec.rows // plan.base_m) * blocks_n
    pieces = spec.batch * -(-spec.sliding.pixels // plan.base_k)
    split = max(1, min(pieces, profile.cores.cube // outputs))
    return replace(plan, k_split=split, used_cores=min(profile.cores.cube, outputs * split))
