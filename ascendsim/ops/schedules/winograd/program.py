"""The program of a cube core and its two vector cores: products at 16 points, cluster after cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ascendsim.cube.fixpipe import CopyL0cToUb
from ascendsim.cube.im2col import Im2col, Window
from ascendsim.cube.mmad import Mmad
from ascendsim.cube.movers import CopyGmToL1, LoadL0A, LoadL0B
from ascendsim.cube.tile_reads import Transposed
from ascendsim.numerics.winograd import TAPS
from ascendsim.ops.problems.winograd import CLUSTER
from ascendsim.ops.schedules.winograd.cut import WinogradCut
from ascendsim.ops.schedules.winograd.points import COPIES, PointsOf
from ascendsim.ops.schedules.winograd.units import FLOAT32_BYTES, PLANE, WHOLE, Load, Task
from ascendsim.program.builder import ProgramBuilder
from ascendsim.program.places import GmTensor, Slot
from ascendsim.program.posts import VECTOR_CORES
from ascendsim.program.program import Program
from ascendsim.vector.instructions import CopyUbToGm
from ascendsim.vector.winograd import ToTaps
from ascendsim.vector.zero_insertion import CopyUbToL1

# Of UB, one half is for pixels and points of the right side, the other for sums and taps.
UB_SHARE = 2


class WinogradProgram:
    """Emits the programs of all cores; clusters that are alike share their code.

    points    the left side at all points, in global memory
    targets   where whole reductions go, and the workspace of parts (the same, if there are none)
    """

    def __init__(
        self, cut: WinogradCut, points: GmTensor, targets: tuple[GmTensor, GmTensor], hazards: frozenset[str]
    ) -> None:
        self._cut, self._points, self._targets = cut, points, targets
        b = self._b = ProgramBuilder(cut.profile, hazards)
        t, c0 = cut.tiling, cut.gemm.sliding.c0
        left, right = (max(task[at] for task in cut.blocks) for at in (1, 3))
        each = PLANE * CLUSTER * c0 * FLOAT32_BYTES
        self._left = b.ring("L1", left * each, "left points", t.al1_buffers)
        self._right = b.ring("L1", right * each, "right points", t.bl1_buffers)
        self._l0a = b.ring("L0A", left * c0 * CLUSTER * FLOAT32_BYTES, "A", t.al0_buffers)
        self._l0b = b.ring("L0B", right * c0 * CLUSTER * FLOAT32_BYTES, "B", t.bl0_buffers)
        sums = left * right * c0 * c0 * FLOAT32_BYTES
        self._l0c = [b.ring("L0C", sums, f"sums at {point}", 1) for point in range(PLANE)]
        cores = range(1, 1 + VECTOR_CORES)
        self._makers = [PointsOf(b, cut, cut.sides[1], on, UB_SHARE) for on in cores]
        strip = left * c0 * c0 * FLOAT32_BYTES
        # Two copies, unless a block is so large that UB has one.
        both = COPIES * (PLANE + TAPS * TAPS) * strip <= b.capacity("UB") // UB_SHARE
        copies = COPIES if both else 1
        self._sums = [b.ring("UB", strip, f"sums {on}", PLANE * copies, on) for on in cores]
        self._taps = [b.ring("UB", TAPS * TAPS * strip, f"taps {on}", copies, on) for on in cores]
        # Whose turn it is of the vector cores: it has no place in any buffer.
        self._turns = b.handover(0, "turn", VECTOR_CORES)

    def emit(self, tasks: Sequence[Task]) -> Program:
        """Return the program of a core."""
        self._b.restart()
        for task in tasks:
            for ring in self._l0c:
                ring.next()
            sizes = task.left_groups, task.right_groups
            for load in self._cut.loads(task):
                window = self._cut.shape_of(load.cluster, self._cut.sides[1])
                for _ in self._b.once(load, (*sizes, window)):
                    self._cluster(load)
            for _ in self._b.once(task, (*sizes, task.part == WHOLE)):
                self._write(task)
        return self._b.build()

    def _cluster(self, load: Load) -> None:
        """Append one cluster: points of both sides into L1, then at each point: load, multiply."""
        b, task, c0 = self._b, load.task, self._cut.gemm.sliding.c0
        left, right = self._left.next(), self._right.next()
        size = task.left_groups * PLANE * CLUSTER * c0 * FLOAT32_BYTES
        place = b.gm(self._points, self._left_points, load)
        b.add(CopyGmToL1(left, place, size, (task.left_groups, PLANE * CLUSTER, c0)))
        self._right_points(right, load)
        m, n = task.left_groups * c0, task.right_groups * c0
        window = Window(
            *(task.right_groups, PLANE, CLUSTER, 0, 0, CLUSTER), (1, 1), (1, 1), (1, 1), c0
        )  # a row for each point, so that the tiles at one point are pixels of one row
        for point, sums in enumerate(self._l0c):
            l0a, l0b, first = self._l0a.next(), self._l0b.next(), point * CLUSTER
            rows = Transposed(task.left_groups, first, CLUSTER, c0, FLOAT32_BYTES, 0, CLUSTER)
            columns = Im2col(window, first, CLUSTER, 0, task.right_groups, FLOAT32_BYTES)
            b.add(LoadL0A(l0a, left, rows))
            b.add(LoadL0B(l0b, right, columns))
            begins = sums.begins()
            b.add(Mmad(sums.last, l0a, l0b, m, CLUSTER, n, self._cut.gemm.compute_dtype, begins))

    def _right_points(self, tile: Slot, load: Load) -> None:
        """Append what one of the vector cores does for a cluster: the right side's points, UB -> L1."""
        self._turns.next()
        turn, groups, c0 = self._turns.turn, load.task.right_groups, self._cut.gemm.sliding.c0
        maker, shape = self._makers[turn], (groups, PLANE, CLUSTER, c0)
        for at in range(0, groups, maker.most):
            count = min(maker.most, groups - at)
            points = maker.append(load, at, count)
            size = count * PLANE * CLUSTER * c0 * FLOAT32_BYTES
            self._b.add(CopyUbToL1(tile, points, size, shape, (at, 0, 0), at == 0), 1 + turn)

    def _write(self, task: Task) -> None:
        """Append the way out: the vector cores in turn take C0 columns of all sums, L0C -> UB -> GM."""
        b, c0, cut = self._b, self._cut.gemm.sliding.c0, self._cut
        rows, turned = task.left_groups * c0, not cut.sides[0].small
        pipe = cut.profile.paths["L0C_UB"].pipe
        target = self._targets[task.part != WHOLE]
        for group in range(task.right_groups):
            turn = group % VECTOR_CORES
            on, sums = 1 + turn, []
            for ring in self._l0c:
                sums.append(self._sums[turn].next())
                b.add(CopyL0cToUb(sums[-1], ring.last, group * c0, c0, "float32", rows * c0, 0, pipe))
            taps = self._taps[turn].next()
            b.add(ToTaps(taps, tuple(sums), rows, c0, c0, turned), on)
            size = rows * c0 * TAPS * TAPS * FLOAT32_BYTES
            b.add(CopyUbToGm(b.gm(target, self._output, task, group), taps, size), on)

    def _left_points(self, load: Load) -> tuple[Any, ...]:
        """Return the slice of the left side's points that a task takes of a cluster."""
        task, cluster = load
        number = cluster.row * self._cut.clusters.across + cluster.column
        return cluster.image, number, slice(task.left, task.left + task.left_groups)

    def _output(self, task: Task, group: int) -> tuple[Any, ...]:
        """Return the slice of weights that C0 columns of a task make, with the part in front if it is one."""
        c0, each = self._cut.gemm.sliding.c0, TAPS * TAPS * self._cut.gemm.sliding.c0
        left = task.left, task.left_groups
        right = task.right + group, 1
        rows, columns = (left, right) if self._cut.sides[0].small else (right, left)
        place = (
            *(0, 0, slice(rows[0] * c0, (rows[0] + rows[1]) * c0)),
            slice(columns[0] * each, (columns[0] + columns[1]) * each),
        )
        return place if task.part == WHOLE else (task.part, *place)
