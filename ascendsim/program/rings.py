"""Rings of slots that remember what they hold."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

from ascendsim.program.laps import moved
from ascendsim.program.places import Slot


class RingState(NamedTuple):
    """A ring as code finds it: whose turn it was last, whether that slot is unused yet, and what slots hold.

    Of a slot either the number of the unit's place and what of it, or, for a loop, the tile with its laps
    counted from the round; None: nothing that counts.
    """

    turn: int
    fresh: bool
    labels: tuple[Any, ...]


class Ring:
    """Slots used in turn (ping-pong); a tile that is still there need not be loaded again.

    A slot holds something of a place: (image 3, first pixel 64), say; what of it may be a box of taps. Made
    by `ProgramBuilder.ring`, which has to know all rings: what they hold tells whether a loop repeats itself.
    """

    def __init__(self, slots: tuple[Slot, ...]) -> None:
        self._slots = slots
        # The states of a ring of which nothing is asked but whose turn it is, by the turn and the freshness.
        turns = range(-1, len(slots))
        self._bare = [[RingState(turn, fresh, ()) for fresh in (False, True)] for turn in turns]
        self.restart()

    def restart(self) -> None:
        """Begin another program."""
        self._turn = -1
        self._fresh = False
        self.forget()

    def forget(self) -> None:
        """Forget what the slots hold, so that everything is loaded anew; turns go on."""
        # Forgetting is for tiles that a schedule loads again although they may be there, as the device does.
        self._holds: list[tuple[Hashable, Hashable] | None] = [None] * len(self._slots)

    @property
    def last(self) -> Slot:
        """The slot whose turn it was last."""
        return self._slots[self._turn]

    @property
    def turn(self) -> int:
        """The number of that slot, from 0."""
        return self._turn

    def next(self, place: Hashable = None, what: Hashable = None) -> Slot:
        """Return the next slot in turn and note what it will hold."""
        self._turn = (self._turn + 1) % len(self._slots)
        self._holds[self._turn] = place, what
        self._fresh = True
        return self._slots[self._turn]

    def begins(self) -> bool:
        """Tell whether this is the first use of the last slot since its turn came; later ones add to it."""
        fresh, self._fresh = self._fresh, False
        return fresh

    def find(self, place: Hashable, what: Hashable = None) -> Slot | None:
        """Return the slot that holds a tile, or None."""
        for slot, held in zip(self._slots, self._holds, strict=True):
            if held is not None and held == (place, what):
                return slot
        return None

    def held_by(self, slot: Slot) -> Hashable:
        """Return the place of which a slot holds something, or None."""
        held = self._holds[slot.index - self._slots[0].index]
        return None if held is None else held[0]

    def state(self, places: tuple[Hashable, ...] = (), lap: int = 0) -> RingState:
        """Return the ring as code finds it that wants tiles of these places and no others.

        Beyond its places, laps of its tiles are counted from `lap`.
        """
        # Told by the unit's own places, numbered: "image 3 of a task on image 3" and "image 4 of a task on
        # image 4" are one state, which is why units recur at all.
        if not places:
            return self._bare[self._turn + 1][self._fresh]
        labels = [None if held is None else _label(held, places, lap) for held in self._holds]
        return RingState(self._turn, self._fresh, tuple(labels))

    def become(self, state: RingState, places: tuple[Hashable, ...] = (), lap: int = 0) -> None:
        """Take the state in which the unit with these places leaves the ring.

        Slots that hold nothing of the unit keep what they hold: it has not used them.
        """
        self._turn, self._fresh, labels = state
        for number, label in enumerate(labels):
            if label is not None:
                at, rest, what = moved(label, lap) if lap else label
                self._holds[number] = places[at] if rest is None else (places[at], *rest), what

    def whole(self, lap: int = 0) -> RingState:
        """Return all that the ring holds, told from a round of a loop: its laps are counted from there."""
        return RingState(self._turn, self._fresh, tuple([moved(held, -lap) for held in self._holds]))

    def take(self, state: RingState, lap: int = 0) -> None:
        """Take a state that `whole` has told, seen from another round."""
        self._turn, self._fresh = state.turn, state.fresh
        self._holds = [moved(held, lap) for held in state.labels]


def place_in(place: Hashable, places: tuple[Hashable, ...]) -> int:
    """Return the number of the place that a place is, or begins with; -1: none of them."""
    if place in places:
        return places.index(place)
    return places.index(place[0]) if isinstance(place, tuple) and place and place[0] in places else -1


def _label(held: tuple[Hashable, Hashable], places: tuple[Hashable, ...], lap: int) -> Any:
    """Tell what a slot holds: the number of a place, how that goes on in the slot (None: not), and what."""
    place, what = held
    at = place_in(place, places)
    if at < 0:
        return None
    label = at, None if place == places[at] else place[1:], what  # type: ignore[index]  # then it is a tuple
    return moved(label, -lap) if lap else label
