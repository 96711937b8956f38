"""The code of a program: units in one piece, and the steps and loops in which they follow each other."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from ascendsim.errors import ProgramError
from ascendsim.program.instruction import Instruction
from ascendsim.program.loops.laps import moved, require_whole
from ascendsim.program.loops.turns import Turns, joined, turned_instruction
from ascendsim.program.places import Gm, GmTensor, Slot
from ascendsim.program.posts import Post, pipe_on
from ascendsim.program.uses import Uses
from ascendsim.program.views import View, require_once

Index = tuple[Any, ...]


class Aim(NamedTuple):
    """How an instruction of a unit finds its slice of GM for a task: find(task, *args).

    `place` is the number, among the places of the unit's step, of the one that the slice follows from: the
    instruction fills a slot of a ring with a tile of that place. -1: the slice follows from the whole task.
    """

    find: Callable[..., Index]
    args: tuple[Any, ...]
    place: int = -1


class Unit:
    """Consecutive instructions that recur; compared by identity.

    Where a unit recurs, only slices of global memory may be others, and how tiles lie and are read at a cost.
    `aims` says how slices follow from a task, one for each instruction on GM, in order; without, they are as
    written, but for their laps. `views` and `posts` are those of the instructions that have one, by their
    place; `names` are the pipes of all, `uses` the slots that they read and write; `touched` are all of
    those, `written` the ones that are written. `rings` has for each place of its task the ring that the tile
    belongs to, by the number of its first slot: equal places of two rings may tell different tiles.
    """

    __slots__ = (
        *(
            "_places",
            "_views_checked",
            "aims",
            "instructions",
            "names",
            "on_gm",
            "pipes",
            "posts",
            "rings",
            "touched",
            "uses",
            "views",
            "written",
        ),
    )

    def __init__(
        self,
        instructions: tuple[Instruction, ...],
        aims: tuple[Aim, ...] | None = None,
        posts: Mapping[int, Post] | None = None,
        uses: Uses | None = None,
        views: Mapping[int, View] | None = None,
        rings: tuple[int, ...] = (),
    ) -> None:
        self.instructions = instructions
        self.rings = rings
        self.views = views or {}
        self._views_checked = not self.views
        self.posts = posts or {}
        self.uses = Uses.of(instructions, self.posts) if uses is None else uses
        different = set(self.uses.slots)
        self.touched = {use >> 1 for use in different}
        self.written = {use >> 1 for use in different if use & 1}
        found = [(at, place) for at, made in enumerate(instructions) if (place := made.gm) is not None]
        self.on_gm = tuple([at for at, _ in found])
        # The slices of those, as they are written.
        self._places = tuple([place for _, place in found])
        self.aims = aims
        for place in self._places:
            require_whole(place.index)
        self.names = [made.pipe for made in instructions]
        for at, post in self.posts.items():
            self.names[at] = pipe_on(post.core, self.names[at])
        self.pipes = tuple(dict.fromkeys(self.names))

    def __len__(self) -> int:
        return len(self.instructions)

    def units(self) -> Iterator[Unit]:
        """Yield the units that it consists of, which is itself."""
        yield self

    def unrolled(self, turns: Turns | None = None) -> Iterator[tuple[Unit, Turns | None]]:
        """Yield the units in order, loops unrolled, with their turns, as `Nest` does: this one."""
        yield self, turns

    def tensor(self, number: int) -> GmTensor:
        """Return the tensor of which instruction `number` of those on GM names a slice."""
        return self._places[number].tensor

    def slice(self, number: int, task: Any) -> Gm:
        """Return the slice of GM that instruction `number` of those on GM names for a task."""
        place = self._places[number]
        if self.aims is None:
            return place
        find, args, _ = self.aims[number]
        return Gm(place.tensor, find(task, *args))

    def slices(self, task: Any) -> Iterator[Gm]:
        """Yield the slices of GM that the instructions name for a task, in order."""
        for number in range(len(self.on_gm)):
            yield self.slice(number, task)

    def at(
        self, task: Any, by: int, turns: Turns | None = None, slots: Sequence[Slot] = ()
    ) -> Sequence[Instruction]:
        """Return the instructions for a task, with all laps moved on, and rings of the `slots` turned on."""
        if turns is not None:
            return [turned_instruction(each, turns, slots) for each in self.at(task, by)]
        if self.aims is None and not by:
            return self.instructions
        made: list[Any] = list(self.instructions)
        task = moved(task, by)
        for at, place in zip(self.on_gm, self.slices(task), strict=True):
            tensor, index = place
            if self.aims is None:
                index = moved(index, by)
            old = made[at]
            fields = [Gm(tensor, index) if isinstance(field, Gm) else field for field in old]
            made[at] = type(old)(*fields)
        if not self._views_checked:
            # When somebody runs them, and once: who only asks what they cost has no views to find.
            require_once(self.views.values(), self.instructions)
            self._views_checked = True
        for at, (find, args, written) in self.views.items():
            view, old = find(task, *args), made[at]
            made[at] = type(old)(*[view if field is written else field for field in old])
        return made


class Step(NamedTuple):
    """One run of a unit or a nest for a task (None: for what it was written for), with its laps moved on.

    `places` are those of the task's tiles, ring by ring. `in_loop`: task and places may name laps. In a nest
    the task is a `Part` of the nest's. `turns` (`turns.py`) say for which slots it runs; None: as it is
    written.
    """

    unit: Unit | Nest
    task: Hashable = None
    shift: int = 0
    places: tuple[Hashable, ...] = ()
    in_loop: bool = False
    turns: Turns | None = None

    def moved(self, by: int) -> Step:
        """Return it with its laps moved further on."""
        return Step(self.unit, self.task, self.shift + by, self.places, self.in_loop, self.turns)

    def slots(self, written: Iterable[int]) -> Iterable[int]:
        """Return the slots that some slots of its code stand for."""
        return written if self.turns is None else [self.turns[slot] for slot in written]


class Segment(NamedTuple):
    """Steps `first` to `last`, so many times; laps are moved by `shift`, and `by` more each time."""

    first: int
    last: int
    times: int = 1
    shift: int = 0
    by: int = 0

    def shifts(self) -> range:
        """Return by how much laps are moved each time."""
        return range(self.shift, self.shift + max(self.by, 1) * self.times, max(self.by, 1))


class Part(NamedTuple):
    """A task inside another one: that task itself (no `kind`), or a tuple of a kind that begins with it."""

    kind: Callable[..., Any] | None = None
    rest: tuple[Any, ...] = ()

    @classmethod
    def of(cls, task: Any, whole: Any) -> Part:
        """Return how a task follows from a whole one.

        Raises   ProgramError if it is neither that one nor begins with it
        """
        if task == whole:
            return cls()
        if not isinstance(task, tuple) or not task or task[0] != whole:
            raise ProgramError(
                f"task {task} is written down inside of task {whole}, but does not tell how it follows from "
                "it; it must be that task, or a tuple that begins with it"
            )
        return cls(_plain if type(task) is tuple else type(task), task[1:])

    def within(self, whole: Any) -> Any:
        """Return the task that follows from another whole one."""
        return whole if self.kind is None else self.kind(whole, *self.rest)


def _plain(*parts: Any) -> tuple[Any, ...]:
    return parts


class Nest:
    """The steps and loops of a task, which recur as a whole; compared by identity.

    The tasks of its steps are parts of its own. `places` are those for which it was written down, `rings`
    those that their tiles belong to, as of a unit.
    """

    __slots__ = ("_count", "places", "rings", "segments", "steps", "written")

    def __init__(
        self,
        steps: tuple[Step, ...],
        segments: tuple[Segment, ...],
        places: tuple[Hashable, ...] = (),
        rings: tuple[int, ...] = (),
    ) -> None:
        self.rings = rings
        self.steps = steps
        self.segments = segments
        self.places = places
        self._count = count(steps, segments)
        # The slots that are written.
        self.written: set[int] = {slot for step in steps for slot in step.slots(step.unit.written)}

    def __len__(self) -> int:
        return self._count

    @property
    def touched(self) -> set[int]:
        """The slots that are read or written."""
        return {slot for step in self.steps for slot in step.slots(step.unit.touched)}

    def units(self) -> Iterator[Unit]:
        """Yield all units that it consists of, as they are met in its steps."""
        return chain.from_iterable([step.unit.units() for step in self.steps])

    def unrolled(self, turns: Turns | None = None) -> Iterator[tuple[Unit, Turns | None]]:
        """Yield its units in order, loops unrolled, with the turns of each."""
        for step, _ in unrolled(self.steps, self.segments):
            yield from step.unit.unrolled(joined(turns, step.turns))

    def at(
        self, task: Any, by: int, turns: Turns | None = None, slots: Sequence[Slot] = ()
    ) -> Iterator[Instruction]:
        """Yield the instructions for a task, as a unit does, loops unrolled."""
        for step, shift in unrolled(self.steps, self.segments):
            assert isinstance(step.task, Part)
            yield from step.unit.at(step.task.within(task), by + shift, joined(turns, step.turns), slots)


def unrolled(steps: Sequence[Step], segments: Sequence[Segment]) -> Iterator[tuple[Step, int]]:
    """Yield the steps in order, loops unrolled, and by how much the laps of each are moved."""
    for part in segments:
        for shift in part.shifts():
            for step in steps[part.first : part.last]:
                yield step, shift + step.shift


def count(steps: Sequence[Step], segments: Sequence[Segment]) -> int:
    """Return how many instructions these are, loops unrolled."""
    sizes = [len(step.unit) for step in steps]
    return sum(part.times * sum(sizes[part.first : part.last]) for part in segments)
