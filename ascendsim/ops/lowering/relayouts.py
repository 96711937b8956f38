"""The changes of layout of a convolution: what TransData does to the tensors of a call.

`layouts.py` says the same by plain array code, and defines it.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.schedules.vector.relayout import GradientRelayout, PixelRelayout, WeightRelayout
from ascendsim.program.places import GmTensor


def activation_in(given: GmTensor, target: GmTensor, groups: int) -> PixelRelayout:
    """Return the change of an activation (N, groups * C, spatial...) to (groups, N, D, C1, H, W, C0)."""
    return _activation(given, target, given.shape, groups, packs=True)


def activation_out(source: GmTensor, made: GmTensor, shape: tuple[int, ...], groups: int) -> PixelRelayout:
    """Return the change of (groups, N, D, C1, H * W, C0) back to an activation of this shape."""
    return _activation(made, source, shape, groups, packs=False)


def weight_in(given: GmTensor, target: GmTensor, p: ConvProblem, *, reduce_small: bool) -> WeightRelayout:
    """Return the change of a weight to (groups, KD, C1, KH, KW, C0, columns)."""
    groups, depth, c1, height, width, c0, columns = target.shape
    packed = groups, depth, c1, height * width, c0, columns
    channels = p.small_channels if reduce_small else p.big_channels
    return WeightRelayout(
        replace(given, shape=_kernels(p), role="input"),
        replace(target, shape=packed, role="output"),
        channels,
        packs=True,
        reduces_small=reduce_small,
    )


def weight_out(source: GmTensor, made: GmTensor, p: ConvProblem, c0: int) -> GradientRelayout:
    """Return the change of (groups, KD, rows, C1 * KH * KW * C0) back to the shape of weight."""
    groups, depth, rows, columns = source.shape
    taps = prod(p.kernel[1:])
    packed = groups, depth, rows, columns // (taps * c0), taps, c0
    return GradientRelayout(
        replace(made, shape=_kernels(p), role="output"),
        replace(source, shape=packed, role="input"),
        p.big_channels,
        packs=False,
    )


def _activation(
    plain: GmTensor, packed: GmTensor, shape: tuple[int, ...], groups: int, *, packs: bool
) -> PixelRelayout:
    _, images, depths, c1 = packed.shape[:4]
    pixels, c0 = prod(packed.shape[4:-1]), packed.shape[-1]
    channels = shape[1] // groups
    roles = ("input", "output") if packs else ("output", "input")
    return PixelRelayout(
        replace(plain, shape=(images, groups, channels, depths, pixels), role=roles[0]),
        replace(packed, shape=(groups, images, depths, c1, pixels, c0), role=roles[1]),
        channels,
        packs,
    )


def _kernels(p: ConvProblem) -> tuple[int, ...]:
    """Return the shape of a weight as changes see it: (groups, S, B, KD, T)."""
    return p.groups, p.small_channels, p.big_channels, p.kernel[0], prod(p.kernel[1:])
