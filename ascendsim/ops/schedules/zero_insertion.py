"""The way of an image tile with gaps into L1 where no strided copy leads there: piece by piece through UB."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ascendsim.instructions.relayout import CopyUbToL1, SpreadPixels
from ascendsim.instructions.vector import CopyGmToUb, Fill
from ascendsim.ops.problems.convolution import C0_BYTES
from ascendsim.ops.problems.sliding import ImageTile
from ascendsim.program.nest import Nest
from ascendsim.program.places import Gm, GmTensor, Slot
from ascendsim.program.walk import Axis, Number, Span, alike

# Two expanded pieces and two of pixels. They take half of UB, 32 KiB each on the 910, or what results leave.
COPIES = 2
# What the shortest pieces take, one pixel of one channel group each.
LEAST_BYTES = 2 * COPIES * C0_BYTES


class InsertionPiece(NamedTuple):
    """A part of an image tile that goes through UB at once.

    channels, rows, cols       of the tile, in expanded coordinates
    source_rows, source_cols   of the rows and columns of the image that the tile takes, those that lie in it
    at                         where the first of them lie in the piece
    """

    channels: range
    rows: range
    cols: range
    source_rows: range
    source_cols: range
    at: tuple[int, int]


def pieces(tile: ImageTile, most_bytes: int) -> Iterator[InsertionPiece]:
    """Cut a tile into pieces: whole channel groups where they fit, else rows of one, else a part of a row.

    An example: 7 expanded rows with step 2 hold rows 0, 1, 2, 3 of the image at 0, 2, 4, 6. A piece of its
    rows 3 to 5 has image row 2, at its place 1.
    """
    w, at = tile.window, tile.placement
    pixels = max(1, most_bytes // C0_BYTES)
    cols = min(w.cols, pixels)
    rows = max(1, min(w.rows, pixels // w.cols))
    channels = max(1, pixels // (w.rows * w.cols))
    taken = [0 if part is None else part.stop - part.start for part in (tile.rows, tile.cols)]
    for begin in product(range(0, w.channels, channels), range(0, w.rows, rows), range(0, w.cols, cols)):
        sizes = zip(begin, (channels, rows, cols), (w.channels, w.rows, w.cols), strict=True)
        own = [range(first, min(first + size, whole)) for first, size, whole in sizes]
        source_rows, row = lines_in(own[1], at.row, at.row_step, taken[0])
        source_cols, col = lines_in(own[2], at.col, at.col_step, taken[1])
        yield InsertionPiece(own[0], own[1], own[2], source_rows, source_cols, (row, col))


def lines_in(part: range, at: int, step: int, count: int) -> tuple[range, int]:
    """Return which of `count` lines, line i at `at` + i * `step`, a part holds, and where its first lies."""
    first = max(0, -(-(part.start - at) // step))
    end = min(count, (part.stop - 1 - at) // step + 1)
    return range(first, max(first, end)), at + first * step - part.start


class ZeroInsertion:
    """Steps of a loop nest that bring tiles with gaps into L1 through UB."""

    def __init__(self, nest: Nest) -> None:
        self._nest = nest
        size = min(nest.room("UB"), nest.capacity("UB") // 2) // (2 * COPIES)
        self._most = max(1, size // C0_BYTES) * C0_BYTES
        self._source = nest.ring("UB", self._most, "pixels", COPIES)
        self._piece = nest.ring("UB", self._most, "expanded", COPIES)

    def load(
        self,
        slot: Number,
        image: GmTensor,
        place: Sequence[Number],
        tile: Callable[[int, int], ImageTile],
        channels: Sequence[slice],
    ) -> None:
        """Bring a tile into L1.

        image     the tensor of which it is a part
        place     group, image, depth, and the numbers of its pixels and of its box of taps
        tile      tile(pixels, box) is the tile; one without a pixel of the image has no piece here
        channels  the channel groups of every box
        """
        n, (*of, pixels, box) = self._nest, place
        cut = TileCut(image, pixels.axis, box.axis, tile, channels, self._most)
        # Where taps meet nothing but padding, no tile has pixels.
        if not cut.counts.any():
            return
        like, shape = (
            n.let(0, f"like of {index.text}") if index.cost is None else index.cost for index in (pixels, box)
        )
        count = n.table(cut.counts, cut.counts.max() + 1, "pieces")[like, shape]
        first_channel = n.table([own.start for own in channels], image.shape[3], "first channel")[box]
        with n.loop(Span(0, count, Axis(cut.numbers.shape[2]), count.text), "piece") as at:
            piece = n.table(cut.numbers, cut.axis, "piece")[like, shape, at]
            expanded = n.next(self._piece)
            n.emit(cut.fill, [expanded], [piece])
            with n.when(n.table(cut.taken, 2, "taken")[piece]):
                source = n.next(self._source)
                # A slice is identified by its channels, and by its rows and columns of the image.
                begin = first_channel + n.table(cut.first_channels, 0, "channel in tile")[piece]
                window = n.table(cut.windows, 0, "window")[pixels, shape, at]
                told = [*of, begin, n.table(cut.channel_counts, 0, "channels")[piece], window]
                # Where it lies costs nothing.
                n.emit(cut.copy, [source], [*of, pixels + 0, box + 0, piece], slice_at=told)
                n.emit(cut.spread, [expanded, source], [piece])
            n.emit(cut.leave, [slot, expanded], [piece])


class TileCut:
    """The pieces of all tiles of an image, and what makes the instructions on one.

    counts    how many a tile has, by the class of its pixels and of its box; `numbers` of these among all
    windows   numbers of the rows and columns of the image that they hold: by pixels, class of the box, piece
    """

    def __init__(
        self,
        image: GmTensor,
        pixels: Axis,
        boxes: Axis,
        tile: Callable[[int, int], ImageTile],
        channels: Sequence[slice],
        most_bytes: int,
    ) -> None:
        self._image, self._channels = image, channels
        tiles = [[tile(own, box) for box in boxes.first_of] for own in range(pixels.extent)]
        # Where the first row and column of a tile lie in the image.
        self._starts = np.array([[_start(one) for one in own] for own in tiles])
        self._shapes = np.zeros(boxes.extent, np.int64) if boxes.costs is None else boxes.costs
        self._found: list[tuple[ImageTile, InsertionPiece, bool]] = []
        cut = [[_pieces(one, most_bytes) for one in tiles[own]] for own in pixels.first_of]
        self.counts = np.array([[len(one) for one in own] for own in cut])
        self.numbers = np.full((*self.counts.shape, max(1, self.counts.max())), -1, np.int64)
        for (like, shape), count in np.ndenumerate(self.counts):
            self.numbers[like, shape, :count] = range(len(self._found), len(self._found) + count)
            one = tiles[pixels.first_of[like]][shape]
            self._found += [(one, piece, at == 0) for at, piece in enumerate(cut[like][shape])]
        parts = [piece for _, piece, _ in self._found]
        sizes = [(_lengths(own[:3]), _lengths((own.channels, *own[3:5]))) for own in parts]
        self.axis = Axis(len(parts), alike(sizes))
        self.taken = [int(bool(own.source_rows and own.source_cols)) for own in parts]
        self.first_channels = [own.channels.start for own in parts]
        self.channel_counts = [len(own.channels) for own in parts]
        # The last one stands where a tile has no piece; what takes nothing names no slice.
        edges = np.zeros((len(parts) + 1, 4), np.int64)
        for at in np.flatnonzero(self.taken):
            rows, cols = parts[at].source_rows, parts[at].source_cols
            edges[at] = rows.start, rows.stop, cols.start, cols.stop
        likes = np.zeros(pixels.extent, np.int64) if pixels.costs is None else pixels.costs
        lines = edges[self.numbers[likes]] + self._starts[:, :, None, [0, 0, 1, 1]]
        height, width = (size + 1 for size in image.shape[4:6])
        told = np.ravel_multi_index(tuple(np.moveaxis(lines, -1, 0)), (height, height, width, width))
        self.windows = np.unique(told, return_inverse=True)[1].reshape(told.shape)

    def fill(self, slot: Slot, piece: int) -> Fill:
        """Clear a piece."""
        tile, own, _ = self._found[piece]
        shape = *_lengths(own[:3]), tile.window.c0
        return Fill(slot, shape, prod(shape[:3]) * C0_BYTES)

    def copy(
        self, slot: Slot, group: int, image: int, depth: int, pixels: int, box: int, piece: int
    ) -> CopyGmToUb | None:
        """Bring the pixels of a piece into UB."""
        tile, own, _ = self._found[piece]
        if not self.taken[piece]:
            return None
        parts = own.channels, own.source_rows, own.source_cols
        starts = self._channels[box].start, *map(int, self._starts[pixels, self._shapes[box]])
        index = [slice(at + part.start, at + part.stop) for at, part in zip(starts, parts, strict=True)]
        taken = _lengths(parts)
        place = Gm(self._image, (group, image, depth, *index))
        return CopyGmToUb(slot, place, prod(taken) * C0_BYTES, (*taken, tile.window.c0))

    def spread(self, expanded: Slot, source: Slot, piece: int) -> SpreadPixels | None:
        """Spread the pixels of a piece over its zeros."""
        tile, own, _ = self._found[piece]
        if not self.taken[piece]:
            return None
        taken = _lengths((own.channels, own.source_rows, own.source_cols))
        step = tile.placement.row_step, tile.placement.col_step
        return SpreadPixels(expanded, source, *taken, C0_BYTES, own.at, step)

    def leave(self, slot: Slot, expanded: Slot, piece: int) -> CopyUbToL1:
        """Bring a piece to its place in the tile."""
        tile, own, first = self._found[piece]
        w, begin = tile.window, (own.channels.start, own.rows.start, own.cols.start)
        size, whole = prod(_lengths(own[:3])) * C0_BYTES, (w.channels, w.rows, w.cols, w.c0)
        return CopyUbToL1(slot, expanded, size, whole, begin, first)


def _pieces(tile: ImageTile, most_bytes: int) -> list[InsertionPiece]:
    return [] if tile.rows is None else [*pieces(tile, most_bytes)]


def _start(tile: ImageTile) -> tuple[int, int]:
    return (0, 0) if tile.rows is None or tile.cols is None else (tile.rows.start, tile.cols.start)


def _lengths(parts: Sequence[Any]) -> tuple[int, int, int]:
    channels, rows, cols = map(len, parts)
    return channels, rows, cols
