"""Images with channels last: their pixels alone, or as a sliding kernel sees them, with padding and zeros."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ascendsim.frozen import cached_property
from ascendsim.numerics.compiled.gathered.factor import Values
from ascendsim.numerics.compiled.gathered.threads import ALONE, Threads
from ascendsim.numerics.compiled.gathered.turned import turn_to, turned
from ascendsim.ops.problems.sliding import Sliding

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    # Carriers, or binary16 as it is stored, which becomes carriers as it is laid out.
    Images = NDArray[Any]
    Places = NDArray[np.int64]


@dataclass(frozen=True)
class Pixels:
    """Images (N, D) of which every pixel is there, its channels side by side.

    size     elements from one image at one depth to the next
    pixels   (H * W,): where in its image each pixel begins
    """

    values: Values
    depths: int
    size: int
    pixels: Places

    @classmethod
    def of(cls, images: Images, threads: Threads = ALONE) -> Pixels:
        """Lay out images (N, C, D, H, W)."""
        batch, channels, depths, *size = images.shape
        pixels = prod(size)
        turned_over = turned(images.reshape(batch, channels, -1), threads)
        return cls(Values(turned_over), depths, pixels * channels, np.arange(pixels) * channels)

    def image(self, number: int, depth: int) -> int:
        """Return where an image begins at a depth."""
        return (number * self.depths + depth) * self.size


@dataclass(frozen=True)
class Planes:
    """Images (N, D, height, width, channels) in which every place that the kernel reads is an element."""

    values: Floats
    sliding: Sliding

    @classmethod
    def of(cls, images: Images, sliding: Sliding, channels: int, threads: Threads = ALONE) -> Planes:
        """Lay out images (N, C, D, H, W); channels beyond theirs, padding and what lies between are +0."""
        # These zeros are multiplied as the cube multiplies them: they take their places in a block, and an
        # infinite weight makes NaN of them.
        batch, given, depth = images.shape[:3]
        extent = [_extent(sliding, axis) for axis in (0, 1)]
        (rows, from_rows), (cols, from_cols) = (_pixels(sliding, axis, extent[axis]) for axis in (0, 1))
        values = _framed((batch, depth, *extent, channels), rows, cols, given)
        depths, height, width = (np.arange(size) for size in (depth, *extent))
        places = (depths[:, None, None] * extent[0] + height[rows, None]) * extent[1] + width[cols]
        pixels = images[:, :, :, from_rows, from_cols].reshape(batch, given, -1)
        turn_to(pixels, places.reshape(-1) * channels, values, threads)
        return cls(values, sliding)

    @cached_property
    def flat(self) -> Values:
        """All elements in their order."""
        return Values(self.values)

    def pixels(self) -> Places:
        """Return where each output pixel of an image begins to read, under the first tap: (H * W,)."""
        (height, width), (down, right) = self.sliding.out_size, self.sliding.stride
        return self._grid(np.arange(height) * down, np.arange(width) * right)

    def taps(self) -> Places:
        """Return how much further on each tap reads: (KH * KW,)."""
        (rows, cols), (down, right) = self.sliding.kernel, self.sliding.dilation
        return self._grid(np.arange(rows) * down, np.arange(cols) * right)

    def image(self, number: int, depth: int) -> int:
        """Return where an image begins at a depth."""
        place: int = (number * self.values.shape[1] + depth) * prod(self.values.shape[2:])
        return place

    def inner(self) -> Pixels | None:
        """Return the pixels of the images among all that is here; None if the kernel skips any."""
        height, width = self.values.shape[2:4]
        (rows, from_rows), (cols, from_cols) = (
            _pixels(self.sliding, axis, extent) for axis, extent in enumerate((height, width))
        )
        given = from_rows.stop - from_rows.start, from_cols.stop - from_cols.start
        if given != tuple(self.sliding.image_size):
            return None
        places = self._grid(np.arange(height)[rows], np.arange(width)[cols])
        return Pixels(self.flat, self.values.shape[1], prod(self.values.shape[2:]), places)

    def _grid(self, rows: Places, cols: Places) -> Places:
        _, width, channels = self.values.shape[2:]
        places: Places = (rows[:, None] * width + cols) * channels
        return places.reshape(-1)


def _framed(shape: tuple[int, ...], rows: slice, cols: slice, channels: int) -> Floats:
    """Return memory for planes that is +0 wherever no pixel is put: most of it is not written twice."""
    if rows.step != 1 or cols.step != 1 or channels != shape[-1]:
        return np.zeros(shape, np.float32)
    values = np.empty(shape, np.float32)
    values[:, :, : rows.start] = values[:, :, rows.stop :] = 0.0
    values[:, :, rows, : cols.start] = values[:, :, rows, cols.stop :] = 0.0
    return values


def _extent(sliding: Sliding, axis: int) -> int:
    """Return how many places lie between the first and the last that is read along an axis."""
    outputs, taps = sliding.out_size[axis], sliding.kernel[axis]
    return (outputs - 1) * sliding.stride[axis] + (taps - 1) * sliding.dilation[axis] + 1


def _pixels(sliding: Sliding, axis: int, extent: int) -> tuple[slice, slice]:
    """Return which places along an axis hold pixels, and which pixels these are."""
    # Pixel i lies at i * step + pad. A negative pad leaves the first pixels out; so may a stride the last.
    step, pad = sliding.insert[axis], sliding.pad[axis]
    first = max(0, -(pad // step))
    last = min(sliding.image_size[axis], (extent - 1 - pad) // step + 1)
    count = max(0, last - first)
    start = first * step + pad
    return slice(start, start + (count - 1) * step + 1 if count else start, step), slice(first, first + count)
