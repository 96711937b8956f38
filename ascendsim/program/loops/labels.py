"""Labels: what the slots of a ring hold, told by the places of a task.

"Image 3 of a task on image 3" and "image 4 of a task on image 4" are one label; so code recurs at all.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Final

from ascendsim.program.loops.laps import moved

# What a slot holds of the places of a task: the number of the place, how that goes on in the slot (None:
# not), and what of it; None: nothing of them.
Label = tuple[int, tuple[Any, ...] | None, Hashable] | tuple[()] | None
Labels = tuple[Label, ...]
# Of a slot that code has filled with a tile of none of its places: what was there before is gone.
LOST: Final = ()

# What a slot holds: something (`what`) of a place, or, with `rest`, of the place (place, *rest). The laps of
# `rest` and `what` count from `lap`: code leaves them as it says them, for a task far on in a loop as for the
# first. A plain tuple (place, rest, what, lap), as there is one for every tile of every task.
Held = tuple[Hashable, tuple[Any, ...] | None, Hashable, int]
NAMELESS: Final[Held] = (None, None, None, 0)


def labels_of(holds: Sequence[Held | None], places: tuple[Hashable, ...], lap: int) -> Labels:
    """Return what slots hold of some places, laps of it counted from `lap`."""
    labels: list[Label] = []
    for held in holds:
        if held is None:
            labels.append(None)
            continue
        # Most tiles are told here, as this is done for every task: nothing of them has to be moved.
        place, rest, what, begin = held
        if place in places:
            if (begin == lap or rest is what is None) and (rest is None or len(places) == 1):
                labels.append((places.index(place), rest, what))
                continue
        elif not (_begins_in(place, places) if rest is None else _begun_by(place, places)):
            labels.append(None)
            continue
        labels.append(_label(held, places, lap))
    return tuple(labels)


def place_in(place: Hashable, places: tuple[Hashable, ...]) -> int:
    """Return the number of the place that a place is, or begins with; -1: none of them."""
    if place in places:
        return places.index(place)
    if isinstance(place, tuple) and place and place[0] in places:
        return places.index(place[0])
    return -1


def tile_of(held: Held) -> tuple[Hashable, Hashable]:
    """Return the whole place of which a slot holds something, and what of it."""
    place, rest, what, lap = held
    if lap:
        rest, what = moved((rest, what), lap)
    return (place if rest is None else (place, *rest)), what


def _label(held: Held, places: tuple[Hashable, ...], lap: int) -> Label:
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
    whole, what = tile_of(held)
    at = place_in(whole, places)
    if at < 0:
        return None
    rest = None if whole == places[at] else whole[1:]  # type: ignore[index]  # then it is a tuple
    if lap and not (rest is what is None):
        rest, what = moved((rest, what), -lap)
    return at, rest, what


def _begins_in(place: Hashable, places: tuple[Hashable, ...]) -> bool:
    """Tell whether a place begins with one of some places."""
    return isinstance(place, tuple) and bool(place) and place[0] in places


def _begun_by(place: Hashable, places: tuple[Hashable, ...]) -> bool:
    """Tell whether one of some places begins with a place."""
    # By hand: a generator for each tile would be what is slow.
    for own in places:  # noqa: SIM110
        if isinstance(own, tuple) and own and own[0] == place:
            return True
    return False
