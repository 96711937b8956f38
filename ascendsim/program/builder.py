"""Building programs: instructions are appended to slots that are reserved, the code of tasks emitted once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ascendsim.errors import ProgramError
from ascendsim.program.frames import Frame
from ascendsim.program.instruction import Instruction
from ascendsim.program.loop_builder import LoopBuilder
from ascendsim.program.loops.laps import Lap
from ascendsim.program.loops.rings import Change, Ring, RingState, changes_of
from ascendsim.program.loops.turns import Turns, turned_on
from ascendsim.program.places import Gm, GmTensor, Slot
from ascendsim.program.posts import VECTOR_CORES, Post
from ascendsim.program.program import Program
from ascendsim.program.units import Aim, Index, Nest, Step, Unit, View
from ascendsim.program.waits import HAZARDS

if TYPE_CHECKING:
    from ascendsim.profile import Profile

__all__ = ["HAZARDS", "ProgramBuilder"]


class _Known(NamedTuple):
    """Code that is known, and what it changes in the rings, told by its own places.

    `lap` is the one from which its laps were counted when it was written down. `turns` are by the turns of
    all rings as it begins; None as it was written down.
    """

    code: Unit | Nest
    changes: tuple[Change, ...]
    lap: int
    begins: tuple[int, ...]
    turns: dict[tuple[int, ...], Turns | None]


class ProgramBuilder(LoopBuilder):
    """Collect the instructions of one core, or of a cube core and the vector cores beside it (`posts.py`).

    `hazards` names the classes of waits that hold; all of them, except in tests that show what a missing
    class does.
    """

    def __init__(self, profile: Profile, hazards: frozenset[str] = HAZARDS) -> None:
        super().__init__(profile)
        self._hazards = hazards
        # Code known by what it does and finds.
        self._known: dict[Hashable, _Known] = {}

    def gm(self, tensor: GmTensor, find: Callable[..., Index], task: Any, *args: Any) -> Gm:
        """Return the slice find(task, *args) of a tensor, for the next instruction.

        Where the code of a task recurs for another one, the slice is found anew. But if the instruction
        fills a slot of a ring, and the ring notes a place of the task for it (`once`), then the slice is that
        of all tasks with this place: a place tells what a slot holds.
        """
        if self._frame.of_task:
            if Lap in map(type, args):
                raise ProgramError(
                    f"a unit of code finds a slice by {find.__name__} with a lap among the arguments {args}; "
                    "they are the unit's own and do not move on with a loop: let the task name the lap"
                )
            self._frame.aim(Aim(find, args), task)
        return Gm(tensor, find(task, *args))

    def view(self, find: Callable[..., Any], task: Any, *args: Any) -> Any:
        """Return find(task, *args), by which the next instruction that has it reads a tile.

        Where the code of a task recurs for another one, it is found anew; it must cost what it costs here.
        """
        found = find(task, *args)
        if self._frame.of_task:
            self._frame.view(View(find, args, found), task)
        return found

    def add(
        self,
        instruction: Instruction,
        on: int = 0,
        *,
        reads: tuple[Slot, ...] = (),
        writes: tuple[Slot, ...] = (),
    ) -> None:
        """Append one instruction of core `on`: 0, or 1 or 2 for a vector core beside the cube core.

        `reads` and `writes` are slots of a hand-over, beside those that the instruction itself names.

        Raises   ProgramError if it reads a slot that nothing has written
        """
        post = None
        if on or reads or writes:
            if not 0 <= on <= VECTOR_CORES:
                raise ProgramError(
                    f"instruction {len(self)} ({type(instruction).__name__}) is put on core {on}; a program "
                    f"has core 0, and beside a cube core the vector cores 1 to {VECTOR_CORES}"
                )
            post = Post(on, reads, writes)
        unknown = self._frame.add(instruction, post, self._written)
        if unknown is not None:
            raise ProgramError(
                f"instruction {len(self)} ({type(instruction).__name__}) reads {unknown!r}, "
                "which nothing has written"
            )

    def once(
        self,
        task: Any,
        shape: Hashable,
        places: Mapping[Ring, tuple[Hashable, ...]] | None = None,
        lap: int = 0,
    ) -> Iterator[Any]:
        """Yield the task if code like its own has not been emitted yet; else append that code, for this task.

        shape    tells its code from that of others, together with what the rings hold
        places   those of the task's tiles, for each ring whose tiles may be there already
        lap      where its own loops begin: tasks are alike if these are, counted from there

        A body may have loops, and tasks of its own (`once` again). These are tuples that begin with the task,
        as places of theirs are tuples that begin with a place of the task.
        """
        given = places or {}
        # A loop inside a loop is written out, and goes through plain numbers, which nothing moves.
        fixed, lap = (lap, 0) if self._in_loop else (None, lap)
        self._frame.close()
        begins = tuple([ring.begin for ring in self._rings])
        flat: tuple[Hashable, ...] = ()
        for own in given.values():
            flat += own
        found = [ring.found(given[ring], lap) if ring in given else ring.bare for ring in self._rings]
        # The places are numbered in the order in which they are given.
        alike = fixed, shape, *given, *found
        known = self._known.get(alike)
        if known is not None:
            for ring, state, taken, seen in known.changes:
                if seen or ring.named:
                    ring.become(state, given.get(ring, ()), lap, taken)
                else:
                    ring.taken += taken
            self._recall(known, task, lap, flat, begins)
            return
        before, then = self._states(given, lap, begins), [ring.taken for ring in self._rings]
        outer, self._frame = self._frame, Frame(self._ring_of, self._frame).of(task, flat)
        try:
            yield task
            code = self._frame.code()
        finally:
            self._frame = outer
        counts = [ring.taken - count for ring, count in zip(self._rings, then, strict=True)]
        changes = changes_of(self._rings, before, self._states(given, lap, begins), counts)
        self._known[alike] = _Known(code, changes, lap, begins, {begins: None})
        self._frame.append(Step(code, task, 0, flat, self._in_loop))

    def _states(
        self, places: Mapping[Ring, tuple[Hashable, ...]], lap: int, begins: tuple[int, ...]
    ) -> list[RingState]:
        """Return all rings for code with these places that has begun at these turns."""
        own = zip(self._rings, begins, strict=True)
        return [ring.state(places.get(ring, ()), lap, begin) for ring, begin in own]

    def _recall(
        self, known: _Known, task: Any, lap: int, places: tuple[Hashable, ...], begins: tuple[int, ...]
    ) -> None:
        """Append known code for a task, after which the rings stand already."""
        turns = known.turns[begins] if begins in known.turns else self._turned(known, begins)
        step = Step(known.code, task, lap - known.lap, places, self._in_loop, turns)
        # Another program of this builder may have emitted it.
        self._write(step)
        self._frame.append(step)

    def _turned(self, known: _Known, begins: tuple[int, ...]) -> Turns | None:
        """Return the turns of code that was written down for other turns of the rings."""
        touched = known.code.touched
        rings = [
            (ring.slots, (begin - first) % len(ring.slots))
            for ring, begin, first in zip(self._rings, begins, known.begins, strict=True)
            if not touched.isdisjoint([slot.index for slot in ring.slots])
        ]
        turns = known.turns[begins] = turned_on(len(self._slots), rings)
        return turns

    def build(self) -> Program:
        """Return the finished program."""
        frame = self._frame
        frame.close()
        frame.straight(len(frame.steps))
        return Program(
            tuple(frame.steps), tuple(frame.segments), tuple(self._slots), dict(self._used), self._hazards
        )
