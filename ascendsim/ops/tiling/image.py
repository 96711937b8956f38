"""Choose the plan of an image product (grad_input)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING

from ascendsim.cube.views import round_up
from ascendsim.errors import CapacityError
from ascendsim.ops.image_gemm import ImageGemm
from ascendsim.ops.taps import Taps, first_box
from ascendsim.ops.tiling.plan import Tiling
from ascendsim.ops.tiling.rates import Block, Rates, blocks, nothing_fits, slices

if TYPE_CHECKING:
    from ascendsim.profile import Profile


def image_tiling(spec: ImageGemm, profile: Profile) -> Tiling:
    """Choose the plan of an image product.

    Raises   CapacityError if nothing fits
    """
    sliding = spec.sliding
    rates = Rates(profile, spec.rate, profile.cores.cube)
    # At least one row piece of 16 pixels is tried even if no range of whole rows fits.
    best: tuple[float, Tiling] | None = None
    # Only where that does not fit either, a product takes less of the reduction than L0 could hold.
    for shorten, in_row in product((False, True), (False, True)):
        pixels = sliding.out_size[1] if in_row else sliding.pixels
        for block in blocks(profile, sliding.itemsize, (pixels, spec.columns), (16, sliding.c0, sliding.c0)):
            found = _image_candidate(spec, rates, block, in_row=in_row)
            while found is None and shorten and block.k > sliding.c0:
                block = block._replace(k=round_up(block.k // 2, sliding.c0))
                found = _image_candidate(spec, rates, block, in_row=in_row)
            if found is not None and (best is None or found[0] < best[0]):
                best = found
        if best is not None:
            return best[1]
    raise CapacityError(nothing_fits(spec.sliding, profile))


def _image_candidate(
    spec: ImageGemm, rates: Rates, block: Block, *, in_row: bool
) -> tuple[float, Tiling] | None:
    """Return the bound and the plan of one base block, or None if L1 cannot hold it."""
    s = spec.sliding
    reduction = spec.all_taps.groups * s.c0
    base_k = slices(reduction, min(block.k, reduction), s.c0)
    for left, right, copies in _image_chunks(spec, block, base_k, rates.profile, in_row=in_row):
        tiles = len(s.pixel_tiles(block.m, in_row=in_row))
        depths = [len(pairs) for pairs in spec.depths if pairs]
        tasks = spec.groups * spec.batch * max(1, len(depths)) * tiles * -(-spec.columns // block.n)
        used = min(tasks, rates.cores)
        rounds = -(-tasks // used)
        depth = sum(depths) / max(1, len(depths))
        count = -(-reduction // base_k)
        m1 = rates.load3d("L0A", s, block.m, base_k // s.c0)
        m1 += rates.load2d("L0B", base_k * block.n * s.itemsize)
        mte1, cube = depth * count * m1, depth * count * rates.mmad(block.m, base_k, block.n)
        resident = right * base_k >= reduction and depth == 1
        loads = s.tile_bytes(block.m, spec.all_taps, in_row=in_row) / (s.insert[0] * s.insert[1])
        weights = reduction * block.n * s.itemsize
        mte2 = depth * (loads + weights * (1 / rounds if resident else 1)) / rates.load_bytes_per_cycle
        fix = block.m * block.n * spec.output.itemsize / rates.store_bytes_per_cycle
        busy = max(mte1, cube, mte2) + (fix if block.copies == 1 else max(0.0, fix - max(mte1, cube)))
        bound = rounds * busy + mte2 + fix
        plan = Tiling(
            block.m, block.n, base_k, left, right, 2, copies, cl0_buffers=block.copies, used_cores=used
        )
        return bound, plan
    return None


def _image_chunks(
    spec: ImageGemm, block: Block, base_k: int, profile: Profile, *, in_row: bool
) -> Iterator[tuple[int, int, int]]:
    """Yield (step_ka, step_kb, bl1_buffers) that fit in L1, the preferred first.

    Resident weights with the longest left tile that fits; else equal tiles of both; else the shortest.
    """
    s, capacity = spec.sliding, profile.buffers["L1"].capacity_bytes
    whole = spec.all_taps
    columns = round_up(block.n, profile.cube.n0)

    def left_bytes(step: int) -> int:
        return s.tile_bytes(block.m, first_box(whole, step * base_k, s.c0), in_row=in_row)

    def right_bytes(step: int) -> int:
        return first_box(whole, step * base_k, s.c0).groups * s.c0 * columns * s.itemsize

    most = -(-whole.groups * s.c0 // base_k)
    steps = _useful_steps(whole, base_k, s.c0, most)
    for step in steps:
        if 2 * left_bytes(step) + right_bytes(most) <= capacity:
            yield step, most, 1
            return
    for step in steps:
        if 2 * (left_bytes(step) + right_bytes(step)) <= capacity:
            yield step, step, 2
            return


def _useful_steps(whole: Taps, base_k: int, c0: int, most: int) -> list[int]:
    """Return steps to try, longest first: those that hold whole channel groups, then short ones."""
    per_channel = whole.rows * whole.cols * c0
    steps = {-(-channels * per_channel // base_k) for channels in range(whole.channels, 0, -1)}
    steps |= {max(1, per_channel // base_k // part) for part in (2, 4, 8)} | {1}
    return sorted((step for step in steps if step <= most), reverse=True)
