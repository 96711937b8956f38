"""Building programs: slots are reserved, instructions appended, and the waits between pipes derived.

Every wait follows from the slots that instructions use, in program order, so a schedule never writes a flag.
What a template waits for depends on who used its slots last, how far back that is, and on what its pipes know
already. Where all that recurs with the template, so do its waits (`template.py` has an example).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ascendsim.errors import CapacityError, ProgramError
from ascendsim.program.instruction import PIPES, Instruction
from ascendsim.program.places import Slot
from ascendsim.program.program import Program
from ascendsim.program.template import Template, TemplateWaits

if TYPE_CHECKING:
    from ascendsim.profile import Profile

# Read after write, write after read, write after write: the ways in which two uses of a slot may collide.
HAZARDS = frozenset({"RAW", "WAR", "WAW"})


class ProgramBuilder:
    """Collect the instructions of one core and derive their waits.

    `hazards` names the classes of waits to derive; all of them, except in tests that show what a missing
    class does.
    """

    def __init__(self, profile: Profile, hazards: frozenset[str] = HAZARDS) -> None:
        self._profile = profile
        self._hazards = hazards
        self._slots: list[Slot] = []
        self._used: dict[str, int] = {}
        self._instructions: list[Instruction] = []
        # Waits are kept as distances, not as indices: a template that comes again waits for others than
        # before, but as far back. So its waits can be copied as they are.
        self._done_back: list[tuple[int, ...]] = []
        self._end_back: list[tuple[int, ...]] = []
        self._trail_back: dict[int, tuple[int, ...]] = {}
        self._pipes: list[str] = []
        # Per slot: index of the last writer (-1: none), and the last reader since then on each pipe.
        self._writer: list[int] = []
        self._readers: list[dict[str, int]] = []
        self._templates: list[tuple[int, Template]] = []
        # What each pipe has waited for so far: [pipe][other pipe] -> newest index known done, known ended.
        # One number for each pair of pipes is enough, since a pipe ends and delivers in order.
        self._known_done: dict[str, dict[str, int]] = {pipe: {} for pipe in PIPES}
        self._known_end: dict[str, dict[str, int]] = {pipe: {} for pipe in PIPES}

    def slots(self, buffer: str, size_bytes: int, name: str, copies: int = 1) -> tuple[Slot, ...]:
        """Reserve `copies` slots (a ring for ping-pong) of one buffer.

        Raises   CapacityError naming buffer, need and capacity, or the buffers that the product has
        """
        figures = self._profile.buffers.get(buffer)
        if figures is None:
            raise CapacityError(
                f"{self._profile.variant} has no buffer {buffer}; it has {', '.join(self._profile.buffers)}"
            )
        alignment = figures.alignment_bytes
        size = -(-size_bytes // alignment) * alignment
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
        # What trails does not wait for what it reads before it starts, only before it ends.
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
            # A reader has what it needs once it has left its pipe; its own result may come later.
            for reader in self._readers[slot.index].values():
                self._wait(end, pipe, reader, "WAR")
        self._done_back.append(self._settle(done, pipe, self._known_done[pipe]) if done else ())
        self._end_back.append(self._settle(end, pipe, self._known_end[pipe]) if end else ())
        # What comes next on the pipe starts when this one has ended, and that is after what it trails.
        if trail is not done and (back := self._settle(trail, pipe, self._known_done[pipe])):
            self._trail_back[index] = back
        # Of the readers on one pipe the last is enough, since a pipe ends its instructions in order.
        for slot in reads:
            self._readers[slot.index][pipe] = index
        # Whoever writes next waits for this writer, and so for all that this one has waited for.
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
        # Nothing starts too early for that: an instruction that waited for the same or for more came before
        # on this pipe. On the device each wait takes a flag, of which a pair of pipes has eight; here it
        # takes time. A result that is visible has also left its pipe, so who knows it done need not wait for
        # its end.
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

    def template(self, begin: int) -> Template:
        """Return the instructions since number `begin` as a template that may be repeated."""
        template = Template(tuple(self._instructions[begin:]))
        self._templates.append((begin, template))
        return template

    def repeat(self, template: Template, moved: Iterable[tuple[int, Instruction]]) -> None:
        """Append a template again, with the instructions `moved` in place of those at their offsets.

        They must equal those that they replace but for the slice of global memory that they name.
        """
        begin = len(self._instructions)
        self._templates.append((begin, template))
        state = self._state(template)
        waits = template.known.get(state)
        if waits is None:
            instructions = list(template.instructions)
            for offset, instruction in moved:
                instructions[offset] = instruction
            template.known[state] = self._derived(instructions)
            return
        self._instructions += template.instructions
        for offset, instruction in moved:
            self._instructions[begin + offset] = instruction
        self._pipes += template.pipes
        self._done_back += waits.done_back
        self._end_back += waits.end_back
        for offset, back in waits.trail_back:
            self._trail_back[begin + offset] = back
        # From here on the builder is left as if the instructions had been added one by one.
        for slot, writer, readers in template.uses:
            if writer >= 0:
                self._writer[slot] = begin + writer
                self._readers[slot].clear()
            for pipe, reader in readers:
                self._readers[slot][pipe] = begin + reader
        for done, pipe, other, newest in waits.learned:
            (self._known_done if done else self._known_end)[pipe][other] = begin + newest

    def _state(self, template: Template) -> tuple[str | int | None, ...]:
        """Return all that decides the waits of a template: what it may wait for outside, and how far back.

        What its pipes know already is left out; they never wait for it again.
        """
        # Told by distance and without what is known, the state is the same in round after round, although
        # indices grow. With more in it, states would differ that have equal waits, and nothing would recur.
        begin = len(self._instructions)
        state: list[str | int | None] = []
        for slot, pipe, writes in template.outside:
            done = self._known_done[pipe]
            writer = self._writer[slot]
            other = self._pipes[writer] if writer >= 0 else pipe
            if other != pipe and writer > done.get(other, -1):
                state += (other, begin - writer)
            else:
                # Nothing to wait for; but whether anybody wrote the slot decides if it may be read (-1: no).
                state.append(min(writer, 0))
            if writes:
                end = self._known_end[pipe]
                for other, reader in self._readers[slot].items():
                    if other != pipe and reader > done.get(other, -1) and reader > end.get(other, -1):
                        state += (other, begin - reader)
                # The end of a list of readers, whose number is not fixed.
                state.append(None)
        return tuple(state)

    def _derived(self, instructions: list[Instruction]) -> TemplateWaits:
        """Append instructions one by one and return what they wait for."""
        begin = len(self._instructions)
        tables = (True, self._known_done), (False, self._known_end)
        # What the pipes learn must be noted beside the waits: later instructions are spared waits by it.
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
        return TemplateWaits(
            tuple(self._done_back[begin:]), tuple(self._end_back[begin:]), tuple(trail), tuple(learned)
        )

    def restart(self) -> None:
        """Begin another program with the same slots."""
        self._instructions, self._pipes, self._templates = [], [], []
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
            tuple(self._templates),
            self._trail_back,
        )
