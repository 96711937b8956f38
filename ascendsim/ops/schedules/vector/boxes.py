"""A change of layout as tasks for the cores: each task is a box, cut into pieces for UB."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from ascendsim.frozen import cached_property
from ascendsim.instructions.relayout import TurnTile
from ascendsim.instructions.vector import CopyGmToUb, CopyUbToGm, Fill
from ascendsim.ops.problems.convolution import C0_BYTES
from ascendsim.ops.schedules.vector.elementwise import runs, vector_cores
from ascendsim.ops.schedules.vector.relayout import Box, Relayout
from ascendsim.profile import Profile
from ascendsim.program.kernel import CoreWork, Deferred, Phase
from ascendsim.program.nest import Nest
from ascendsim.program.places import Gm, Slot
from ascendsim.program.program import NestProgram
from ascendsim.program.walk import Axis, Number, alike

if TYPE_CHECKING:
    from ascendsim.program.places import CoreMemory


# Cores get whole planes if that uses so much of their rounds. Where rows are packed, and UB takes in a whole
# group of channels, any use beyond half is enough.
BUSY, BUSY_PACKING = 0.6, 0.5


class BoxCut:
    """A change cut into tasks for so many cores: whole planes, or parts of C1 and of the line of a plane.

    Tasks are counted plane after plane, in a plane by groups of channels, and then along the line. Weights of
    several taps are cut along the line alone, all else into what UB holds of one group of channels.

    fits    elements of the line of one group that half of UB holds, as read and as written
    kinds   the first box of each kind; boxes of one kind have equal costs
    """

    def __init__(self, change: Relayout, cores: int, fits: int) -> None:
        self._change = change
        planes, line = change.planes, change.line
        self._groups, self._lines = 1, [range(line)]
        if change.taps and change.area > 1:
            # One more than a core has in the mean, also where all have as many: so the counters say.
            together, most = change.lines_together, planes * line // cores + 1
            self._lines = list(runs(range(line), -(-most // together) * together))
        elif change.taps or not self._by_planes(cores, packed_at_once=change.packs and fits >= line):
            self._groups, self._lines = change.c1, _even(line, change.step, fits)
        self._cuts = len(self._lines)
        self.tasks = planes * self._groups * self._cuts
        # As few cores as that many rounds need.
        self.each = max(1, -(-self.tasks // cores))
        self.kinds: list[Box] = []
        self._known: dict[tuple[int, ...], int] = {}

    def _by_planes(self, cores: int, *, packed_at_once: bool) -> bool:
        planes = self._change.planes
        used = planes / (cores * -(-planes // cores))
        return used >= BUSY or (packed_at_once and used > BUSY_PACKING)

    def boxes(self, share: range) -> Iterator[tuple[Box, int]]:
        """Yield the boxes of a run of tasks, each with the number of planes that it stands for.

        Boxes of one plane that take whole lines become one box.
        """
        change, groups, cuts = self._change, self._groups, self._cuts
        each, taps = change.c1 // groups, range(change.area)
        if cuts == 1:
            first = share.start
            while first < share.stop:
                plane, group = divmod(first, groups)
                count, planes = min(groups - group, share.stop - first), 1
                if count == groups:
                    planes = change.together(range(plane, share.stop // groups))
                yield (
                    Box(plane, range(group * each, (group + count) * each), range(change.line), taps),
                    planes,
                )
                first += count * planes
            return
        lines = self._lines
        for task in share:
            rest, cut = divmod(task, cuts)
            plane, group = divmod(rest, groups)
            yield Box(plane, range(group * each, (group + 1) * each), lines[cut], taps), 1

    def signature(self, share: range) -> tuple[tuple[int, int], ...]:
        """Return the kind of each box of a share, by its number, and how many planes have it."""
        if self._cuts == 1 or not self._change.even:
            return tuple([(self._kind(box), planes) for box, planes in self.boxes(share)])
        # There are many tasks, and every plane is cut alike: the kinds of one plane are those of all.
        count = self._groups * self._cuts
        begin = share.start % count
        end = begin + len(share)
        return (self._of_a_plane * -(-end // count))[begin:end]

    @property
    def places(self) -> int:
        """The number of possible distances of a box from the first one of its kind."""
        return self._change.planes * self._change.c1 * self._change.line

    def rows(self, share: range) -> list[tuple[int, int]]:
        """Return a row for each box of each plane: its kind, and how far it lies behind the first of these.

        The number counts planes, groups of channels and elements of a line; after the last group comes the
        first.
        """
        change, rows = self._change, []
        each = change.c1 * change.line
        for (box, planes), (kind, _) in zip(self.boxes(share), self.signature(share), strict=True):
            first = self.kinds[kind]
            c1, line = box.c1.start - first.c1.start, box.line.start - first.line.start
            place = (box.plane - first.plane) * each + c1 % change.c1 * change.line + line % change.line
            rows += [(kind, behind) for behind in range(place, place + planes * each, each)]
        return rows

    def moved(self, piece: Box, place: int) -> Box:
        """Return the counterpart, in another box of a kind, of a piece of the first box."""
        change = self._change
        groups, line = divmod(place, change.line)
        plane, c1 = divmod(groups, change.c1)
        first, begin = (piece.c1.start + c1) % change.c1, (piece.line.start + line) % change.line
        own = range(first, first + len(piece.c1)), range(begin, begin + len(piece.line))
        return Box(piece.plane + plane, *own, piece.taps)

    @cached_property
    def _of_a_plane(self) -> tuple[tuple[int, int], ...]:
        """The kinds of the tasks of a plane: all its groups of channels are cut alike but the last."""
        inner = self._of_a_group(0) * (self._groups - 1) if self._groups > 1 else ()
        return inner + self._of_a_group(self._groups - 1)

    def _of_a_group(self, group: int) -> tuple[tuple[int, int], ...]:
        """Return the kinds of the tasks of one group of channels of a plane, in an even change.

        Of the line only the length of a part counts, and how much of it is stored row by row.
        """
        there = self._change.line_there
        lengths = [(len(line), len(range(there)[line.start : line.stop])) for line in self._lines]
        boxes = dict(
            zip(lengths, self.boxes(range(group * self._cuts, (group + 1) * self._cuts)), strict=True)
        )
        kinds = {length: (self._kind(box), planes) for length, (box, planes) in boxes.items()}
        return tuple([kinds[length] for length in lengths])

    def _kind(self, box: Box) -> int:
        """Return the number of the kind of a box."""
        told = extents(self._change, box)
        kind = self._known.setdefault(told, len(self.kinds))
        if kind == len(self.kinds):
            # In the first plane, if it costs the same there.
            first = box._replace(plane=0)
            self.kinds.append(first if extents(self._change, first) == told else box)
        return kind


def _even(line: int, step: int, most: int) -> list[range]:
    """Cut a line into as few parts as have at most so much each, in whole steps, as even as these are."""
    steps = -(-line // step)
    cuts = -(-steps // max(1, most // step)) if most < line else 1
    begins = [step * (steps * cut // cuts) for cut in range(cuts)]
    return list(map(range, begins, [*begins[1:], line]))


def extents(change: Relayout, box: Box) -> tuple[int, ...]:
    """Return a key of a box's cost and of its cut into pieces."""
    return len(box.c1), len(box.line), len(box.taps), *change.plain_shape(box), *change.mark(box)


