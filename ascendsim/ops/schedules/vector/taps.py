"""Changes of layout of tensors with taps: weights that are read, gradients of weights as they were made."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from math import gcd
from typing import ClassVar

from ascendsim.ops.problems.packed import C0_BYTES
from ascendsim.ops.schedules.vector.relayout import Box, Relayout, Side, part
from ascendsim.vector.relayout import Turn


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

    def rows_of(self, box: Box, c1: range) -> Side:
        """Return some groups of channels of each row of a grad_weight."""
        depths, taps = self._kept_taps(box)
        shape = (len(depths), len(box.line), len(c1), len(taps), self.c0)
        # Sixteen rows of a tap make a fractal, which lies together on the device.
        runs = len(c1) * len(box.taps)
        run = len(box.line) * self.c0 * self.packed.itemsize
        place = (box.plane, part(depths), part(box.line), part(c1), part(taps))
        return Side(place, shape, runs, run)


class ReadWeight(TapRelayout):
    """A change of a weight that grad_input reads: columns lie along the line."""

    c0_axis: ClassVar[int] = -2

    @property
    def line(self) -> int:
        """Columns, padded."""
        return self.packed.shape[5]

    def packed_side(self, box: Box) -> Side:
        """Return C0 channels of each tap, a row of columns each; on the device fractals lie together."""
        depths, taps = self._kept_taps(box)
        size = len(box.line) * self.c0
        shape = (len(depths), len(box.c1), len(taps), self.c0, len(box.line))
        place = (box.plane, part(depths), part(box.c1), part(taps), slice(None), part(box.line))
        return Side(place, shape, len(box.c1) * len(box.taps), size * self.packed.itemsize)


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

    def plain_side(self, box: Box) -> Side:
        """Return where the taps of the channels lie, row after row."""
        first, second = self._channels(box)
        outer, inner = first.stop - first.start, second.stop - second.start
        depths, taps = self._kept_taps(box)
        # The taps of neighbouring channels follow each other.
        runs = outer if len(box.taps) == self.area else outer * inner
        run = outer * inner * len(box.taps) * self.plain.itemsize // max(1, runs)
        place = (box.plane, first, second, part(depths), part(taps))
        return Side(place, (outer, inner, len(depths), len(taps)), runs, run)


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

    def packed_side(self, box: Box) -> Side:
        """Return the groups of the box for each of its rows."""
        return self.rows_of(box, box.c1)

    def turn(self, box: Box) -> Turn:
        """Return (KD, rows, C1, T, C0) -> (rows, B, KD, T)."""
        made = self.packed_side(box).shape
        depths, rows, groups, taps, c0 = made
        merged = (rows, groups * c0, depths, taps)
        return Turn(made, made, (1, 2, 4, 0, 3), merged, self.plain_shape(box))
