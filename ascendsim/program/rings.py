"""Rings of slots that remember what they hold."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from ascendsim.program.places import Slot

# Which of a unit's places a slot holds, by number, and what of it; None: nothing that the unit wants.
Label = tuple[int, Hashable] | None


class RingState(NamedTuple):
    """What a ring is to a unit of work: whose turn it was last, and what of the unit's places it holds."""

    turn: int
    labels: tuple[Label, ...]


class Ring:
    """Slots used in turn (ping-pong); a tile that is still there need not be loaded again.

    What a slot holds has a place, which one unit of work has and another has not, and what of that place.
    """

    def __init__(self, slots: tuple[Slot, ...]) -> None:
        self._slots = slots
        self.restart()

    def restart(self) -> None:
        """Begin another program."""
        self._turn = -1
        self.forget()

    def forget(self) -> None:
        """Forget what the slots hold, so that everything is loaded anew; turns go on."""
        self._holds: list[tuple[Hashable, Hashable] | None] = [None] * len(self._slots)

    @property
    def last(self) -> Slot:
        """The slot whose turn it was last."""
        return self._slots[self._turn]

    def next(self, place: Hashable = None, what: Hashable = None) -> Slot:
        """Return the next slot in turn and note what it will hold."""
        self._turn = (self._turn + 1) % len(self._slots)
        self._holds[self._turn] = place, what
        return self._slots[self._turn]

    def find(self, place: Hashable, what: Hashable = None) -> Slot | None:
        """Return the slot that holds a tile, or None."""
        for slot, held in zip(self._slots, self._holds, strict=True):
            if held is not None and held == (place, what):
                return slot
        return None

    def state(self, places: tuple[Hashable, ...]) -> RingState:
        """Return what the ring is to a unit of work that wants tiles of these places and no others."""
        if not places:
            return RingState(self._turn, ())
        labels = [
            (places.index(held[0]), held[1]) if held is not None and held[0] in places else None
            for held in self._holds
        ]
        return RingState(self._turn, tuple(labels))

    def become(self, state: RingState, places: tuple[Hashable, ...]) -> None:
        """Take the state in which the unit of work with these places leaves the ring.

        Slots that hold nothing of the unit keep what they hold: it has not touched them.
        """
        self._turn = state.turn
        for number, label in enumerate(state.labels):
            if label is not None:
                self._holds[number] = places[label[0]], label[1]
