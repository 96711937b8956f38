"""Rings of slots that remember what they hold."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

from ascendsim.errors import ProgramError
from ascendsim.program.loops.labels import LOST, NAMELESS, Held, Label, Labels, labels_of, tile_of
from ascendsim.program.loops.laps import moved
from ascendsim.program.places import Slot


class RingState(NamedTuple):
    """A ring as a round of a loop finds it: whose turn it was last, whether that slot is unused yet, tiles.

    Where nobody may ask whether it is unused, that is None. Laps of tiles count from the round.
    """

    turn: int
    fresh: bool | None
    tiles: tuple[Any, ...]


class Stand:
    """Whose turn a ring is at, and whether that slot is unused yet (None: nobody may ask).

    `begin` is the turn from which code counts that begins here, and `bare` is what it finds if it wants no
    tile of the ring. A ring has one of each, compared by identity, as it is looked up for every task.
    """

    __slots__ = ("bare", "begin", "fresh", "turn")

    def __init__(self, turn: int, fresh: bool | None, begin: int, bare: Hashable) -> None:
        self.turn = turn
        self.fresh = fresh
        self.begin = begin
        self.bare = bare


# Labels of slots, by number.
Fills = tuple[tuple[int, Label], ...]
# A ring for now: how it stands, and what it holds.
Snapshot = tuple[Stand, tuple[Held | None, ...]]


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
        self.numbers = frozenset([slot.index for slot in slots])
        # Which ring it is.
        self.first = slots[0].index
        self._all_lost: Fills = tuple([(number, LOST) for number in range(len(slots))])
        self._told = told
        # What a turn makes the slot: unused, if that counts.
        self._unused = True if asked else None
        # By the freshness, and by the turn; before the first one, which is the last of these, it is nobody's.
        count = len(slots)
        self._stands = {
            fresh: [
                Stand(turn, fresh, -1 if told else turn, (turn % count if told else 0, fresh))
                for turn in (*range(count), -1)
            ]
            for fresh in ((False, True) if asked else (None,))
        }
        # How many slots have been taken so far, and whether a tile ever had a name by which it is found.
        self.taken = 0
        self.named = False
        self.restart()

    def restart(self) -> None:
        """Begin another program."""
        # How it stands, which every task asks for, and known code sets.
        self.at = self._stands[None if self._unused is None else False][-1]
        self.forget()

    def forget(self) -> None:
        """Forget what the slots hold, so that everything is loaded anew; turns go on."""
        # Forgetting is for tiles that a schedule loads again although they may be there, as the device does.
        # To code that does so no tile is left, as if it had taken all slots.
        self.taken += len(self.slots)
        self._holds: list[Held | None] = [None] * len(self.slots)

    @property
    def last(self) -> Slot:
        """The slot whose turn it was last."""
        return self.slots[self.at.turn]

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
        return self.at.turn

    def next(self, place: Hashable = None, what: Hashable = None) -> Slot:
        """Return the next slot in turn and note what it will hold."""
        turn = (self.at.turn + 1) % len(self.slots)
        self.at = self._stands[self._unused][turn]
        self._holds[turn] = place, None, what, 0
        self.taken += 1
        if place is not None:
            self.named = True
        return self.slots[turn]

    def begins(self) -> bool:
        """Tell whether this is the first use of the last slot since its turn came; later ones add to it.

        Raises   ProgramError for a ring of which that is not to be asked (`asked`)
        """
        fresh = self.at.fresh
        if fresh is None:
            raise ProgramError(
                f"{self.last.name}: this ring was made without `asked`, so that code does not depend on it "
                "whether a slot is used for the first time; make it with `asked`, or do not ask"
            )
        if fresh:
            self.at = self._stands[False][self.at.turn]
        return fresh

    def find(self, place: Hashable, what: Hashable = None) -> Slot | None:
        """Return the slot that holds a tile, or None."""
        for slot, held in zip(self.slots, self._holds, strict=True):
            if held is not None and tile_of(held) == (place, what):
                return slot
        return None

    def held_by(self, slot: Slot) -> Hashable:
        """Return the place of which a slot holds something, or None."""
        held = self._holds[slot.index - self.slots[0].index]
        return None if held is None else tile_of(held)[0]

    def labels(self, places: tuple[Hashable, ...], lap: int) -> Labels:
        """Return what the slots hold of some places, laps of it counted from `lap`."""
        return labels_of(self._holds, places, lap)

    def found(self, labels: Labels | None) -> Hashable:
        """Return what code finds that begins here, slots told from its turn on; None: it wants no tile."""
        begin = self.at.begin
        return self.at.bare if labels is None else (self.at.bare, *labels[begin:], *labels[:begin])

    def fill(self, fills: Fills, places: tuple[Hashable, ...], lap: int) -> None:
        """Let slots hold what code leaves there that has these places."""
        for number, label in fills:
            held = (places[label[0]], label[1], label[2], lap) if label else NAMELESS
            self._holds[number] = held

    def snapshot(self) -> Snapshot:
        """Return how it stands, to compare and to `restore`."""
        # Of a ring whose tiles never had a name nobody can tell what it holds.
        return self.at, tuple(self._holds) if self.named and any(self._holds) else ()

    def restore(self, snapshot: Snapshot) -> None:
        """Stand as it did when a snapshot was made."""
        self.at, holds = snapshot
        self._holds = list(holds) or [None] * len(self.slots)

    def whole(self, lap: int = 0) -> RingState:
        """Return all that the ring holds, told from a round of a loop: its laps are counted from there."""
        tiles = tuple([None if held is None else tile_of(held) for held in self._holds])
        return RingState(self.at.turn, self.at.fresh, moved(tiles, -lap) if lap else tiles)

    def take(self, state: RingState, lap: int = 0) -> None:
        """Take a state that `whole` has told, seen from another round."""
        self.at = self._stands[state.fresh][state.turn]
        tiles = moved(state.tiles, lap) if lap else state.tiles
        self._holds = [None if tile is None else (tile[0], None, tile[1], 0) for tile in tiles]

    def change(
        self, at: Stand, taken: int, before: Labels | None, places: tuple[Hashable, ...], lap: int
    ) -> Change:
        """Return what code has done that began at a stand and has taken so many slots since.

        before   the labels of its places then; None: it has no places
        """
        count, begin = len(self.slots), at.begin
        turn = (self.at.turn - begin) % count
        if before is None and taken >= count:
            return Change(self, turn, self.at.fresh, taken, self._all_lost)
        lost = [(at.turn + number) % count for number in range(1, 1 + min(taken, count))]
        fills: dict[int, Label] = dict.fromkeys(lost, LOST)
        if before is not None:
            for number, (old, new) in enumerate(zip(before, self.labels(places, lap), strict=True)):
                if new is not None and old != new:
                    fills[number] = new
                elif new is not None:
                    # Still there, or there again.
                    fills.pop(number, None)
        told = tuple([((number - begin) % count, label) for number, label in fills.items()])
        return Change(self, turn, self.at.fresh, taken, told)

    def move(self, change: Change) -> Move:
        """Return a change for code that begins here."""
        _, turn, fresh, taken, told = change
        count, begin = len(self.slots), self.at.begin
        # All slots are all slots, wherever it begins.
        fills = told
        if told is not self._all_lost:
            fills = tuple([((begin + number) % count, label) for number, label in told])
        return self, self._stands[fresh][(begin + turn) % count], taken, fills


class Change(NamedTuple):
    """What some code does to a ring, seen from the turn at which it begins.

    It leaves the ring so many turns on, the slot there unused or not; it takes so many slots; and `fills` are
    the labels of slots, by how many turns on they are (`LOST`: a tile of none of its places).
    """

    ring: Ring
    turn: int
    fresh: bool | None
    taken: int
    fills: Fills


# The same from one turn on: how the ring stands behind the code, and labels by the numbers of slots. A plain
# tuple, as there are some for every task.
Move = tuple[Ring, Stand, int, Fills]
