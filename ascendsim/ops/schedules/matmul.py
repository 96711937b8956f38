"""Schedule of a matrix product: blocks of c dealt to cores, tiles inside a block, slices of the reduction.

A tile of c walks the whole reduction. Pieces of a and b stay in L1 until their slot is needed, so that a tile
which needs them again does not load them again, unless the plan says otherwise.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple

from ascendsim.cube.mmad import Mmad, PipeBarrier, spacing_needed
from ascendsim.cube.movers import CopyGmToL1, LoadL0A, LoadL0B
from ascendsim.cube.views import Submatrix, round_up
from ascendsim.ops.problems.matmul import MatmulProblem
from ascendsim.ops.schedules.writeback import Writeback
from ascendsim.ops.tiling.search.matmul import MatmulTiling
from ascendsim.program.builder import HAZARDS, ProgramBuilder
from ascendsim.program.kernel import Core, CoreWork, Phase
from ascendsim.program.places import Gm, GmTensor, Slot
from ascendsim.program.program import Program
from ascendsim.program.rings import Ring

if TYPE_CHECKING:
    from ascendsim.profile import Profile

FLOAT32_BYTES = 4


class Task(NamedTuple):
    """A tile of c: rows and columns of one matrix of the batch."""

    batch: int
    row: int
    rows: int
    column: int
    columns: int


@dataclass(frozen=True)
class MatmulSchedule:
    """A matrix product under one plan on one product of the family.

    Tensors  a and b as `MatmulProblem.stored_a` and `stored_b`, c (batch, m, n)
    compute_dtype  what the cube multiplies, a key of `cube.rates`
    """

    problem: MatmulProblem
    tiling: MatmulTiling
    profile: Profile
    a: GmTensor
    b: GmTensor
    c: GmTensor
    compute_dtype: str
    hazards: frozenset[str] = HAZARDS

    def phase(self) -> Phase:
        """Return the compute phase."""
        work = []
        for index, tiles in enumerate(self.dealt):
            if tiles:
                program = partial(self.program, tiles)
                work.append(CoreWork(Core("cube", index), self._signature(tiles), program))
        return Phase("compute", tuple(work))

    @cached_property
    def dealt(self) -> list[list[Task]]:
        """The tiles of each core, in the order in which it makes them."""
        t = self.tiling
        cores: list[list[Task]] = [[] for _ in range(t.used_cores)]
        for number, (batch, top, left) in enumerate(self._walk()):
            cores[number % t.used_cores] += self._tiles(batch, top, left)
        return cores

    def _walk(self) -> Iterator[tuple[int, int, int]]:
        """Yield batch, first row and first column of every block, panel after panel."""
        p, t = self.problem, self.tiling
        rows = range(0, p.m, t.single_core_m)
        columns = range(0, p.n, t.single_core_n)
        across, along = (rows, columns) if t.panels == "rows" else (columns, rows)
        for batch in range(p.batch):
            for first in range(0, len(across), t.swizzle):
                for one in along:
                    for other in across[first : first + t.swizzle]:
                        yield (batch, other, one) if t.panels == "rows" else (batch, one, other)

    def _tiles(self, batch: int, top: int, left: int) -> list[Task]:
        """Return the tiles of one block, along n first."""
        p, t = self.problem, self.tiling
        bottom, right = min(p.m, top + t.single_core_m), min(p.n, left + t.single_core_n)
        return [
            Task(batch, row, min(t.base_m, bottom - row), column, min(t.base_n, right - column))
            for row in range(top, bottom, t.base_m)
            for column in range(left, right, t.base_n)
        ]

    def _signature(self, tiles: list[Task]) -> Hashable:
        """Describe what decides the cost of a core's program: sizes, and which pieces are met again."""
        lefts: dict[Hashable, int] = {}
        rights: dict[Hashable, int] = {}
        return tuple(
            (
                tile.rows,
                tile.columns,
                lefts.setdefault((tile.batch, tile.row), len(lefts)),
                rights.setdefault((tile.batch, tile.column), len(rights)),
            )
            for tile in tiles
        )

    def program(self, tiles: list[Task]) -> Program:
        """Build the program of one core."""
        return _MatmulProgram(self, tiles).emit()


