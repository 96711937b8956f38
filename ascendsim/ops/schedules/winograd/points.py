"""From pixels to points on a vector core: what the phase for the left side and the right side's way share."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from ascendsim.ops.problems.winograd import CLUSTER
from ascendsim.ops.schedules.vector.elementwise import shared
from ascendsim.ops.schedules.winograd.cut import FLOAT32_BYTES, PLANE, Side, WinogradCut
from ascendsim.program.indices import Axis, Number, TileNumber
from ascendsim.program.kernel import CoreWork, Deferred, Phase
from ascendsim.program.nest import Nest
from ascendsim.program.places import Gm, GmTensor, Slot
from ascendsim.program.program import NestProgram
from ascendsim.vector.instructions import CopyGmToUb, CopyUbToGm, Fill
from ascendsim.vector.winograd import ToPoints

# Two copies of pixels and of points: one piece arrives, or leaves, while another is transformed.
COPIES = 2


class Piece(NamedTuple):
    """Some groups of channels of one side, and where in its block of so many groups they begin."""

    first: int
    groups: int
    begin: int
    block_groups: int


class PointsOf:
    """Writes the transform of one side, piece by piece: as many groups of channels as a part of UB holds.

    blocks  into which groups of channels are cut: (first, count) of each
    on      the core of the program whose UB and pipes it takes
    share   the part of UB: 1 of so many
    """

    def __init__(
        self,
        nest: Nest,
        cut: WinogradCut,
        side: Side,
        blocks: Sequence[tuple[int, int]],
        on: int = 0,
        share: int = 1,
    ) -> None:
        self._nest, self._cut, self._side, self._on = nest, cut, side, on
        rows, columns = cut.clusters.small_pixels if side.small else cut.clusters.big_pixels
        pixels, points = (count * side.c0 * FLOAT32_BYTES for count in (rows * columns, PLANE * CLUSTER))
        most = min(max(1, nest.capacity("UB") // share // (COPIES * (pixels + points))), side.groups)
        self._pixels = nest.ring("UB", most * pixels, f"pixels {on}", COPIES, on)
        self._points = nest.ring("UB", most * points, f"points {on}", COPIES, on)
        self.pieces = [
            Piece(first + begin, min(most, groups - begin), begin, groups)
            for first, groups in blocks
            for begin in range(0, groups, most)
        ]
        self.axis = Axis(len(self.pieces), [piece.groups for piece in self.pieces])
        self.of_block = nest.spans([-(-groups // most) for _, groups in blocks], self.axis, "pieces")
        self.places = Axis(cut.clusters.of_image, cut.shapes(side))
        # Where an image is narrower than its padding, several clusters read the same pixels.
        self._read = nest.table(cut.slices(side), name="pixels")
        seen = [cut.window(place, side).pixels > 0 for place in range(self.places.extent)]
        self._seen = nest.table(seen, name="seen")

    def write(self, piece: Number, image: Number, cluster: Number) -> TileNumber:
        """Write the transform of a piece of a cluster; return its points."""
        nest = self._nest
        points = nest.next(self._points, "points")
        with nest.when(self._seen[cluster]):
            pixels = nest.next(self._pixels, "pixels")
            read = [piece, image, self._read[cluster]]
            nest.emit(self.copy, [pixels], [piece, image, cluster], slice_at=read, on=self._on)
            nest.emit(self.transform, [points, pixels], [piece, cluster], on=self._on)
        nest.emit(self.clear, [points], [piece, cluster], on=self._on)
        return points

    def copy(self, slot: Slot, piece: int, image: int, cluster: int) -> CopyGmToUb | None:
        """Bring the pixels that a cluster reads into UB; None where all of them are padding."""
        side, (first, groups, *_) = self._side, self.pieces[piece]
        window = self._cut.window(cluster, side)
        if not window.pixels:
            return None
        channels = slice(first, first + groups)
        place = Gm(side.tensor, (0, image, 0, channels, window.rows, window.columns, slice(None)))
        size = groups * window.pixels * side.c0 * FLOAT32_BYTES
        return CopyGmToUb(slot, place, size, (groups, *window.size, side.c0))

    def transform(self, points: Slot, pixels: Slot, piece: int, cluster: int) -> ToPoints | None:
        """Bring them to points."""
        cut, side, window = self._cut, self._side, self._cut.window(cluster, self._side)
        if not window.pixels:
            return None
        shape = self.pieces[piece].groups, *window.size, side.c0
        tiles = cut.clusters.rows, cut.clusters.columns
        return ToPoints(points, pixels, side.small, shape, tiles, window.begin)

    def clear(self, points: Slot, piece: int, cluster: int) -> Fill | None:
        """Set points to zero where there is nothing but padding."""
        if self._cut.window(cluster, self._side).pixels:
            return None
        shape = self.pieces[piece].groups, PLANE, CLUSTER, self._side.c0
        return Fill(points, shape, self.size_of(piece))

    def size_of(self, piece: int) -> int:
        """Return the bytes of the points of a piece."""
        return self.pieces[piece].groups * PLANE * CLUSTER * self._side.c0 * FLOAT32_BYTES


class LeftNest(Nest):
    """For each piece of a cluster of the left side: GM -> UB, transform, UB -> GM."""

    def __init__(self, cut: WinogradCut, target: GmTensor) -> None:
        super().__init__(cut.profile, "points")
        self._target, side = target, cut.sides[0]
        self.maker = maker = PointsOf(self, cut, side, [(0, side.groups)])
        task = self.task(image=cut.clusters.batch, cluster=maker.places, piece=maker.axis)
        image, cluster, piece = task
        self.emit(self.leave, [maker.write(piece, image, cluster)], task)

    def leave(self, points: Slot, image: int, cluster: int, piece: int) -> CopyUbToGm:
        """Write the points of a piece."""
        first, groups, *_ = self.maker.pieces[piece]
        place = Gm(self._target, (image, cluster, slice(first, first + groups)))
        return CopyUbToGm(place, points, self.maker.size_of(piece))


def left_points(cut: WinogradCut, target: GmTensor) -> Phase:
    """Return the phase in which all vector cores bring the left side to points, in global memory."""
    return Phase("points", Deferred(partial(_work, cut, target)))


def _work(cut: WinogradCut, target: GmTensor) -> Sequence[CoreWork]:
    """Deal the pieces of the left side: clusters in order, groups of channels the fastest."""
    nest = LeftNest(cut, target)
    pieces = nest.maker.pieces
    costs = np.add.outer(np.array(cut.shapes(cut.sides[0])) << 16, [piece.groups for piece in pieces])
    work = []
    for core, share in shared(cut.profile, len(cut.clusters) * len(pieces)):
        signature = costs.reshape(-1)[np.arange(share.start, share.stop) % costs.size].tobytes()
        work.append(CoreWork(core, signature, partial(_program, nest, cut.clusters.of_image, share)))
    return tuple(work)


def _program(nest: LeftNest, places: int, share: range) -> NestProgram:
    """Return the program of a core with pieces of these numbers."""
    cluster, piece = np.divmod(np.arange(share.start, share.stop), len(nest.maker.pieces))
    image, place = np.divmod(cluster, places)
    return NestProgram(nest, np.column_stack([image, place, piece]))
