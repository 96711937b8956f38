"""The program of one core: its instructions, and the waits between its pipes.

A schedule asks a `ProgramBuilder` (`builder.py`) for slots in on-chip buffers and appends instructions that
name the slots they use. A `Kernel` (`kernel.py`) says which core runs which program, phase after phase.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ascendsim.program.instruction import Instruction
from ascendsim.program.places import Slot
from ascendsim.program.template import Template, Waits


@dataclass(frozen=True, slots=True)
class Program:
    """The instructions of one core in program order, with the waits between its pipes.

    `done_back[i]` says how far before instruction i those lie whose results must be visible before it starts
    (it reads or overwrites them); `end_back[i]` the same of those that must have left their pipe (they read
    what i overwrites); `trail_back[i]`, where there is one, of those whose results i takes piece by piece
    while they are made (the unit flag). Distances are the same wherever a template recurs. `buffer_bytes` is
    what the slots reserve of each buffer. `templates` are where each template begins and which it is, in
    order; a program is right without them, but takes longer to price.
    """

    instructions: tuple[Instruction, ...]
    done_back: tuple[tuple[int, ...], ...]
    end_back: tuple[tuple[int, ...], ...]
    slots: tuple[Slot, ...]
    buffer_bytes: Mapping[str, int]
    templates: tuple[tuple[int, Template], ...] = ()
    # Few instructions trail others, so a mapping is smaller than one more tuple for each instruction.
    trail_back: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.instructions)

    @property
    def after_done(self) -> Waits:
        """For each instruction the indices whose results must be visible before it starts."""
        return Waits(self.done_back)

    @property
    def after_end(self) -> Waits:
        """For each instruction the indices that must have left their pipe before it starts."""
        return Waits(self.end_back)

    def trailed(self, index: int) -> tuple[int, ...]:
        """Return the indices of the instructions that one trails; mostly there are none."""
        return tuple([index - back for back in self.trail_back.get(index, ())])
