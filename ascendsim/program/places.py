"""Places of tiles: slots in the on-chip buffers of a core, and slices of tensors in global memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from ascendsim.numerics.formats.dtypes import ELEMENTS, find


# Compared by identity, since two slots of one size in one buffer are still two: were they equal, an
# instruction on one would wait for those on the other.
class Slot:
    """A range of one on-chip buffer of one core, reserved for one tile after another; compared by identity.

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


# The layouts of a convolution's operands, whose innermost axis is a group of channels.
CHANNELS_LAST = frozenset({"NDC1HWC0", "DC1HWC0N"})


# By identity: two kernels may see one tensor in two shapes, and know by its name that it is one.
@dataclass(frozen=True, slots=True, eq=False)
class GmTensor:
    """A tensor in global memory, as one kernel sees it; the kernels of a call know each other's by name.

    Shapes   `shape` in elements, along the axes of the layout; two kernels may fold the axes differently
    Layout   the order of its elements: "ND" (row after row), "NDC1HWC0", ... (`ops/lowering/layouts.py`)
    Types    `dtype` is the name of the storage format; `itemsize` its bytes
    Role     "input", "output" or "workspace"; an output or workspace is written by the kernel
    Cached   whether L2 keeps what is read and written (SetL2CacheHint); if not, it passes L2 by
    Permuted (stored shape, axes) of a tensor whose elements the kernel takes in the order of other axes
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    itemsize: int
    role: str = "input"
    cached: bool = True
    layout: str = "ND"
    permuted: tuple[tuple[int, ...], tuple[int, ...]] | None = None

    @classmethod
    def of(
        cls, name: str, shape: tuple[int, ...], dtype: str, role: str = "input", layout: str = "ND"
    ) -> GmTensor:
        """Return a tensor of a named format.

        Raises   UnsupportedError for a format that nobody knows
        """
        return cls(name, shape, dtype, find(dtype, ELEMENTS).itemsize, role, layout=layout)

    @property
    def laid_out(self) -> bool:
        """Whether it lies in a layout of a convolution's operands on the cube."""
        return self.layout in CHANNELS_LAST

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
