"""Spans of a timed kernel, and pure functions on them.

The state of a pipe follows from the spans alone. Between two instructions a pipe is idle until the next one
is issued; from then on it waits for whatever let it start in the end. So for every pipe of every core busy,
waiting and idle add up to the cycles of the kernel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ascendsim.program.kernel import Core, Kernel
from ascendsim.program.places import HOME, Slot, bare, core_of, pipe_on, seen_from
from ascendsim.program.program import Program
from ascendsim.timing.times import CoreTimes, KernelTimes, PhaseTimes, TimedKernel, TimedPhase


@dataclass(frozen=True, slots=True)
class CoreTimeline:
    """Spans of one program in one phase; `cores` are all cores it stands for (more than one when folded).

    The program of a cube core may cover the vector cores beside it; `program.pipes` names the core of each
    pipe.

    All of these are indexed like `program.instructions`, in absolute cycles of the kernel:
    `issue` when the scalar unit handed it to its pipe, `start` when the pipe took it up, `end` when the pipe
    was free again, `done` when its result was visible.
    """

    cores: tuple[Core, ...]
    program: Program
    issue: Sequence[int]
    start: Sequence[int]
    end: Sequence[int]
    done: Sequence[int]


PhaseTimeline = TimedPhase[CoreTimeline]
Timeline = TimedKernel[CoreTimeline]


def work_of(phase: PhaseTimeline, core: Core) -> tuple[CoreTimeline | None, int]:
    """Return the work that covers a core, and the number of the core in its program; None: it has none."""
    for work in phase.cores:
        for number in range(len(work.program.sizes)):
            if core in [one.beside(number) for one in work.cores]:
                return work, number
    return None, 0


def times_of(timeline: Timeline) -> KernelTimes:
    """Return the causes of a kernel's cycles, read from its spans."""
    phases = []
    for phase in timeline.phases:
        cores = []
        for work in phase.cores:
            cores += _times_of(work, phase.begin)
        phases.append(PhaseTimes(phase.name, phase.begin, phase.end, tuple(cores)))
    return KernelTimes(timeline.kernel, timeline.cycles, tuple(phases), timeline.bytes, timeline.left)


def _times_of(work: CoreTimeline, begin: int) -> list[CoreTimes]:
    """Return the times of each core of a program, in a phase that began at cycle `begin`."""
    program, each = work.program, issue_cycles(work, begin)
    busy: list[dict[str, int]] = [{"S": size * each} for size in program.sizes]
    waiting: list[dict[str, dict[str, int]]] = [{} for _ in busy]
    done = [begin] * len(busy)
    for index, name in enumerate(program.pipes):
        core, pipe = core_of(name), bare(name)
        # From start to end, though bytes may be slow to come: who holds a pipe keeps others from it.
        busy[core][pipe] = busy[core].get(pipe, 0) + work.end[index] - work.start[index]
        done[core] = max(done[core], work.done[index])
    for name, cause, cycles in _waits(work, begin):
        core = core_of(name)
        causes = waiting[core].setdefault(bare(name), {})
        by = seen_from(core, cause)
        causes[by] = causes.get(by, 0) + cycles
    return [
        CoreTimes(tuple([one.beside(number) for one in work.cores]), *found)
        for number, found in enumerate(zip(busy, waiting, done, strict=True))
    ]


def issue_cycles(work: CoreTimeline, begin: int) -> int:
    """Return the cycles a scalar unit needs to issue an instruction: nothing delays the first one."""
    # Read off the spans, so that who looks at a timeline needs no profile.
    return work.issue[0] - begin if work.issue else 0


def _waits(work: CoreTimeline, begin: int) -> Iterator[tuple[str, str, int]]:
    """Yield (pipe, cause, cycles) of every wait of the cores of a program in a phase."""
    each, issued = issue_cycles(work, begin), [begin] * len(work.program.sizes)
    before: dict[str, int] = {}
    pipes = work.program.pipes
    for index, pipe in enumerate(pipes):
        core = core_of(pipe)
        # Only a full queue makes the scalar unit wait, and the queue is that of the instruction's pipe.
        if work.issue[index] > issued[core] + each:
            yield pipe_on(core, "S"), pipe, work.issue[index] - issued[core] - each
        issued[core] = work.issue[index]
        last = before.get(pipe)
        ready = max(issued[core], begin if last is None else work.end[last])
        if work.start[index] > ready:
            cause, _ = released_by(work, index, last)
            yield pipe, pipes[cause], work.start[index] - ready
        before[pipe] = index


