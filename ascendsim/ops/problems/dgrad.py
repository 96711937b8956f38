"""DOC."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ascendsim.ops.problems.sliding import Sliding
from ascendsim.ops.problems.taps import Taps
from ascendsim.program.places import GmTensor


@dataclass(frozen=True)
class DgradGemm:
    """What to compute, free of product and plan.

    Tensors  source (groups, N, D, C1, H, W, C0), weights (groups, KD, C1, KH, KW, C0, columns),
             output (groups, N, D, C1 of the columns, H * W, C0)
    Depth    `depths[d]` lists for each output depth the (kernel depth, source depth) pairs that reach it
    """

    source: GmTensor
    weights: GmTensor
    output: GmTensor
    sliding: Sliding
    depths: tuple[tuple[tuple[int, int], ...], ...]
    backwards: bool
    compute_dtype: str

    @property
    def groups(self) -> int:
        """Groups of the convolution."""
        return self.source.shape[0]

    @property
    def batch(self) -> int:
        """Images."""
        return self.source.shape[1]

    @property
    def channel_groups(self) -> int:
        """Groups of C0 channels in the reduction."""
        return self.source.shape[3]

    @property
    def columns(self) -> int:
        """Output channels of one group, padded to C0."""
        return self.weights.shape[6]

    @property
    def taps(self) -> int:
        """Taps of the kernel in H and W."""
        return self.sliding.kernel[0] * self.sliding.kernel[1]

    @cached_property
    def all_taps(self) -> Taps:
        """The whole reduction at one kernel depth."""
        return Taps(0, self.channel_groups, 0, self.sliding.kernel[0], 0, self.sliding.kernel[1])
