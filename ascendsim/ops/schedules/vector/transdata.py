"""Schedule of TransData: a tensor from row after row into the cube's layout, or back, on vector cores.

    for each run of planes, groups of channels and parts of a line that is mine:
        for each piece of it that fits into half of UB:
            GM -> UB row by row        MTE2
            turn its axes in place     V     the other half is for what it needs besides
            UB -> GM                   MTE3

The loops of the vendor's operator are published nowhere. That one piece is away before the next is fetched,
and that a core takes whole planes while that keeps most cores busy, was read off measured kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from ascendsim.frozen import cached_property
from ascendsim.ops.schedules.vector.boxes import Cut, Rooms
from ascendsim.ops.schedules.vector.elementwise import runs, vector_cores
from ascendsim.ops.schedules.vector.relayout import Box, Relayout
from ascendsim.profile import Profile
from ascendsim.program.indices import Axis, Number, alike
from ascendsim.program.kernel import CoreWork, Deferred, Phase
from ascendsim.program.nest import Nest
from ascendsim.program.places import Gm, Slot
from ascendsim.program.program import NestProgram
from ascendsim.vector.instructions import CopyGmToUb, CopyUbToGm, Fill
from ascendsim.vector.relayout import TurnTile

if TYPE_CHECKING:
    from ascendsim.program.memory import CoreMemory


def transdata(profile: Profile, change: Relayout) -> Phase:
    """Return the phase that changes the layout of a tensor.

    Raises   CapacityError if UB does not hold a group of channels of one fractal
    """
    figures = profile.buffers["UB"]
    work = Deferred(partial(_work, profile, change.within(figures.capacity_bytes // 2)))
    return Phase("transdata", work, partial(_change_layout, change), change.apart)


def _change_layout(change: Relayout, memory: CoreMemory) -> None:
    """Change the layout of a tensor, a plane at a time: what the programs make, sooner."""
    # A plane is a box like those that fit into UB, only larger, and means the same.
    source = memory.array(change.source)
    for plane in range(change.planes):
        box = Box(plane, range(change.c1), range(change.line), range(change.area))
        read, write = change.sides(box)
        if prod(write.shape):
            values = change.turn(box).turned(source[read.place].reshape(read.shape))
            memory.store(Gm(change.target, write.place), values, atomic=False)


def _work(profile: Profile, change: Relayout) -> tuple[CoreWork, ...]:
    """Return the work of every core."""
    cores, rooms = vector_cores(profile), Rooms(profile, change)
    cut = Cut(change, len(cores), rooms.line_fitting())
    programs = _Programs(profile, cut, rooms)
    return tuple(
        CoreWork(core, cut.signature(share), partial(programs.of, share))
        for core, share in zip(cores, runs(range(cut.tasks), cut.each), strict=False)
    )


def _apart(profile: Profile, change: Relayout) -> bool:
    """Tell whether a piece is read into one half of UB and made in the other: pixels, on split cores."""
    return change.packs and not change.taps and profile.core_structure == "split"


@dataclass(frozen=True, eq=False)
class _Programs:
    """The programs of the cores; those whose largest pieces need as much of UB share a nest."""

    profile: Profile
    cut: Cut
    rooms: Rooms

    def of(self, share: range) -> NestProgram:
        """Return the program of a core that has these tasks."""
        rows = self.cut.rows(share)
        told = [piece for kind in {row[0] for row in rows} for piece in self._pieces[kind]]
        size = max([max(self.rooms.of(*piece)) for piece in told])
        if size not in self._nests:
            self._nests[size] = TransdataNest(self.profile, self.cut, self.rooms, self._pieces, size)
        nest = self._nests[size]
        return NestProgram(
            nest, np.array([(piece, place) for kind, place in rows for piece in nest.of_kind[kind]])
        )

    @cached_property
    def _pieces(self) -> list[list[tuple[Box, tuple[int, ...]]]]:
        return [self.rooms.pieces(box) for box in self.cut.kinds]

    @cached_property
    def _nests(self) -> dict[int, TransdataNest]:
        return {}


class TransdataNest(Nest):
    """Boxes, piece after piece: a task is a piece of a kind of boxes, and where its box lies.

    pieces  of each kind of boxes, with their extents
    """

    def __init__(
        self,
        profile: Profile,
        cut: Cut,
        rooms: Rooms,
        pieces: Sequence[Sequence[tuple[Box, tuple[int, ...]]]],
        size: int,
    ) -> None:
        super().__init__(profile, "transdata")
        self.change, self.cut = rooms.change, cut
        told = [each for own in pieces for each in own]
        self.pieces = [piece for piece, _ in told]
        # What is not written is not even read.
        self._bytes = [rooms.of(*each) for each in told]
        # Turned in place, a piece has left before the next is fetched. Else the next comes meanwhile.
        apart = _apart(profile, rooms.change)
        self._beside = [apart and len(own) > 1 for own in pieces for _ in own]
        (tile,) = self.slots("UB", size, "tile")
        ends = accumulate(map(len, pieces), initial=0)
        self.of_kind = [range(first, end) for first, end in pairwise(ends)]
        costs = Axis(len(told), alike([(*own, on) for (_, own), on in zip(told, self._beside, strict=True)]))
        piece, place = self.task(piece=costs, place=cut.places)
        self.emit(self.fetch, [tile], [piece, place], slice_at=self._read(piece, place))
        if any(self._beside):
            (made,) = self.slots("UB", size, "made")
            self.emit(self.turn_beside, [tile, made], [piece])
            self.emit(self.leave_beside, [made], [piece, place])
        if not all(self._beside):
            self.emit(self.turn, [tile], [piece])
            self.emit(self.leave, [tile], [piece, place])

    def _read(self, piece: Number, place: Number) -> list[Number] | None:
        """Return what tells slices of a change whose boxes read the same rows; None: each reads its own."""
        if self.change.apart:
            return None
        slices = alike([str(self.change.read_side(box).place) for box in self.pieces])
        return [place, self.table(slices, name="slice")[piece]]

    def _box(self, piece: int, place: int) -> Box | None:
        """Return a piece of another box of its kind; None if nothing of it is written."""
        return self.cut.moved(self.pieces[piece], place) if self._bytes[piece][1] else None

    def fetch(self, tile: Slot, piece: int, place: int) -> CopyGmToUb | None:
        """Bring a piece into UB, if it has any elements."""
        box, source = self._box(piece, place), self.change.source
        if box is None or not self._bytes[piece][0]:
            return None
        side = self.change.read_side(box)
        size = prod(side.shape) * source.itemsize
        return CopyGmToUb(tile, Gm(source, side.place), size, side.shape, side.padded)

    def turn(self, tile: Slot, piece: int) -> TurnTile | Fill | None:
        """Turn a piece in place, unless it is turned into the other half."""
        return None if self._beside[piece] else self._turned(tile, tile, piece)

    def turn_beside(self, tile: Slot, made: Slot, piece: int) -> TurnTile | Fill | None:
        """Turn a piece into the other half, unless it is turned in place."""
        return self._turned(tile, made, piece) if self._beside[piece] else None

    def _turned(self, tile: Slot, made: Slot, piece: int) -> TurnTile | Fill | None:
        """Turn a piece, or make one of nothing but the zeros that fill up merged groups."""
        box, change, (read, written) = self.pieces[piece], self.change, self._bytes[piece]
        if read and written:
            turn, loose = change.turn(box), change.loose(box)
            return TurnTile(made, tile, turn, change.source.itemsize, change.blocks(box), loose)
        shape = change.write_side(box).shape
        return Fill(made, shape, prod(shape) * change.target.itemsize) if written else None

    def leave(self, tile: Slot, piece: int, place: int) -> CopyUbToGm | None:
        """Bring a piece that was turned in place to its own."""
        return None if self._beside[piece] else self._left(tile, piece, place)

    def leave_beside(self, made: Slot, piece: int, place: int) -> CopyUbToGm | None:
        """Bring a piece from the other half to its place."""
        return self._left(made, piece, place) if self._beside[piece] else None

    def _left(self, tile: Slot, piece: int, place: int) -> CopyUbToGm | None:
        box, target = self._box(piece, place), self.change.target
        if box is None:
            return None
        side = self.change.write_side(box)
        return CopyUbToGm(
            Gm(target, side.place), tile, prod(side.shape) * target.itemsize, False, side.padded
        )
