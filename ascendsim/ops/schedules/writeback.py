"""The way of a finished tile from L0C to global memory, by whichever path the product has."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

from ascendsim.cube.fixpipe import CopyL0cToUb, Fixpipe, StallCube
from ascendsim.cube.tile_reads import round_up
from ascendsim.errors import UnsupportedError
from ascendsim.profile import Profile
from ascendsim.program.builder import ProgramBuilder
from ascendsim.program.places import GmTensor, Slot
from ascendsim.vector.instructions import CopyUbToGm

# find(task, first, count): the slice of the tensor for a range of a task's columns.
Find = Callable[[Any, int, int], tuple[Any, ...]]


class Writeback:
    """Writes accumulator tiles of at most (m, n) to one tensor.

    With a path L0C_GM a tile leaves by Fixpipe; with L0C_UB and UB_GM it goes through UB, in as many pieces
    of columns as its part of UB, one of `ub_share`, asks for. `c0` > 0 writes NC1HWC0, else a plain matrix.
    `unit_flag` lets Fixpipe begin with the last product into a tile. `cut` says that the device lays a plain
    matrix in groups of 8 channels. L0C holds `l0c_tiles` of them: of several M makes one while V reads
    another, and stands still for part of that.

    Raises   UnsupportedError if the product has neither path
    """

    def __init__(
        self,
        builder: ProgramBuilder,
        profile: Profile,
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
        self._b = builder
        self._tensor = tensor
        self._c0 = c0
        self._unit_flag = unit_flag
        self._cut = cut
        # Unified cores have no Fixpipe: what leaves L0C goes through UB, in the vector pipe.
        self._direct = profile.has_path("L0C", "GM")
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
        half = builder.room("UB") // ub_share // 2
        self._piece = min(round_up(n, unit), max(unit, half // (m * tensor.itemsize) // unit * unit))
        self._ring = builder.ring("UB", m * self._piece * tensor.itemsize, "out", 2)

    @property
    def target(self) -> str:
        """Name of the tensor that is written."""
        return self._tensor.name

    def onto(self, tensor: GmTensor) -> Writeback:
        """Return what writes to another tensor of the same format, by the same slots."""
        other = copy(self)
        other._tensor = tensor
        return other

    def write(self, source: Slot, m: int, n: int, find: Find, task: Any, *, atomic: bool = False) -> None:
        """Write the tile of a task; find(task, first, count) is the slice for a range of its columns."""
        size = self._tensor.itemsize
        if self._direct:
            place = self._b.gm(self._tensor, find, task, 0, n)
            self._b.add(Fixpipe(place, source, m * n * size, self._c0, atomic, self._unit_flag, self._cut))
            return
        if self._stalls:
            # Behind the tile's last product and before the first one of the next.
            self._b.add(StallCube(m * n))
        for first in range(0, n, self._piece):
            count = min(self._piece, n - first)
            slot = self._ring.next()
            self._b.add(
                CopyL0cToUb(slot, source, first, count, self._tensor.dtype, m * count, self._c0, self._pipe)
            )
            place = self._b.gm(self._tensor, find, task, first, count)
            self._b.add(CopyUbToGm(place, slot, m * count * size, atomic))
