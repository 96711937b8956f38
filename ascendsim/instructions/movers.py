"""Data movers of the cube core: GM to L1 (MTE2) and L1 to L0A or L0B (MTE1)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from fractions import Fraction
from math import ceil, prod
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple, Self

import numpy as np

from ascendsim.instructions.cube import TileRead, Window
from ascendsim.instructions.fixpipe import finish_unknown, finished
from ascendsim.numerics.dtypes import FLOAT32_BYTES, itemsize_of
from ascendsim.program.instruction import WIDTH, Command, Cost, SlotToSlot, Told, ToSlot, Traffic
from ascendsim.program.places import Gm, Slot

if TYPE_CHECKING:
    from numpy.typing import NDArray

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


def in_channel_groups(tile: NDArray[np.float32], c0: int) -> NDArray[np.float32]:
    """Return a (pixels, channels) tile as (channel groups, pixels, C0), or unchanged if `c0` is 0."""
    # NC1HWC0 in GM has the C0 channels of a group side by side, and the groups (C1) outside of the pixels.
    if not c0:
        return tile
    return tile.reshape(tile.shape[0], -1, c0).transpose(1, 0, 2)


class _Fixpipe(NamedTuple):
    dst: Gm
    src: Slot
    bytes: int
    c0: int = 0
    atomic: bool = False
    cut: bool = False
    read_out: bool = False
    posted: bool = False
    relu: bool = False
    scale: float | Slot | None = None


class Fixpipe(_Fixpipe, Command):
    """Write an accumulator tile to GM, converted to the tensor's dtype, or add it there.

    Each value passes ReLU first where `relu` says so, and takes a `scale`: a number, or a slot of FB with one
    for each column.

    Shapes   tile (m, n) -> slice (m, n), or (n / C0, m, C0) if `c0` is set; scales (n,)
    Types    as `finished` says
    Pipe     FIX
    Cost     head, then the result's bytes over shared links, but least_cycles in all (plain matrix:
             fixpipe.matrix_least_cycles). Piece by piece it reads L0C at fixpipe.read_bytes_per_cycle, then
             writes at the rate of path L0C_GM (fixpipe.channel_split_bytes_per_cycle where fractals are cut
             into groups of 8): the links see the mean. They are cut where `c0` says so, or `cut`: weights of
             4 bytes, written here as a plain matrix, lie in these groups on the device. One that is `posted`
             has the adds of the groups on the way when L0C is free again, and its pipe busy until they have
             arrived (fixpipe.channel_split_atomic_bytes_per_cycle). Of a tile that a `ReadOut` has taken
             before only the writing is left. Of 8 bits as many elements leave in a cycle as of 16
    Raises   (from the machine) two cores may touch one element only by atomic add, which is float32
    Source   AscendC Fixpipe page: F322F16 and F322BF16 round to nearest even; cube performance summary: 64
             elements a cycle of 16 or 8 bits, 32 of 32
    """

    __slots__ = ()
    where: ClassVar[Mapping[str, str]] = {"src": "L0C", "scale": "FB"}
    pipe = "FIX"

    @property
    def drains(self) -> bool:  # type: ignore[override]  # a field says it, and no other class has one
        """Where adds arrive after the tile has left L0C, the next one waits for them."""
        return self.posted

    @property
    def reads(self) -> tuple[Slot, ...]:
        """The accumulator, or what has been read out of it; and the scales."""
        return (self.src, self.scale) if isinstance(self.scale, Slot) else (self.src,)

    @property
    def touched_bytes(self) -> tuple[int, ...]:
        """The accumulator in float32, unless a `ReadOut` has taken it before."""
        elements = self.bytes // self.dst.tensor.itemsize
        read = 0 if self.read_out else FLOAT32_BYTES * elements
        return (read, self.scale.size_bytes) if isinstance(self.scale, Slot) else (read,)

    @property
    def shape(self) -> Hashable:
        """A key of all values that the cost depends on."""
        return self.dst.tensor.name, self.bytes, self.atomic, self.c0, self.cut, self.read_out, self.posted

    def execute(self, memory: CoreMemory) -> None:
        """Convert and store, or add in float32."""
        values = finished(memory, self.src, self.dst.tensor.dtype, self.relu, self.scale)
        memory.store(self.dst, in_channel_groups(values, self.c0), atomic=self.atomic)

    def cost_unknown(self, profile: Profile) -> str:
        """Return the names of the costs of its ReLU and scales, which are not charged."""
        del profile
        return finish_unknown(self.relu, self.scale)

    def cost(self, profile: Profile) -> Cost:
        """Return head, traffic and latency of the path L0C_GM; reading L0C in turns slows the traffic."""
        path, unit = profile.paths["L0C_GM"], profile.fixpipe
        rate, least = Fraction(path.bytes_per_cycle), path.least_cycles
        # A fractal of L0C has n0 columns; groups of fewer (8 of float32) cut each in parts, and that is slow.
        added = Fraction(0)
        if self.cut or 0 < self.c0 < profile.cube.n0:
            rate = Fraction(unit.channel_split_bytes_per_cycle or rate)
            added = Fraction(unit.channel_split_atomic_bytes_per_cycle) if self.posted else added
        if self.dst.tensor.itemsize == 1:
            rate /= 2
        # A plain matrix has its fractals turned into rows on the way (NZ to ND), which has a least of its
        # own.
        if not (self.c0 or self.cut) and unit.matrix_least_cycles:
            least = unit.matrix_least_cycles
        # It reads, then writes, in turns: cycles per byte add up. What is read is float32, what is written
        # may be half of it. The links see the mean of both.
        if unit.read_bytes_per_cycle and not self.read_out:
            read = Fraction(FLOAT32_BYTES, self.dst.tensor.itemsize) / Fraction(unit.read_bytes_per_cycle)
            rate = 1 / (1 / rate + read)
            added = 1 / (1 / added + read) if added else added
        # The tile is out of L0C when its bytes are; the adds arrive later.
        pace = path.head_cycles + ceil(self.bytes / added) if added else 0
        traffic = Traffic(self.dst.tensor, "atomic" if self.atomic else "write", self.bytes, rate)
        return Cost(path.head_cycles, path.latency_cycles, traffic, least, pace)


class _ReadOut(NamedTuple):
    dst: Slot
    src: Slot
    elements: int


class ReadOut(_ReadOut, SlotToSlot):
    """Read an accumulator tile out of L0C under the unit flag, for the `Fixpipe` that follows.

    Pipe     FIX, whose two parts together take what a lone Fixpipe takes
    Cost     float32 bytes at fixpipe.read_bytes_per_cycle. It takes up its pipe before the tile is finished,
             begins with the last product into it, and is through with the last fixpipe.unit_flag_bytes of
             L0C after that. The next tile's first product begins then. On the device that product follows
             Fixpipe piece by piece; either way it does not wait for the writing
    Source   unit flag as in the 910B's file; that writing delays no product: products of a short reduction,
             whose time is that of the cube although a tile takes Fixpipe half as long as the cube or more
    """

    __slots__ = ()
    pipe = "FIX"
    trails = True

    @property
    def touched_bytes(self) -> tuple[int, ...]:
        """The tile in float32; what takes it up is no buffer."""
        return FLOAT32_BYTES * self.elements, 0

    @property
    def shape(self) -> Hashable:
        """A key of all values that the cost depends on."""
        return self.elements

    @property
    def told(self) -> tuple[Told, ...]:
        """Its tile has so many elements."""
        return (Told("elements", self.elements, (self.src,)),)

    def tile_bytes(self, shape: tuple[int, ...], width: int) -> int:
        """Return 0: what it reads is on the way through Fixpipe, and lies nowhere."""
        del shape, width
        return 0

    def execute(self, memory: CoreMemory) -> None:
        """Copy the tile, as its slot may be overwritten from now on."""
        tile = memory.tile(self.src)
        memory.new_tile(self.dst, tile.shape)[...] = tile

    def cost(self, profile: Profile) -> Cost:
        """Return the cycles of reading float32, and of the last piece."""
        unit = profile.fixpipe
        if not unit.read_bytes_per_cycle:
            return Cost(0)
        rate = Fraction(unit.read_bytes_per_cycle)
        return Cost(
            ceil(FLOAT32_BYTES * self.elements / rate), piece_cycles=ceil(unit.unit_flag_bytes / rate)
        )


class _CopyL0cToUb(NamedTuple):
    dst: Slot
    src: Slot
    first_column: int
    columns: int
    dtype: str
    elements: int
    c0: int = 0
    pipe: str = "V"


class CopyL0cToUb(_CopyL0cToUb, SlotToSlot):
    """Move columns of an accumulator tile to UB, converted to `dtype`.

    Shapes   tile (m, n) -> (m, columns), or (columns / C0, m, C0) if `c0` is set
    Pipe     V on a unified core (the profile's path L0C_UB says which)
    Cost     head + float32 bytes / rate of the path L0C_UB
    """

    __slots__ = ()
    where: ClassVar[Mapping[str, str]] = {"dst": "UB", "src": "L0C"}

    @property
    def touched_bytes(self) -> tuple[int, ...]:
        """The columns in float32, and converted."""
        return FLOAT32_BYTES * self.elements, self.elements * itemsize_of(self.dtype)

    @property
    def shape(self) -> Hashable:
        """A key of all values that the cost depends on."""
        return self.elements

    @property
    def told(self) -> tuple[Told, ...]:
        """It makes so many elements."""
        return (Told("elements", self.elements, (self.dst,)),)

    def width(self, given: int, shape: tuple[int, ...]) -> int:
        """Return the bytes of an element of its format."""
        del given, shape
        return itemsize_of(self.dtype)

    def execute(self, memory: CoreMemory) -> None:
        """Convert and copy."""
        part = memory.tile(self.src)[:, self.first_column : self.first_column + self.columns]
        values = in_channel_groups(memory.convert(part, self.dtype), self.c0)
        memory.new_tile(self.dst, values.shape)[...] = values

    def cost(self, profile: Profile) -> Cost:
        """Return the cycles of reading float32 out of L0C."""
        # A unified core has no Fixpipe: the vector unit reads L0C, float32 at a time, whatever it converts
        # to.
        path = profile.paths["L0C_UB"]
        return Cost(path.head_cycles + ceil(4 * self.elements / path.bytes_per_cycle), path.latency_cycles)


class _StallCube(NamedTuple):
    elements: int


class StallCube(_StallCube, Command):
    """Keep M still while the vector unit reads a finished tile of so many elements out of L0C.

    Cost     a share of the cycles of reading float32 (`m_stall_share` of the path L0C_UB). Where M would wait
             for that tile anyway it costs nothing
    """

    __slots__ = ()
    pipe = "M"

    @property
    def shape(self) -> Hashable:
        """A key of all values that the cost depends on."""
        return self.elements

    def execute(self, memory: CoreMemory) -> None:
        """Do nothing to the data."""

    def cost(self, profile: Profile) -> Cost:
        """Return the cycles that M loses."""
        path = profile.paths["L0C_UB"]
        return Cost(ceil(path.m_stall_share * (4 * self.elements / path.bytes_per_cycle)))
