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
    taps: bool


class TurnTile(_TurnTile, SlotToSlot):
    """Turn a tile in UB from row after row into the cube's layout, or back (TransDataTo5HD).

    `dst` may be `src`: then the tile is turned in place.

    `blocks` counts the blocks of 32 bytes, row after row, that are taken apart: those of all channels of the
    tile, or of weights of one tap none, since whole blocks change places. `taps` tells weights from pixels.

    Shapes   as `turn` says
    Pipe     V
    Cost     head + one transpose repeat for each 256 bytes, filled up, + pixel_block_cycles or
             tap_block_cycles for each block
    Source   AscendC TransDataTo5HD page: a command takes 16 rows of 32 bytes by their addresses
    """

    __slots__ = ()
    pipe = "V"

    @property
    def shape(self) -> Hashable:
        """All that the cost depends on."""
        return prod(self.turn.padded) * self.itemsize, self.blocks, self.taps

    def execute(self, memory: CoreMemory) -> None:
        """Change the axes."""
        values = self.turn.turned(memory.tile(self.src))
        memory.new_tile(self.dst, values.shape)[...] = values

    def cost(self, profile: Profile) -> Cost:
        """Return the cycles of the repeats and the blocks."""
        vector = profile.vector
        size = prod(self.turn.padded) * self.itemsize
        each = vector.tap_block_cycles if self.taps else vector.pixel_block_cycles
        cycles = vector.instruction_cycles("transpose", ceil(size / vector.bytes_per_cycle))
        return on_the_cube_clock(profile, cycles + ceil(self.blocks * Fraction(each)))
