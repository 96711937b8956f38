"""Units of code, and the steps and segments in which a program runs them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ascendsim.program.instruction import Instruction
from ascendsim.program.laps import moved, require_whole
from ascendsim.program.places import Gm
from ascendsim.program.posts import Post, pipe_on

Index = tuple[Any, ...]


class Aim(NamedTuple):
    """How an instruction of a unit finds its slice of GM for a task: find(task, *args)."""

    find: Callable[..., Index]
    args: tuple[Any, ...]


class Unit:
    """Consecutive instructions that recur; compared by identity.

    Where a unit recurs, only the slices of global memory may be others. `aims` says how they follow from a
    task, one for each instruction on GM, in order; without, they are as written, but for their laps. `posts`
    are those of the instructions that have one, by their place; `names` are the pipes of all, and `written`
    is the slots that are written.
    """

    __slots__ = ("aims", "instructions", "names", "on_gm", "pipes", "posts", "written")

    def __init__(
        self,
        instructions: tuple[Instruction, ...],
        aims: tuple[Aim, ...] | None = None,
        posts: Mapping[int, Post] | None = None,
    ) -> None:
        self.instructions = instructions
        self.posts = posts or {}
        self.on_gm = tuple([at for at, made in enumerate(instructions) if made.gm is not None])
        self.aims = aims
        for at in self.on_gm:
            require_whole(instructions[at].gm.index)  # type: ignore[union-attr]  # it names one
        self.names = [made.pipe for made in instructions]
        self.written = {slot.index for made in instructions for slot in made.writes}
        for at, post in self.posts.items():
            self.names[at] = pipe_on(post.core, self.names[at])
            self.written.update([slot.index for slot in post.writes])
        self.pipes = tuple(dict.fromkeys(self.names))

    def slices(self, task: Any) -> Iterator[Gm]:
        """Yield the slices of GM that the instructions name for a task, in order."""
        for number, at in enumerate(self.on_gm):
            place = self.instructions[at].gm
            assert place is not None
            if self.aims is not None:
                find, args = self.aims[number]
                place = Gm(place.tensor, find(task, *args))
            yield place

    def at(self, task: Any, by: int) -> Sequence[Instruction]:
        """Return the instructions for a task, with all laps moved on."""
        if self.aims is None and not by:
            return self.instructions
        made: list[Any] = list(self.instructions)
        for at, place in zip(self.on_gm, self.slices(moved(task, by)), strict=True):
            tensor, index = place
            if self.aims is None:
                index = moved(index, by)
            old = made[at]
            fields = [Gm(tensor, index) if isinstance(field, Gm) else field for field in old]
            made[at] = type(old)(*fields)
        return made


class Step(NamedTuple):
    """One run of a unit, for a task (None: for what it was written for), with its laps moved on."""

    unit: Unit
    task: Hashable = None
    shift: int = 0


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
