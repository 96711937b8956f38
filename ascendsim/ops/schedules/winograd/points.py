"""From pixels to points on a vector core: what the phase for the left side and the right side's way share."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from ascendsim.ops.plan import shares
from ascendsim.ops.problems.winograd import CLUSTER, Cluster
from ascendsim.ops.schedules.vector.elementwise import vector_cores
from ascendsim.ops.schedules.winograd.cut import WinogradCut
from ascendsim.ops.schedules.winograd.units import FLOAT32_BYTES, PLANE, Load, Side
from ascendsim.program.builder import ProgramBuilder
from ascendsim.program.kernel import CoreWork, Deferred, Phase
from ascendsim.program.places import GmTensor, Slot
from ascendsim.program.program import Program
from ascendsim.vector.instructions import CopyGmToUb, CopyUbToGm, Fill
from ascendsim.vector.winograd import ToPoints

# Two copies of pixels and of points: one piece arrives, or leaves, while another is transformed.
COPIES = 2


class Piece(NamedTuple):
    """Some groups of channels of one cluster."""

    cluster: Cluster
    first: int
    groups: int


class PointsOf:
    """Appends the transform of pieces of one side, of as many groups of channels as a part of UB holds.

    on      the core of the program whose UB and pipes it takes
    share   the part of UB: 1 of so many
    """

    def __init__(
        self, builder: ProgramBuilder, cut: WinogradCut, side: Side, on: int = 0, share: int = 1
    ) -> None:
        self._b, self._cut, self._side, self._on = builder, cut, side, on
        clusters = cut.clusters
        rows, columns = clusters.small_pixels if side.small else clusters.big_pixels
        pixels, points = (count * side.c0 * FLOAT32_BYTES for count in (rows * columns, PLANE * CLUSTER))
        self.most = max(1, builder.capacity("UB") // share // (COPIES * (pixels + points)))
        self.most = min(self.most, side.groups)
        self._pixels = builder.ring("UB", self.most * pixels, f"pixels {on}", COPIES, on)
        self._points = builder.ring("UB", self.most * points, f"points {on}", COPIES, on)

    def append(self, unit: Piece | Load, at: int, groups: int) -> Slot:
        """Append the transform of some groups, from number `at` of the unit on; return the slot of points."""
        cut, side, b = self._cut, self._side, self._b
        window, points = cut.window(unit.cluster, side), self._points.next()
        height, width = window.size
        shape = groups, height, width, side.c0
        size = groups * height * width * side.c0 * FLOAT32_BYTES
        if not size:
            # Nothing but padding: its points are zero.
            made = groups, PLANE, CLUSTER, side.c0
            b.add(Fill(points, made, groups * PLANE * CLUSTER * side.c0 * FLOAT32_BYTES), self._on)
            return points
        pixels = self._pixels.next()
        place = b.gm(side.tensor, self._find, unit, at, groups)
        b.add(CopyGmToUb(pixels, place, size, shape), self._on)
        tiles = cut.clusters.rows, cut.clusters.columns
        b.add(ToPoints(points, pixels, side.small, shape, tiles, window.begin), self._on)
        return points

    def _find(self, unit: Piece | Load, at: int, groups: int) -> tuple[Any, ...]:
        """Return the slice of the side's tensor that some groups of a cluster read."""
        window = self._cut.window(unit.cluster, self._side)
        channels = slice(unit.first + at, unit.first + at + groups)
        return 0, unit.cluster.image, 0, channels, window.rows, window.columns, slice(None)


def left_points(cut: WinogradCut, target: GmTensor) -> Phase:
    """Return the phase in which all vector cores bring the left side to points, in global memory."""
    return Phase("points", Deferred(partial(_work, cut, target)))


def _work(cut: WinogradCut, target: GmTensor) -> Sequence[CoreWork]:
    cores = vector_cores(cut.profile)
    most = PointsOf(ProgramBuilder(cut.profile), cut, cut.sides[0]).most
    pieces = list(_pieces(cut, most))
    work = []
    for core, share in zip(cores, shares(len(pieces), len(cores)), strict=False):
        own = tuple(pieces[share.start : share.stop])
        signature: Hashable = tuple((p.groups, cut.shape_of(p.cluster, cut.sides[0])) for p in own)
        work.append(CoreWork(core, signature, partial(_program, cut, target, own)))
    return tuple(work)


def _pieces(cut: WinogradCut, most: int) -> Iterator[Piece]:
    """Yield the left side in pieces: clusters in order, groups of channels the fastest."""
    groups = cut.sides[0].groups
    for number in range(len(cut.clusters)):
        for first in range(0, groups, most):
            yield Piece(cut.clusters.at(number), first, min(most, groups - first))


def _program(cut: WinogradCut, target: GmTensor, pieces: Sequence[Piece]) -> Program:
    """Bring pieces of the left side to points: for each: GM -> UB, transform, UB -> GM."""
    b, side = ProgramBuilder(cut.profile), cut.sides[0]
    maker = PointsOf(b, cut, side)

    def place(piece: Piece) -> tuple[Any, ...]:
        cluster = piece.cluster
        number = cluster.row * cut.clusters.across + cluster.column
        return cluster.image, number, slice(piece.first, piece.first + piece.groups)

    for piece in pieces:
        for _ in b.once(piece, (piece.groups, cut.shape_of(piece.cluster, side))):
            points = maker.append(piece, 0, piece.groups)
            size = piece.groups * PLANE * CLUSTER * side.c0 * FLOAT32_BYTES
            b.add(CopyUbToGm(b.gm(target, place, piece), points, size))
    return b.build()
