"""The tiles of a part of the reduction of a base block of a dgrad; parts that are alike share their code."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ascendsim.ops.problems.taps import Segment
from ascendsim.ops.schedules.dgrad.pieces import Task
from ascendsim.ops.schedules.dgrad.slices import DgradSlices
from ascendsim.ops.schedules.dgrad.tiles import DgradTiles
from ascendsim.ops.schedules.tiles import Index
from ascendsim.ops.schedules.zero_insertion import Piece
from ascendsim.program.places import Slot


class Part(NamedTuple):
    """One part of the reduction of a base block, by its number."""

    task: Task
    number: int


class PartSlices(DgradSlices):
    """Finds slices of GM for parts; their segments are counted from the first one of the part."""

    def segment(self, part: Part, at: int) -> Segment:
        """Return a segment of a part."""
        return self._cut.parts[part.number][at]

    def left(self, part: Part, pair: int, at: int) -> Index:
        """Return what the pixels of a block need of the source under the left box of a segment."""
        return self.source(part.task, pair, self.segment(part, at).left)

    def left_piece(self, part: Part, pair: int, at: int, piece: Piece) -> Index:
        """Return what a piece of that holds."""
        return self.source_piece(part.task, pair, self.segment(part, at).left, piece)

    def right(self, part: Part, pair: int, at: int) -> Index:
        """Return the weights of the right box of a segment for the columns of a block."""
        return self.weights(part.task, pair, self.segment(part, at).right)

    def written(self, part: Part, first_column: int, columns: int) -> Index:
        """Return the slice of the output for a range of a block's columns."""
        return self.output(part.task, first_column, columns)


class PartTiles(DgradTiles):
    """Appends loads and products of tiles of a part."""

    finds = PartSlices
    _slices: PartSlices

    def left(self, slot: Slot, part: Part, pair: int, at: int) -> None:
        """Bring into L1 what the pixels of a block need of the source for a segment."""
        task, find = part.task, self._slices
        tile = self._cut.left_tiles[task.first_pixel, task.pixels, find.segment(part, at).left]
        self._left(slot, tile, (find.left, find.left_piece), part, pair, at)

    def right(self, slot: Slot, part: Part, pair: int, at: int) -> None:
        """Bring into L1 the weights of a segment for the columns of a block."""
        box = self._slices.segment(part, at).right
        self._weights(slot, box, part.task.columns, self._slices.right, part, pair, at)

    @property
    def written(self) -> Callable[[Part, int, int], Index]:
        """What finds the slice of the output for a range of a block's columns."""
        return self._slices.written
