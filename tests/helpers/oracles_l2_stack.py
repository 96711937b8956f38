"""L2 as a stack: the bytes accessed last lie on top, and what lies deeper than the capacity has gone."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

from ascendsim.program.instruction import Traffic

# What L2 holds between kernels: name of the tensor -> bytes that are resident, and how many of them are
# dirty.
L2State = Mapping[str, tuple[int, int]]


class Residency:
    """Bytes of a tensor that are accessed together: how many of them are in L2, and how many are dirty."""

    __slots__ = ("dirty", "resident", "size", "tensor")

    def __init__(self, tensor: str, size: int) -> None:
        self.tensor = tensor
        self.size = size
        self.resident = 0
        self.dirty = 0


class Stack:
    """L2: residencies by when they were accessed last, above what is left of each tensor from before.

    A whole residency moves to the top when it is accessed, and leaves byte by byte from the bottom. So
    within a phase a larger stack holds all that a smaller one does, and never misses more.
    """

    def __init__(self, capacity_bytes: int) -> None:
        self.read_bytes = 0
        self.written_bytes = 0
        self._capacity = capacity_bytes
        self._stack: OrderedDict[int, Residency] = OrderedDict()
        self._before: dict[str, Residency] = {}
        # Tensors of which what is here is spread evenly.
        self._even: set[str] = set()
        self._used = 0

    def forget_bytes(self) -> None:
        """Count bytes from zero again; keep what L2 holds."""
        self.read_bytes = self.written_bytes = 0

    def hold(self, tensor: str, size_bytes: int) -> None:
        """Begin with a tensor that another kernel has written, clean and spread evenly, as far as it fits."""
        residency = self._before[tensor] = Residency(tensor, size_bytes)
        residency.resident = min(size_bytes, self._capacity - self._used)
        self._even.add(tensor)
        self._used += residency.resident

    def take(self, state: L2State) -> None:
        """Begin with what another kernel has left."""
        for tensor, (resident, dirty) in state.items():
            residency = self._before[tensor] = Residency(tensor, resident)
            residency.resident, residency.dirty = resident, dirty
            self._used += resident
        # The other kernel may have run with a larger L2; what leaves here is no traffic of this kernel.
        self.make_room()
        self.forget_bytes()

    def left(self) -> L2State:
        """Return how much of each tensor is here, and how much of that is dirty."""
        self.begin()
        return {name: (kept.resident, kept.dirty) for name, kept in self._before.items() if kept.resident}

    def begin(self) -> None:
        """Begin a phase: keep of every tensor only how much of it is here."""
        # The next phase or kernel names other slices of the same tensor. Which bytes of them are here would
        # take a map of addresses; the amount is enough where a tensor is gone through from begin to end.
        for residency in self._stack.values():
            kept = self._before.setdefault(residency.tensor, Residency(residency.tensor, 0))
            self._even.discard(residency.tensor)
            kept.resident += residency.resident
            kept.dirty += residency.dirty
        self._stack.clear()

    def find(self, residency: Residency, end: int, begin: int) -> None:
        """Let a residency that is accessed for the first time in a phase find what is here of it.

        The phase goes through `end` bytes of its tensor; the residency begins at byte `begin` of them.
        """
        # What came last before is what is still here, so it is the end of the tensor that is found. A tensor
        # that is larger than L2 and read from the front again pushes its own end out before it gets there.
        kept = self._before.get(residency.tensor)
        if kept is None or not kept.resident:
            return
        if residency.tensor in self._even:
            found = residency.size * min(kept.resident, end - begin) // (end - begin)
        else:
            found = min(residency.size, max(0, begin + residency.size - (end - kept.resident)))
        if found:
            residency.dirty = kept.dirty * found // kept.resident
            residency.resident = found
            kept.dirty -= residency.dirty
            kept.resident -= found
            self._stack[id(residency)] = residency

    def access(self, residency: Residency, traffic: Traffic) -> tuple[int, int]:
        """Read, write or add to a residency; return the bytes that are fetched, and those written past L2."""
        missing = residency.size - residency.resident
        writes = traffic.kind != "read"
        # A write replaces what was there, so its old bytes need not come; an atomic add needs them.
        fetched = 0 if traffic.kind == "write" else missing
        self.read_bytes += fetched
        if not traffic.tensor.cached:
            through = residency.size if writes else 0
            self.written_bytes += through
            return fetched, through
        residency.resident = residency.size
        if writes:
            residency.dirty = residency.size
        self._stack[id(residency)] = residency
        self._stack.move_to_end(id(residency))
        self._used += missing
        return fetched, 0

    def make_room(self) -> int:
        """Let go of what lies too deep; return how much of it was dirty."""
        excess = self._used - self._capacity
        if excess <= 0:
            return 0
        self._used = self._capacity
        old = sum(residency.resident for residency in self._before.values())
        # What is left from before was accessed before all that is on the stack, so it goes first; from all
        # tensors alike, since in which order they came is not known any more.
        gone = min(excess, old)
        pushed = 0
        for residency in self._before.values():
            part = min(residency.resident, -(-gone * residency.resident // old)) if gone else 0
            old -= residency.resident
            pushed += _drop(residency, part)
            gone -= part
            excess -= part
        # Then from the bottom of the stack; the one across the edge keeps what is above it.
        while excess:
            key, residency = next(iter(self._stack.items()))
            part = min(residency.resident, excess)
            pushed += _drop(residency, part)
            excess -= part
            if not residency.resident:
                del self._stack[key]
        self.written_bytes += pushed
        return pushed


def _drop(residency: Residency, part: int) -> int:
    """Take bytes out of a residency; return how many of them were dirty."""
    if not part:
        return 0
    # Which of its bytes are dirty is not known either, so they go in proportion.
    dirty = residency.dirty * part // residency.resident
    residency.resident -= part
    residency.dirty -= dirty
    return dirty
