"""The program of one core, or of a cube core with the vector cores beside it: its loops over units of code.

A schedule asks a `ProgramBuilder` (`builder.py`) for slots in on-chip buffers and appends instructions that
name the slots they use, in loops whose bodies it emits once. A `Kernel` (`kernel.py`) says which core runs
which program, phase after phase.

An example: a core loads a tile of image 0, 1, ... 9 in turn into two slots, and multiplies each. The unit of
image 0 uses slot 0, that of image 1 slot 1; image 2 finds the slots as image 0 did. So there are two units,
two steps, and one segment: steps 0 to 2, five times, every time two images further on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ascendsim.frozen import cached_property
from ascendsim.program.instruction import Instruction
from ascendsim.program.loops.turns import Turns, turned_post
from ascendsim.program.places import Slot
from ascendsim.program.posts import HOME, Post, core_of
from ascendsim.program.units import Segment, Step, Unit, count, unrolled
from ascendsim.program.waits import HAZARDS, Derived, Waits, derive


class Program:
    """The instructions of one core, or of a cube core with its vector cores, in program order.

    `steps` and `segments` are its code, every loop's body once. `hazards` are the classes of waits between
    its pipes that hold. `buffer_bytes` is what the slots reserve of each buffer. What it stands for in full
    (`instructions` and the waits) is worked out when somebody asks.
    """

    def __init__(
        self,
        steps: tuple[Step, ...],
        segments: tuple[Segment, ...],
        slots: tuple[Slot, ...],
        buffer_bytes: Mapping[str, int],
        hazards: frozenset[str] = HAZARDS,
        waits: Derived | None = None,
    ) -> None:
        self._given = waits
        # What must live as long as this program: other programs may share its code.
        self.keeps: object = None
        self.steps = steps
        self.segments = segments
        self.slots = slots
        self.buffer_bytes = buffer_bytes
        self.hazards = hazards

    @classmethod
    def straight(
        cls,
        instructions: Sequence[Instruction],
        slots: tuple[Slot, ...],
        buffer_bytes: Mapping[str, int],
        hazards: frozenset[str] = HAZARDS,
        waits: Derived | None = None,
    ) -> Program:
        """Return a program without loops."""
        steps = (Step(Unit(tuple(instructions))),)
        return cls(steps, (Segment(0, 1),), slots, buffer_bytes, hazards, waits)

    def __len__(self) -> int:
        return self._length

    @cached_property
    def _length(self) -> int:
        # Asked by all who lay tables out.
        return count(self.steps, self.segments)

    def expanded(self) -> Iterator[Instruction]:
        """Yield all instructions in order, loops unrolled."""
        for step, shift in unrolled(self.steps, self.segments):
            yield from step.unit.at(step.task, shift, step.turns, self.slots)

    @cached_property
    def instructions(self) -> tuple[Instruction, ...]:
        """All instructions in order, loops unrolled."""
        return tuple(self.expanded())

    @cached_property
    def units(self) -> tuple[Unit, ...]:
        """All units of code that it consists of, each once."""
        codes = dict.fromkeys([step.unit for step in self.steps])
        return tuple(dict.fromkeys([unit for code in codes for unit in code.units()]))

    def placed(self) -> Iterator[tuple[int, Unit]]:
        """Yield where each unit begins, loops unrolled, and the unit."""
        for at, unit, _ in self.turned():
            yield at, unit

    def turned(self) -> Iterator[tuple[int, Unit, Turns | None]]:
        """Yield where each unit begins, loops unrolled, the unit, and its turns."""
        at = 0
        for step, _ in unrolled(self.steps, self.segments):
            for unit, turns in step.unit.unrolled(step.turns):
                yield at, unit, turns
                at += len(unit)

    @cached_property
    def posts(self) -> Mapping[int, Post]:
        """The posts of all instructions that have one, by index."""
        if not any(unit.posts for unit in self.units):
            return {}
        return {
            begin + at: post if turns is None else turned_post(post, turns, self.slots)
            for begin, unit, turns in self.turned()
            for at, post in unit.posts.items()
        }

    @cached_property
    def pipes(self) -> Sequence[str]:
        """The name of every instruction's pipe, which tells its core, too (`posts.py`)."""
        return tuple([pipe for _, unit in self.placed() for pipe in unit.names])

    @cached_property
    def used(self) -> tuple[str, ...]:
        """The names of all pipes that it uses, in the order in which they are met."""
        return tuple(dict.fromkeys([pipe for unit in self.units for pipe in unit.pipes]))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """How many instructions each of its cores has: one number if it runs on one core only."""
        sizes = [0] * (1 + max([core_of(pipe) for pipe in self.used], default=0))
        if len(sizes) == 1:
            return (len(self),)
        for pipe in self.pipes:
            sizes[core_of(pipe)] += 1
        return tuple(sizes)

    def core_of(self, index: int) -> int:
        """Return the core of an instruction."""
        return self.posts.get(index, HOME).core

    @cached_property
    def _waits(self) -> Derived:
        if self._given is not None:
            return self._given
        return derive(self.instructions, len(self.slots), self.hazards, self.posts)

    @property
    def usual(self) -> bool:
        """Whether its waits are those that follow from its slots, all classes of them."""
        return self._given is None and self.hazards == HAZARDS

    @property
    def done_back(self) -> tuple[tuple[int, ...], ...]:
        """For each instruction how far back those lie whose results must be visible before it starts."""
        return self._waits.done_back

    @property
    def end_back(self) -> tuple[tuple[int, ...], ...]:
        """For each instruction how far back those lie that must have left their pipe before it starts."""
        return self._waits.end_back

    @property
    def trail_back(self) -> Mapping[int, tuple[int, ...]]:
        """For instructions that trail others how far back those lie."""
        return self._waits.trail_back

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
