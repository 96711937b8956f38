"""The base blocks of a wgrad, and what decides the cost of those of a core.

One task is a base block of small-side channels x (big-side channel group, tap) columns over a part of the
reduction, which goes through the pixels of all images. The left operand is the small side transposed on its
way to L0A, the right one is im2col of the big side (load3d into L0B). Parts of the reduction on different
cores are added atomically in GM, or kept apart in a workspace and added in order by vector cores.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from itertools import count

from ascendsim.cube.tile_reads import round_up
from ascendsim.frozen import cached_property
from ascendsim.ops.plan import chunks
from ascendsim.ops.schedules.ranges import TaskRange
from ascendsim.ops.schedules.tiles import Sizes
from ascendsim.ops.schedules.wgrad.columns import Columns
from ascendsim.ops.schedules.wgrad.cut import WgradCut
from ascendsim.ops.schedules.wgrad.pieces import PixelRange, Task


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
                if not len(self.part(depth, part)):
                    continue
                for row in rows:
                    for block in columns:
                        yield Task(group, depth, part, row, min(base_m, gemm.rows - row), block)

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

    def box_shape(self, task: Task) -> Hashable:
        """Return what the code of a base block depends on of its box of taps."""
        return task.columns.box[1:]

    @cached_property
    def _parts(self) -> list[tuple[int, int]]:
        """All (kernel depth, part)."""
        return [(d, part) for d in range(len(self.gemm.depths)) for part in range(self.splits)]

    @cached_property
    def _part_shapes(self) -> dict[tuple[int, int], int]:
        """Number the parts by the pixel ranges of their segments, from which the tiles follow."""
        numbers: dict[Hashable, int] = defaultdict(count().__next__)
        grid, whole = self.by_grid, range(len(self.ranges_of_image))
        return {
            key: numbers[self.part(*key).spelled(self.grid_parts[key[1]][1] if grid else whole)]
            for key in self._parts
        }

    @cached_property
    def _kinds(self) -> dict[tuple[int, int], set[tuple[int, int]]]:
        # Images repeat the same few ranges: to find the largest tile, one of each is enough.
        return {key: {run for _, run in self.part(*key).kinds()} for key in self._parts}

    def sizes(self, tasks: list[Task]) -> Sizes:
        """Return what a core with these tasks reserves."""
        cube, gemm = self.profile.cube, self.gemm
        m = round_up(max(task.rows for task in tasks), cube.m0)
        # Tasks are many, and their right tiles of a few shapes.
        shapes = {(task.depth, task.part, task.columns.box[1:]): task.columns.box for task in tasks}
        kinds = {
            (PixelRange(0, *run), box[1:]): box
            for (depth, part, _), box in shapes.items()
            for run in self._kinds[depth, part]
        }
        pixels = max(run.pixels for run, _ in kinds)
        left = max(self.left_run(run).pixels for run, _ in kinds)
        return Sizes(
            m,
            round_up(max(task.columns.groups for task in tasks) * gemm.sliding.c0, cube.n0),
            round_up(min(self.tiling.base_k, pixels), cube.rates[gemm.compute_dtype].k0),
            m * left * gemm.sliding.itemsize,
            max(self.tile(run, box).l1_bytes for (run, _), box in kinds.items()),
        )

    @property
    def shares_tiles(self) -> bool:
        """Whether tasks of different parts or kernel depths may need the same tiles."""
        return len(self.gemm.depths) > 1

    def signature(self, tasks: list[Task]) -> Hashable:
        """Describe what decides the cost of a core's program: tile shapes, and which tiles are met again.

        With one kernel depth a task's tiles are known by its part and its rows or columns. With several,
        kernel depths share tiles, so that the tiles of every segment are numbered by what they hold.
        """
        lefts: dict[Hashable, int] = defaultdict(count().__next__)
        rights: dict[Hashable, int] = defaultdict(count().__next__)
        # One tuple of numbers for all tasks: it is compared with those of all other cores.
        met: list[Hashable] = []
        several, parts = self.shares_tiles, self._part_shapes
        for task in tasks:
            group, depth, part, row, rows, columns = task
            _, box, shape = self._told(columns)
            # A strip that is met takes a number, with several kernel depths, too: which cores are told apart
            # hangs on it.
            left, right = lefts[group, part, row], rights[group, part, box]
            met += rows, shape, parts[depth, part]
            if several:
                tiles = [
                    (lefts[group, small, row, run], rights[group, big, box, run])
                    for small, big, run in self.segments(task)
                ]
                met.append(tuple(tiles))
            else:
                met += left, right
        return tuple(met)

    def _shape_of(self, task: Task) -> Hashable:
        """Return what the sizes of a task's tiles are told by."""
        return task.rows, self._told(task.columns)[2]

    def _told(self, columns: Columns) -> tuple[Columns, int, int]:
        """Return a block of columns, the number of its box, and that of the sizes that follow from it."""
        # By identity, as all tasks of some columns have one block, and to compare boxes takes longer.
        known = self._columns.get(id(columns))
        if known is None or known[0] is not columns:
            box, first_group, groups, _ = columns
            shape = self._column_shapes[box[1:], first_group, groups]
            known = self._columns[id(columns)] = columns, self._boxes[box], shape
        return known

    @cached_property
    def _columns(self) -> dict[int, tuple[Columns, int, int]]:
        return {}

    @cached_property
    def _boxes(self) -> dict[Hashable, int]:
        return defaultdict(count().__next__)

    @cached_property
    def _column_shapes(self) -> dict[Hashable, int]:
        return defaultdict(count().__next__)
