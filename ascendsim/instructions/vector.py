"""Instructions of the vector core: movers between GM and UB, and the few operations that gradients need.

A vector instruction works on `lanes` of 256 bytes, one repeat per 256 bytes; `profile.vector` says how many
cycles a repeat takes, in cycles of the vector clock, which are rounded up once to cycles of the cube clock.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from math import ceil, prod
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self

import numpy as np

from ascendsim.numerics.dtypes import FLOAT32_BYTES
from ascendsim.program.instruction import (
    WIDTH,
    Command,
    Cost,
    SlotOntoSlot,
    SlotToSlot,
    Told,
    ToSlot,
    Traffic,
)
from ascendsim.program.places import Gm, Slot

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.profile import Profile
    from ascendsim.program.places import CoreMemory


BLOCK_BYTES = 32  # of UB
FLOAT32_LANES = 64  # float32 elements in the 256 bytes of one repeat


class _CopyGmToUb(NamedTuple):
    dst: Slot
    src: Gm
    bytes: int
    tile_shape: tuple[int, ...]
    padded_rows: int = 0


class CopyGmToUb(_CopyGmToUb, ToSlot):
    """Copy a slice of a tensor in GM into UB.

    `padded_rows` is the number of its rows if they are no whole blocks of 32 bytes and each begins at a block
    of UB (DataCopyPad); 0: one run of bytes.

    Pipe     MTE2
    Cost     head + row_cycles for each padded row + bytes over the shared links at no more than the path's
             rate, that for what is turned if rows are padded, + latency (path GM_UB)
    """

    __slots__ = ()
    where: ClassVar[Mapping[str, str]] = {"dst": "UB"}
    pipe = "MTE2"

    @property
    def touched_bytes(self) -> tuple[int, ...]:
        """The bytes that it asks for, without the rest of their sectors."""
        return (self.bytes,)

    @property
    def shape(self) -> Hashable:
        """A key of all values that the cost depends on."""
        return self.src.tensor.name, self.bytes, self.padded_rows

    @classmethod
    def of(cls, dst: Slot, src: Gm) -> Self:
        """Return the copy of a slice as it is: its bytes and its shape follow."""
        return cls(dst, src, src.size_bytes, src.shape)

    def tile_bytes(self, shape: tuple[int, ...], width: int) -> int:
        """Return its bytes; each of padded rows begins at a block."""
        rows = self.padded_rows or 1
        return rows * ceil(prod(shape) * width / (rows * BLOCK_BYTES)) * BLOCK_BYTES

    def execute(self, memory: CoreMemory) -> None:
        """Copy."""
        values = memory.array(self.src.tensor)[self.src.index]
        memory.new_tile(self.dst, self.tile_shape)[...] = values.reshape(self.tile_shape)

    def cost(self, profile: Profile) -> Cost:
        """Return head, traffic and latency of the path GM_UB."""
        path = profile.paths["GM_UB"]
        if self.padded_rows:
            path = path.turning
        count, occupied = path.requests(self.bytes)
        # Rows that follow each other make one run of bytes; but L2 hands out whole sectors.
        fetched = profile.l2.fetched_bytes(self.bytes)
        traffic = Traffic(self.src.tensor, "read", fetched, path.peak(fetched, count, occupied), occupied)
        head, latency = path.times(count)
        return Cost(head + path.padding_cycles(self.padded_rows), latency, traffic, path.least_cycles)


class _CopyUbToGm(NamedTuple):
    dst: Gm
    src: Slot
    bytes: int
    atomic: bool = False
    padded_rows: int = 0
    converts: bool = False


class CopyUbToGm(_CopyUbToGm, Command):
    """Copy a tile in UB to GM, or add it there in float32.

    `padded_rows` as of `CopyGmToUb`: rows of UB that are no whole blocks. One that `converts` rounds to the
    tensor's dtype, too: the cast that a device needs before takes nothing here.

    Pipe     MTE3
    Cost     head + row_cycles for each padded row + bytes over the shared links at no more than the path's
             rate + latency (path UB_GM)
    """

    __slots__ = ()
    where: ClassVar[Mapping[str, str]] = {"src": "UB"}
    pipe = "MTE3"

    @property
    def reads(self) -> tuple[Slot, ...]:
        """The UB slot."""
        return (self.src,)

    @property
    def touched_bytes(self) -> tuple[int, ...]:
        """The bytes that leave."""
        return (self.bytes,)

    @property
    def shape(self) -> Hashable:
        """A key of all values that the cost depends on."""
        return self.dst.tensor.name, self.bytes, self.atomic, self.padded_rows

    @property
    def told(self) -> tuple[Told, ...]:
        """The tile has elements of the tensor's format, unless it converts them."""
        to = self.dst.tensor
        due = Told(f"{to.name} of {to.dtype}", to.itemsize, (self.src,), WIDTH)
        return () if self.converts else (due,)

    @classmethod
    def of(cls, dst: Gm, src: Slot, *, atomic: bool = False) -> Self:
        """Return the copy into a slice: its bytes follow."""
        return cls(dst, src, dst.size_bytes, atomic)

    def execute(self, memory: CoreMemory) -> None:
        """Store or add."""
        target = memory.array(self.dst.tensor)[self.dst.index]
        memory.store(self.dst, memory.tile(self.src).reshape(target.shape), atomic=self.atomic)

    def cost(self, profile: Profile) -> Cost:
        """Return head, traffic and latency of the path UB_GM."""
        # Not in whole sectors: a write takes its place in L2 without reading what lies beside it.
        path = profile.paths["UB_GM"]
        kind = "atomic" if self.atomic else "write"
        traffic = Traffic(self.dst.tensor, kind, self.bytes, path.writing_peak(self.bytes))
        head, latency = path.times()
        return Cost(head + path.padding_cycles(self.padded_rows), latency, traffic, path.least_cycles)


