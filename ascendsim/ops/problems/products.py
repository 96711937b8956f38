"""The matrix products of a convolution: dgrad makes grad_input, wgrad makes grad_weight.

Dgrad: the left operand is im2col of grad_output, the right one the weights; an image comes out. A transposed
convolution's forward is a dgrad, and so the other way round: its grad_input is the forward of a plain
convolution. A dgrad slides over grad_output with zeros between its pixels, a forward over it as it is; the
same loop nest makes both, and both are called dgrad here.

Wgrad: the left operand is the small side, the right one im2col of the big side; weights come out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ascendsim.errors import ConfigError
from ascendsim.frozen import cached_property
from ascendsim.instructions.cube import FRACTAL_ROWS, round_up
from ascendsim.numerics.dtypes import dtype
from ascendsim.ops.problems.convolution import ConvProblem, activation, groups_of, pairs_by_depth, stored_name
from ascendsim.ops.problems.sliding import Sliding, SlidingGemm, Taps
from ascendsim.program.places import GmTensor

# Channels a tap where there are so few, and the bytes of an element for which load3d knows that.
FOUR, FOUR_BYTES = 4, 2


@dataclass(frozen=True)
class DgradGemm(SlidingGemm):
    """The matrix product of dgrad, free of product and plan.

    Tensors  source (groups, N, D, C1, H, W, C0), weights (groups, KD, C1, KH, KW, C0, columns),
             output (groups, N, D, C1 of the columns, H * W, C0)
    Depth    `depths[d]` lists for each output depth the (kernel depth, source depth) pairs that reach it
    Channels `channels` of one group are added up; the groups of C0 hold them
    """

    source: GmTensor
    weights: GmTensor
    output: GmTensor
    sliding: Sliding
    depths: tuple[tuple[tuple[int, int], ...], ...]
    backwards: bool
    compute_dtype: str
    channels: int

    @classmethod
    def of(cls, p: ConvProblem, compute_dtype: str, result: str | None = None) -> DgradGemm:
        """Describe the grad_input of a convolution whose operands the cube multiplies as `compute_dtype`.

        result   format in which it leaves the cube, in groups of as many channels as the operands have; None:
                 that of the operands
        """
        storage = dtype(stored_name(compute_dtype))
        sliding = Sliding.of(p, storage.itemsize, backwards=not p.transposed)
        c0, (height, width) = sliding.c0, sliding.out_size
        if p.transposed:
            reduced, columns, source_size, made_depths = (
                p.big_channels,
                p.small_channels,
                p.big_size,
                p.small_size[0],
            )
            met = [(small, (tap, big)) for tap, small, big in p.depths_met]
        else:
            reduced, columns, source_size, made_depths = (
                p.small_channels,
                p.big_channels,
                p.small_size,
                p.big_size[0],
            )
            met = [(big, (tap, small)) for tap, small, big in p.depths_met]
        n1 = groups_of(columns, c0)
        weights = (p.groups, p.kernel[0], groups_of(reduced, c0), *p.kernel[1:], c0, n1 * c0)
        made = (p.groups, p.batch, made_depths, n1, height * width, c0)
        return cls(
            activation("grad_output", p, source_size, reduced, storage),
            GmTensor.of("weight DC1HWC0N", weights, storage.name, "input", "DC1HWC0N"),
            GmTensor.of("grad_input NDC1HWC0", made, result or storage.name, "output", "NDC1HWC0"),
            sliding,
            # In rising order of the kernel depth: the order of their additions, which the bits depend on.
            pairs_by_depth(made_depths, met),
            not p.transposed,
            compute_dtype,
            reduced,
        )

    def in_fours(self) -> DgradGemm:
        """Return the product with source and weights in groups of four channels; the output stays.

        Raises   ConfigError if there are more channels, or they do not have 16 bits
        """
        if self.channels > FOUR or self.sliding.itemsize != FOUR_BYTES:
            raise ConfigError(
                f"grad_input of {self.channels} channels of {self.source.dtype}: four channels a tap are for "
                "at most 4 channels of 16 bits; take another schedule"
            )
        source, weights = self.source, self.weights
        shape = *weights.shape[:5], FOUR, weights.shape[6]
        return replace(
            self,
            source=replace(source, name="grad_output NDC1HWC04", shape=(*source.shape[:6], FOUR)),
            weights=replace(weights, name="weight DC1HWC04N", shape=shape),
            sliding=self.sliding._replace(c0=FOUR),
        )

    @property
    def out_c0(self) -> int:
        """Channels in a group of the output."""
        return self.output.shape[5]

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
    def channel_pairs(self) -> int:
        """Pairs of channels that are multiplied with each other, those that fill up groups of C0 included."""
        return self.groups * self.channel_groups * self.sliding.c0 * self.columns

    @property
    def taps(self) -> int:
        """Taps of the kernel in H and W."""
        return self.sliding.kernel[0] * self.sliding.kernel[1]

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The sides m, n and k of one product."""
        return self.sliding.pixels, self.columns, self.all_taps.groups * self.sliding.c0

    @cached_property
    def all_taps(self) -> Taps:
        """The whole reduction at one kernel depth."""
        return Taps(0, self.channel_groups, 0, self.sliding.kernel[0], 0, self.sliding.kernel[1])


# Kernels whose windows and C0 groups of channels go into one another well enough for basic blocks.
BLOCK_WINDOWS = (4, 9, 16)
# The least rows, and columns of all kernel depths together, of a grad_weight in basic blocks.
LEAST_BLOCK_SIDE = 128


def takes_blocks(kernel: tuple[int, int, int], small_channels: int, big_channels: int) -> bool:
    """Return whether sizes suit the basic blocks of 910B and 910_93, of 16-bit operands in one group.

    Source   public ops-nn at e5c3fa932, as read: the tiling code and the interface code have the same
             condition
    """
    taps = kernel[1] * kernel[2]
    rows, columns = (round_up(channels, FRACTAL_ROWS) for channels in (small_channels, big_channels))
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
    def channel_pairs(self) -> int:
        """Pairs of channels that are multiplied with each other, those that fill up groups of C0 included."""
        return self.groups * self.rows * self.big.shape[3] * self.sliding.c0

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The sides m, n and k of one product."""
        return self.rows, self.all_taps.groups * self.sliding.c0, self.sliding.pixels

    @cached_property
    def all_taps(self) -> Taps:
        """All columns at one kernel depth."""
        return Taps(0, self.big.shape[3], 0, self.sliding.kernel[0], 0, self.sliding.kernel[1])
