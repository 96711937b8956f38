"""Strips of the columns of an image: rows that are too long for L1 are worked on a part at a time.

Pixels are numbered strip after strip, and in a strip row after row. An example: two rows of 5 pixels in
strips of 3 are

    0 1 2 | 6 7
    3 4 5 | 8 9
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ascendsim.ops.problems.sliding import ImageTile, Pair, Sliding
from ascendsim.ops.problems.taps import Taps

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]


class Strip(NamedTuple):
    """A strip: the number of its first pixel, its first column, and its columns."""

    first: int
    left: int
    width: int


class Spans(NamedTuple):
    """The rows and the columns from first to last of the tiles of runs, and where the runs begin in these."""

    top: Numbers
    bottom: Numbers
    left: Numbers
    right: Numbers
    first_pixel: Numbers


class Reads(NamedTuple):
    """What tiles read of an image along one axis: the first pixel, and how many; 0: padding alone."""

    first: Numbers
    pixels: Numbers


class Strips(NamedTuple):
    """The strips of the output pixels of a sliding kernel; `width` columns each but the last one."""

    sliding: Sliding
    width: int

    @classmethod
    def of(cls, sliding: Sliding, width: int) -> Strips:
        """Cut into strips of so many columns; 0: whole rows, which are one strip."""
        return cls(sliding, min(width or sliding.out_size[1], sliding.out_size[1]))

    @property
    def all(self) -> list[Strip]:
        """The strips from left to right."""
        columns, step = self.sliding.out_size[1], self.width
        return [self.strip(left * self.height) for left in range(0, columns, step)]

    @property
    def height(self) -> int:
        """Rows of every strip."""
        return self.sliding.out_size[0]

    def strip(self, pixel: int) -> Strip:
        """Return the strip of a pixel."""
        left = pixel // (self.height * self.width) * self.width
        return Strip(left * self.height, left, min(self.width, self.sliding.out_size[1] - left))

    def row(self, pixel: int) -> int:
        """Return the row of a pixel."""
        strip = self.strip(pixel)
        return (pixel - strip.first) // strip.width

    def runs(self, most: int, rows: int = 0) -> list[Pair]:
        """Return runs (first pixel, pixels) of at most so many pixels, which end where strips end.

        rows   runs also end after every so many rows; 0: only where the strip ends
        """
        found = []
        for first, _, width in self.all:
            for part in range(0, self.height, rows or self.height):
                end = min(part + (rows or self.height), self.height) * width
                found += [(first + at, min(most, end - at)) for at in range(part * width, end, most)]
        return found

    def place(self, first: int, pixels: int) -> tuple[slice, slice]:
        """Return the rows and the columns of a run that is a rectangle."""
        begin, left, width = self.strip(first)
        top, at = divmod(first - begin, width)
        rows = -(-pixels // width)
        return slice(top, top + rows), slice(left + at, left + at + (pixels if rows == 1 else width))

    def sliding_of(self, strip: Strip) -> Sliding:
        """Return how the kernel slides for the pixels of one strip, counted by themselves."""
        pad = self.sliding.pad[0], self.sliding.pad[1] - strip.left * self.sliding.stride[1]
        return self.sliding._replace(out_size=(self.height, strip.width), pad=pad)

    def tile(self, first: int, pixels: int, taps: Taps) -> ImageTile:
        """Return the tile that a run needs under a box of taps (`Sliding.tile`)."""
        strip = self.strip(first)
        return self.sliding_of(strip).tile(first - strip.first, pixels, taps)

    def spans(self, runs: Numbers) -> Spans:
        """Return what the tiles of some runs, a row (first pixel, pixels) each, span of the output."""
        first, pixels = runs.T
        at, width = self.places(first)
        left = self._left(first)
        begin = first - left * self.height
        top, bottom = begin // width, (begin + pixels - 1) // width
        # Of several rows a tile has all columns of the strip.
        alone = top == bottom
        return Spans(
            top,
            bottom,
            np.where(alone, left + at, left),
            np.where(alone, left + at + pixels, left + width) - 1,
            np.where(alone, 0, at),
        )

    def places(self, first: Numbers) -> tuple[Numbers, Numbers]:
        """Return where some pixels lie in a row of their strips, and how many columns these have."""
        left = self._left(first)
        width = np.minimum(self.width, self.sliding.out_size[1] - left)
        return (first - left * self.height) % width, width

    def _left(self, first: Numbers) -> Numbers:
        """Return the first columns of the strips of some pixels."""
        return first // (self.height * self.width) * self.width

    def rectangles(self, runs: Numbers) -> Numbers:
        """Return the runs that a copy takes for some runs: those in one row as they are, else whole rows."""
        spans = self.spans(runs)
        alone, width = spans.top == spans.bottom, spans.right - spans.left + 1
        first, pixels = spans.left * self.height + spans.top * width, (spans.bottom - spans.top + 1) * width
        return np.where(alone[:, None], runs, np.column_stack([first, pixels]))

    def reads(self, spans: Spans, taps: Taps) -> tuple[Reads, Reads]:
        """Return what the tiles of some runs (`tile`) read under a box of taps along H and along W."""
        return (
            self._reads(0, spans.top, spans.bottom, taps.row, taps.row + taps.rows - 1),
            self._reads(1, spans.left, spans.right, taps.col, taps.col + taps.cols - 1),
        )

    def _reads(self, axis: int, first: Numbers, last: Numbers, first_tap: int, last_tap: int) -> Reads:
        stride, dilation, pad = self.sliding.stride[axis], self.sliding.dilation[axis], self.sliding.pad[axis]
        low = np.maximum(first * stride + first_tap * dilation - pad, 0)
        high = np.minimum(last * stride + last_tap * dilation - pad, self.sliding.image_size[axis] - 1)
        return Reads(low, np.maximum(high - low + 1, 0))
