"""The plan of grad_weight from the library of 910B and 910_93: a search over core grids and tiles.

2-D layers come here, but for transposed ones and deterministic sums; of volumes those that no basic block
takes. `library_tiles.py` has the tiles.

Source   host code of the public library of convolutions, and what the operator's host code makes of its
         answer
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from math import gcd, prod
from typing import NamedTuple

from ascendsim.instructions.cube import round_up
from ascendsim.ops.tiling.vendor.arch22.library_tiles import (
    LibraryShare,
    LibrarySizes,
    LibraryTile,
    cycles,
    divisors,
    divisors_up_to,
    least_cycles,
    lines,
    tiles,
)
from ascendsim.ops.tiling.vendor.layer import FRACTAL, LayerSizes, Machine, VendorPlan, ceil_div

# An axis is rich in divisors if one of these has more than so many itself; shorter axes are as they are.
RICH, SHORT = 4, 16
# The host code's names of the axes of a grid.
_DIMS = {"group": "group", "batch": "batch", "kd": "dk", "n": "n", "m": "m", "k": "k"}


class LibraryGrid(NamedTuple):
    """Parts along each axis, loops of the search outermost first."""

    d: int
    kd: int
    group: int
    batch: int
    n: int
    m: int
    k: int

    @property
    def cells(self) -> int:
        """Cores that get work."""
        d, kd, group, batch, n, m, k = self
        return d * kd * group * batch * n * m * k


def library(
    given: LayerSizes, machine: Machine, *, flat: bool = False, deterministic: bool = False, cells: int = 0
) -> VendorPlan | None:
    """Return the plan of the fewest cycles; None if no tile fits.

    flat    whether the operator of images asks, which takes copies and parts of the pixels as they are
    cells   of the grid, None returned where none has so many; 0: as the search chooses
    """
    factor = given.merge_factor(FRACTAL)
    layer = given.merged(factor)
    machine = machine._replace(cores=cells or machine.cores)
    s = LibrarySizes.of(layer, machine, images=given.groups * given.batch, flat=flat)
    grids = [grid for grid in _grids(s) if cells in (0, grid.cells)]
    images, least = layer.batch * layer.output[0], ceil_div(4 * machine.cores, 5)
    # Where images could keep all cores busy, grids that leave many idle are not looked at.
    busy = [grid for grid in grids if images < machine.cores or grid.cells >= least]
    best = _best(s, busy) or _best(s, grids)
    if best is None:
        return None
    plan = _of_images(s, *best) if flat else _of_volumes(s, *best, deterministic=deterministic)
    return replace(plan, group_merge=factor)


def _best(s: LibrarySizes, grids: Sequence[LibraryGrid]) -> tuple[LibraryGrid, LibraryTile] | None:
    """Return the grid and the tile of the fewest cycles, the first of equal ones."""
    best: tuple[LibraryGrid, LibraryTile] | None = None
    least = 0
    for grid in grids:
        share = _share(s, grid)
        if best is not None and least_cycles(s, share) >= least:
            continue
        for tile in tiles(s, share, found=best is not None):
            cost = cycles(s, share, tile)
            if best is None or cost < least:
                best, least = (grid, tile), cost
    return best


def _grids(s: LibrarySizes) -> Iterator[LibraryGrid]:
    """Yield all grids, in the order in which the library looks at them."""
    layer, cores = s.layer, s.cores
    depths, taps_d = layer.output[0], layer.kernel[0]
    axes = (
        divisors_up_to(depths, cores),
        divisors_up_to(taps_d, cores),
        divisors_up_to(layer.groups, cores),
        _factors(layer.batch, cores),
        _factors(s.channels, cores) if taps_d == 1 else divisors_up_to(s.channels, cores),
        _factors(s.m, cores),
    )
    for parts in _products(axes, cores):
        images = ceil_div(layer.batch, parts[3]) * (depths // parts[0])
        # Depths that are cut lie in one image each, or in whole ones.
        if parts[0] > 1 and images % depths and depths % images:
            continue
        k = min(cores // prod(parts), s.k)
        while ceil_div(s.k, k) % s.least:
            k -= 1
        yield LibraryGrid._make((*parts, k))


def _products(axes: Sequence[tuple[int, ...]], most: int) -> Iterator[tuple[int, ...]]:
    """Yield a number of each axis, the first axis slowest, whose product is no larger than that."""
    if not axes:
        yield ()
        return
    for count in axes[0]:
        if count <= most:
            for rest in _products(axes[1:], most // count):
                yield count, *rest


@lru_cache(maxsize=1024)
def _factors(extent: int, cores: int) -> tuple[int, ...]:
    """Return the parts that an axis may have: its divisors, or those of what it is mapped to."""
    found = {*divisors(_mapped(extent, cores)), *divisors(cores)}
    return tuple(sorted(part for part in found if part <= min(extent, cores)))


@lru_cache(maxsize=1024)
def _mapped(extent: int, cores: int) -> int:
    """Return the extent, or the power of two above it where it is long and poor in divisors."""
    rich = any(part <= cores and len(divisors(part)) > RICH for part in divisors(extent))
    return extent if rich or extent < SHORT else 1 << (extent - 1).bit_length()


@lru_cache(maxsize=4096)
def _moved(extent: int, parts: int, cores: int) -> int:
    """Return the length of one of so many parts: the next one up that divides well."""
    last = ceil_div(_mapped(extent, cores), parts)
    for length in range(ceil_div(extent, parts), last):
        if _divides_well(length):
            return length
    return last


def _divides_well(length: int) -> bool:
    """Return whether a length has divisors that make good tiles."""
    if length <= 8:
        return True
    low = max(len(divisors(part)) for part in divisors(length) if part <= 64)
    high = max((len(divisors(part)) for part in divisors(length) if 64 < part <= 128), default=0)
    return low > 2 and (length <= 128 or low + high > 4)


def _share(s: LibrarySizes, grid: LibraryGrid) -> LibraryShare:
    """Return the share of one core of a grid."""
    layer, parts = s.layer, grid.n * grid.kd
    depths = layer.kernel[0]
    m = _moved(s.m, grid.m, s.cores)
    channels = s.channels // grid.n if depths > 1 else _moved(s.channels, grid.n, s.cores)
    n = channels * layer.taps * (depths // grid.kd)
    apart = depths > 1 and (layer.groups > 1 or any(layer.pads[0]))
    # What is charged for counts kernel depths as the host code cuts them.
    kd = gcd(depths, parts)
    paid = ceil_div(s.paid_channels, parts // kd) * (depths // kd) * layer.taps
    images = ceil_div(layer.batch, grid.batch) * (layer.output[0] // grid.d)
    return LibraryShare(
        images,
        layer.groups // grid.group,
        m,
        n,
        ceil_div(s.k, grid.k),
        channels * layer.taps if apart else n,
        ceil_div(s.m, grid.m),
        paid,
    )


def _of_images(s: LibrarySizes, grid: LibraryGrid, tile: LibraryTile) -> VendorPlan:
    """Return the plan of images: the library's own parts."""
    share = _share(s, grid)
    shares = share.m * FRACTAL, share.n * FRACTAL, share.k * s.unit
    grid_parts = tuple((axis, getattr(grid, axis)) for axis in ("group", "batch", "n", "m", "k"))
    return _plan(s, tile, grid_parts, shares)


