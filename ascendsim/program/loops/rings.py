"""Rings of slots that remember what they hold."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

from ascendsim.errors import ProgramError
from ascendsim.program.loops.laps import moved
from ascendsim.program.places import Slot


class RingState(NamedTuple):
    """A ring as code finds it: whose turn it was last, whether that slot is unused yet, what slots hold.

    Where nobody may ask whether it is unused, that is None.

    For a task: how many turns lie behind where its code began, and of each slot, from the one on whose turn
    it was there, the number of the task's place and what of it. For a loop: the number of the slot whose turn
    it is, and the tiles with their laps counted from the round. None: nothing that counts.
    """

    turn: int
    fresh: bool | None
    labels: tuple[Any, ...]


class Ring:
    """Slots used in turn (ping-pong); a tile that is still there need not be loaded again.

    A slot holds something of a place: (image 3, first pixel 64), say; what of it may be a box of taps. Made
    by `ProgramBuilder.ring`, which has to know all rings: what they hold tells whether a loop repeats itself.
    """

    def __init__(self, slots: tuple[Slot, ...], *, told: bool = False, asked: bool = True) -> None:
        """Make a ring.

        told    code may ask whose turn it is, so it is not like that of another turn
        asked   code may ask whether a slot is used for the first time (`begins`)
        """
        self.slots = slots
        self._told = told
        # What a turn makes the slot: unused, if that counts.
        self._unused = True if asked else None
        # The states of a ring of which nothing is asked but whose turn it is, by the turn and the freshness.
        turns, freshness = range(len(slots)), (False, True) if asked else (None,)
        # Whether it has changed since `Follows` looked.
        self.touched = True
        self._bare = [{fresh: RingState(turn, fresh, ()) for fresh in freshness} for turn in turns]
        self.restart()

    @property
    def begin(self) -> int:
        """The turn from which code counts that begins here."""
        return -1 if self._told else self._turn

    def restart(self) -> None:
        """Begin another program."""
        self.touched = True
        self._turn = -1
        self._fresh: bool | None = None if self._unused is None else False
        self.forget()

    def forget(self) -> None:
        """Forget what the slots hold, so that everything is loaded anew; turns go on."""
        # Forgetting is for tiles that a schedule loads again although they may be there, as the device does.
        self.touched = True
        self._holds: list[tuple[Hashable, Hashable] | None] = [None] * len(self.slots)

    @property
    def last(self) -> Slot:
        """The slot whose turn it was last."""
        return self.slots[self._turn]

    @property
    def turn(self) -> int:
        """The number of that slot, from 0; of the pieces of a hand-over alone.

        Raises   ProgramError for another ring: code that recurs may run with other turns
        """
        if not self._told:
            raise ProgramError(
                f"{self.last.name}: nobody can ask for the turn of this ring, since code that is written "
                "down once runs for other turns, too; name tiles by next and find, or make a hand-over"
            )
        return self._turn

    def next(self, place: Hashable = None, what: Hashable = None) -> Slot:
        """Return the next slot in turn and note what it will hold."""
        self.touched = True
        self._turn = (self._turn + 1) % len(self.slots)
        self._holds[self._turn] = place, what
        self._fresh = self._unused
        return self.slots[self._turn]

    def begins(self) -> bool:
        """Tell whether this is the first use of the last slot since its turn came; later ones add to it.

        Raises   ProgramError for a ring of which that is not to be asked (`asked`)
        """
        fresh, self._fresh, self.touched = self._fresh, False, True
        if fresh is None:
            raise ProgramError(
                f"{self.last.name}: this ring was made without `asked`, so that code does not depend on it "
                "whether a slot is used for the first time; make it with `asked`, or do not ask"
            )
        return fresh

    def find(self, place: Hashable, what: Hashable = None) -> Slot | None:
        """Return the slot that holds a tile, or None."""
        for slot, held in zip(self.slots, self._holds, strict=True):
            if held is not None and held == (place, what):
                return slot
        return None

    def held_by(self, slot: Slot) -> Hashable:
        """Return the place of which a slot holds something, or None."""
        held = self._holds[slot.index - self.slots[0].index]
        return None if held is None else held[0]

    def state(self, places: tuple[Hashable, ...] = (), lap: int = 0, begin: int = -1) -> RingState:
        """Return the ring as code finds it that wants tiles of these places and no others.

        Beyond its places, laps of its tiles are counted from `lap`; turns from the `begin` of the code.
        """
        # Told by the unit's own places, numbered: "image 3 of a task on image 3" and "image 4 of a task on
        # image 4" are one state, which is why units recur at all.
        holds = self._holds
        turn, fresh = (self._turn - begin) % len(holds), self._fresh
        if not places:
            return self._bare[turn][fresh]
        labels = [_label(held, places, lap) for held in (*holds[begin:], *holds[:begin])]
        return RingState(turn, fresh, tuple(labels))

    def become(
        self, state: RingState, places: tuple[Hashable, ...] = (), lap: int = 0, begin: int = -1
    ) -> None:
        """Take the state in which code with these places leaves the ring that has begun at this turn.

        Slots that hold nothing of the code keep what they hold: it has not used them.
        """
        turn, self._fresh, labels = state
        self.touched = True
        count = len(self._holds)
        self._turn = (begin + turn) % count
        for number, label in enumerate(labels):
            if label is not None:
                at, rest, what = label
                if lap and not (rest is what is None):
                    rest, what = moved((rest, what), lap)
                held = places[at] if rest is None else (places[at], *rest)
                self._holds[(begin + number) % count] = held, what

    def met(self, places: tuple[Hashable, ...]) -> tuple[int, ...] | None:
        """Return for each slot, from the one whose turn it is, of which place its tile is; -1: of none.

        None where that does not tell what `state` says with `standing`: where a place looks like one within
        another although it is the task's own, and where a tile is within a place that is no tuple.
        """
        # How such a place goes on is a task's own, but `standing` has it, as if it were the same for all.
        if True in map(_nested, places):
            return None
        begin, found = self.begin, []
        for held in (*self._holds[begin:], *self._holds[:begin]):
            at = -1 if held is None else place_in(held[0], places)
            if at >= 0 and held[0] != places[at] and not _nested(held[0]):  # type: ignore[index]  # not None
                return None
            found.append(at)
        return tuple(found)

    def standing(self, lap: int = 0) -> Hashable:
        """Return all that `state` says of the ring but the places of its tiles: whatever these are."""
        begin = self.begin
        tails: list[Hashable] = []
        for held in (*self._holds[begin:], *self._holds[:begin]):
            if held is None:
                tails.append(None)
                continue
            place, what = held
            rest = place[1:] if _nested(place) else None  # type: ignore[index]  # then it is a tuple
            tails.append(moved((rest, what), -lap))
        return (self._turn - begin) % len(tails), self._fresh, tuple(tails)

    def whole(self, lap: int = 0) -> RingState:
        """Return all that the ring holds, told from a round of a loop: its laps are counted from there."""
        return RingState(self._turn, self._fresh, tuple([moved(held, -lap) for held in self._holds]))

    def take(self, state: RingState, lap: int = 0) -> None:
        """Take a state that `whole` has told, seen from another round."""
        self.touched = True
        self._turn, self._fresh = state.turn, state.fresh
        self._holds = [moved(held, lap) for held in state.labels]


def place_in(place: Hashable, places: tuple[Hashable, ...]) -> int:
    """Return the number of the place that a place is, or begins with; -1: none of them."""
    for number, own in enumerate(places):
        if place == own:
            return number
    if isinstance(place, tuple) and place:
        begin = place[0]
        for number, own in enumerate(places):
            if begin == own:
                return number
    return -1


def _nested(place: Hashable) -> bool:
    """Tell whether a place looks like one within another: a tuple that begins with that."""
    return isinstance(place, tuple) and bool(place) and isinstance(place[0], tuple)


def _label(held: tuple[Hashable, Hashable] | None, places: tuple[Hashable, ...], lap: int) -> Any:
    """Tell what a slot holds: the number of a place, how that goes on in the slot (None: not), and what."""
    if held is None:
        return None
    place, what = held
    at = place_in(place, places)
    if at < 0:
        return None
    rest = None if place == places[at] else place[1:]  # type: ignore[index]  # then it is a tuple
    if lap and not (rest is what is None):
        rest, what = moved((rest, what), -lap)
    return at, rest, what
