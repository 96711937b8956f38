"""A base block of grad_weight on 910_95, and what its tiles take in L1."""

from __future__ import annotations

from dataclasses import dataclass

from ascendsim.ops.tiling.vendor.layer import Layer, Machine, align, ceil_div
from ascendsim.ops.tiling.vendor.windows import rows_touched, wgrad_channels, wgrad_rows


@dataclass(frozen=True)
class Block:
    """A base block of grad_weight with its tiles in L1.

    depth       slices of base_k in the tiles of both operands together, where the reduction has so many
    copies      of both tiles in L1
    strip       columns of grad_output in one pass; 0: whole rows
    split_taps  whether a load3d reads one tap, and not all of the kernel's
    height      rows of grad_output that one task reduces; 0: all
    """

    layer: Layer
    machine: Machine
    base_m: int
    base_n: int
    base_k: int
    depth: int = 2
    copies: int = 2
    strip: int = 0
    split_taps: bool = False
    height: int = 0

    @property
    def single_k(self) -> int:
        """Pixels of one image that a task reduces."""
        return (self.height or self.layer.output[1]) * self.layer.output[2]

    @property
    def step(self) -> int:
        """Slices of base_k in a tile of either operand."""
        return min(self.depth // 2, ceil_div(self.single_k, self.base_k))

    @property
    def fits(self) -> bool:
        """Tell whether L1 holds the tiles."""
        elements = self._pixels * self.base_m + max(map(self._image, self._widths))
        return self.copies * elements * self.layer.itemsize <= self.machine.l1

    @property
    def _widths(self) -> tuple[int, ...]:
        """Columns of the strips: of all but the last one, and of that; without strips those of a row."""
        width = self.layer.output[2]
        last = width % self.strip if self.strip else 0
        return (min(self.strip or width, width), *((last,) if last else ()))

    @property
    def _pixels(self) -> int:
        """Pixels of grad_output in a tile: of a strip the whole rows that a run of them touches."""
        pixels = self.step * self.base_k
        return max(align(rows_touched(pixels, w) * w) for w in self._widths) if self.strip else pixels

    def _image(self, width: int) -> int:
        """Return the elements of input that a tile's run of pixels needs in rows or strips of a width."""
        layer, pixels = self.layer, self.step * self.base_k
        if self.split_taps:
            # One tap reads one pixel of input for each of grad_output, which the copy has brought together.
            return rows_touched(pixels, width) * width * align(self.channels)
        columns = (width - 1) * layer.stride[2] + layer.spans[2] if self.strip else layer.input[2]
        return wgrad_rows(layer, pixels, width) * columns * self.channels

    @property
    def channels(self) -> int:
        """Channels of input in a tile."""
        taps = self.layer.taps
        return min(wgrad_channels(self.base_n, taps, self.layer.c0), align(self.layer.ci))
