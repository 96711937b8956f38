"""Chains: links of code that follow each other, known by how each finds a program's rings and leaves them.

An example: 24 cores make the blocks of 32 images, each a range of them, so nearly every core begins inside of
an image. From where its rings stand as those of a core before it stood at that block, all that follows is
known, to the end of the image.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

from ascendsim.program.loops.rings import Ring, Snapshot
from ascendsim.program.units import Step

# How all rings stand, and which slots have been written.
Stand = tuple[tuple[Snapshot, ...], bytes]


class Link(NamedTuple):
    """The code of a link, and the number of the stand in which it leaves the rings."""

    steps: tuple[Step, ...]
    after: int


class Chains:
    """The links that the programs of a builder have gone through: `known` by stand, body and link."""

    def __init__(self) -> None:
        self.known: dict[tuple[int, Hashable, Hashable], Link] = {}
        self._numbers: dict[Stand, int] = {}
        self._stands: list[Stand] = []

    def stand(self, rings: Sequence[Ring], written: bytearray) -> int:
        """Return the number of how rings stand."""
        stand = tuple([ring.snapshot() for ring in rings]), bytes(written)
        number = self._numbers.setdefault(stand, len(self._stands))
        if number == len(self._stands):
            self._stands.append(stand)
        return number

    def take(self, number: int, rings: Sequence[Ring], written: bytearray) -> None:
        """Let rings stand so."""
        snapshots, written[:] = self._stands[number]
        for ring, snapshot in zip(rings, snapshots, strict=True):
            ring.restore(snapshot)
