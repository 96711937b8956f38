"""Tasks that recur in a schedule: built by the loop's body, then repeated for other slices of global memory.

A task is what a loop of the schedule hands to its body in one round: what it computes and from which slices.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

from ascendsim.program.builder import ProgramBuilder
from ascendsim.program.places import Gm, GmTensor
from ascendsim.program.rings import Ring, RingState
from ascendsim.program.template import Template

Index = tuple[Any, ...]
Places = tuple[tuple[Hashable, ...], ...]


class _Retargeted(NamedTuple):
    """An instruction that names another slice of GM whenever its template recurs.

    For a task the slice is find(schedule, task, *args) of the tensor; `before` and `after` are the fields of
    the instruction around it.
    """

    offset: int
    make: Callable[..., Any]
    before: tuple[Any, ...]
    tensor: GmTensor
    after: tuple[Any, ...]
    find: Callable[..., Index]
    args: tuple[Any, ...]

    def to(self, schedule: Any, task: Any) -> tuple[int, Any]:
        """Return the instruction as the task needs it, and where in the template it is."""
        # Made from its fields, as this runs for every load of a program: `_replace` looks them up by name.
        place = Gm(self.tensor, self.find(schedule, task, *self.args))
        return self.offset, self.make(*self.before, place, *self.after)


def _retargeted(
    offset: int, instruction: Any, find: Callable[..., Index], args: tuple[Any, ...]
) -> _Retargeted:
    """Return how an instruction moves with its template."""
    at = next(at for at, field in enumerate(instruction) if isinstance(field, Gm))
    return _Retargeted(
        offset,
        type(instruction),
        instruction[:at],
        instruction[at].tensor,
        instruction[at + 1 :],
        find,
        args,
    )


class _Known(NamedTuple):
    """A template, its instructions on GM, and how it leaves the rings."""

    template: Template
    moving: tuple[_Retargeted, ...]
    after: tuple[RingState, ...]


class Recurring:
    """Emit the tasks of a loop; one like an earlier one becomes the same instructions on other slices of GM.

    Tasks are alike if the schedule gives them one `shape` and finds its rings in one state: then they load
    the same tiles into the same slots. A task's instructions become a template when one like it has come
    before.
    """

    def __init__(self, schedule: Any, builder: ProgramBuilder, rings: tuple[Ring, ...]) -> None:
        self._schedule = schedule
        self._builder = builder
        self._rings = rings
        # None where one such task has come: most never come again, and a template is not free to make.
        self._known: dict[Hashable, _Known | None] = {}
        self._aims: list[tuple[Callable[..., Index], tuple[Any, ...]]] = []

    def restart(self) -> None:
        """Begin another program; what is known stays."""
        self._builder.restart()
        for ring in self._rings:
            ring.restart()

    def aim(self, task: Any, find: Callable[..., Index], *args: Any) -> Index:
        """Return the slice that the next instruction on GM names, and note how it follows from the task."""
        # The slice alone would not do: the task that comes next needs to know how to find its own.
        self._aims.append((find, args))
        return find(self._schedule, task, *args)

    def emit(self, task: Any, shape: Hashable, places: Places, body: Callable[[Any], None]) -> None:
        """Append the instructions of a task: from its template, or by the loop's `body`.

        The body takes every slice from `aim`. `places` are those that the task's tiles have, ring by ring.
        """
        # What the rings hold decides which tiles the body loads, and whose turn it is into which slots.
        before = tuple([ring.state(own) for ring, own in zip(self._rings, places, strict=True)])
        key = shape, before
        known = self._known.get(key)
        if known is not None:
            self._builder.repeat(known.template, [move.to(self._schedule, task) for move in known.moving])
            for ring, state, own in zip(self._rings, known.after, places, strict=True):
                ring.become(state, own)
            return
        again = key in self._known
        begin = len(self._builder)
        self._aims.clear()
        body(task)
        self._known[key] = self._taken(begin, places) if again else None

    def _taken(self, begin: int, places: Places) -> _Known:
        """Make a template of what a task has appended."""
        template = self._builder.template(begin)
        # Instructions on GM and calls of `aim` come in one order, one for one; `strict` notices a body that
        # takes a slice from elsewhere.
        on_gm = [(at, made) for at, made in enumerate(template.instructions) if made.gm is not None]
        moving = [_retargeted(*place, *aim) for place, aim in zip(on_gm, self._aims, strict=True)]
        after = [ring.state(own) for ring, own in zip(self._rings, places, strict=True)]
        return _Known(template, tuple(moving), tuple(after))
