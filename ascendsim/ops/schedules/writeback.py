"""The way of a finished tile from L0C to global memory, by whichever path the product has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ascendsim.cube.fixpipe import FRACTAL_COLUMNS, CopyL0cToUb, Fixpipe, ReadOut, StallCube
from ascendsim.cube.tile_reads import round_up
from ascendsim.errors import UnsupportedError
from ascendsim.program.indices import Axis, Number, Span
from ascendsim.program.nest import Nest
from ascendsim.program.places import Gm, GmTensor, Slot
from ascendsim.vector.instructions import CopyUbToGm

# size(*at): rows and columns of the tile at some indices. find(*at, first, count): its slice of the tensor
# for a range of its columns.
Size = Callable[..., tuple[int, int]]
Find = Callable[..., tuple[Any, ...]]


class Writeback:
    """Writes accumulator tiles of at most (m, n) to one tensor.

    With a path L0C_GM a tile leaves by Fixpipe; with L0C_UB and UB_GM it goes through UB, in as many pieces
    of columns as its part of UB, one of `ub_share`, asks for. `c0` > 0 writes NC1HWC0, else a plain matrix.
    Under the `unit_flag` Fixpipe begins with the last product into a tile, and the next product waits for the
    reading alone. `cut` says that the device lays a plain
    matrix in groups of 8 channels. L0C holds `l0c_tiles` of them: of several M makes one while V reads
    another, and stands still for part of that.

    Raises   UnsupportedError if the product has neither path
    """

    def __init__(
        self,
        nest: Nest,
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
        profile = nest.profile
        self._nest, self._tensor, self._c0 = nest, tensor, c0
        self._cut = cut
        split = (cut or 0 < c0 < FRACTAL_COLUMNS) and not unit_flag
        # Whether L0C is free before what is added of cut ones has arrived.
        self._posted = bool(split and profile.fixpipe.channel_split_atomic_bytes_per_cycle)
        # Unified cores have no Fixpipe: what leaves L0C goes through UB, in the vector pipe.
        self._direct = profile.has_path("L0C", "GM")
        # What is between L0C and GM takes no room in any buffer.
        self._read = nest.ring("L0C", 0, "READ", 1) if unit_flag else None
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
        half = nest.room("UB") // ub_share // 2
        self._piece = min(round_up(n, unit), max(unit, half // (m * tensor.itemsize) // unit * unit))
        self._ring = nest.ring("UB", m * self._piece * tensor.itemsize, "out", 2)

    def write(
        self,
        source: Number,
        at: Sequence[Number | int],
        size: Size,
        find: Find,
        columns: tuple[Number, Sequence[int]],
        *,
        tensor: GmTensor | None = None,
        atomic: bool = False,
    ) -> None:
        """Write the tile at some indices, or add it where it is `atomic`.

        columns   the index that tells how many columns it has, and how many by that index
        tensor    another one of the same format
        """
        target = tensor or self._tensor
        itemsize = target.itemsize
        if self._direct:

            def fixpipe(slot: Slot, *own: int) -> Fixpipe:
                m, n = size(*own)
                place = Gm(target, find(*own, 0, n))
                read, posted = self._read is not None, atomic and self._posted
                return Fixpipe(place, slot, m * n * itemsize, self._c0, atomic, self._cut, read, posted)

            def read_out(slot: Slot, source: Slot, *own: int) -> ReadOut:
                m, n = size(*own)
                return ReadOut(slot, source, m * n)

            if self._read is not None:
                slot = self._nest.next(self._read)
                self._nest.emit(read_out, [slot, source], at)
                source = slot
            self._nest.emit(fixpipe, [source], at)
        else:
            self._through_ub(source, at, size, find, columns, target, atomic)

    def _through_ub(
        self,
        source: Number,
        at: Sequence[Number | int],
        size: Size,
        find: Find,
        columns: tuple[Number, Sequence[int]],
        target: GmTensor,
        atomic: bool,
    ) -> None:
        """Write a tile piece by piece through UB."""

        def stall(*own: int) -> StallCube:
            m, n = size(*own)
            return StallCube(m * n)

        def part(own: Sequence[int], piece: int) -> tuple[int, int, int]:
            m, n = size(*own)
            return m, piece * self._piece, min(self._piece, n - piece * self._piece)

        def convert(slot: Slot, source: Slot, *own: int) -> CopyL0cToUb | None:
            m, first, count = part(own[:-1], own[-1])
            if count <= 0:
                return None
            return CopyL0cToUb(slot, source, first, count, target.dtype, m * count, self._c0, self._pipe)

        def leave(slot: Slot, *own: int) -> CopyUbToGm | None:
            m, first, count = part(own[:-1], own[-1])
            if count <= 0:
                return None
            return CopyUbToGm(
                Gm(target, find(*own[:-1], first, count)), slot, m * count * target.itemsize, atomic
            )

        n = self._nest
        if self._stalls:
            # Behind the tile's last product and before the first one of the next.
            n.emit(stall, (), at)
        index, widths = columns
        counts = [-(-width // self._piece) for width in widths]
        pieces = Axis(max(counts), range(max(counts)))
        count = n.table(counts, max(counts) + 1, "pieces")[index]
        # Cores whose tiles are cut otherwise may add to the same pieces, so these are told by their ends.
        ends = [[min(first + self._piece, width) for first in self._firsts(counts)] for width in widths]
        first_of = n.table(self._firsts(counts), max(widths) + 1, "first of")
        end_of = n.table(ends, max(widths) + 1, "end of")
        with n.loop(Span(0, count, pieces, count.text), "piece") as piece:
            slot = n.next(self._ring)
            n.emit(convert, [slot, source], [*at, piece])
            n.emit(leave, [slot], [*at, piece], slice_at=[*at, first_of[piece], end_of[index, piece]])

    def _firsts(self, counts: Sequence[int]) -> list[int]:
        """Return the first column of each piece of the widest tile."""
        return [piece * self._piece for piece in range(max(counts))]
