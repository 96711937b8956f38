"""The instructions of the cores of an image product."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

from ascendsim.cube.mmad import Mmad, PipeBarrier, spacing_needed
from ascendsim.cube.movers import CopyGmToL1, FillL1, LoadL0A, LoadL0B
from ascendsim.cube.views import Im2col, TapRows, round_up
from ascendsim.ops.problems.sliding import ImageTile
from ascendsim.ops.problems.taps import Taps
from ascendsim.ops.schedules.dgrad.tasks import DgradTasks, Task
from ascendsim.ops.schedules.writeback import Writeback
from ascendsim.program.builder import ProgramBuilder
from ascendsim.program.places import Gm, GmTensor, Slot
from ascendsim.program.program import Program
from ascendsim.program.recurring import Places, Recurring
from ascendsim.program.rings import Ring


class Sizes(NamedTuple):
    """What a core reserves: rows and columns of its largest tile, bytes of its largest image and weights."""

    m: int
    n: int
    left_bytes: int
    right_bytes: int


def sizes_of(schedule: DgradTasks, tasks: list[Task]) -> Sizes:
    """Return what the tasks of a core need."""
    cube, sliding = schedule.profile.cube, schedule.spec.sliding
    n = round_up(max(task.columns for task in tasks), cube.n0)
    return Sizes(
        round_up(max(task.pixels for task in tasks), cube.m0),
        n,
        max(
            schedule.left_tiles[first, pixels, box].l1_bytes
            for first, pixels in {(task.first_pixel, task.pixels) for task in tasks}
            for box in schedule.left_boxes
        ),
        max(box.groups for box in schedule.right_boxes) * sliding.c0 * n * sliding.itemsize,
    )


class DgradProgram:
    """Emits the instructions of cores with equal needs, one after another, task after task."""

    def __init__(self, schedule: DgradTasks, sizes: Sizes, target: GmTensor, hazards: frozenset[str]) -> None:
        self.s = schedule
        self.spec = schedule.spec
        t, size = schedule.tiling, schedule.spec.sliding.itemsize
        b = self.b = ProgramBuilder(schedule.profile, hazards)
        m, n = sizes.m, sizes.n
        self.left = Ring(b.slots("L1", sizes.left_bytes, "A1", t.al1_buffers))
        self.right = Ring(b.slots("L1", sizes.right_bytes, "B1", t.bl1_buffers))
        self.l0a = Ring(b.slots("L0A", m * t.base_k * size, "A0", t.al0_buffers))
        self.l0b = Ring(b.slots("L0B", t.base_k * n * size, "B0", t.bl0_buffers))
        self.l0c = Ring(b.slots("L0C", m * n * 4, "C0", t.cl0_buffers))
        self.out = Writeback(b, schedule.profile, target, m, n, self.spec.sliding.c0)
        plain = (self.l0a, self.l0b, self.l0c, *self.out.rings)
        self.recurring = Recurring(schedule, b, (self.left, self.right, *plain))
        self.plain_places: Places = ((),) * len(plain)

    def emit(self, tasks: list[Task]) -> Program:
        """Return the program of a core."""
        self.recurring.restart()
        shapes, depths = self.s.pixel_shapes, self.spec.depths
        for task in tasks:
            pairs = depths[task.depth]
            shape = shapes[task.first_pixel], task.columns, len(pairs)
            left = tuple([_left_place(task, source) for _, source in pairs])
            right = tuple([_right_place(task, kernel) for kernel, _ in pairs])
            self.recurring.emit(task, shape, (left, right, *self.plain_places), self._task)
        return self.b.build()

    def _task(self, task: Task) -> None:
        for part in self.s.parts:
            accumulator = self.l0c.next()
            first = True
            for pair in range(len(self.spec.depths[task.depth])):
                for segment in part:
                    tile = self.s.left_tiles[task.first_pixel, task.pixels, segment.left]
                    a = self._left(task, pair, segment.left, tile)
                    b = self._right(task, pair, segment.right)
                    for slice_ in segment.slices:
                        self._product(task, accumulator, (a, tile), (b, segment.right), slice_, first)
                        first = False
            self._write(task, accumulator)

    def _write(self, task: Task, accumulator: Slot) -> None:
        """Write a tile, or add it where the reduction is in parts."""

        def index(first_column: int, columns: int) -> tuple[Any, ...]:
            return self.recurring.aim(task, _output_index, first_column, columns)

        self.out.write(accumulator, task.pixels, task.columns, index, atomic=len(self.s.parts) > 1)

    def _left(self, task: Task, pair: int, box: Taps, tile: ImageTile) -> Slot:
        """Return the slot with the image tile, loading it unless it is still there."""
        place = _left_place(task, self.spec.depths[task.depth][pair][1])
        slot = self.left.find(place, box)
        if slot is not None:
            return slot
        slot = self.left.next(place, box)
        if tile.clear:
            self.b.add(FillL1(slot, tile.l1_bytes, tile.window.tile_shape))
        if tile.rows is not None:
            source = Gm(self.spec.source, self.recurring.aim(task, _source_index, pair, box))
            self.b.add(CopyGmToL1(slot, source, tile.gm_bytes, (), tile.window, tile.placement))
        return slot

    def _right(self, task: Task, pair: int, box: Taps) -> Slot:
        """Return the slot with the weights of a box, loading them unless they are still there."""
        place = _right_place(task, self.spec.depths[task.depth][pair][0])
        slot = self.right.find(place, box)
        if slot is not None:
            return slot
        slot = self.right.next(place, box)
        c0 = self.spec.sliding.c0
        size = box.groups * c0 * task.columns * self.spec.sliding.itemsize
        shape = (box.groups, c0 * task.columns)
        source = Gm(self.spec.weights, self.recurring.aim(task, _weights_index, pair, box))
        self.b.add(CopyGmToL1(slot, source, size, shape))
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
        patches = Im2col(tile.window, tile.first_pixel, task.pixels, first_left, groups, size)
        rows = TapRows(box.rows * box.cols, spec.backwards, first_right, groups, c0, task.columns, size)
        self.b.add(LoadL0A(a, left[0], patches))
        self.b.add(LoadL0B(b, right[0], rows))
        if not first and spacing_needed(self.s.profile, task.pixels, task.columns):
            self.b.add(PipeBarrier("M"))
        self.b.add(Mmad(accumulator, a, b, task.pixels, groups * c0, task.columns, spec.compute_dtype, first))


def _left_place(task: Task, depth: int) -> Hashable:
    """Return what tells the image tiles of one task from those of another."""
    return task.group, task.image, depth, task.first_pixel


def _right_place(task: Task, depth: int) -> Hashable:
    """Return what tells the weights of one task from those of another."""
    return task.group, depth, task.first_column


def _output_index(schedule: DgradTasks, task: Task, first_column: int, columns: int) -> tuple[Any, ...]:
    c0 = schedule.spec.sliding.c0
    start = (task.first_column + first_column) // c0
    pixels = slice(task.first_pixel, task.first_pixel + task.pixels)
    return task.group, task.image, task.depth, slice(start, start + columns // c0), pixels


def _source_index(schedule: DgradTasks, task: Task, pair: int, box: Taps) -> tuple[Any, ...]:
    tile = schedule.left_tiles[task.first_pixel, task.pixels, box]
    depth = schedule.spec.depths[task.depth][pair][1]
    channels = slice(box.channel, box.channel + box.channels)
    return task.group, task.image, depth, channels, tile.rows, tile.cols


def _weights_index(schedule: DgradTasks, task: Task, pair: int, box: Taps) -> tuple[Any, ...]:
    columns = slice(task.first_column, task.first_column + task.columns)
    depth = schedule.spec.depths[task.depth][pair][0]
    return task.group, depth, *schedule.walked[box], slice(None), columns
