"""How full the on-chip buffers are over a kernel, of the cores that end last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ascendsim.program.kernel import Core
from ascendsim.program.places import Slot
from ascendsim.program.posts import core_of, pipe_on
from ascendsim.timing.tiles import levels
from ascendsim.timing.timeline import CoreTimeline, Timeline, work_of

_ORDER: tuple[str, ...] = ("L1", "L0A", "L0B", "L0C", "UB")


class Tiles(NamedTuple):
    """Slots of one purpose: so many, each of so many bytes; two take turns (ping-pong)."""

    name: str
    copies: int
    size_bytes: int


class Occupied(NamedTuple):
    """One buffer of one core over a kernel.

    reserved_bytes  what its programs reserve at most
    tiles           the slots of the program that reserves most, by purpose
    levels          (cycle, bytes that hold a tile from then on), in order; 0 before the first
    """

    buffer: str
    core: Core
    reserved_bytes: int
    tiles: tuple[Tiles, ...]
    levels: tuple[tuple[int, int], ...]

    @property
    def most_bytes(self) -> int:
        """The most bytes that ever hold a tile."""
        return max((held for _, held in self.levels), default=0)


def occupied(timeline: Timeline) -> list[Occupied]:
    """Return the buffers of the cube core and of the vector core that end last; in the order L1, L0, UB.

    A core that has both units is a cube core. Of cores that end in the same cycle the first one.
    """
    found: list[Occupied] = []
    for kind in ("cube", "vector"):
        ends = {
            work.cores[0].beside(number): done
            for phase in timeline.phases
            for work in phase.cores
            for number, done in _ends(work)
            if work.cores[0].beside(number).kind == kind
        }
        if ends:
            found += _buffers_of(timeline, max(ends, key=lambda core: ends[core]))
    return found


def _ends(work: CoreTimeline) -> Iterator[tuple[int, int]]:
    """Yield (number, cycle of its last result) of each core of a program that does something."""
    last: dict[int, int] = {}
    for pipe, done in zip(work.program.pipes, work.done, strict=True):
        number = core_of(pipe)
        last[number] = max(last.get(number, 0), done)
    yield from last.items()


def _buffers_of(timeline: Timeline, core: Core) -> Iterator[Occupied]:
    reserved: dict[str, int] = {}
    tiles: dict[str, tuple[Tiles, ...]] = {}
    changes: dict[str, list[tuple[int, int]]] = {}
    for phase in timeline.phases:
        work, number = work_of(phase, core)
        if work is None:
            continue
        for buffer, slots in _slots_of(work, number).items():
            size = work.program.buffer_bytes.get(pipe_on(number, buffer), 0)
            if size > reserved.get(buffer, 0):
                reserved[buffer], tiles[buffer] = size, _tiles(slots)
        for level in levels(work, len(work.program.instructions)):
            if level.core == number:
                changes.setdefault(level.buffer, []).append((level.cycle, level.bytes))
    for buffer, size in reserved.items():
        yield Occupied(buffer, core, size, tiles[buffer], tuple(changes.get(buffer, ())))


def _slots_of(work: CoreTimeline, number: int) -> dict[str, tuple[Slot, ...]]:
    """Return the on-chip slots of one core of a program, by buffer, each once."""
    program = work.program
    used = [
        slot
        for instruction, pipe in zip(program.instructions, program.pipes, strict=True)
        if core_of(pipe) == number
        for slot in (*instruction.reads, *instruction.writes)
    ]
    # A copy that is reserved and never used belongs to somebody only where there is one core.
    unused = program.slots if len(program.sizes) == 1 else ()
    slots = dict.fromkeys([*unused, *used])
    order = [name for name in _ORDER if any(slot.buffer == name for slot in slots)]
    order += [slot.buffer for slot in slots if slot.buffer not in (*_ORDER, "GM")]
    return {name: tuple(slot for slot in slots if slot.buffer == name) for name in dict.fromkeys(order)}


def _tiles(slots: Sequence[Slot]) -> tuple[Tiles, ...]:
    """Count slots that differ in nothing but their number, which stands in brackets behind the name."""
    alike = Counter((slot.name.partition("[")[0], slot.size_bytes) for slot in slots)
    return tuple(Tiles(name, copies, size) for (name, size), copies in sorted(alike.items()))
