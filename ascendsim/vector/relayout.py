"""Turn a tile in UB from row after row into the cube's layout, or back."""

from __future__ import annotations

from collections.abc import Hashable
from fractions import Fraction
from math import ceil, prod
from typing import TYPE_CHECKING, NamedTuple

from ascendsim.program.instruction import Cost, SlotToSlot
from ascendsim.program.places import Slot
from ascendsim.vector.diagonal import OffDiagonal, OntoDiagonal
from ascendsim.vector.instructions import on_the_cube_clock

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ascendsim.profile import Profile
    from ascendsim.program.memory import CoreMemory

BLOCK_BYTES = 32


class Turn(NamedTuple):
    """How the axes of a tile change places.

    The tile is filled up with zeros to `padded` and seen as `split`, its axes are taken in the order `axes`;
    the result is seen as `merged`, of which the corner `kept` stays. The channels that a group lacks are
    zeros in the cube's layout, and are dropped on the way back.
    """

    padded: tuple[int, ...]
    split: tuple[int, ...]
    axes: tuple[int, ...]
    merged: tuple[int, ...]
    kept: tuple[int, ...]

    def turned(self, tile: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the tile with its axes changed."""
        import numpy as np

        box = tile
        if tile.shape != self.padded:
            box = np.zeros(self.padded, tile.dtype)
            box[tuple(map(slice, tile.shape))] = tile
        made = box.reshape(self.split).transpose(self.axes).reshape(self.merged)
        return made[tuple(map(slice, self.kept))]


AnyTurn = Turn | OntoDiagonal | OffDiagonal


class _TurnTile(NamedTuple):
    dst: Slot
    src: Slot
    turn: AnyTurn
    itemsize: int
    blocks: int
    loose: int


class TurnTile(_TurnTile, SlotToSlot):
    """Turn a tile in UB from row after row into the cube's layout, or back (TransDataTo5HD).

    `dst` may be `src`: then the tile is turned in place.

    `blocks` counts the blocks of 32 bytes that rows of pixels have, which begin at blocks. `loose` counts
    what is placed by itself: blocks of weights whose channels lie a kernel apart, rows that begin anywhere.

    Shapes   as `turn` says
    Pipe     V
    Cost     head + one transpose repeat for each 256 bytes, filled up, + pixel_block_cycles for each block
             + tap_block_cycles for all that is loose
    Source   AscendC TransDataTo5HD page: a command takes 16 rows of 32 bytes by their addresses
    """

    __slots__ = ()
    pipe = "V"

    @property
    def shape(self) -> Hashable:
        """All that the cost depends on."""
        return prod(self.turn.padded) * self.itemsize, self.blocks, self.loose

    def execute(self, memory: CoreMemory) -> None:
        """Change the axes."""
        values = self.turn.turned(memory.tile(self.src))
        memory.new_tile(self.dst, values.shape)[...] = values

    def cost(self, profile: Profile) -> Cost:
        """Return the cycles of the repeats and the blocks."""
        vector = profile.vector
        size = prod(self.turn.padded) * self.itemsize
        apart = self.blocks * Fraction(vector.pixel_block_cycles)
        apart += self.loose * Fraction(vector.tap_block_cycles)
        cycles = vector.instruction_cycles("transpose", ceil(size / vector.bytes_per_cycle))
        return on_the_cube_clock(profile, cycles + ceil(apart))


class _FractalsToL1(NamedTuple):
    dst: Slot
    src: Slot
    bytes: int
    tile_shape: tuple[int, int]
    begin: tuple[int, int]


class FractalsToL1(_FractalsToL1, SlotToSlot):
    """Copy a piece of a matrix, turned into fractals in UB, to its place in a tile in L1.

    `begin` is its first row and column in the tile; the piece at (0, 0) comes first, and begins the tile.

    Shapes   `tile_shape` is (rows, columns) of the tile; fractals count in the cost alone
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
        piece, (row, column) = memory.tile(self.src), self.begin
        first = self.begin == (0, 0)
        tile = memory.new_tile(self.dst, self.tile_shape) if first else memory.tile(self.dst)
        tile[row : row + piece.shape[0], column : column + piece.shape[1]] = piece

    def cost(self, profile: Profile) -> Cost:
        """Return the cycles of the path."""
        path = profile.paths["UB_L1"]
        return Cost(path.head_cycles + ceil(self.bytes / path.bytes_per_cycle), path.latency_cycles)
