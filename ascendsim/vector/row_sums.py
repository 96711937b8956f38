"""Sums of lanes and of short rows in UB."""

from __future__ import annotations

from collections.abc import Hashable
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ascendsim.program.instruction import Cost, SlotOntoSlot, SlotToSlot
from ascendsim.program.places import Slot
from ascendsim.vector.instructions import FLOAT32_LANES, vector_cost

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.profile import Profile
    from ascendsim.program.memory import CoreMemory


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
    pipe = "V"

    @property
    def shape(self) -> Hashable:
        """All that the cost depends on."""
        return self.rows

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


class AddRows(_AddRows, SlotOntoSlot):
    """Add the rows of a tile to one float32 row, the first row first.

    Shapes   dst (length,), src (rows, length)
    Pipe     V
    Cost     for each row: a cast (to float32) and a binary instruction of one repeat for each 64 elements,
             and between two rows the latency until the sum is there
    """

    __slots__ = ()
    pipe = "V"

    @property
    def shape(self) -> Hashable:
        """All that the cost depends on."""
        return self.rows, self.length

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
    pipe = "V"

    @property
    def shape(self) -> Hashable:
        """All that the cost depends on."""
        return self.rows

    def execute(self, memory: CoreMemory) -> None:
        """Halve six times."""
        # Adding +0 changes no value, but a sum of -0 alone becomes +0.
        lanes = np.zeros((self.rows, FLOAT32_LANES), np.float32)
        lanes[:, : self.pixels] = memory.tile(self.src).reshape(self.rows, self.pixels)
        memory.new_tile(self.dst, (self.rows,))[...] = added_by_halves(lanes)

    def cost(self, profile: Profile) -> Cost:
        """Return the cycles of the repeats."""
        return vector_cost(profile, "reduce_add_32bit", self.rows)
