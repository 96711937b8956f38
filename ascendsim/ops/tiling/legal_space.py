"""Limits of a loop nest: the legal values of each field, and the room that a cut of the product takes.

A tiling is legal if every buffer holds the largest tiles of all operands at once, whichever core gets them,
and if no block or tile is shorter than it says (`Schedule.canonical`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ascendsim.frozen import cached_property
from ascendsim.instructions.cube import FRACTAL_ROWS, round_up
from ascendsim.ops.plan import Tiling, chunks
from ascendsim.ops.problems.products import DgradGemm, WgradGemm
from ascendsim.ops.problems.sliding import Taps, first_box, first_boxes
from ascendsim.ops.schedules.blocks import ACCUMULATOR_BYTES
from ascendsim.ops.schedules.dgrad.tasks import ends_of_parts, taken_bytes
from ascendsim.ops.schedules.wgrad.cut import range_in_row
from ascendsim.profile import Profile

# One tile, or two for ping-pong.
COPIES = (1, 2)
# L1 is filled in blocks of this many bytes: C0 channels of a pixel.
BLOCK_BYTES = 32


class BaseSizes(NamedTuple):
    """The sizes of a base block."""

    m: int
    n: int
    k: int


class CellGrid(NamedTuple):
    """The cells that cores make: even parts of all pixels, and parts of the columns; 0: none."""

    pixel_dim: int = 0
    n_dim: int = 0

    @property
    def cells(self) -> int:
        """The number of cells."""
        return self.pixel_dim * max(1, self.n_dim)


NO_GRID = CellGrid()


class L1Cut(NamedTuple):
    """The fields that decide which tiles lie in L1."""

    base: BaseSizes
    k_split: int
    steps: tuple[int, int]
    copies: tuple[int, int]
    grid: CellGrid = NO_GRID


class Footprint(NamedTuple):
    """The largest tiles in L0 in whole fractals, bytes of an element that is written, tasks to be dealt."""

    m: int
    k: int
    n: int
    itemsize: int
    tasks: int


class Space(ABC):
    """The legal cuts of one product.

    sizes    the legal values of base_m, base_n and base_k, each for itself
    splits   those of k_split
    c0       channels that leave L0C together; 0: rows of a plain matrix
    ub_taken bytes of UB that something else than results takes
    group_merge  groups of the convolution that the product has as one
    """

    schedule: str
    sizes: tuple[range, range, range]
    splits: range
    c0: int
    ub_taken: int = 0
    group_merge: int = 1

    def __init__(self, gemm: Any, profile: Profile) -> None:
        self.gemm, self.profile = gemm, profile

    @abstractmethod
    def steps(self, base_k: int, k_split: int) -> Sequence[tuple[int, int]]:
        """Return the (step_ka, step_kb) that cut the reduction into different tiles."""

    @abstractmethod
    def least(self, base: BaseSizes) -> Footprint:
        """Return the least that any cut with this base block takes."""

    @abstractmethod
    def footprint(self, cut: L1Cut) -> Footprint | None:
        """Return the room of a cut; None where L1 does not hold it, or what runs is smaller."""

    @abstractmethod
    def count(self) -> int:
        """Return the number of legal tilings, without making each of them."""

    @cached_property
    def held(self) -> tuple[range, range, range]:
        """The sizes of each side that L0 holds beside the least of the other two."""
        least = BaseSizes(*(legal[0] for legal in self.sizes))

        def holds(side: str, legal: range) -> range:
            def lacks(size: int) -> bool:
                return self.ways(self.least(least._replace(**{side: size}))) is None

            return legal[: bisect_left(legal, True, key=lacks)]

        m, n, k = self.sizes
        return holds("m", m), holds("n", n), holds("k", k)

    def longest_k(self, k_split: int) -> int:
        """Return the most that base_k may be beside a k_split."""
        del k_split
        return self.sizes[2][-1]

    def splits_of(self, base_k: int) -> range:
        """Return the legal values of k_split beside a base_k."""
        return self.splits[: bisect_left(self.splits, True, key=lambda split: self.longest_k(split) < base_k)]

    def bases(self) -> Iterator[BaseSizes]:
        """Yield the base blocks that L0 may hold."""
        for sizes in product(*self.held):
            base = BaseSizes(*sizes)
            if self.ways(self.least(base)):
                yield base

    def grids(self, base: BaseSizes) -> Sequence[CellGrid]:
        """Return the cells that a base block may be dealt by; none, which stands beside them, is left out."""
        del base
        return ()

    def cuts(self, base: BaseSizes) -> Iterator[tuple[L1Cut, Footprint]]:
        """Yield the legal cuts with a base block, and their room."""
        for k_split in self.splits_of(base.k):
            for steps, *copies in product(self.steps(base.k, k_split), COPIES, COPIES):
                for grid in (NO_GRID, *self.grids(base)):
                    cut = L1Cut(base, k_split, steps, (copies[0], copies[1]), grid)
                    footprint = self.footprint(cut)
                    if footprint is not None:
                        yield cut, footprint

    def ways(self, footprint: Footprint) -> tuple[int, int, int] | None:
        """Return the most copies of the tiles in L0A, L0B and L0C; None if any does not fit."""
        m, k, n, itemsize, _ = footprint
        size = self.gemm.sliding.itemsize
        most = (
            self.copies_held("L0A", m * k * size),
            self.copies_held("L0B", k * n * size),
            self.copies_held("L0C", m * n * ACCUMULATOR_BYTES),
        )
        return most if all(most) and self._leaves(m, itemsize) else None

    def completions(self, footprint: Footprint) -> int:
        """Return in how many ways copies in L0 complete a cut, on one number of cores."""
        return prod(self.ways(footprint) or (0,))

    def most_cores(self, tasks: int) -> int:
        """Return the number of cores that get work from `tasks` tasks."""
        # Of a gradient to which nothing contributes one core does nothing.
        return max(1, min(self.profile.cores.cube, tasks))

    def copies_held(self, buffer: str, size_bytes: int) -> int:
        """Return how many tiles of `size_bytes` a buffer holds, at most two."""
        figures = self.profile.buffers[buffer]
        return min(COPIES[-1], figures.capacity_bytes // round_up(size_bytes, figures.alignment_bytes))

    def l1_room(self, copies: tuple[int, int]) -> int:
        """Return the bytes of L1 for the given numbers of tiles of both operands."""
        # Where slots begin farther apart than blocks, each of them may lose what lies between.
        figures = self.profile.buffers["L1"]
        return figures.capacity_bytes - sum(copies) * max(0, figures.alignment_bytes - BLOCK_BYTES)

    def _leaves(self, m: int, itemsize: int) -> bool:
        """Return whether tiles of `m` rows can leave L0C: without Fixpipe two pieces of them lie in UB."""
        if self.profile.has_path("L0C", "GM"):
            return True
        ub, piece = self.profile.buffers["UB"], m * (self.c0 or self.profile.cube.n0) * itemsize
        return self.ub_taken + 2 * round_up(piece, ub.alignment_bytes) <= ub.capacity_bytes


Mask = NDArray[np.bool_]


class DgradSpace(Space):
    """Cuts of an image product: pixels in whole fractals, channels and reduction in groups of C0.

    As many parts of the reduction as it has groups of channels, the longest no shorter than base_k. Of the
    numbers of slices for which a tile in L1 holds the same box of taps, the least. Even parts of all pixels
    where one of them ends inside an image. Blocks inside rows of the image are no longer than a row.
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

    def longest_k(self, k_split: int) -> int:
        """Return the length of the longest part of the reduction."""
        whole = self.gemm.all_taps
        return int(-(-whole.channels // k_split) * whole.rows * whole.cols * self.c0)

    def steps(self, base_k: int, k_split: int) -> Sequence[tuple[int, int]]:
        """Return the (step_ka, step_kb) that cut the reduction into different tiles."""
        steps = list(self._boxes(base_k, k_split))
        return list(product(steps, steps))

    def _boxes(self, base_k: int, k_split: int) -> dict[int, Taps]:
        """Return the largest tile in L1 for each useful number of slices."""
        # The longest part has the largest tiles; what cuts it equally cuts the others so, too.
        found: dict[int, Taps] = self._boxes_of(base_k, -(-self.gemm.all_taps.channels // k_split))
        return found

    def least(self, base: BaseSizes) -> Footprint:
        """Return the least that any cut with this base block takes."""
        return self._footprint(base, 1, in_row=True)

    def footprint(self, cut: L1Cut) -> Footprint | None:
        """Return the room of a cut; None where L1 does not hold it, or what runs is smaller."""
        if cut.k_split not in self.splits_of(cut.base.k):
            return None
        boxes = self._boxes(cut.base.k, cut.k_split)
        lefts, rights = ([boxes[step]] for step in cut.steps)
        if cut.grid.pixel_dim:
            even = self._held_evenly(cut.base, lefts, rights, cut.copies)
            return self._cells(cut.base, cut.k_split, cut.grid) if even.all() else None
        whole, in_row = self._held(cut.base, lefts, rights, cut.copies)
        if not whole.any() and not in_row.any():
            return None
        return self._footprint(cut.base, cut.k_split, in_row=bool(in_row.any()))

    def grids(self, base: BaseSizes) -> list[CellGrid]:
        """Return the cells: even parts of all pixels, times each number of parts of the columns."""
        blocks = -(-self.gemm.columns // base.n)
        columns = [parts for parts in range(1, blocks + 1) if len(chunks(blocks, parts)) == parts]
        return [CellGrid(p, 0 if n == 1 else n) for p in self._even_parts(base.m) for n in columns]

    def _parts_inside_images(self, base_m: int) -> list[int]:
        """Return the numbers of even parts with a part that ends inside an image: others cut whole images."""
        each, most = -(-self.gemm.sliding.pixels // FRACTAL_ROWS), base_m // FRACTAL_ROWS
        depths = sum(map(bool, self.gemm.depths))
        total = self.gemm.groups * self.gemm.batch * depths * each
        ends = {
            parts: ends_of_parts(total, parts, each, most) for parts in range(2, self.most_cores(total) + 1)
        }
        return [parts for parts, found in ends.items() if any(at % each for at in found)]

    def _cells(self, base: BaseSizes, k_split: int, grid: CellGrid) -> Footprint:
        """Return the room of the tiles of even parts, and the number of cells."""
        whole = self._footprint(base, k_split, in_row=False)
        return whole._replace(tasks=grid.cells)

    def count(self) -> int:
        """Return the number of legal tilings; tiles in L1 are counted for all steps at once."""
        boxes_of = cache(lambda base_k, k_split: list(self._boxes(base_k, k_split).values()))
        total = 0
        for base, k_split in self._split_bases():
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

    def _split_bases(self) -> Iterator[tuple[BaseSizes, int]]:
        return ((base, split) for base in self.bases() for split in self.splits_of(base.k))

    def _count_even(self) -> int:
        """Return the number of those with even parts of all pixels."""
        boxes_of = cache(lambda base_k, k_split: list(self._boxes(base_k, k_split).values()))
        total = 0
        for base in self.bases():
            grids = self.grids(base)
            for k_split in self.splits_of(base.k) if grids else ():
                cells = [self._cells(base, k_split, grid) for grid in grids]
                cores = sum(self.most_cores(each.tasks) for each in cells)
                boxes = boxes_of(base.k, k_split)
                held = [self._held_evenly(base, boxes, boxes, each) for each in product(COPIES, COPIES)]
                total += self.completions(cells[0]) * cores * sum(int(kind.sum()) for kind in held)
        return total

    def _all_held(self, base: BaseSizes, largest: Taps) -> bool:
        """Return whether L1 holds two copies of the largest tiles, and so all others."""
        most = COPIES[-1]
        tiles = self._tile_bytes(base.m, largest, False, 0) + self._column_bytes(base.n) * largest.groups
        return bool(most * tiles <= self.l1_room((most, most)))

    def _column_bytes(self, base_n: int) -> int:
        """Return the bytes of the weights of one tap of one channel group."""
        s = self.gemm.sliding
        return int(s.c0 * round_up(base_n, self.profile.cube.n0) * s.itemsize)

    def _footprint(self, base: BaseSizes, k_split: int, *, in_row: bool) -> Footprint:
        gemm, cube, s = self.gemm, self.profile.cube, self.gemm.sliding
        tasks = gemm.groups * gemm.batch * sum(map(bool, gemm.depths))
        tasks *= s.pixel_tile_count(base.m, in_row=in_row) * -(-gemm.columns // base.n)
        itemsize = gemm.output.itemsize if k_split == 1 else 4
        k = round_up(base.k, cube.rates[gemm.compute_dtype].k0)
        return Footprint(round_up(base.m, cube.m0), k, round_up(base.n, cube.n0), itemsize, tasks)

    def _held(
        self, base: BaseSizes, lefts: list[Taps], rights: list[Taps], copies: tuple[int, int]
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
        return whole <= room, row & (base.m < s.out_size[1] + FRACTAL_ROWS)

    def _held_evenly(
        self, base: BaseSizes, lefts: list[Taps], rights: list[Taps], copies: tuple[int, int]
    ) -> Mask:
        """Return for each pair of tiles whether L1 holds them wherever a range of whole fractals begins."""
        tiles = np.array([self._tile_bytes(base.m, box, False, FRACTAL_ROWS) for box in lefts])
        right = copies[1] * self._column_bytes(base.n) * np.array([box.groups for box in rights])
        held: Mask = copies[0] * tiles[:, None] + right <= self.l1_room(copies)
        return held


class _Room(NamedTuple):
    """Room in L1 for the image tile under a run of pixels.

    in_row     whether runs stay inside a row
    channels   groups of channels with all taps in the tile
    groups     (channel group, tap) pairs of the largest box that it holds
    """

    in_row: bool
    channels: int
    groups: int


class WgradSpace(Space):
    """Cuts of a filter product: channels in groups of C0, pixels in whole fractals.

    Parts of the reduction go to different cores: as many as there are cores, or runs of pixels if those are
    fewer. Of numbers of columns that are cut into the same blocks, as L1 holds no more, the least. Runs
    inside rows of the image take no more slices than a row.
    """

    schedule = "wgrad"
    # It writes rows of a plain matrix.
    c0 = 0

    def __init__(self, gemm: WgradGemm, profile: Profile) -> None:
        super().__init__(gemm, profile)
        s = gemm.sliding
        self.sizes = (
            range(s.c0, gemm.rows + 1, s.c0),
            range(s.c0, gemm.all_taps.groups * s.c0 + 1, s.c0),
            range(FRACTAL_ROWS, round_up(s.pixels, FRACTAL_ROWS) + 1, FRACTAL_ROWS),
        )
        self.splits = range(1, profile.cores.cube + 1)

    def steps(self, base_k: int, k_split: int) -> Sequence[tuple[int, int]]:
        """Return the (step_ka, step_kb), which are equal: up to a row, or to what L1 may hold of an image."""
        del k_split
        s, most = self.gemm.sliding, self._longest_run
        whole, row = -(-s.pixels // base_k), -(-s.out_size[1] // base_k)
        steps = whole if most >= s.pixels else max(row, most // base_k)
        return [(step, step) for step in range(1, steps + 1)]

    @cached_property
    def _longest_run(self) -> int:
        """The most pixels over whole rows that L1 holds, under one tap and beside the fewest rows."""
        s, one_tap = self.gemm.sliding, Taps(0, 1, 0, 1, 0, 1)
        rows, capacity = self.sizes[0][0] * s.itemsize, self.profile.buffers["L1"].capacity_bytes
        return max(
            (
                pixels
                for pixels in self.sizes[2]
                if rows * min(pixels, s.pixels) + s.tile_bytes(pixels, one_tap, in_row=False) <= capacity
            ),
            default=0,
        )

    def least(self, base: BaseSizes) -> Footprint:
        """Return the least that any cut with this base block takes."""
        return self._footprint(base, 0)

    def footprint(self, cut: L1Cut) -> Footprint | None:
        """Return the room of a cut; None where L1 does not hold it, or what runs is smaller."""
        room = self._room(cut.base, cut.steps[0], cut.copies)
        blocks = room and self._blocks(room, cut.base.n)
        if room is None or blocks is None or cut.k_split > self._segments(cut.base, cut.steps[0], room):
            return None
        tasks = blocks[1] * self._parts(cut.base, cut.steps[0], room, cut.k_split)
        return self._footprint(cut.base, tasks)

    def count(self) -> int:
        """Return the number of legal tilings; columns and parts are counted for all cuts that share them."""
        rows, columns, pixels = self.held
        total = 0
        blocks_in = cache(lambda room: [found for n in columns if (found := self._blocks(room, n))])
        for base_m, base_k in product(rows, pixels):
            base = BaseSizes(base_m, columns[0], base_k)
            completed = cache(
                lambda groups, base=base: self.completions(
                    self._footprint(base._replace(n=groups * columns.step), 0)
                )
            )
            for (step, _), *copies in product(self.steps(base_k, 1), COPIES, COPIES):
                room = self._room(base, step, (copies[0], copies[1]))
                if room is None:
                    continue
                cores = self._cores_of(base, step, room)
                for groups, blocks in blocks_in(room):
                    total += completed(groups) * cores(blocks)
        return total

    def _cores_of(self, base: BaseSizes, step: int, room: _Room) -> Callable[[int], int]:
        """Return a function that counts the (k_split, used_cores) for a number of column blocks."""
        most = min(len(self.splits), self._segments(base, step, room))
        parts = [self._parts(base, step, room, split) for split in range(1, most + 1)]
        return cache(lambda blocks: sum(self.most_cores(blocks * part) for part in parts))

    def _footprint(self, base: BaseSizes, tasks: int) -> Footprint:
        cube = self.profile.cube
        k = round_up(base.k, cube.rates[self.gemm.compute_dtype].k0)
        m, n = round_up(base.m, cube.m0), round_up(base.n, cube.n0)
        return Footprint(m, k, n, ACCUMULATOR_BYTES, tasks)

    def _room(self, base: BaseSizes, step: int, copies: tuple[int, int]) -> _Room | None:
        """Return the room in L1 for the image tile; None if no tap of it fits, or runs are shorter."""
        s, whole, pixels = self.gemm.sliding, self.gemm.all_taps, step * base.k
        rows = copies[0] * round_up(base.m, self.profile.cube.m0) * s.itemsize
        # No run is longer than an image.
        left = rows * min(pixels, s.pixels)
        budget = (self.profile.buffers["L1"].capacity_bytes - left) // copies[1]
        tiling = Tiling(*base, step, step)
        in_row, width = range_in_row(self.gemm, tiling, budget), s.out_size[1]
        if in_row and (base.k >= width + FRACTAL_ROWS or pixels >= width + base.k):
            return None

        def size(box: Taps) -> int:
            return int(s.tile_bytes(pixels, box, in_row=in_row))

        # What the schedule takes must leave the room that slots lose between them, where they lose any.
        budget = min(budget, (self.l1_room(copies) - left) // copies[1])
        boxes = range(1, whole.groups + 1)
        groups = bisect_right(boxes, budget, key=lambda taps: size(first_box(whole, taps * s.c0, s.c0)))
        if not groups:
            # The schedule then takes single taps.
            taken = left + copies[1] * size(first_box(whole, s.c0, s.c0))
            if taken > self.l1_room(copies):
                return None
        return _Room(in_row, budget // size(whole._replace(channels=1)), max(1, groups))

    def _blocks(self, room: _Room, base_n: int) -> tuple[int, int] | None:
        """Return the (channel group, tap) pairs of the largest column block, and the number of blocks.

        None where fewer columns are cut into the same blocks.
        """
        whole, c0 = self.gemm.all_taps, self.gemm.sliding.c0
        groups, taps = base_n // c0, whole.rows * whole.cols

        # A run of columns that begins at the last tap of a group touches one group more.
        if min(whole.channels, -(-(groups + taps - 1) // taps)) <= room.channels:
            return groups, -(-whole.groups // groups)
        box = first_box(whole, min(groups, room.groups) * c0, c0)
        # Blocks of fewer columns than asked for are those of a smaller base_n.
        if box.groups < groups:
            return None
        blocks = prod(-(-extent // part) for extent, part in zip(whole[1::2], box[1::2], strict=True))
        return int(box.groups), int(blocks)

    def _runs(self, base: BaseSizes, step: int, room: _Room) -> list[int]:
        """Return the runs of pixels that each kernel depth adds up."""
        runs = self.gemm.batch * self.gemm.sliding.pixel_tile_count(step * base.k, in_row=room.in_row)
        return [int(len(pairs) * runs) for pairs in self.gemm.depths]

    def _segments(self, base: BaseSizes, step: int, room: _Room) -> int:
        return max(1, max(self._runs(base, step, room)))

    def _parts(self, base: BaseSizes, step: int, room: _Room, k_split: int) -> int:
        """Return the tasks of one column block: those with runs of pixels."""
        parts = sum(min(k_split, runs) for runs in self._runs(base, step, room))
        return int(self.gemm.groups * -(-self.gemm.rows // base.m) * parts)
