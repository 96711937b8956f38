"""The way of a finished tile from L0C to global memory, by whichever path the product has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ascendsim.cube.fixpipe import CopyL0cToUb, Fixpipe
from ascendsim.cube.tile_reads import round_up
from ascendsim.errors import UnsupportedError
from ascendsim.profile import Profile
from ascendsim.program.builder import ProgramBuilder
from ascendsim.program.places import Gm, GmTensor, Slot
from ascendsim.program.rings import Ring
from ascendsim.vector.instructions import CopyUbToGm

Index = Callable[[int, int], tuple[Any, ...]]


class Writeback:
    """Writes accumulator tiles of at most (m, n) to one tensor.

    With a path L0C_GM a tile leaves by Fixpipe; with L0C_UB and UB_GM it goes through UB, in as many pieces
    of columns as UB asks for. `c0` > 0 writes NC1HWC0, else a plain matrix. `unit_flag` lets Fixpipe begin
    with the last product into a tile.

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
    ) -> None:
        self._b = builder
        self._tensor = tensor
        self._c0 = c0
        self._unit_flag = unit_flag
        # Unified cores have no Fixpipe: what leaves L0C goes through UB, in the vector pipe.
        self._direct = profile.has_path("L0C", "GM")
        self.rings: tuple[Ring, ...] = ()
        if self._direct:
            return
        if not (profile.has_path("L0C", "UB") and profile.has_path("UB", "GM")):
            raise UnsupportedError(
                f"{profile.variant} has no path from L0C to GM: its profile has neither L0C_GM nor both "
                "L0C_UB and UB_GM"
            )
        self._pipe = profile.paths["L0C_UB"].pipe
        # Pieces of whole fractals, or of whole groups of channels, and two of them in UB: one is converted
        # while the other one leaves.
        unit = c0 or profile.cube.n0
        half = profile.buffers["UB"].capacity_bytes // 2
        self._piece = min(round_up(n, unit), max(unit, half // (m * tensor.itemsize) // unit * unit))
        self._ring = Ring(builder.slots("UB", m * self._piece * tensor.itemsize, "out", 2))
        self.rings = (self._ring,)

    def write(self, source: Slot, m: int, n: int, index: Index, *, atomic: bool = False) -> None:
        """Write the tile; `index(first, count)` gives the slice of the tensor for a range of its columns."""
        size = self._tensor.itemsize
        if self._direct:
            place = Gm(self._tensor, index(0, n))
            self._b.add(Fixpipe(place, source, m * n * size, self._c0, atomic, self._unit_flag))
            return
        for first in range(0, n, self._piece):
            count = min(self._piece, n - first)
            slot = self._ring.next()
            self._b.add(
                CopyL0cToUb(slot, source, first, count, self._tensor.dtype, m * count, self._c0, self._pipe)
            )
            self._b.add(CopyUbToGm(Gm(self._tensor, index(first, count)), slot, m * count * size, atomic))
