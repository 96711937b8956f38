"""The loop nest of a cube core and its two vector cores: products at 16 points, cluster after cluster."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple

import numpy as np

from ascendsim.frozen import cached_property
from ascendsim.instructions.cube import Im2col, Mmad, Transposed, Window
from ascendsim.instructions.fixpipe import CopyL0cToUb
from ascendsim.instructions.movers import CopyGmToL1, LoadL0A, LoadL0B
from ascendsim.instructions.relayout import CopyUbToL1
from ascendsim.instructions.vector import CopyGmToUb, CopyUbToGm, Fill
from ascendsim.instructions.winograd import TAPS, ToPoints, ToTaps
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.orders import CLUSTER, WinogradOrder
from ascendsim.ops.problems.products import WgradGemm
from ascendsim.ops.schedules.base import TILES, Schedule
from ascendsim.ops.schedules.vector.elementwise import MatrixPiece, block_sums, shared
from ascendsim.ops.schedules.winograd_cut import (
    FIXED,
    FLOAT32_BYTES,
    PLANE,
    WHOLE,
    WinogradCut,
    WinogradSide,
    WinogradTask,
)
from ascendsim.program.kernel import Core, CoreWork, Deferred, Phase
from ascendsim.program.nest import Nest
from ascendsim.program.places import VECTOR_CORES, Gm, GmTensor, Ring, Slot
from ascendsim.program.program import NestProgram
from ascendsim.program.walk import Axis, Number, Span, TileNumber

# Two copies of pixels and of points: one piece arrives, or leaves, while another is transformed.
COPIES = 2


class ChannelPiece(NamedTuple):
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
        side: WinogradSide,
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
            ChannelPiece(first + begin, min(most, groups - begin), begin, groups)
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


# Of UB, one half is for pixels and points of the right side, the other for sums and taps.
UB_SHARE = 2


class WinogradNest(Nest):
    """For each block: for each cluster, at each point: load, multiply; then the way out, by taps.

    points    the left side at all points, in global memory
    targets   where whole reductions go, and the workspace of parts (the target, if there are none)
    """

    def __init__(self, cut: WinogradCut, points: GmTensor, targets: tuple[GmTensor, GmTensor]) -> None:
        super().__init__(cut.profile, "wgrad_winograd")
        self.cut, self.points, self.targets, self.c0 = cut, points, targets, cut.gemm.sliding.c0
        self.lefts, self.rights = cut.cuts
        self._reserve()
        left, right, part = self.task(
            left=Axis(len(self.lefts), [groups for _, groups in self.lefts]),
            right=Axis(len(self.rights), [groups for _, groups in self.rights]),
            # Number 0 is the whole reduction.
            part=Axis(1 + cut.parts, [0, *[1] * cut.parts]),
        )
        sums, begins = self.next(self.l0c, "sums"), self.let(1, "begins", Axis(2, (0, 1)))
        with self._clusters(part) as (image, cluster):
            a1, b1 = self.next(self.left_l1), self.next(self.right_l1)
            self.emit(self.copy_left, [a1], [left, image, cluster])
            for core in self._in_turn(self.next(self.turns).turn):
                maker = self.makers[core]
                with self.loop(maker.of_block[right], "piece") as piece:
                    tile = maker.write(piece, image, cluster)
                    self.emit(self.copy_right, [b1, tile], [piece], on=1 + core)
            with self.loop(PLANE, "point") as point:
                a, b = self.next(self.l0a), self.next(self.l0b)
                self.emit(self.load_a, [a, a1], [left, point])
                self.emit(self.load_b, [b, b1], [right, point])
                self.emit(self.mmad, [sums + point, a, b], [left, right, begins])
            self.set(begins, 0)
        # C0 columns of all sums at a time, by the vector cores in turn.
        self.columns = [column for _, groups in self.rights for column in range(groups)]
        turns = self.table([column % VECTOR_CORES for column in self.columns], name="turn")
        groups = self.spans([groups for _, groups in self.rights], name="groups")
        with self.loop(groups[right], "group") as group:
            for core in self._in_turn(turns[group]):
                read, taps = self.next(self.read[core]), self.next(self.taps[core])
                with self.loop(PLANE, "point") as point:
                    self.emit(self.convert, [read + point, sums + point], [left, group])
                self.emit(self.to_taps, [taps, (read, PLANE)], [left], on=1 + core)
                self.emit(self.leave, [taps], [left, group, part], on=1 + core)

    def _reserve(self) -> None:
        """Reserve the rings of all three cores."""
        cut, t, c0 = self.cut, self.cut.tiling, self.c0
        left, right = (max(groups for _, groups in own) for own in cut.cuts)
        each = PLANE * CLUSTER * c0 * FLOAT32_BYTES
        self.left_l1 = self.ring("L1", left * each, "left points", t.al1_buffers)
        self.right_l1 = self.ring("L1", right * each, "right points", t.bl1_buffers)
        self.l0a = self.ring("L0A", left * c0 * CLUSTER * FLOAT32_BYTES, "A", t.al0_buffers)
        self.l0b = self.ring("L0B", right * c0 * CLUSTER * FLOAT32_BYTES, "B", t.bl0_buffers)
        size = left * right * c0 * c0 * FLOAT32_BYTES
        sums = [self.slots("L0C", size, f"sums at {point}")[0] for point in range(PLANE)]
        self.l0c = Ring(tuple(sums), PLANE)
        cores = range(1, 1 + VECTOR_CORES)
        self.makers = [PointsOf(self, cut, cut.sides[1], self.rights, on, UB_SHARE) for on in cores]
        strip = left * c0 * c0 * FLOAT32_BYTES
        # Two copies, unless a block is so large that UB has one.
        both = COPIES * (PLANE + TAPS * TAPS) * strip <= self.capacity("UB") // UB_SHARE
        copies = COPIES if both else 1
        self.read = [self.ring("UB", strip, f"sums {on}", copies, on, PLANE) for on in cores]
        self.taps = [self.ring("UB", TAPS * TAPS * strip, f"taps {on}", copies, on) for on in cores]
        # Whose turn it is of the vector cores: it has no place in any buffer.
        self.turns = self.handover(0, "turn", VECTOR_CORES)

    @contextmanager
    def _clusters(self, part: Number) -> Iterator[tuple[Number, Number]]:
        """Go through the clusters of a part."""
        runs_of = [self.cut.runs(WHOLE + number) for number in range(1 + self.cut.parts)]
        columns = zip(*[run for own in runs_of for run in own], strict=True)
        names = "first image", "images", "first cluster", "clusters"
        tables = [self.table(own, name=name) for name, own in zip(names, columns, strict=True)]
        with self.loop(self.spans([len(own) for own in runs_of], name="runs")[part], "run") as run:
            first_image, images, first, places = (table[run] for table in tables)
            of_run = Span(first_image, images, Axis(self.cut.clusters.batch), images.text)
            of_image = Span(first, places, self.makers[0].places, places.text)
            with self.loop(of_run, "image") as image, self.loop(of_image, "cluster") as cluster:
                yield image, cluster

    def _in_turn(self, turn: Number) -> Iterator[int]:
        """Go through the vector cores: each takes the steps that follow where it is its turn."""
        for core in range(VECTOR_CORES):
            own = self.table([core == each for each in range(VECTOR_CORES)], name=f"AIV{core}")
            with self.when(own[turn]):
                yield core

    def copy_left(self, slot: Slot, left: int, image: int, cluster: int) -> CopyGmToL1:
        """Bring the left side's points of a cluster into L1."""
        first, groups = self.lefts[left]
        size = groups * PLANE * CLUSTER * self.c0 * FLOAT32_BYTES
        place = Gm(self.points, (image, cluster, slice(first, first + groups)))
        return CopyGmToL1(slot, place, size, (groups, PLANE * CLUSTER, self.c0))

    def copy_right(self, slot: Slot, source: Slot, piece: int) -> CopyUbToL1:
        """Bring a piece of the right side's points into L1."""
        of = self.makers[0].pieces[piece]
        size = of.groups * PLANE * CLUSTER * self.c0 * FLOAT32_BYTES
        shape = of.block_groups, PLANE, CLUSTER, self.c0
        return CopyUbToL1(slot, source, size, shape, (of.begin, 0, 0), of.begin == 0)

    def load_a(self, slot: Slot, source: Slot, left: int, point: int) -> LoadL0A:
        """Bring the left side of all tiles of a cluster at one point into L0A."""
        rows = Transposed(self.lefts[left][1], point * CLUSTER, CLUSTER, self.c0, FLOAT32_BYTES, 0, CLUSTER)
        return LoadL0A(slot, source, rows)

    def load_b(self, slot: Slot, source: Slot, right: int, point: int) -> LoadL0B:
        """Bring the right side of all tiles of a cluster at one point into L0B."""
        groups = self.rights[right][1]
        # A row for each point, so that the tiles at one point are pixels of one row.
        window = Window(groups, PLANE, CLUSTER, 0, 0, CLUSTER, (1, 1), (1, 1), (1, 1), self.c0)
        return LoadL0B(slot, source, Im2col(window, point * CLUSTER, CLUSTER, 0, groups, FLOAT32_BYTES))

    def mmad(self, sums: Slot, a: Slot, b: Slot, left: int, right: int, begins: int) -> Mmad:
        """Add the products of all tiles of a cluster at one point."""
        m, n = self.lefts[left][1] * self.c0, self.rights[right][1] * self.c0
        return Mmad(sums, a, b, m, CLUSTER, n, self.cut.gemm.compute_dtype, bool(begins))

    def convert(self, slot: Slot, sums: Slot, left: int, group: int) -> CopyL0cToUb:
        """Copy C0 columns of the sums of one Winograd point from L0C to UB."""
        rows, column = self.lefts[left][1] * self.c0, self.columns[group] * self.c0
        pipe = self.profile.paths["L0C_UB"].pipe
        return CopyL0cToUb(slot, sums, column, self.c0, "float32", rows * self.c0, 0, pipe)

    def to_taps(self, taps: Slot, sums: tuple[Slot, ...], left: int) -> ToTaps:
        """Make taps of the sums at all points."""
        return ToTaps(
            taps, sums, self.lefts[left][1] * self.c0, self.c0, self.c0, not self.cut.sides[0].small
        )

    def leave(self, taps: Slot, left: int, group: int, part: int) -> CopyUbToGm:
        """Write C0 columns, for all their taps: of the result, or of a part of the reduction."""
        (first, groups), c0, each = self.lefts[left], self.c0, TAPS * TAPS * self.c0
        rows, columns = (first, groups), (group, 1)
        if not self.cut.sides[0].small:
            rows, columns = columns, rows
        place = slice(rows[0] * c0, sum(rows) * c0), slice(columns[0] * each, sum(columns) * each)
        index = (part - 1, 0, 0, *place) if part else (0, 0, *place)
        return CopyUbToGm(Gm(self.targets[part > 0], index), taps, groups * c0 * each * FLOAT32_BYTES)


