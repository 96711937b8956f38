"""The pixels of an image that a tile of the product needs in L1.

Both convolution schedules slide a kernel over an image: grad_input over grad_output with zeros inserted
between its pixels, grad_weight and the forward direction over the big side as it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import lcm, prod
from typing import NamedTuple

from ascendsim.cube.im2col import Window
from ascendsim.cube.movers import Placement
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.packed import C0_BYTES
from ascendsim.ops.problems.taps import Taps

Pair = tuple[int, int]


class ImageTile(NamedTuple):
    """An image tile: its window, where a pixel range begins in it, and what to copy into it.

    `rows` and `cols` are the slices of the image in GM (None: no pixel of it, only zeros); `clear` says that
    the copy leaves gaps, so that the tile must be cleared first.
    """

    window: Window
    first_pixel: int
    rows: slice | None
    cols: slice | None
    placement: Placement
    clear: bool
    gm_bytes: int
    l1_bytes: int


class Sliding(NamedTuple):
    """A kernel sliding over an image.

    Output pixel (y, x) under tap (i, j) reads the expanded image at (y * stride + i * dilation - pad); the
    expanded image has `insert` - 1 zeros between pixels. Pads may be negative (the backward direction of a
    large padding). All pairs are (H, W).
    """

    out_size: Pair
    image_size: Pair
    kernel: Pair
    stride: Pair
    dilation: Pair
    pad: Pair
    insert: Pair
    c0: int
    itemsize: int

    @classmethod
    def of(cls, p: ConvProblem, itemsize: int, *, backwards: bool = False) -> Sliding:
        """Return how a kernel slides in H and W: over the big side, or backwards over the small side.

        Backwards the stride stands between the pixels of the small side. The last tap comes first, so that
        pixels are read in rising order: output row y begins at y - ((kernel - 1) * dilation - pad).
        """
        small, big, kernel, stride, dilation = (
            given[1:] for given in (p.small_size, p.big_size, p.kernel, p.strides, p.dilations)
        )
        top, left = p.pads[1][0], p.pads[2][0]
        c0 = C0_BYTES // itemsize
        if not backwards:
            return cls(small, big, kernel, stride, dilation, (top, left), (1, 1), c0, itemsize)
        pad = (kernel[0] - 1) * dilation[0] - top, (kernel[1] - 1) * dilation[1] - left
        return cls(big, small, kernel, (1, 1), dilation, pad, stride, c0, itemsize)

    @property
    def pixels(self) -> int:
        """Output pixels of one image."""
        return self.out_size[0] * self.out_size[1]

    def tile(self, first: int, pixels: int, taps: Taps) -> ImageTile:
        """Return the tile that output pixels `first` ... need under a box of taps.

        A range inside one output row takes only the columns it needs, a longer one whole rows of the image.
        """
        # load3d counts pixels along rows of one width. A range over several rows may begin anywhere in the
        # first and end anywhere in the last, so its window is as wide as the image.
        width = self.out_size[1]
        top, bottom = first // width, (first + pixels - 1) // width
        if top == bottom:
            left, right = first % width, (first + pixels - 1) % width
        else:
            left, right = 0, width - 1
        # The window begins where the first pixel reads under the first tap, or at the image's edge. What lies
        # before the edge is padding: load3d makes it of nothing, so it takes no room in L1.
        y0, rows, row_slice, row_at = self._extent(0, top, bottom, taps.row, taps.rows)
        x0, cols, col_slice, col_at = self._extent(1, left, right, taps.col, taps.cols)
        copied = row_slice is not None and col_slice is not None
        window = Window(
            taps.channels,
            rows,
            cols,
            y0 - self._origin(0, top, taps.row),
            x0 - self._origin(1, left, taps.col),
            right - left + 1,
            (taps.rows, taps.cols),
            self.stride,
            self.dilation,
            self.c0,
        )
        pixel_bytes = taps.channels * self.c0 * self.itemsize
        count = (row_slice.stop - row_slice.start) * (col_slice.stop - col_slice.start) if copied else 0  # type: ignore[union-attr]
        return ImageTile(
            window,
            first - top * width - left,  # 0 inside a row, as the window begins at its first pixel
            row_slice if copied else None,
            col_slice if copied else None,
            Placement(row_at, col_at, *self.insert),
            # Slots are used again: without clearing, the gaps would hold pixels of the tile before.
            self.insert != (1, 1) or not copied,
            count * pixel_bytes,
            max(1, rows * cols) * pixel_bytes,
        )

    def _origin(self, axis: int, first_out: int, first_tap: int) -> int:
        """Return the expanded coordinate that the first output reads under the first tap."""
        return first_out * self.stride[axis] + first_tap * self.dilation[axis] - self.pad[axis]

    def _extent(
        self, axis: int, first_out: int, last_out: int, first_tap: int, taps: int
    ) -> tuple[int, int, slice | None, int]:
        """Return along one axis: expanded start, extent, slice of the image, where its first pixel lies."""
        # Zeros stand between pixels, none after the last: n pixels expand to (n - 1) * step + 1.
        step = self.insert[axis]
        expanded = (self.image_size[axis] - 1) * step + 1
        low = self._origin(axis, first_out, first_tap)
        high = self._origin(axis, last_out, first_tap + taps - 1)
        low, high = max(low, 0), min(high, expanded - 1)
        if low > high:
            return low, 0, None, 0
        # Pixel i lies at i * step: the first at or after `low`, the last at or before `high`. Between two
        # pixels there may be nothing but inserted zeros.
        first, last = -(-low // step), high // step
        if first > last:
            return low, high - low + 1, None, 0
        return low, high - low + 1, slice(first, last + 1), first * step - low

    def rows_spanned(self, pixels: int, unit: int = 0) -> int:
        """Return the most output rows that an aligned range of so many pixels spans.

        unit   ranges begin at multiples of it; 0: at multiples of `pixels`
        """
        if unit:
            begins = range(0, lcm(unit, self.out_size[1]), unit)
            return max((first % self.out_size[1] + pixels - 1) // self.out_size[1] for first in begins) + 1
        # Ranges begin at multiples of `pixels`. Where that and the width fit into each other no range begins
        # inside one row and ends inside another; else one may begin at the last pixel of a row.
        width = self.out_size[1]
        if pixels % width == 0 or width % pixels == 0:
            return -(-pixels // width)
        return pixels // width + 2 if pixels > width else 2

    def tile_bytes(self, pixels: int, taps: Taps, *, in_row: bool, unit: int = 0) -> int:
        """Return the largest L1 need of a tile of so many pixels: in one row, or of whole rows.

        unit   as for `rows_spanned`
        """
        # An upper limit for every range at once: a choice of tiling cannot look at each of them.
        out_rows = 1 if in_row else min(self.rows_spanned(pixels, unit), self.out_size[0])
        out_cols = min(pixels, self.out_size[1]) if in_row or out_rows == 1 else self.out_size[1]
        rows = self._reach(0, out_rows, taps.rows)
        cols = self._reach(1, out_cols, taps.cols)
        return rows * cols * taps.channels * self.c0 * self.itemsize

    def _reach(self, axis: int, outputs: int, taps: int) -> int:
        """Return how far so many outputs reach along one axis, but not beyond the image."""
        reach = (outputs - 1) * self.stride[axis] + (taps - 1) * self.dilation[axis] + 1
        return max(1, min(reach, (self.image_size[axis] - 1) * self.insert[axis] + 1))

    def pixel_tiles(self, pixels: int, *, in_row: bool) -> list[Pair]:
        """Cut the output pixels of an image into (first, count) ranges, inside rows if asked."""
        height, width = self.out_size
        if not in_row:
            return [(first, min(pixels, self.pixels - first)) for first in range(0, self.pixels, pixels)]
        return [
            (row * width + first, min(pixels, width - first))
            for row in range(height)
            for first in range(0, width, pixels)
        ]

    def pixel_tile_count(self, pixels: int, *, in_row: bool) -> int:
        """Return how many ranges `pixel_tiles` cuts, without listing them."""
        if not in_row:
            return -(-self.pixels // pixels)
        return self.out_size[0] * -(-self.out_size[1] // pixels)


class SlidingGemm(ABC):
    """A gradient as equal matrix products, one for each group, image and pair of depths that meet."""

    sliding: Sliding
    depths: tuple[tuple[tuple[int, int], ...], ...]

    @property
    @abstractmethod
    def groups(self) -> int:
        """Groups of the convolution."""

    @property
    @abstractmethod
    def batch(self) -> int:
        """Images."""

    @property
    @abstractmethod
    def sizes(self) -> tuple[int, int, int]:
        """The sides m, n and k of one product."""

    @property
    def count(self) -> int:
        """How many products there are."""
        return self.groups * self.batch * sum(map(len, self.depths))

    def mmads(self, base: tuple[int, int, int]) -> int:
        """Return how many Mmads base blocks of so much (m, n, k) make, if no tile in L1 ends one early."""
        sides = zip(self.sizes, base, strict=True)
        return self.count * prod(-(-size // length) for size, length in sides)
