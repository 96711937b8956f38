"""Schedule of a matrix product: blocks of c dealt to cores, tiles inside a block, slices of the reduction.

A tile of c gets its whole reduction at once. Tiles of a and b stay in L1 until their slot is needed, so that
a tile of c which needs them again does not load them again, unless the tiling says otherwise.

Unified cores cannot turn rows into fractals between GM and L1. There each tile goes through UB in pieces:

    for each piece of whole fractals of a tile:
        GM -> UB row by row        MTE2
        turn its rows in place     V     two pieces are in UB, as of results on their way out
        UB -> L1                   MTE3

Where a tiling says `fractals_first`, vector cores bring whole operands into fractals before the cube begins:

    for each piece of rows:
        GM -> UB row by row        MTE2
        turn its rows in place     V     two pieces are in UB
        UB -> GM                   MTE3

The first path is the guide's, 8 KiB at a time as its copy needs on the inference series; the loops are
assumed.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ascendsim.errors import ConfigError
from ascendsim.frozen import cached_property
from ascendsim.instructions.cube import FRACTAL_ROWS, Mmad, Submatrix, round_up
from ascendsim.instructions.movers import CopyGmToL1, LoadL0A, LoadL0B
from ascendsim.instructions.relayout import FractalsToL1, Turn, TurnTile
from ascendsim.instructions.vector import CopyGmToUb, CopyUbToGm
from ascendsim.numerics.accumulation import AccumulationModel, MathSettings
from ascendsim.numerics.factor import Values, is_known
from ascendsim.ops.plan import require_whole_units
from ascendsim.ops.problems.matmul import MatmulGemm, MatmulProblem
from ascendsim.ops.problems.orders import MatmulOrder
from ascendsim.ops.schedules.base import TILES, Schedule
from ascendsim.ops.schedules.blocks import BlockTiles, Index, TileSizes, Writeback, tile_rings
from ascendsim.ops.schedules.ranges import as_met, cut, cut_within, deal, mixed, parts_of, tasks_of
from ascendsim.ops.schedules.vector.elementwise import shared, vector_cores
from ascendsim.profile import Profile
from ascendsim.program.kernel import CoreWork, Deferred, Phase
from ascendsim.program.nest import Nest
from ascendsim.program.places import CoreMemory, Gm, GmTensor, Ring, Slot
from ascendsim.program.program import NestProgram, Program, ProgramBuilder
from ascendsim.program.walk import Axis, Number, TileNumber, alike

if TYPE_CHECKING:
    from ascendsim.ops.schedules.ranges import Tasks

# What goes through UB at a time, and the rows of a fractal.
PIECE_BYTES = 8192


@dataclass(frozen=True)
class Matmul(Schedule):
    """For each block dealt to a core, for each base block in it, for each slice of base_k: load, multiply."""

    gemm: MatmulGemm

    name: ClassVar[str] = "matmul"
    makes: ClassVar[str] = "matmul"
    reads: ClassVar[frozenset[str]] = TILES | frozenset(
        ["single_core_m", "single_core_n", "swizzle", "panels", "reuse_l1", "unit_flag", "fractals_first"]
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

        first, p = self.tiling.fractals_first, self.gemm.problem
        if first and (p.layout != "ND" or self.profile.core_structure != "split"):
            raise ConfigError(
                f"tiling of a matrix product: fractals_first is {first!r}, but operands in {p.layout} are "
                f'not brought into fractals by vector cores of {self.profile.variant}; take ""'
            )

    @property
    def tensors(self) -> tuple[GmTensor, ...]:
        """Both operands, the result, and what operands are brought into."""
        gemm = self.gemm
        made = [own for own in (self.left, self.right) if own.role == "workspace"]
        return gemm.a, gemm.b, gemm.c, *made

    @cached_property
    def left(self) -> GmTensor:
        """The left operand as the cube reads it."""
        return _in_fractals(self.gemm.a) if "a" in self.tiling.fractals_first else self.gemm.a

    @cached_property
    def right(self) -> GmTensor:
        """The right operand as the cube reads it."""
        return _in_fractals(self.gemm.b) if "b" in self.tiling.fractals_first else self.gemm.b

    @cached_property
    def read(self) -> MatmulGemm:
        """The product as the cube reads it: operands that vector cores bring into fractals from there."""
        return replace(self.gemm, a=self.left, b=self.right)

    @property
    def moves(self) -> list[tuple[GmTensor, GmTensor]]:
        """The operands that are brought into fractals, and where they lie then."""
        pairs = ((self.gemm.a, self.left), (self.gemm.b, self.right))
        return [(old, new) for old, new in pairs if old is not new]

    def phases(self) -> tuple[Phase, ...]:
        """Return the phases: operands into fractals, where the plan says so, then the product."""
        # One phase of all operands: no barrier of the cores stands between them.
        before = (into_fractals(self),) if self.moves else ()
        return (*before, self.compute())

    def phases_under(self, math: MathSettings) -> tuple[Phase, ...]:
        """Return the phases; where the order of additions says all, each does its work at once."""
        model, phases = math.accumulation, self.phases()
        # A class derived from this one may add in another order.
        if type(self) is not Matmul or not isinstance(model, AccumulationModel) or not is_known(model):
            return phases
        *before, compute = phases
        brought = [phase._replace(at_once=partial(_brought, self.moves)) for phase in before]
        return *brought, compute._replace(at_once=partial(_multiplied, self.gemm, self.order().base_k))

    def order(self) -> MatmulOrder:
        """Return the order of additions: the length of the reduction in one Mmad."""
        return MatmulOrder(self.tiling.base_k)

    @cached_property
    def row_tiles(self) -> list[tuple[int, int]]:
        """The rows of base blocks, which end where blocks end."""
        return cut_within(cut(self.gemm.problem.m, self.tiling.block_m), self.tiling.base_m)

    @cached_property
    def column_tiles(self) -> list[tuple[int, int]]:
        """The columns of base blocks."""
        return cut_within(cut(self.gemm.problem.n, self.tiling.block_n), self.tiling.base_n)

    def dealt(self) -> list[Tasks]:
        """Return the base blocks of each core, in the order in which it makes them: block after block."""
        t, batch = self.tiling, self.gemm.problem.batch
        tasks = tasks_of(
            "batch row column", *map(range, (batch, len(self.row_tiles), len(self.column_tiles)))
        )
        (row, rows), (column, columns) = (
            parts_of(self.row_tiles, t.block_m),
            parts_of(self.column_tiles, t.block_n),
        )
        across, along = row[tasks["row"]], column[tasks["column"]]
        if t.panels != "rows":
            across, along, rows, columns = along, across, columns, rows
        # Panel after panel; the last one is as narrow as what is left.
        panels = -(-rows // t.swizzle)
        number = tasks["batch"] * panels + across // t.swizzle
        units = np.unique((number * columns + along) * t.swizzle + across % t.swizzle, return_inverse=True)[1]
        # One block to each core in turn, not ranges: what all cores read at one time then lies side by side.
        return deal(tasks, units, batch * rows * columns, t.used_cores, in_turn=True)

    def signature(self, tasks: Tasks) -> Hashable:
        """Return a key of the cost of a core's program: sizes, and which tiles are used again."""
        batch, row, column = (tasks[name] for name in ("batch", "row", "column"))
        sizes = [np.array(own)[at, 1] for own, at in ((self.row_tiles, row), (self.column_tiles, column))]
        # A tile reads rows of its own matrix a, or of the one that all share.
        left = row if self.gemm.problem.shared_a else mixed(batch, row)
        return *[own.tobytes() for own in sizes], as_met(left), as_met(mixed(batch, column))

    def program(self, tasks: Tasks) -> NestProgram:
        """Return the program of a core with these base blocks."""
        both = (self.row_tiles, tasks["row"]), (self.column_tiles, tasks["column"])
        nest = self._nest(*[max([tiles[at][1] for at in np.unique(own)]) for tiles, own in both])
        return NestProgram(nest, tasks, self.hazards)

    def _nest(self, m: int, n: int) -> MatmulNest:
        """Return the nest of cores whose largest tile is so large."""
        known = self._nests.get((m, n))
        if known is None:
            known = self._nests[m, n] = MatmulNest(self, m, n)
        return known

    @cached_property
    def _nests(self) -> dict[tuple[int, int], MatmulNest]:
        return {}


