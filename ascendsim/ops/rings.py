"""Rings of slots that remember what they hold."""

from __future__ import annotations

from collections.abc import Hashable

from ascendsim.program import Slot


class Ring:
    """Slots used in turn (ping-pong); a tile that is still there need not be loaded again."""

    def __init__(self, slots: tuple[Slot, ...]) -> None:
        self._slots = slots
        self._holds: list[Hashable] = [None] * len(slots)
        self._turn = -1

    def next(self, holds: Hashable = None) -> Slot:
        """Return the next slot in turn and note what it will hold."""
        self._turn = (self._turn + 1) % len(self._slots)
        self._holds[self._turn] = holds
        return self._slots[self._turn]

    def find(self, holds: Hashable) -> Slot | None:
        """Return the slot that holds a tile, or None."""
        for slot, held in zip(self._slots, self._holds, strict=True):
            if held == holds and held is not None:
                return slot
        return None
