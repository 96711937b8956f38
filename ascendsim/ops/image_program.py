"""The instructions of one core of an image product."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ascendsim.builder import ProgramBuilder
from ascendsim.cube.mmad import Mmad, PipeBarrier, spacing_needed
from ascendsim.cube.movers import CopyGmToL1, FillL1, LoadL0A, LoadL0B
from ascendsim.cube.views import Patches, TapRows, round_up
from ascendsim.ops.rings import Ring
from ascendsim.ops.sliding import ImageTile
from ascendsim.ops.taps import Taps
from ascendsim.ops.writeback import Writeback
from ascendsim.program import Gm, Program, Slot

if TYPE_CHECKING:
    from ascendsim.ops.image_gemm import ImageGemmSchedule, Task


class ImageProgram:
    """Emits the instructions of one core, task after task."""

    def __init__(self, schedule: ImageGemmSchedule, tasks: list[Task]) -> None:
        self.s = schedule
        self.spec = schedule.spec
        self.tasks = tasks
        t, size = schedule.tiling, schedule.spec.sliding.itemsize
        self.b = ProgramBuilder(schedule.profile, schedule.hazards)
        m0, n0 = schedule.profile.cube.m0, schedule.profile.cube.n0
        m = round_up(max(task.pixels for task in tasks), m0)
        n = round_up(max(task.columns for task in tasks), n0)
        left_bytes = max(
            schedule.left_tiles[task.first_pixel, task.pixels, box].l1_bytes
            for task in tasks
            for box in schedule.left_boxes
        )
        right_bytes = max(box.groups for box in schedule.right_boxes) * self.spec.sliding.c0 * n * size
        self.left = Ring(self.b.slots("L1", left_bytes, "A1", t.al1_buffers))
        self.right = Ring(self.b.slots("L1", right_bytes, "B1", t.bl1_buffers))
        self.l0a = Ring(self.b.slots("L0A", m * t.base_k * size, "A0", t.al0_buffers))
        self.l0b = Ring(self.b.slots("L0B", t.base_k * n * size, "B0", t.bl0_buffers))
        self.l0c = Ring(self.b.slots("L0C", m * n * 4, "C0", t.cl0_buffers))
        self.out = Writeback(self.b, schedule.profile, schedule.target, m, n, self.spec.sliding.c0)

    def emit(self) -> Program:
        """Return the program."""
        for task in self.tasks:
            self._task(task)
        return self.b.build()

    def _task(self, task: Task) -> None:
        for part in self.s.parts:
            accumulator = self.l0c.next()
            first = True
            for kernel_depth, source_depth in self.spec.depths[task.depth]:
                for segment in part:
                    tile = self.s.left_tiles[task.first_pixel, task.pixels, segment.left]
                    a = self._left(task, source_depth, segment.left, tile)
                    b = self._right(task, kernel_depth, segment.right)
                    for slice_ in segment.slices:
                        self._product(task, accumulator, (a, tile), (b, segment.right), slice_, first)
                        first = False
            self._write(task, accumulator)

    def _write(self, task: Task, accumulator: Slot) -> None:
        """Write a tile, or add it where the reduction is in parts."""
        c1, c0 = task.first_column // self.spec.sliding.c0, self.spec.sliding.c0
        pixels = slice(task.first_pixel, task.first_pixel + task.pixels)

        def index(first_column: int, columns: int) -> tuple[Any, ...]:
            start = c1 + first_column // c0
            return task.group, task.image, task.depth, slice(start, start + columns // c0), pixels

        self.out.write(accumulator, task.pixels, task.columns, index, atomic=len(self.s.parts) > 1)

    def _left(self, task: Task, depth: int, box: Taps, tile: ImageTile) -> Slot:
        """Return the slot with the image tile, loading it unless it is still there."""
        key = (task.group, task.image, depth, task.first_pixel, box)
        slot = self.left.find(key)
        if slot is not None:
            return slot
        slot = self.left.next(key)
        if tile.clear:
            self.b.add(FillL1(slot, tile.l1_bytes, tile.window.tile_shape))
        if tile.rows is not None:
            channels = slice(box.channel, box.channel + box.channels)
            index = (task.group, task.image, depth, channels, tile.rows, tile.cols)
            source = Gm(self.spec.source, index)
            self.b.add(CopyGmToL1(slot, source, tile.gm_bytes, (), tile.window, tile.placement))
        return slot

    def _right(self, task: Task, depth: int, box: Taps) -> Slot:
        """Return the slot with the weights of a box, loading them unless they are still there."""
        key = (task.group, depth, task.first_column, box)
        slot = self.right.find(key)
        if slot is not None:
            return slot
        slot = self.right.next(key)
        rows, cols = (
            _walked(first, count, extent, self.spec.backwards)
            for first, count, extent in zip(box[2::2], box[3::2], self.spec.sliding.kernel, strict=True)
        )
        c0 = self.spec.sliding.c0
        columns = slice(task.first_column, task.first_column + task.columns)
        channels = slice(box.channel, box.channel + box.channels)
        index = (task.group, depth, channels, rows, cols, slice(None), columns)
        size = box.groups * c0 * task.columns * self.spec.sliding.itemsize
        shape = (box.groups, c0 * task.columns)
        self.b.add(CopyGmToL1(slot, Gm(self.spec.weights, index), size, shape))
        return slot

    def _product(
        self,
        task: Task,
        accumulator: Slot,
        left: tuple[Slot, ImageTile],
        right: tuple[Slot, Taps],
        slice_: tuple[int, int, int],
        first: bool,
    ) -> None:
        spec = self.spec
        c0, size = spec.sliding.c0, spec.sliding.itemsize
        first_left, first_right, groups = slice_
        a, b = self.l0a.next(), self.l0b.next()
        tile, box = left[1], right[1]
        patches = Patches(tile.window, tile.first_pixel, task.pixels, first_left, groups, size)
        rows = TapRows(box.rows * box.cols, spec.backwards, first_right, groups, c0, task.columns, size)
        self.b.add(LoadL0A(a, left[0], patches))
        self.b.add(LoadL0B(b, right[0], rows))
        if not first and spacing_needed(self.s.profile, task.pixels, task.columns):
            self.b.add(PipeBarrier("M"))
        self.b.add(Mmad(accumulator, a, b, task.pixels, groups * c0, task.columns, spec.rate, first))


def _walked(first: int, count: int, extent: int, backwards: bool) -> slice:
    """Return which taps a range of the walk touches."""
    start = extent - first - count if backwards else first
    return slice(start, start + count)
