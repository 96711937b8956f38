"""The instructions of the cores of a filter product."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

from ascendsim.cube.mmad import Mmad, PipeBarrier, spacing_needed
from ascendsim.cube.movers import CopyGmToL1, FillL1, LoadL0A, LoadL0B
from ascendsim.cube.views import Im2col, Transposed, round_up
from ascendsim.ops.problems.sliding import ImageTile
from ascendsim.ops.schedules.wgrad.tasks import PixelRange, Task, WgradTasks
from ascendsim.ops.schedules.writeback import Writeback
from ascendsim.program.builder import ProgramBuilder
from ascendsim.program.places import Gm, GmTensor, Slot
from ascendsim.program.program import Program
from ascendsim.program.recurring import Places, Recurring
from ascendsim.program.rings import Ring


class Sizes(NamedTuple):
    """What a core reserves: rows, columns, pixels and bytes (of images) of its largest tiles."""

    m: int
    n: int
    pixels: int
    right_bytes: int


def sizes_of(schedule: WgradTasks, tasks: list[Task]) -> Sizes:
    """Return what the tasks of a core need."""
    cube, c0 = schedule.profile.cube, schedule.spec.sliding.c0
    pieces = [(task, piece) for task in tasks for piece in schedule.kinds_of_pieces(task)]
    return Sizes(
        round_up(max(task.rows for task in tasks), cube.m0),
        round_up(max(task.columns.groups for task in tasks) * c0, cube.n0),
        max(piece.pixels for _, piece in pieces),
        max(schedule.tile(piece, task.columns.box).l1_bytes for task, piece in pieces),
    )


class KStep(NamedTuple):
    """A piece of a task's reduction, at a depth of the small and one of the big side."""

    task: Task
    small_depth: int
    big_depth: int
    piece: PixelRange
    first: bool


