"""Turns: code is written down for the slots of its first run; a later one may find the rings turned on.

An example: two slots of L1 are taken in turn, and a task loads one tile and multiplies it. The first task
takes slot 0 and the second one slot 1, and that is all that tells their code apart. So it is written down
once, and the step of the second task says that slots 0 and 1 have changed places.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ascendsim.program.places import Slot
from ascendsim.program.posts import Post

# Of each slot of a program the number of the slot that stands in its place.
Turns = tuple[int, ...]


def turned_on(slots: int, rings: Iterable[tuple[Sequence[Slot], int]]) -> Turns | None:
    """Return the turns of rings, each by so many slots, among so many slots of a program; None: no turns."""
    made = list(range(slots))
    turned = False
    for ring, by in rings:
        if by:
            turned = True
            for at, slot in enumerate(ring):
                made[slot.index] = ring[(at + by) % len(ring)].index
    return tuple(made) if turned else None


def joined(outer: Turns | None, inner: Turns | None) -> Turns | None:
    """Return the turns of a step inside of code that is turned itself."""
    if outer is None or inner is None:
        return inner if outer is None else outer
    return tuple([outer[slot] for slot in inner])


def turned_instruction(instruction: Any, turns: Turns, slots: Sequence[Slot]) -> Any:
    """Return an instruction on other slots; `slots` are all of its program."""
    return type(instruction)(*[_turned(field, turns, slots) for field in instruction])


def _turned(field: Any, turns: Turns, slots: Sequence[Slot]) -> Any:
    """Return a field of an instruction on other slots: a slot, several of them, or what is none."""
    if isinstance(field, Slot):
        return slots[turns[field.index]]
    if isinstance(field, tuple) and field and isinstance(field[0], Slot):
        return tuple([slots[turns[slot.index]] for slot in field])
    return field


def turned_post(post: Post, turns: Turns, slots: Sequence[Slot]) -> Post:
    """Return a post with other slots; `slots` are all of its program."""
    core, *handed = post
    reads, writes = (tuple([slots[turns[slot.index]] for slot in each]) for each in handed)
    return Post(core, reads, writes)
