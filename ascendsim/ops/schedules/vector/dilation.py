"""Schedule of Dilation: the pixels of an image in the cube's layout spread over zeros, on vector cores.

    for each run of planes, or rows of a plane, that is mine:
        for each piece of it that fits in a quarter of UB:
            pixels GM -> UB            MTE2
            zeros over the piece       V
            pixels to their places     V
            piece UB -> GM             MTE3

The loops of the vendor's operator are published nowhere. A plane is one group of C0 channels of an image.
Pieces alternate between two slots each way, so that the next pixels arrive while this piece leaves.

An image tile with gaps comes into L1 likewise where no strided copy leads there: piece by piece through UB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import partial
from itertools import product
from math import ceil, prod
from typing import Any, NamedTuple

import numpy as np

from ascendsim.instructions.relayout import CopyUbToL1, Rearrange, SpreadPixels
from ascendsim.instructions.vector import CopyGmToUb, CopyUbToGm, Fill
from ascendsim.ops.problems.convolution import C0_BYTES
from ascendsim.ops.problems.sliding import ImageTile
from ascendsim.ops.problems.views import View
from ascendsim.ops.schedules.vector.elementwise import (
    PIECE_BYTES,
    flat_phase,
    pieces,
    runs,
    shared,
    vector_cores,
)
from ascendsim.profile import Profile
from ascendsim.program.kernel import CoreWork, Deferred, Phase
from ascendsim.program.nest import Nest
from ascendsim.program.places import Gm, GmTensor, Slot
from ascendsim.program.program import NestProgram, Program, ProgramBuilder
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


def insertion_pieces(tile: ImageTile, most_bytes: int) -> Iterator[InsertionPiece]:
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
    return [] if tile.rows is None else [*insertion_pieces(tile, most_bytes)]


def _start(tile: ImageTile) -> tuple[int, int]:
    return (0, 0) if tile.rows is None or tile.cols is None else (tile.rows.start, tile.cols.start)


def _lengths(parts: Sequence[Any]) -> tuple[int, int, int]:
    channels, rows, cols = map(len, parts)
    return channels, rows, cols


class DilationPiece(NamedTuple):
    """Rows and columns of the result, in so many planes."""

    planes: int
    rows: range
    cols: range

    @property
    def shape(self) -> tuple[int, int, int]:
        """The numbers of planes, rows and columns."""
        return self.planes, len(self.rows), len(self.cols)


class DilationTensors(NamedTuple):
    """The tensors of a spread: source (planes, H, W, C0) to target (planes, larger H, larger W, C0).

    Row i comes to row first[0] + i * step[0], column j to first[1] + j * step[1]; all others are zeros.
    Pixels that would come to lie outside are dropped.
    """

    source: GmTensor
    target: GmTensor
    step: tuple[int, int]
    first: tuple[int, int]

    def taken(self, piece: DilationPiece) -> tuple[range, range, tuple[int, int]]:
        """Return the source's rows and columns whose pixels a piece holds, and where the first one lies."""
        rows, row = lines_in(piece.rows, self.first[0], self.step[0], self.source.shape[1])
        cols, col = lines_in(piece.cols, self.first[1], self.step[1], self.source.shape[2])
        return rows, cols, (row, col)

    def extents(self, piece: DilationPiece) -> tuple[int, ...]:
        """Return a key of the cost of a piece."""
        rows, cols, at = self.taken(piece)
        return *piece.shape, len(rows), len(cols), *at


def dilation(profile: Profile, spreading: DilationTensors) -> Phase:
    """Return the phase that spreads the pixels of a tensor over zeros."""
    return Phase("dilation", Deferred(partial(_work, profile, spreading)), apart=True)


