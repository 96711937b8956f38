"""Schedule of Dilation: the pixels of an image in the cube's layout spread over zeros, on vector cores.

    for each run of planes, or rows of a plane, that is mine:
        for each piece of it that fits in a quarter of UB:
            pixels GM -> UB            MTE2
            zeros over the piece       V
            pixels to their places     V
            piece UB -> GM             MTE3

The loops of the vendor's operator are published nowhere. A plane is one group of C0 channels of an image.
Pieces alternate between two slots each way, so that the next pixels arrive while this piece leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from math import ceil, prod
from typing import NamedTuple

import numpy as np

from ascendsim.instructions.relayout import Rearrange, SpreadPixels
from ascendsim.instructions.vector import CopyGmToUb, CopyUbToGm, Fill
from ascendsim.ops.problems.convolution import C0_BYTES
from ascendsim.ops.problems.strips import View
from ascendsim.ops.schedules.vector.elementwise import (
    PIECE_BYTES,
    flat_phase,
    pieces,
    runs,
    shared,
    vector_cores,
)
from ascendsim.ops.schedules.zero_insertion import lines_in
from ascendsim.profile import Profile
from ascendsim.program.kernel import CoreWork, Deferred, Phase
from ascendsim.program.nest import Nest
from ascendsim.program.places import Gm, GmTensor, Slot
from ascendsim.program.program import NestProgram, Program, ProgramBuilder
from ascendsim.program.walk import Axis, alike


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
