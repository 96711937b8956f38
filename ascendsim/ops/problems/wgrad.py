"""Wgrad as one matrix product: the small side of a convolution against im2col of its big side."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ascendsim.cube.tile_reads import round_up
from ascendsim.frozen import cached_property
from ascendsim.numerics.formats.dtypes import dtype
from ascendsim.ops.problems.convolution import ConvProblem, pairs_by_depth
from ascendsim.ops.problems.hf32 import stored_name
from ascendsim.ops.problems.merged import FRACTAL
from ascendsim.ops.problems.packed import activation, groups_of
from ascendsim.ops.problems.sliding import Sliding, SlidingGemm
from ascendsim.ops.problems.taps import Taps
from ascendsim.program.places import GmTensor

# Kernels whose windows and C0 groups of channels go into one another well enough for basic blocks.
BLOCK_WINDOWS = (4, 9, 16)
# The least rows, and columns of all kernel depths together, of a grad_weight in basic blocks.
LEAST_BLOCK_SIDE = 128


def takes_blocks(kernel: tuple[int, int, int], small_channels: int, big_channels: int) -> bool:
    """Tell whether sizes suit the basic blocks of 910B and 910_93, of 16-bit operands in one group.

    Source   public ops-nn at e5c3fa932, as read: the tiling code and the interface code ask for the same
    """
    taps = kernel[1] * kernel[2]
    rows, columns = (round_up(channels, FRACTAL) for channels in (small_channels, big_channels))
    large = min(rows, columns * taps * kernel[0]) >= LEAST_BLOCK_SIDE
    return taps == 1 or (taps in BLOCK_WINDOWS and large)


@dataclass(frozen=True)
class WgradGemm(SlidingGemm):
    """The matrix product of wgrad, free of product and plan.

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

    @classmethod
    def of(cls, p: ConvProblem, compute_dtype: str) -> WgradGemm:
        """Describe the grad_weight of a convolution whose operands the cube multiplies as `compute_dtype`."""
        storage = dtype(stored_name(compute_dtype))
        sliding = Sliding.of(p, storage.itemsize)
        c0, small, big = sliding.c0, p.small_size, p.big_size
        depths = pairs_by_depth(p.kernel[0], [(tap, (small, big)) for tap, small, big in p.depths_met])
        sides = ("input", "grad_output") if p.transposed else ("grad_output", "input")
        left = activation(sides[0], p, small, p.small_channels, storage)
        # The left operand takes runs of pixels, whatever row they are in.
        left = replace(left, shape=(*left.shape[:4], small[1] * small[2], c0))
        # Channels are filled up to whole groups; the host drops the rows and columns of zeros again.
        rows = groups_of(p.small_channels, c0) * c0
        columns = groups_of(p.big_channels, c0) * p.kernel[1] * p.kernel[2] * c0
        made = (p.groups, p.kernel[0], rows, columns)
        return cls(
            left,
            activation(sides[1], p, big, p.big_channels, storage),
            GmTensor.of("grad_weight DNC1HWC0", made, "float32", "output", "DNC1HWC0"),
            sliding,
            depths,
            compute_dtype,
        )

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

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The sides m, n and k of one product."""
        return self.rows, self.all_taps.groups * self.sliding.c0, self.sliding.pixels

    @cached_property
    def all_taps(self) -> Taps:
        """All columns at one kernel depth."""
        return Taps(0, self.big.shape[3], 0, self.sliding.kernel[0], 0, self.sliding.kernel[1])
