"""Which slots consecutive instructions use, noted once, when they are appended."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping

from ascendsim.program.instruction import Instruction
from ascendsim.program.places import Slot
from ascendsim.program.posts import HOME, Post


class Uses:
    """The slots that instructions read and write, in order.

    `slots` has twice the number of each slot, and one more where it is written; those of instruction i end at
    `ends[i]`.
    """

    __slots__ = ("ends", "slots")

    def __init__(self) -> None:
        self.slots = array("q")
        self.ends = array("q")

    @classmethod
    def of(cls, instructions: Iterable[Instruction], posts: Mapping[int, Post]) -> Uses:
        """Return the uses of some instructions; `posts` are those that have one, by their place."""
        made = cls()
        for at, instruction in enumerate(instructions):
            post = posts.get(at, HOME)
            made.add(instruction.reads + post.reads, instruction.writes + post.writes)
        return made

    def add(self, reads: tuple[Slot, ...], writes: tuple[Slot, ...]) -> None:
        """Note the slots of the next instruction."""
        slots = self.slots
        for slot in reads:
            slots.append(2 * slot.index)
        for slot in writes:
            slots.append(2 * slot.index + 1)
        self.ends.append(len(slots))

    @property
    def written(self) -> set[int]:
        """The slots that are written."""
        return {use >> 1 for use in self.slots if use & 1}
