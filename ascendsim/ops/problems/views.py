"""The places of a tensor's elements in memory, as the caller's strides say."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

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


def blocks_of(size_bytes: int) -> int:
    """Return the bytes of the whole blocks that hold so many."""
    return -(-size_bytes // BLOCK_BYTES) * BLOCK_BYTES
