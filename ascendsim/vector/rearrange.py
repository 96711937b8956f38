"""Bring elements that a strided read left scattered in UB into a row."""

from __future__ import annotations

from collections.abc import Hashable
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from ascendsim.program.instruction import Cost, SlotToSlot
from ascendsim.program.places import Slot
from ascendsim.vector.instructions import vector_cost

if TYPE_CHECKING:
    from ascendsim.profile import Profile
    from ascendsim.program.memory import CoreMemory


class _Rearrange(NamedTuple):
    dst: Slot
    src: Slot
    bytes: int


class Rearrange(_Rearrange, SlotToSlot):
    """Copy a tile in UB so that elements which lay in blocks of their own, or across rows, become neighbours.

    The carrier of a tile holds its elements in the order in which they are used, so only the cost is seen.

    Pipe     V
    Cost     head + one transpose repeat for each 256 of the `bytes` that the tile takes before
    Source   AscendC TransDataTo5HD and Transpose pages (blocks of 32 bytes)
    """

    __slots__ = ()
    pipe = "V"

    @property
    def shape(self) -> Hashable:
        """All that the cost depends on."""
        return self.bytes

    def execute(self, memory: CoreMemory) -> None:
        """Copy."""
        # Where bytes lie inside a tile is not modelled; a schedule that forgot this would be too fast, not
        # wrong.
        values = memory.tile(self.src)
        memory.new_tile(self.dst, values.shape)[...] = values

    def cost(self, profile: Profile) -> Cost:
        """Return the cycles of the repeats."""
        return vector_cost(profile, "transpose", ceil(self.bytes / profile.vector.bytes_per_cycle))
