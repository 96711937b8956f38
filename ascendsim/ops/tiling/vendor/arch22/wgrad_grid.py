"""The core grid of grad_weight for bfloat16 on 910B and 910_93 with 20 cores."""

from __future__ import annotations

from ascendsim.ops.tiling.vendor.arch22.costs import Share, Tile, left_bytes, right_bytes
from ascendsim.ops.tiling.vendor.arch22.wgrad_library import Axes, Grid
from ascendsim.ops.tiling.vendor.layer import FRACTAL, Layer, Machine, align, ceil_div, largest_whole
from ascendsim.ops.tiling.vendor.plan import VendorPlan

CORES = 20
# (rows, columns, reduction) of a base block; the second one for few rows.
TALL, WIDE = (128, 256, 64), (64, 512, 32)


def core_grid(layer: Layer, machine: Machine) -> VendorPlan | None:
    """Return the plan that gives cores to images and depths first; None where the operator searches instead.

    Only the 20-core parts do so, for bfloat16; the caller says which type it is.
    """
    if layer.groups > 1 or layer.itemsize != 2 or machine.cores != CORES:
        return None
    axes = Axes.of(layer)
    batch = max(count for count in range(1, CORES + 1) if CORES % count == 0 and axes.batch % count == 0)
    grid = _rest(layer, axes, batch)
    if axes.kd > 1 or grid is None:
        return None
    share = Share(
        layer,
        axes.m,
        ceil_div(axes.n, grid.n) * layer.taps,
        ceil_div(layer.output[1], grid.k),
    )
    tile = _tile(share, machine)
    # Two copies of the whole reduction if they fit, else one of as much as does.
    slices = share.pixels // (tile.k * FRACTAL) or 1
    for copies, steps in ((2, (slices,)), (1, range(slices, 0, -1))):
        for step in steps:
            if copies * (left_bytes(share, tile, step) + right_bytes(share, tile, step)) <= machine.l1:
                return _plan(grid, share, tile, step, copies)
    return None


def _rest(layer: Layer, axes: Axes, batch: int) -> Grid | None:
    """Return the grid that gives the cores left over to rows or to channels, whichever loads less."""
    rest = CORES // batch
    grids = {}
    if layer.output[1] >= rest:
        rows = ceil_div(layer.output[1], rest)
        grids[Grid(batch, 1, 1, 1, 1, ceil_div(layer.output[1], rows))] = _loaded(layer, axes.n, rows)
    if axes.n >= rest:
        channels = ceil_div(axes.n, rest)
        grids[Grid(batch, 1, 1, rest, 1, 1)] = _loaded(layer, channels, layer.output[1])
    return min(grids, key=lambda grid: grids[grid], default=None)


def _loaded(layer: Layer, channels: int, rows: int) -> int:
    """Return the elements that a core loads for one image: both sides, once."""
    halo = (rows - 1) * layer.stride[1] + layer.spans[1]
    left = align(layer.co) * rows * layer.output[2]
    return left + channels * FRACTAL * halo * layer.input[2]


def _tile(share: Share, machine: Machine) -> Tile:
    """Return the base block: all rows up to its own, and an equal part of a window that is longer."""
    rows, window = share.m * FRACTAL, share.layer.taps * FRACTAL
    base_m, base_n, base_k = WIDE if rows <= WIDE[0] else TALL
    if window > base_n:
        base_n = align(ceil_div(window, ceil_div(window, base_n)))
    base_k = largest_whole(base_k, share.k * FRACTAL) or FRACTAL
    base_m = min(base_m, rows)
    sizes = base_m, min(machine.beside(base_m, base_n), share.n * FRACTAL), base_k
    m, n, k = (size // FRACTAL for size in sizes)
    return Tile(m, n, k)


def _plan(grid: Grid, share: Share, tile: Tile, step: int, copies: int) -> VendorPlan:
    """Return the plan of a tile on a grid."""
    return VendorPlan(
        *("core_grid", tile.m * FRACTAL, tile.n * FRACTAL, tile.k * FRACTAL, step, step),
        single_core_m=share.m * FRACTAL,
        single_core_n=share.n * FRACTAL,
        single_core_k=share.pixels,
        al1_buffers=copies,
        bl1_buffers=copies,
        used_cores=grid.cores,
        tasks=grid.cores,
        mapping="grid",
        order=("group", "batch", "kd", "n", "m", "k"),
        split="grid",
        grid=tuple(grid._asdict().items()),
        zero_first=True,
    )
