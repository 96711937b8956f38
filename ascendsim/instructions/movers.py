"""Data movers of the cube core: GM to L1 (MTE2) and L1 to L0A or L0B (MTE1)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from fractions import Fraction
from math import ceil, prod
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple, Self

from ascendsim.instructions.cube import TileRead, Window
from ascendsim.program.instruction import WIDTH, Cost, SlotToSlot, Told, ToSlot, Traffic
from ascendsim.program.places import Gm, Slot

if TYPE_CHECKING:
    from ascendsim.profile import Profile
    from ascendsim.program.places import CoreMemory


class Placement(NamedTuple):
    """The place of a GM slice's pixels in an image tile: first row and column, and the step between them.

    A step above one leaves zeros in between (zero insertion for strided grad_input).
    """

    row: int = 0
    col: int = 0
    row_step: int = 1
    col_step: int = 1


PLAIN: Final = Placement()


class _CopyGmToL1(NamedTuple):
    dst: Slot
    src: Gm
    bytes: int
    tile_shape: tuple[int, ...] = ()
    window: Window | None = None
    placement: Placement = PLAIN
    rows: int = 1
    aligned: bool = True
    relays: bool = False


class CopyGmToL1(_CopyGmToL1, ToSlot):
    """Copy a slice of a tensor in GM into L1.

    Shapes   without `window`: the slice as it is, reshaped to `tile_shape`;
             with it: slice (channels, h, w, C0) -> flat image tile (channels * rows * cols + 1, C0), the last
             row zero, placed as `placement` says
    Pipe     MTE2
    Cost     head + whole sectors over shared links at no more than the path's rate + latency (path GM_L1);
             each of `rows` runs of consecutive bytes takes its requests, however short it is; runs that are
             not `aligned` to lines of L2 take more of them, and a sector more; a copy that `relays` rows into
             fractals (ND to NZ) has a pace of its own, row by row, while other copies go on; of an operand in
             the cube's layout the next copy waits for in_turn_cycles of the latency; where no kernel
             before has brought an operand of a convolution into the cube's layout, the copy turns channels
             that lie apart into groups of C0 (DN to NZ), at the path's rate for that
    """

    __slots__ = ()
    where: ClassVar[Mapping[str, str]] = {"dst": "L1"}
    pipe = "MTE2"

    @classmethod
    def of(cls, dst: Slot, src: Gm) -> Self:
        """Return the copy of a slice as it is: its bytes, its shape and its runs of bytes in GM follow."""
        return cls(dst, src, src.size_bytes, src.shape, rows=src.runs)

    @property
    def touched_bytes(self) -> tuple[int, ...]:
        """The bytes that it asks for, without the rest of their sectors."""
        return (self.bytes,)

    @property
    def shape(self) -> Hashable:
        """A key of all values that the cost depends on: the tensor too, as its traffic names it."""
        return self.src.tensor.name, self.bytes, self.rows, self.aligned, self.relays

    def tile_bytes(self, shape: tuple[int, ...], width: int) -> int:
        """Return its bytes, without the row of zeros behind an image."""
        return (prod(shape) - (self.window.c0 if self.window else 0)) * width

    def execute(self, memory: CoreMemory) -> None:
        """Copy; a strided copy writes between the zeros that `FillL1` left."""
        values = memory.array(self.src.tensor)[self.src.index]
        w = self.window
        if w is None:
            memory.new_tile(self.dst, self.tile_shape)[...] = values.reshape(self.tile_shape)
            return
        # The row of zeros at the end of the tile is the simulator's own: im2col reads it for all that lies
        # outside of the image, where the device puts its padding in.
        at = self.placement
        if at == PLAIN:
            tile = memory.new_tile(self.dst, w.tile_shape)
            tile[-1] = 0
        else:
            tile = memory.tile(self.dst)
        image = tile[:-1].reshape(w.channels, w.rows, w.cols, w.c0)
        rows = slice(at.row, at.row + (values.shape[1] - 1) * at.row_step + 1, at.row_step)
        cols = slice(at.col, at.col + (values.shape[2] - 1) * at.col_step + 1, at.col_step)
        image[:, rows, cols] = values

    def cost(self, profile: Profile) -> Cost:
        """Return head, traffic and latency of the path GM_L1."""
        path = profile.paths["GM_L1"]
        if self._turns_channels(profile):
            path = path.turning
        count, occupied = path.requests(self.bytes, self.rows, self.aligned)
        fetched = profile.l2.fetched_bytes(self.bytes, self.rows)
        # A run that begins inside a sector ends inside another, which is fetched as well.
        if not self.aligned:
            fetched += self.rows * profile.l2.sector_bytes
        # A copy that turns rows into fractals is slowed by its rows and not by its bytes: others use the link
        # meanwhile, so the pace delays its own result only.
        pace = path.pace_cycles(self.rows, count) if self.relays else 0
        peak = path.peak(fetched, count, occupied, pace)
        head, latency = path.times(count)
        # What of it the next copy waits for holds the pipe; when the tile is there does not change by that.
        waited = min(latency, path.in_turn_cycles) if self.src.tensor.laid_out else 0
        traffic = Traffic(self.src.tensor, "read", fetched, peak, occupied, waited > 0)
        return Cost(head + waited, latency - waited, traffic, path.least_cycles, pace)

    def _turns_channels(self, profile: Profile) -> bool:
        """Return whether the tensor, which lies in the cube's layout here, lies row by row on the device."""
        tensor = self.src.tensor
        return tensor.laid_out and tensor.role == "input" and not profile.generation.changes_layouts


