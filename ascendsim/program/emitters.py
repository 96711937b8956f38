"""What makes the instructions of a loop nest, and what those have in common that cost the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ascendsim.errors import ProgramError
from ascendsim.program.indices import Axis, Number
from ascendsim.program.instruction import Instruction
from ascendsim.program.places import Slot
from ascendsim.program.walk import SLOT_BITS

Operand = Number | Slot | tuple[Number, int]


class Form(NamedTuple):
    """What rows have in common that cost the same and use their slots in the same way.

    instruction   one of them; its slots and places are some
    core          of the program on which it runs
    uses          the slots that it uses, reads first: (number of the slot in the row, how many slots behind
                  that one, whether it is written)
    """

    instruction: Instruction
    core: int
    uses: tuple[tuple[int, int, bool], ...]


class Streams(NamedTuple):
    """Whether an emitter trails others and moves bytes, and the rings that it reads and writes."""

    trails: bool
    moves: bool
    reads: frozenset[int]
    writes: frozenset[int]


class Emitter(NamedTuple):
    """What makes the instruction of a row: make(*slots, *indices).

    `spans` says of each slot of the row how many are handed on with it as a tuple, 0: it alone; `axes` are
    those of the indices, and `fixed` the ones that are plain numbers. `post` is the core of the program, and
    how many of the last slots are read and written for a hand-over.
    """

    make: Callable[..., Instruction | None]
    spans: tuple[int, ...]
    axes: tuple[Axis, ...]
    fixed: tuple[int | None, ...]
    post: tuple[int, int, int]

    @property
    def extents(self) -> list[int]:
        """The extents of its indices."""
        return [axis.extent for axis in self.axes]

    def named(self, indices: Sequence[int]) -> str:
        """Return what is called for some indices, in words."""
        return f"{self.make.__name__}({', '.join(map(str, indices))})"

    def handed(self, slots: Sequence[Slot]) -> tuple[list[Any], tuple[Slot, ...], tuple[Slot, ...]]:
        """Return what `make` is given of its slots, and those that are read and written for a hand-over."""
        handed: list[Any] = []
        at = 0
        for count in self.spans:
            handed.append(tuple(slots[at : at + count]) if count else slots[at])
            at += max(1, count)
        _, reads, writes = self.post
        own = len(handed) - reads - writes
        return handed[:own], tuple(handed[own : own + reads]), tuple(handed[own + reads :])


def first_of(operand: Operand) -> Number:
    """Return the first slot of an operand."""
    if isinstance(operand, tuple):
        operand = operand[0]
    if isinstance(operand, Slot):
        return Number({}, operand.index, Axis(operand.index + 1), operand.name)
    if not isinstance(operand, Number):
        raise ProgramError(
            f"emit is given {type(operand).__name__} as a slot; give a tile, as nest.next(ring) and "
            "nest.hold(ring, ...) return it, or a slot of nest.slots(...)"
        )
    return operand


def shaped(made: Instruction | None) -> str:
    """Return what an instruction costs by, in words."""
    return "nothing" if made is None else f"{type(made).__name__} of shape {made.shape!r}"


def stand_ins(spans: Sequence[int]) -> list[Slot]:
    """Return slots for operands, end to end; their numbers say which operand, and which slot of it."""
    return [
        Slot("", 0, "", (number << SLOT_BITS) + at)
        for number, count in enumerate(spans)
        for at in range(max(1, count))
    ]
