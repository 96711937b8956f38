"""What recurs in programs: pieces, and waits that are told by distance, so that they recur with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ascendsim.program.instruction import Instruction


class Template:
    """A run of instructions that recurs in programs; compared by identity.

    Where it recurs, only the slices of global memory may be others: pipes, shapes and slots are the same.
    """

    __slots__ = ("instructions",)

    def __init__(self, instructions: tuple[Instruction, ...]) -> None:
        self.instructions = instructions

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
