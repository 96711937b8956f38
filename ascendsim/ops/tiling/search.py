"""Choose a plan: enumerate base blocks, keep the legal ones, take the one with the least bound on its cycles.

The bound counts, for the busiest core, the cycles of MTE1, M, MTE2 and FIX and takes the largest as if they
overlapped perfectly, plus what cannot overlap. It only ranks plans; the cycles that are reported come from
the timing executor. The real operators choose differently (their rules are a later step).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from ascendsim.cube.views import Patches, round_up
from ascendsim.errors import CapacityError
from ascendsim.ops.filter_gemm import FilterGemm
from ascendsim.ops.image_gemm import ImageGemm, first_box
from ascendsim.ops.sliding import Sliding, Taps
from ascendsim.ops.tiling.plan import Tiling, even_parts

if TYPE_CHECKING:
    from ascendsim.profile import Profile


@dataclass(frozen=True)
class Rates:
    """The figures that rank plans, as floats: bytes or products for each cycle of one core."""

    profile: Profile
    rate: str
    cores: int

    @property
    def load_bytes_per_cycle(self) -> float:
        """GM to L1 with all cores loading."""
        path = self.profile.paths["GM_L1"].bytes_per_cycle
        return min(float(path), float(self.profile.links["l2_read"].total_bytes_per_cycle) / self.cores)

    @property
    def store_bytes_per_cycle(self) -> float:
        """L0C outwards with all cores storing."""
        name = "L0C_GM" if self.profile.has_path("L0C", "GM") else "L0C_UB"
        path = float(self.profile.paths[name].bytes_per_cycle)
        return min(path, float(self.profile.links["l2_write"].total_bytes_per_cycle) / self.cores)

    def mmad(self, m: int, k: int, n: int) -> float:
        """Cycles of one Mmad."""
        cube = self.profile.cube
        rate = cube.rates[self.rate]
        padded = round_up(m, cube.m0) * round_up(n, cube.n0) * round_up(k, rate.k0)
        return cube.mmad_head_cycles + padded / float(rate.macs_per_cycle)

    def load2d(self, buffer: str, size_bytes: int) -> float:
        """Cycles of one plain load into L0A or L0B."""
        path = self.profile.paths[f"L1_{buffer}"]
        return path.head_cycles + size_bytes / float(path.bytes_per_cycle)

    def load3d(self, buffer: str, sliding: Sliding, pixels: int, groups: int) -> float:
        """Cycles of one im2col load into L0A or L0B."""
        tile = sliding.tile(0, min(pixels, sliding.pixels), Taps(0, 1, 0, 1, 0, 1))
        view = Patches(tile.window, 0, pixels, 0, 1, sliding.itemsize)
        head = self.profile.paths[f"L1_{buffer}"].head_cycles
        return head + float(view.cycles(self.profile, buffer)) * groups


class Block(NamedTuple):
    """A base block that fits in L0: its sizes, its L0C copies, and the longest reduction of one Mmad."""

    m: int
    n: int
    copies: int
    k: int


def blocks(
    profile: Profile, itemsize: int, sizes: tuple[int, int], steps: tuple[int, int, int]
) -> Iterator[Block]:
    """Yield the base blocks that L0A, L0B and L0C hold, both operands in two copies.

    `sizes` are the whole m and n, `steps` the units of m, n and k.
    """
    capacity = {name: profile.buffers[name].capacity_bytes for name in ("L0A", "L0B", "L0C")}
    cube = profile.cube
    for m in even_parts(sizes[0], steps[0], MOST_M):
        for n in even_parts(sizes[1], steps[1], MOST_N):
            fits_m, fits_n = round_up(m, cube.m0), round_up(n, cube.n0)
            copies = min(2, capacity["L0C"] // (fits_m * fits_n * 4))
            k = min(capacity["L0A"] // 2 // (fits_m * itemsize), capacity["L0B"] // 2 // (fits_n * itemsize))
            if copies and k >= steps[2]:
                yield Block(m, n, copies, k // steps[2] * steps[2])


# The largest base sizes tried: a larger m or n leaves no room for a useful k in L0A or L0B of any product.
MOST_M = 512
MOST_N = 512


def slices(total: int, most: int, step: int) -> int:
    """Return the slice length, a multiple of `step` and at most `most`, that cuts `total` most evenly."""
    count = ceil(total / most)
    return min(most, round_up(ceil(total / count), step))


def image_tiling(spec: ImageGemm, profile: Profile) -> Tiling:
    """Choose the plan of an image product.

    Raises   CapacityError if nothing fits
    """
    sliding = spec.sliding
    rates = Rates(profile, spec.rate, profile.cores.cube)
    # At least one row piece of 16 pixels is tried even if no range of whole rows fits.
    best: tuple[float, Tiling] | None = None
    for in_row in (False, True):
        pixels = sliding.out_size[1] if in_row else sliding.pixels
        for block in blocks(profile, sliding.itemsize, (pixels, spec.columns), (16, sliding.c0, sliding.c0)):
            found = _image_candidate(spec, rates, block, in_row=in_row)
            if found is not None and (best is None or found[0] < best[0]):
                best = found
        if best is not None:
            return best[1]
    raise CapacityError(_nothing_fits(spec.sliding, profile))


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
        tasks = spec.groups * spec.batch * len(depths) * tiles * -(-spec.columns // block.n)
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


def filter_tiling(spec: FilterGemm, profile: Profile) -> Tiling:
    """Choose the plan of a filter product.

    Raises   CapacityError if nothing fits
    """
    s = spec.sliding
    rates = Rates(profile, spec.rate, profile.cores.cube)
    k0 = max(16, profile.cube.rates[spec.rate].k0)
    best: tuple[float, Tiling] | None = None
    columns = spec.all_taps.groups * s.c0
    for block in blocks(profile, s.itemsize, (spec.rows, columns), (s.c0, s.c0, k0)):
        for bound, plan in _filter_candidates(spec, rates, block, k0):
            if best is None or bound < best[0]:
                best = bound, plan
    if best is None:
        return _smallest_filter(spec, profile, k0)
    return best[1]


def _filter_candidates(
    spec: FilterGemm, rates: Rates, block: Block, k0: int
) -> Iterator[tuple[float, Tiling]]:
    """Yield the bound and the plan of one base block for each useful split of the reduction."""
    s, profile = spec.sliding, rates.profile
    taps = s.kernel[0] * s.kernel[1]
    groups = block.n // s.c0
    channels = min(spec.big.shape[3], -(-groups // taps) + (groups % taps != 0 and taps % groups != 0))
    box = spec.all_taps._replace(channels=channels)
    base_k = slices(s.pixels, min(block.k, round_up(s.pixels, k0)), k0)
    step = _filter_step(spec, profile, block, base_k, box)
    if step is None:
        return
    pixels = min(step * base_k, s.pixels)
    images = spec.batch * sum(len(pairs) for pairs in spec.depths) / len(spec.depths)
    pieces = images * -(-s.pixels // pixels)
    outputs = spec.groups * len(spec.depths)
    outputs *= -(-spec.rows // block.m) * -(-spec.all_taps.groups // groups)
    per_slice = rates.load2d("L0A", base_k * block.m * s.itemsize)
    per_slice += rates.load3d("L0B", s, base_k, groups)
    slices_each = pixels / base_k
    mte1, cube = slices_each * per_slice, slices_each * rates.mmad(block.m, base_k, block.n)
    loads = pixels * block.m * s.itemsize + s.tile_bytes(pixels, box, in_row=False)
    mte2 = loads / rates.load_bytes_per_cycle
    each = max(mte1, cube, mte2)
    fix = block.m * block.n * 4 / rates.store_bytes_per_cycle
    for split in _useful_splits(outputs, rates.cores, int(pieces)):
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


def _filter_step(spec: FilterGemm, profile: Profile, block: Block, base_k: int, box: Taps) -> int | None:
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


def _smallest_filter(spec: FilterGemm, profile: Profile, k0: int) -> Tiling:
    """Return a plan for images so wide, or kernels so large, that only pieces of a row fit in L1."""
    s, capacity = spec.sliding, profile.buffers["L1"].capacity_bytes
    for base_k in (8 * k0, 4 * k0, 2 * k0, k0):
        for groups in (8, 4, 2, 1):
            for rows in (128, 64, 32, 16, s.c0):
                left = 2 * rows * base_k * s.itemsize
                box = first_box(spec.all_taps, groups * s.c0, s.c0)
                if left + 2 * s.tile_bytes(base_k, box, in_row=True) > capacity:
                    continue
                plan = Tiling(min(rows, spec.rows), groups * s.c0, base_k)
                block = next(
                    (
                        b
                        for b in blocks(profile, s.itemsize, (plan.base_m, plan.base_n), (s.c0, s.c0, k0))
                        if b.k >= base_k
                    ),
                    None,
                )
                if block is not None:
                    return _spread(spec, profile, plan)
    raise CapacityError(_nothing_fits(s, profile))


def _spread(spec: FilterGemm, profile: Profile, plan: Tiling) -> Tiling:
    """Split the reduction of a small plan so that all cores have work."""
    blocks_n = -(-spec.all_taps.groups * spec.sliding.c0 // plan.base_n)
    outputs = spec.groups * len(spec.depths) * -(-spec.rows // plan.base_m) * blocks_n
    pieces = spec.batch * -(-spec.sliding.pixels // plan.base_k)
    split = max(1, min(pieces, profile.cores.cube // outputs))
    return replace(plan, k_split=split, used_cores=min(profile.cores.cube, outputs * split))


def _nothing_fits(sliding: Sliding, profile: Profile) -> str:
    need = 2 * sliding.tile_bytes(16, Taps(0, 1, 0, 1, 0, 1), in_row=True)
    return (
        f"no tile of this convolution fits in L1 of {profile.variant}: one tap of 16 pixels in two copies "
        f"needs {need} bytes, and L1 holds {profile.buffers['L1'].capacity_bytes}"
    )