class _MatmulProgram:
    """Emits the instructions of one core, tile after tile."""

    def __init__(self, schedule: MatmulSchedule, tiles: list[Task]) -> None:
        self.s = schedule
        self.p, t = schedule.problem, schedule.tiling
        self.tiles = tiles
        cube = schedule.profile.cube
        self.size = schedule.a.itemsize
        k0 = cube.rates[schedule.compute_dtype].k0
        m = round_up(max(tile.rows for tile in tiles), cube.m0)
        n = round_up(max(tile.columns for tile in tiles), cube.n0)
        base_k = round_up(min(t.base_k, self.p.k), k0)
        self.chunk_a = min(t.step_ka * t.base_k, round_up(self.p.k, k0))
        self.chunk_b = min(t.step_kb * t.base_k, round_up(self.p.k, k0))
        b = self.b = ProgramBuilder(schedule.profile, schedule.hazards)
        self.left = Ring(b.slots("L1", m * self.chunk_a * self.size, "A1", t.al1_buffers))
        self.right = Ring(b.slots("L1", n * self.chunk_b * self.size, "B1", t.bl1_buffers))
        self.l0a = Ring(b.slots("L0A", m * base_k * self.size, "A0", t.al0_buffers))
        self.l0b = Ring(b.slots("L0B", n * base_k * self.size, "B0", t.bl0_buffers))
        self.l0c = Ring(b.slots("L0C", m * n * FLOAT32_BYTES, "C0", t.cl0_buffers))
        self.out = Writeback(b, schedule.profile, schedule.c, m, n, 0, unit_flag=t.unit_flag)
        # With two copies in L1 the next pieces arrive while these are read, in the steady state.
        self.prefetches = (
            t.al1_buffers > 1 and t.bl1_buffers > 1 and self.p.k > max(self.chunk_a, self.chunk_b)
        )

    def emit(self) -> Program:
        """Return the program."""
        for tile in self.tiles:
            self._tile(tile)
        return self.b.build()

    def _tile(self, tile: Task) -> None:
        """Walk the reduction of one tile and write it."""
        t = self.s.tiling
        if not t.keep_pieces:
            self.left.forget()
            self.right.forget()
        accumulator = self.l0c.next()
        spaced = spacing_needed(self.s.profile, tile.rows, tile.columns)
        for first in range(0, self.p.k, t.base_k):
            if first and spaced:
                self.b.add(PipeBarrier("M"))
            self._product(tile, accumulator, first, min(t.base_k, self.p.k - first))
        rows = slice(tile.row, tile.row + tile.rows)
        self.out.write(
            accumulator,
            tile.rows,
            tile.columns,
            lambda start, count: (tile.batch, rows, slice(tile.column + start, tile.column + start + count)),
        )

    def _product(self, tile: Task, accumulator: Slot, first: int, depth: int) -> None:
        """Add the product over one slice of the reduction.

        b goes to L0 before a: where L1 holds one copy, its next pieces come only when both have left, as is
        measured of kernels that do not double-buffer.
        """
        p, size = self.p, self.size
        in_a, in_b = first % self.chunk_a, first % self.chunk_b
        left, right = self._left(tile, first - in_a), self._right(tile, first - in_b)
        a, b = self.l0a.next(), self.l0b.next()
        self.b.add(LoadL0B(b, right, Submatrix(in_b, depth, 0, tile.columns, p.transpose_b, size)))
        arriving = self.prefetches * (tile.rows + tile.columns) * depth * size
        self.b.add(LoadL0A(a, left, Submatrix(0, tile.rows, in_a, depth, p.transpose_a, size), arriving))
        self.b.add(Mmad(accumulator, a, b, tile.rows, depth, tile.columns, self.s.compute_dtype, first == 0))

    def _left(self, tile: Task, first: int) -> Slot:
        """Return the slot with rows of a, over a chunk of the reduction."""
        depth = min(self.chunk_a, self.p.k - first)
        at, length = (tile.row, first), (tile.rows, depth)
        return self._piece(self.left, self.s.a, tile.batch, at, length, turned=self.p.transpose_a)

    def _right(self, tile: Task, first: int) -> Slot:
        """Return the slot with columns of b, over a chunk of the reduction."""
        depth = min(self.chunk_b, self.p.k - first)
        at, length = (first, tile.column), (depth, tile.columns)
        return self._piece(self.right, self.s.b, tile.batch, at, length, turned=self.p.transpose_b)

    def _piece(
        self,
        ring: Ring,
        tensor: GmTensor,
        batch: int,
        at: tuple[int, int],
        length: tuple[int, int],
        *,
        turned: bool,
    ) -> Slot:
        """Return the slot with a piece of a matrix, loading it unless it is still there."""
        if turned:
            at, length = at[::-1], length[::-1]
        slot = ring.find((batch, at))
        if slot is not None:
            return slot
        slot = ring.next((batch, at))
        index = (batch, slice(at[0], at[0] + length[0]), slice(at[1], at[1] + length[1]))
        size = length[0] * length[1] * self.size
        runs = self.p.runs(*length, self.size)
        line = self.s.profile.l2.line_bytes
        relays = self.p.layout == "ND"
        aligned = not relays or (tensor.shape[2] * self.size) % line == 0
        place = Gm(tensor, index)
        self.b.add(CopyGmToL1(slot, place, size, length, rows=runs, aligned=aligned, relays=relays))
        return slot
