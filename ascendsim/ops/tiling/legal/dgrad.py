"""The legal cuts of an image product under the schedule `dgrad`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import product

import numpy as np
from numpy.typing import NDArray

from ascendsim.cube.load3d import FRACTAL_ROWS
from ascendsim.cube.tile_reads import round_up
from ascendsim.ops.plan import chunks
from ascendsim.ops.problems.dgrad import DgradGemm
from ascendsim.ops.problems.taps import Taps, first_boxes
from ascendsim.ops.schedules.dgrad.even import ends_of_parts
from ascendsim.ops.schedules.dgrad.tasks import taken_bytes
from ascendsim.ops.tiling.legal.space import COPIES, Base, Cut, Footprint, Grid, Space
from ascendsim.profile import Profile

Mask = NDArray[np.bool_]


class DgradSpace(Space):
    """Cuts of an image product: pixels in whole fractals, channels and reduction in groups of C0.

    As many parts of the reduction as it has groups of channels. Of numbers of slices for which a tile in L1
    holds the same box of taps, the least. Even parts of all pixels where one of them ends inside an image.
    """

    schedule = "dgrad"

    def __init__(self, gemm: DgradGemm, profile: Profile) -> None:
        super().__init__(gemm, profile)
        s = gemm.sliding
        self.c0 = c0 = s.c0
        self.ub_taken = taken_bytes(gemm, profile)
        self.sizes = (
            range(FRACTAL_ROWS, round_up(s.pixels, FRACTAL_ROWS) + 1, FRACTAL_ROWS),
            range(c0, gemm.columns + 1, c0),
            range(c0, gemm.all_taps.groups * c0 + 1, c0),
        )
        self.splits = range(1, gemm.channel_groups + 1)
        # The same few tiles are asked for again and again.
        self._tile_bytes = cache(
            lambda pixels, box, in_row, unit: s.tile_bytes(pixels, box, in_row=in_row, unit=unit)
        )
        self._even_parts = cache(self._parts_inside_images)
        self._boxes_of = cache(
            lambda base_k, channels: first_boxes(gemm.all_taps._replace(channels=channels), base_k, c0)
        )

    def steps(self, base_k: int, k_split: int) -> Sequence[tuple[int, int]]:
        """Return the (step_ka, step_kb) that cut the reduction into different tiles."""
        steps = list(self._boxes(base_k, k_split))
        return list(product(steps, steps))

    def _boxes(self, base_k: int, k_split: int) -> dict[int, Taps]:
        """Return the largest tile in L1 for each useful number of slices."""
        # The longest part has the largest tiles; what cuts it equally cuts the others so, too.
        found: dict[int, Taps] = self._boxes_of(base_k, -(-self.gemm.all_taps.channels // k_split))
        return found

    def least(self, base: Base) -> Footprint:
        """Return the least that any cut with this base block takes."""
        return self._footprint(base, 1, in_row=True)

    def footprint(self, cut: Cut) -> Footprint | None:
        """Return what a cut takes; None where L1 does not hold it, or where a smaller cut means the same."""
        boxes = self._boxes(cut.base.k, cut.k_split)
        lefts, rights = ([boxes[step]] for step in cut.steps)
        if cut.grid.pixel_dim:
            even = self._held_evenly(cut.base, lefts, rights, cut.copies)
            return self._cells(cut.base, cut.k_split, cut.grid) if even.all() else None
        whole, in_row = self._held(cut.base, lefts, rights, cut.copies)
        if not whole.any() and not in_row.any():
            return None
        return self._footprint(cut.base, cut.k_split, in_row=bool(in_row.any()))

    def grids(self, base: Base) -> list[Grid]:
        """Return the cells: even parts of all pixels, times each number of parts of the columns."""
        blocks = -(-self.gemm.columns // base.n)
        columns = [parts for parts in range(1, blocks + 1) if len(chunks(blocks, parts)) == parts]
        return [Grid(p, 0 if n == 1 else n) for p in self._even_parts(base.m) for n in columns]

    def _parts_inside_images(self, base_m: int) -> list[int]:
        """Return the numbers of even parts of which one ends inside an image: others cut whole images."""
        each, most = -(-self.gemm.sliding.pixels // FRACTAL_ROWS), base_m // FRACTAL_ROWS
        depths = sum(map(bool, self.gemm.depths))
        total = self.gemm.groups * self.gemm.batch * depths * each
        ends = {
            parts: ends_of_parts(total, parts, each, most) for parts in range(2, self.most_cores(total) + 1)
        }
        return [parts for parts, found in ends.items() if any(at % each for at in found)]

    def _cells(self, base: Base, k_split: int, grid: Grid) -> Footprint:
        """Return what the tiles of even parts take, and how many cells there are."""
        whole = self._footprint(base, k_split, in_row=False)
        return whole._replace(tasks=grid.cells)

    def count(self) -> int:
        """Return the number of legal tilings; tiles in L1 are counted for all steps at once."""
        boxes_of = cache(lambda base_k, k_split: list(self._boxes(base_k, k_split).values()))
        total = 0
        for base, k_split in product(self.bases(), self.splits):
            takes = [self._footprint(base, k_split, in_row=in_row) for in_row in (False, True)]
            completed = [self.completions(each) * self.most_cores(each.tasks) for each in takes]
            boxes = boxes_of(base.k, k_split)
            if self._all_held(base, boxes[-1]):
                total += completed[0] * len(boxes) ** 2 * len(COPIES) ** 2
                continue
            for copies in product(COPIES, COPIES):
                held = self._held(base, boxes, boxes, copies)
                total += sum(each * int(kind.sum()) for each, kind in zip(completed, held, strict=True))
        return total + self._count_even()

    def _count_even(self) -> int:
        """Return the number of those with even parts of all pixels."""
        boxes_of = cache(lambda base_k, k_split: list(self._boxes(base_k, k_split).values()))
        total = 0
        for base in self.bases():
            grids = self.grids(base)
            for k_split in self.splits if grids else ():
                cells = [self._cells(base, k_split, grid) for grid in grids]
                cores = sum(self.most_cores(each.tasks) for each in cells)
                boxes = boxes_of(base.k, k_split)
                held = [self._held_evenly(base, boxes, boxes, each) for each in product(COPIES, COPIES)]
                total += self.completions(cells[0]) * cores * sum(int(kind.sum()) for kind in held)
        return total

    def _all_held(self, base: Base, largest: Taps) -> bool:
        """Return whether L1 holds two copies of the largest tiles, and so all others."""
        most = COPIES[-1]
        tiles = self._tile_bytes(base.m, largest, False, 0) + self._column_bytes(base.n) * largest.groups
        return bool(most * tiles <= self.l1_room((most, most)))

    def _column_bytes(self, base_n: int) -> int:
        """Return the bytes of the weights of one tap of one channel group."""
        s = self.gemm.sliding
        return int(s.c0 * round_up(base_n, self.profile.cube.n0) * s.itemsize)

    def _footprint(self, base: Base, k_split: int, *, in_row: bool) -> Footprint:
        gemm, cube, s = self.gemm, self.profile.cube, self.gemm.sliding
        pixels = min(base.m, s.out_size[1]) if in_row else base.m
        tasks = gemm.groups * gemm.batch * sum(map(bool, gemm.depths))
        tasks *= s.pixel_tile_count(base.m, in_row=in_row) * -(-gemm.columns // base.n)
        itemsize = gemm.output.itemsize if k_split == 1 else 4
        return Footprint(round_up(pixels, cube.m0), base.k, round_up(base.n, cube.n0), itemsize, tasks)

    def _held(
        self, base: Base, lefts: list[Taps], rights: list[Taps], copies: tuple[int, int]
    ) -> tuple[Mask, Mask]:
        """Return for each pair of tiles whether L1 holds them: as ranges of whole rows, and inside a row."""
        s, (left_copies, right_copies) = self.gemm.sliding, copies
        right = right_copies * self._column_bytes(base.n) * np.array([box.groups for box in rights])

        def needed(pixels: int, *, in_row: bool) -> NDArray[np.int64]:
            left = left_copies * np.array([self._tile_bytes(pixels, box, in_row, 0) for box in lefts])
            needs: NDArray[np.int64] = left[:, None] + right
            return needs

        capacity, room = self.profile.buffers["L1"].capacity_bytes, self.l1_room(copies)
        # The schedule cuts inside rows only where whole ones do not fit.
        whole = needed(base.m, in_row=False)
        row = (whole > capacity) & (needed(base.m, in_row=True) <= room)
        shorter = base.m - FRACTAL_ROWS
        if shorter >= s.out_size[1]:
            # Both are as long as a row, so the shorter one stands for this one.
            row &= needed(shorter, in_row=False) <= capacity
        return whole <= room, row

    def _held_evenly(
        self, base: Base, lefts: list[Taps], rights: list[Taps], copies: tuple[int, int]
    ) -> Mask:
        """Return for each pair of tiles whether L1 holds them wherever a range of whole fractals begins."""
        tiles = np.array([self._tile_bytes(base.m, box, False, FRACTAL_ROWS) for box in lefts])
        right = copies[1] * self._column_bytes(base.n) * np.array([box.groups for box in rights])
        held: Mask = copies[0] * tiles[:, None] + right <= self.l1_room(copies)
        return held
