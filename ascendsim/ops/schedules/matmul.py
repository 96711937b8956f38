"""Schedule of a matrix product: blocks of c dealt to cores, tiles inside a block, slices of the reduction.

A tile of c gets its whole reduction at once. Tiles of a and b stay in L1 until their slot is needed, so that
a tile of c which needs them again does not load them again, unless the tiling says otherwise.

Unified cores cannot turn rows into fractals between GM and L1. There each tile goes through UB in pieces:

    for each piece of whole fractals of a tile:
        GM -> UB row by row        MTE2
        turn its rows in place     V     two pieces are in UB, as of results on their way out
        UB -> L1                   MTE3

That path is the guide's, 8 KiB at a time as its copy needs on the inference series; the loops are assumed.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from ascendsim.cube.loads import Submatrix, round_up
from ascendsim.cube.mmad import Mmad, PipeBarrier, spacing_needed
from ascendsim.cube.movers import CopyGmToL1, LoadL0A, LoadL0B
from ascendsim.errors import ConfigError
from ascendsim.frozen import cached_property
from ascendsim.ops.plan import require_whole_units
from ascendsim.ops.problems.products import MatmulGemm, MatmulProblem
from ascendsim.ops.schedules.base import TILES, MatmulOrder, Schedule
from ascendsim.ops.schedules.blocks import Index, Sizes, Writeback, tile_rings
from ascendsim.ops.schedules.ranges import cut, cut_within
from ascendsim.profile import Profile
from ascendsim.program.nest import Nest
from ascendsim.program.places import Gm, GmTensor, Ring, Slot
from ascendsim.program.program import NestProgram
from ascendsim.program.walk import Axis, Number, TileNumber, alike
from ascendsim.vector.instructions import CopyGmToUb
from ascendsim.vector.relayout import FractalsToL1, Turn, TurnTile

# What goes through UB at a time, and the rows of a fractal.
PIECE_BYTES, FRACTAL = 8192, 16


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
        # A tile needs rows of its own matrix a, or of the one that all share.
        shared = self.gemm.problem.shared_a
        lefts = alike([(0 if shared else tile.batch, tile.row) for tile in tasks])
        rights = alike([(tile.batch, tile.column) for tile in tasks])
        sizes = [(tile.rows, tile.columns) for tile in tasks]
        return tuple(zip(sizes, lefts, rights, strict=True))

    def program(self, tasks: Sequence[Task]) -> NestProgram:
        """Return the program of a core with these base blocks."""
        nest = self._nest(max(tile.rows for tile in tasks), max(tile.columns for tile in tasks))
        rows, columns = nest.row_of, nest.column_of
        told = [(tile.batch, rows[tile.row], columns[tile.column]) for tile in tasks]
        return NestProgram(nest, np.array(told), self.hazards)

    def _nest(self, m: int, n: int) -> MatmulNest:
        """Return the nest of cores whose largest tile is so large."""
        known = self._nests.get((m, n))
        if known is None:
            known = self._nests[m, n] = MatmulNest(self, m, n)
        return known

    @cached_property
    def _nests(self) -> dict[tuple[int, int], MatmulNest]:
        return {}


class MatmulNest(Nest):
    """The whole reduction of one tile of c after the other, tiles of at most m x n."""

    def __init__(self, schedule: Matmul, m: int, n: int) -> None:
        super().__init__(schedule.profile, "matmul")
        self.gemm, self.p, t = schedule.gemm, schedule.gemm.problem, schedule.tiling
        p, cube, size = self.p, self.profile.cube, self.gemm.a.itemsize
        k0 = cube.rates[self.gemm.compute_dtype].k0
        m, n, k = round_up(m, cube.m0), round_up(n, cube.n0), round_up(p.k, k0)
        # No tile holds more than the reduction has, and fractals take it in units of k0.
        self.chunk_a, self.chunk_b = min(t.step_ka * t.base_k, k), min(t.step_kb * t.base_k, k)
        sizes = Sizes(m, n, min(round_up(t.base_k, k0), k), m * self.chunk_a * size, n * self.chunk_b * size)
        left, right, l0a, l0b, l0c = tile_rings(self, t, sizes, size)
        self.through_ub = through_ub(p, schedule.profile)
        rows = self.ring("UB", PIECE_BYTES, "rows", 2) if self.through_ub else None
        target, copies = self.gemm.c, t.cl0_buffers
        out = Writeback(self, target, m, n, 0, unit_flag=t.unit_flag, l0c_tiles=copies)
        # With two copies in L1 the next tiles arrive while these are read, in the steady state.
        both = t.al1_buffers > 1 and t.bl1_buffers > 1
        self.prefetches = both and p.k > max(self.chunk_a, self.chunk_b)

        self.row_tiles = cut_within(cut(p.m, t.block_m), t.base_m)
        self.column_tiles = cut_within(cut(p.n, t.block_n), t.base_n)
        self.row_of = {first: number for number, (first, _) in enumerate(self.row_tiles)}
        self.column_of = {first: number for number, (first, _) in enumerate(self.column_tiles)}
        self.slices = cut(p.k, t.base_k)
        slices = Axis(len(self.slices), alike([(first == 0, depth) for first, depth in self.slices]))
        heights, widths = ([count for _, count in own] for own in (self.row_tiles, self.column_tiles))
        batch, row, column = self.task(
            batch=p.batch, row=Axis(len(heights), alike(heights)), column=Axis(len(widths), alike(widths))
        )
        matrix = 0 if p.shared_a else batch
        # As the products' own kernels do, which bring both operands of every tile.
        if not t.reuse_l1:
            self.forget(left)
            self.forget(right)
        chunk_of_a, chunk_of_b = (
            self.table([first // own for first, _ in self.slices], self._chunks(own), f"chunk of {name}")
            for name, own in (("a", self.chunk_a), ("b", self.chunk_b))
        )
        c = self.next(l0c)
        with self.loop(slices, "k") as at:
            self.emit(self.barrier, (), [row, column, at])
            chunk = chunk_of_a[at]
            with self.hold(left, matrix, row, chunk) as a1:
                self._bring("a", a1, rows, [matrix, row, chunk])
            chunk = chunk_of_b[at]
            with self.hold(right, batch, column, chunk) as b1:
                self._bring("b", b1, rows, [batch, column, chunk])
            a, b = self.next(l0a), self.next(l0b)
            # b goes to L0 before a: where L1 holds one copy, its next tiles come only when both have left, as
            # is measured of kernels that do not double-buffer.
            self.emit(self.load_b, [b, b1], [column, at])
            self.emit(self.load_a, [a, a1], [row, column, at])
            self.emit(self.mmad, [c, a, b], [row, column, at])
        out.write(c, [batch, row, column], self.size_of, self.output, (column, widths))

    def _bring(self, name: str, slot: TileNumber, rows: Ring | None, tile: list[Number | int]) -> None:
        """Bring a tile of a or b into L1: at once, or through UB piece by piece."""
        if rows is None:
            self.emit(self.copy_a if name == "a" else self.copy_b, [slot], tile)
            return
        tiles = self.row_tiles if name == "a" else self.column_tiles
        # The largest tile, of the first chunk, has the most of them.
        largest = max(range(len(tiles)), key=lambda at: tiles[at][1])
        most = len(self._pieces(name, largest, 0))
        with self.loop(Axis(most, list(range(most))), "piece") as at:
            piece = self.next(rows)
            self.emit(self.fetch_a if name == "a" else self.fetch_b, [piece], [*tile, at])
            self.emit(self.turn_a if name == "a" else self.turn_b, [piece], [*tile[1:], at])
            self.emit(self.leave_a if name == "a" else self.leave_b, [slot, piece], [*tile[1:], at])

    def _pieces(self, name: str, tile: int, chunk: int) -> list[tuple[range, range]]:
        """Return rows and columns of the pieces of a stored tile, whole fractals of at most 8 KiB each."""
        size, (height, width) = self.gemm.a.itemsize, map(_length, self._stored(name, tile, chunk))
        wide = min(width, PIECE_BYTES // (FRACTAL * size))
        high = FRACTAL * max(1, PIECE_BYTES // (FRACTAL * width * size))
        return [
            (range(top, min(height, top + high)), range(left, min(width, left + wide)))
            for top in range(0, height, high)
            for left in range(0, width, wide)
        ]

    def _stored(self, name: str, tile: int, chunk: int) -> tuple[slice, slice]:
        """Return the rows and columns of a tile as its matrix lies in GM."""
        if name == "a":
            own = _range(self.row_tiles[tile]), self._chunk(self.chunk_a, chunk)
        else:
            own = self._chunk(self.chunk_b, chunk), _range(self.column_tiles[tile])
        turned = self.p.transpose_a if name == "a" else self.p.transpose_b
        return own[::-1] if turned else own

    def fetch_a(self, slot: Slot, matrix: int, row: int, chunk: int, at: int) -> CopyGmToUb | None:
        """Bring a piece of a tile of a into UB."""
        return self._fetch("a", slot, matrix, row, chunk, at)

    def fetch_b(self, slot: Slot, batch: int, column: int, chunk: int, at: int) -> CopyGmToUb | None:
        """Bring a piece of a tile of b into UB."""
        return self._fetch("b", slot, batch, column, chunk, at)

    def turn_a(self, slot: Slot, row: int, chunk: int, at: int) -> TurnTile | None:
        """Make fractals of a piece of a."""
        return self._turn("a", slot, row, chunk, at)

    def turn_b(self, slot: Slot, column: int, chunk: int, at: int) -> TurnTile | None:
        """Make fractals of a piece of b."""
        return self._turn("b", slot, column, chunk, at)

    def leave_a(self, slot: Slot, piece: Slot, row: int, chunk: int, at: int) -> FractalsToL1 | None:
        """Bring a piece of a to its place in L1."""
        return self._leave("a", slot, piece, row, chunk, at)

    def leave_b(self, slot: Slot, piece: Slot, column: int, chunk: int, at: int) -> FractalsToL1 | None:
        """Bring a piece of b to its place in L1."""
        return self._leave("b", slot, piece, column, chunk, at)

    def _fetch(self, name: str, slot: Slot, matrix: int, tile: int, chunk: int, at: int) -> CopyGmToUb | None:
        pieces = self._pieces(name, tile, chunk)
        if at >= len(pieces):
            return None
        tensor, whole = self.gemm.a if name == "a" else self.gemm.b, self._stored(name, tile, chunk)
        part = tuple(_inside(own, piece) for own, piece in zip(whole, pieces[at], strict=True))
        rows, columns = map(len, pieces[at])
        padded = rows if columns * tensor.itemsize % 32 else 0
        size = rows * columns * tensor.itemsize
        return CopyGmToUb(slot, Gm(tensor, (matrix, *part)), size, (rows, columns), padded)

    def _turn(self, name: str, slot: Slot, tile: int, chunk: int, at: int) -> TurnTile | None:
        pieces = self._pieces(name, tile, chunk)
        if at >= len(pieces):
            return None
        # Blocks change places as a whole; here the piece stays a matrix.
        shape = tuple(map(len, pieces[at]))
        return TurnTile(slot, slot, Turn(shape, shape, (0, 1), shape, shape), self.gemm.a.itemsize, 0, 0)

    def _leave(
        self, name: str, slot: Slot, piece: Slot, tile: int, chunk: int, at: int
    ) -> FractalsToL1 | None:
        pieces = self._pieces(name, tile, chunk)
        if at >= len(pieces):
            return None
        rows, columns = pieces[at]
        height, width = map(_length, self._stored(name, tile, chunk))
        size = len(rows) * len(columns) * self.gemm.a.itemsize
        return FractalsToL1(slot, piece, size, (height, width), (rows.start, columns.start))

    def _chunks(self, chunk: int) -> Axis:
        return Axis(-(-self.p.k // chunk), alike([depth for _, depth in cut(self.p.k, chunk)]))

    def size_of(self, _batch: int, row: int, column: int) -> tuple[int, int]:
        """Return rows and columns of a tile of c."""
        return self.row_tiles[row][1], self.column_tiles[column][1]

    def barrier(self, row: int, column: int, at: int) -> PipeBarrier | None:
        """Let the accumulator come back: a product of few fractals would want it sooner."""
        spaced = at and spacing_needed(self.profile, self.row_tiles[row][1], self.column_tiles[column][1])
        return PipeBarrier("M") if spaced else None

    def copy_a(self, slot: Slot, matrix: int, row: int, chunk: int) -> CopyGmToL1:
        """Bring the rows of a tile of c in a, and a chunk of its columns, into L1."""
        return self._copy(
            slot, self.gemm.a, matrix, _range(self.row_tiles[row]), self._chunk(self.chunk_a, chunk)
        )

    def copy_b(self, slot: Slot, batch: int, column: int, chunk: int) -> CopyGmToL1:
        """Bring a chunk of the rows of b, and the columns of a tile of c, into L1."""
        columns = _range(self.column_tiles[column])
        return self._copy(slot, self.gemm.b, batch, self._chunk(self.chunk_b, chunk), columns)

    def _chunk(self, size: int, chunk: int) -> slice:
        return slice(chunk * size, min(chunk * size + size, self.p.k))

    def _copy(self, slot: Slot, tensor: GmTensor, matrix: int, rows: slice, columns: slice) -> CopyGmToL1:
        # A transposed matrix lies in GM with the axes exchanged; it is read so, and turned on the way to L0.
        turned = self.p.transpose_a if tensor is self.gemm.a else self.p.transpose_b
        stored = (columns, rows) if turned else (rows, columns)
        extent = stored[0].stop - stored[0].start, stored[1].stop - stored[1].start
        return self.gemm.copy_to_l1(slot, Gm(tensor, (matrix, *stored)), extent, self.profile.l2.line_bytes)

    def load_a(self, slot: Slot, source: Slot, row: int, column: int, at: int) -> LoadL0A:
        """Bring a slice of a into L0A; it shares L1's port with the tiles that arrive meanwhile."""
        p, (first, depth), size = self.p, self.slices[at], self.gemm.a.itemsize
        rows = self.row_tiles[row][1]
        arriving = self.prefetches * (rows + self.column_tiles[column][1]) * depth * size
        part = Submatrix(0, rows, first % self.chunk_a, depth, p.transpose_a, size)
        return LoadL0A(slot, source, part, arriving)

    def load_b(self, slot: Slot, source: Slot, column: int, at: int) -> LoadL0B:
        """Bring a slice of b into L0B."""
        p, (first, depth), size = self.p, self.slices[at], self.gemm.a.itemsize
        columns = self.column_tiles[column][1]
        return LoadL0B(slot, source, Submatrix(first % self.chunk_b, depth, 0, columns, p.transpose_b, size))

    def mmad(self, c: Slot, a: Slot, b: Slot, row: int, column: int, at: int) -> Mmad:
        """Add the product over one slice of the reduction."""
        (first, depth), dtype = self.slices[at], self.gemm.compute_dtype
        return Mmad(c, a, b, self.row_tiles[row][1], depth, self.column_tiles[column][1], dtype, first == 0)

    def output(self, batch: int, row: int, column: int, first: int, count: int) -> Index:
        """Return the slice of c for a range of the columns of a tile."""
        begin = self.column_tiles[column][0] + first
        return batch, _range(self.row_tiles[row]), slice(begin, begin + count)


def through_ub(problem: MatmulProblem, profile: Profile) -> bool:
    """Tell whether operands go through UB: rows, on cores whose copies into L1 do not turn them."""
    return problem.layout == "ND" and profile.core_structure == "unified"


def _length(own: slice) -> int:
    return int(own.stop - own.start)


def _inside(own: slice, part: range) -> slice:
    return slice(own.start + part.start, own.start + part.stop)


def _range(tile: tuple[int, int]) -> slice:
    return slice(tile[0], tile[0] + tile[1])
