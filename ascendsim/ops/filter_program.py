"""The instructions of one core of a filter product."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ascendsim.builder import ProgramBuilder
from ascendsim.cube.mmad import Mmad, PipeBarrier, spacing_needed
from ascendsim.cube.movers import CopyGmToL1, FillL1, LoadL0A, LoadL0B
from ascendsim.cube.views import Patches, Transposed, round_up
from ascendsim.ops.rings import Ring
from ascendsim.ops.sliding import ImageTile
from ascendsim.ops.writeback import Writeback
from ascendsim.program import Gm, Program, Slot

if TYPE_CHECKING:
    from ascendsim.ops.filter_gemm import FilterGemmSchedule, Piece, Task


class FilterProgram:
    """Emits the instructions of one core, task after task."""

    def __init__(self, schedule: FilterGemmSchedule, tasks: list[Task]) -> None:
        self.s = schedule
        self.spec = schedule.spec
        self.tasks = tasks
        t, size = schedule.tiling, schedule.spec.sliding.itemsize
        self.b = ProgramBuilder(schedule.profile, schedule.hazards)
        m0, n0 = schedule.profile.cube.m0, schedule.profile.cube.n0
        c0 = self.spec.sliding.c0
        m = round_up(max(task.rows for task in tasks), m0)
        n = round_up(max(task.columns.groups for task in tasks) * c0, n0)
        pixels = max(piece.pixels for task in tasks for _, _, piece in schedule.steps(task))
        right_bytes = max(
            schedule.tile(piece, task.columns.box).l1_bytes
            for task in tasks
            for _, _, piece in schedule.steps(task)
        )
        self.left = Ring(self.b.slots("L1", m * pixels * size, "A1", t.al1_buffers))
        self.right = Ring(self.b.slots("L1", right_bytes, "B1", t.bl1_buffers))
        k = round_up(min(t.base_k, pixels), schedule.profile.cube.rates[self.spec.rate].k0)
        self.l0a = Ring(self.b.slots("L0A", m * k * size, "A0", t.al0_buffers))
        self.l0b = Ring(self.b.slots("L0B", k * n * size, "B0", t.bl0_buffers))
        self.l0c = Ring(self.b.slots("L0C", m * n * 4, "C0", t.cl0_buffers))
        self.out = Writeback(self.b, schedule.profile, schedule.target, m, n, 0)

    def emit(self) -> Program:
        """Return the program."""
        for task in self.tasks:
            self._task(task)
        return self.b.build()

    def _task(self, task: Task) -> None:
        accumulator = self.l0c.next()
        first = True
        for small_depth, big_depth, piece in self.s.steps(task):
            tile = self.s.tile(piece, task.columns.box)
            a = self._left(task, small_depth, piece)
            b = self._right(task, big_depth, piece, tile)
            for at in range(0, piece.pixels, self.s.tiling.base_k):
                k = min(self.s.tiling.base_k, piece.pixels - at)
                self._product(task, accumulator, a, (b, tile), (piece.pixels, at, k), first)
                first = False
        rows = slice(task.first_row, task.first_row + task.rows)
        place = (task.part,) if self.s.target is not self.spec.output else ()

        def index(first_column: int, count: int) -> tuple[Any, ...]:
            start = task.columns.first_column + first_column
            return *place, task.group, task.depth, rows, slice(start, start + count)

        columns = task.columns.groups * self.spec.sliding.c0
        self.out.write(accumulator, task.rows, columns, index, atomic=self.s.atomic)

    def _left(self, task: Task, depth: int, piece: Piece) -> Slot:
        """Return the slot with the small side, loading it unless it is still there."""
        key = (task.group, depth, task.first_row, piece)
        slot = self.left.find(key)
        if slot is not None:
            return slot
        slot = self.left.next(key)
        s = self.spec.sliding
        c1 = task.first_row // s.c0
        channels = task.rows // s.c0
        pixels = slice(piece.first_pixel, piece.first_pixel + piece.pixels)
        index = (task.group, piece.image, depth, slice(c1, c1 + channels), pixels)
        size = task.rows * piece.pixels * s.itemsize
        self.b.add(CopyGmToL1(slot, Gm(self.spec.small, index), size, (channels, piece.pixels, s.c0)))
        return slot

    def _right(self, task: Task, depth: int, piece: Piece, tile: ImageTile) -> Slot:
        """Return the slot with the image tile, loading it unless it is still there."""
        box = task.columns.box
        key = (task.group, depth, piece, box)
        slot = self.right.find(key)
        if slot is not None:
            return slot
        slot = self.right.next(key)
        if tile.clear:
            self.b.add(FillL1(slot, tile.l1_bytes, tile.window.tile_shape))
        if tile.rows is not None:
            channels = slice(box.channel, box.channel + box.channels)
            index = (task.group, piece.image, depth, channels, tile.rows, tile.cols)
            source = Gm(self.spec.big, index)
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
        patches = Patches(
            tile.window, tile.first_pixel + at, k, columns.first_group, columns.groups, s.itemsize
        )
        self.b.add(LoadL0A(a, left, rows))
        self.b.add(LoadL0B(b, right[0], patches))
        if not first and spacing_needed(self.s.profile, task.rows, columns.groups * s.c0):
            self.b.add(PipeBarrier("M"))
        self.b.add(Mmad(accumulator, a, b, task.rows, k, columns.groups * s.c0, self.spec.rate, first))
