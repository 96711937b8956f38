"""The grid and the tiles of a 2-D grad_weight as the library of the 910B's operators searches them.

Source   as `wgrad_cells.py`, which has the cycles that it compares
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from ascendsim.ops.plan import Tiling
from ascendsim.ops.problems.wgrad import WgradGemm
from ascendsim.ops.tiling.vendor.library.wgrad_cells import FRACTAL, Grid, GridCells, Tiles, divisors
from ascendsim.profile import Profile

# Grids that use fewer of the cores are not looked at.
LEAST_USE = 0.8


def library_wgrad(gemm: WgradGemm, profile: Profile, blocks: int = 0) -> Tiling | None:
    """Return the tiling of grad_weight, None where L1 does not hold the tiles of one Mmad twice.

    Grid     divisors of the batch, of the channel groups of both sides, and the number of cores for the
             batch; the rows take the cores that are left
    Tiles    at most 128 fractals of L0C in one copy; the longest run of pixels that divides those of a cell
    L1       the most pixels of both operands that fit in two copies
    blocks   cells of the grid, None returned where none has so many; 0: at most one for each core
    """
    cells, columns = GridCells(gemm, profile), gemm.all_taps.groups * gemm.sliding.c0
    for grid, tiles in cells.ranked(tuple(_grids(gemm, profile, blocks))):
        step = _step(cells, grid, tiles)
        if step:
            used = prod(grid)
            base = tiles.m * FRACTAL, min(tiles.n * FRACTAL, columns), tiles.pixels
            cut = Tiling(*base, step, step, used_cores=used, batch_dim=grid.batch, k_dim=grid.height)
            return _dealt(cut, gemm, grid, columns)
    return None


def _dealt(tiling: Tiling, gemm: WgradGemm, grid: Grid, columns: int) -> Tiling:
    """Return the tiling with the parts along m and n, and no more cores than there are cells."""
    base_m = min(tiling.base_m, gemm.rows)
    m, n = -(-gemm.rows // base_m), -(-columns // tiling.base_n)
    parts = min(grid.rows, m), min(grid.columns, n)
    used = tiling.batch_dim * tiling.k_dim * parts[0] * parts[1]
    return replace(tiling, base_m=base_m, m_dim=parts[0], n_dim=parts[1], used_cores=used)


def _grids(gemm: WgradGemm, profile: Profile, blocks: int = 0) -> Iterator[Grid]:
    """Yield the grids that use enough cores; where there is too little work for that, all of them.

    blocks   only those of so many cells; 0: of any number
    """
    cores, batch, whole = profile.cores.cube, gemm.batch, gemm.all_taps
    heights = gemm.sliding.out_size[0]
    found = []
    for b in divisors(batch, cores, and_all=batch >= cores):
        for n in divisors(whole.channels, cores // b):
            for m in divisors(-(-gemm.rows // FRACTAL), cores // (b * n)):
                found.append(Grid(b, n, m, min(heights, cores // (b * n * m))))
    if blocks:
        found = [grid for grid in found if prod(grid) == blocks]
    busy = [grid for grid in found if prod(grid) >= LEAST_USE * cores]
    yield from busy or found


def _step(cells: GridCells, grid: Grid, tiles: Tiles) -> int:
    """Return the most Mmads whose pixels fit into L1 in two copies, evenly; 0 if not even one does."""
    s, cell = cells.gemm.sliding, cells.of(grid)
    pixels, capacity = cell.rows * s.out_size[1], cells.profile.buffers["L1"].capacity_bytes

    def left(run: int) -> int:
        return run * tiles.m * FRACTAL * s.itemsize

    # No run is shorter than that of one Mmad. In a cell of several rows one that does not end with its row
    # needs two at least, and one that does needs its whole width: no run needs less than one such row.
    width = tiles.pixels if cell.rows == 1 else s.out_size[1]
    if 2 * (left(tiles.pixels) + cells.window_bytes(cell._replace(rows=1), tiles.n, width)) > capacity:
        return 0
    parts, most = 1, -(-pixels // tiles.pixels)
    while parts <= most:
        step: int = -(-most // parts)
        run = step * tiles.pixels
        high = min(cell.rows, -(-run // s.out_size[1]) + (run % s.out_size[1] > 0))
        if 2 * (left(run) + cells.window_bytes(cell._replace(rows=high), tiles.n, run)) <= capacity:
            return step
        # What follows depends on the step alone: on to the next number of parts that has a smaller one.
        parts = -(-most // (step - 1)) if step > 1 else most + 1
    return 0
