"""The convolution whose backward pass is asked for, always in three dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import lcm
from typing import TYPE_CHECKING

from ascendsim.errors import ShapeError, items, shown, truth, whole
from ascendsim.frozen import cached_property
from ascendsim.instructions.cube import FRACTAL_ROWS
from ascendsim.numerics.dtypes import DType
from ascendsim.program.places import GmTensor

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ascendsim.profile import Profile


Pair = tuple[int, int]
Triple = tuple[int, int, int]
AXES = {1: ("length",), 2: ("height", "width"), 3: ("depth", "height", "width")}


@dataclass(frozen=True)
class ConvProblem:
    """Shapes and attributes of one convolution, as the user gives them, and the 3-D form derived from them.

    input     (N, C, L), (N, C, H, W) or (N, C, D, H, W)
    weight    (Cout, Cin / groups, K...), or (Cin, Cout / groups, K...) when transposed
    stride, padding, dilation, output_padding
              one number, or one for each spatial axis; padding in 2-D also (top, bottom, left, right)
    groups    number of groups

    The convolution relates a *big* side and a *small* side: small = floor((big + pads - dilated kernel) /
    stride) + 1. The big side is the input, or grad_output when transposed. 1-D and 2-D problems get axes of
    length 1 in front: sizes, strides, kernels below are always (D, H, W).

    Raises    ShapeError with the rule and the numbers that break it
    """

    input: tuple[int, ...]
    weight: tuple[int, ...]
    stride: int | Sequence[int] = 1
    padding: int | Sequence[int] = 0
    dilation: int | Sequence[int] = 1
    transposed: bool = False
    output_padding: int | Sequence[int] = 0
    groups: int = 1

    def __post_init__(self) -> None:
        """Bring sequences to tuples of int and check that everything fits."""
        for name in ("input", "weight"):
            object.__setattr__(self, name, _integers(f"{name} shape", getattr(self, name)))
        transposed = truth(self.transposed)
        _require(transposed is not None, f"transposed is {shown(self.transposed)}; it must be true or false")
        object.__setattr__(self, "transposed", transposed)
        of_input = f"input has rank {len(self.input)} {self.input}"
        _require(len(self.input) in (3, 4, 5), f"{of_input}; it must be 3, 4 or 5")
        of_weight = f"weight has rank {len(self.weight)} {self.weight}"
        _require(len(self.weight) == len(self.input), f"{of_weight}, but {of_input}; they must be equal")
        for name, least in (("stride", 1), ("padding", 0), ("dilation", 1), ("output_padding", 0)):
            self._check_attribute(name, least)
        self._check_sizes()

    def _check_attribute(self, name: str, least: int) -> None:
        value = getattr(self, name)
        number = whole(value)
        values = _integers(name, value) if number is None else (number,) * self.rank
        lengths = (2, 4) if name == "padding" and self.rank == 2 else (self.rank,)
        wanted = " or ".join(map(str, lengths))
        _require(len(values) in lengths, f"{name} has {len(values)} values {values}; it needs {wanted}")
        _require(min(values) >= least, f"{name} is {values}; every value must be at least {least}")
        object.__setattr__(self, name, values)

    def _check_sizes(self) -> None:
        input, weight = self.input, self.weight
        _require(min(*input, *weight) >= 1, f"input {input} and weight {weight} must not be empty")
        groups = whole(self.groups) or 0
        _require(groups >= 1, f"groups is {shown(self.groups)}; it must be an integer of at least 1")
        object.__setattr__(self, "groups", groups)
        # A transposed weight has the input's channels in front, undivided; a plain one those of one group.
        ours = weight[0] if self.transposed else weight[1] * groups
        rule = "weight.shape[0]" if self.transposed else "weight.shape[1] * groups"
        _require(input[1] == ours, f"input has {input[1]} channels, but {rule} is {ours}")
        _require(
            weight[0] % groups == 0, f"weight.shape[0] is {weight[0]}, which {groups} groups do not divide"
        )
        # The kernel may be larger than the image, as long as padding makes up for it.
        for axis, size in zip(AXES[self.rank], self.grad_output[2:], strict=True):
            _require(
                size >= 1,
                f"the {axis} of grad_output would be {size}; the dilated kernel is larger than the padded "
                f"input (input {input}, weight {weight}, padding {self.padding}, dilation {self.dilation})",
            )

    @property
    def rank(self) -> int:
        """Number of spatial axes."""
        return len(self.input) - 2

    @cached_property
    def strides(self) -> Triple:
        """Stride along D, H, W."""
        return _triple(self.stride, 1)

    @cached_property
    def dilations(self) -> Triple:
        """Dilation along D, H, W; 1 along an axis on which the kernel has one tap."""
        # One tap has no neighbour to be far from: calls that differ in this alone are one problem.
        d, h, w = (s if k > 1 else 1 for s, k in zip(_triple(self.dilation, 1), self.kernel, strict=True))
        return d, h, w

    @cached_property
    def kernel(self) -> Triple:
        """Kernel extent along D, H, W."""
        return _triple(self.weight[2:], 1)

    @cached_property
    def pads(self) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
        """Padding before and after, along D, H, W."""
        values = self.padding
        assert isinstance(values, tuple)
        # Four values only in two dimensions: the interface has no form of four for the others.
        if self.rank == 2 and len(values) == 4:
            return (0, 0), (values[0], values[1]), (values[2], values[3])
        d, h, w = _triple(values, 0)
        return (d, d), (h, h), (w, w)

    @cached_property
    def input_size(self) -> Triple:
        """Spatial size of input along D, H, W."""
        return _triple(self.input[2:], 1)

    @cached_property
    def output_size(self) -> Triple:
        """Spatial size of grad_output along D, H, W."""
        spans = [d * (k - 1) + 1 for d, k in zip(self.dilations, self.kernel, strict=True)]
        axes = zip(self.input_size, self.strides, map(sum, self.pads), spans, strict=True)
        if self.transposed:
            # Several sizes of the big side give one size of the small side: output_padding says which.
            made = zip(axes, _triple(self.output_padding, 0), strict=True)
            d, h, w = ((size - 1) * stride - pad + span + more for (size, stride, pad, span), more in made)
        else:
            d, h, w = ((size + pad - span) // stride + 1 for size, stride, pad, span in axes)
        return d, h, w

    @cached_property
    def grad_output(self) -> tuple[int, ...]:
        """Shape of grad_output."""
        channels = self.weight[1] * self.groups if self.transposed else self.weight[0]
        return (self.input[0], channels, *self.output_size[3 - self.rank :])

    @property
    def batch(self) -> int:
        """Number of images."""
        return self.input[0]

    @property
    def big_size(self) -> Triple:
        """Spatial size of the side that the kernel slides over."""
        return self.output_size if self.transposed else self.input_size

    @property
    def small_size(self) -> Triple:
        """Spatial size of the side with one position per kernel placement."""
        return self.input_size if self.transposed else self.output_size

    @cached_property
    def depths_met(self) -> tuple[Triple, ...]:
        """(Tap, small depth, big depth) wherever a kernel tap in depth meets the big side, not its padding.

        A slice of pixels is a two-dimensional image, so depth is no part of im2col: it is a loop outside.
        """
        stride, dilation, (pad, _) = self.strides[0], self.dilations[0], self.pads[0]
        return tuple(
            (tap, small, big)
            for tap in range(self.kernel[0])
            for small in range(self.small_size[0])
            if 0 <= (big := small * stride + tap * dilation - pad) < self.big_size[0]
        )

    @property
    def big_channels(self) -> int:
        """Channels of the big side in one group."""
        return self.weight[1]

    @property
    def small_channels(self) -> int:
        """Channels of the small side in one group."""
        return self.weight[0] // self.groups

    @property
    def macs(self) -> int:
        """Multiply-adds of one gradient, counting padding positions as the dense formula does."""
        d, h, w = self.small_size
        kd, kh, kw = self.kernel
        return self.batch * d * h * w * self.weight[0] * self.weight[1] * kd * kh * kw

    @property
    def met_macs(self) -> int:
        """Multiply-adds of one gradient whose tap meets an element of the big side, not its padding.

        A nest may skip the others, and cannot skip these.
        """
        axes = zip(
            *(self.kernel, self.small_size, self.big_size, self.strides, self.dilations, self.pads),
            strict=True,
        )
        met = 1
        for taps, small, big, stride, dilation, (pad, _) in axes:
            # Of pixels those whose place is in the image, counted and not listed.
            begins = (tap * dilation - pad for tap in range(taps))
            ends = ((max(0, -(at // stride)), min(small, -((at - big) // stride))) for at in begins)
            met *= sum(max(0, end - first) for first, end in ends)
        return self.batch * self.weight[0] * self.weight[1] * met

    def check_grad_output(self, shape: tuple[int, ...]) -> None:
        """Compare the shape of a grad_output tensor with what the problem needs.

        Raises   ShapeError naming the first axis that differs, with the numbers the rule uses
        """
        if len(shape) != len(self.grad_output):
            raise ShapeError(
                f"convolution_backward: grad_output has rank {len(shape)} {shape}, but input has rank "
                f"{len(self.input)}; they must be equal"
            )
        names = ("batch", "channels", *AXES[self.rank])
        for place, (name, got, want) in enumerate(zip(names, shape, self.grad_output, strict=True)):
            if got != want:
                raise ShapeError(
                    f"convolution_backward: grad_output has {name} {got}, but {self._why(place)} give {want}"
                )

    def _why(self, place: int) -> str:
        """Say which numbers fix one axis of grad_output."""
        if place == 0:
            return f"the {self.batch} images of input"
        if place == 1:
            return f"weight {self.weight} and groups {self.groups}"
        axis = place - 2 + 3 - self.rank
        name, before, after = AXES[3][axis], *self.pads[axis]
        text = (
            f"input {name} {self.input_size[axis]}, padding {before}+{after}, kernel {self.kernel[axis]}, "
            f"dilation {self.dilations[axis]}, stride {self.strides[axis]}"
        )
        if self.transposed:
            text += f", output_padding {_triple(self.output_padding, 0)[axis]}"
        return text


def pairs_by_depth(depths: int, met: Sequence[tuple[int, Pair]]) -> tuple[tuple[Pair, ...], ...]:
    """Sort (depth, pair) into a list for each of `depths` depths; the pairs of a depth stay in order."""
    found: list[list[Pair]] = [[] for _ in range(depths)]
    for depth, pair in met:
        found[depth].append(pair)
    return tuple(map(tuple, found))


def _triple(values: int | Sequence[int], fill: int) -> Triple:
    """Put `fill` in front until there are three values."""
    # In front: a row is an image of height 1, an image a volume of depth 1, and loops need no cases.
    given = (values,) if isinstance(values, int) else tuple(values)
    d, h, w = (fill,) * (3 - len(given)) + given
    return d, h, w


def _require(holds: bool, rule: str) -> None:
    """Refuse a convolution that breaks a rule."""
    if not holds:
        raise ShapeError(f"convolution: {rule}")


def _integers(name: str, values: object) -> tuple[int, ...]:
    """Return the values as a tuple of int.

    Raises   ShapeError if they are not integers
    """
    given = items(values)
    if given is None:
        raise ShapeError(f"convolution: {name} is {shown(values)}; it must be a sequence of integers")
    numbers = tuple(number for value in given if (number := whole(value)) is not None)
    _require(len(numbers) == len(given), f"{name} is {shown(given)}; every value must be an integer")
    return numbers


def filling_groups(groups: int, big_channels: int, small_channels: int, unit: int) -> int:
    """Return the least number of groups whose channels fill whole units, at most all groups.

    unit   of the big side's channels; the small side's come in fractals of 16
    """
    if groups == 1:
        return 1
    big, small = lcm(big_channels, unit) // big_channels, lcm(small_channels, FRACTAL_ROWS) // small_channels
    return min(lcm(big, small), groups)


def merged(problem: ConvProblem, factor: int) -> ConvProblem:
    """Return the convolution in which `factor` groups are one; channels that the last one lacks are zeros.

    An example: 24 groups of one channel, 16 of them as one, are two groups of 16 channels, and the last 8
    channels are zeros.
    """
    if factor == 1:
        return problem
    groups = -(-problem.groups // factor)
    small, big = groups * factor * problem.small_channels, groups * factor * problem.big_channels
    return replace(
        problem,
        input=(problem.batch, small if problem.transposed else big, *problem.input[2:]),
        weight=(small, factor * problem.big_channels, *problem.weight[2:]),
        groups=groups,
    )


# The short side of a fractal, and the block in which GM and UB are moved: 16 channels of 16 bits, 8 of 32.
C0_BYTES = 32


# Changes of layout that a kernel makes, as profilers name them; the last: weights of one group become many.
REGROUPS = "FRACTAL_Z->FRACTAL_Z"
CHANGES = (
    *("NCHW->NC1HWC0", "NC1HWC0->NCHW", "NCHW->FRACTAL_Z", "FRACTAL_Z->NCHW"),
    *("NCDHW->NDC1HWC0", "NDC1HWC0->NCDHW", "NCDHW->FRACTAL_Z_3D", "FRACTAL_Z_3D->NCDHW", REGROUPS),
)


def groups_of(channels: int, c0: int) -> int:
    """Return the number of C0 groups that hold `channels` channels."""
    return -(-channels // c0)


def activation(name: str, p: ConvProblem, size: Triple, channels: int, storage: DType) -> GmTensor:
    """Return an activation in the cube's layout; `channels` are those of one group."""
    # Gradients may merge their groups in different ways: then each reads a copy of its own.
    c0 = C0_BYTES // storage.itemsize
    shape = (p.groups, p.batch, size[0], groups_of(channels, c0), *size[1:], c0)
    grouped = f" in groups of {channels}" if p.groups > 1 else ""
    return GmTensor.of(f"{name} NDC1HWC0{grouped}", shape, storage.name, "input", "NDC1HWC0")


def stored_name(compute_dtype: str) -> str:
    """Return the format in which the cube's operands lie in memory."""
    # No buffer holds HF32: its bytes, and so its tiles and copies, are those of float32.
    return "float32" if compute_dtype == "hf32" else compute_dtype


def full_name(compute_dtype: str, profile: Profile) -> str:
    """Return the format on whose grid the cube multiplies: of hf32, hf32_11 or hf32_10 by product."""
    return f"hf32_{profile.cube.hf32_mantissa_bits}" if compute_dtype == "hf32" else compute_dtype


def as_multiplied(
    values: NDArray[np.float32], compute_dtype: str, profile: Profile, ties: str
) -> NDArray[np.float32]:
    """Return the values that the cube multiplies; HF32 rounds each element on its way out of L0."""
    if compute_dtype != "hf32":
        return values
    from ascendsim.numerics.casts import hf32

    return hf32(values, profile.cube.hf32_mantissa_bits, ties)
