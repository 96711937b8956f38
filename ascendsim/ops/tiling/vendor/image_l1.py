"""The tiles of grad_input in L1: how many slices of the reduction each operand holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ascendsim.ops.tiling.vendor.layer import Layer, Machine, ceil_div
from ascendsim.ops.tiling.vendor.windows import dgrad_channel_bytes


class Steps(NamedTuple):
    """Slices of base_k in one L1 tile of grad_output and of the weights, and copies of the tiles."""

    a: int
    b: int
    a_buffers: int = 2
    b_buffers: int = 2


ONE_SLICE = Steps(1, 1)
# Copies of both operands' tiles, in the order in which they are tried.
PINGPONG = ((2, 2), (2, 1), (1, 2), (1, 1))


@dataclass(frozen=True)
class ImageL1:
    """What the tiles of a base block of grad_input take in L1.

    The reduction lies in windows: all taps of one C0 group of channels.
    """

    layer: Layer
    machine: Machine
    base_m: int
    base_n: int
    base_k: int

    @property
    def window(self) -> int:
        """Reduction of one C0 group of channels."""
        return self.layer.taps * self.layer.c0

    @property
    def reduction(self) -> int:
        """Reduction at one kernel depth."""
        return self.layer.co1 * self.window

    @property
    def slices(self) -> int:
        """Slices of base_k in the reduction at one kernel depth."""
        return ceil_div(self.reduction, self.base_k)

    @property
    def column_bytes(self) -> int:
        """Bytes of the weights of one C0 group of channels."""
        return self.base_n * self.window * self.layer.itemsize

    def a_bytes(self, steps: Steps) -> int:
        """Return the bytes of all copies of grad_output's tile."""
        per_channel = dgrad_channel_bytes(self.layer, self.base_m) // self.layer.c0
        return steps.a_buffers * per_channel * max(steps.a * self.base_k // self.layer.taps, 1)

    def b_bytes(self, steps: Steps) -> int:
        """Return the bytes of all copies of the weights' tile."""
        return steps.b_buffers * self.column_bytes * ceil_div(steps.b * self.base_k, self.window)

    def fits(self, steps: Steps) -> bool:
        """Tell whether L1 holds these tiles, and whether each is made of whole windows."""
        whole = all(step * self.base_k % self.window == 0 for step in (steps.a, steps.b))
        return whole and self.a_bytes(steps) + self.b_bytes(steps) <= self.machine.l1
