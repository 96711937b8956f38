"""The code that is being written down: of a program, or of a task of it that others are like."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from ascendsim.errors import ProgramError
from ascendsim.program.instruction import Instruction
from ascendsim.program.loops.labels import place_in
from ascendsim.program.loops.rings import Ring
from ascendsim.program.places import Slot
from ascendsim.program.posts import Post
from ascendsim.program.units import Aim, Nest, Part, Segment, Step, Unit, count
from ascendsim.program.uses import Uses
from ascendsim.program.views import View, has, wrong_views


class Frame:
    """Steps and segments so far, and the instructions that belong to no step yet.

    Of a whole program, unless `of` says of which task. `rings` has the ring of every slot that is in one;
    `outer` is the frame of what the task is a part of.
    """

    def __init__(self, rings: dict[int, Ring], outer: Frame | None = None) -> None:
        self._rings = rings
        self._outer = outer
        # Whether it is a task, whose slices are found for other tasks, too.
        self.of_task = False
        self._task: Any = None
        # The places of its tiles, ring by ring; the number of the first one of each ring, and those of it.
        self._places: tuple[Hashable, ...] = ()
        self._own: dict[Ring, tuple[int, tuple[Hashable, ...]]] = {}
        self._owners: tuple[int, ...] = ()
        self.steps: list[Step] = []
        self.segments: list[Segment] = []
        self._cut = 0
        self._begin()

    def _begin(self) -> None:
        """Begin with instructions that belong to no step yet."""
        self._open: list[Instruction] = []
        self._uses = Uses.none()
        self._posts: dict[int, Post] = {}
        # How those on GM find their slices, and of which places they fill tiles.
        self._aimed = False
        self._aims: list[Aim] = []
        self._fills: list[int] = []
        # How some read a tile, each with the number of instructions before it.
        self._views: list[tuple[int, View]] = []

    def of(self, task: Any, given: Mapping[Ring, tuple[Hashable, ...]]) -> Frame:
        """Let it be that of a task whose tiles have these places; return it."""
        self.of_task, self._task = True, task
        for ring, own in given.items():
            self._own[ring] = len(self._places), own
            self._places += own
            self._owners += (ring.first,) * len(own)
        return self

    def __len__(self) -> int:
        # Counted when somebody asks, which is for messages.
        before = 0 if self._outer is None else len(self._outer)
        loose = sum([len(step.unit) for step in self.steps[self._cut :]])
        return before + count(self.steps, self.segments) + loose + len(self._open)

    def aim(self, aim: Aim, task: Any) -> None:
        """Note how the next instruction on GM finds its slice."""
        self._require_own(task, "a slice", aim.find)
        self._aims.append(aim)
        self._aimed = True

    def view(self, view: View, task: Any) -> None:
        """Note how the next instruction that has this view finds it."""
        self._require_own(task, "a view", view.find)
        self._views.append((len(self._open), view))

    def _require_own(self, task: Any, what: str, find: Callable[..., Any]) -> None:
        if task != self._task:
            raise ProgramError(
                f"the code of task {self._task} finds {what} by {find.__name__} for task {task}; it "
                "must be for the task itself, or those of tasks that are alike could not be found"
            )

    def add(self, instruction: Instruction, post: Post | None, written: bytearray) -> Slot | None:
        """Append one instruction, and mark what it writes; but if it reads what is not, return that slot."""
        reads, writes = instruction.reads, instruction.writes
        if post is not None:
            reads, writes = reads + post.reads, writes + post.writes
        # For every instruction there is: so all is done in one pass over its slots.
        slots, ends = self._uses
        for slot in reads:
            number = slot.index
            if not written[number]:
                del slots[ends[-1] if ends else 0 :]
                return slot
            slots.append(2 * number)
        for slot in writes:
            number = slot.index
            written[number] = 1
            slots.append(2 * number + 1)
        ends.append(len(slots))
        if post is not None:
            self._posts[len(self._open)] = post
        self._open.append(instruction)
        if self._aimed and instruction.gm is not None:
            self._aimed = False
            self._fills.append(self._filled(instruction.writes))
        return None

    def _filled(self, slots: tuple[Slot, ...]) -> int:
        """Return the number of the place of which a slot receives a tile, or -1."""
        for slot in slots:
            ring = self._rings.get(slot.index)
            if ring is not None and (held := ring.held_by(slot)) is not None:
                # Another ring may have an equal place for tiles of another tensor.
                begin, own = self._own.get(ring, (0, ()))
                number = place_in(held, own)
                return begin + number if number >= 0 else -1
        return -1

    def close(self) -> None:
        """Make a step of the instructions that belong to none yet."""
        if self._open:
            self.append(Step(self._finished(), self._task, 0, self._places))

    def _finished(self) -> Unit:
        aims, views = self._whole_aims(), self._views_by_user()
        unit = Unit(tuple(self._open), aims, self._posts, self._uses, views, self._owners)
        if self.of_task and {len(self._aims), len(self._fills)} != {len(unit.on_gm)}:
            raise ProgramError(
                f"a unit of code has {len(unit.on_gm)} instructions on global memory, of which "
                f"{len(self._aims)} take their slice from ProgramBuilder.gm; all must, so that it can be "
                "found for other tasks"
            )
        self._begin()
        return unit

    def _views_by_user(self) -> dict[int, View]:
        """Return the views by the numbers of the instructions that have them, one each, in order."""
        # By identity: an equal one may be found in another way.
        open_, found, at = self._open, {}, -1
        for first, view in self._views:
            at = max(first, at + 1)
            while at < len(open_) and not has(open_[at], view):
                at += 1
            if at >= len(open_):
                raise wrong_views([view for _, view in self._views], open_)
            found[at] = view
        return found

    def _whole_aims(self) -> tuple[Aim, ...] | None:
        """Return the aims with the places that they fill; None: slices are as they are written."""
        if not self.of_task:
            return None
        found = zip(self._aims, self._fills, strict=False)
        return tuple([aim if place < 0 else Aim(aim.find, aim.args, place) for aim, place in found])

    def append(self, step: Step) -> None:
        """Append a step; that of a task tells it as a part of the task that is written down."""
        if self.of_task:
            unit, task, shift, places, in_loop, turns = step
            step = Step(unit, Part.of(task, self._task), shift, places, in_loop, turns)
        self.steps.append(step)

    def straight(self, end: int, shift: int = 0) -> None:
        """Make the steps since the last segment one that runs once, with its laps moved on."""
        if end > self._cut:
            self.segments.append(Segment(self._cut, end, 1, shift))
        self._cut = end

    def repeat(self, begins: Sequence[int], times: int, rest: int, step: int = 1) -> None:
        """Run the last steps so many times, then those of the first `rest` of their rounds once more.

        begins   where the steps of each round begin, the first of them here
        step     by how much the lap rises from round to round
        """
        steps, period = len(self.steps), len(begins) * step
        self.straight(begins[0])
        if begins[0] == steps:
            # A body without any code.
            return
        self.segments.append(Segment(begins[0], steps, times, 0, period))
        end = [*begins, steps][rest]
        if rest:
            self.segments.append(Segment(begins[0], end, 1, times * period))
        self._cut = steps

    def code(self) -> Unit | Nest:
        """Return the code of the task: a unit if it came in one piece."""
        self.close()
        self.straight(len(self.steps))
        if not self.steps:
            return self._finished()
        [(unit, task, *_, turns), *others] = self.steps
        if not others and task == Part() and turns is None and self.segments == [Segment(0, 1)]:
            return unit
        return Nest(tuple(self.steps), tuple(self.segments), self._places, self._owners)
