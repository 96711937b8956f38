"""Dgrad as one matrix product: grad_input, and the forward direction of a transposed convolution.

The left operand is im2col of the source image, the right one the weights; what comes out is an image. The
backward direction slides over grad_output with zeros between its pixels. Where the convolution is transposed,
its gradient is the forward direction of a plain one, which slides over grad_output as it is: one loop nest
serves both.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ascendsim.numerics.formats.dtypes import dtype
from ascendsim.ops.problems.convolution import ConvProblem, Triple
from ascendsim.ops.problems.hf32 import stored_name
from ascendsim.ops.problems.packed import C0_BYTES, activation, groups_of
from ascendsim.ops.problems.sliding import Sliding
from ascendsim.ops.problems.taps import Taps
from ascendsim.program.places import GmTensor


@dataclass(frozen=True)
class DgradGemm:
    """What dgrad computes, free of product and plan.

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

    @classmethod
    def of(cls, p: ConvProblem, compute_dtype: str) -> DgradGemm:
        """Describe the grad_input of a convolution whose operands the cube multiplies as `compute_dtype`."""
        storage = dtype(stored_name(compute_dtype))
        c0 = C0_BYTES // storage.itemsize
        forward = p.transposed
        source_size, out_size = (p.big_size, p.small_size) if forward else (p.small_size, p.big_size)
        reduced, columns = p.small_channels, p.big_channels
        if forward:
            reduced, columns = columns, reduced
        n1 = groups_of(columns, c0)
        weights = (p.groups, p.kernel[0], groups_of(reduced, c0), *p.kernel[1:], c0, n1 * c0)
        made = (p.groups, p.batch, out_size[0], n1, out_size[1] * out_size[2], c0)
        return cls(
            activation("grad_output", p, source_size, reduced, storage),
            GmTensor.of("weight DC1HWC0N", weights, storage.name, "input", "DC1HWC0N"),
            GmTensor.of("grad_input NDC1HWC0", made, storage.name, "output", "NDC1HWC0"),
            _sliding(p, source_size, out_size, c0, storage.itemsize),
            tuple(_depth_pairs(p, depth) for depth in range(out_size[0])),
            not forward,
            compute_dtype,
        )

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


def _sliding(p: ConvProblem, source: Triple, out: Triple, c0: int, itemsize: int) -> Sliding:
    """Return how the kernel slides over the source image in H and W."""
    stride, insert = p.strides[1:], (1, 1)
    pad = p.pads[1][0], p.pads[2][0]
    if not p.transposed:
        # Backwards the stride stands between the pixels of the source. The first tap read by output row y is
        # at y - pad + (kernel - 1) * dilation, walking taps backwards.
        stride, insert = insert, stride
        pad = (
            (p.kernel[1] - 1) * p.dilations[1] - pad[0],
            (p.kernel[2] - 1) * p.dilations[2] - pad[1],
        )
    return Sliding(out[1:], source[1:], p.kernel[1:], stride, p.dilations[1:], pad, insert, c0, itemsize)


def _depth_pairs(p: ConvProblem, out: int) -> tuple[tuple[int, int], ...]:
    """Return the (kernel depth, source depth) pairs that reach one output depth."""
    stride, dilation, pad = p.strides[0], p.dilations[0], p.pads[0][0]
    pairs = []
    for tap in range(p.kernel[0]):
        if p.transposed:
            source, rest = out * stride + tap * dilation - pad, 0
            limit = p.big_size[0]
        else:
            source, rest = divmod(out + pad - tap * dilation, stride)
            limit = p.small_size[0]
        if rest == 0 and 0 <= source < limit:
            pairs.append((tap, source))
    return tuple(pairs)
