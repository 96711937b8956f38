"""The slices of GM that the tasks of a dgrad name."""

from __future__ import annotations

from ascendsim.cube.tile_reads import TapRows
from ascendsim.ops.problems.taps import Taps
from ascendsim.ops.schedules.dgrad.pieces import Task
from ascendsim.ops.schedules.dgrad.tasks import DgradTasks
from ascendsim.ops.schedules.tiles import Index
from ascendsim.ops.schedules.zero_insertion import Piece


# Apart from the tiles, which know the builder: units of code keep what finds their slices, and code that knew
# the builder that knows the code would stay until the garbage collector comes.
class DgradSlices:
    """Finds slices of GM for tasks, cut as `DgradTasks` says."""

    def __init__(self, cut: DgradTasks) -> None:
        self._cut = cut

    def output(self, task: Task, first_column: int, columns: int) -> Index:
        """Return the slice of the output for a range of a task's columns."""
        c0 = self._cut.gemm.out_c0
        start = (task.first_column + first_column) // c0
        pixels = slice(task.first_pixel, task.first_pixel + task.pixels)
        return task.group, task.image, task.depth, slice(start, start + columns // c0), pixels

    def source(self, task: Task, pair: int, box: Taps) -> Index:
        """Return what the pixels of a task need of the source under a box of taps."""
        tile = self._cut.left_tiles[task.first_pixel, task.pixels, box]
        depth = self._cut.gemm.depths[task.depth][pair][1]
        channels = slice(box.channel, box.channel + box.channels)
        return task.group, task.image, depth, channels, tile.rows, tile.cols

    def source_piece(self, task: Task, pair: int, box: Taps, piece: Piece) -> Index:
        """Return what a piece of that holds."""
        group, image, depth, *whole = self.source(task, pair, box)
        parts = piece.channels, piece.source_rows, piece.source_cols
        return (
            *(group, image, depth),
            *(
                slice(own.start + part.start, own.start + part.stop)
                for own, part in zip(whole, parts, strict=True)
            ),
        )

    def weights(self, task: Task, pair: int, box: Taps) -> Index:
        """Return the weights of a box for the columns of a task."""
        columns = slice(task.first_column, task.first_column + task.columns)
        depth = self._cut.gemm.depths[task.depth][pair][0]
        return task.group, depth, *self._cut.kernel_slices[box], slice(None), columns

    def taps(self, task: Task, box: Taps, slice_: tuple[int, int, int]) -> TapRows:
        """Return how a slice of the reduction is read of the weights of a box for the columns of a task."""
        gemm, (_, at, groups) = self._cut.gemm, slice_
        s = gemm.sliding
        # Im2col meets the taps from the first image row on, which going backwards is the last tap.
        return TapRows(box.rows * box.cols, gemm.backwards, at, groups, s.c0, task.columns, s.itemsize)
