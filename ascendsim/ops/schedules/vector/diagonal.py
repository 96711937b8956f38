"""Changes of layout between the weights of single groups and the block-diagonal ones of merged groups.

    weights    plain (1, groups * S, B, KD, T)   packed (merged, KD, C1, T, C0, columns), to be read
    gradients  plain (1, groups * S, B, KD, T)   packed (merged, KD, rows, C1, T, C0), as they were made

S and B are the channels of one group. Groups of a merged one follow each other row after row, so that a box
reads or writes whole rows of its channels of the small side.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from ascendsim.ops.schedules.vector.relayout import Box, Index, Side, part
from ascendsim.ops.schedules.vector.taps import ReadWeight, TapRelayout
from ascendsim.vector.diagonal import OffDiagonal, OntoDiagonal


@dataclass(frozen=True)
class DiagonalRelayout(TapRelayout):
    """A change of weights whose groups are merged, `factor` of them at a time.

    small   channels of the small side in one group
    """

    factor: int = 1
    small: int = 1

    # A box has whole rows, and so do others that lie beside it.
    apart: ClassVar[bool] = False

    @property
    def block(self) -> tuple[int, int]:
        """Channels of one group, on the small and on the big side."""
        return self.small, self.plain.shape[2]

    @property
    def even(self) -> bool:
        """Return False: which blocks a box cuts depends on its place."""
        return False

    def mark(self, box: Box) -> tuple[int, ...]:
        """Return where the box lies, from which its blocks follow; the last merged group may have fewer."""
        return box.c1.start, box.line.start, int(box.plane == self.planes - 1)

    def together(self, planes: range) -> int:  # noqa: ARG002 - no two of them
        """Return one: boxes that read the same rows are told by where each of them lies."""
        return 1

    def _rows(self, box: Box, wanted: range) -> range:
        """Return which channels of the small side, of those wanted of a merged group, there are."""
        left = self.plain.shape[1] - box.plane * self.factor * self.small
        return range(wanted.start, max(wanted.start, min(wanted.stop, left)))

    @abstractmethod
    def _kept_rows(self, box: Box) -> range:
        """Return the channels of the small side of a merged group that a box reads or writes."""

    def plain_shape(self, box: Box) -> tuple[int, ...]:
        """Return channels of both sides, kernel depths and taps."""
        depths, taps = self._kept_taps(box)
        return len(self._kept_rows(box)), self.block[1], len(depths), len(taps)

    def plain_side(self, box: Box) -> Side:
        """Return whole rows: channels of the small side, with the taps of all their own columns."""
        rows, (depths, taps) = self._kept_rows(box), self._kept_taps(box)
        columns, first = self.block[1], box.plane * self.factor * self.small
        whole = len(box.taps) == self.area
        runs = len(rows) if whole else len(rows) * columns
        run = len(box.taps) * self.plain.itemsize * (columns if whole else 1)
        place: Index = (
            *(0, slice(first + rows.start, first + rows.stop), slice(0, columns)),
            *(part(depths), part(taps)),
        )
        return Side(place, (len(rows), columns, len(depths), len(taps)), runs, run)


@dataclass(frozen=True)
class DiagonalWeight(ReadWeight, DiagonalRelayout):
    """A change of a weight, which grad_input reads; `reduces_small`: in groups are the channels of S."""

    reduces_small: bool = True

    def _kept_rows(self, box: Box) -> range:
        # Those whose blocks lie in the box.
        small, big = self.block
        down, across = (small, big) if self.reduces_small else (big, small)
        channels = range(box.c1.start * self.c0, box.c1.stop * self.c0)
        first = max(channels.start // down, box.line.start // across)
        last = min(-(-channels.stop // down), -(-box.line.stop // across), self.factor)
        # Along the small side not even whole groups are needed.
        own = channels if self.reduces_small else box.line
        start = max(own.start, first * small)
        return self._rows(box, range(start, max(start, min(own.stop, last * small))))

    def turn(self, box: Box) -> OntoDiagonal:
        """Return (rows, B, KD, T) -> (KD, C1, T, C0, columns) with zeros beside the blocks."""
        depths, taps = self._kept_taps(box)
        padded = len(box.c1) * self.c0, len(box.line), len(depths), len(taps)
        first = box.c1.start * self.c0, box.line.start
        row = self._kept_rows(box).start
        return OntoDiagonal(padded, first, row, self.block, self.c0, self.reduces_small)


@dataclass(frozen=True)
class DiagonalGradient(DiagonalRelayout):
    """A change of a grad_weight, as it was made, back to row after row; a box has all columns of its rows."""

    @property
    def c1(self) -> int:
        """One: what a row keeps lies anywhere among its groups of channels, so a box has all of them."""
        return 1

    @property
    def line(self) -> int:
        """Rows of the merged matrix, without what fills them up."""
        return self.factor * self.small

    def _kept_rows(self, box: Box) -> range:
        return self._rows(box, box.line)

    def packed_side(self, box: Box) -> Side:
        """Return all groups of channels of the rows."""
        return self.rows_of(box, range(self.packed.shape[3]))

    def turn(self, box: Box) -> OffDiagonal:
        """Return (KD, rows, C1, T, C0) -> (rows, B, KD, T), the blocks alone."""
        kept = len(self._kept_rows(box))
        return OffDiagonal(self.packed_side(box).shape, box.line.start, self.block, kept)
