"""The loop nest of a cube core and its two vector cores: products at 16 points, cluster after cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ascendsim.cube.fixpipe import CopyL0cToUb
from ascendsim.cube.im2col import Im2col, Window
from ascendsim.cube.mmad import Mmad
from ascendsim.cube.movers import CopyGmToL1, LoadL0A, LoadL0B
from ascendsim.cube.tile_reads import Transposed
from ascendsim.numerics.winograd import TAPS
from ascendsim.ops.problems.winograd import CLUSTER
from ascendsim.ops.schedules.winograd.cut import FLOAT32_BYTES, PLANE, WHOLE, WinogradCut
from ascendsim.ops.schedules.winograd.points import COPIES, PointsOf
from ascendsim.program.indices import Axis, Number, Span
from ascendsim.program.nest import Nest
from ascendsim.program.places import Gm, GmTensor, Slot
from ascendsim.program.posts import VECTOR_CORES
from ascendsim.program.reserved import Ring
from ascendsim.vector.instructions import CopyUbToGm
from ascendsim.vector.winograd import ToTaps
from ascendsim.vector.zero_insertion import CopyUbToL1

# Of UB, one half is for pixels and points of the right side, the other for sums and taps.
UB_SHARE = 2


class WinogradNest(Nest):
    """For each block: for each cluster, at each point: load, multiply; then the way out, by taps.

    points    the left side at all points, in global memory
    targets   where whole reductions go, and the workspace of parts (the same, if there are none)
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
        """Bring C0 columns of the sums at one point into UB."""
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
