"""Changes of layout of tensors with taps: weights that are read, gradients of weights as they were made."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from math import gcd
from typing import ClassVar

from ascendsim.instructions.relayout import OffDiagonal, OntoDiagonal, Turn
from ascendsim.ops.problems.convolution import C0_BYTES
from ascendsim.ops.schedules.vector.relayout import Box, BoxSide, Index, Relayout, part


class TapRelayout(Relayout):
    """A change of weights or of their gradient; a run of taps goes on from one kernel depth to the next."""

    @property
    def planes(self) -> int:
        """Groups."""
        return self.packed.shape[0]

    @property
    def area(self) -> int:
        """Taps of all kernel depths, which follow each other row after row."""
        return self.plain.shape[3] * self.plain.shape[4]

    @property
    def depth_area(self) -> int:
        """Taps of one kernel depth."""
        return self.plain.shape[4]

    @property
    def lines_together(self) -> int:
        """As many rows of a result as are whole blocks, so that no two cores write parts of one."""
        row = self.plain.shape[2] * self.area * self.plain.itemsize
        return 1 if self.packs else C0_BYTES // gcd(C0_BYTES, row)

    def _kept_taps(self, box: Box) -> tuple[range, range]:
        """Return the kernel depths of a box and its taps of each: of whole depths, or a part of one."""
        each = self.depth_area
        depth, first = divmod(box.taps.start, each)
        if first == 0 and len(box.taps) >= each:
            return range(depth, box.taps.stop // each), range(each)
        return range(depth, depth + 1), range(first, first + len(box.taps))

    def rows_of(self, box: Box, c1: range) -> BoxSide:
        """Return where a box lies in a packed grad_weight: depths, taps, and groups `c1` of each row."""
        depths, taps = self._kept_taps(box)
        shape = (len(depths), len(box.line), len(c1), len(taps), self.c0)
        # Sixteen rows of a tap make a fractal, which lies together on the device.
        runs = len(c1) * len(box.taps)
        run = len(box.line) * self.c0 * self.packed.itemsize
        place = (box.plane, part(depths), part(box.line), part(c1), part(taps))
        return BoxSide(place, shape, runs, run)


class ReadWeight(TapRelayout):
    """A change of a weight that grad_input reads: columns lie along the line."""

    c0_axis: ClassVar[int] = -2

    @property
    def line(self) -> int:
        """Columns, padded."""
        return self.packed.shape[5]

    def packed_side(self, box: Box) -> BoxSide:
        """Return C0 channels of each tap, a row of columns each; on the device fractals lie together."""
        depths, taps = self._kept_taps(box)
        size = len(box.line) * self.c0
        shape = (len(depths), len(box.c1), len(taps), self.c0, len(box.line))
        place = (box.plane, part(depths), part(box.c1), part(taps), slice(None), part(box.line))
        return BoxSide(place, shape, len(box.c1) * len(box.taps), size * self.packed.itemsize)


class ChannelRelayout(TapRelayout):
    """A change whose boxes have a run of channels of either side, row after row."""

    @abstractmethod
    def _channels(self, box: Box) -> tuple[slice, slice]:
        """Return the channels of both sides that a box has."""

    def loose(self, box: Box) -> int:
        """Return the blocks of 32 bytes that are taken apart; of a kernel with one tap none.

        Its channels lie side by side as they do in a group, so that whole blocks change places.
        """
        return super().loose(box) if self.area > 1 else 0

    def plain_shape(self, box: Box) -> tuple[int, ...]:
        """Return channels of both sides, kernel depths and taps."""
        first, second = self._channels(box)
        depths, taps = self._kept_taps(box)
        return first.stop - first.start, second.stop - second.start, len(depths), len(taps)

    def plain_side(self, box: Box) -> BoxSide:
        """Return where the taps of the channels lie, row after row."""
        first, second = self._channels(box)
        outer, inner = first.stop - first.start, second.stop - second.start
        depths, taps = self._kept_taps(box)
        # The taps of neighbouring channels follow each other.
        runs = outer if len(box.taps) == self.area else outer * inner
        run = outer * inner * len(box.taps) * self.plain.itemsize // max(1, runs)
        place = (box.plane, first, second, part(depths), part(taps))
        return BoxSide(place, (outer, inner, len(depths), len(taps)), runs, run)


@dataclass(frozen=True)
class WeightRelayout(ReadWeight, ChannelRelayout):
    """A change of a weight, which grad_input reads; `reduces_small`: in groups are the channels of S."""

    reduces_small: bool = True

    @property
    def line_there(self) -> int:
        """Columns without those that fill up the last fractal."""
        return self.plain.shape[2 if self.reduces_small else 1]

    def _channels(self, box: Box) -> tuple[slice, slice]:
        kept = self._kept(box.c1)
        # Lines are whole fractals: of few columns their last parts are nothing but zeros.
        there = self.line_there
        columns = slice(min(box.line.start, there), min(box.line.stop, there))
        return (kept, columns) if self.reduces_small else (columns, kept)

    def turn(self, box: Box) -> Turn:
        """Return (S, B, KD, T) -> (KD, C1, T, C0, columns)."""
        made = self.packed_side(box).shape
        depths, groups, taps, c0, columns = made
        if self.reduces_small:
            split: tuple[int, ...] = (groups, c0, columns, depths, taps)
            return Turn((groups * c0, columns, depths, taps), split, (3, 0, 4, 1, 2), made, made)
        split = (columns, groups, c0, depths, taps)
        return Turn((columns, groups * c0, depths, taps), split, (3, 1, 4, 2, 0), made, made)


class GradientRelayout(ChannelRelayout):
    """A change of a grad_weight, as it was made, back to row after row."""

    @property
    def line(self) -> int:
        """Rows, the channels of S."""
        return self.plain.shape[1]

    def _channels(self, box: Box) -> tuple[slice, slice]:
        return part(box.line), self._kept(box.c1)

    def packed_side(self, box: Box) -> BoxSide:
        """Return the groups of the box for each of its rows."""
        return self.rows_of(box, box.c1)

    def turn(self, box: Box) -> Turn:
        """Return (KD, rows, C1, T, C0) -> (rows, B, KD, T)."""
        made = self.packed_side(box).shape
        depths, rows, groups, taps, c0 = made
        merged = (rows, groups * c0, depths, taps)
        return Turn(made, made, (1, 2, 4, 0, 3), merged, self.plain_shape(box))


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
        """Return one: boxes that read common rows are identified by their places."""
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

    def plain_side(self, box: Box) -> BoxSide:
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
        return BoxSide(place, (len(rows), columns, len(depths), len(taps)), runs, run)


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

    def packed_side(self, box: Box) -> BoxSide:
        """Return all groups of channels of the rows."""
        return self.rows_of(box, range(self.packed.shape[3]))

    def turn(self, box: Box) -> OffDiagonal:
        """Return (KD, rows, C1, T, C0) -> (rows, B, KD, T), the blocks alone."""
        kept = len(self._kept_rows(box))
        return OffDiagonal(self.packed_side(box).shape, box.line.start, self.block, kept)
