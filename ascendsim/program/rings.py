"""Rings of slots that remember what they hold."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from ascendsim.program.places import Slot

# Which of a task's places a slot holds, by number, and what of it; None: nothing that the task wants.
Label = tuple[int, Hashable] | None


class RingState(NamedTuple):
    """A ring as a task finds it: whose turn it was last, and what of the task's places it holds."""

    turn: int
    labels: tuple[Label, ...]


class Ring:
    """Slots used in turn (ping-pong); a tile that is still there need not be loaded again.

    A slot holds something of a place. A place is of one task and not of another: (image 3, first pixel 64),
    say; what of it may be a box of taps.
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
        # Forgetting is for tiles that a schedule loads again although they may be there, as the device does.
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
        """Return the ring as a task finds it that wants tiles of these places and no others."""
        # Told by the task's own places, numbered: "image 3 of a task on image 3" and "image 4 of a task on
        # image 4" are one state, which is why tasks recur at all.
        if not places:
            return RingState(self._turn, ())
        labels = [
            (places.index(held[0]), held[1]) if held is not None and held[0] in places else None
            for held in self._holds
        ]
        return RingState(self._turn, tuple(labels))

    def become(self, state: RingState, places: tuple[Hashable, ...]) -> None:
        """Take the state in which the task with these places leaves the ring.

        Slots that hold nothing of the task keep what they hold: it has not used them.
        """
        self._turn = state.turn
        for number, label in enumerate(state.labels):
            if label is not None:
                self._holds[number] = places[label[0]], label[1]
