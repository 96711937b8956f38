"""Building programs: instructions are appended to slots that are reserved, the code of tasks emitted once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ascendsim.errors import ProgramError
from ascendsim.program.frames import Frame
from ascendsim.program.instruction import Instruction
from ascendsim.program.loop_builder import LoopBuilder
from ascendsim.program.loops.labels import Labels
from ascendsim.program.loops.laps import Lap
from ascendsim.program.loops.rings import Change, Move, Ring
from ascendsim.program.loops.turns import Turns, turned_on
from ascendsim.program.places import Gm, GmTensor, Slot
from ascendsim.program.posts import VECTOR_CORES, Post
from ascendsim.program.program import Program
from ascendsim.program.units import Aim, Index, Nest, Step, Unit
from ascendsim.program.views import View
from ascendsim.program.waits import HAZARDS

if TYPE_CHECKING:
    from ascendsim.profile import Profile

__all__ = ["HAZARDS", "ProgramBuilder"]


class _Known(NamedTuple):
    """Code that is known, and what it changes in the rings, told by its own places.

    `lap` is the one from which its laps were counted when it was written down; `begins` are the rings that it
    uses, with the turn of each at which it began then.
    """

    code: Unit | Nest
    changes: tuple[Change, ...]
    lap: int
    begins: tuple[tuple[Ring, int], ...]


class _Recalled:
    """Known code where all rings stand in one way: its turns there, and how it moves the rings on."""

    __slots__ = ("code", "lap", "moves", "turns")

    def __init__(self, known: _Known, turns: Turns | None) -> None:
        self.code, changes, self.lap, _ = known
        self.turns = turns
        self.moves: tuple[Move, ...] = tuple([change.ring.move(change) for change in changes])


class ProgramBuilder(LoopBuilder):
    """Collect the instructions of one core, or of a cube core and the vector cores beside it (`posts.py`).

    `hazards` names the classes of waits that hold; all of them, except in tests that show what a missing
    class does.
    """

    def __init__(self, profile: Profile, hazards: frozenset[str] = HAZARDS) -> None:
        super().__init__(profile)
        self._hazards = hazards
        # Code known by what it does and finds, as its rings are told from where it begins; and the same as
        # they stand, which is looked up first, as it asks for less.
        self._known: dict[Hashable, _Known] = {}
        self._recalls: dict[Hashable, _Recalled] = {}

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
        """Return find(task, *args), by which the next instruction that has it lays out or reads a tile.

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
        flat: tuple[Hashable, ...] = ()
        for own in given.values():
            flat += own
        labels = [ring.labels(own, lap) for ring, own in given.items()]
        # The places are numbered in the order in which they are given.
        here = fixed, shape, *given, *labels, *[ring.at for ring in self._rings]
        recalled = self._recalls.get(here)
        if recalled is None:
            found = dict(zip(given, labels, strict=True))
            alike = fixed, shape, *given, *[ring.found(found.get(ring)) for ring in self._rings]
            known = self._known.get(alike)
            if known is None:
                yield from self._written_down(task, alike, given, found, lap, flat)
                return
            recalled = self._recalls[here] = _Recalled(known, self._turned(known))
        for ring, at, taken, fills in recalled.moves:
            ring.at = at
            ring.taken += taken
            if ring.named:
                ring.fill(fills, given.get(ring, ()), lap)
        step = Step(recalled.code, task, lap - recalled.lap, flat, self._in_loop, recalled.turns)
        # Another program of this builder may have emitted it.
        if recalled not in self._recalled:
            self._recalled.add(recalled)
            self._write(step)
        self._frame.append(step)

    def _written_down(
        self,
        task: Any,
        alike: Hashable,
        given: Mapping[Ring, tuple[Hashable, ...]],
        found: Mapping[Ring, Labels],
        lap: int,
        flat: tuple[Hashable, ...],
    ) -> Iterator[Any]:
        """Yield a task whose code is not known, and note that code."""
        outer, self._frame = self._frame, Frame(self._ring_of, self._frame).of(task, given)
        then = [(ring, ring.at, ring.taken) for ring in self._rings]
        try:
            yield task
            code = self._frame.code()
        finally:
            self._frame = outer
        changes = tuple(
            [
                ring.change(at, ring.taken - taken, found.get(ring), given.get(ring, ()), lap)
                for ring, at, taken in then
                if ring.taken != taken or ring.at is not at
            ]
        )
        touched = code.touched
        used = tuple([(ring, at.begin) for ring, at, _ in then if not touched.isdisjoint(ring.numbers)])
        self._known[alike] = _Known(code, changes, lap, used)
        self._frame.append(Step(code, task, 0, flat, self._in_loop))

    def _turned(self, known: _Known) -> Turns | None:
        """Return the turns of code that was written down for other turns of the rings."""
        rings = [(ring.slots, (ring.at.begin - first) % len(ring.slots)) for ring, first in known.begins]
        return turned_on(len(self._slots), rings)

    def build(self) -> Program:
        """Return the finished program."""
        frame = self._frame
        frame.close()
        frame.straight(len(frame.steps))
        return Program(
            tuple(frame.steps), tuple(frame.segments), tuple(self._slots), dict(self._used), self._hazards
        )
