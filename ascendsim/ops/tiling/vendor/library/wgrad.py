"""The grid and the tiles of a 2-D grad_weight as the library of the 910B's operators searches them.

The library minimises cycles that its own constants give, which are not those of the machine. So they stand
here and not in a profile: a machine with other rates does not change what the library believes.

Source   the published cost model of the library; on 910B2 counters of AlexNet's conv2 and conv4 agree
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ascendsim.cube.load3d import row_spans
from ascendsim.ops.plan import Tiling
from ascendsim.ops.problems.wgrad import WgradGemm
from ascendsim.ops.tiling.vendor.library.room import Room
from ascendsim.profile import Profile

FRACTAL = 16
# What the library takes an instruction to cost: cycles for each command, bytes a cycle of one core.
LOAD3D_CYCLES, MMAD_CYCLES, COPY_CYCLES = 42, 20, 300
COPY_BYTES, READ_BYTES, WRITE_BYTES = 96, 256, 128
FAST_STRIDES, SLOW_BYTES = (1, 2, 4, 8), {"L0A": 32, "L0B": 28}
FLOAT32_SLOWER = 2  # beside HF32: a Mmad of float32 takes twice its fractals
EXTRA = {"L0A": 0, "L0B": 2}
# Fractals of one side of a base block.
LONGEST = 16
# Grids that use fewer of the cores are not looked at.
LEAST_USE = 0.8


class Grid(NamedTuple):
    """Parts of the batch, of the channels of the big and of the small side, and of the rows."""

    batch: int
    columns: int
    rows: int
    height: int


class Tiles(NamedTuple):
    """Fractals of a base block, pixels of one Mmad, and the cycles of a whole cell as the library sees it."""

    m: int
    n: int
    pixels: int
    cycles: float


def library_wgrad(gemm: WgradGemm, profile: Profile, blocks: int = 0) -> Tiling | None:
    """Return the tiling of grad_weight, None where L1 does not hold the tiles of one Mmad twice.

    Grid     divisors of the batch, of the channel groups of both sides, and the number of cores for the
             batch; the rows take the cores that are left
    Tiles    at most 128 fractals of L0C in one copy; the longest run of pixels that divides those of a cell
    L1       the most pixels of both operands that fit in two copies
    blocks   cells of the grid, None returned where none has so many; 0: at most one for each core
    """
    search = _Search(gemm, profile)
    found = [(tiles.cycles, grid, tiles) for grid in search.grids(blocks) for tiles in search.tiles(grid)]
    for _, grid, tiles in sorted(found, key=lambda one: one[0]):
        step = search.step(grid, tiles)
        if step:
            used = prod(grid)
            base = tiles.m * FRACTAL, min(tiles.n * FRACTAL, search.columns), tiles.pixels
            cut = Tiling(*base, step, step, used_cores=used, batch_dim=grid.batch, k_dim=grid.height)
            return _dealt(cut, gemm, grid, search.columns)
    return None


def _dealt(tiling: Tiling, gemm: WgradGemm, grid: Grid, columns: int) -> Tiling:
    """Return the tiling with the parts along m and n, and no more cores than there are cells."""
    base_m = min(tiling.base_m, gemm.rows)
    m, n = -(-gemm.rows // base_m), -(-columns // tiling.base_n)
    parts = min(grid.rows, m), min(grid.columns, n)
    used = tiling.batch_dim * tiling.k_dim * parts[0] * parts[1]
    return replace(tiling, base_m=base_m, m_dim=parts[0], n_dim=parts[1], used_cores=used)


@dataclass(frozen=True)
class _Search:
    """The library's search over one product."""

    gemm: WgradGemm
    profile: Profile

    @property
    def columns(self) -> int:
        """Columns of the product at one kernel depth."""
        return self.gemm.all_taps.groups * self.gemm.sliding.c0

    @cached_property
    def _units(self) -> int:
        """Fractals of an operand for 16 x 16 elements: 2 where an element has 4 bytes."""
        return FRACTAL // self.gemm.sliding.c0 or 1

    def grids(self, blocks: int = 0) -> Iterator[Grid]:
        """Yield the grids that use enough cores; where there is too little work for that, all of them.

        blocks   only those of so many cells; 0: of any number
        """
        cores, batch, whole = self.profile.cores.cube, self.gemm.batch, self.gemm.all_taps
        heights = self.gemm.sliding.out_size[0]
        found = []
        for b in _divisors(batch, cores, and_all=batch >= cores):
            for n in _divisors(whole.channels, cores // b):
                for m in _divisors(-(-self.gemm.rows // FRACTAL), cores // (b * n)):
                    found.append(Grid(b, n, m, min(heights, cores // (b * n * m))))
        if blocks:
            found = [grid for grid in found if prod(grid) == blocks]
        busy = [grid for grid in found if prod(grid) >= LEAST_USE * cores]
        yield from busy or found

    def tiles(self, grid: Grid) -> Iterator[Tiles]:
        """Yield the base blocks of a cell."""
        gemm, whole, room = self.gemm, self.gemm.all_taps, Room.of(self.profile)
        height, width = gemm.sliding.out_size
        rows = -(-height // grid.height)
        pixels = rows * width
        m_all = -(-gemm.rows // (FRACTAL * grid.rows))
        groups = -(-whole.channels // grid.columns) * whole.rows * whole.cols
        n_all = -(-groups * gemm.sliding.c0 // FRACTAL)
        # A side is at most 16 fractals long, 32 where L1 holds its operand whole for the image of a cell.
        left = pixels * m_all * FRACTAL * gemm.sliding.itemsize
        long_m, long_n = (
            LONGEST * (1 + (whole_bytes <= self.profile.buffers["L1"].capacity_bytes))
            for whole_bytes in (left, self._window_bytes(grid, n_all, rows))
        )
        for m in _even(m_all, min(long_m, room.results)):
            for n in _even(n_all, min(long_n, room.results // m)):
                k = _divisor(-(-pixels // FRACTAL), room.operand // (self._units * max(m, n)))
                if k:
                    yield self._costed(grid, (m_all, n_all), (m, n, k * FRACTAL), rows)

    def _costed(self, grid: Grid, sizes: tuple[int, int], base: tuple[int, int, int], rows: int) -> Tiles:
        """Return a base block with the cycles of a cell."""
        gemm, s, (m, n, k) = self.gemm, self.gemm.sliding, base
        images = -(-gemm.batch // grid.batch)
        width = s.out_size[1]
        pixels = rows * width
        steps = images * -(-pixels // k)
        blocks = -(-sizes[0] // m) * -(-sizes[1] // n)
        slower = FLOAT32_SLOWER if gemm.compute_dtype == "float32" else 1
        mmad = slower * m * n * self._units * (k // FRACTAL) + MMAD_CYCLES
        mte1 = 2 * LOAD3D_CYCLES + _load_cycles(width, "L0A", 1, k) * m * self._units
        mte1 += _load_cycles(width, "L0B", s.stride[1], k) * n * self._units
        moved = pixels * m * FRACTAL * s.itemsize + self._window_bytes(grid, n, rows)
        mte2 = images * (2 * COPY_CYCLES + moved / COPY_BYTES)
        result = m * n * FRACTAL * FRACTAL * 4
        fix = result / READ_BYTES + result / WRITE_BYTES
        return Tiles(m, n, k, blocks * (max(steps * max(mmad, mte1), mte2) + fix))

    def _window_bytes(self, grid: Grid, n: int, rows: int, pixels: int = 0) -> int:
        """Bytes of the big side that a run of columns needs for some output rows, or for pixels of one."""
        s, whole = self.gemm.sliding, self.gemm.all_taps
        taps, groups = whole.rows * whole.cols, n * self._units
        cut = groups % taps and taps % groups
        channels = min(-(-whole.channels // grid.columns), -(-groups // taps) + bool(cut))
        height = min(s.image_size[0], (rows - 1) * s.stride[0] + (s.kernel[0] - 1) * s.dilation[0] + 1)
        width = s.image_size[1]
        if rows == 1 and pixels:
            width = min(width, (pixels - 1) * s.stride[1] + (s.kernel[1] - 1) * s.dilation[1] + 1)
        return channels * height * width * s.c0 * s.itemsize

    def step(self, grid: Grid, tiles: Tiles) -> int:
        """Return the most Mmads whose pixels fit into L1 in two copies, evenly; 0 if not even one does."""
        s, rows = self.gemm.sliding, -(-self.gemm.sliding.out_size[0] // grid.height)
        pixels, capacity = rows * s.out_size[1], self.profile.buffers["L1"].capacity_bytes
        for parts in range(1, -(-pixels // tiles.pixels) + 1):
            step = -(-pixels // (tiles.pixels * parts))
            run = step * tiles.pixels
            high = min(rows, -(-run // s.out_size[1]) + (run % s.out_size[1] > 0))
            left = run * tiles.m * FRACTAL * s.itemsize
            if 2 * (left + self._window_bytes(grid, tiles.n, high, run)) <= capacity:
                return step
        return 0


# A search asks for a few lengths some hundred times.
@lru_cache(maxsize=256)
def _load_cycles(width: int, buffer: str, stride: int, pixels: int) -> int:
    """Cycles of one group's fractals for a run of pixels from the beginning of a row."""
    if stride not in FAST_STRIDES:
        return 512 // SLOW_BYTES[buffer] * -(-pixels // FRACTAL)
    spans = row_spans(0, pixels, width)
    each = 2 * stride + EXTRA[buffer]
    return sum(count * (each + switched - 1) for switched, count in spans.items())


def _divisors(number: int, most: int, *, and_all: bool = False) -> list[int]:
    """Return the divisors up to a limit, and the limit itself if asked."""
    found = [part for part in range(1, min(number, most) + 1) if number % part == 0]
    return [*found, most] if and_all and most not in found else found


def _even(total: int, most: int) -> list[int]:
    """Return the largest parts of the even cuts of a number into parts of at most `most`."""
    sizes: NDArray[np.int64] = -(-total // np.arange(max(1, -(-total // most)), total + 1))
    return sorted({int(size) for size in sizes}, reverse=True)


def _divisor(number: int, most: int) -> int:
    """Return the largest divisor up to a limit, 0 if there is none."""
    return next((part for part in range(min(number, most), 0, -1) if number % part == 0), 0)
