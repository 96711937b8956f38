"""How a change of layout is dealt to the cores, as tasks, which are boxes, and cut into pieces for UB."""

from __future__ import annotations

from collections.abc import Iterator

from ascendsim.frozen import cached_property
from ascendsim.ops.problems.packed import C0_BYTES
from ascendsim.ops.schedules.vector.elementwise import runs
from ascendsim.ops.schedules.vector.relayout import Box, Relayout
from ascendsim.profile import Profile

# Cores get whole planes if that uses so much of their rounds. Where rows are packed, and UB takes in a whole
# group of channels, any use beyond half is enough.
BUSY, BUSY_PACKING = 0.6, 0.5


class Cut:
    """A change cut into tasks for so many cores: whole planes, or parts of C1 and of the line of a plane.

    Tasks are counted plane after plane, in a plane by groups of channels, and then along the line. Weights of
    several taps are cut along the line alone, all else into what UB holds of one group of channels.

    fits    how much of the line of one group half of UB holds, as it is read and as it is written
    kinds   of each kind of boxes that was met the first one; boxes of one kind cost the same
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
        """Yield the boxes of tasks in a row, each with the number of planes that have it, its own first.

        Those of one plane that have the whole line make one.
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
        # Such tasks are many, and every plane is cut alike: those of one plane tell the kinds of all.
        count = self._groups * self._cuts
        begin = share.start % count
        end = begin + len(share)
        return (self._of_a_plane * -(-end // count))[begin:end]

    @property
    def places(self) -> int:
        """How many numbers tell how far a box lies behind the first one of its kind."""
        return self._change.planes * self._change.c1 * self._change.line

    def rows(self, share: range) -> list[tuple[int, int]]:
        """Return a row for each box of each plane: its kind, and how far it lies behind the first of these.

        Told are planes, groups of channels and elements of a line; behind the last group comes the first.
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
        """Return a piece of the first box of a kind as it lies in another one of that kind."""
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

        Of the line only counts how long a part is, and how much of that there is row after row.
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
    """Return all of a box that its cost depends on, and how it is cut into pieces."""
    return len(box.c1), len(box.line), len(box.taps), *change.plain_shape(box), *change.mark(box)


class Rooms:
    """What boxes of a change need in UB, found once for all that have the same extents."""

    def __init__(self, profile: Profile, change: Relayout) -> None:
        figures = profile.buffers["UB"]
        self.change = change
        self._half = figures.capacity_bytes // 2 // figures.alignment_bytes * figures.alignment_bytes
        self._known: dict[tuple[int, ...], tuple[int, int]] = {}

    def fitting(self, box: Box) -> int:
        """Return how many such boxes half of UB holds."""
        return self.hold(box, extents(self.change, box))

    def line_fitting(self) -> int:
        """Return how much of the line of one group of channels half of UB holds, in whole steps; none: 0."""
        change = self.change
        whole = Box(0, range(1), range(change.line), range(change.area))
        if self.fitting(whole):
            return change.line
        step = min(change.step, change.line)
        return self.fitting(whole._replace(line=range(step))) * step

    def hold(self, box: Box, shape: tuple[int, ...]) -> int:
        """Return the same for a box of these extents."""
        return self._half // max(self.of(box, shape))

    def of(self, box: Box, shape: tuple[int, ...]) -> tuple[int, int]:
        """Return the bytes of a box of these extents as it is read and as it is written, in whole blocks.

        None of either where it has no elements there.
        """
        if shape not in self._known:
            self._known[shape] = self.change.read_side(box).room, self.change.write_side(box).room
        return self._known[shape]

    def pieces(self, box: Box) -> list[tuple[Box, tuple[int, ...]]]:
        """Cut a box into pieces of which half of UB holds either side; return them with their extents."""
        shape = extents(self.change, box)
        if len(box.c1) == 1 and self.hold(box, shape):
            # Usual: such a box is a piece.
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
    """Cut taps into runs of whole kernel depths, of `each` taps, or of parts of one where `most` is less."""
    if most >= min(each, len(whole)):
        yield from runs(whole, max(each, most // each * each))
        return
    for depth in runs(whole, each):
        yield from runs(depth, most)
