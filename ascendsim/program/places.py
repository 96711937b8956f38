"""Where tiles live: slots in the on-chip buffers of a core, and slices of tensors in global memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple


class Slot:
    """A reserved piece of one on-chip buffer of one core; compared by identity.

    `index` numbers the slots of a program from zero, in the order they were reserved.
    """

    __slots__ = ("buffer", "index", "name", "size_bytes")

    def __init__(self, buffer: str, size_bytes: int, name: str, index: int) -> None:
        self.buffer = buffer
        self.size_bytes = size_bytes
        self.name = name
        self.index = index

    def __repr__(self) -> str:
        return f"{self.buffer}:{self.name}({self.size_bytes} B)"


@dataclass(frozen=True, slots=True, eq=False)
class GmTensor:
    """A tensor in global memory.

    Shapes   `shape` in elements, in the layout the kernel uses (NC1HWC0, say)
    Types    `dtype` is the name of the storage format; `itemsize` its bytes
    Role     "input", "output" or "workspace"; an output or workspace is written by the kernel
    Cached   whether L2 keeps what is read and written (SetL2CacheHint); if not, it passes L2 by
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    itemsize: int
    role: str = "input"
    cached: bool = True

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole tensor."""
        size = self.itemsize
        for extent in self.shape:
            size *= extent
        return size


class Gm(NamedTuple):
    """A slice of a tensor in global memory; `index` is a tuple of slices and integers."""

    tensor: GmTensor
    index: tuple[Any, ...]  # type: ignore[assignment]  # hides tuple.index
