"""Schedule of a matrix product: blocks of c dealt to cores, tiles inside a block, slices of the reduction.

A tile of c gets its whole reduction at once. Tiles of a and b stay in L1 until their slot is needed, so that
a tile of c which needs them again does not load them again, unless the tiling says otherwise.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import ClassVar, NamedTuple

from ascendsim.cube.mmad import Mmad, PipeBarrier, spacing_needed
from ascendsim.cube.movers import LoadL0A, LoadL0B
from ascendsim.cube.tile_reads import Submatrix, round_up
from ascendsim.errors import ConfigError
from ascendsim.ops.plan_checks import require_whole_units
from ascendsim.ops.problems.matmul import MatmulGemm, MatmulProblem, Pair
from ascendsim.ops.schedules.base import TILES, Schedule
from ascendsim.ops.schedules.order import MatmulOrder
from ascendsim.ops.schedules.tiles import Index, Sizes, held, tile_rings
from ascendsim.ops.schedules.writeback import Writeback
from ascendsim.program.builder import ProgramBuilder
from ascendsim.program.places import Gm, GmTensor, Slot
from ascendsim.program.program import Program


class Task(NamedTuple):
    """A base block of c: rows and columns of one matrix of the batch."""

    batch: int
    row: int
    rows: int
    column: int
    columns: int


@dataclass(frozen=True)
class Matmul(Schedule):
    """For each block dealt to a core, for each base block in it, for each slice of base_k: load, multiply."""

    gemm: MatmulGemm

    name: ClassVar[str] = "matmul"
    makes: ClassVar[str] = "matmul"
    reads: ClassVar[frozenset[str]] = TILES | frozenset(
        ["single_core_m", "single_core_n", "swizzle", "panels", "reuse_l1", "unit_flag"]
    )

    def __post_init__(self) -> None:
        """Refuse a tiling that cuts through a fractal of the reduction, or wants what the product has not."""
        super().__post_init__()
        units = {"base_k": self.profile.cube.rates[self.gemm.compute_dtype].k0}
        require_whole_units("a matrix product", self.tiling, units, self.profile)
        if self.tiling.unit_flag and not self.profile.fixpipe.unit_flag_bytes:
            raise ConfigError(
                f"tiling of a matrix product: unit_flag is on, but {self.profile.variant} has no unit flag "
                "between Mmad and Fixpipe; take False"
            )

    @property
    def tensors(self) -> tuple[GmTensor, ...]:
        """Both operands and the result."""
        return self.gemm.a, self.gemm.b, self.gemm.c

    def order(self) -> MatmulOrder:
        """Return how much of the reduction one Mmad takes."""
        return MatmulOrder(self.tiling.base_k)

    def dealt(self) -> list[list[Task]]:
        """Return the base blocks of each core, in the order in which it makes them."""
        # One block to each core in turn, not ranges: what all cores read at one time then lies side by side.
        t = self.tiling
        cores: list[list[Task]] = [[] for _ in range(t.used_cores)]
        for number, (batch, top, left) in enumerate(self._blocks()):
            cores[number % t.used_cores] += self._tiles(batch, top, left)
        return cores

    def _blocks(self) -> Iterator[tuple[int, int, int]]:
        """Yield batch, first row and first column of every block, panel after panel."""
        # The last panel is as narrow as what is left, so that every block comes once.
        p, t = self.gemm.problem, self.tiling
        rows = range(0, p.m, t.block_m)
        columns = range(0, p.n, t.block_n)
        across, along = (rows, columns) if t.panels == "rows" else (columns, rows)
        for batch in range(p.batch):
            for first in range(0, len(across), t.swizzle):
                for one in along:
                    for other in across[first : first + t.swizzle]:
                        yield (batch, other, one) if t.panels == "rows" else (batch, one, other)

    def _tiles(self, batch: int, top: int, left: int) -> list[Task]:
        """Return the tiles of one block, along n first."""
        p, t = self.gemm.problem, self.tiling
        bottom, right = min(p.m, top + t.block_m), min(p.n, left + t.block_n)
        return [
            Task(batch, row, min(t.base_m, bottom - row), column, min(t.base_n, right - column))
            for row in range(top, bottom, t.base_m)
            for column in range(left, right, t.base_n)
        ]

    def signature(self, tasks: Sequence[Task]) -> Hashable:
        """Return what decides the cost of a core's program: sizes, and which tiles are met again."""
        lefts: dict[Hashable, int] = defaultdict(count().__next__)
        rights: dict[Hashable, int] = defaultdict(count().__next__)
        return tuple(
            (tile.rows, tile.columns, lefts[self.left_place(tile)], rights[_right_place(tile)])
            for tile in tasks
        )

    def left_place(self, tile: Task) -> Hashable:
        """Return which rows of a a tile needs: of its own matrix, or of the one that all share."""
        return _matrix_of_a(self.gemm.problem, tile), tile.row

    def program(self, tasks: Sequence[Task]) -> Program:
        """Return the program of a core with these base blocks."""
        return _MatmulProgram(self, tasks).emit()


