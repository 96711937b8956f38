"""Building programs: instructions are appended to slots that are reserved, the bodies of loops emitted once.

A body is told from another one by what it finds: what the rings of slots hold, and whose turn it is. As soon
as a round finds what an earlier one found, the rounds from there on repeat, and so does their code.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ascendsim.errors import ProgramError
from ascendsim.program.frames import Frame
from ascendsim.program.instruction import Instruction
from ascendsim.program.loops.chains import Chains, Link
from ascendsim.program.loops.laps import Lap
from ascendsim.program.loops.rings import Change, Ring, RingState, changes_of
from ascendsim.program.loops.turns import Turns, turned_on
from ascendsim.program.places import Gm, GmTensor, Slot
from ascendsim.program.posts import VECTOR_CORES, Post
from ascendsim.program.program import Program
from ascendsim.program.reserved import Reserved
from ascendsim.program.units import Aim, Index, Nest, Step, Unit, View
from ascendsim.program.waits import HAZARDS

if TYPE_CHECKING:
    from ascendsim.profile import Profile

__all__ = ["HAZARDS", "ProgramBuilder"]


class _LapCode(NamedTuple):
    """The code of a round, as emitted for a lap, and how it leaves the rings, told from that lap."""

    lap: int
    steps: tuple[Step, ...]
    after: tuple[RingState, ...]


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


class ProgramBuilder(Reserved):
    """Collect the instructions of one core, or of a cube core and the vector cores beside it (`posts.py`).

    `hazards` names the classes of waits that hold; all of them, except in tests that show what a missing
    class does.
    """

    def __init__(self, profile: Profile, hazards: frozenset[str] = HAZARDS) -> None:
        super().__init__(profile)
        self._hazards = hazards
        # Code known by what it does and finds.
        self._known: dict[Hashable, _Known] = {}
        self._laps: dict[Hashable, _LapCode] = {}
        self._chains = Chains()
        self._first_lap: int | None = None
        self.restart()

    def restart(self) -> None:
        """Begin another program with the same slots; code that is known stays known."""
        self._frame = Frame(self._ring_of)
        self._in_loop = False
        self._written = bytearray(len(self._slots))
        # The code, with its turns, that has been appended without being written down.
        self._recalled: set[tuple[Unit | Nest, Turns | None]] = set()
        for ring in self._rings:
            ring.restart()

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

    def __len__(self) -> int:
        return len(self._frame)

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

    def _write(self, step: Step) -> None:
        """Note which slots a step writes."""
        recalled = step.unit, step.turns
        if recalled not in self._recalled:
            self._recalled.add(recalled)
            for slot in step.slots(step.unit.written):
                self._written[slot] = 1

    def loop(self, laps: range, body: Hashable = None) -> Iterator[int]:
        """Yield the rounds whose bodies have to be emitted; the others repeat them.

        All that a body carries from round to round must be in rings, and it must not ask which round it is.
        A slice of GM moves from round to round, by the step of the range, where its index names the lap.
        `body`, if it is given, tells this body from all others; then programs that share this builder share
        its code. A loop inside a loop goes through all its rounds.

        Raises   ProgramError for anything but a range that rises
        """
        if self._in_loop:
            # Plain numbers: with the laps of the outer loop these do not move on.
            yield from laps
            return
        if not isinstance(laps, range) or laps.step < 1:
            raise ProgramError(f"a loop goes through {laps!r}; it must be a range that rises")
        self._in_loop = True
        try:
            # A round that is alone repeats nothing, and to look at all rings takes time.
            yield from self._rounds(laps, body) if len(laps) > 1 else map(Lap, laps)
        finally:
            self._in_loop = False

    def _rounds(self, laps: range, body: Hashable) -> Iterator[Lap]:
        """Yield the rounds of a loop until one finds what an earlier one has found."""
        found: dict[Hashable, int] = {}
        begins: list[int] = []
        frame = self._frame
        # The steps of a task say how they follow from it, which another program cannot know.
        body = None if frame.of_task else body
        for number, lap in enumerate(laps):
            frame.close()
            state = tuple([ring.whole(lap) for ring in self._rings])
            if state in found:
                self._repeat(laps, found[state], begins, list(found))
                break
            found[state] = number
            begins.append(len(frame.steps))
            known = self._laps.get((body, state))
            if known is None:
                yield Lap(lap)
                frame.close()
                if body is not None:
                    after = tuple([ring.whole(lap) for ring in self._rings])
                    self._laps[body, state] = _LapCode(lap, tuple(frame.steps[begins[-1] :]), after)
            else:
                self._again(known, lap)

    def _again(self, known: _LapCode, lap: int) -> None:
        """Append the code of a round that another program has emitted, and leave the rings as that does."""
        for step in known.steps:
            self._frame.append(step.moved(lap - known.lap))
            self._write(step)
        for ring, state in zip(self._rings, known.after, strict=True):
            ring.take(state, lap)

    def _repeat(self, laps: range, first: int, begins: list[int], states: list[Any]) -> None:
        """Repeat the rounds since number `first` for all that are left, and leave the rings as those do."""
        times, rest = divmod(len(laps) - first, len(begins) - first)
        self._frame.repeat(begins[first:], times, rest, laps.step)
        for ring, state in zip(self._rings, states[first + rest], strict=True):
            ring.take(state, laps.start + len(laps) * laps.step)

    def chain(self, lap: int, links: Iterable[Hashable], body: Hashable) -> Iterator[tuple[int, Any]]:
        """Yield those of some links of a round whose code has to be emitted, each with the lap that it names.

        For a loop of one round. A link is known where an earlier program has come to it, in whichever round,
        with its rings as they are now; then its code is appended. So that must follow from the link, the
        `body` and the rings alone, and name the round as in a loop. Inside of a loop or a task no link is,
        nor in the first round of all: where there is no other one, nobody comes to a link again.
        """
        if self._first_lap is None:
            self._first_lap = lap
        if self._in_loop or self._frame.of_task or lap == self._first_lap:
            for own in self.loop(range(lap, lap + 1)):
                for link in links:
                    yield own, link
            return
        self._in_loop = True
        try:
            yield from self._unknown(lap, links, body)
        finally:
            self._in_loop = False

    def _unknown(self, lap: int, links: Iterable[Hashable], body: Hashable) -> Iterator[tuple[int, Any]]:
        """Yield the links of a chain that are not known, as if their lap were 0: then others find them."""
        frame, chains, own = self._frame, self._chains, Lap(0)
        frame.close()
        frame.straight(len(frame.steps))
        self._move(-lap)
        stand, behind = chains.stand(self._rings, self._written), False
        for link in links:
            known = chains.known.get((stand, body, link))
            if known is not None:
                frame.steps += known.steps
                stand, behind = known.after, True
                continue
            if behind:
                chains.take(stand, self._rings, self._written)
            first, before = len(frame.steps), stand
            yield own, link
            frame.close()
            stand, behind = chains.stand(self._rings, self._written), False
            chains.known[before, body, link] = Link(tuple(frame.steps[first:]), stand)
        if behind:
            chains.take(stand, self._rings, self._written)
        frame.straight(len(frame.steps), lap)
        self._move(lap)

    def _move(self, by: int) -> None:
        """Let the tiles that rings hold be those of rounds further on."""
        for ring in self._rings:
            if ring.named:
                ring.take(ring.whole(), by)

    def build(self) -> Program:
        """Return the finished program."""
        frame = self._frame
        frame.close()
        frame.straight(len(frame.steps))
        return Program(
            tuple(frame.steps), tuple(frame.segments), tuple(self._slots), dict(self._used), self._hazards
        )
