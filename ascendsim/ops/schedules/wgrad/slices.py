"""The slices of GM that the loads and tasks of a wgrad name, and how tiles are read."""

from __future__ import annotations

from typing import NamedTuple

from ascendsim.cube.im2col import Im2col
from ascendsim.ops.schedules.tiles import Index
from ascendsim.ops.schedules.wgrad.pieces import Segment, Task
from ascendsim.ops.schedules.wgrad.tasks import WgradTasks


class Load(NamedTuple):
    """The pair of L1 tiles that one segment of a task's reduction needs."""

    task: Task
    segment: Segment


# Apart from the tiles, which know the builder, as those of a dgrad are.
class WgradSlices:
    """Finds slices of GM for loads and tasks, cut as `WgradTasks` says."""

    def __init__(self, cut: WgradTasks) -> None:
        self._cut = cut

    def output(self, task: Task, first: int, count: int) -> Index:
        """Return the slice of the output for a range of a task's columns."""
        rows = slice(task.first_row, task.first_row + task.rows)
        begin = task.columns.first_column + first
        return task.group, task.depth, rows, slice(begin, begin + count)

    def output_part(self, task: Task, first: int, count: int) -> Index:
        """Return the same of a workspace in which every part of the reduction has a place of its own."""
        return task.part, *self.output(task, first, count)

    def small(self, load: Load) -> Index:
        """Return a run of pixels of the small side, all channels of the task's rows."""
        (task, (depth, _, needed)), c0 = load, self._cut.gemm.sliding.c0
        run = self._cut.left_run(needed)
        first = task.first_row // c0
        channels = slice(first, first + task.rows // c0)
        return task.group, run.image, depth, channels, *self._cut.left_place(run)

    def big(self, load: Load) -> Index:
        """Return what these pixels see of the big side under the task's box of taps."""
        task, (_, depth, run) = load
        box = task.columns.box
        tile = self._cut.tile(run, box)
        channels = slice(box.channel, box.channel + box.channels)
        return task.group, run.image, depth, channels, tile.rows, tile.cols

    def patches(self, load: Load, first: int, pixels: int) -> Im2col:
        """Return how the columns of the task are read of that tile, for some of its pixels."""
        box, first_group, groups, _ = load.task.columns
        window = self._cut.tile(load.segment.range, box).window
        return Im2col(window, first, pixels, first_group, groups, self._cut.gemm.sliding.itemsize)
