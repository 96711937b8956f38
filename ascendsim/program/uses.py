"""Which slots consecutive instructions use, noted once, when they are appended."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ascendsim.program.instruction import Instruction
from ascendsim.program.posts import HOME, Post


class Uses(NamedTuple):
    """The slots that instructions read and write, in order.

    `slots` has twice the number of each slot, and one more where it is written; those of instruction i end at
    `ends[i]`.
    """

    slots: array[int]
    ends: array[int]

    @classmethod
    def none(cls) -> Uses:
        """Return those of no instruction."""
        return cls(array("q"), array("q"))

    @classmethod
    def of(cls, instructions: Iterable[Instruction], posts: Mapping[int, Post]) -> Uses:
        """Return those of some instructions; `posts` are those that have one, by their place."""
        made = cls.none()
        for at, instruction in enumerate(instructions):
            post = posts.get(at, HOME)
            made.slots.extend([2 * slot.index for slot in instruction.reads + post.reads])
            made.slots.extend([2 * slot.index + 1 for slot in instruction.writes + post.writes])
            made.ends.append(len(made.slots))
        return made

    @property
    def touched(self) -> set[int]:
        """The slots that are read or written."""
        return {use >> 1 for use in set(self.slots)}

    @property
    def written(self) -> set[int]:
        """The slots that are written."""
        return {use >> 1 for use in set(self.slots) if use & 1}
