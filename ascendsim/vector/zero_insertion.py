"""Instructions that put zeros between the pixels of an image on its way through UB into L1.

Unified cores have no strided copy into L1. So a strided grad_input brings its pixels into UB, spreads them
over a piece of zeros there, and copies the piece into the image tile in L1.
"""

from __future__ import annotations

from collections.abc import Hashable
from math import ceil, prod
from typing import TYPE_CHECKING, NamedTuple

from ascendsim.program.instruction import Cost, SlotOntoSlot, SlotToSlot
from ascendsim.program.places import Slot
from ascendsim.vector.instructions import on_the_cube_clock

if TYPE_CHECKING:
    from ascendsim.profile import Profile
    from ascendsim.program.memory import CoreMemory


class _SpreadPixels(NamedTuple):
    dst: Slot
    src: Slot
    channels: int
    rows: int
    cols: int
    pixel_bytes: int
    first: tuple[int, int]
    step: tuple[int, int]


class SpreadPixels(_SpreadPixels, SlotOntoSlot):
    """Copy the pixels of `src` into a piece of zeros in UB, a step apart (Copy with a stride).

    `first` is the row and the column of the first of them, `step` how far they lie apart along both.

    Shapes   src (channels, rows, cols, C0), dst (channels, expanded rows, expanded cols, C0)
    Pipe     V
    Cost     a command for each row of each channel group: head + one unary repeat for each 256 bytes
    """

    __slots__ = ()
    pipe = "V"

    @property
    def shape(self) -> Hashable:
        """All that the cost depends on."""
        return self.channels * self.rows, self.cols * self.pixel_bytes

    def execute(self, memory: CoreMemory) -> None:
        """Copy; what lies between keeps its zeros."""
        rows, cols = (
            slice(first, first + (count - 1) * step + 1, step)
            for first, count, step in zip(self.first, (self.rows, self.cols), self.step, strict=True)
        )
        memory.tile(self.dst)[:, rows, cols] = memory.tile(self.src)

    def cost(self, profile: Profile) -> Cost:
        """Return the cycles of all commands."""
        # A repeat takes 8 blocks of 32 bytes wherever they go, so the step between pixels costs nothing.
        repeats = ceil(self.cols * self.pixel_bytes / profile.vector.bytes_per_cycle)
        each = profile.vector.instruction_cycles("unary", repeats)
        return on_the_cube_clock(profile, self.channels * self.rows * each)


class _CopyUbToL1(NamedTuple):
    dst: Slot
    src: Slot
    bytes: int
    tile_shape: tuple[int, int, int, int]
    begin: tuple[int, int, int]
    first: bool


class CopyUbToL1(_CopyUbToL1, SlotToSlot):
    """Copy a piece of an image tile, both (channels, rows, cols, C0), from UB to its place in L1.

    `begin` is the first channel group, row and column of the piece in the tile. The `first` piece begins the
    tile; im2col reads the row of zeros at its end.

    Pipe     MTE3
    Cost     head + bytes / rate + latency of the path UB_L1
    """

    __slots__ = ()
    pipe = "MTE3"

    @property
    def shape(self) -> Hashable:
        """All that the cost depends on."""
        return self.bytes

    def execute(self, memory: CoreMemory) -> None:
        """Copy."""
        piece, (*extent, c0) = memory.tile(self.src), self.tile_shape
        flat = prod(extent) + 1, c0
        tile = memory.new_tile(self.dst, flat) if self.first else memory.tile(self.dst)
        tile[-1] = 0
        image = tile[:-1].reshape(self.tile_shape)
        box = tuple(slice(at, at + size) for at, size in zip(self.begin, piece.shape, strict=False))
        image[box] = piece

    def cost(self, profile: Profile) -> Cost:
        """Return the cycles of the path."""
        path = profile.paths["UB_L1"]
        return Cost(path.head_cycles + ceil(self.bytes / path.bytes_per_cycle), path.latency_cycles)
