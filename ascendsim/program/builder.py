"""Building programs: slots are reserved, instructions appended, and the waits between pipes derived.

Every wait follows from the slots that instructions touch, in program order, so a schedule never writes a
flag. What a piece of program waits for depends on who touched its slots last, how long ago, and on what its
pipes know already. Where all that recurs with the piece, so do its waits.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from ascendsim.errors import CapacityError, ProgramError
from ascendsim.program.instruction import PIPES, Instruction
from ascendsim.program.places import Slot
from ascendsim.program.program import Program
from ascendsim.program.template import Template

if TYPE_CHECKING:
    from ascendsim.profile import Profile

HAZARDS = frozenset({"RAW", "WAR", "WAW"})
Back = tuple[tuple[int, ...], ...]


class _Waits(NamedTuple):
    """What a recurring piece waits for in one state, and what its pipes have learned at its end.

    `trail_back` names the few instructions that trail others, by their offset in the piece.
    `learned` are (done or end, pipe, other pipe, newest index known of that one, from the piece's begin).
    """

    done_back: Back
    end_back: Back
    trail_back: tuple[tuple[int, tuple[int, ...]], ...]
    learned: tuple[tuple[bool, str, str, int], ...]


class _Use(NamedTuple):
    """How a piece leaves a slot: its last writer (-1: none) and who has read since, from its begin."""

    slot: int
    writer: int
    readers: tuple[tuple[str, int], ...]


class Recurrence(Template):
    """A piece with all that decides its waits.

    `outside` are the touches that may wait for something before the piece: (slot, pipe, whether it writes).
    """

    __slots__ = ("known", "outside", "pipes", "uses")

    def __init__(self, instructions: tuple[Instruction, ...]) -> None:
        super().__init__(instructions)
        self.pipes = tuple([instruction.pipe for instruction in instructions])
        self.known: dict[tuple[str | int | None, ...], _Waits] = {}
        outside: dict[tuple[int, str, bool], None] = {}
        writer: dict[int, int] = {}
        readers: dict[int, dict[str, int]] = {}
        for offset, (instruction, pipe) in enumerate(zip(instructions, self.pipes, strict=True)):
            for slot in instruction.reads:
                if slot.index not in writer:
                    outside[slot.index, pipe, False] = None
                readers.setdefault(slot.index, {})[pipe] = offset
            for slot in instruction.writes:
                if slot.index not in writer:
                    outside[slot.index, pipe, True] = None
                writer[slot.index] = offset
                readers[slot.index] = {}
        self.outside = tuple(outside)
        self.uses = tuple(
            _Use(slot, writer.get(slot, -1), tuple(since.items())) for slot, since in readers.items()
        )


class ProgramBuilder:
    """Collects the instructions of one core and derives their waits.

    `hazards` names the classes of waits to derive; all of them, except in tests that show what a missing
    class does.
    """

    def __init__(self, profile: Profile, hazards: frozenset[str] = HAZARDS) -> None:
        self._profile = profile
        self._hazards = hazards
        self._slots: list[Slot] = []
        self._used: dict[str, int] = {}
        self._instructions: list[Instruction] = []
        self._done_back: list[tuple[int, ...]] = []
        self._end_back: list[tuple[int, ...]] = []
        self._trail_back: dict[int, tuple[int, ...]] = {}
        self._pipes: list[str] = []
        # Per slot: index of the last writer (-1: none), and the last reader since then on each pipe.
        self._writer: list[int] = []
        self._readers: list[dict[str, int]] = []
        self._pieces: list[tuple[int, Template]] = []
        # What each pipe has waited for so far: [pipe][other pipe] -> newest index known done, known ended.
        self._known_done: dict[str, dict[str, int]] = {pipe: {} for pipe in PIPES}
        self._known_end: dict[str, dict[str, int]] = {pipe: {} for pipe in PIPES}

    def slots(self, buffer: str, size_bytes: int, name: str, copies: int = 1) -> tuple[Slot, ...]:
        """Reserve `copies` slots (a ring for ping-pong) of one buffer.

        Raises   CapacityError naming buffer, need and capacity; UnsupportedError-like CapacityError where the
                 product has no such buffer
        """
        figures = self._profile.buffers.get(buffer)
        if figures is None:
            raise CapacityError(
                f"{self._profile.variant} has no buffer {buffer}; it has {', '.join(self._profile.buffers)}"
            )
        step = figures.alignment_bytes
        size = -(-size_bytes // step) * step
        need = self._used.get(buffer, 0) + copies * size
        if need > figures.capacity_bytes:
            raise CapacityError(
                f"{buffer} of {self._profile.variant} holds {figures.capacity_bytes} bytes, but {name} "
                f"({copies} x {size}) brings the need to {need}; take a smaller tile or fewer copies"
            )
        self._used[buffer] = need
        made = []
        for copy in range(copies):
            label = f"{name}[{copy}]" if copies > 1 else name
            made.append(Slot(buffer, size, label, len(self._slots)))
            self._slots.append(made[-1])
            self._writer.append(-1)
            self._readers.append({})
        return tuple(made)

    def add(self, instruction: Instruction) -> None:
        """Append one instruction and derive what it must wait for.

        Raises   ProgramError if it reads a slot that nothing has written
        """
        index = len(self._instructions)
        pipe = instruction.pipe
        done: dict[str, int] = {}
        end: dict[str, int] = {}
        trail: dict[str, int] = {} if instruction.trails else done
        reads, writes = instruction.reads, instruction.writes
        for slot in reads:
            writer = self._writer[slot.index]
            if writer < 0:
                raise ProgramError(
                    f"instruction {index} ({type(instruction).__name__}) reads {slot!r}, "
                    "which nothing has written"
                )
            self._wait(trail, pipe, writer, "RAW")
        for slot in writes:
            writer = self._writer[slot.index]
            if writer >= 0:
                self._wait(done, pipe, writer, "WAW")
            for reader in self._readers[slot.index].values():
                self._wait(end, pipe, reader, "WAR")
        self._done_back.append(self._settle(done, pipe, self._known_done[pipe]) if done else ())
        self._end_back.append(self._settle(end, pipe, self._known_end[pipe]) if end else ())
        # What comes next on the pipe starts when this one has ended, and that is after what it trails.
        if trail is not done and (back := self._settle(trail, pipe, self._known_done[pipe])):
            self._trail_back[index] = back
        for slot in reads:
            self._readers[slot.index][pipe] = index
        for slot in writes:
            self._writer[slot.index] = index
            self._readers[slot.index].clear()
        self._instructions.append(instruction)
        self._pipes.append(pipe)

    def _wait(self, waits: dict[str, int], pipe: str, on: int, hazard: str) -> None:
        """Note that `pipe` must wait for instruction `on`, unless both are on one in-order pipe."""
        other = self._pipes[on]
        if other != pipe and hazard in self._hazards and on > waits.get(other, -1):
            waits[other] = on

    def _settle(self, waits: dict[str, int], pipe: str, known: dict[str, int]) -> tuple[int, ...]:
        """Drop the waits that an earlier wait of the same pipe already implies (pipes deliver in order).

        Returns  how far back the others lie, the farthest first
        """
        done = self._known_done[pipe]
        index = len(self._instructions)
        kept = []
        for other, on in waits.items():
            if on > known.get(other, -1) and on > done.get(other, -1):
                kept.append(index - on)
                known[other] = on
        return tuple(kept) if len(kept) < 2 else tuple(sorted(kept, reverse=True))

    def __len__(self) -> int:
        return len(self._instructions)

    def recurrence(self, begin: int) -> Recurrence:
        """Return what has been appended since instruction `begin` as a piece that may be repeated."""
        piece = Recurrence(tuple(self._instructions[begin:]))
        self._pieces.append((begin, piece))
        return piece

    def repeat(self, piece: Recurrence, moved: Iterable[tuple[int, Instruction]]) -> None:
        """Append a piece again, with the instructions `moved` in place of those at their offsets.

        They must equal those that they replace but for the slice of global memory that they name.
        """
        begin = len(self._instructions)
        self._pieces.append((begin, piece))
        state = self._state(piece)
        waits = piece.known.get(state)
        if waits is None:
            instructions = list(piece.instructions)
            for offset, instruction in moved:
                instructions[offset] = instruction
            piece.known[state] = self._derived(instructions)
            return
        self._instructions += piece.instructions
        for offset, instruction in moved:
            self._instructions[begin + offset] = instruction
        self._pipes += piece.pipes
        self._done_back += waits.done_back
        self._end_back += waits.end_back
        for offset, back in waits.trail_back:
            self._trail_back[begin + offset] = back
        for slot, writer, readers in piece.uses:
            if writer >= 0:
                self._writer[slot] = begin + writer
                self._readers[slot].clear()
            for pipe, reader in readers:
                self._readers[slot][pipe] = begin + reader
        for done, pipe, other, newest in waits.learned:
            (self._known_done if done else self._known_end)[pipe][other] = begin + newest

    def _state(self, piece: Recurrence) -> tuple[str | int | None, ...]:
        """Return all that decides the waits of a piece: what it may wait for outside, and how far back.

        What its pipes know already is left out; they never wait for it again.
        """
        begin = len(self._instructions)
        state: list[str | int | None] = []
        for slot, pipe, writes in piece.outside:
            done = self._known_done[pipe]
            writer = self._writer[slot]
            other = self._pipes[writer] if writer >= 0 else pipe
            if other != pipe and writer > done.get(other, -1):
                state += (other, begin - writer)
            else:
                state.append(min(writer, 0))
            if writes:
                end = self._known_end[pipe]
                for other, reader in self._readers[slot].items():
                    if other != pipe and reader > done.get(other, -1) and reader > end.get(other, -1):
                        state += (other, begin - reader)
                state.append(None)
        return tuple(state)

    def _derived(self, instructions: list[Instruction]) -> _Waits:
        """Append instructions one by one and return what they wait for."""
        begin = len(self._instructions)
        tables = (True, self._known_done), (False, self._known_end)
        before = {(done, pipe): dict(known) for done, table in tables for pipe, known in table.items()}
        for instruction in instructions:
            self.add(instruction)
        learned = [
            (done, pipe, other, newest - begin)
            for done, table in tables
            for pipe, known in table.items()
            for other, newest in known.items()
            if before[done, pipe].get(other) != newest
        ]
        trail = [(at - begin, back) for at, back in self._trail_back.items() if at >= begin]
        return _Waits(
            tuple(self._done_back[begin:]), tuple(self._end_back[begin:]), tuple(trail), tuple(learned)
        )

    def restart(self) -> None:
        """Begin another program with the same slots."""
        self._instructions, self._pipes, self._pieces = [], [], []
        self._done_back, self._end_back, self._trail_back = [], [], {}
        self._writer = [-1] * len(self._slots)
        self._readers = [{} for _ in self._slots]
        self._known_done = {pipe: {} for pipe in PIPES}
        self._known_end = {pipe: {} for pipe in PIPES}

    def build(self) -> Program:
        """Return the finished program."""
        return Program(
            tuple(self._instructions),
            tuple(self._done_back),
            tuple(self._end_back),
            tuple(self._slots),
            dict(self._used),
            tuple(self._pieces),
            self._trail_back,
        )
