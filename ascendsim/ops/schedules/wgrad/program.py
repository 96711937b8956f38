"""The program of a core of `Wgrad`: the loops of one base block over its part of the reduction."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from ascendsim.ops.schedules.blocks import BlockProgram
from ascendsim.ops.schedules.ranges import TaskRange, looped
from ascendsim.ops.schedules.tiles import Sizes, held
from ascendsim.ops.schedules.wgrad.pieces import Task
from ascendsim.ops.schedules.wgrad.slices import Load
from ascendsim.ops.schedules.wgrad.tasks import WgradTasks
from ascendsim.ops.schedules.wgrad.tiles import WgradTiles
from ascendsim.program.places import GmTensor


class WgradProgram(BlockProgram):
    """Emits the programs of grad_weight; the images of a reduction are a loop, alike segments share code."""

    def __init__(
        self, cut: WgradTasks, sizes: Sizes, target: GmTensor, atomic: bool, hazards: frozenset[str]
    ) -> None:
        super().__init__(cut, sizes, target, hazards, weights_of=cut.gemm.sliding.c0)
        self.atomic = atomic
        self.tiles = self.tiles_of(cut)
        self.find = self.tiles.output(apart=target is not cut.gemm.output)
        # By kernel depth and part of the reduction, and the patterns that these follow by number.
        self._reductions: dict[tuple[int, int], tuple[TaskRange, int, int]] = {}
        self._patterns: dict[Hashable, int] = {}

    def tiles_of(self, cut: Any) -> WgradTiles:
        """Return what appends loads and products of tiles."""
        return WgradTiles(self.b, cut)

    def append(self, task: Task) -> None:
        """Append one base block: for each pair of depths, image, run of pixels in L1: multiply."""
        strips = {self.left: (_rows_of(task),), self.right: (_box_of(task),)}
        groups = task.columns.groups
        segments, pattern, first_image = self._reduction(task)
        # Blocks are alike if they have equal sizes, reduce the same pixels, or those of other images, and go
        # to one tensor: some nests write to two. Which columns of their box they are, only views tell.
        box = self.cut.box_shape(task)
        shape = task.depth, pattern, task.rows, box, groups, self.out.target
        for _ in self.b.once(task, shape, strips, first_image):
            self.l0c.next()
            for segment in looped(self.b, segments):
                self._segment(Load(task, segment))
            count = groups * self.cut.gemm.sliding.c0
            self.out.write(self.l0c.last, task.rows, count, self.find, task, atomic=self.atomic)

    def _reduction(self, task: Task) -> tuple[TaskRange, int, int]:
        """Return the segments of a task, the number of their pattern, and their first image."""
        # Looked up: base blocks are many, and all of one part reduce the same.
        known = self._reductions.get((task.depth, task.part))
        if known is None:
            segments = self.cut.segments(task)
            pattern = self._patterns.setdefault(segments.pattern(), len(self._patterns))
            known = segments, pattern, segments.image
            self._reductions[task.depth, task.part] = known
        return known

    def _segment(self, load: Load) -> None:
        """Append the loads of a segment and its products, for each slice of base_k pixels."""
        columns, run = load.task.columns, load.segment.range
        # Segments are alike if their tiles have equal shapes; which of them are in L1 the rings know.
        tile_shape, within = self.cut.tile_shape(run, columns.box), self.cut.within(run)
        shape = tile_shape, load.task.rows, columns.groups, within
        left = _rows_of(load.task), load.segment.small_depth, *self.cut.left_run(run)
        right = _box_of(load.task), load.segment.big_depth, *self.cut.right_run(run)
        pixels, base_k = run.pixels, self.cut.tiling.base_k
        for _ in self.b.once(load, shape, {self.left: (left,), self.right: (right,)}):
            small = held(self.left, (left, None), self.tiles.load_small, load)
            big = held(self.right, (right, None), self.tiles.load_big, load)
            for at in range(0, pixels, base_k):
                slice_, l0 = (at, min(base_k, pixels - at)), (self.l0a.next(), self.l0b.next())
                first = self.l0c.begins()
                self.tiles.multiply(self.l0c.last, small, big, l0, load, slice_, first=first)


def _rows_of(task: Task) -> Hashable:
    """Return what tells the small side of one task from that of another."""
    return task.group, task.first_row


def _box_of(task: Task) -> Hashable:
    """Return what tells the part of the big side that a task sees from that of another."""
    return task.group, task.columns.box
