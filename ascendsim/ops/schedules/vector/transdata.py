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

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import prod
from weakref import WeakValueDictionary

from ascendsim.frozen import cached_property
from ascendsim.ops.plan import shares
from ascendsim.ops.problems.packed import C0_BYTES
from ascendsim.ops.schedules.vector.at_once import change_layout
from ascendsim.ops.schedules.vector.boxes import Cut, extents
from ascendsim.ops.schedules.vector.elementwise import runs, vector_cores
from ascendsim.ops.schedules.vector.relayout import Box, Relayout, Side
from ascendsim.profile import Profile
from ascendsim.program.builder import ProgramBuilder
from ascendsim.program.kernel import CoreWork, Deferred, Phase
from ascendsim.program.program import Program
from ascendsim.vector.instructions import CopyGmToUb, CopyUbToGm, Fill
from ascendsim.vector.relayout import TurnTile


def transdata(profile: Profile, change: Relayout) -> Phase:
    """Return the phase that changes the layout of a tensor.

    Raises   CapacityError if UB does not hold a group of channels of one fractal
    """
    work = Deferred(partial(_work, profile, change))
    return Phase("transdata", work, partial(change_layout, change), change.apart)


def _work(profile: Profile, change: Relayout) -> tuple[CoreWork, ...]:
    """Return the work of every core."""
    cores = vector_cores(profile)
    group = Box(0, range(1), range(change.line), range(change.area))
    rooms = _Rooms(profile, change)
    cut = Cut(change, len(cores), group_fits=rooms.fitting(group) > 0)
    programs = _Programs(profile, cut, rooms)
    return tuple(
        CoreWork(core, cut.signature(share), partial(programs.of, share))
        for core, share in zip(cores, shares(cut.tasks, len(cores)), strict=False)
    )


class _Rooms:
    """What boxes of a change need in UB, found once for all that have the same extents."""

    def __init__(self, profile: Profile, change: Relayout) -> None:
        figures = profile.buffers["UB"]
        self.change = change
        self._half = figures.capacity_bytes // 2 // figures.alignment_bytes * figures.alignment_bytes
        self._known: dict[tuple[int, ...], tuple[int, int]] = {}

    def fitting(self, box: Box) -> int:
        """Return how many such boxes half of UB holds."""
        return self.hold(box, extents(self.change, box))

    def hold(self, box: Box, shape: tuple[int, ...]) -> int:
        """Return the same for a box of these extents."""
        return self._half // max(self.of(box, shape))

    def of(self, box: Box, shape: tuple[int, ...]) -> tuple[int, int]:
        """Return the bytes of a box of these extents as it is read and as it is written, in whole blocks.

        None of either where it has no elements there.
        """
        if shape not in self._known:
            read, write = (
                side.rows * -(-side.row_bytes // C0_BYTES) * C0_BYTES for side in self.change.sides(box)
            )
            self._known[shape] = read, write
        return self._known[shape]


def _pieces(rooms: _Rooms, box: Box) -> list[tuple[Box, tuple[int, ...]]]:
    """Cut a box into pieces of which half of UB holds either side; return them with their extents."""
    shape = extents(rooms.change, box)
    if len(box.c1) == 1 and rooms.hold(box, shape):
        # Usual: such a box is a piece.
        return [(box, shape)]
    return [(piece, extents(rooms.change, piece)) for piece in _cut_up(rooms, box)]


def _cut_up(rooms: _Rooms, box: Box) -> Iterator[Box]:
    """Yield whole lines of as many channel groups as fit; else parts of a line; else a step and some taps."""
    change = rooms.change
    group = box._replace(c1=box.c1[:1])
    if groups := rooms.fitting(group):
        for c1 in runs(box.c1, groups):
            yield box._replace(c1=c1)
        return
    step = group._replace(line=box.line[: change.step])
    steps = rooms.fitting(step)
    taps = len(box.taps)
    if not steps:
        # The taps of each channel are a row of their own then, in whole blocks.
        block = box.taps[: min(C0_BYTES // change.plain.itemsize, change.depth_area)]
        whole = rooms.fitting(step._replace(taps=block)) * len(block)
        taps = whole or max(1, rooms.fitting(step._replace(taps=block[:1])))
    for number in box.c1:
        for line in runs(box.line, max(1, steps) * change.step):
            for some in _tap_runs(box.taps, taps, change.depth_area):
                yield Box(box.plane, range(number, number + 1), line, some)


def _tap_runs(whole: range, most: int, each: int) -> Iterator[range]:
    """Cut taps into runs of whole kernel depths, of `each` taps, or of parts of one where `most` is less."""
    if most >= min(each, len(whole)):
        yield from runs(whole, max(each, most // each * each))
        return
    for depth in runs(whole, each):
        yield from runs(depth, most)


class _Code:
    """A builder whose slot for a piece has so many bytes; it knows the code of all pieces so far."""

    def __init__(self, profile: Profile, size_bytes: int) -> None:
        self.b = ProgramBuilder(profile)
        # The copy of the next piece waits until this one has left its slot: nothing overlaps.
        (self.tile,) = self.b.slots("UB", size_bytes, "tile")


@dataclass(frozen=True, eq=False)
class _Programs:
    """Writes down the programs of the cores, those that reserve as much with the same code."""

    profile: Profile
    cut: Cut
    rooms: _Rooms

    @cached_property
    def _codes(self) -> WeakValueDictionary[int, _Code]:
        # By what a core reserves, only as long as one of the programs is in use.
        return WeakValueDictionary()

    def of(self, share: range) -> Program:
        """Return the program of a core that has these tasks."""
        rooms = self.rooms
        pieces = [piece for box in self.cut.boxes(share) for piece in _pieces(rooms, box)]
        size = max(max(rooms.of(*piece)) for piece in pieces)
        code = self._codes.get(size)
        if code is None:
            code = self._codes[size] = _Code(self.profile, size)
        b = code.b
        b.restart()
        for piece, shape in pieces:
            if rooms.of(piece, shape)[1]:
                for _ in b.once(piece, shape):
                    _write(code, rooms, piece, shape)
        program = b.build()
        program.keeps = code
        return program


def _write(code: _Code, rooms: _Rooms, piece: Box, shape: tuple[int, ...]) -> None:
    """Append the instructions of one piece."""
    b, tile, change = code.b, code.tile, rooms.change
    size, out = change.source.itemsize, change.target.itemsize
    read, write = change.sides(piece)
    if rooms.of(piece, shape)[0]:
        place = b.gm(change.source, change.read_place, piece)
        b.add(CopyGmToUb(tile, place, prod(read.shape) * size, read.shape, _padded(read)))
        b.add(TurnTile(tile, tile, change.turn(piece), size, change.blocks(piece), change.taps))
    else:
        # Nothing but the zeros that fill up merged groups.
        b.add(Fill(tile, write.shape, prod(write.shape) * out))
    place = b.gm(change.target, change.write_place, piece)
    b.add(CopyUbToGm(place, tile, prod(write.shape) * out, False, _padded(write)))


def _padded(side: Side) -> int:
    """Return how many rows of a side are no whole blocks."""
    return side.rows if side.row_bytes % C0_BYTES else 0