@dataclass(frozen=True)
class WgradWinograd(Schedule):
    """For each block of channels: for each cluster of 32 tiles, at each of 16 points: multiply; then taps.

    base_m, base_n   channels of the small and of the big side in a block, whose sums fill L0C at all points
    k_split          parts of the tasks of the last round, added one after the other by vector cores

    Its vector cores read activations row after row and bring them into groups of channels, in phases of their
    own before (`relaid`).
    """

    gemm: WgradGemm

    name: ClassVar[str] = "wgrad_winograd"
    makes: ClassVar[str] = "grad_weight"
    reads: ClassVar[frozenset[str]] = TILES | {"k_split"}
    fixed: ClassVar[Mapping[str, int]] = FIXED

    def __post_init__(self) -> None:
        """Refuse a tiling that would be obeyed in part, or that no program can follow."""
        super().__post_init__()
        _ = self.cut

    @cached_property
    def cut(self) -> WinogradCut:
        """The blocks, the clusters, and who makes what."""
        return WinogradCut(self.gemm, self.tiling, self.profile)

    @property
    def tensors(self) -> tuple[GmTensor, ...]:
        """Both sides, grad_weight, the points of the left side, and the parts, if there are any."""
        sides = (side.tensor for side in self.cut.sides)
        return *sides, self.gemm.output, self.points, self.target

    @property
    def relaid(self) -> Mapping[str, GmTensor]:
        """Both sides, which its vector cores bring into groups of C0 channels."""
        # The first word of their names is that of the call's tensor.
        return {side.tensor.name.split()[0]: side.tensor for side in self.cut.sides}

    @cached_property
    def points(self) -> GmTensor:
        """The points of the left side."""
        return self.cut.points()

    @cached_property
    def target(self) -> GmTensor:
        """The workspace of the parts, or the output where there are none."""
        output = self.gemm.output
        if not self.cut.tail:
            return output
        return GmTensor.of("parts", (self.cut.parts, *output.shape), "float32", "workspace")

    def macs_of(self, problem: ConvProblem) -> int:
        """Return those at 16 points of each tile of 2 x 2 pixels, in place of nine for each pixel."""
        _, height, width = problem.small_size
        tiles = problem.batch * -(-height // 2) * -(-width // 2)
        return tiles * PLANE * problem.small_channels * problem.big_channels

    def dealt(self) -> list[list[WinogradTask]]:
        """Return the tasks of each core."""
        return self.cut.dealt()

    @cached_property
    def _nest(self) -> WinogradNest:
        return WinogradNest(self.cut, self.points, (self.gemm.output, self.target))

    def program(self, tasks: Sequence[WinogradTask]) -> NestProgram:
        """Return the program of a cube core with these tasks, and of its vector cores."""
        told = [(task.left, task.right, task.part - WHOLE) for task in tasks]
        return NestProgram(self._nest, np.array(told), self.hazards)

    def signature(self, tasks: Sequence[WinogradTask]) -> Hashable:
        """Return a key of these tasks: equal keys cost the same."""
        return self.cut.signature(tasks)

    def order(self) -> WinogradOrder:
        """Return the clusters, and which blocks are added in parts."""
        cut = self.cut
        streamed = tuple(cut.block(task) for task in cut.streamed)
        return WinogradOrder(cut.clusters, cut.parts if streamed else 1, streamed)

    def phases(self) -> tuple[Phase, ...]:
        """Return the points of the left side, the products, and the sums of the last round's parts."""
        phases = [left_points(self.cut, self.points), self.compute()]
        if self.cut.tail:
            c0 = self.gemm.sliding.c0
            pieces = [
                MatrixPiece(
                    0, 0, block.first_small, block.small, block.first_big * TAPS**2, block.big * TAPS**2
                )
                for block in map(self.cut.block, self.cut.streamed)
            ]
            assert all(piece.columns % c0 == 0 for piece in pieces)
            phases += block_sums(self.profile, self.target, self.gemm.output, pieces, tree=False)
        return tuple(phases)

    def _work(self) -> tuple[CoreWork, ...]:
        return tuple(
            CoreWork(Core("cube", index), self.signature(tasks), partial(self.program, tasks), VECTOR_CORES)
            for index, tasks in enumerate(self._checked())
        )
