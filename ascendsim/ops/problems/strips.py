"""Strips of the columns of an image: rows that are too long for L1 are worked on a part at a time.

Pixels are numbered strip after strip, and in a strip row after row. An example: two rows of 5 pixels in
strips of 3 are

    0 1 2 | 6 7
    3 4 5 | 8 9
"""

from __future__ import annotations

from typing import NamedTuple

from ascendsim.ops.problems.sliding import ImageTile, Pair, Sliding
from ascendsim.ops.problems.taps import Taps


class Strip(NamedTuple):
    """A strip: the number of its first pixel, its first column, and its columns."""

    first: int
    left: int
    width: int


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

    def rectangle(self, first: int, pixels: int) -> Pair:
        """Return the run that a copy takes for a run: the run if it is in one row, else whole rows."""
        begin, _, width = self.strip(first)
        top, bottom = (first - begin) // width, (first + pixels - 1 - begin) // width
        if top == bottom:
            return first, pixels
        return begin + top * width, (bottom - top + 1) * width

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
