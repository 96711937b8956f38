"""The base blocks of a wgrad, and what decides the cost of those of a core.

One task is a base block of small-side channels x (big-side channel group, tap) columns over a part of the
reduction, which goes through the pixels of all images. The left operand is the small side transposed on its
way to L0A, the right one is im2col of the big side (load3d into L0B). Parts of the reduction on different
cores are added atomically in GM, or kept apart in a workspace and added in order by vector cores.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ascendsim.cube.tile_reads import round_up
from ascendsim.frozen import cached_property
from ascendsim.ops.plan import chunks
from ascendsim.ops.problems.taps import Taps
from ascendsim.ops.schedules.ranges import TaskRange
from ascendsim.ops.schedules.tiles import Sizes
from ascendsim.ops.schedules.wgrad.columns import Columns
from ascendsim.ops.schedules.wgrad.cut import Task, WgradCut
from ascendsim.program.indices import alike

if TYPE_CHECKING:
    from ascendsim.ops.problems.strips import Numbers


class WgradTasks(WgradCut):
    """The base blocks of a wgrad that is cut under one tiling on one product."""

    def segments(self, task: Task) -> TaskRange:
        """Return the reduction of one task."""
        return self.part(task.depth, task.part)

    @cached_property
    def tasks(self) -> list[Task]:
        """All tasks that reduce anything, column blocks fastest."""
        # Parts outermost: the tasks of one core then share pixels, and with them tiles in L1.
        return [
            task
            for part in range(self.splits)
            for task in self._blocks(part, range(0, self.gemm.rows, self.tiling.base_m), self.column_blocks)
        ]

    def _blocks(self, part: int, rows: Sequence[int], columns: Sequence[Columns]) -> Iterator[Task]:
        """Yield the base blocks of some rows and columns over one part of the reduction."""
        gemm, base_m = self.gemm, self.tiling.base_m
        for group in range(gemm.groups):
            for depth in range(len(gemm.depths)):
                if not self.reduces(depth, part):
                    continue
                for row in rows:
                    for block in columns:
                        yield Task(group, depth, part, row, min(base_m, gemm.rows - row), block)

    def reduces(self, depth: int, part: int) -> bool:
        """Return whether a part of the reduction has any segment at a kernel depth."""
        return len(self.part(depth, part)) > 0

    @property
    def cells(self) -> list[list[Task]]:
        """The cells of the grid: of parts of the reduction, then of columns, then of rows the fastest."""
        t, rows, blocks = self.tiling, range(0, self.gemm.rows, self.tiling.base_m), self.column_blocks
        columns = [blocks[n.start : n.stop] for n in chunks(len(blocks), t.n_dim)]
        parts = [rows[m.start : m.stop] for m in chunks(len(rows), t.m_dim)]
        cells = [
            list(self._blocks(part, some, own))
            for part in range(self.splits)
            for own in columns
            for some in parts
        ]
        return [cell for cell in cells if cell]

    @staticmethod
    def together(cells: Sequence[list[Task]]) -> list[Task]:
        """Return the tasks of several cells."""
        return [task for cell in cells for task in cell]

    @cached_property
    def _parts(self) -> list[tuple[int, int]]:
        """All (kernel depth, part)."""
        return [(d, part) for d in range(len(self.gemm.depths)) for part in range(self.splits)]

    @cached_property
    def _part_shapes(self) -> Numbers:
        """Numbers of the parts by the pixel ranges of their segments, from which the tiles follow."""
        grid, whole = self.by_grid, range(len(self.ranges_of_image))
        return self._numbered(
            [self.part(*key).spelled(self.grid_parts[key[1]][1] if grid else whole) for key in self._parts]
        )

    def _numbered(self, told: Sequence[Hashable]) -> Numbers:
        """Return a number for each kernel depth and part, equal ones where what is told of them is equal."""
        return np.array(alike(told)).reshape(-1, self.splits)

    @cached_property
    def reductions(self) -> tuple[Numbers, Numbers]:
        """What each (kernel depth, part) reduces: rows of numbers, and how many of them it has.

        A row is a pair of depths, images (the first, and how many), and ranges of pixels of each (likewise).
        """
        found: list[tuple[int, ...]] = []
        counts = []
        for depth, part in self._parts:
            own, first = self.part(depth, part), self.first_run(part)
            runs = [
                (*own.outers[outer], images.start, len(images), first + begin, end - begin)
                for outer, images, begin, end in own.runs()
            ]
            found += runs
            counts.append(len(runs))
        return np.array(found, np.int64).reshape(-1, 6), np.array(counts)

    def _reduced(self, parts: Numbers) -> tuple[Numbers, Numbers]:
        """Return the rows of `reductions` of some (kernel depth, part), by number, and the place of each."""
        rows, counts = self.reductions
        place, within = spread(counts[parts])
        return rows[(np.cumsum(counts) - counts)[parts][place] + within], place

    def rows(self, tasks: Sequence[Task]) -> Numbers:
        """Return tasks as rows of numbers: group, kernel depth, part, row tile, block of columns."""
        rows, columns = self._numbers
        return np.array(
            [
                (group, depth, part, rows[row], columns[wide.first_column])
                for group, depth, part, row, _, wide in tasks
            ]
        )

    @cached_property
    def _numbers(self) -> tuple[dict[int, int], dict[int, int]]:
        """The numbers of row tiles and of blocks of columns, by their first row and column."""
        rows = {first: number for number, (first, _) in enumerate(self.row_tiles)}
        return rows, {block.first_column: number for number, block in enumerate(self.column_blocks)}

    def sizes(self, tasks: list[Task]) -> Sizes:
        """Return what a core with these tasks reserves."""
        cube, gemm, size = self.profile.cube, self.gemm, self.gemm.sliding.itemsize
        m = round_up(max(task.rows for task in tasks), cube.m0)
        # Tasks are many, but their tiles of a few shapes: images repeat the same few ranges.
        parts: dict[tuple[int, ...], set[int]] = defaultdict(set)
        for task in tasks:
            parts[task.columns.box[1:]].add(task.depth * self.splits + task.part)
        kinds = [
            (first, ranges, shape)
            for shape, own in parts.items()
            for first, ranges in np.unique(self._reduced(np.array([*own]))[0][:, 4:], axis=0).tolist()
        ]
        pixels, left, right = map(max, zip(*[self._largest(*kind) for kind in kinds], strict=True))
        return Sizes(
            m,
            round_up(max(task.columns.groups for task in tasks) * gemm.sliding.c0, cube.n0),
            round_up(min(self.tiling.base_k, pixels), cube.rates[gemm.compute_dtype].k0),
            m * left * size,
            right,
        )

    def _largest(self, first: int, ranges: int, shape: tuple[int, ...]) -> tuple[int, int, int]:
        """Return the most pixels of some ranges, of their left tiles, and bytes of their right tiles."""
        own, of = slice(first, first + ranges), self.pixels
        right = self.right_bytes(Taps(0, *shape))[of.right_of[own]]
        found = of.runs[own, 1], of.left[of.left_of[own], 1], right
        pixels, left, bytes_ = (int(numbers.max()) for numbers in found)
        return pixels, left, bytes_

    @property
    def shares_tiles(self) -> bool:
        """Whether tasks of different parts or kernel depths may need the same tiles."""
        return len(self.gemm.depths) > 1

    def signature(self, tasks: list[Task]) -> Hashable:
        """Describe what decides the cost of a core's program: tile shapes, and which tiles are met again.

        With one kernel depth a task's tiles are known by its part and its rows or columns. With several,
        kernel depths share tiles, so that the tiles of every segment are numbered by what they hold.
        """
        group, depth, part, row, column = self.rows(tasks).T
        (strips_of, heights), (boxes, shapes) = self._told_rows, self._told_columns
        kinds = np.stack([heights[row], shapes[column], self._part_shapes[depth, part]])
        if self.operator:
            kinds = np.vstack([kinds, *self.places_of(row, depth, column)])
        # What the left and the right tiles are told by: a strip by its part, a tile by its depth and pixels.
        strips = [mixed(group, part, own) for own in (strips_of[row], boxes[column])]
        if not self.shares_tiles:
            return kinds.tobytes(), *[numbered_as_met(own).tobytes() for own in strips]
        of, (small, big, image, pixels) = self._segments_of(depth * self.splits + part)
        # A strip that is met takes a number before its tiles: which cores are told apart hangs on it.
        at = np.arange(len(tasks)) + np.searchsorted(of, np.arange(len(tasks)))
        tiles = np.arange(len(of)) + of + 1
        met = [kinds.tobytes()]
        for strip, depths, own in zip(strips, (small, big), (strips_of[row], boxes[column]), strict=True):
            keys = np.empty(len(tasks) + len(of), np.int64)
            keys[at] = strip
            keys[tiles] = mixed(group[of], depths, own[of], image, pixels) + strip.max() + 1
            met.append(numbered_as_met(keys)[tiles].tobytes())
        return tuple(met)

    def places_of(self, row: Any, depth: Any, column: Any) -> tuple[Any, Any]:
        """Return what places in L1 follow from beside the tiles: the numbers of blocks in their tasks."""
        t = self.tiling
        rows, columns = self._block_numbers
        return rows[row] % t.al1_buffers, columns[depth, column] % t.bl1_buffers

    @cached_property
    def _block_numbers(self) -> tuple[Numbers, Numbers]:
        return self.row_numbers, self.column_numbers

    def _segments_of(self, parts: Numbers) -> tuple[Numbers, Numbers]:
        """Return the segments of some (kernel depth, part): the place of each, and what it has.

        That is depths of both sides, an image, and the pixels, by number.
        """
        rows, place = self._reduced(parts)
        run, within = spread(rows[:, 3] * rows[:, 5])
        own = rows[run]
        image, at = np.divmod(within, own[:, 5])
        pixels = np.unique(np.array(self.runs), axis=0, return_inverse=True)[1].reshape(-1)
        return place[run], np.stack([own[:, 0], own[:, 1], own[:, 2] + image, pixels[own[:, 4] + at]])

    @cached_property
    def _told_rows(self) -> tuple[Numbers, Numbers]:
        """Of each row tile the number of the rows that a left tile has, and that of the sizes that follow."""
        return np.arange(len(self.row_tiles)), np.array([rows for _, rows in self.row_tiles])

    @cached_property
    def _told_columns(self) -> tuple[Numbers, Numbers]:
        """Of each block of columns the number of its box, and that of the sizes that follow from it."""
        blocks = self.column_blocks
        sizes = alike([(block.box[1:], block.first_group, block.groups) for block in blocks])
        return np.array(alike([block.box for block in blocks])), np.array(sizes)


def spread(counts: Numbers) -> tuple[Numbers, Numbers]:
    """Return for each of so many things of each place its place, and its number there."""
    place = np.repeat(np.arange(len(counts)), counts)
    return place, np.arange(len(place)) - (np.cumsum(counts) - counts)[place]


def mixed(*columns: Numbers) -> Numbers:
    """Return one number for each row of some columns of numbers from 0 on; equal rows have equal ones."""
    key = columns[0]
    for column in columns[1:]:
        key = key * (int(column.max(initial=0)) + 1) + column
    return key


def numbered_as_met(keys: Numbers) -> Numbers:
    """Return the number of each key, where keys take the next number as they are met first."""
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    number = np.empty(len(first), np.int64)
    number[np.argsort(first)] = np.arange(len(first))
    return number[inverse.reshape(-1)]
