"""The way of an image tile with gaps into L1 where no strided copy leads there: piece by piece through UB."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, NamedTuple

from ascendsim.ops.problems.packed import C0_BYTES
from ascendsim.ops.problems.sliding import ImageTile
from ascendsim.program.builder import ProgramBuilder
from ascendsim.program.places import GmTensor, Slot
from ascendsim.vector.instructions import CopyGmToUb, Fill
from ascendsim.vector.zero_insertion import CopyUbToL1, SpreadPixels

# Two expanded pieces and two of pixels. They take half of UB, 32 KiB each on the 910, or what results leave.
COPIES = 2
# What the shortest pieces take, one pixel of one channel group each.
LEAST_BYTES = 2 * COPIES * C0_BYTES


class Piece(NamedTuple):
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


def pieces(tile: ImageTile, most_bytes: int) -> Iterator[Piece]:
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
        yield Piece(own[0], own[1], own[2], source_rows, source_cols, (row, col))


def lines_in(part: range, at: int, step: int, count: int) -> tuple[range, int]:
    """Return which of `count` lines, line i at `at` + i * `step`, a part holds, and where its first lies."""
    first = max(0, -(-(part.start - at) // step))
    end = min(count, (part.stop - 1 - at) // step + 1)
    return range(first, max(first, end)), at + first * step - part.start


class ZeroInsertion:
    """Appends the instructions that bring tiles with gaps into L1 through UB."""

    def __init__(self, builder: ProgramBuilder) -> None:
        self._b = builder
        size = min(builder.room("UB"), builder.capacity("UB") // 2) // (2 * COPIES)
        self._most = max(1, size // C0_BYTES) * C0_BYTES
        self._source = builder.ring("UB", self._most, "pixels", COPIES)
        self._piece = builder.ring("UB", self._most, "expanded", COPIES)

    def load(
        self, slot: Slot, tile: ImageTile, image: GmTensor, find: Callable[..., Any], *task: Any
    ) -> None:
        """Bring a tile into L1; find(*task, piece) is the slice of the image for a piece."""
        w, at = tile.window, tile.placement
        for number, piece in enumerate(pieces(tile, self._most)):
            shape = len(piece.channels), len(piece.rows), len(piece.cols), w.c0
            expanded, size = self._piece.next(), len(piece.channels) * len(piece.rows) * len(piece.cols)
            self._b.add(Fill(expanded, shape, size * C0_BYTES))
            if piece.source_rows and piece.source_cols:
                taken = len(piece.channels), len(piece.source_rows), len(piece.source_cols)
                source, count = self._source.next(), taken[0] * taken[1] * taken[2]
                place = self._b.gm(image, find, *task, piece)
                self._b.add(CopyGmToUb(source, place, count * C0_BYTES, (*taken, w.c0)))
                step = at.row_step, at.col_step
                self._b.add(SpreadPixels(expanded, source, *taken, C0_BYTES, piece.at, step))
            begin = piece.channels.start, piece.rows.start, piece.cols.start
            whole = w.channels, w.rows, w.cols, w.c0
            self._b.add(CopyUbToL1(slot, expanded, size * C0_BYTES, whole, begin, number == 0))
