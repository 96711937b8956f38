"""The stack of tiles that L2 is: who was touched last lies on top, and what lies too deep has gone."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

from ascendsim.program.instruction import Traffic

# What L2 holds between kernels: tensor in GM -> bytes that are resident, and how many of them are dirty.
L2State = Mapping[str, tuple[int, int]]


class Residency:
    """Some bytes of a tensor, how many of them are in L2, and how many of those are dirty."""

    __slots__ = ("dirty", "resident", "size", "tensor")

    def __init__(self, tensor: str, size: int) -> None:
        self.tensor = tensor
        self.size = size
        self.resident = 0
        self.dirty = 0


class Stack:
    """L2: tiles by when they were touched last, above what is left of each tensor from before."""

    def __init__(self, capacity_bytes: int) -> None:
        self.read_bytes = 0
        self.written_bytes = 0
        self._capacity = capacity_bytes
        self._stack: OrderedDict[int, Residency] = OrderedDict()
        self._before: dict[str, Residency] = {}
        self._used = 0

    def forget_bytes(self) -> None:
        """Count bytes from zero again; keep what L2 holds."""
        self.read_bytes = self.written_bytes = 0

    def hold(self, tensor: str, size_bytes: int) -> None:
        """Begin with the end of a tensor that was just written, as much of it as there is room for."""
        tile = self._before[tensor] = Residency(tensor, size_bytes)
        tile.resident = tile.dirty = min(size_bytes, self._capacity - self._used)
        self._used += tile.resident

    def take(self, state: L2State) -> None:
        """Begin with what another kernel has left."""
        for tensor, (resident, dirty) in state.items():
            tile = self._before[tensor] = Residency(tensor, resident)
            tile.resident, tile.dirty = resident, dirty
            self._used += resident
        self.make_room()
        self.forget_bytes()

    def left(self) -> L2State:
        """Return how much of each tensor is here, and how much of that is dirty."""
        self.begin()
        return {name: (tile.resident, tile.dirty) for name, tile in self._before.items() if tile.resident}

    def begin(self) -> None:
        """Begin a phase: keep of every tensor only how much of it is here."""
        for tile in self._stack.values():
            kept = self._before.setdefault(tile.tensor, Residency(tile.tensor, 0))
            kept.resident += tile.resident
            kept.dirty += tile.dirty
        self._stack.clear()

    def find(self, tile: Residency, end: int, walked: int) -> None:
        """Let a tile that is met for the first time in a phase find what is here of it.

        The walk over its tensor ends after `end` bytes, the tile begins after `walked`.
        """
        kept = self._before.get(tile.tensor)
        if kept is None or not kept.resident:
            return
        found = min(tile.size, max(0, walked + tile.size - (end - kept.resident)))
        if found:
            tile.dirty = kept.dirty * found // kept.resident
            tile.resident = found
            kept.dirty -= tile.dirty
            kept.resident -= found
            self._stack[id(tile)] = tile

    def touch(self, tile: Residency, traffic: Traffic) -> tuple[int, int]:
        """Read, write or add to a tile; return the bytes that are fetched, and those written past L2."""
        missing = tile.size - tile.resident
        writes = traffic.kind != "read"
        fetched = 0 if traffic.kind == "write" else missing
        self.read_bytes += fetched
        if not traffic.tensor.cached:
            through = tile.size if writes else 0
            self.written_bytes += through
            return fetched, through
        tile.resident = tile.size
        if writes:
            tile.dirty = tile.size
        self._stack[id(tile)] = tile
        self._stack.move_to_end(id(tile))
        self._used += missing
        return fetched, 0

    def make_room(self) -> int:
        """Let go of what lies too deep; return how much of it was dirty."""
        excess = self._used - self._capacity
        if excess <= 0:
            return 0
        self._used = self._capacity
        old = sum(tile.resident for tile in self._before.values())
        gone = min(excess, old)
        pushed = 0
        for tile in self._before.values():
            part = min(tile.resident, -(-gone * tile.resident // old)) if gone else 0
            old -= tile.resident
            pushed += _drop(tile, part)
            gone -= part
            excess -= part
        while excess:
            key, tile = next(iter(self._stack.items()))
            part = min(tile.resident, excess)
            pushed += _drop(tile, part)
            excess -= part
            if not tile.resident:
                del self._stack[key]
        self.written_bytes += pushed
        return pushed


def _drop(tile: Residency, part: int) -> int:
    """Take bytes out of a tile; return how many of them were dirty."""
    if not part:
        return 0
    dirty = tile.dirty * part // tile.resident
    tile.resident -= part
    tile.dirty -= dirty
    return dirty
