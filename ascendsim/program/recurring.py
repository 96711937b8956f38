"""Units of work that recur in a schedule: built once, then repeated for other slices of global memory."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

from ascendsim.program.builder import ProgramBuilder, Recurrence
from ascendsim.program.places import Gm, GmTensor
from ascendsim.program.rings import Ring, RingState

Index = tuple[Any, ...]
Places = tuple[tuple[Hashable, ...], ...]


class _Retargeted(NamedTuple):
    """An instruction that names another slice of GM whenever its piece recurs.

    For a unit of work the slice is find(schedule, unit, *args) of the tensor; `before` and `after` are the
    fields of the instruction around it.
    """

    offset: int
    make: Callable[..., Any]
    before: tuple[Any, ...]
    tensor: GmTensor
    after: tuple[Any, ...]
    find: Callable[..., Index]
    args: tuple[Any, ...]

    def to(self, schedule: Any, unit: Any) -> tuple[int, Any]:
        """Return the instruction as the unit needs it, and where in the piece it is."""
        place = Gm(self.tensor, self.find(schedule, unit, *self.args))
        return self.offset, self.make(*self.before, place, *self.after)


def _retargeted(
    offset: int, instruction: Any, find: Callable[..., Index], args: tuple[Any, ...]
) -> _Retargeted:
    """Return how an instruction moves with its piece."""
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
    piece: Recurrence
    moving: tuple[_Retargeted, ...]
    after: tuple[RingState, ...]


class Recurring:
    """Emits units of work; one like an earlier one becomes the same instructions on other slices of GM.

    Units are alike if the schedule gives them one `shape` and finds its rings in one state: then they load
    the same tiles into the same slots. A unit is kept when it comes for the second time; most never do.
    """

    def __init__(self, schedule: Any, builder: ProgramBuilder, rings: tuple[Ring, ...]) -> None:
        self._schedule = schedule
        self._builder = builder
        self._rings = rings
        self._known: dict[Hashable, _Known | None] = {}
        self._aims: list[tuple[Callable[..., Index], tuple[Any, ...]]] = []

    def restart(self) -> None:
        """Begin another program; what is known stays."""
        self._builder.restart()
        for ring in self._rings:
            ring.restart()

    def aim(self, unit: Any, find: Callable[..., Index], *args: Any) -> Index:
        """Return the slice that the next instruction on GM names, and note how it follows from the unit."""
        self._aims.append((find, args))
        return find(self._schedule, unit, *args)

    def emit(self, unit: Any, shape: Hashable, places: Places, build: Callable[[Any], None]) -> None:
        """Append the instructions of a unit: by `build`, which takes every slice from `aim`, or repeated.

        `places` are those that the unit's tiles have, ring by ring.
        """
        before = tuple([ring.state(own) for ring, own in zip(self._rings, places, strict=True)])
        key = shape, before
        known = self._known.get(key)
        if known is not None:
            self._builder.repeat(known.piece, [move.to(self._schedule, unit) for move in known.moving])
            for ring, state, own in zip(self._rings, known.after, places, strict=True):
                ring.become(state, own)
            return
        again = key in self._known
        begin = len(self._builder)
        self._aims.clear()
        build(unit)
        self._known[key] = self._taken(begin, places) if again else None

    def _taken(self, begin: int, places: Places) -> _Known:
        """Take what a unit has appended, to be repeated."""
        piece = self._builder.recurrence(begin)
        on_gm = [(at, made) for at, made in enumerate(piece.instructions) if made.gm is not None]
        moving = [_retargeted(*place, *aim) for place, aim in zip(on_gm, self._aims, strict=True)]
        after = [ring.state(own) for ring, own in zip(self._rings, places, strict=True)]
        return _Known(piece, tuple(moving), tuple(after))
