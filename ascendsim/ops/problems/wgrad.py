"""DOC."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ascendsim.ops.problems.sliding import Sliding
from ascendsim.ops.problems.taps import Taps
from ascendsim.program.places import GmTensor


@dataclass(frozen=True)
class WgradGemm:
    """What to compute, free of product and plan.

    Tensors  small (groups, N, D, C1, H * W, C0), big (groups, N, D, C1, H, W, C0),
             output (groups, KD, rows, columns) float32
    Depth    `depths[kd]` lists for each kernel depth the (small depth, big depth) pairs that meet
    """

    small: GmTensor
    big: GmTensor
    output: GmTensor
    sliding: Sliding
    depths: tuple[tuple[tuple[int, int], ...], ...]
    compute_dtype: str

    @property
    def groups(self) -> int:
        """Groups of the convolution."""
        return self.small.shape[0]

    @property
    def batch(self) -> int:
        """Images."""
        return self.small.shape[1]

    @property
    def rows(self) -> int:
        """Rows of the product: small-side channels of one group, padded to C0."""
        return self.small.shape[3] * self.sliding.c0

    @cached_property
    def all_taps(self) -> Taps:
        """All columns at one kernel depth."""
        return Taps(0, self.big.shape[3], 0, self.sliding.kernel[0], 0, self.sliding.kernel[1])