class _FillL1(NamedTuple):
    dst: Slot
    bytes: int
    tile_shape: tuple[int, ...]
    itemsize: int = 0


class FillL1(_FillL1, ToSlot):
    """Clear an L1 slot before a strided copy leaves gaps in it.

    `itemsize` is that of an element, where `bytes` clear more than the tile.

    Pipe     MTE2
    Cost     head + bytes / rate of the path GM_L1, which shares L1's write port
    """

    __slots__ = ()
    where: ClassVar[Mapping[str, str]] = {"dst": "L1"}
    pipe = "MTE2"

    @property
    def touched_bytes(self) -> tuple[int, ...]:
        """The zeros."""
        return (self.bytes,)

    @property
    def shape(self) -> Hashable:
        """A key of all values that the cost depends on."""
        return self.bytes

    def width(self, given: int, shape: tuple[int, ...]) -> int:
        """Return the bytes of an element, as it or its bytes say; 0 where these are of no whole one."""
        del given
        if self.itemsize:
            return self.itemsize
        # Of an image without pixels its bytes are those of one.
        elements = prod(shape) - shape[-1] or shape[-1]
        return 0 if self.bytes % elements else self.bytes // elements

    def tile_bytes(self, shape: tuple[int, ...], width: int) -> int:
        """Return its bytes, without the row of zeros behind an image."""
        return (prod(shape) - shape[-1]) * width

    def execute(self, memory: CoreMemory) -> None:
        """Write zeros."""
        memory.new_tile(self.dst, self.tile_shape).fill(0)

    def cost(self, profile: Profile) -> Cost:
        """Return the cycles of writing the zeros."""
        # No traffic: nothing is read from GM.
        path = profile.paths["GM_L1"]
        return Cost(path.head_cycles + ceil(self.bytes / path.bytes_per_cycle))


class _Load(NamedTuple):
    """Fields shared by the two loads."""

    dst: Slot
    src: Slot
    tile_read: TileRead
    written: int = 0


class LoadL0A(_Load, SlotToSlot):
    """Read a tile in L1 as the left matrix (m, k) of a product.

    Pipe     MTE1
    Cost     head + the cycles of the read into L0A: load3d by row switches and stride, and command_cycles for
             each command; load2d by the path's rate, its own head and least_cycles, and issue_cycles for each
             command beyond the first (weights that are turned over: turned_block_cycles for each block);
             and what the `written` bytes take that MTE2 puts into L1 meanwhile, as L1 has one port
    Source   AscendC LoadData pages; rates: profile paths, load3d and load2d
    """

    __slots__ = ()
    where: ClassVar[Mapping[str, str]] = {"dst": "L0A", "src": "L1"}
    pipe = "MTE1"
    buffer = "L0A"

    @property
    def touched_bytes(self) -> tuple[int, ...]:
        """The matrix, out of L1 and into L0: without what fills up its last fractals."""
        return (prod(self.tile_read.matrix_shape()) * self.tile_read.itemsize,) * 2

    @property
    def shape(self) -> Hashable:
        """A key of all values that the cost depends on."""
        return self.tile_read.shape, self.written

    @property
    def told(self) -> tuple[Told, ...]:
        """The tile in L1 has elements of so many bytes."""
        return (Told("tile_read.itemsize", self.tile_read.itemsize, (self.src,), WIDTH),)

    def execute(self, memory: CoreMemory) -> None:
        """Write the matrix that is read."""
        out = memory.new_tile(self.dst, self.tile_read.matrix_shape())
        self.tile_read.matrix(memory, memory.tile(self.src), out)

    def cost(self, profile: Profile) -> Cost:
        """Return head and data cycles."""
        path = profile.paths[f"L1_{self.buffer}"]
        data = self.tile_read.cycles(profile, self.buffer)
        # L1 has one port: while MTE2 writes, MTE1 cannot read. Which load meets which copy would take a
        # simulation of the port; so the schedule gives each load its part of the bytes that arrive.
        if self.written and profile.l1_write_bytes_per_cycle:
            data += self.written / Fraction(profile.l1_write_bytes_per_cycle)
        # The commands of load3d are in its cycles; of load2d each has a head or follows another after the
        # cycles that it takes to issue one.
        commands = self.tile_read.load2d_commands(profile)
        if not commands:
            return Cost(path.head_cycles + ceil(data), path.latency_cycles)
        plain = profile.load2d
        cycles = plain.head_cycles + (commands - 1) * plain.issue_cycles + ceil(data)
        return Cost(max(cycles, plain.least_cycles), path.latency_cycles)


class LoadL0B(LoadL0A):
    """Read a tile in L1 as the right matrix (k, n) of a product.

    Pipe     MTE1
    Cost     head + the cycles of the read into L0B
    """

    __slots__ = ()
    where: ClassVar[Mapping[str, str]] = {"dst": "L0B", "src": "L1"}
    buffer = "L0B"
