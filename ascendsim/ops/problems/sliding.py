"""The pixels of an image that a tile of the product needs in L1.

Both convolution schedules slide a kernel over an image: grad_input over grad_output with zeros inserted
between its pixels, grad_weight and the forward direction over the big side as it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import pairwise
from math import lcm, prod
from typing import NamedTuple

from ascendsim.instructions.cube import Window
from ascendsim.instructions.movers import Placement
from ascendsim.ops.problems.convolution import C0_BYTES, ConvProblem


class Taps(NamedTuple):
    """A box of (channel group, kernel row, kernel column) that one tile in L1 serves."""

    channel: int
    channels: int
    row: int
    rows: int
    col: int
    cols: int

    @property
    def groups(self) -> int:
        """Number of (channel group, tap) pairs."""
        return self.channels * self.rows * self.cols


class SlidingSegment(NamedTuple):
    """A run of the reduction that lies in one left and one right tile in L1.

    `slices` are the (first group in the left tile, first group in the right tile, groups) of each Mmad.
    """

    left: Taps
    right: Taps
    slices: tuple[tuple[int, int, int], ...]


def even_slices(run: int, most: int) -> list[tuple[int, int]]:
    """Cut a run into the fewest (first, count) slices of at most `most`, as equal as they can be.

    Equal slices keep ping-pong going: a short slice between long ones would make every long one wait for the
    one before.
    """
    # Edges at run * part / count keep the lengths within one of each other, in an order that no rest spoils.
    count = -(-run // most)
    edges = [run * part // count for part in range(count + 1)]
    return [(first, last - first) for first, last in pairwise(edges)]


def segments_of(
    left: tuple[Taps, ...],
    right: tuple[Taps, ...],
    most: int,
    slices_of: Callable[[int, int], list[tuple[int, int]]] = even_slices,
) -> tuple[SlidingSegment, ...]:
    """Walk two cuts of one reduction side by side, in slices of at most `most` groups.

    The boxes of a cut are consecutive runs of the reduction, so a run ends where either box ends.
    """
    # Both cuts keep the order of the reduction, so one pass over both finds all runs. The order must not
    # change: the blocks of an accumulation model begin where Mmads begin.
    found = []
    at_left = at_right = done_left = done_right = 0
    while at_left < len(left):
        a, b = left[at_left], right[at_right]
        run = min(a.groups - done_left, b.groups - done_right)
        slices = tuple(
            (done_left + first, done_right + first, count) for first, count in slices_of(run, most)
        )
        found.append(SlidingSegment(a, b, slices))
        done_left, done_right = done_left + run, done_right + run
        if done_left == a.groups:
            at_left, done_left = at_left + 1, 0
        if done_right == b.groups:
            at_right, done_right = at_right + 1, 0
    return tuple(found)


def first_box(whole: Taps, elements: int, c0: int) -> Taps:
    """Return the first box of `cut_taps`, which is also its largest."""
    # In the order of the reduction a box that is not whole along one axis must have length 1 on all axes
    # before it: only then are the boxes consecutive runs. At least one tap, even where it is too much.
    budget = max(1, elements // c0)
    if budget >= whole.rows * whole.cols:
        return whole._replace(channels=min(whole.channels, budget // (whole.rows * whole.cols)))
    if budget >= whole.cols:
        return whole._replace(channels=1, rows=budget // whole.cols)
    return whole._replace(channels=1, rows=1, cols=budget)


def first_boxes(whole: Taps, slice_elements: int, c0: int) -> dict[int, Taps]:
    """Return the different first boxes of numbers of slices, each by the least number that cuts it."""
    step, box = 1, first_box(whole, slice_elements, c0)
    found = {step: box}
    while box.groups < whole.groups:
        # The next box has one kernel column more, else one row, else one channel group.
        inner = whole.rows * whole.cols if box.rows == whole.rows else whole.cols
        more = inner if box.cols == whole.cols else 1
        step = -(-(box.groups + more) * c0 // slice_elements)
        box = found[step] = first_box(whole, step * slice_elements, c0)
    return found


def cut_taps(whole: Taps, elements: int, c0: int) -> tuple[Taps, ...]:
    """Cut a box into boxes of at most `elements` reduction elements, in the order of the reduction.

    Whole channel groups where they fit, else whole kernel rows of one group, else a part of one row.
    """
    box = first_box(whole, elements, c0)
    return tuple(
        Taps(
            channel,
            min(box.channels, whole.channel + whole.channels - channel),
            row,
            min(box.rows, whole.row + whole.rows - row),
            col,
            min(box.cols, whole.col + whole.cols - col),
        )
        for channel in range(whole.channel, whole.channel + whole.channels, box.channels)
        for row in range(whole.row, whole.row + whole.rows, box.rows)
        for col in range(whole.col, whole.col + whole.cols, box.cols)
    )


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
        """Return the sliding of a kernel in H and W: over the big side, or backwards over the small side.

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
        """Return the pixels that some outputs read along one axis under some taps.

        In order: the first place in the image expanded by zeros, the number of places, the slice of the
        image's own pixels among them (None: there are none), and how far behind the first place these begin.
        """
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
        """Return the most output rows that an aligned range of `pixels` pixels spans.

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
        """Return the largest L1 need of a tile of `pixels` pixels: in one row, or of whole rows.

        unit   as for `rows_spanned`
        """
        # An upper limit for every range at once: a choice of tiling cannot look at each of them.
        out_rows = 1 if in_row else min(self.rows_spanned(pixels, unit), self.out_size[0])
        out_cols = min(pixels, self.out_size[1]) if in_row or out_rows == 1 else self.out_size[1]
        rows = self._reach(0, out_rows, taps.rows)
        cols = self._reach(1, out_cols, taps.cols)
        return rows * cols * taps.channels * self.c0 * self.itemsize

    def _reach(self, axis: int, outputs: int, taps: int) -> int:
        """Return the pixels that `outputs` outputs read along one axis, within the image."""
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
        """Return the number of ranges that `pixel_tiles` cuts, without listing them."""
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
        """The number of products."""
        return self.groups * self.batch * sum(map(len, self.depths))

    def mmads(self, base: tuple[int, int, int]) -> int:
        """Return the number of Mmads for base blocks of size (m, n, k) if no tile in L1 ends one early."""
        sides = zip(self.sizes, base, strict=True)
        return self.count * prod(-(-size // length) for size, length in sides)


# The axes that the stride splits -> whether H is one of them, whether W is.
AXES = {"h": (True, False), "hw": (True, True)}


class StridePhase(NamedTuple):
    """The output pixels `first`, `first` + `step`, ... along H and W, and how their kernel slides.

    sliding      the pixels of the phase, counted by themselves; its kernel has the taps that they meet
    rows, cols   which taps these are, in the kernel as it is stored
    """

    first: Pair
    step: Pair
    sliding: Sliding
    rows: slice
    cols: slice

    @property
    def taps(self) -> int:
        """Taps that a pixel meets; 0: its gradient is zero."""
        return self.sliding.kernel[0] * self.sliding.kernel[1]


class _Along(NamedTuple):
    """A phase along one axis."""

    first: int
    step: int
    made: int
    taps: int
    pad: int
    insert: int
    stored: slice


def phases_of(sliding: Sliding, axes: str) -> tuple[StridePhase, ...]:
    """Return the phases of a backward sliding, those along W the fastest.

    axes   "h" or "hw", along which the stride splits the kernel; there is no gap between taps along these
    """
    rows, cols = (_along(sliding, axis, split=split) for axis, split in enumerate(AXES[axes]))
    return tuple(
        StridePhase(
            (row.first, col.first),
            (row.step, col.step),
            sliding._replace(
                out_size=(row.made, col.made),
                kernel=(row.taps, col.taps),
                pad=(row.pad, col.pad),
                insert=(row.insert, col.insert),
            ),
            row.stored,
            col.stored,
        )
        for row in rows
        for col in cols
    )


def _along(sliding: Sliding, axis: int, *, split: bool) -> list[_Along]:
    """Return the phases along one axis; without a split there is one."""
    size, kernel, pad = sliding.out_size[axis], sliding.kernel[axis], sliding.pad[axis]
    stride = sliding.insert[axis]
    if not split:
        return [_Along(0, 1, size, kernel, pad, stride, slice(0, kernel))]
    found = []
    for first in range(min(stride, size)):
        # Pixel first + i * stride under tap t, of the kernel turned round, reads the expanded image at
        # first + i * stride + t - pad, which is a pixel if the stride divides it.
        tap = (pad - first) % stride
        taps = max(0, -(-(kernel - tap) // stride))
        last = kernel - 1 - tap
        stored = slice(last - stride * (taps - 1), last + 1, stride) if taps else slice(0, 0)
        made = -(-(size - first) // stride)
        found.append(_Along(first, stride, made, taps, (pad - first - tap) // stride, 1, stored))
    return found


def together(phases: tuple[StridePhase, ...]) -> Sliding:
    """Return one sliding over all pixels that any phase reads, with the outputs of a phase."""
    some = [phase.sliding for phase in phases if phase.taps]
    pads, kernels = [], []
    for axis in (0, 1):
        # Offsets of the first and the last tap from the pixel; with one phase along an axis they are its own.
        low = min(-own.pad[axis] for own in some)
        high = max(own.kernel[axis] - own.pad[axis] for own in some)
        pads.append(-low)
        kernels.append(high - low)
    return some[0]._replace(pad=(pads[0], pads[1]), kernel=(kernels[0], kernels[1]))
