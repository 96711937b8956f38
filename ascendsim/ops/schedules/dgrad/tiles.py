"""The instructions on single tiles of a dgrad, which every loop nest of it appends in its own order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from ascendsim.cube.im2col import Im2col
from ascendsim.cube.movers import CopyGmToL1
from ascendsim.ops.problems.sliding import ImageTile
from ascendsim.ops.problems.taps import Segment, Taps
from ascendsim.ops.schedules.dgrad.pieces import Task
from ascendsim.ops.schedules.dgrad.slices import DgradSlices
from ascendsim.ops.schedules.dgrad.tasks import DgradTasks
from ascendsim.ops.schedules.tiles import Index, Tiles
from ascendsim.ops.schedules.zero_insertion import ZeroInsertion
from ascendsim.program.builder import ProgramBuilder
from ascendsim.program.places import Slot

Find = Callable[..., Index]


class DgradTiles(Tiles):
    """Appends loads and products of tiles of a dgrad, cut as `DgradTasks` says.

    finds   what finds the slices of GM; a nest whose units of code are told by something else has its own
    """

    finds: ClassVar[type[DgradSlices]] = DgradSlices
    _cut: DgradTasks

    def __init__(
        self, builder: ProgramBuilder, cut: DgradTasks, insertion: ZeroInsertion | None = None
    ) -> None:
        super().__init__(builder, cut)
        self._slices = self.finds(cut)
        self._insertion = insertion
        # What the slices of one segment have in common: a layer of many taps has hundreds of them.
        self._met: tuple[Task, Segment, ImageTile] | None = None

    def load_image(self, slot: Slot, task: Task, pair: int, box: Taps) -> None:
        """Bring into L1 what the pixels of a task need of the source under a box of taps.

        `pair` counts the (kernel depth, source depth) pairs that reach the task's depth.
        """
        tile = self._cut.left_tiles[task.first_pixel, task.pixels, box]
        self._left(slot, tile, (self._slices.source, self._slices.source_piece), task, pair, box)

    def _left(self, slot: Slot, tile: ImageTile, finds: tuple[Find, Find], *task: Any) -> None:
        """Bring an image tile into L1; what finds its slice, and what finds that of a piece of it."""
        find, find_piece = finds
        if self._insertion is not None and tile.rows is not None:
            self._insertion.load(slot, tile, self._cut.gemm.source, find_piece, *task)
            return
        self._image(slot, tile, self._cut.gemm.source, find, *task)

    def load_weights(self, slot: Slot, task: Task, pair: int, box: Taps) -> None:
        """Bring into L1 the weights of a box for the columns of a task."""
        self._weights(slot, box, task.columns, self._slices.weights, task, pair, box)

    def _weights(self, slot: Slot, box: Taps, columns: int, find: Callable[..., Index], *task: Any) -> None:
        """Bring weights into L1; find(*task) is their slice."""
        gemm = self._cut.gemm
        rows = gemm.sliding.c0 * columns
        source = self._b.gm(gemm.weights, find, *task)
        size = box.groups * rows * gemm.sliding.itemsize
        self._b.add(CopyGmToL1(slot, source, size, (box.groups, rows)))

    def multiply(
        self,
        accumulator: Slot,
        image: Slot,
        weights: Slot,
        l0: tuple[Slot, Slot],
        task: Task,
        segment: Segment,
        slice_: tuple[int, int, int],
        *,
        first: bool,
    ) -> None:
        """Load one slice of a segment from L1 into the slots of L0A and L0B, and add its product."""
        met = self._met
        if met is None or met[0] is not task or met[1] is not segment:
            met = self._met = task, segment, self._cut.left_tiles[task.first_pixel, task.pixels, segment.left]
        tile, (at, _, groups) = met[2], slice_
        rows = Im2col(tile.window, tile.first_pixel, task.pixels, at, groups, self._cut.gemm.sliding.itemsize)
        self._multiply(accumulator, (image, l0[0], rows), (weights, l0[1]), task, segment, slice_, first)

    def _multiply(
        self,
        accumulator: Slot,
        image: tuple[Slot, Slot, Im2col],
        weights: tuple[Slot, Slot],
        task: Task,
        segment: Segment,
        slice_: tuple[int, int, int],
        first: bool,
    ) -> None:
        """Load one slice of an image, (slot in L1, slot in L0, view), and of weights, and add its product."""
        taps = self._slices.taps(task, segment.right, slice_)
        sizes = task.pixels, taps.groups * taps.c0, task.columns
        self._product(accumulator, image, (*weights, taps), sizes, first=first)

    @property
    def output(self) -> Callable[[Task, int, int], Index]:
        """What finds the slice of the output for a range of a task's columns."""
        return self._slices.output
