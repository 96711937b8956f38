"""Building programs: slots are reserved, instructions appended, and the waits between pipes derived.

Every wait follows from the slots that instructions touch, in program order, so a schedule never writes a
flag.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ascendsim.errors import CapacityError, ProgramError
from ascendsim.program import PIPES, Instruction, Program, Slot

if TYPE_CHECKING:
    from ascendsim.profile import Profile

HAZARDS = frozenset({"RAW", "WAR", "WAW"})


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
        self._pipes: list[str] = []
        # Per slot: index of the last writer (-1: none), and the last reader since then on each pipe.
        self._writer: list[int] = []
        self._readers: list[dict[str, int]] = []
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
        reads, writes = instruction.reads, instruction.writes
        for slot in reads:
            writer = self._writer[slot.index]
            if writer < 0:
                raise ProgramError(
                    f"instruction {index} ({type(instruction).__name__}) reads {slot!r}, "
                    "which nothing has written"
                )
            self._wait(done, pipe, writer, "RAW")
        for slot in writes:
            writer = self._writer[slot.index]
            if writer >= 0:
                self._wait(done, pipe, writer, "WAW")
            for reader in self._readers[slot.index].values():
                self._wait(end, pipe, reader, "WAR")
        self._done_back.append(self._settle(done, pipe, self._known_done[pipe]) if done else ())
        self._end_back.append(self._settle(end, pipe, self._known_end[pipe]) if end else ())
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

    def build(self) -> Program:
        """Return the finished program."""
        return Program(
            tuple(self._instructions),
            tuple(self._done_back),
            tuple(self._end_back),
            tuple(self._slots),
            dict(self._used),
        )
