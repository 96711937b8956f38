"""The instructions on single tiles of a wgrad, which every loop nest of it appends in its own order."""

from __future__ import annotations

from collections.abc import Callable

from ascendsim.cube.movers import CopyGmToL1
from ascendsim.cube.tile_reads import Transposed
from ascendsim.ops.schedules.tiles import Index, Tiles
from ascendsim.ops.schedules.wgrad.pieces import Task
from ascendsim.ops.schedules.wgrad.slices import Load, WgradSlices
from ascendsim.ops.schedules.wgrad.tasks import WgradTasks
from ascendsim.program.builder import ProgramBuilder
from ascendsim.program.places import Slot


class WgradTiles(Tiles):
    """Appends loads and products of tiles of a wgrad, cut as `WgradTasks` says."""

    _cut: WgradTasks

    def __init__(self, builder: ProgramBuilder, cut: WgradTasks) -> None:
        super().__init__(builder, cut)
        self._slices = WgradSlices(cut)

    def load_small(self, slot: Slot, load: Load) -> None:
        """Bring into L1 a run of pixels of the small side, all channels of the task's rows."""
        s, rows = self._cut.gemm.sliding, load.task.rows
        pixels = self._cut.left_run(load.segment.range).pixels
        source = self._b.gm(self._cut.gemm.small, self._slices.small, load)
        size = rows * pixels * s.itemsize
        self._b.add(CopyGmToL1(slot, source, size, (rows // s.c0, pixels, s.c0)))

    def load_big(self, slot: Slot, load: Load) -> None:
        """Bring into L1 what these pixels see of the big side under the task's box of taps."""
        tile = self._cut.tile(load.segment.range, load.task.columns.box)
        self._image(slot, tile, self._cut.gemm.big, self._slices.big, load)

    def multiply(
        self,
        accumulator: Slot,
        small: Slot,
        big: Slot,
        l0: tuple[Slot, Slot],
        load: Load,
        slice_: tuple[int, int],
        *,
        first: bool,
    ) -> None:
        """Load one slice, (first pixel in the run, pixels), into L0A and L0B, and add its product."""
        task, run, s = load.task, load.segment.range, self._cut.gemm.sliding
        at, k = slice_
        tile = self._cut.tile(run, task.columns.box)
        # In GM and L1 a pixel lies beside its channels, while an Mmad adds along the rows of its left matrix:
        # the rows must be channels, so pixels and channels change places on the way to L0A.
        left, right = self._cut.left_run(run), self._cut.right_run(run)
        in_left = run.first_pixel - left.first_pixel + at
        in_right = run.first_pixel - right.first_pixel + tile.first_pixel + at
        width = tile.window.out_width
        rows = Transposed(task.rows // s.c0, in_left, k, s.c0, s.itemsize, in_right % width, width)
        patches = self._b.view(self._slices.patches, load, in_right, k)
        sizes = task.rows, k, task.columns.groups * s.c0
        self._product(accumulator, (small, l0[0], rows), (big, l0[1], patches), sizes, first=first)

    def output(self, *, apart: bool) -> Callable[[Task, int, int], Index]:
        """Return what finds the slice of the output for a range of a task's columns.

        `apart`: of a workspace in which every part of the reduction has a place of its own, in front.
        """
        return self._slices.output_part if apart else self._slices.output
