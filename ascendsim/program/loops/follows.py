"""What follows what: the code of a task found by what tells it from the task before, not by all rings.

A core makes hundreds of tasks of a few kinds. After one of them its rings stand as after an earlier one of
its kind, but for the places of their tiles. So it is enough to ask how the rings stand, which is one number,
and which of the next task's places they hold: the same answers lead to the same code.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

from ascendsim.program.loops.rings import Ring, RingState

Code = TypeVar("Code")


class _Next(NamedTuple, Generic[Code]):
    """What a task leads to: its code, what that changes in rings, and the number of how they stand then."""

    code: Code
    changes: tuple[tuple[Ring, RingState], ...]
    standing: int


class Follows(Generic[Code]):
    """Remembers what followed what in the programs of one builder.

    `rings` are all rings of the builder, which may become more. A question is None where how the rings stand
    is not known.
    """

    def __init__(self, rings: Sequence[Ring]) -> None:
        self._rings = rings
        # How the rings stand, by number.
        self._standings: dict[Hashable, int] = {}
        self._nexts: dict[Hashable, _Next[Code]] = {}
        self._standing = -1
        # The lap from which the laps of their tiles are counted there.
        self._lap = 0

    def question(
        self, places: Mapping[Ring, tuple[Hashable, ...]], shape: Hashable, fixed: int | None, lap: int
    ) -> Hashable:
        """Return what the code of a task follows from, together with the task before; None: not known."""
        rings = self._rings
        if self._standing < 0 or True in [ring.touched for ring in rings]:
            return None
        met = []
        for ring, mine in places.items():
            found = ring.met(mine)
            if found is None:
                return None
            met.append(found)
        return self._standing, shape, fixed, lap - self._lap, *places, *met

    def answer(
        self, question: Hashable, places: Mapping[Ring, tuple[Hashable, ...]], lap: int
    ) -> Code | None:
        """Return the code that has followed, and leave the rings as it does; None: nobody has asked that."""
        found = self._nexts.get(question)
        if found is None:
            return None
        for ring, state in found.changes:
            ring.become(state, places.get(ring, ()), lap, ring.begin)
            ring.touched = False
        self._standing, self._lap = found.standing, lap
        return found.code

    def note(
        self,
        question: Hashable,
        code: Code,
        before: Sequence[RingState],
        after: Sequence[RingState],
        lap: int,
    ) -> None:
        """Note which code has followed, between states of all rings; the rings have become the last ones."""
        stand = tuple([ring.standing(lap) for ring in self._rings])
        self._standing, self._lap = self._standings.setdefault(stand, len(self._standings)), lap
        for ring in self._rings:
            ring.touched = False
        if question is not None:
            states = zip(self._rings, before, after, strict=True)
            changes = [(ring, _changed(old, new)) for ring, old, new in states if old != new]
            self._nexts[question] = _Next(code, tuple(changes), self._standing)


def _changed(before: RingState, after: RingState) -> RingState:
    """Return a state with nothing for the slots that hold what they held before."""
    if not after.labels:
        return after
    kept = zip(before.labels, after.labels, strict=True)
    return after._replace(labels=tuple([None if old == new else new for old, new in kept]))
