"""Ways out of L0C: Fixpipe to GM, in one or two parts, or through UB on a unified core."""

from __future__ import annotations

from collections.abc import Hashable
from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ascendsim.program.instruction import Command, Cost, SlotToSlot, Traffic
from ascendsim.program.places import Gm, Slot

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.profile import Profile
    from ascendsim.program.memory import CoreMemory


FLOAT32_BYTES = 4
FRACTAL_COLUMNS = 16


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


class Fixpipe(_Fixpipe, Command):
    """Write an accumulator tile to GM, converted to the tensor's dtype, or add it there.

    Shapes   tile (m, n) -> slice (m, n), or (n / C0, m, C0) if `c0` is set
    Pipe     FIX
    Cost     head, then the result's bytes over shared links, but least_cycles in all (plain matrix:
             fixpipe.matrix_least_cycles). Piece by piece it reads L0C at fixpipe.read_bytes_per_cycle, then
             writes at the rate of path L0C_GM (fixpipe.channel_split_bytes_per_cycle where fractals are cut
             into groups of 8): the links see the mean. They are cut where `c0` says so, or `cut`: weights of
             4 bytes, written here as a plain matrix, lie in such groups on the device. One that is `posted`
             has the adds of such groups on the way when L0C is free again, and its pipe busy until they have
             arrived (fixpipe.channel_split_atomic_bytes_per_cycle). Of a tile that a `ReadOut` has taken
             before only the writing is left
    Raises   (from the machine) two cores may touch one element only by atomic add, which is float32
    Source   AscendC Fixpipe page: F322F16 and F322BF16 round to nearest even
    """

    __slots__ = ()
    pipe = "FIX"

    @property
    def drains(self) -> bool:  # type: ignore[override]  # a field says it, and no other class has one
        """Where adds arrive after the tile has left L0C, the next one waits for them."""
        return self.posted

    @property
    def reads(self) -> tuple[Slot, ...]:
        """The accumulator, or what has been read out of it."""
        return (self.src,)

    @property
    def shape(self) -> Hashable:
        """All that the cost depends on."""
        return self.dst.tensor.name, self.bytes, self.atomic, self.c0, self.cut, self.read_out, self.posted

    def execute(self, memory: CoreMemory) -> None:
        """Convert and store, or add in float32."""
        values = in_channel_groups(memory.tile(self.src), self.c0)
        memory.store(self.dst, values, atomic=self.atomic)

    def cost(self, profile: Profile) -> Cost:
        """Return head, traffic and latency of the path L0C_GM; reading L0C in turns slows the traffic."""
        path, unit = profile.paths["L0C_GM"], profile.fixpipe
        rate, least = Fraction(path.bytes_per_cycle), path.least_cycles
        # A fractal of L0C has 16 columns; groups of 8 (float32) cut each in two, and that is slow.
        added = Fraction(0)
        if self.cut or 0 < self.c0 < FRACTAL_COLUMNS:
            rate = Fraction(unit.channel_split_bytes_per_cycle or rate)
            added = Fraction(unit.channel_split_atomic_bytes_per_cycle) if self.posted else added
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
    def shape(self) -> Hashable:
        """All that the cost depends on."""
        return self.elements

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

    @property
    def shape(self) -> Hashable:
        """All that the cost depends on."""
        return self.elements

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
        """All that the cost depends on."""
        return self.elements

    def execute(self, memory: CoreMemory) -> None:
        """Do nothing to the data."""

    def cost(self, profile: Profile) -> Cost:
        """Return the cycles that M loses."""
        path = profile.paths["L0C_UB"]
        return Cost(ceil(path.m_stall_share * (4 * self.elements / path.bytes_per_cycle)))