def _of_volumes(s: LibrarySizes, grid: LibraryGrid, tile: LibraryTile, *, deterministic: bool) -> VendorPlan:
    """Return the host code's plan for a grid and a tile: whole rows, and even parts."""
    layer, depths = s.layer, s.layer.kernel[0]
    parts = grid.n * grid.kd
    apart = layer.groups > 1 or (depths > 1 and layer.dilation[0] > 1) or deterministic
    # Kernel depths that are no parts of their own count as channels.
    kd = gcd(parts, depths) if apart else 1
    groups = layer.ci1 * (1 if apart else depths)
    single_ci = ceil_div(groups, parts // kd) * layer.c0
    rows = round_up(layer.co, FRACTAL)
    single_co = round_up(ceil_div(rows // layer.c0, grid.m) * layer.c0, FRACTAL)
    single_ho = ceil_div(layer.output[1], grid.k)
    single_batch = ceil_div(layer.batch, grid.batch) * (layer.output[0] // grid.d)
    made = {
        "group": grid.group,
        "batch": ceil_div(layer.batch * layer.output[0], single_batch),
        "kd": kd,
        "n": ceil_div(groups * layer.c0, single_ci),
        "m": ceil_div(rows, single_co),
        "k": ceil_div(layer.output[1], single_ho),
    }
    pixels = single_ho * layer.output[2]
    found = _plan(s, tile, tuple(made.items()), (single_co, single_ci * layer.taps, pixels))
    # A copy more than the share has tiles is of no use, nor are columns that wait for one.
    slices = ceil_div(pixels, found.base_k)
    al1 = 1 if found.step_ka >= slices else found.al1_buffers
    bl1 = 1 if found.step_kb >= slices else found.bl1_buffers
    step_n = 1 if ceil_div(slices, found.step_kb) > bl1 else tile.tiles_n
    host = {
        "iterateOrder": 1,
        **{f"{_DIMS[axis]}Dim": count for axis, count in made.items()},
        "singleCoreDk": depths // kd if apart else 1,
        "singleCoreGroup": ceil_div(layer.groups, grid.group),
        "singleCoreCout": single_co,
        "singleCoreCin": single_ci,
        "singleCoreHo": single_ho,
        "singleCoreBatch": single_batch,
        "bl1Bound": _right_elements(s, found, step_n),
    }
    return replace(found, al1_buffers=al1, bl1_buffers=bl1, step_n=step_n, host=tuple(host.items()))


def _right_elements(s: LibrarySizes, plan: VendorPlan, step_n: int) -> int:
    """Return the elements of one copy of the input in L1, its columns counted in groups of C0."""
    channels = lines(step_n * plan.base_n // s.layer.c0, s.layer.taps) * s.layer.c0
    return s.rows(plan.step_kb * plan.base_k // s.unit) * s.layer.input[2] * channels


def _plan(
    s: LibrarySizes, tile: LibraryTile, grid: tuple[tuple[str, int], ...], shares: tuple[int, int, int]
) -> VendorPlan:
    """Return the plan of a tile on a grid."""
    cells = prod(count for _, count in grid)
    return VendorPlan(
        *("library", tile.m * FRACTAL, tile.n * FRACTAL, tile.k * s.unit),
        *(tile.left_k // tile.k, tile.right_k // tile.k, tile.tiles_n, *shares),
        al1_buffers=tile.copies_a,
        bl1_buffers=tile.copies_b,
        cl0_buffers=2 if 2 * tile.m * tile.n <= s.results else 1,
        used_cores=cells,
        tasks=cells,
        mapping="grid",
        order=("group", "batch", "kd", "n", "m", "k"),
        split="grid",
        grid=grid,
        step_m=tile.tiles_m,
        zero_first=True,
    )