class Rooms:
    """Room of boxes of a change in UB, computed once for each set of extents."""

    def __init__(self, profile: Profile, change: Relayout) -> None:
        figures = profile.buffers["UB"]
        self.change = change
        self._half = figures.capacity_bytes // 2 // figures.alignment_bytes * figures.alignment_bytes
        self._known: dict[tuple[int, ...], tuple[int, int]] = {}

    def fitting(self, box: Box) -> int:
        """Return how many boxes like this one half of UB holds."""
        return self.hold(box, extents(self.change, box))

    def line_fitting(self) -> int:
        """Return the elements of a channel group's line that half of UB holds, in whole steps; 0: none."""
        change = self.change
        whole = Box(0, range(1), range(change.line), range(change.area))
        if self.fitting(whole):
            return change.line
        step = min(change.step, change.line)
        return self.fitting(whole._replace(line=range(step))) * step

    def hold(self, box: Box, shape: tuple[int, ...]) -> int:
        """Return how many boxes of these extents half of UB holds."""
        return self._half // max(self.of(box, shape))

    def of(self, box: Box, shape: tuple[int, ...]) -> tuple[int, int]:
        """Return the bytes of a box of these extents as it is read and as it is written, in whole blocks.

        None of either where it has no elements there.
        """
        if shape not in self._known:
            self._known[shape] = self.change.read_side(box).room, self.change.write_side(box).room
        return self._known[shape]

    def pieces(self, box: Box) -> list[tuple[Box, tuple[int, ...]]]:
        """Cut a box into pieces with sides that fit half of UB; return them with their extents."""
        shape = extents(self.change, box)
        if len(box.c1) == 1 and self.hold(box, shape):
            # Usual: the box is a piece.
            return [(box, shape)]
        return [(piece, extents(self.change, piece)) for piece in _cut_up(self, box)]


def _cut_up(rooms: Rooms, box: Box) -> Iterator[Box]:
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
    """Cut taps into runs of at most `most`: whole kernel depths of `each` taps, or parts of one depth."""
    if most >= min(each, len(whole)):
        yield from runs(whole, max(each, most // each * each))
        return
    for depth in runs(whole, each):
        yield from runs(depth, most)


def transdata(profile: Profile, change: Relayout) -> Phase:
    """Return the phase that changes the layout of a tensor.

    Raises   CapacityError if UB does not hold a group of channels of one fractal
    """
    figures = profile.buffers["UB"]
    work = Deferred(partial(_work, profile, change.within(figures.capacity_bytes // 2)))
    return Phase("transdata", work, partial(_change_layout, change), change.apart)


def _change_layout(change: Relayout, memory: CoreMemory) -> None:
    """Change the layout of a tensor, a plane at a time: what the programs make, sooner."""
    # A plane is a box like those that fit into UB, only larger.
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
    cut = BoxCut(change, len(cores), rooms.line_fitting())
    programs = _BoxPrograms(profile, cut, rooms)
    return tuple(
        CoreWork(core, cut.signature(share), partial(programs.of, share))
        for core, share in zip(cores, runs(range(cut.tasks), cut.each), strict=False)
    )


def _apart(profile: Profile, change: Relayout) -> bool:
    """Return whether a piece is read into one half of UB and made in the other: pixels, on split cores."""
    return change.packs and not change.taps and profile.core_structure == "split"


@dataclass(frozen=True, eq=False)
class _BoxPrograms:
    """The programs of the cores; those whose largest pieces need as much of UB share a nest."""

    profile: Profile
    cut: BoxCut
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
        cut: BoxCut,
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
        """Return the numbers that identify slices where boxes read common rows; None: each reads its own."""
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