def vector_cost(profile: Profile, kind: str, repeats: int) -> Cost:
    """Return the cost of one vector instruction of so many repeats, in cycles of the cube clock."""
    return on_the_cube_clock(profile, profile.vector.instruction_cycles(kind, repeats))


def on_the_cube_clock(profile: Profile, cycles: int) -> Cost:
    """Return the cost of so many cycles of the vector clock, each figure rounded up once."""
    # Timing knows one clock. To round up here, once for each instruction, keeps its cycles whole.
    cube, vector = profile.clock.cube_mhz, profile.clock.vector_mhz
    return Cost(-(-cycles * cube // vector), -(-profile.vector.latency_cycles * cube // vector))


class _Fill(NamedTuple):
    dst: Slot
    tile_shape: tuple[int, ...]
    bytes: int
    value: float = 0.0


class Fill(_Fill, ToSlot):
    """Set a tile in UB to one value, zero if none is said (Duplicate).

    Pipe     V
    Cost     head + one unary repeat for each 256 bytes
    """

    __slots__ = ()
    where: ClassVar[Mapping[str, str]] = {"dst": "UB"}
    pipe = "V"

    @property
    def touched_bytes(self) -> tuple[int, ...]:
        """The values."""
        return (self.bytes,)

    @property
    def shape(self) -> Hashable:
        """A key of all values that the cost depends on."""
        return self.bytes

    def width(self, given: int, shape: tuple[int, ...]) -> int:
        """Return the bytes of an element, as its bytes say; 0 where they are those of no whole one."""
        del given
        return 0 if self.bytes % prod(shape) else self.bytes // prod(shape)

    def execute(self, memory: CoreMemory) -> None:
        """Write the value."""
        memory.new_tile(self.dst, self.tile_shape).fill(self.value)

    def cost(self, profile: Profile) -> Cost:
        """Return the cycles of the repeats."""
        return vector_cost(profile, "unary", ceil(self.bytes / profile.vector.bytes_per_cycle))


class _Add(NamedTuple):
    dst: Slot
    src: Slot
    elements: int


class Add(_Add, SlotOntoSlot):
    """Add a tile to another in float32: dst <- dst + src, rounded to nearest even.

    Pipe     V
    Cost     head + one binary repeat for each 256 bytes
    """

    __slots__ = ()
    where: ClassVar[Mapping[str, str]] = {"dst": "UB", "src": "UB"}
    pipe = "V"

    @property
    def touched_bytes(self) -> tuple[int, ...]:
        """Both addends and the sum."""
        return (FLOAT32_BYTES * self.elements,) * 3

    @property
    def shape(self) -> Hashable:
        """A key of all values that the cost depends on."""
        return self.elements

    @property
    def told(self) -> tuple[Told, ...]:
        """Both tiles have its elements, in float32."""
        both = self.dst, self.src
        return Told("elements", self.elements, both), Told("float32", 4, both, WIDTH)

    def execute(self, memory: CoreMemory) -> None:
        """Add."""
        # In place, in one array: a tile belongs to the storage of its slot.
        total = memory.tile(self.dst)
        np.add(total, memory.tile(self.src), out=total)

    def cost(self, profile: Profile) -> Cost:
        """Return the cycles of the repeats."""
        return vector_cost(profile, "binary", ceil(self.elements / FLOAT32_LANES))


class _AddLanes(NamedTuple):
    dst: Slot
    src: Slot
    rows: int
    length: int
    itemsize: int = 4


class AddLanes(_AddLanes, SlotOntoSlot):
    """Add the elements of each row to the row's 64 float32 lanes, 64 at a time from left to right.

    Shapes   dst (rows, 64), src (rows, length) of `itemsize` bytes each; a short last group leaves the other
             lanes alone
    Pipe     V
    Cost     a cast (to float32) of what is narrower, then for each group of 64 a binary instruction of one
             repeat a row, and between two groups the latency until the sums are there
    """

    __slots__ = ()
    where: ClassVar[Mapping[str, str]] = {"dst": "UB", "src": "UB"}
    pipe = "V"

    @property
    def touched_bytes(self) -> tuple[int, ...]:
        """The lanes, the elements, and the lanes again."""
        lanes = self.rows * FLOAT32_LANES * FLOAT32_BYTES
        return lanes, self.rows * self.length * self.itemsize, lanes

    @property
    def shape(self) -> Hashable:
        """A key of all values that the cost depends on."""
        return self.rows, self.length, self.itemsize

    @property
    def told(self) -> tuple[Told, ...]:
        """Rows of so many elements are added, of so many bytes each."""
        added = Told("rows x length", self.rows * self.length, (self.src,))
        return added, Told("itemsize", self.itemsize, (self.src,), WIDTH)

    def execute(self, memory: CoreMemory) -> None:
        """Add group after group; accumulate() is sequential by definition."""
        # np.sum adds in pairs and in an order of its own, which would round otherwise than the device does.
        lanes = memory.tile(self.dst)
        values = memory.tile(self.src)
        whole = self.length // FLOAT32_LANES * FLOAT32_LANES
        if whole:
            groups = values[:, :whole].reshape(self.rows, -1, FLOAT32_LANES)
            chain = np.concatenate([lanes[:, None, :], groups], axis=1)
            lanes[...] = np.add.accumulate(chain, axis=1)[:, -1]
        # The lanes beyond the end are masked on the device: they keep what they hold.
        if whole < self.length:
            lanes[:, : self.length - whole] += values[:, whole:]

    def cost(self, profile: Profile) -> Cost:
        """Return the cycles of both kinds of repeats."""
        # Each group is added to the sums of the groups before, so its addition waits until those are there.
        # The last latency is the instruction's own.
        groups = ceil(self.length / FLOAT32_LANES)
        add = vector_cost(profile, "binary", self.rows)
        cycles = groups * add.cycles + (groups - 1) * add.latency_cycles
        if self.itemsize < 4:
            cycles += vector_cost(profile, "cast", self.rows * groups).cycles
        return Cost(cycles, add.latency_cycles)


def added_by_halves(lanes: NDArray[np.float32]) -> NDArray[np.float32]:
    """Add the lanes of each row, a power of two of them, by halves: (rows, lanes) -> (rows,)."""
    # The order is part of the result, since every sum is rounded.
    while lanes.shape[1] > 1:
        half = lanes.shape[1] // 2
        lanes = lanes[:, :half] + lanes[:, half:]
    return lanes[:, 0]


class _SumLanes(NamedTuple):
    dst: Slot
    src: Slot
    rows: int


class SumLanes(_SumLanes, SlotToSlot):
    """Add the 64 lanes of each row by halves: 32 + 32, 16 + 16, ... to one float32 value.

    Shapes   src (rows, 64) -> dst (rows,)
    Pipe     V
    Cost     head + one reduce repeat for each row
    """

    __slots__ = ()
    where: ClassVar[Mapping[str, str]] = {"dst": "UB", "src": "UB"}
    pipe = "V"

    @property
    def touched_bytes(self) -> tuple[int, ...]:
        """The lanes and the sums."""
        return self.rows * FLOAT32_LANES * FLOAT32_BYTES, self.rows * FLOAT32_BYTES

    @property
    def shape(self) -> Hashable:
        """A key of all values that the cost depends on."""
        return self.rows

    @property
    def told(self) -> tuple[Told, ...]:
        """It reads 64 lanes of each row."""
        return (Told("rows x 64", self.rows * FLOAT32_LANES, (self.src,)),)

    def execute(self, memory: CoreMemory) -> None:
        """Halve six times."""
        memory.new_tile(self.dst, (self.rows,))[...] = added_by_halves(memory.tile(self.src))

    def cost(self, profile: Profile) -> Cost:
        """Return the cycles of the repeats."""
        return vector_cost(profile, "reduce_add_32bit", self.rows)


class _AddRows(NamedTuple):
    dst: Slot
    src: Slot
    rows: int
    length: int
    itemsize: int = 4


class AddRows(_AddRows, SlotOntoSlot):
    """Add the rows of a tile to one float32 row, the first row first.

    Shapes   dst (length,), src (rows, length)
    Pipe     V
    Cost     for each row: a cast (to float32) and a binary instruction of one repeat for each 64 elements,
             and between two rows the latency until the sum is there
    """

    __slots__ = ()
    where: ClassVar[Mapping[str, str]] = {"dst": "UB", "src": "UB"}
    pipe = "V"

    @property
    def touched_bytes(self) -> tuple[int, ...]:
        """The sums, the elements, and the sums again."""
        sums = self.length * FLOAT32_BYTES
        return sums, self.rows * self.length * self.itemsize, sums

    @property
    def shape(self) -> Hashable:
        """A key of all values that the cost depends on."""
        return self.rows, self.length

    @property
    def told(self) -> tuple[Told, ...]:
        """It adds so many rows to one."""
        added = Told("rows x length", self.rows * self.length, (self.src,))
        return added, Told("length", self.length, (self.dst,))

    def execute(self, memory: CoreMemory) -> None:
        """Add row after row; accumulate() is sequential by definition."""
        total = memory.tile(self.dst)
        chain = np.concatenate([total[None], memory.tile(self.src)])
        total[...] = np.add.accumulate(chain, axis=0)[-1]

    def cost(self, profile: Profile) -> Cost:
        """Return the cycles of all rows."""
        # Each row is added to the sum of the rows before, so its addition waits until that sum is there. The
        # last latency is the instruction's own.
        repeats = ceil(self.length / FLOAT32_LANES)
        add, cast = (vector_cost(profile, kind, repeats) for kind in ("binary", "cast"))
        cycles = self.rows * (add.cycles + cast.cycles) + (self.rows - 1) * add.latency_cycles
        return Cost(cycles, add.latency_cycles)


class _SumPixels(NamedTuple):
    dst: Slot
    src: Slot
    rows: int
    pixels: int


class SumPixels(_SumPixels, SlotToSlot):
    """Add fewer than 64 pixels of each channel by halves, as 64 lanes of which the rest hold +0.

    Shapes   src (rows * pixels,) -> dst (rows,)
    Pipe     V
    Cost     head + one reduce repeat for each row
    """

    __slots__ = ()
    where: ClassVar[Mapping[str, str]] = {"dst": "UB", "src": "UB"}
    pipe = "V"

    @property
    def touched_bytes(self) -> tuple[int, ...]:
        """The pixels and the sums."""
        return self.rows * self.pixels * FLOAT32_BYTES, self.rows * FLOAT32_BYTES

    @property
    def shape(self) -> Hashable:
        """A key of all values that the cost depends on."""
        return self.rows

    @property
    def told(self) -> tuple[Told, ...]:
        """It adds the pixels of each row."""
        return (Told("rows x pixels", self.rows * self.pixels, (self.src,)),)

    def width(self, given: int, shape: tuple[int, ...]) -> int:
        """Return the bytes of a float32."""
        del given, shape
        return 4

    def execute(self, memory: CoreMemory) -> None:
        """Halve six times."""
        # Adding +0 changes no value, but a sum of -0 alone becomes +0.
        lanes = np.zeros((self.rows, FLOAT32_LANES), np.float32)
        lanes[:, : self.pixels] = memory.tile(self.src).reshape(self.rows, self.pixels)
        memory.new_tile(self.dst, (self.rows,))[...] = added_by_halves(lanes)

    def cost(self, profile: Profile) -> Cost:
        """Return the cycles of the repeats."""
        return vector_cost(profile, "reduce_add_32bit", self.rows)
