"""The program of a core of `Wgrad`: the loops of one task, repeated as templates where segments are alike."""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial

from ascendsim.ops.schedules.blocks import BlockProgram
from ascendsim.ops.schedules.tiles import Sizes, held
from ascendsim.ops.schedules.wgrad.tasks import Task, WgradTasks
from ascendsim.ops.schedules.wgrad.tiles import Load, WgradTiles
from ascendsim.program.places import GmTensor


class WgradProgram(BlockProgram):
    """Emits the programs of grad_weight; a template is one segment of a reduction.

    A whole task would seldom recur: its reduction is long, and each part of it differs.
    """

    def __init__(
        self, cut: WgradTasks, sizes: Sizes, target: GmTensor, atomic: bool, hazards: frozenset[str]
    ) -> None:
        super().__init__(cut, sizes, target, hazards)
        self.atomic = atomic
        self.apart = target is not cut.gemm.output
        self.tiles = WgradTiles(self.b, cut, self.recurring.aim)

    def append(self, task: Task) -> None:
        """Append the instructions of one base block: segments in L1, slices of base_k."""
        self.l0c.next()
        columns, first = task.columns, True
        for segment in self.cut.segments(task):
            load = Load(task, segment)
            tile_shape = self.cut.tile_shape(segment.range, columns.box)
            shape = tile_shape, task.rows, columns.first_group, columns.groups, first
            places = (_left_place(load),), (_right_place(load),), *self.plain_places
            self.recurring.emit(load, shape, places, partial(self._segment, first=first))
            first = False
        index = self.tiles.output(task, apart=self.apart)
        channels = columns.groups * self.cut.gemm.sliding.c0
        self.out.write(self.l0c.last, task.rows, channels, index, atomic=self.atomic)

    def _segment(self, load: Load, *, first: bool) -> None:
        """Append the loads and products of one segment; `first`: the one with which a reduction begins."""
        small = held(self.left, (_left_place(load), None), self.tiles.load_small, load)
        big = held(self.right, (_right_place(load), None), self.tiles.load_big, load)
        pixels, base_k = load.segment.range.pixels, self.cut.tiling.base_k
        for at in range(0, pixels, base_k):
            slice_, l0 = (at, min(base_k, pixels - at)), (self.l0a.next(), self.l0b.next())
            self.tiles.multiply(self.l0c.last, small, big, l0, load, slice_, first=first)
            first = False


def _left_place(load: Load) -> Hashable:
    """Return what tells the small side of one segment from that of another."""
    return load.task.group, load.segment.small_depth, load.task.first_row, load.segment.range


def _right_place(load: Load) -> Hashable:
    """Return what tells the image tile of one segment from that of another."""
    return load.task.group, load.segment.big_depth, load.segment.range, load.task.columns.box
