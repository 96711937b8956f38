"""The base blocks of a dgrad, and what decides the cost of those of a core.

One task is a base block of pixels x channels of one image. Its reduction goes through (kernel depth, channel
group, tap, c0): the left operand is im2col of the source image (load3d), the right one the weights. Tasks go
to cores in contiguous ranges; tiles that the next task needs again stay in L1.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from itertools import count

from ascendsim.cube.tile_reads import round_up
from ascendsim.frozen import cached_property
from ascendsim.ops.plan import chunks
from ascendsim.ops.schedules.dgrad.cut import DgradCut
from ascendsim.ops.schedules.dgrad.pieces import Block, Task, task_of
from ascendsim.ops.schedules.ranges import Cells, TaskRange
from ascendsim.ops.schedules.tiles import Sizes


class DgradTasks(DgradCut):
    """The base blocks of a dgrad that is cut under one tiling on one product."""

    def sizes(self, tasks: Sequence[Task]) -> Sizes:
        """Return what a core with these tasks reserves."""
        if isinstance(tasks, Cells | TaskRange):
            cells = tasks.ranges if isinstance(tasks, Cells) else (tasks,)
            blocks = [block for cell in cells for block in cell.different()]
            ranges = {(first, pixels) for _, first, pixels, _, _ in blocks}
            columns = max([own for _, _, _, _, own in blocks])
        else:
            ranges = {(task.first_pixel, task.pixels) for task in tasks}
            columns = max(task.columns for task in tasks)
        cube = self.profile.cube
        return Sizes(
            round_up(max(pixels for _, pixels in ranges), cube.m0),
            round_up(columns, cube.n0),
            self.tiling.base_k,
            max(map(self._left_bytes.__getitem__, ranges)),
            self._right_bytes(columns),
        )

    @cached_property
    def blocks(self) -> list[Block]:
        """The base blocks of an image, channels fastest."""
        return self._blocks_of(self.pixel_tiles, self.column_tiles)

    def _blocks_of(self, rows: Sequence[tuple[int, int]], columns: Sequence[tuple[int, int]]) -> list[Block]:
        """Return the base blocks of some pixel tiles and column tiles."""
        # Channels fastest: the next block needs the same image tile, which so stays in L1.
        depths = [depth for depth, pairs in enumerate(self.gemm.depths) if pairs]
        return [(depth, *pixels, *own) for depth in depths for pixels in rows for own in columns]

    @cached_property
    def tasks(self) -> TaskRange | Cells:
        """All base blocks that anything contributes to: groups, images, blocks of an image."""
        if self._even:
            return self.together(self.cells)
        return TaskRange(range(self.gemm.groups), self.gemm.batch, self.blocks, task_of)

    @property
    def cells(self) -> Sequence[TaskRange | Cells]:
        """The cells of the grid: of images, then of column blocks, then of pixel tiles the fastest."""
        t = self.tiling
        if self._even:
            parts = chunks(len(self.column_tiles), t.n_dim)
            return self._even.cells([[self.column_tiles[at] for at in part] for part in parts])
        found = []
        for images in chunks(self.gemm.batch, t.batch_dim):
            for part in chunks(len(self.column_tiles), t.n_dim):
                for tiles in chunks(len(self.pixel_tiles), t.m_dim):
                    own = self._blocks_of(
                        self.pixel_tiles[tiles.start : tiles.stop], self.column_tiles[part.start : part.stop]
                    )
                    whole = range(self.gemm.groups), len(images), own, task_of
                    found.append(TaskRange(*whole, first_image=images.start, mark=(part, tiles)))
        return [cell for cell in found if len(cell)]

    @staticmethod
    def together(cells: Sequence[TaskRange | Cells]) -> Cells:
        """Return the tasks of several cells."""
        return Cells([own for cell in cells for own in (cell.ranges if isinstance(cell, Cells) else (cell,))])

    def signature(self, tasks: Sequence[Task]) -> Hashable:
        """Describe what decides the cost of a core's program: tile shapes, and which tiles are met again.

        Tiles are numbered by what they hold, as the rings in L1 know them, so that two cores that load the
        same pattern of tiles are told from two that only do as many.
        """
        if isinstance(tasks, Cells):
            # The images of a cell are alike, so one of each tells all but how many there are.
            kinds = [task for cell in tasks.ranges for task in cell.of_first_image()]
            return tuple(len(cell) for cell in tasks.ranges), self._spelled(kinds)
        if isinstance(tasks, TaskRange) and len(self.gemm.depths) == self.gemm.groups == 1:
            # Contiguous blocks share an image tile until their columns begin anew, and meet weights again
            # from then on: where that is tells all.
            columns = len(self.column_tiles)
            column = tasks.begin % columns
            return tasks.spelled(self._symbols), column if column + len(tasks) > columns else -1
        return self._spelled(tasks)

    def _spelled(self, tasks: Sequence[Task]) -> Hashable:
        """Return the shapes of tasks and the numbers of their tiles, in the order in which they are met."""
        lefts: dict[Hashable, int] = defaultdict(count().__next__)
        rights: dict[Hashable, int] = defaultdict(count().__next__)
        shapes, depths, spelled = self.pixel_shapes, self.gemm.depths, []
        for group, image, depth, first, pixels, column, columns, _ in tasks:
            tiles = [
                (lefts[group, image, source, first], rights[group, kernel, column])
                for kernel, source in depths[depth]
            ]
            spelled.append((shapes[first, pixels], columns, tuple(tiles)))
        return tuple(spelled)

    @cached_property
    def _symbols(self) -> list[int]:
        """Number the blocks of an image by the shapes of their tiles."""
        numbers: dict[Hashable, int] = defaultdict(count().__next__)
        shapes = self.pixel_shapes
        return [numbers[shapes[first, pixels], columns] for _, first, pixels, _, columns in self.blocks]
