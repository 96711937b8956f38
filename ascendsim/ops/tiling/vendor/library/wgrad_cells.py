"""The base blocks of the cells of a grid, and the cycles that the library of the 910B takes them to cost.

The library minimises cycles that its own constants give, which are not those of the machine. So they stand
here and not in a profile: a machine with other rates does not change what the library believes.

Source   the published cost model of the library; on 910B2 counters of AlexNet's conv2 and conv4 agree
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ascendsim.cube.load3d import row_spans
from ascendsim.frozen import cached_property
from ascendsim.ops.problems.wgrad import WgradGemm
from ascendsim.ops.tiling.vendor.library.room import Room
from ascendsim.profile import Profile

# Integers, one for each base block; a single one stands for all.
Ints: TypeAlias = Any

FRACTAL = 16
# What the library takes an instruction to cost: cycles for each command, bytes a cycle of one core.
LOAD3D_CYCLES, MMAD_CYCLES, COPY_CYCLES = 42, 20, 300
COPY_BYTES, READ_BYTES, WRITE_BYTES = 96, 256, 128
FAST_STRIDES, SLOW_BYTES = (1, 2, 4, 8), {"L0A": 32, "L0B": 28}
FLOAT32_SLOWER = 2  # beside HF32: a Mmad of float32 takes twice its fractals
EXTRA = {"L0A": 0, "L0B": 2}
# Fractals of one side of a base block.
LONGEST = 16


class Grid(NamedTuple):
    """Parts of the batch, of the channels of the big and of the small side, and of the rows."""

    batch: int
    columns: int
    rows: int
    height: int


class Cell(NamedTuple):
    """What one core of a grid makes.

    images, rows   of the small side; a row is one of its pixels
    m, n           fractals of the product
    groups         channel groups of the big side
    """

    images: Ints
    rows: Ints
    m: Ints
    n: Ints
    groups: Ints


class Tiles(NamedTuple):
    """Fractals of a base block, pixels of one Mmad, and the cycles of a whole cell as the library sees it."""

    m: int
    n: int
    pixels: int
    cycles: float


@dataclass(frozen=True)
class GridCells:
    """The cells of any grid for one product of matrices."""

    gemm: WgradGemm
    profile: Profile

    @cached_property
    def _units(self) -> int:
        """Fractals of an operand for 16 x 16 elements: 2 where an element has 4 bytes."""
        return FRACTAL // self.gemm.sliding.c0 or 1

    @cached_property
    def _room(self) -> Room:
        return Room.of(self.profile)

    def ranked(self, grids: Sequence[Grid]) -> Iterator[tuple[Grid, Tiles]]:
        """Yield the base blocks of the cells of some grids, those of the fewest cycles first.

        Of equals the block of an earlier grid, then the longer one, comes first.
        """
        cells = [self.of(grid) for grid in grids]
        # One array for all cells, and for their blocks: numpy takes as long for a few numbers as for a few
        # hundred.
        columns = np.array(cells, np.int64).reshape(-1, len(Cell._fields)).T
        every = Cell(*columns)
        whole = self.window_bytes(every, every.n).tolist()
        each = enumerate(zip(cells, whole, strict=True))
        cuts = [(number, *cut) for number, (cell, size) in each for cut in self._cuts(cell, size)]
        if not cuts:
            return
        numbers, *bases = np.array(cuts).T
        cycles = self._cycles(Cell(*columns[:, numbers]), *bases)
        for best in np.argsort(cycles, kind="stable").tolist():
            number, m, n, pixels = cuts[best]
            yield grids[number], Tiles(m, n, pixels, float(cycles[best]))

    def of(self, grid: Grid) -> Cell:
        """Return what one core of a grid makes."""
        whole = self.gemm.all_taps
        groups = -(-whole.channels // grid.columns)
        return Cell(
            -(-self.gemm.batch // grid.batch),
            -(-self.gemm.sliding.out_size[0] // grid.height),
            -(-self.gemm.rows // (FRACTAL * grid.rows)),
            -(-groups * whole.rows * whole.cols * self.gemm.sliding.c0 // FRACTAL),
            groups,
        )

    def _cuts(self, cell: Cell, right: int) -> Iterator[tuple[int, int, int]]:
        """Yield the base blocks of a cell, longest first: fractals along m and n, pixels of one Mmad.

        right   bytes of all that the cell needs of the big side
        """
        room, pixels = self._room, cell.rows * self.gemm.sliding.out_size[1]
        # A side is at most 16 fractals long, 32 where L1 holds its operand whole for the image of a cell.
        left = pixels * cell.m * FRACTAL * self.gemm.sliding.itemsize
        long_m, long_n = (
            LONGEST * (1 + (whole_bytes <= self.profile.buffers["L1"].capacity_bytes))
            for whole_bytes in (left, right)
        )
        runs = divisors(-(-pixels // FRACTAL), room.operand)
        columns = _even(cell.n, min(long_n, room.results))
        for m in _even(cell.m, min(long_m, room.results)):
            for n in columns:
                fitting = bisect(runs, room.operand // (self._units * max(m, n)))
                if fitting and m * n <= room.results:
                    yield m, n, runs[fitting - 1] * FRACTAL

    def _cycles(self, cell: Cell, m: Ints, n: Ints, pixels: Ints) -> Ints:
        """Return the cycles of cells by their base blocks, each number one of an array."""
        s, width = self.gemm.sliding, self.gemm.sliding.out_size[1]
        all_pixels = cell.rows * width
        steps = cell.images * -(-all_pixels // pixels)
        blocks = -(-cell.m // m) * -(-cell.n // n)
        slower = FLOAT32_SLOWER if self.gemm.compute_dtype == "float32" else 1
        mmad = slower * m * n * self._units * (pixels // FRACTAL) + MMAD_CYCLES
        # Hundreds of blocks have a few lengths.
        lengths, which = np.unique(pixels, return_inverse=True)
        left, right = (
            np.array([_load_cycles(width, buffer, stride, run) for run in lengths.tolist()])[which]
            for buffer, stride in (("L0A", 1), ("L0B", s.stride[1]))
        )
        mte1 = 2 * LOAD3D_CYCLES + left * m * self._units + right * n * self._units
        moved = all_pixels * m * FRACTAL * s.itemsize + self.window_bytes(cell, n)
        mte2 = cell.images * (2 * COPY_CYCLES + moved / COPY_BYTES)
        result = m * n * FRACTAL * FRACTAL * 4
        fix = result / READ_BYTES + result / WRITE_BYTES
        return blocks * (np.maximum(steps * np.maximum(mmad, mte1), mte2) + fix)

    def window_bytes(self, cell: Cell, n: Ints, pixels: int = 0) -> Ints:
        """Bytes of the big side that a run of columns needs for the rows of a cell, or for pixels of one."""
        s, whole = self.gemm.sliding, self.gemm.all_taps
        taps, groups = whole.rows * whole.cols, n * self._units
        cut = (groups % taps > 0) & (taps % groups > 0)
        channels = np.minimum(cell.groups, -(-groups // taps) + cut)
        reach = (cell.rows - 1) * s.stride[0] + (s.kernel[0] - 1) * s.dilation[0] + 1
        width = s.image_size[1]
        if pixels and cell.rows == 1:
            width = min(width, (pixels - 1) * s.stride[1] + (s.kernel[1] - 1) * s.dilation[1] + 1)
        return channels * np.minimum(s.image_size[0], reach) * (width * s.c0 * s.itemsize)


# The searches for all layers of a network ask for a few lengths some thousand times.
@lru_cache(maxsize=256)
def _load_cycles(width: int, buffer: str, stride: int, pixels: int) -> int:
    """Cycles of one group's fractals for a run of pixels from the beginning of a row."""
    if stride not in FAST_STRIDES:
        return 512 // SLOW_BYTES[buffer] * -(-pixels // FRACTAL)
    spans = row_spans(0, pixels, width)
    each = 2 * stride + EXTRA[buffer]
    return sum(count * (each + switched - 1) for switched, count in spans.items())


@lru_cache(maxsize=1024)
def divisors(number: int, most: int, *, and_all: bool = False) -> tuple[int, ...]:
    """Return the divisors up to a limit, and the limit itself if asked."""
    found = [part for part in range(1, min(number, most) + 1) if number % part == 0]
    return (*found, most) if and_all and most not in found else tuple(found)


@lru_cache(maxsize=1024)
def _even(total: int, most: int) -> tuple[int, ...]:
    """Return the largest parts of the even cuts of a number into parts of at most `most`, longest first."""
    # Into how many parts of `size` it goes, the largest of an even cut into as many has that size.
    sizes = range(min(total, most), 0, -1)
    return tuple([size for size in sizes if -(-total // -(-total // size)) == size])
