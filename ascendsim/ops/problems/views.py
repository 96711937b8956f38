"""Where the elements of a tensor lie: strides, the bytes that a transfer of them moves, and shared places."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from ascendsim.frozen import cached_property

# To compare places one by one; where that would take longer, memory that looks shared counts as shared.
MOST_COMPARED = 2**24
BLOCK_BYTES = 32  # the least that a transfer between GM and UB moves


@dataclass(frozen=True)
class View:
    """The places of a tensor's elements: strides in elements, of any sign, zero for a repeated axis."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def row_major(cls, shape: tuple[int, ...]) -> View:
        """Return the view of a contiguous tensor."""
        return cls(shape, tuple(prod(shape[axis + 1 :]) for axis in range(len(shape))))

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    def permuted(self, axes: tuple[int, ...]) -> View:
        """Return the view with its axes in another order."""
        return View(tuple(self.shape[a] for a in axes), tuple(self.strides[a] for a in axes))

    @cached_property
    def long_axes(self) -> list[tuple[int, int]]:
        """Return (extent, stride) of every axis with more than one element, outermost first."""
        pairs = zip(self.shape, self.strides, strict=True)
        return [(extent, abs(stride)) for extent, stride in pairs if extent > 1]

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements lie in row-major order without gaps."""
        # A stride along an axis of one element is never taken, whatever it says.
        dense = View.row_major(self.shape).strides
        return self.size == 0 or all(
            extent == 1 or stride == own
            for extent, stride, own in zip(self.shape, self.strides, dense, strict=True)
        )

    def bytes_read(self, itemsize: int) -> int:
        """Bytes that are read to collect all elements once."""
        # Either the whole line comes in one piece, gaps included, or every element in a block of its own.
        length, stride = self._longest_line()
        whole = blocks_of(((length - 1) * stride + 1) * itemsize)
        return self.size // length * min(whole, length * BLOCK_BYTES)

    def bytes_written(self, itemsize: int) -> int:
        """Bytes that are written to put all elements in their places once."""
        # What lies between them is somebody else's, so that only neighbours are written in one piece.
        length, stride = self._longest_line()
        piece = length if stride == 1 else 1
        return self.size // piece * blocks_of(piece * itemsize)

    @property
    def shares_places(self) -> bool:
        """Whether two elements lie in the same place; also where it is not looked at one by one."""
        return share_places(self.shape, self.strides, 1)

    def in_place(self, itemsize: int) -> bool:
        """Whether whole blocks already lie in the order of the elements, so that nothing moves in UB."""
        run = 1
        for extent, stride in reversed(self.long_axes):
            if stride != run:
                break
            run *= extent
        return run * itemsize >= BLOCK_BYTES or run == self.size

    def _longest_line(self) -> tuple[int, int]:
        """Return length and stride of the line along the axis of least stride, with all that continues it."""
        # An axis whose stride is the extent of the line so far goes on where the line ends: both are one.
        if not self.long_axes:
            return 1, 1
        length, stride = min(self.long_axes, key=lambda axis: axis[1])
        rest = list(self.long_axes)
        rest.remove((length, stride))
        while stride and (following := next((axis for axis in rest if axis[1] == length * stride), None)):
            rest.remove(following)
            length *= following[0]
        return length, stride


def share_places(shape: tuple[int, ...], steps: tuple[int, ...], itemsize: int) -> bool:
    """Return whether two elements of a tensor share a byte; `steps` and `itemsize` in the same unit.

    Of very large tensors whose axes lie between each other it counts as shared.
    """
    size = prod(shape)
    if size == 0:
        return False
    axes = sorted((abs(step), extent) for extent, step in zip(shape, steps, strict=True) if extent > 1)
    # The usual case: along every axis the next element lies behind all that the shorter steps reach.
    reach, apart = itemsize, True
    for step, extent in axes:
        apart = apart and step >= reach
        reach += step * (extent - 1)
    if apart:
        return False
    if size * itemsize > reach or size > MOST_COMPARED:
        return True
    places = np.zeros(1, np.int64)
    for step, extent in axes:
        places = np.add.outer(places, step * np.arange(extent)).ravel()
    return bool((np.diff(np.sort(places)) < itemsize).any())


def blocks_of(size_bytes: int) -> int:
    """Return the bytes of the whole blocks that hold this number of bytes."""
    return -(-size_bytes // BLOCK_BYTES) * BLOCK_BYTES
