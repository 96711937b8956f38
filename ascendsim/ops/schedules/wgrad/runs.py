"""The program of a core of a grad_weight whose operands may come in tiles of different lengths."""

from __future__ import annotations

from collections.abc import Hashable

from ascendsim.ops.schedules.ranges import looped
from ascendsim.ops.schedules.wgrad.program import WgradProgram
from ascendsim.ops.schedules.wgrad.slices import Load
from ascendsim.ops.schedules.wgrad.tasks import PixelRange, Task


class RunsProgram(WgradProgram):
    """As `WgradProgram`, but a tile in L1 may hold more runs of pixels than the other operand's beside it."""

    def append(self, task: Task) -> None:
        """Append one base block: for each pair of depths, image, run of pixels in L1: multiply."""
        self.l0c.next()
        for segment in looped(self.b, self.cut.segments(task), task):
            self._segment(Load(task, segment))
        columns = task.columns.groups * self.cut.gemm.sliding.c0
        # Where it goes is part of the code: some nests write to two tensors.
        for _ in self.b.once(task, ("output", self.out.target, task.rows, columns)):
            self.out.write(self.l0c.last, task.rows, columns, self.find, task, atomic=self.atomic)

    def _segment(self, load: Load) -> None:
        """Append the loads of a segment and its products, for each slice of base_k pixels."""
        columns = load.task.columns
        # Segments are alike if their tiles have equal shapes; which of them are in L1 the rings know.
        run, tile_shape = load.segment.range, self.cut.tile_shape(load.segment.range, columns.box)
        left_run, right_run = self.cut.left_run(run), self.cut.right_run(run)
        # Where the run lies in both tiles: at their beginning, unless they hold other runs besides.
        at_left, at_right = (run.first_pixel - tile.first_pixel for tile in (left_run, right_run))
        within = run.pixels, left_run.pixels, at_left, at_right
        shape = tile_shape, load.task.rows, columns.first_group, columns.groups, within
        left, right = _left_place(load, left_run), _right_place(load, right_run)
        self._products(load, shape, left, right)


def _left_place(load: Load, run: PixelRange) -> Hashable:
    """Return what tells the small side of one segment from that of another."""
    return load.task.group, load.segment.small_depth, load.task.first_row, *run


def _right_place(load: Load, run: PixelRange) -> Hashable:
    """Return what tells the image tile of one segment from that of another."""
    return load.task.group, load.segment.big_depth, *run, load.task.columns.box