def _work(profile: Profile, spreading: DilationTensors) -> tuple[CoreWork, ...]:
    """Return the work of every core: whole planes where they are enough, else bands of their rows."""
    planes, height = spreading.target.shape[:2]
    bands = min(height, -(-len(vector_cores(profile)) // planes))
    # Two slots of a piece, and two of its pixels, which are never more.
    most = max(1, min(PIECE_BYTES, profile.buffers["UB"].capacity_bytes // 4) // C0_BYTES)
    work = []
    for core, share in shared(profile, planes * bands):
        cut = partial(_cut, spreading, share, bands, most)
        # Whole planes cost the same wherever they lie.
        signature = len(share) if bands == 1 else tuple(map(spreading.extents, cut()[0]))
        work.append(CoreWork(core, signature, partial(_program, profile, spreading, cut)))
    return tuple(work)


def _cut(
    spreading: DilationTensors, share: range, bands: int, most: int
) -> tuple[list[DilationPiece], list[tuple[int, int]]]:
    """Cut the bands of a core into pieces: several whole planes, or rows of one, or a part of a row.

    Returns  different pieces; and all in their order, by number, with the first plane of each
    """
    _, height, width = spreading.target.shape[:3]
    pieces: list[DilationPiece] = []
    places: list[tuple[int, int]] = []

    def add(planes: range, rows: range) -> None:
        lines = runs(rows, max(1, most // width))
        own = [DilationPiece(planes.step, line, cols) for line in lines for cols in runs(range(width), most)]
        numbers = range(len(pieces), len(pieces) + len(own))
        pieces.extend(own)
        places.extend([(number, plane) for plane in planes for number in numbers])

    if bands == 1:
        each = max(1, most // (height * width))
        end = share.stop - len(share) % each
        for planes in (range(share.start, end, each), range(end, share.stop, max(1, share.stop - end))):
            if planes:
                add(planes, range(height))
    else:
        for band in share:
            plane, place = divmod(band, bands)
            add(range(plane, plane + 1), range(height * place // bands, height * (place + 1) // bands))
    return pieces, places


def _program(
    profile: Profile,
    spreading: DilationTensors,
    cut: Callable[[], tuple[list[DilationPiece], list[tuple[int, int]]]],
) -> NestProgram:
    pieces, places = cut()
    return NestProgram(DilationNest(profile, spreading, pieces), np.array(places))


class DilationNest(Nest):
    """Pieces, one after the other: each is filled with zeros, and the pixels that it has are put there."""

    def __init__(self, profile: Profile, spreading: DilationTensors, pieces: Sequence[DilationPiece]) -> None:
        super().__init__(profile, "dilation")
        self.spreading, self.pieces = spreading, pieces
        planes, height, width = spreading.target.shape[:3]
        most = max([prod(piece.shape) for piece in pieces]) * C0_BYTES
        pixels, spread = self.ring("UB", most, "pixels", 2), self.ring("UB", most, "spread", 2)
        costs = Axis(len(pieces), alike(list(map(spreading.extents, pieces))))
        filled = self.table([all(spreading.taken(piece)[:2]) for piece in pieces], name="has pixels")
        # Cores number their own pieces, so slices are identified by their first places.
        begin = self.table(
            [each.rows.start * width + each.cols.start for each in pieces], height * width, "first pixel"
        )
        piece, plane = self.task(piece=costs, plane=planes)
        told = [plane, begin[piece]]
        made = self.next(spread)
        self.emit(self.clear, [made], [piece])
        with self.when(filled[piece]):
            given = self.next(pixels)
            self.emit(self.fetch, [given], [piece, plane], slice_at=told)
            self.emit(self.spread, [made, given], [piece])
        self.emit(self.leave, [made], [piece, plane], slice_at=told)

    def clear(self, slot: Slot, piece: int) -> Fill:
        """Fill a piece with zeros."""
        shape = self.pieces[piece].shape
        return Fill(slot, (*shape, self.spreading.source.shape[3]), prod(shape) * C0_BYTES)

    def fetch(self, slot: Slot, piece: int, plane: int) -> CopyGmToUb | None:
        """Bring the pixels of a piece into UB, if it has any."""
        source, planes = self.spreading.source, self.pieces[piece].planes
        rows, cols, _ = self.spreading.taken(self.pieces[piece])
        shape = planes, len(rows), len(cols)
        if not prod(shape):
            return None
        place = Gm(source, _slices(plane, planes, rows, cols))
        return CopyGmToUb(slot, place, prod(shape) * C0_BYTES, (*shape, source.shape[3]))

    def spread(self, made: Slot, pixels: Slot, piece: int) -> SpreadPixels:
        """Put the pixels of a piece to their places."""
        rows, cols, at = self.spreading.taken(self.pieces[piece])
        shape = self.pieces[piece].planes, len(rows), len(cols)
        return SpreadPixels(made, pixels, *shape, C0_BYTES, at, self.spreading.step)

    def leave(self, slot: Slot, piece: int, plane: int) -> CopyUbToGm:
        """Bring a piece to its place."""
        own = self.pieces[piece]
        place = Gm(self.spreading.target, _slices(plane, *own))
        return CopyUbToGm(place, slot, prod(own.shape) * C0_BYTES)


def _slices(plane: int, planes: int, rows: range, cols: range) -> tuple[slice, ...]:
    return slice(plane, plane + planes), slice(rows.start, rows.stop), slice(cols.start, cols.stop)


def gather(profile: Profile, source: GmTensor, view: View, target: GmTensor) -> Phase:
    """Return the phase that writes the elements of a view, in their order, to a flat tensor.

    Tensors  `source` and `target` (elements,): the carrier of a view holds its elements in their order, and
             where they lie counts only for the bytes that are read
    """
    # Bytes an element, gaps included; a broadcast view reads less than one element for each that it has.
    each, size = Fraction(view.bytes_read(source.itemsize), view.size), Fraction(source.itemsize)
    return _moved("gather", profile, source, view, target, each, size)


def scatter(profile: Profile, source: GmTensor, view: View, target: GmTensor) -> Phase:
    """Return the phase that puts the elements of a flat tensor in the places of a view.

    Tensors  `source` and `target` (elements,), as of `gather`: where they lie counts only for the bytes that
             are written
    """
    each, size = Fraction(view.bytes_written(source.itemsize), view.size), Fraction(source.itemsize)
    return _moved("scatter", profile, source, view, target, size, each)


def _moved(
    name: str, profile: Profile, source: GmTensor, view: View, target: GmTensor, *each: Fraction
) -> Phase:
    """Return the phase that brings the elements of a view over; `each` are the bytes it reads and writes."""
    build = partial(_strided_program, source, target, each, view.in_place(source.itemsize))
    return flat_phase(name, profile, view.size, source.itemsize, build)


def _strided_program(
    source: GmTensor,
    target: GmTensor,
    each: tuple[Fraction, ...],
    in_place: bool,
    profile: Profile,
    first: int,
    count: int,
) -> Program:
    """Bring `count` elements over; each reads and writes the given bytes."""
    limit = min(PIECE_BYTES, profile.buffers["UB"].capacity_bytes // 4)
    reads, writes = each
    # One of them is the size of an element; by the other it lies scattered in UB.
    scattered = writes if reads == source.itemsize else reads
    widest = max(scattered, Fraction(source.itemsize))
    b = ProgramBuilder(profile)
    piece = min(count, max(1, int(limit // widest)))
    loads = b.ring("UB", ceil(piece * max(reads, Fraction(source.itemsize))), "read", 2)
    results = loads if in_place else b.ring("UB", ceil(piece * writes), "written", 2)
    for start, size in pieces(first, first + count, piece):
        place = (slice(start, start + size),)
        result = load = loads.next()
        b.add(CopyGmToUb(load, Gm(source, place), ceil(size * reads), (size,)))
        if not in_place:
            result = results.next()
            b.add(Rearrange(result, load, ceil(size * scattered)))
        b.add(CopyUbToGm(Gm(target, place), result, ceil(size * writes)))
    return b.build()
