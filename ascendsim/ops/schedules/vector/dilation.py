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

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from ascendsim.ops.plan import shares
from ascendsim.ops.problems.packed import C0_BYTES
from ascendsim.ops.schedules.vector.elementwise import PIECE_BYTES, runs, vector_cores
from ascendsim.ops.schedules.zero_insertion import lines_in
from ascendsim.profile import Profile
from ascendsim.program.builder import ProgramBuilder
from ascendsim.program.kernel import CoreWork, Deferred, Phase
from ascendsim.program.places import GmTensor
from ascendsim.program.program import Program
from ascendsim.vector.instructions import CopyGmToUb, CopyUbToGm, Fill
from ascendsim.vector.zero_insertion import SpreadPixels


class Piece(NamedTuple):
    """Some planes, rows and columns of the result."""

    planes: range
    rows: range
    cols: range

    @property
    def pixels(self) -> int:
        """How many pixels it has."""
        return len(self.planes) * len(self.rows) * len(self.cols)


class Spreading(NamedTuple):
    """What is spread: source (planes, H, W, C0) to target (planes, larger H, larger W, C0).

    Row i comes to row first[0] + i * step[0], column j to first[1] + j * step[1]; all others are zeros.
    Pixels that would come to lie outside are dropped.
    """

    source: GmTensor
    target: GmTensor
    step: tuple[int, int]
    first: tuple[int, int]

    def taken(self, piece: Piece) -> tuple[range, range, tuple[int, int]]:
        """Return the source's rows and columns whose pixels a piece holds, and where the first one lies."""
        rows, row = lines_in(piece.rows, self.first[0], self.step[0], self.source.shape[1])
        cols, col = lines_in(piece.cols, self.first[1], self.step[1], self.source.shape[2])
        return rows, cols, (row, col)

    def source_place(self, piece: Piece) -> tuple[slice, ...]:
        """Return where the pixels of a piece come from."""
        rows, cols, _ = self.taken(piece)
        return _slices(piece.planes, rows, cols)

    def target_place(self, piece: Piece) -> tuple[slice, ...]:
        """Return where a piece goes."""
        return _slices(*piece)


def _slices(*ranges: range) -> tuple[slice, ...]:
    return tuple(slice(each.start, each.stop) for each in ranges)


def dilation(profile: Profile, spreading: Spreading) -> Phase:
    """Return the phase that spreads the pixels of a tensor over zeros."""
    return Phase("dilation", Deferred(partial(_work, profile, spreading)), apart=True)


def _work(profile: Profile, spreading: Spreading) -> tuple[CoreWork, ...]:
    """Return the work of every core: whole planes where they are enough, else bands of their rows."""
    cores = vector_cores(profile)
    planes, height = spreading.target.shape[:2]
    bands = min(height, -(-len(cores) // planes))
    return tuple(
        CoreWork(
            core,
            _signature(spreading, tuple(_pieces(profile, spreading, share, bands))),
            partial(_program, spreading, share, bands, profile),
        )
        for core, share in zip(cores, shares(planes * bands, len(cores)), strict=False)
    )


def _pieces(profile: Profile, spreading: Spreading, share: range, bands: int) -> Iterator[Piece]:
    """Cut the bands of a core into pieces: several whole planes, or rows of one, or a part of a row."""
    _, height, width = spreading.target.shape[:3]
    # Two slots of a piece, and two of its pixels, which are never more.
    most = max(1, min(PIECE_BYTES, profile.buffers["UB"].capacity_bytes // 4) // C0_BYTES)
    if bands == 1 and height * width <= most:
        for planes in runs(share, most // (height * width)):
            yield Piece(planes, range(height), range(width))
        return
    for band in share:
        plane, place = divmod(band, bands)
        own = range(height * place // bands, height * (place + 1) // bands)
        for rows in runs(own, max(1, most // width)):
            for cols in runs(range(width), most):
                yield Piece(range(plane, plane + 1), rows, cols)


def _extents(spreading: Spreading, piece: Piece) -> tuple[int, ...]:
    """Return all that the instructions of a piece depend on but for the places in GM."""
    rows, cols, at = spreading.taken(piece)
    return len(piece.planes), len(piece.rows), len(piece.cols), len(rows), len(cols), *at


def _signature(spreading: Spreading, pieces: tuple[Piece, ...]) -> tuple[tuple[int, ...], ...]:
    return tuple(_extents(spreading, piece) for piece in pieces)


def _program(spreading: Spreading, share: range, bands: int, profile: Profile) -> Program:
    b = ProgramBuilder(profile)
    pieces = tuple(_pieces(profile, spreading, share, bands))
    most = max(piece.pixels for piece in pieces) * C0_BYTES
    pixels, spread = b.ring("UB", most, "pixels", 2), b.ring("UB", most, "spread", 2)
    c0 = spreading.source.shape[3]
    for piece in pieces:
        for _ in b.once(piece, _extents(spreading, piece)):
            rows, cols, at = spreading.taken(piece)
            made = spread.next()
            b.add(Fill(made, (*map(len, piece), c0), piece.pixels * C0_BYTES))
            if rows and cols:
                source, shape = pixels.next(), (len(piece.planes), len(rows), len(cols))
                size = shape[0] * shape[1] * shape[2] * C0_BYTES
                place = b.gm(spreading.source, spreading.source_place, piece)
                b.add(CopyGmToUb(source, place, size, (*shape, c0)))
                b.add(SpreadPixels(made, source, *shape, C0_BYTES, at, spreading.step))
            target = b.gm(spreading.target, spreading.target_place, piece)
            b.add(CopyUbToGm(target, made, piece.pixels * C0_BYTES))
    return b.build()
