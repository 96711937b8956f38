"""How a change of layout is dealt to the cores: as tasks, which are boxes of its elements."""

from __future__ import annotations

from collections.abc import Iterator

from ascendsim.frozen import cached_property
from ascendsim.ops.schedules.vector.relayout import Box, Relayout

# Cores get whole planes if that uses so much of their rounds; else parts of planes, so many for each. Where
# rows are packed, and UB takes in a whole group of channels, any use beyond half is enough.
BUSY, BUSY_PACKING = 0.6, 0.5
TASKS = 8


class Cut:
    """A change cut into tasks for so many cores: whole planes, or parts of C1 and of the line of a plane.

    Tasks are counted plane after plane, in a plane by groups of channels, and then along the line.

    group_fits  whether UB holds a whole group of channels of a plane, as it is read and as it is written
    """

    def __init__(self, change: Relayout, cores: int, *, group_fits: bool) -> None:
        self._change = change
        planes = change.planes
        used = planes / (cores * -(-planes // cores))
        packed_at_once = change.packs and group_fits
        if not change.taps and (used >= BUSY or (packed_at_once and used > BUSY_PACKING)):
            self._groups, self._cuts = 1, 1
        else:
            self._groups = change.c1
            groups = planes * change.c1
            self._cuts = min(-(-change.line // change.step), -(-TASKS * cores // groups))
        self.tasks = planes * self._groups * self._cuts

    def boxes(self, share: range) -> Iterator[Box]:
        """Yield the boxes of tasks in a row: those of one plane that have the whole line make one."""
        change, groups, cuts = self._change, self._groups, self._cuts
        each, taps = change.c1 // groups, range(change.area)
        if cuts == 1:
            first = share.start
            while first < share.stop:
                plane, group = divmod(first, groups)
                last = min(share.stop, (plane + 1) * groups)
                c1 = range(group * each, (group + last - first) * each)
                yield Box(plane, c1, range(change.line), taps)
                first = last
            return
        lines = self._lines
        for task in share:
            rest, cut = divmod(task, cuts)
            plane, group = divmod(rest, groups)
            yield Box(plane, range(group, group + 1), lines[cut], taps)

    @cached_property
    def _lines(self) -> list[range]:
        """The parts of a line, in whole steps."""
        change, cuts = self._change, self._cuts
        steps = -(-change.line // change.step)
        begins = [change.step * (steps * cut // cuts) for cut in range(cuts)]
        return list(map(range, begins, [*begins[1:], change.line]))

    def signature(self, share: range) -> tuple[int, ...]:
        """Return a number for each box of a share; boxes with equal numbers cost the same."""
        if self._cuts == 1 or not self._change.even:
            return self._numbers(share)
        # Such tasks are many, and every plane is cut alike: those of one plane tell the numbers of all.
        count = self._groups * self._cuts
        begin = share.start % count
        end = begin + len(share)
        return (self._of_a_plane * -(-end // count))[begin:end]

    @cached_property
    def _of_a_plane(self) -> tuple[int, ...]:
        """The numbers of the tasks of a plane: all its groups of channels are cut alike but the last."""
        inner = self._of_a_group(0) * (self._groups - 1) if self._groups > 1 else ()
        return inner + self._of_a_group(self._groups - 1)

    def _of_a_group(self, group: int) -> tuple[int, ...]:
        """Return the numbers of the tasks of one group of channels of a plane, in an even change.

        Of the line only counts how long a part is, and how much of that there is row after row.
        """
        there = self._change.line_there
        lengths = [(len(line), len(range(there)[line.start : line.stop])) for line in self._lines]
        boxes = dict(
            zip(lengths, self.boxes(range(group * self._cuts, (group + 1) * self._cuts)), strict=True)
        )
        numbers = {length: self._number(box) for length, box in boxes.items()}
        return tuple([numbers[length] for length in lengths])

    def _numbers(self, share: range) -> tuple[int, ...]:
        return tuple([self._number(box) for box in self.boxes(share)])

    def _number(self, box: Box) -> int:
        return self._known.setdefault(extents(self._change, box), len(self._known))

    @cached_property
    def _known(self) -> dict[tuple[int, ...], int]:
        return {}


def extents(change: Relayout, box: Box) -> tuple[int, ...]:
    """Return all of a box that its cost depends on, and how it is cut into pieces."""
    return len(box.c1), len(box.line), len(box.taps), *change.plain_shape(box), *change.mark(box)
