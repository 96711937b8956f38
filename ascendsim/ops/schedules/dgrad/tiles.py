"""The instructions on single tiles of a dgrad, which every loop nest of it appends in its own order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ascendsim.cube.mmad import Mmad, PipeBarrier, spacing_needed
from ascendsim.cube.movers import CopyGmToL1, FillL1, LoadL0A, LoadL0B
from ascendsim.cube.views import Im2col, TapRows
from ascendsim.ops.problems.taps import Segment, Taps
from ascendsim.ops.schedules.dgrad.tasks import DgradTasks, Task
from ascendsim.program.builder import ProgramBuilder
from ascendsim.program.places import Gm, Slot

Index = tuple[Any, ...]
# (task, find, *args) -> find(cut, task, *args): the slice of GM that an instruction names. A nest that
# repeats templates notes here how the slices follow from the task.
Aim = Callable[..., Index]


class DgradTiles:
    """Appends loads and products of tiles to a builder.

    cut   how the dgrad is cut
    aim   finds slices of GM; None: as they are
    """

    def __init__(self, builder: ProgramBuilder, cut: DgradTasks, aim: Aim | None = None) -> None:
        self._b = builder
        self._cut = cut
        self._aim: Aim = aim or (lambda task, find, *args: find(cut, task, *args))

    def load_image(self, slot: Slot, task: Task, pair: int, box: Taps) -> None:
        """Bring into L1 what the pixels of a task need of the source under a box of taps.

        `pair` counts the (kernel depth, source depth) pairs that reach the task's depth.
        """
        tile = self._cut.left_tiles[task.first_pixel, task.pixels, box]
        if tile.clear:
            # A strided copy leaves gaps between its pixels; they are the zeros that the stride inserts.
            self._b.add(FillL1(slot, tile.l1_bytes, tile.window.tile_shape))
        if tile.rows is not None:
            source = Gm(self._cut.spec.source, self._aim(task, _source_index, pair, box))
            self._b.add(CopyGmToL1(slot, source, tile.gm_bytes, (), tile.window, tile.placement))

    def load_weights(self, slot: Slot, task: Task, pair: int, box: Taps) -> None:
        """Bring into L1 the weights of a box for the columns of a task."""
        spec = self._cut.spec
        c0 = spec.sliding.c0
        size = box.groups * c0 * task.columns * spec.sliding.itemsize
        source = Gm(spec.weights, self._aim(task, _weights_index, pair, box))
        self._b.add(CopyGmToL1(slot, source, size, (box.groups, c0 * task.columns)))

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
        spec = self._cut.spec
        c0, size = spec.sliding.c0, spec.sliding.itemsize
        first_left, first_right, groups = slice_
        tile, box = self._cut.left_tiles[task.first_pixel, task.pixels, segment.left], segment.right
        rows = Im2col(tile.window, tile.first_pixel, task.pixels, first_left, groups, size)
        taps = TapRows(box.rows * box.cols, spec.backwards, first_right, groups, c0, task.columns, size)
        self._b.add(LoadL0A(l0[0], image, rows))
        self._b.add(LoadL0B(l0[1], weights, taps))
        # A product of few fractals would want the accumulator before the one before has given it back.
        if not first and spacing_needed(self._cut.profile, task.pixels, task.columns):
            self._b.add(PipeBarrier("M"))
        kind = spec.compute_dtype
        self._b.add(Mmad(accumulator, *l0, task.pixels, groups * c0, task.columns, kind, first))

    def output(self, task: Task) -> Callable[[int, int], Index]:
        """Return what finds the slice of the output for a range of the task's columns."""
        return lambda first, count: self._aim(task, _output_index, first, count)


def _output_index(cut: DgradTasks, task: Task, first_column: int, columns: int) -> Index:
    c0 = cut.spec.sliding.c0
    start = (task.first_column + first_column) // c0
    pixels = slice(task.first_pixel, task.first_pixel + task.pixels)
    return task.group, task.image, task.depth, slice(start, start + columns // c0), pixels


def _source_index(cut: DgradTasks, task: Task, pair: int, box: Taps) -> Index:
    tile = cut.left_tiles[task.first_pixel, task.pixels, box]
    depth = cut.spec.depths[task.depth][pair][1]
    channels = slice(box.channel, box.channel + box.channels)
    return task.group, task.image, depth, channels, tile.rows, tile.cols


def _weights_index(cut: DgradTasks, task: Task, pair: int, box: Taps) -> Index:
    columns = slice(task.first_column, task.first_column + task.columns)
    depth = cut.spec.depths[task.depth][pair][0]
    return task.group, depth, *cut.walked[box], slice(None), columns