class MatmulNest(BlockTiles, Nest):
    """The whole reduction of one tile of c after the other, tiles of at most m x n."""

    def __init__(self, schedule: Matmul, m: int, n: int) -> None:
        super().__init__(schedule.profile, "matmul")
        self.gemm, self.p, t = schedule.read, schedule.gemm.problem, schedule.tiling
        p, cube, size = self.p, self.profile.cube, self.gemm.a.itemsize
        k0 = cube.rates[self.gemm.compute_dtype].k0
        m, n, k = round_up(m, cube.m0), round_up(n, cube.n0), round_up(p.k, k0)
        # No tile holds more than the reduction has, and fractals take it in units of k0.
        self.chunk_a, self.chunk_b = min(t.step_ka * t.base_k, k), min(t.step_kb * t.base_k, k)
        sizes = TileSizes(
            m, n, min(round_up(t.base_k, k0), k), m * self.chunk_a * size, n * self.chunk_b * size
        )
        left, right, l0a, l0b, l0c = tile_rings(self, t, sizes, size)
        self.through_ub = through_ub(p, schedule.profile)
        rows = self.ring("UB", PIECE_BYTES, "rows", 2) if self.through_ub else None
        target, copies = self.gemm.c, t.cl0_buffers
        out = Writeback(self, target, m, n, 0, unit_flag=t.unit_flag, l0c_tiles=copies)
        # With two copies in L1 the next tiles arrive while these are read, in the steady state.
        both = t.al1_buffers > 1 and t.bl1_buffers > 1
        self.prefetches = both and p.k > max(self.chunk_a, self.chunk_b)

        self.row_tiles, self.column_tiles = schedule.row_tiles, schedule.column_tiles
        self.slices = cut(p.k, t.base_k)
        slices = Axis(len(self.slices), alike([(first == 0, depth) for first, depth in self.slices]))
        tiles = self.row_tiles, self.column_tiles
        self.heights, self.widths = ([count for _, count in own] for own in tiles)
        batch, row, column = self.task(
            batch=p.batch,
            row=Axis(len(self.heights), self.heights),
            column=Axis(len(self.widths), self.widths),
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
            self.emit(self.barrier, (), [at, row, column])
            chunk = chunk_of_a[at]
            with self.hold(left, matrix, row, chunk) as a1:
                self._bring(0, a1, rows, [matrix, row, chunk])
            chunk = chunk_of_b[at]
            with self.hold(right, batch, column, chunk) as b1:
                self._bring(1, b1, rows, [batch, column, chunk])
            a, b = self.next(l0a), self.next(l0b)
            # b goes to L0 before a: where L1 holds one copy, its next tiles come only when both have left, as
            # is measured of kernels that do not double-buffer.
            self.emit(self.load_b, [b, b1], [column, at])
            self.emit(self.load_a, [a, a1], [row, column, at])
            self.emit(self.mmad, [c, a, b], [row, column, at])
        out.write(c, [batch, row, column], self.size, self.output, (column, self.widths))

    def _bring(self, side: int, slot: TileNumber, rows: Ring | None, tile: list[Number | int]) -> None:
        """Bring a tile of a (side 0) or b (side 1) into L1: at once, or through UB piece by piece."""
        if rows is None:
            self.emit(self.copy_b if side else self.copy_a, [slot], tile)
            return
        tiles = self.column_tiles if side else self.row_tiles
        # The largest tile, of the first chunk, has the most of them.
        largest = max(range(len(tiles)), key=lambda at: tiles[at][1])
        most = len(self._pieces(side, largest, 0))
        with self.loop(Axis(most, list(range(most))), "piece") as at:
            piece = self.next(rows)
            self.emit(self.fetch, [piece], [side, *tile, at])
            self.emit(self.turn, [piece], [side, *tile[1:], at])
            self.emit(self.leave, [slot, piece], [side, *tile[1:], at])

    def _pieces(self, side: int, tile: int, chunk: int) -> list[tuple[range, range]]:
        """Return rows and columns of the pieces of a stored tile, whole fractals of at most 8 KiB each."""
        size, (height, width) = self.gemm.a.itemsize, map(_length, self._stored(side, tile, chunk))
        wide = min(width, PIECE_BYTES // (FRACTAL_ROWS * size))
        high = FRACTAL_ROWS * max(1, PIECE_BYTES // (FRACTAL_ROWS * width * size))
        return [
            (range(top, min(height, top + high)), range(left, min(width, left + wide)))
            for top in range(0, height, high)
            for left in range(0, width, wide)
        ]

    def _piece(self, side: int, tile: int, chunk: int, at: int) -> tuple[range, range] | None:
        """Return rows and columns of one of them, if there are so many."""
        pieces = self._pieces(side, tile, chunk)
        return pieces[at] if at < len(pieces) else None

    def _stored(self, side: int, tile: int, chunk: int) -> tuple[slice, slice]:
        """Return the rows and columns of a tile as its matrix lies in GM."""
        if side == 0:
            own = _range(self.row_tiles[tile]), self._chunk(self.chunk_a, chunk)
        else:
            own = self._chunk(self.chunk_b, chunk), _range(self.column_tiles[tile])
        turned = self.p.transpose_b if side else self.p.transpose_a
        return own[::-1] if turned else own

    def fetch(self, slot: Slot, side: int, matrix: int, tile: int, chunk: int, at: int) -> CopyGmToUb | None:
        """Bring a piece of a tile into UB."""
        piece = self._piece(side, tile, chunk, at)
        if piece is None:
            return None
        tensor, whole = (self.gemm.a, self.gemm.b)[side], self._stored(side, tile, chunk)
        part = tuple(_inside(own, cut_) for own, cut_ in zip(whole, piece, strict=True))
        rows, columns = map(len, piece)
        padded = rows if columns * tensor.itemsize % 32 else 0
        size = rows * columns * tensor.itemsize
        return CopyGmToUb(slot, Gm(tensor, (matrix, *part)), size, (rows, columns), padded)

    def turn(self, slot: Slot, side: int, tile: int, chunk: int, at: int) -> TurnTile | None:
        """Return the instruction that turns a piece's rows into fractals; None: there is no such piece."""
        piece = self._piece(side, tile, chunk, at)
        if piece is None:
            return None
        # Blocks change places as a whole; here the piece stays a matrix.
        shape = tuple(map(len, piece))
        return TurnTile(slot, slot, Turn(shape, shape, (0, 1), shape, shape), self.gemm.a.itemsize, 0, 0)

    def leave(
        self, slot: Slot, source: Slot, side: int, tile: int, chunk: int, at: int
    ) -> FractalsToL1 | None:
        """Bring a piece to its place in L1."""
        piece = self._piece(side, tile, chunk, at)
        if piece is None:
            return None
        rows, columns = piece
        height, width = map(_length, self._stored(side, tile, chunk))
        size = len(rows) * len(columns) * self.gemm.a.itemsize
        return FractalsToL1(slot, source, size, (height, width), (rows.start, columns.start))

    def _chunks(self, chunk: int) -> Axis:
        return Axis(-(-self.p.k // chunk), alike([depth for _, depth in cut(self.p.k, chunk)]))

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


def _brought(moves: Sequence[tuple[GmTensor, GmTensor]], memory: CoreMemory) -> None:
    """Bring matrices into fractals: in GM the elements stay a matrix."""
    for source, target in moves:
        memory.store(Gm(target, (slice(None),)), memory.array(source), atomic=False)


def _multiplied(gemm: MatmulGemm, base_k: int, memory: CoreMemory) -> None:
    """Make a whole product: what the programs make, sooner."""
    # Imported here: who asks for cycles alone compiles no arithmetic.
    from ascendsim.numerics.compiled.accumulate import planned_matrices

    p, model = gemm.problem, memory.math.accumulation
    assert isinstance(model, AccumulationModel)
    planned = planned_matrices(model, (p.m, p.k, p.n), (p.transpose_a, not p.transpose_b), base_k)
    left, right = ([Values(image) for image in memory.array(one)] for one in (gemm.a, gemm.b))
    for batch in range(p.batch):
        made = planned.made(left[0 if p.shared_a else batch], right[batch])[0]
        memory.store(Gm(gemm.c, (batch,)), made, atomic=False)


def through_ub(problem: MatmulProblem, profile: Profile) -> bool:
    """Return whether operands go through UB: rows, on cores whose copies into L1 do not turn them."""
    return problem.layout == "ND" and profile.core_structure == "unified"


def _in_fractals(tensor: GmTensor) -> GmTensor:
    """Return the workspace into which an operand is brought in fractals."""
    return replace(tensor, name=f"{tensor.name}_fractals", role="workspace", layout="NZ")


# Bytes of a row of a piece that vector cores bring into fractals, and those of a row that goes as a whole.
ROW_BYTES, WHOLE_ROW = (6144, 4096, 2048), 2048


def into_fractals(schedule: Matmul) -> Phase:
    """Return the phase in which vector cores bring matrices row after row into fractals.

    A core takes pieces of rows, as many as half of UB holds: of whole rows where they are short, else of the
    width that fills the last round best.

    Source   host code of the public operator, as read; how V turns a piece is **assumed** to be as elsewhere
    """
    return Phase("into fractals", Deferred(partial(_fractals_work, schedule)), apart=True)


def _fractals_work(schedule: Matmul) -> tuple[CoreWork, ...]:
    """Return the work of every vector core that has some."""
    profile, moves = schedule.profile, schedule.moves
    pieces = [(at, place) for at, (old, _) in enumerate(moves) for place in _pieces_of(profile, old)]
    work = []
    for core, share in shared(profile, len(pieces)):
        own = pieces[share.start : share.stop]
        signature = tuple((at, len(rows), len(columns)) for at, (_, rows, columns) in own)
        work.append(CoreWork(core, signature, partial(_fractals_program, schedule, own)))
    return tuple(work)


def _pieces_of(profile: Profile, tensor: GmTensor) -> list[tuple[int, range, range]]:
    """Return matrix, rows and columns of each piece of a stored operand."""
    batch, outer, inner = tensor.shape
    cores, size = len(vector_cores(profile)), tensor.itemsize
    half = profile.buffers["UB"].capacity_bytes // 2

    def most(width: int) -> int:
        return max(1, half // round_up(width * size, 32))

    def idle(width: int) -> int:
        return -ceil(outer / most(width)) * ceil(inner / width) % cores

    whole = inner * size <= WHOLE_ROW
    width = inner if whole else min((bytes_ // size for bytes_ in ROW_BYTES), key=idle)
    # Rounds of all cores are filled, with pieces of no fewer rows than a fractal has.
    across = ceil(inner / width)
    rounds = ceil(ceil(outer / most(width)) * across / cores)
    rows = min(most(width), max(FRACTAL_ROWS, ceil(outer / max(1, rounds * cores // across))))
    return [
        (matrix, range(top, top + high), range(left, left + wide))
        for matrix in range(batch)
        for top, high in cut(outer, rows)
        for left, wide in cut(inner, width)
    ]


def _fractals_program(schedule: Matmul, pieces: Sequence[tuple[int, tuple[int, range, range]]]) -> Program:
    """Bring pieces into UB, turn them there, and write them where fractals lie."""
    # Tensors come from the schedule, so that a copy of a kernel has one object for each, too.
    b, moves = ProgramBuilder(schedule.profile), schedule.moves
    lines = [round_up(len(columns) * moves[at][0].itemsize, 32) for at, (_, _, columns) in pieces]
    room = max(len(rows) * line for (_, (_, rows, _)), line in zip(pieces, lines, strict=True))
    ring = b.ring("UB", room, "rows", 2)
    for (at, (matrix, rows, columns)), line in zip(pieces, lines, strict=True):
        (source, target), shape = moves[at], (len(rows), len(columns))
        size, slot = source.itemsize, ring.next()
        place = matrix, slice(rows.start, rows.stop), slice(columns.start, columns.stop)
        padded = shape[0] if shape[1] * size % 32 or shape[1] < source.shape[2] else 0
        b.add(CopyGmToUb(slot, Gm(source, place), shape[0] * shape[1] * size, shape, padded))
        # Blocks of 32 bytes change places as a whole; here the piece stays a matrix.
        b.add(TurnTile(slot, slot, Turn(shape, shape, (0, 1), shape, shape), size, 0, 0))
        b.add(CopyUbToGm(Gm(target, place), slot, shape[0] * line))
    return b.build()


def _length(own: slice) -> int:
    return int(own.stop - own.start)


def _inside(own: slice, part: range) -> slice:
    return slice(own.start + part.start, own.start + part.stop)


def _range(tile: tuple[int, int]) -> slice:
    return slice(tile[0], tile[0] + tile[1])
