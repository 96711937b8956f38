"""Rings of slots that remember what they hold."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Final, NamedTuple

from ascendsim.errors import ProgramError
from ascendsim.program.loops.laps import moved
from ascendsim.program.places import Slot


class RingState(NamedTuple):
    """A ring as code finds it: whose turn it was last, whether that slot is unused yet, what slots hold.

    Where nobody may ask whether it is unused, that is None.

    For a task: how many turns lie behind where its code began, and of each slot, from the one on whose turn
    it was there, the number of the task's place and what of it (`LOST`: a tile of none of its places). For a
    loop: the number of the slot whose turn it is, and the tiles with their laps counted from the round.
    None: nothing that counts.
    """

    turn: int
    fresh: bool | None
    labels: tuple[Any, ...]


# Of a slot that code has filled with a tile of none of its places: what was there before is gone.
LOST: Final = ()

# What a slot holds: something (`what`) of a place, or, with `rest`, of the place (place, *rest). The laps of
# `rest` and `what` count from `lap`: code leaves them as it says them, for a task far on in a loop as for the
# first. A plain tuple (place, rest, what, lap), as there is one for every tile of every task.
Held = tuple[Hashable, tuple[Any, ...] | None, Hashable, int]
# A ring for now: its turn, how code finds it, and what it holds.
Snapshot = tuple[int, RingState, tuple[Held | None, ...]]
_NAMELESS: Final[Held] = (None, None, None, 0)


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
        self._bare = [{fresh: RingState(turn, fresh, ()) for fresh in freshness} for turn in turns]
        # How many slots have been taken so far, and whether a tile ever had a name by which it is found.
        self.taken = 0
        self.named = False
        self.restart()

    def restart(self) -> None:
        """Begin another program."""
        self._stand(-1, None if self._unused is None else False)
        self.forget()

    def _stand(self, turn: int, fresh: bool | None) -> None:
        """Let it be the turn of a slot, which is unused yet or not."""
        self._turn = turn
        # The turn from which code counts that begins here, and how that finds the ring if it wants no tile of
        # it. Attributes, as they are asked for every task.
        self.begin = -1 if self._told else turn
        self.bare = self._bare[(turn + 1) % len(self.slots) if self._told else 0][fresh]

    def forget(self) -> None:
        """Forget what the slots hold, so that everything is loaded anew; turns go on."""
        # Forgetting is for tiles that a schedule loads again although they may be there, as the device does.
        # To code that does so no tile is left, as if it had taken all slots.
        self.taken += len(self.slots)
        self._holds: list[Held | None] = [None] * len(self.slots)

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
        turn = (self._turn + 1) % len(self.slots)
        self._stand(turn, self._unused)
        self._holds[turn] = place, None, what, 0
        self.taken += 1
        if place is not None:
            self.named = True
        return self.slots[turn]

    def begins(self) -> bool:
        """Tell whether this is the first use of the last slot since its turn came; later ones add to it.

        Raises   ProgramError for a ring of which that is not to be asked (`asked`)
        """
        fresh = self.bare.fresh
        if fresh is None:
            raise ProgramError(
                f"{self.last.name}: this ring was made without `asked`, so that code does not depend on it "
                "whether a slot is used for the first time; make it with `asked`, or do not ask"
            )
        if fresh:
            self._stand(self._turn, False)
        return fresh

    def find(self, place: Hashable, what: Hashable = None) -> Slot | None:
        """Return the slot that holds a tile, or None."""
        for slot, held in zip(self.slots, self._holds, strict=True):
            if held is not None and _tile(held) == (place, what):
                return slot
        return None

    def held_by(self, slot: Slot) -> Hashable:
        """Return the place of which a slot holds something, or None."""
        held = self._holds[slot.index - self.slots[0].index]
        return None if held is None else _tile(held)[0]

    def found(self, places: tuple[Hashable, ...], lap: int) -> Hashable:
        """Return what code with these places finds that begins here: all that `state` would say.

        For every task there is, where `state` is for those that are written down.
        """
        return self.bare, *self._labels(places, lap, self.begin)

    def state(self, places: tuple[Hashable, ...], lap: int, begin: int) -> RingState:
        """Return the ring for code with these places that has begun at this turn, and wants no other tiles.

        Beyond its places, laps of its tiles are counted from `lap`.
        """
        # Told by the unit's own places, numbered: "image 3 of a task on image 3" and "image 4 of a task on
        # image 4" are one state, which is why units recur at all.
        turn, fresh = (self._turn - begin) % len(self.slots), self.bare.fresh
        if not places:
            return self._bare[turn][fresh]
        return RingState(turn, fresh, tuple(self._labels(places, lap, begin)))

    def _labels(self, places: tuple[Hashable, ...], lap: int, begin: int) -> list[Any]:
        """Return what the slots hold of some places, from the slot of a turn on."""
        labels: list[Any] = []
        for held in (*self._holds[begin:], *self._holds[:begin]):
            if held is None:
                labels.append(None)
                continue
            # The usual tile is told here, as this is done for every task: nothing of it has to be moved.
            place, rest, what, begin = held
            if rest is None and (what is None or begin == lap) and place in places:
                labels.append((places.index(place), None, what))
            else:
                labels.append(_label(held, places, lap))
        return labels

    def become(self, state: RingState, places: tuple[Hashable, ...], lap: int, taken: int) -> None:
        """Take the state in which code with these places leaves the ring, which takes so many slots.

        Slots that it has not used keep what they hold.
        """
        turn, fresh, labels = state
        begin, count = self.begin, len(self.slots)
        self._stand((begin + turn) % count, fresh)
        self.taken += taken
        if self.named:
            for number, label in enumerate(labels):
                if label is not None:
                    own = (places[label[0]], label[1], label[2], lap) if label else _NAMELESS
                    self._holds[(begin + number) % count] = own

    def snapshot(self) -> Snapshot:
        """Return how it stands, to compare and to `restore`."""
        # Of a ring whose tiles never had a name nobody can tell what it holds.
        return self._turn, self.bare, tuple(self._holds) if self.named and any(self._holds) else ()

    def restore(self, snapshot: Snapshot) -> None:
        """Stand as it did when a snapshot was made."""
        turn, bare, holds = snapshot
        self._stand(turn, bare.fresh)
        self._holds = list(holds) or [None] * len(self.slots)

    def whole(self, lap: int = 0) -> RingState:
        """Return all that the ring holds, told from a round of a loop: its laps are counted from there."""
        tiles = [None if held is None else moved(_tile(held), -lap) for held in self._holds]
        return RingState(self._turn, self.bare.fresh, tuple(tiles))

    def take(self, state: RingState, lap: int = 0) -> None:
        """Take a state that `whole` has told, seen from another round."""
        self._stand(state.turn, state.fresh)
        tiles = [moved(tile, lap) for tile in state.labels]
        self._holds = [None if tile is None else (tile[0], None, tile[1], 0) for tile in tiles]


class Change(NamedTuple):
    """What some code does to a ring: the state in which it leaves it, and how many slots it takes.

    `seen` is false where the ring only goes round, and stands as before: that counts for tiles with names.
    """

    ring: Ring
    state: RingState
    taken: int
    seen: bool


def changes_of(
    rings: Sequence[Ring], before: Sequence[RingState], after: Sequence[RingState], taken: Sequence[int]
) -> tuple[Change, ...]:
    """Return what code changes, from how it finds and leaves all rings, and how many slots it takes."""
    each = zip(rings, before, after, taken, strict=True)
    return tuple(
        [
            Change(ring, _changed(old, new, taken, len(ring.slots)), taken, old != new)
            for ring, old, new, taken in each
            if taken or old != new
        ]
    )


def _changed(before: RingState, after: RingState, taken: int, count: int) -> RingState:
    """Return a state with nothing for the slots that hold what they held before."""
    turn, fresh, labels = after
    if not labels and taken >= count:
        return RingState(turn, fresh, (LOST,) * count)
    made: list[Any] = [None] * count
    for number in range(1, min(taken, count) + 1):
        made[(before.turn + number) % count] = LOST
    for number, (old, new) in enumerate(zip(before.labels, labels, strict=True)):
        if new is not None:
            made[number] = None if old == new else new
    return RingState(turn, fresh, tuple(made))


def place_in(place: Hashable, places: tuple[Hashable, ...]) -> int:
    """Return the number of the place that a place is, or begins with; -1: none of them."""
    if place in places:
        return places.index(place)
    if isinstance(place, tuple) and place and place[0] in places:
        return places.index(place[0])
    return -1


def _tile(held: Held) -> tuple[Hashable, Hashable]:
    """Return the whole place of which a slot holds something, and what of it."""
    place, rest, what, lap = held
    if lap:
        rest, what = moved((rest, what), lap)
    return (place if rest is None else (place, *rest)), what


def _label(held: Held, places: tuple[Hashable, ...], lap: int) -> Any:
    """Tell what a slot holds: the number of a place, how that goes on in the slot (None: not), and what.

    Laps count from `lap`. None: it holds nothing of these places.
    """
    place, rest, what, begin = held
    if rest is None or not _begun_by(place, places):
        # The usual tile: nothing has to be put together, and mostly nothing is moved.
        if place in places:
            if begin != lap and not (rest is what is None):
                rest, what = moved((rest, what), begin - lap)
            return places.index(place), rest, what
        if rest is not None:
            return None
    whole, what = _tile(held)
    at = place_in(whole, places)
    if at < 0:
        return None
    rest = None if whole == places[at] else whole[1:]  # type: ignore[index]  # then it is a tuple
    if lap and not (rest is what is None):
        rest, what = moved((rest, what), -lap)
    return at, rest, what


def _begun_by(place: Hashable, places: tuple[Hashable, ...]) -> bool:
    """Tell whether one of some places begins with a place."""
    # By hand: a generator for each tile would be what is slow.
    for own in places:  # noqa: SIM110
        if isinstance(own, tuple) and own and own[0] == place:
            return True
    return False
