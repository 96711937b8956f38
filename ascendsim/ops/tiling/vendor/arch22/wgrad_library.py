"""The grad_weight of the vendor's library on 910B and 910_93: a search over core grids and tiles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby, product
from math import inf, prod
from typing import NamedTuple

from ascendsim.ops.tiling.vendor.arch22.costs import (
    Share,
    Tile,
    cycles,
    least_cycles,
    left_bytes,
    right_bytes,
    shared_columns,
)
from ascendsim.ops.tiling.vendor.layer import FRACTAL, Layer, Machine, ceil_div
from ascendsim.ops.tiling.vendor.plan import VendorPlan

# Fractals along one side of a block; more where that operand stays in L1.
LONGEST, LONGEST_RESIDENT = 16, 32
LEAST_USE = 0.8


class Grid(NamedTuple):
    """Parts along each axis, one core each: images and depths, kernel depths, groups, channels, and rows."""

    batch: int
    kd: int
    group: int
    n: int
    m: int
    k: int

    @property
    def cores(self) -> int:
        """Cores that get work."""
        return self.batch * self.kd * self.group * self.n * self.m * self.k


class Axes(NamedTuple):
    """What a grid cuts; `n` are fractals of input channels, times the kernel depths that are columns."""

    batch: int
    kd: int
    group: int
    n: int
    m: int

    @classmethod
    def of(cls, layer: Layer) -> Axes:
        """Return the axes of a layer whose groups are merged."""
        columns = layer.groups == 1 and (layer.dilation[0] == 1 or layer.kernel[0] == 1)
        depths, channels = layer.kernel[0], ceil_div(layer.ci, FRACTAL)
        kd, n = (1, depths * channels) if columns else (depths, channels)
        return cls(layer.batch * layer.output[0], kd, layer.groups, n, ceil_div(layer.co, FRACTAL))


def library(given: Layer, machine: Machine) -> VendorPlan | None:
    """Return the plan that uses most cores and, of those, needs the fewest cycles; None if no tile fits."""
    layer = given.merged(given.merge_factor(FRACTAL))
    axes = Axes.of(layer)
    grids = sorted(_grids(layer, axes, machine.cores), key=lambda grid: -grid.cores)
    # More cores win over fewer cycles: a grid of fewer matters only where no tile of the others fits.
    for _, alike in groupby(grids, key=lambda grid: grid.cores):
        best = _best_grid(layer, axes, alike, machine)
        if best is not None:
            return _plan(given, machine, *best)
    return None


def _best_grid(
    layer: Layer, axes: Axes, grids: Iterable[Grid], machine: Machine
) -> tuple[Grid, Share, Tile] | None:
    """Return the grid that needs the fewest cycles, with its share and tile; None if no tile fits."""
    known: dict[Share, tuple[float, Tile] | None] = {}
    best: tuple[tuple[float, int], Grid, Share, Tile] | None = None
    for grid in grids:
        share = _share(layer, axes, grid)
        if share not in known:
            known[share] = _best_tile(share, machine)
        tile = known[share]
        if tile is None:
            continue
        pairs = ((axes.batch, grid.batch), (axes.kd, grid.kd), (axes.group, grid.group))
        times = prod(ceil_div(extent, parts) for extent, parts in pairs)
        # Of equal ones that which cuts kernel depths: they share nothing that two cores would add to.
        key = times * tile[0], -grid.kd
        if best is None or key < best[0]:
            best = key, grid, share, tile[1]
    return best[1:] if best is not None else None


def _grids(layer: Layer, axes: Axes, cores: int) -> list[Grid]:
    """Return the grids worth a look: where images could keep all cores busy, those that leave few idle."""
    grids = list(_all_grids(layer, axes, cores))
    busy = [grid for grid in grids if axes.batch < cores or grid.cores >= LEAST_USE * cores]
    # What the library does where none is so busy is not known; 25 images of one row on 24 cores are such.
    return busy or grids


def _all_grids(layer: Layer, axes: Axes, cores: int) -> Iterator[Grid]:
    """Yield all grids: divisors along each axis, and rows for the cores that are left."""
    height = layer.output[1]
    for batch, kd, group, n, m in product(*(_parts(extent, cores) for extent in axes)):
        used = batch * kd * group * n * m
        if used > cores:
            continue
        # As many parts of equally many rows as the cores left over allow.
        rows = ceil_div(height, min(cores // used, height))
        yield Grid(batch, kd, group, n, m, ceil_div(height, rows))


def _parts(extent: int, cores: int) -> list[int]:
    """Return the divisors of an extent, and the cores that get work if it is dealt to all of them."""
    counts = [count for count in range(1, min(extent, cores) + 1) if extent % count == 0]
    if extent < cores:
        return counts
    # 64 images on 24 cores are three a core, so that 22 work; 25 are two, so that 13 do.
    working = ceil_div(extent, ceil_div(extent, cores))
    return counts if working in counts else [*counts, working]


def _share(layer: Layer, axes: Axes, grid: Grid) -> Share:
    """Return what one core of a grid adds up at a time."""
    columns = ceil_div(axes.n, grid.n) * layer.taps
    return Share(layer, ceil_div(axes.m, grid.m), columns, ceil_div(layer.output[1], grid.k))


def _best_tile(share: Share, machine: Machine) -> tuple[float, Tile] | None:
    """Return the tile of the fewest cycles, and these."""
    best: tuple[float, Tile] | None = None
    for block in _blocks(share, machine):
        # Loads into L1 only add to what a block takes without them.
        if best is not None and least_cycles(share, block) >= best[0]:
            continue
        tile = _filled(share, block, machine)
        if tile is not None and (needed := cycles(share, tile)) < (best[0] if best else inf):
            best = needed, tile
    return best


def _blocks(share: Share, machine: Machine) -> Iterator[Tile]:
    """Yield the base blocks that fill L0, by what is to stay in L1."""
    layer = share.layer
    # Halves of L0 and all of L0C, in fractals.
    half = machine.l0_half // (FRACTAL * FRACTAL * layer.itemsize)
    whole = machine.l0c_floats // FRACTAL**2
    for resident in ("a", "b", ""):
        longest = [LONGEST_RESIDENT if resident == side else LONGEST for side in "ab"]
        for m, n in product(_divisors(share.m, longest[0]), _divisors(share.n, longest[1])):
            if m * n > whole:
                continue
            lengths = _divisors(share.k, half // max(m, n))
            if lengths:
                yield Tile(m, n, lengths[-1], resident=resident)


def _filled(share: Share, tile: Tile, machine: Machine) -> Tile | None:
    """Return the tile with the longest chunk that L1 holds in as many copies as it needs."""
    slices = share.k // tile.k
    for step in reversed(_divisors(slices, slices)):
        # A chunk that is the whole reduction comes once, any other in two copies.
        copies = 1 if step == slices else 2
        left = left_bytes(share, tile, slices if tile.resident == "a" else step)
        right = right_bytes(share, tile, slices if tile.resident == "b" else step)
        need = left * (1 if tile.resident == "a" else copies) + right * (
            1 if tile.resident == "b" else copies
        )
        if need <= machine.l1:
            return replace(tile, step=step)
    return None


def _divisors(number: int, most: int) -> list[int]:
    """Return the divisors up to a limit, rising."""
    return [count for count in range(1, min(number, most) + 1) if number % count == 0]


def _plan(given: Layer, machine: Machine, grid: Grid, share: Share, tile: Tile) -> VendorPlan:
    """Return the plan of a tile on a grid."""
    slices = share.k // tile.k
    copies = 1 if tile.step == slices else 2
    double = 2 * tile.m * tile.n * FRACTAL**2 <= machine.l0c_floats
    return VendorPlan(
        *("library", tile.m * FRACTAL, tile.n * FRACTAL, tile.k * FRACTAL, tile.step, tile.step),
        step_n=shared_columns(share, tile) if copies == 1 else 1,
        single_core_m=share.m * FRACTAL,
        single_core_n=share.n * FRACTAL,
        single_core_k=share.pixels,
        al1_buffers=1 if tile.resident == "a" else copies,
        bl1_buffers=1 if tile.resident == "b" else copies,
        cl0_buffers=2 if double else 1,
        used_cores=grid.cores,
        tasks=grid.cores,
        mapping="grid",
        order=("group", "batch", "kd", "n", "m", "k"),
        split="grid",
        grid=tuple(grid._asdict().items()),
        group_merge=given.merge_factor(FRACTAL),
        resident=tile.resident,
        zero_first=True,
    )
