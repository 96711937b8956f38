"""The grid of a partial plan: which parts of a product are the cells that cores take."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Any

from ascendsim.ops.plan import GRID, Tiling
from ascendsim.ops.problems.dgrad import DgradGemm
from ascendsim.ops.problems.wgrad import WgradGemm
from ascendsim.ops.schedules.base import Schedule
from ascendsim.ops.schedules.wgrad.schedule import Wgrad
from ascendsim.ops.tiling.fitting import unit_of
from ascendsim.ops.tiling.request import PlanRequest


def on_grid(tiling: Tiling, kind: type[Schedule], request: PlanRequest) -> Tiling:
    """Return the tiling with the parts of the grid that are not given, and base blocks inside its cells."""
    partial = request.fixed
    given = {axis: max(1, partial.fields[axis]) for axis in GRID if axis in partial.fields}
    # Even parts of all pixels stand for those of images and of their tiles; blocks cut themselves.
    if partial.fields.get("pixel_dim"):
        free: dict[str, Any] = {axis: 0 for axis in GRID if axis not in partial.fields}
        return replace(tiling, **free)
    # A grid cuts the reduction of grad_weight itself: parts that are asked for come without one.
    if not given and kind.makes == "grad_weight" and "k_split" in partial.fields and "m_dim" in kind.reads:
        return replace(tiling, batch_dim=0, m_dim=0, n_dim=0, k_dim=0)
    # Nests that deal shares know parts of the images alone, and number their tasks themselves.
    if not given or "m_dim" not in kind.reads:
        return tiling
    extents, unit = _extents(request.gemm, kind), unit_of(request)
    left = (partial.block_dim or request.profile.cores.cube) // prod(given.values())
    parts = dict(given)
    for axis in extents:
        if axis not in given:
            most = extents[axis] if axis in ("batch_dim", "k_dim") else -(-extents[axis] // unit)
            each = -(-most // max(1, min(most, left)))
            # So many parts as have work: 32 images in 12 parts are eleven of three, and no twelfth.
            parts[axis] = -(-most // each)
            left //= parts[axis]
    # A grid cuts the reduction of grad_weight itself.
    cut = parts if kind.makes == "grad_input" else {**parts, "k_split": 1}
    for size, axis in (("base_m", "m_dim"), ("base_n", "n_dim")):
        # Blocks that cut a cell evenly: others would leave cells of the grid without a block of their own.
        cell = -(-extents[axis] // parts.get(axis, 1))
        even = -(-cell // -(-cell // getattr(tiling, size)))
        cut[size] = -(-even // unit) * unit
    return replace(tiling, **{name: value for name, value in cut.items() if name not in partial.fields})


def dealt_again(tiling: Tiling, kind: type[Schedule], request: PlanRequest) -> Tiling | None:
    """Return the tiling with the grid whose busiest cell has the fewest base blocks; None: as it is.

    A grid is chosen for base blocks of its own size. Of larger ones it can leave cells with a single block,
    and other cells with none. The reduction of grad_weight is cut in parts only where it was.
    """
    partial = request.fixed
    sized = partial.fields.keys() & {"base_m", "base_n"} and not partial.fields.keys() & {*GRID, "pixel_dim"}
    if not tiling.has_grid or not sized or "m_dim" not in kind.reads:
        return None
    extents = _extents(request.gemm, kind)
    sizes = {"m_dim": tiling.base_m, "n_dim": tiling.base_n}
    # Even parts of all pixels are no parts of images and tiles, and give way to these.
    own = {axis: max(1, getattr(tiling, axis)) for axis in extents}
    whole = isinstance(request.gemm, WgradGemm) and own["batch_dim"] * own["k_dim"] == 1
    # Parts that are added ask for zeros to add them to, by a kernel of its own.
    free = {axis: 1 if whole and axis in ("batch_dim", "k_dim") else size for axis, size in extents.items()}

    def blocks(grid: dict[str, int]) -> int:
        cells = {axis: -(-extents[axis] // parts) for axis, parts in grid.items()}
        return prod(-(-cell // sizes.get(axis, 1)) for axis, cell in cells.items())

    cores = partial.block_dim or request.profile.cores.cube
    found = min(_grids(free, sizes, cores), key=lambda grid: (blocks(grid), prod(grid.values())))
    if not tiling.pixel_dim and blocks(own) <= blocks(found):
        return None
    parts: dict[str, Any] = {"pixel_dim": 0, **dict.fromkeys(GRID, 0), **found}
    return replace(tiling, **parts)


def _grids(extents: dict[str, int], sizes: dict[str, int], cores: int) -> Iterator[dict[str, int]]:
    """Yield the grids of at most so many cells; those first that load operands least often."""
    if not extents:
        yield {}
        return
    axis, *rest = extents
    most = -(-extents[axis] // sizes.get(axis, 1))
    # Of parts that are equally long at most the fewest: 32 images in 12 parts are eleven of three.
    for each in sorted({-(-most // parts) for parts in range(1, min(most, cores) + 1)}):
        parts = -(-most // each)
        for others in _grids({name: extents[name] for name in rest}, sizes, cores // parts):
            yield {axis: parts, **others}


def _extents(gemm: DgradGemm | WgradGemm, kind: type[Schedule]) -> dict[str, int]:
    """Return what each axis of a grid cuts, those first that cost no operand a second load.

    Images, rows or fractals of an image, and elements along m and n.
    """
    if isinstance(gemm, DgradGemm):
        return {"batch_dim": gemm.batch, "m_dim": gemm.sliding.pixels, "n_dim": gemm.columns}
    columns = gemm.all_taps.groups * gemm.sliding.c0
    units = kind.image_units(gemm) if issubclass(kind, Wgrad) else gemm.sliding.out_size[0]
    return {"batch_dim": gemm.batch, "k_dim": units, "m_dim": gemm.rows, "n_dim": columns}