def released_by(work: CoreTimeline, index: int, last: int | None) -> tuple[int, int]:
    """Return the instruction that an instruction waited for longest, and when that one was over.

    `last` is the one before on its pipe. Only for an instruction that waited after it had been issued and its
    pipe was free.
    """
    program = work.program
    # Flags take equally long, so the wait that was over last is the one that let it start.
    times = [(work.done[other], other) for other in program.after_done[index]]
    times += [(work.end[other], other) for other in program.after_end[index]]
    if program.instructions[index].drains and last is not None and work.done[last] == work.start[index]:
        return last, work.done[last]
    time, other = max(times)
    return other, time


def arrivals(kernel: Kernel, timeline: Timeline) -> list[list[tuple[Core, int]]]:
    """Return, phase by phase, all instructions by the cycle in which they leave their pipe.

    Ties    by core and program order
    Legal   an instruction that needs or overwrites what another one touches starts no earlier than that one
            leaves its pipe; the order in which results become visible would not be legal: what overwrites a
            slot may be quicker to show than the slow result of a late reader. Atomic additions of one path
            have one latency, so they arrive in the order in which they leave
    """
    orders = []
    for phase, timed in zip(kernel.phases, timeline.phases, strict=True):
        place = {work.core: at for at, work in enumerate(phase.work)}
        # Cores that were folded into one have its spans, each its own data.
        ends = [
            (end, place[core], core, index)
            for spans in timed.cores
            for core in spans.cores
            for index, end in enumerate(spans.end)
        ]
        # The place of the core comes before its name: ties go by the order in which the kernel lists its
        # cores.
        orders.append([(core, index) for _, _, core, index in sorted(ends)])
    return orders


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
    """Yield a delivery for each tile that one of the first `taken` instructions reads from another pipe."""
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
    """Return the slots an instruction reads and writes, those it hands to other cores included."""
    instruction, post = work.program.instructions[index], work.program.posts.get(index, HOME)
    return instruction.reads + post.reads, instruction.writes + post.writes


_ORDER: tuple[str, ...] = ("L1", "L0A", "L0B", "L0C", "UB")


class SlotGroup(NamedTuple):
    """Slots of one purpose: their number, and the bytes of each; two of them take turns (ping-pong)."""

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
    tiles: tuple[SlotGroup, ...]
    levels: tuple[tuple[int, int], ...]

    @property
    def most_bytes(self) -> int:
        """The peak of the bytes of the buffer that tiles take up."""
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
    tiles: dict[str, tuple[SlotGroup, ...]] = {}
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


def _tiles(slots: Sequence[Slot]) -> tuple[SlotGroup, ...]:
    """Count slots that differ in nothing but their number, which stands in brackets behind the name."""
    alike = Counter((slot.name.partition("[")[0], slot.size_bytes) for slot in slots)
    return tuple(SlotGroup(name, copies, size) for (name, size), copies in sorted(alike.items()))


class Stages(NamedTuple):
    """Cycles of a kernel on the cube; they add up to the cycles of the kernel.

    entry    up to the first instruction
    fill     from then until a cube takes up its first product
    steady   until the last product of a cube has left it
    drain    until the last result is visible: sums go out, and parts of cores are added
    """

    entry: int
    fill: int
    steady: int
    drain: int


def stages(timeline: Timeline) -> Stages | None:
    """Return the stages of the core whose cube ends last; None for a kernel without products."""
    found = []
    for phase in timeline.phases:
        for work in phase.cores:
            # A pipe keeps the order of its program: its first product begins first, its last one ends last.
            products = [at for at, pipe in enumerate(work.program.pipes) if pipe == "M"]
            if products:
                found.append((work.end[products[-1]], work.start[products[0]]))
    if not found:
        return None
    # Ends may be equal: then of the core that begins last, whose fill is the longest.
    end, start = max(found)
    entry = timeline.entry_cycles
    return Stages(entry, start - entry, end - start, timeline.cycles - end)
