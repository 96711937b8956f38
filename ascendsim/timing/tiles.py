"""What happens to tiles: who made what an instruction reads, and how full the buffers of a core are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ascendsim.program.places import Slot
from ascendsim.program.posts import HOME, core_of
from ascendsim.timing.timeline import CoreTimeline


class Delivery(NamedTuple):
    """An instruction (by index) reads what an earlier one has written into a slot."""

    producer: int
    consumer: int
    slot: Slot


class Level(NamedTuple):
    """From a cycle on so many bytes of a buffer of a core (by its number in the program) hold a tile."""

    cycle: int
    core: int
    buffer: str
    bytes: int


def deliveries(work: CoreTimeline, taken: int) -> Iterator[Delivery]:
    """Yield who made what each of the first `taken` instructions reads, other than its own pipe."""
    writer: dict[int, int] = {}
    pipes = work.program.pipes
    for index in range(taken):
        reads, writes = _slots(work, index)
        # An instruction that reads two slots of one producer gets one arrow.
        found: dict[int, Slot] = {}
        for slot in reads:
            producer = writer.get(slot.index)
            if producer is not None and pipes[producer] != pipes[index]:
                found.setdefault(producer, slot)
        yield from (Delivery(producer, index, slot) for producer, slot in found.items())
        writer.update({slot.index: index for slot in writes})


def levels(work: CoreTimeline, taken: int) -> list[Level]:
    """Return how many bytes of each on-chip buffer hold a tile, whenever that changes, in order.

    A slot holds a tile from when the first instruction that makes it takes up its pipe until the last that
    reads it has left its own.
    """
    changes: dict[tuple[int, str], dict[int, int]] = {}
    for core, slot, begin, end in _lives(work, taken):
        of = changes.setdefault((core, slot.buffer), {})
        of[begin] = of.get(begin, 0) + slot.size_bytes
        of[end] = of.get(end, 0) - slot.size_bytes
    found = []
    for (core, buffer), of in changes.items():
        held = 0
        for cycle in sorted(of):
            # A slot that is filled in the cycle in which it was left stays as full as it was.
            if of[cycle]:
                held += of[cycle]
                found.append(Level(cycle, core, buffer, held))
    return found


def _lives(work: CoreTimeline, taken: int) -> Iterator[tuple[int, Slot, int, int]]:
    """Yield (core, slot, begin, end) of each tile that a slot has held."""
    held: dict[int, tuple[int, Slot, int, int]] = {}
    was_read: set[int] = set()
    for index in range(taken):
        core = core_of(work.program.pipes[index])
        reads, writes = _slots(work, index)
        of_chip = [slot for slot in (*reads, *writes) if slot.buffer != "GM"]
        changed = {slot.index for slot in reads}
        for slot in dict.fromkeys(of_chip):
            known = held.get(slot.index)
            # Who writes a slot that has been read, and reads it not, begins another tile. Several that write
            # before anybody reads make one together.
            fresh = slot.index not in changed and slot.index in was_read
            if known is None or fresh:
                if known is not None:
                    yield known
                was_read.discard(slot.index)
                held[slot.index] = core, slot, work.start[index], work.end[index]
            else:
                held[slot.index] = *known[:3], max(known[3], work.end[index])
        was_read |= changed
    yield from held.values()


def _slots(work: CoreTimeline, index: int) -> tuple[tuple[Slot, ...], tuple[Slot, ...]]:
    """Return what an instruction reads and writes, with what it hands over to other cores."""
    instruction, post = work.program.instructions[index], work.program.posts.get(index, HOME)
    return instruction.reads + post.reads, instruction.writes + post.writes
