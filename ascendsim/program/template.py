"""Templates: runs of instructions that recur in a program, and their waits, which recur with them.

A schedule is a loop; one round of it is a task, and the loop's body builds the instructions of a task. Tasks
that are alike give instructions that are alike, on the same slots: those of one of them become a template.

An example. A ring has two slots a and b in L1. The body loads a (MTE2), reads a (MTE1), loads b, reads b, and
is repeated three times:

    round  load a            read a       load b            read b
    1      waits for none    for 1 back   waits for none    for 1 back
    2      for the 3rd back  for 1 back   for the 3rd back  for 1 back
    3      for the 3rd back  for 1 back   for the 3rd back  for 1 back

A read waits for the result of the load just before it. A load overwrites what a read of the round before has
used, three instructions back, and waits for its end; in the first round nobody has used the slots. So the
first round is derived, the second again, since it finds the slots used, and the third finds them as the
second did: its waits are copied. So would those of a thousandth round be.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ascendsim.program.instruction import Instruction

Back = tuple[tuple[int, ...], ...]


class TemplateWaits(NamedTuple):
    """The waits of a template in one state of the builder, and what its pipes have learned at its end.

    `trail_back` names the few instructions that trail others, by their offset in the template.
    `learned` are (done or end, pipe, other pipe, newest index known of that one, from the template's begin).
    """

    done_back: Back
    end_back: Back
    trail_back: tuple[tuple[int, tuple[int, ...]], ...]
    learned: tuple[tuple[bool, str, str, int], ...]


class SlotUse(NamedTuple):
    """A slot as a template leaves it: its last writer (-1: none) and who has read since, by offset."""

    slot: int
    writer: int
    readers: tuple[tuple[str, int], ...]


class Template:
    """A run of instructions that recurs in programs, with all that decides its waits; compared by identity.

    Where it recurs, only the slices of global memory may be others: pipes, shapes and slots are the same.
    `outside` are the uses of slots that may wait for something before the template: (slot, pipe, whether it
    writes). `known` are the waits by the state of the builder where the template begins.
    """

    __slots__ = ("instructions", "known", "outside", "pipes", "uses")

    def __init__(self, instructions: tuple[Instruction, ...]) -> None:
        self.instructions = instructions
        self.pipes = tuple([instruction.pipe for instruction in instructions])
        self.known: dict[tuple[str | int | None, ...], TemplateWaits] = {}
        # A dict keeps the order in which uses come, so that equal programs have equal states.
        outside: dict[tuple[int, str, bool], None] = {}
        writer: dict[int, int] = {}
        readers: dict[int, dict[str, int]] = {}
        for offset, (instruction, pipe) in enumerate(zip(instructions, self.pipes, strict=True)):
            # Once the template itself has written a slot, nobody before it is waited for: its own writer
            # has waited for them, and whoever comes later waits for that writer.
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
            SlotUse(slot, writer.get(slot, -1), tuple(since.items())) for slot, since in readers.items()
        )

    def __len__(self) -> int:
        return len(self.instructions)


class Waits(Sequence[tuple[int, ...]]):
    """The indices that each instruction waits for, from how far back they lie."""

    __slots__ = ("_back",)

    def __init__(self, back: Sequence[tuple[int, ...]]) -> None:
        self._back = back

    def __len__(self) -> int:
        return len(self._back)

    def __getitem__(self, index: Any) -> Any:
        return tuple([index - distance for distance in self._back[index]])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Waits) and self._back == other._back

    __hash__ = None  # type: ignore[assignment]  # equal by content, and the content may be large