class _MatmulProgram:
    """Emits the instructions of one core, tile after tile."""

    def __init__(self, schedule: Matmul, tiles: Sequence[Task]) -> None:
        self.s = schedule
        self.p, t, cube = schedule.gemm.problem, schedule.tiling, schedule.profile.cube
        self.tiles = tiles
        size = self.size = schedule.gemm.a.itemsize
        k0 = cube.rates[schedule.gemm.compute_dtype].k0
        m = round_up(max(tile.rows for tile in tiles), cube.m0)
        n = round_up(max(tile.columns for tile in tiles), cube.n0)
        # No tile holds more than the reduction has, and fractals take it in units of k0.
        k = round_up(self.p.k, k0)
        self.chunk_a, self.chunk_b = min(t.step_ka * t.base_k, k), min(t.step_kb * t.base_k, k)
        b = self.b = ProgramBuilder(schedule.profile, schedule.hazards)
        sizes = Sizes(m, n, min(round_up(t.base_k, k0), k), m * self.chunk_a * size, n * self.chunk_b * size)
        self.left, self.right, self.l0a, self.l0b, self.l0c = tile_rings(b, t, sizes, size)
        target, copies = schedule.gemm.c, t.cl0_buffers
        self.out = Writeback(b, schedule.profile, target, m, n, 0, unit_flag=t.unit_flag, l0c_tiles=copies)
        # With two copies in L1 the next tiles arrive while these are read, in the steady state.
        self.prefetches = (
            t.al1_buffers > 1 and t.bl1_buffers > 1 and self.p.k > max(self.chunk_a, self.chunk_b)
        )
        self.slices = _Slices(self.p, self.chunk_a, self.chunk_b)

    def emit(self) -> Program:
        """Return the program."""
        for tile in self.tiles:
            self._tile(tile)
        return self.b.build()

    def _tile(self, tile: Task) -> None:
        """Append the whole reduction of one tile, and write it; tiles that are alike share their code."""
        t = self.s.tiling
        # As the products' own kernels do, which bring both operands of every tile.
        if not t.reuse_l1:
            self.left.forget()
            self.right.forget()
        places = {self.left: (self.s.left_place(tile),), self.right: (_right_place(tile),)}
        for _ in self.b.once(tile, (tile.rows, tile.columns), places):
            accumulator = self.l0c.next()
            spaced = spacing_needed(self.s.profile, tile.rows, tile.columns)
            for first in range(0, self.p.k, t.base_k):
                # A product of few fractals would want the accumulator before it has been given back.
                if first and spaced:
                    self.b.add(PipeBarrier("M"))
                self._product(tile, accumulator, first, min(t.base_k, self.p.k - first))
            self.out.write(accumulator, tile.rows, tile.columns, _output, tile)

    def _product(self, tile: Task, accumulator: Slot, first: int, depth: int) -> None:
        """Add the product over one slice of the reduction.

        b goes to L0 before a: where L1 holds one copy, its next tiles come only when both have left, as is
        measured of kernels that do not double-buffer.
        """
        p, size, gemm = self.p, self.size, self.s.gemm
        in_a, in_b = first % self.chunk_a, first % self.chunk_b
        left = held(self.left, (self.s.left_place(tile), first - in_a), self._load_left, tile, first - in_a)
        right = held(self.right, (_right_place(tile), first - in_b), self._load_right, tile, first - in_b)
        a, b = self.l0a.next(), self.l0b.next()
        self.b.add(LoadL0B(b, right, Submatrix(in_b, depth, 0, tile.columns, p.transpose_b, size)))
        arriving = self.prefetches * (tile.rows + tile.columns) * depth * size
        self.b.add(LoadL0A(a, left, Submatrix(0, tile.rows, in_a, depth, p.transpose_a, size), arriving))
        self.b.add(Mmad(accumulator, a, b, tile.rows, depth, tile.columns, gemm.compute_dtype, first == 0))

    def _load_left(self, slot: Slot, tile: Task, first: int) -> None:
        extent = tile.rows, min(self.chunk_a, self.p.k - first)
        self._load(slot, self.b.gm(self.s.gemm.a, self.slices.left, tile, first), extent, self.p.transpose_a)

    def _load_right(self, slot: Slot, tile: Task, first: int) -> None:
        extent = min(self.chunk_b, self.p.k - first), tile.columns
        self._load(slot, self.b.gm(self.s.gemm.b, self.slices.right, tile, first), extent, self.p.transpose_b)

    def _load(self, slot: Slot, place: Gm, extent: Pair, turned: bool) -> None:
        # A transposed matrix lies in GM with the axes exchanged; it is read so, and turned on the way to L0.
        stored = extent[::-1] if turned else extent
        self.b.add(self.s.gemm.copy_to_l1(slot, place, stored, self.s.profile.l2.line_bytes))


class _Slices(NamedTuple):
    """Finds the slices of GM of tiles; `chunk_a` and `chunk_b` are how much of k L1 holds at once."""

    problem: MatmulProblem
    chunk_a: int
    chunk_b: int

    def left(self, tile: Task, first: int) -> Index:
        """Return the rows of a tile in a, from column `first` on."""
        rows = slice(tile.row, tile.row + tile.rows)
        depth = slice(first, min(first + self.chunk_a, self.problem.k))
        matrix = _matrix_of_a(self.problem, tile)
        return (matrix, depth, rows) if self.problem.transpose_a else (matrix, rows, depth)

    def right(self, tile: Task, first: int) -> Index:
        """Return the columns of a tile in b, from row `first` on."""
        columns = slice(tile.column, tile.column + tile.columns)
        depth = slice(first, min(first + self.chunk_b, self.problem.k))
        return (tile.batch, columns, depth) if self.problem.transpose_b else (tile.batch, depth, columns)


def _matrix_of_a(problem: MatmulProblem, tile: Task) -> int:
    return 0 if problem.shared_a else tile.batch


def _right_place(tile: Task) -> Hashable:
    return tile.batch, tile.column


def _output(tile: Task, first: int, count: int) -> Index:
    begin = tile.column + first
    return tile.batch, slice(tile.row, tile.row + tile.rows), slice(begin, begin + count)
