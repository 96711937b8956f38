"""Schedules of base blocks: tasks dealt to the cores in contiguous ranges, and the program of each core."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from ascendsim.errors import ConfigError, UnsupportedError
from ascendsim.frozen import cached_property
from ascendsim.instructions.cube import is_small, round_up, spacing_needed
from ascendsim.instructions.fixpipe import CopyL0cToUb, Fixpipe, ReadOut, StallCube
from ascendsim.instructions.flags import PipeBarrier
from ascendsim.instructions.vector import CopyUbToGm
from ascendsim.ops.plan import GRID, Tiling, shares
from ascendsim.ops.schedules.base import Schedule
from ascendsim.ops.schedules.ranges import deal, listed
from ascendsim.ops.schedules.vector.dilation import ZeroInsertion
from ascendsim.program.nest import Nest
from ascendsim.program.places import Gm, GmTensor, Reserved, Ring, Slot
from ascendsim.program.program import NestProgram, Program
from ascendsim.program.walk import Axis, Number, Span

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.profile import Profile

    Numbers = NDArray[np.int64]


# L0C adds in float32, or in int32, whatever the operands are.
ACCUMULATOR_BYTES = 4

Index = tuple[Any, ...]


class TileSizes(NamedTuple):
    """The room that a core reserves: rows, columns and reduction of its largest tiles in L0, bytes in L1."""

    m: int
    n: int
    k: int
    left_bytes: int
    right_bytes: int


class TileRings(NamedTuple):
    """The slots of both operands in L1 and in L0, and of the accumulators; each in as many copies as asked.

    With two copies (ping-pong) one tile arrives while the pipe behind it reads the other. With one, every
    load waits until the last reader has left the slot, so the two pipes take turns.
    """

    left: Ring
    right: Ring
    l0a: Ring
    l0b: Ring
    l0c: Ring


def tile_rings(nest: Reserved, tiling: Tiling, sizes: TileSizes, itemsize: int) -> TileRings:
    """Reserve the slots of a core.

    Raises   CapacityError naming buffer, need and capacity
    """
    m, n, k, left_bytes, right_bytes = sizes
    return TileRings(
        nest.ring("L1", left_bytes, "A1", tiling.al1_buffers),
        nest.ring("L1", right_bytes, "B1", tiling.bl1_buffers),
        nest.ring("L0A", m * k * itemsize, "A0", tiling.al0_buffers),
        nest.ring("L0B", k * n * itemsize, "B0", tiling.bl0_buffers),
        nest.ring("L0C", m * n * ACCUMULATOR_BYTES, "C0", tiling.cl0_buffers),
    )


# size(*at): rows and columns of the tile at some indices. find(*at, first, count): its slice of the tensor
# for a range of its columns.
Size = Callable[..., tuple[int, int]]
Find = Callable[..., tuple[Any, ...]]


class Writeback:
    """Writes accumulator tiles of at most (m, n) to one tensor.

    With a path L0C_GM a tile leaves by Fixpipe; with L0C_UB and UB_GM it goes through UB, in as many pieces
    of columns as its part of UB, one of `ub_share`, asks for. `c0` > 0 writes NC1HWC0, else a plain matrix.
    Under the `unit_flag` Fixpipe begins with the last product into a tile, and the next product waits for the
    reading alone. `cut` says that the device lays a plain matrix in groups of 8 channels. L0C holds
    `l0c_tiles` of them: with several, M makes one while V reads another, and stands still for part of the
    time.

    Raises   UnsupportedError if the product has neither path
    """

    def __init__(
        self,
        nest: Nest,
        tensor: GmTensor,
        m: int,
        n: int,
        c0: int,
        *,
        unit_flag: bool = False,
        cut: bool = False,
        ub_share: int = 1,
        l0c_tiles: int = 2,
    ) -> None:
        profile = nest.profile
        self._nest, self._tensor, self._c0 = nest, tensor, c0
        self._cut = cut
        split = (cut or 0 < c0 < profile.cube.n0) and not unit_flag
        # Whether L0C is free before what is added of cut ones has arrived.
        self._posted = bool(split and profile.fixpipe.channel_split_atomic_bytes_per_cycle)
        # Unified cores have no Fixpipe: what leaves L0C goes through UB, in the vector pipe.
        self._direct = profile.has_path("L0C", "GM")
        # What is between L0C and GM takes no room in any buffer.
        self._read = nest.ring("L0C", 0, "READ", 1) if unit_flag else None
        if self._direct:
            return
        if not (profile.has_path("L0C", "UB") and profile.has_path("UB", "GM")):
            raise UnsupportedError(
                f"{profile.variant} has no path from L0C to GM: its profile has neither L0C_GM nor both "
                "L0C_UB and UB_GM"
            )
        self._pipe = profile.paths["L0C_UB"].pipe
        # Of a lone tile there is nothing to say: the next product into it waits until it has been read.
        self._stalls = l0c_tiles > 1 and profile.paths["L0C_UB"].m_stall_share > 0
        # Pieces of whole fractals, or of whole groups of channels, and two of them in UB: one is converted
        # while the other one leaves.
        unit = c0 or profile.cube.n0
        half = nest.room("UB") // ub_share // 2
        self._piece = min(round_up(n, unit), max(unit, half // (m * tensor.itemsize) // unit * unit))
        self._ring = nest.ring("UB", m * self._piece * tensor.itemsize, "out", 2)

    def write(
        self,
        source: Number,
        at: Sequence[Number | int],
        size: Size,
        find: Find,
        columns: tuple[Number, Sequence[int]],
        *,
        tensor: GmTensor | None = None,
        atomic: bool = False,
    ) -> None:
        """Write the tile at some indices, or add it where it is `atomic`.

        columns   the index that decides its number of columns, and these numbers by index
        tensor    another one of the same format
        """
        target = tensor or self._tensor
        itemsize = target.itemsize
        if self._direct:

            def fixpipe(slot: Slot, *own: int) -> Fixpipe:
                m, n = size(*own)
                place = Gm(target, find(*own, 0, n))
                read, posted = self._read is not None, atomic and self._posted
                return Fixpipe(place, slot, m * n * itemsize, self._c0, atomic, self._cut, read, posted)

            def read_out(slot: Slot, source: Slot, *own: int) -> ReadOut:
                m, n = size(*own)
                return ReadOut(slot, source, m * n)

            if self._read is not None:
                slot = self._nest.next(self._read)
                self._nest.emit(read_out, [slot, source], at)
                source = slot
            self._nest.emit(fixpipe, [source], at)
        else:
            self._through_ub(source, at, size, find, columns, target, atomic)

    def _through_ub(
        self,
        source: Number,
        at: Sequence[Number | int],
        size: Size,
        find: Find,
        columns: tuple[Number, Sequence[int]],
        target: GmTensor,
        atomic: bool,
    ) -> None:
        """Write a tile piece by piece through UB."""

        def stall(*own: int) -> StallCube:
            m, n = size(*own)
            return StallCube(m * n)

        def part(own: Sequence[int], piece: int) -> tuple[int, int, int]:
            m, n = size(*own)
            return m, piece * self._piece, min(self._piece, n - piece * self._piece)

        def convert(slot: Slot, source: Slot, *own: int) -> CopyL0cToUb | None:
            m, first, count = part(own[:-1], own[-1])
            if count <= 0:
                return None
            return CopyL0cToUb(slot, source, first, count, target.dtype, m * count, self._c0, self._pipe)

        def leave(slot: Slot, *own: int) -> CopyUbToGm | None:
            m, first, count = part(own[:-1], own[-1])
            if count <= 0:
                return None
            return CopyUbToGm(
                Gm(target, find(*own[:-1], first, count)), slot, m * count * target.itemsize, atomic
            )

        n = self._nest
        if self._stalls:
            # Behind the tile's last product and before the first one of the next.
            n.emit(stall, (), at)
        index, widths = columns
        counts = [-(-width // self._piece) for width in widths]
        pieces = Axis(max(counts), range(max(counts)))
        count = n.table(counts, max(counts) + 1, "pieces")[index]
        # Cores whose tiles are cut otherwise may add to these pieces, so the ends of pieces identify them.
        ends = [[min(first + self._piece, width) for first in self._firsts(counts)] for width in widths]
        first_of = n.table(self._firsts(counts), max(widths) + 1, "first of")
        end_of = n.table(ends, max(widths) + 1, "end of")
        with n.loop(Span(0, count, pieces, count.text), "piece") as piece:
            slot = n.next(self._ring)
            n.emit(convert, [slot, source], [*at, piece])
            n.emit(leave, [slot], [*at, piece], slice_at=[*at, first_of[piece], end_of[index, piece]])

    def _firsts(self, counts: Sequence[int]) -> list[int]:
        """Return the first column of each piece of the widest tile."""
        return [piece * self._piece for piece in range(max(counts))]


class BlockNest(Nest):
    """Shared parts of the loop nests over base blocks: rings of tiles, and the ways in and out through UB.

    cut      how the product is cut (`DgradTasks`, `WgradTasks`)
    target   the tensor that receives the tiles; `c0` > 0: in groups of `c0` channels; `weights_of` > 0:
             weights, here as a plain matrix, that the device lays out in groups of `weights_of`
    spread   whether image tiles go through UB on their way to L1, to get zeros between their pixels
    """

    def __init__(
        self,
        name: str,
        cut: Any,
        sizes: TileSizes,
        target: GmTensor,
        c0: int = 0,
        *,
        weights_of: int = 0,
        spread: bool = False,
    ) -> None:
        super().__init__(cut.profile, name)
        self._cut = cut
        rings = tile_rings(self, cut.tiling, sizes, cut.gemm.sliding.itemsize)
        self.left, self.right, self.l0a, self.l0b, self.l0c = rings
        # Weights lie in groups of so many channels on the device.
        small_groups = 0 < weights_of < self.profile.cube.n0
        # Results, and pixels that get zeros between them, share UB.
        size, tiles = (sizes.m, sizes.n, c0), cut.tiling.cl0_buffers
        self.out = Writeback(self, target, *size, cut=small_groups, ub_share=1 + spread, l0c_tiles=tiles)
        self.insertion = ZeroInsertion(self) if spread else None

    @property
    def is_for_any_size(self) -> bool:
        """Whether its steps are the same whatever tiles reserve; of what goes through UB pieces are not."""
        ours = type(self).__module__.startswith(__package__)
        return ours and {slot.buffer for slot in self.slots_reserved} <= {"L1", "L0A", "L0B", "L0C"}

    def resized(self, sizes: TileSizes) -> Self:
        """Return it for cores that reserve other tiles: the same steps, on slots of these sizes.

        Raises   CapacityError as `tile_rings`
        """
        _ = self.code  # worked out once for both
        other = copy(self)
        Reserved.__init__(other, self.profile)
        tile_rings(other, self._cut.tiling, sizes, self._cut.gemm.sliding.itemsize)
        # What was made names the slots of its own nest.
        other.remembered = {}
        return other


class BlockSchedule(Schedule):
    """A schedule whose tasks are base blocks, dealt to the cores in contiguous ranges."""

    def __init_subclass__(cls) -> None:
        """Let a nest with a `sequence` of its own obey no grid, unless it says so: cells have their order.

        And let one under an inherited cut be read for its signature: the cut decides the cost of another one.
        """
        super().__init_subclass__()
        own = vars(cls).keys()
        if "sequence" in own and not {"reads", "dealt"} & own:
            cls.reads = cls.reads - {*GRID, "pixel_dim"}
        if "nest" in own and not {"tasks", "signature"} & own:
            cls.signature = Schedule.signature  # type: ignore[method-assign]

    def __post_init__(self) -> None:
        """Refuse a tiling that would be obeyed in part, or that no program can follow."""
        super().__post_init__()
        # Cutting it refuses what cannot be cut, here and not when an executor asks for the programs.
        _ = self.tasks

    @property
    @abstractmethod
    def tasks(self) -> Any:
        """The cut of the product: its base blocks in order, their sizes, and what decides their cost."""

    @abstractmethod
    def nest(self, sizes: TileSizes) -> Nest:
        """Return the loop nest of all cores that reserve so much."""

    def sequence(self) -> Any:
        """Return all tasks in the order in which they are dealt; neighbours share tiles in L1.

        A nest that overrides it is given no grid, whose cells would be dealt in an order of their own.
        """
        return self.tasks.tasks

    def dealt(self) -> list[Any]:
        """Return the tasks of each core: its cells of the grid, else a contiguous range.

        Of contiguous ones a core finds its last tiles again.
        """
        if self.tiling.has_grid:
            # Cells without work are none.
            found, units = np.unique(self.tasks.cells, return_inverse=True)
            return deal(self.tasks.tasks, units, len(found), self.tiling.used_cores, in_turn=True)
        tasks = self.sequence()
        return [tasks[share.start : share.stop] for share in shares(len(tasks), self.tiling.used_cores)]

    @property
    def launched(self) -> int:
        """Blocks of the launch: the cells of a grid that is larger than the chip take turns on all cores."""
        own, cells = type(self).dealt is BlockSchedule.dealt, self.tiling.cells
        # On fewer cores than the chip has, a kernel must go over the cells that are left by itself.
        whole = self.tiling.used_cores == self.profile.cores.cube
        return max(cells, self.tiling.used_cores) if own and whole else self.tiling.used_cores

    def _checked(self) -> Sequence[Any]:
        """Return the tasks of each core, which must be all base blocks, each once."""
        dealt, own = super()._checked(), type(self)
        # The package's own are tested to.
        if all(each.__module__.startswith(__package__) for each in (own.dealt, own.sequence)):
            return dealt
        dealt, blocks = [listed(tasks) for tasks in dealt], self.tasks.tasks
        of_blocks = [tasks for tasks in dealt if len(tasks)]
        # A schedule may deal units of its own, of which only it knows what they cover.
        if all(tasks.dtype == blocks.dtype for tasks in of_blocks):
            made = [each for tasks in of_blocks for each in tasks.tolist()]
            different = set(made)
            lost, again = len(set(blocks.tolist()) - different), len(made) - len(different)
            if lost or again:
                raise ConfigError(
                    f"schedule {self.name} must deal each of its {len(blocks)} tasks once; it leaves out "
                    f"{lost} and repeats {again}"
                )
        return dealt

    def signature(self, tasks: Any) -> Hashable:
        """Return the shapes of the tiles, and which of them are met again."""
        signature: Hashable = self.tasks.signature(listed(tasks))
        return signature

    def program(self, tasks: Any) -> Program:
        """Return the program of a core with these tasks."""
        sizes = self.tasks.sizes(listed(tasks))
        nest = self._nests.get(sizes)
        if nest is None:
            one = next(iter(self._nests.values()), None)
            if isinstance(one, BlockNest) and one.is_for_any_size:
                nest = one.resized(sizes)
            else:
                nest = self.nest(sizes)
            if not isinstance(nest, Nest):
                raise ConfigError(
                    f"schedule {self.name}: nest(sizes) returned {nest!r}; it must be a Nest: end it with "
                    "`return nest`"
                )
            self._nests[sizes] = nest
        return NestProgram(nest, tasks, self.hazards)

    @cached_property
    def _nests(self) -> dict[TileSizes, Nest]:
        # By what a core reserves: cores that reserve the same walk one nest.
        return {}


def begins_of(counts: Iterable[int]) -> list[bool]:
    """Return by step whether a reduction begins with it, of reductions of so many steps each."""
    return [at == 0 for count in counts for at in range(count)]


class ReductionSteps:
    """The steps of all reductions, end to end, and the tiles of one operand in L1 that serve them.

    tiles    the number of the tile of each step; neighbours of one number are one tile
    begins   whether a reduction begins with a step

    chunk    which tile of its reduction a step has, from 0; chunks: how many the reduction has
    next     the first step that has the next tile of the reduction; of its last tile the first that has it
    follow   whether any tile follows another one
    """

    def __init__(self, tiles: Sequence[int], begins: Sequence[bool]) -> None:
        own, self.begins = np.asarray(tiles, np.int64), np.asarray(begins, bool)
        changes = self.begins | (np.diff(own, prepend=-1) != 0)
        number, reduction = np.cumsum(changes), np.cumsum(self.begins) - 1
        self.chunk: Numbers = number - number[self.begins][reduction]
        self.chunks: Numbers = np.bincount(reduction, changes).astype(np.int64)[reduction]
        # The first step of each tile; that of the last tile of a reduction comes after itself.
        firsts, at = np.flatnonzero(changes), number - 1
        last = self.chunk == self.chunks - 1
        self.follow = bool(len(own)) and int(self.chunks.max()) > 1
        self.next: Numbers = firsts[np.where(last, at, np.minimum(at + 1, len(firsts) - 1))]


class CountedPlaces:
    """The places of an operand's tiles in its ring, where a kernel counts instead of taking turns.

    Tile j of a reduction goes to place (b * tiles of the reduction + j) modulo the places, where b is the
    number of the base block in its task along the operand's side (blocks that are served by one tile have one
    number), and j begins at 0 with each reduction. So a reduction of one tile meets the place of the one
    before it, and so does one that follows an odd number of them, unless the block is the next one: its copy
    waits until the last one has been read.

    blocks   the number in its task of each block along the operand's side; `at` are the indices of the block
    """

    def __init__(
        self,
        nest: Nest,
        ring: Ring,
        steps: ReductionSteps,
        blocks: Sequence[int] | Numbers,
        at: tuple[Number, ...],
    ) -> None:
        self._nest, self._ring, places = nest, ring, ring.count
        of_block = np.arange(places)[:, None] * steps.chunks
        self._places = nest.table((of_block + steps.chunk) % places, places, f"place of {ring.name}")
        self._block = nest.table(np.asarray(blocks) % places, places, f"{ring.name} of block")[at]
        # Of more tiles than places none is there when the block is met again, though an odd number of them
        # would leave one alone.
        lost = steps.begins & (steps.chunks > places)
        self._lost = nest.table(lost, 2, f"{ring.name} is lost at") if lost.any() else None

    def __getitem__(self, step: Number) -> Number:
        return self._places[self._block, step]

    def begin(self, step: Number) -> None:
        """Forget, before a reduction, what its first tiles have been overwritten with."""
        if self._lost:
            with self._nest.when(self._lost[step]):
                self._nest.forget(self._ring)


class Bringing:
    """Where the tiles of a step of a reduction go in L1, and which come next: left operand, right one.

    places   of each operand, where its kernel counts slots; else None, and slots take turns
    next     likewise the first step that has the next tile, where that is called for while one is read

    blocks   the numbers in their tasks of the base blocks along both sides, and their indices here
    """

    def __init__(
        self,
        nest: BlockNest,
        steps: Sequence[ReductionSteps],
        blocks: Sequence[tuple[Sequence[int] | Numbers, tuple[Number, ...]]],
        *,
        counted: bool,
        ahead: bool,
    ) -> None:
        both = [*zip((nest.left, nest.right), steps, blocks, strict=True)]
        # In a ring of one place there is nothing to count.
        self.places = [
            CountedPlaces(nest, ring, own, *numbers) if counted and ring.count > 1 else None
            for ring, own, numbers in both
        ]
        # With one slot there is nowhere to bring it while the one at hand is read.
        self.next = [
            nest.table(own.next, len(own.next), f"next for {ring.name}")
            if ahead and ring.count > 1 and own.follow
            else None
            for ring, own, _ in both
        ]

    def begin(self, step: Number) -> None:
        """Forget, before a reduction, what its first tiles have been overwritten with."""
        for places in self.places:
            if places:
                places.begin(step)

    def place(self, side: int, step: Number) -> Number | None:
        """Return the slot of L1 that a step's tile goes to; None: slots take turns."""
        places = self.places[side]
        return places[step] if places else None


class BlockTiles:
    """What is done with a base block whatever its operands are: so many rows and columns by tile.

    heights, widths   the rows and the columns of each tile
    """

    profile: Profile
    heights: Sequence[int]
    widths: Sequence[int]

    def barrier(self, begun: int, row: int, column: int) -> PipeBarrier | None:
        """Let the accumulator come back: a product of few fractals would want it sooner."""
        spaced = begun and spacing_needed(self.profile, self.heights[row], self.widths[column])
        return PipeBarrier("M") if spaced else None

    def drain(self, row: int, column: int) -> PipeBarrier | None:
        """Let the cube come to rest after a small product."""
        small = is_small(self.profile, self.heights[row], self.widths[column])
        return PipeBarrier("M") if small else None

    def size(self, *at: int) -> tuple[int, int]:
        """Return the rows and columns of a tile of the result."""
        return self.heights[at[-2]], self.widths[at[-1]]
