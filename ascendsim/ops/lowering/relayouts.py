"""The changes of layout of a convolution: what TransData does to the tensors of a call.

`layouts.py` says the same by plain array code, and defines it.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.merged import FRACTAL, merged
from ascendsim.ops.problems.packed import groups_of
from ascendsim.ops.schedules.vector.regroup import Regroup
from ascendsim.ops.schedules.vector.relayout import PixelRelayout
from ascendsim.ops.schedules.vector.taps import GradientRelayout, WeightRelayout
from ascendsim.program.places import GmTensor

if TYPE_CHECKING:
    from ascendsim.ops.schedules.vector.diagonal import DiagonalGradient, DiagonalWeight


def activation_in(given: GmTensor, target: GmTensor, channels: int) -> PixelRelayout:
    """Return the change of an activation (N, C, spatial...) to (groups, N, D, C1, H, W, C0).

    channels   of one group; the last one of merged groups may have fewer
    """
    return _activation(given, target, given.shape, channels, packs=True)


def activation_out(source: GmTensor, made: GmTensor, shape: tuple[int, ...], channels: int) -> PixelRelayout:
    """Return the change of (groups, N, D, C1, H * W, C0) back to an activation of this shape."""
    return _activation(made, source, shape, channels, packs=False)


def weight_in(
    given: GmTensor, target: GmTensor, p: ConvProblem, *, reduce_small: bool, merge: int
) -> WeightRelayout | DiagonalWeight:
    """Return the change of a weight to (groups, KD, C1, KH, KW, C0, columns), `merge` groups as one."""
    groups, depth, c1, height, width, c0, columns = target.shape
    packed = replace(target, shape=(groups, depth, c1, height * width, c0, columns), role="output")
    whole = merged(p, merge)
    channels = whole.small_channels if reduce_small else whole.big_channels
    if merge > 1:
        # Imported here, and below: most calls have one group.
        from ascendsim.ops.schedules.vector.diagonal import DiagonalWeight

        plain = replace(given, shape=_all_kernels(p), role="input")
        return DiagonalWeight(plain, packed, channels, True, merge, p.small_channels, reduce_small)
    plain = replace(given, shape=_kernels(p), role="input")
    return WeightRelayout(plain, packed, channels, packs=True, reduces_small=reduce_small)


def split_groups(
    given: GmTensor, target: GmTensor, p: ConvProblem, *, reduce_small: bool, merge: int
) -> Regroup:
    """Return the change of a weight of one group, as `one_group` has it, to what `weight_in` makes."""
    groups, depth, c1, height, width, c0, columns = target.shape
    many = replace(target, shape=(groups, depth, c1, height * width, c0, columns), role="output")
    channels = p.small_channels, p.big_channels
    one = replace(given, role="input")
    return Regroup(one, many, p.groups, merge, *channels, splits=True, reduces_small=reduce_small)


def join_groups(source: GmTensor, made: GmTensor, p: ConvProblem, merge: int) -> Regroup:
    """Return the change of a grad_weight, as the cube makes it, to one of one group (`one_group`)."""
    groups, depth, rows, columns = source.shape
    taps, c0 = made.shape[4:]
    many = replace(source, shape=(groups, depth, rows, columns // (taps * c0), taps, c0), role="input")
    channels = p.small_channels, p.big_channels
    one = replace(made, role="output")
    return Regroup(one, many, p.groups, merge, *channels, splits=False, gradient=True)


def one_group(p: ConvProblem, c0: int, *, gradient: bool) -> tuple[int, ...]:
    """Return the shape of a weight of which all groups are one: C0 channels of B, and all of S beside them.

    (1, KD, C1, T, C0, columns) of weights, (1, KD, rows, C1, T, C0) of a grad_weight.
    """
    rows = groups_of(p.groups * p.small_channels, FRACTAL) * FRACTAL
    c1, taps = groups_of(p.big_channels, c0), prod(p.kernel[1:])
    if gradient:
        return 1, p.kernel[0], rows, c1, taps, c0
    return 1, p.kernel[0], c1, taps, c0, rows


def weight_of_one(given: GmTensor, made: GmTensor, p: ConvProblem) -> WeightRelayout:
    """Return the change of a weight to one of one group."""
    plain = replace(given, shape=_all_kernels(p), role="input")
    return WeightRelayout(plain, made, p.big_channels, packs=True, reduces_small=False)


def gradient_of_one(source: GmTensor, made: GmTensor, p: ConvProblem) -> GradientRelayout:
    """Return the change of a grad_weight of one group back to the shape of weight."""
    plain = replace(made, shape=_all_kernels(p), role="output")
    return GradientRelayout(plain, replace(source, role="input"), p.big_channels, packs=False)


def weight_out(
    source: GmTensor, made: GmTensor, p: ConvProblem, c0: int, merge: int
) -> GradientRelayout | DiagonalGradient:
    """Return the change of (groups, KD, rows, C1 * KH * KW * C0) back to the shape of weight."""
    groups, depth, rows, columns = source.shape
    taps = prod(p.kernel[1:])
    packed = replace(source, shape=(groups, depth, rows, columns // (taps * c0), taps, c0), role="input")
    if merge > 1:
        from ascendsim.ops.schedules.vector.diagonal import DiagonalGradient

        plain = replace(made, shape=_all_kernels(p), role="output")
        channels = merged(p, merge).big_channels
        return DiagonalGradient(plain, packed, channels, False, merge, p.small_channels)
    plain = replace(made, shape=_kernels(p), role="output")
    return GradientRelayout(plain, packed, p.big_channels, packs=False)


def _activation(
    plain: GmTensor, packed: GmTensor, shape: tuple[int, ...], channels: int, *, packs: bool
) -> PixelRelayout:
    groups, images, depths, c1 = packed.shape[:4]
    pixels, c0 = prod(packed.shape[4:-1]), packed.shape[-1]
    roles = ("input", "output") if packs else ("output", "input")
    return PixelRelayout(
        replace(plain, shape=(images, shape[1], depths, pixels), role=roles[0]),
        replace(packed, shape=(groups, images, depths, c1, pixels, c0), role=roles[1]),
        channels,
        packs,
    )


def _all_kernels(p: ConvProblem) -> tuple[int, ...]:
    """Return the shape of a weight as changes of merged groups see it: (1, groups * S, B, KD, T)."""
    return 1, p.groups * p.small_channels, p.big_channels, p.kernel[0], prod(p.kernel[1:])


def _kernels(p: ConvProblem) -> tuple[int, ...]:
    """Return the shape of a weight as changes see it: (groups, S, B, KD, T)."""
    return p.groups, p.small_channels, p.big_channels, p.kernel[0], prod(p.kernel[1:])