class WgradProgram:
    """Emits the instructions of cores with equal needs, one after another, task after task."""

    def __init__(
        self, schedule: WgradTasks, sizes: Sizes, target: GmTensor, atomic: bool, hazards: frozenset[str]
    ) -> None:
        self.s = schedule
        self.spec = schedule.spec
        self.target = target
        self.atomic = atomic
        t, size = schedule.tiling, schedule.spec.sliding.itemsize
        b = self.b = ProgramBuilder(schedule.profile, hazards)
        m, n, pixels, right_bytes = sizes
        self.left = Ring(b.slots("L1", m * pixels * size, "A1", t.al1_buffers))
        self.right = Ring(b.slots("L1", right_bytes, "B1", t.bl1_buffers))
        k = round_up(min(t.base_k, pixels), schedule.profile.cube.rates[self.spec.compute_dtype].k0)
        self.l0a = Ring(b.slots("L0A", m * k * size, "A0", t.al0_buffers))
        self.l0b = Ring(b.slots("L0B", k * n * size, "B0", t.bl0_buffers))
        self.l0c = Ring(b.slots("L0C", m * n * 4, "C0", t.cl0_buffers))
        self.out = Writeback(b, schedule.profile, target, m, n, 0)
        plain = (self.l0a, self.l0b, self.l0c, *self.out.rings)
        self.recurring = Recurring(schedule, b, (self.left, self.right, *plain))
        self.plain_places: Places = ((),) * len(plain)

    def emit(self, tasks: list[Task]) -> Program:
        """Return the program of a core."""
        self.recurring.restart()
        for task in tasks:
            self._task(task)
        return self.b.build()

    def _task(self, task: Task) -> None:
        self.l0c.next()
        columns = task.columns
        first = True
        for small_depth, big_depth, piece in self.s.steps(task):
            step = KStep(task, small_depth, big_depth, piece, first)
            tile_shape = self.s.tile_shape(piece, columns.box)
            shape = tile_shape, task.rows, columns.first_group, columns.groups, first
            places = (_left_place(step),), (_right_place(step),), *self.plain_places
            self.recurring.emit(step, shape, places, self._step)
            first = False
        self._write(task)

    def _write(self, task: Task) -> None:
        """Write a tile, or add it, where the parts of the reduction meet or are kept."""
        rows = slice(task.first_row, task.first_row + task.rows)
        place = (task.part,) if self.target is not self.spec.output else ()

        def index(first_column: int, count: int) -> tuple[Any, ...]:
            start = task.columns.first_column + first_column
            return *place, task.group, task.depth, rows, slice(start, start + count)

        columns = task.columns.groups * self.spec.sliding.c0
        self.out.write(self.l0c.last, task.rows, columns, index, atomic=self.atomic)

    def _step(self, step: KStep) -> None:
        piece = step.piece
        tile = self.s.tile(piece, step.task.columns.box)
        a, b = self._left(step), self._right(step, tile)
        first = step.first
        for at in range(0, piece.pixels, self.s.tiling.base_k):
            k = min(self.s.tiling.base_k, piece.pixels - at)
            self._product(step.task, self.l0c.last, a, (b, tile), (piece.pixels, at, k), first)
            first = False

    def _left(self, step: KStep) -> Slot:
        """Return the slot with the small side, loading it unless it is still there."""
        place = _left_place(step)
        slot = self.left.find(place)
        if slot is not None:
            return slot
        slot = self.left.next(place)
        s, rows, pixels = self.spec.sliding, step.task.rows, step.piece.pixels
        source = Gm(self.spec.small, self.recurring.aim(step, _small_index))
        self.b.add(CopyGmToL1(slot, source, rows * pixels * s.itemsize, (rows // s.c0, pixels, s.c0)))
        return slot

    def _right(self, step: KStep, tile: ImageTile) -> Slot:
        """Return the slot with the image tile, loading it unless it is still there."""
        place = _right_place(step)
        slot = self.right.find(place)
        if slot is not None:
            return slot
        slot = self.right.next(place)
        if tile.clear:
            self.b.add(FillL1(slot, tile.l1_bytes, tile.window.tile_shape))
        if tile.rows is not None:
            source = Gm(self.spec.big, self.recurring.aim(step, _big_index))
            self.b.add(CopyGmToL1(slot, source, tile.gm_bytes, (), tile.window, tile.placement))
        return slot

    def _product(
        self,
        task: Task,
        accumulator: Slot,
        left: Slot,
        right: tuple[Slot, ImageTile],
        piece: tuple[int, int, int],
        first: bool,
    ) -> None:
        s = self.spec.sliding
        tile_pixels, at, k = piece
        a, b = self.l0a.next(), self.l0b.next()
        rows = Transposed(task.rows // s.c0, tile_pixels, at, k, s.c0, s.itemsize)
        tile, columns = right[1], task.columns
        patches = Im2col(
            tile.window, tile.first_pixel + at, k, columns.first_group, columns.groups, s.itemsize
        )
        self.b.add(LoadL0A(a, left, rows))
        self.b.add(LoadL0B(b, right[0], patches))
        if not first and spacing_needed(self.s.profile, task.rows, columns.groups * s.c0):
            self.b.add(PipeBarrier("M"))
        self.b.add(
            Mmad(accumulator, a, b, task.rows, k, columns.groups * s.c0, self.spec.compute_dtype, first)
        )


def _left_place(step: KStep) -> Hashable:
    """Return what tells the small side of one step from that of another."""
    return step.task.group, step.small_depth, step.task.first_row, step.piece


def _right_place(step: KStep) -> Hashable:
    """Return what tells the image tile of one step from that of another."""
    return step.task.group, step.big_depth, step.piece, step.task.columns.box


def _small_index(schedule: WgradTasks, step: KStep) -> tuple[Any, ...]:
    task, piece, c0 = step.task, step.piece, schedule.spec.sliding.c0
    c1 = task.first_row // c0
    pixels = slice(piece.first_pixel, piece.first_pixel + piece.pixels)
    return task.group, piece.image, step.small_depth, slice(c1, c1 + task.rows // c0), pixels


def _big_index(schedule: WgradTasks, step: KStep) -> tuple[Any, ...]:
    box = step.task.columns.box
    tile = schedule.tile(step.piece, box)
    channels = slice(box.channel, box.channel + box.channels)
    return step.task.group, step.piece.image, step.big_depth, channels, tile.rows, tile.cols
