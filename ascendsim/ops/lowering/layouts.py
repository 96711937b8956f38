"""The meaning of TransData: from rows of elements to the cube's layouts, and back."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ascendsim.instructions.cube import FRACTAL_ROWS
from ascendsim.ops.problems.convolution import ConvProblem, Triple, groups_of, merged
from ascendsim.ops.schedules.vector.regroup import Regroup
from ascendsim.ops.schedules.vector.relayout import PixelRelayout
from ascendsim.ops.schedules.vector.taps import GradientRelayout, WeightRelayout
from ascendsim.program.places import GmTensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.ops.schedules.vector.taps import DiagonalGradient, DiagonalWeight

    Values = NDArray[Any]


def with_channels(values: Values, channels: int) -> Values:
    """Return (N, C, spatial...) with `channels` channels: padded with zeros, or cut to the first ones."""
    have = values.shape[1]
    if have >= channels:
        return np.ascontiguousarray(values[:, :channels])
    more = np.zeros((values.shape[0], channels - have, *values.shape[2:]), values.dtype)
    return np.concatenate([values, more], axis=1)


def block_diagonal(values: Values, problem: ConvProblem, factor: int) -> Values:
    """Return the weight of the convolution in which `factor` groups are one; zeros beside the diagonal."""
    if factor == 1:
        return values
    small, big = problem.small_channels, problem.big_channels
    whole = merged(problem, factor)
    made = np.zeros((whole.groups, factor, small, factor, big, *problem.kernel), values.dtype)
    blocks = values.reshape(problem.groups, small, big, *problem.kernel)
    group, place = np.divmod(np.arange(problem.groups), factor)
    made[group, place, :, place] = blocks
    return made.reshape(whole.weight)


def diagonal_blocks(values: Values, problem: ConvProblem, factor: int) -> Values:
    """Return the weight of `problem` that stands on the diagonal of one in which `factor` groups are one."""
    if factor == 1:
        return values
    small, big = problem.small_channels, problem.big_channels
    split = values.reshape(merged(problem, factor).groups, factor, small, factor, big, *problem.kernel)
    group, place = np.divmod(np.arange(problem.groups), factor)
    return np.ascontiguousarray(split[group, place, :, place]).reshape(problem.weight)


def pack_activation(values: NDArray[np.float32], groups: int, size: Triple, c0: int) -> NDArray[np.float32]:
    """Bring (N, groups * C, spatial...) to (groups, N, D, C1, H, W, C0)."""
    # Channels that the last group lacks are zeros: they add nothing, but take their place in an Mmad.
    batch, total = values.shape[:2]
    channels = total // groups
    c1 = groups_of(channels, c0)
    packed = np.zeros((groups, batch, size[0], c1, size[1], size[2], c0), dtype=np.float32)
    source = values.reshape(batch, groups, channels, *size)
    for group in range(c1):
        part = source[:, :, group * c0 : (group + 1) * c0]
        packed[:, :, :, group, :, :, : part.shape[2]] = part.transpose(1, 0, 3, 4, 5, 2)
    return packed


def unpack_activation(
    packed: NDArray[np.float32], channels: int, shape: tuple[int, ...]
) -> NDArray[np.float32]:
    """Bring (groups, N, D, C1, H * W, C0) back to the user's shape; `channels` are those of one group."""
    groups, batch, depth, c1, pixels, c0 = packed.shape
    plain = packed.transpose(1, 0, 3, 5, 2, 4).reshape(batch, groups, c1 * c0, depth, pixels)
    return np.ascontiguousarray(plain[:, :, :channels]).reshape(shape)


def pack_weight(
    values: NDArray[np.float32], problem: ConvProblem, c0: int, *, reduce_small: bool, unit: int = 0
) -> NDArray[np.float32]:
    """Bring weight to (groups, KD, C1, KH, KW, C0, columns), columns padded to a multiple of `unit` (0: C0).

    `reduce_small` sums over the channels of the small side (the backward direction), so that the big side's
    channels are the columns; otherwise the other way round.
    """
    groups, kernel = problem.groups, problem.kernel
    source = values.reshape(groups, problem.small_channels, problem.big_channels, *kernel)
    if not reduce_small:
        source = source.transpose(0, 2, 1, 3, 4, 5)
    reduced, columns = source.shape[1:3]
    c1, unit = groups_of(reduced, c0), unit or c0
    packed = np.zeros(
        (groups, kernel[0], c1, kernel[1], kernel[2], c0, groups_of(columns, unit) * unit), np.float32
    )
    for group in range(c1):
        part = source[:, group * c0 : (group + 1) * c0]
        packed[:, :, group, :, :, : part.shape[1], :columns] = part.transpose(0, 3, 4, 5, 1, 2)
    return packed


def unpack_weight(packed: NDArray[np.float32], problem: ConvProblem, c0: int) -> NDArray[np.float32]:
    """Bring (groups, KD, rows, C1 * KH * KW * C0) back to the shape of weight."""
    groups, (kd, kh, kw) = problem.groups, problem.kernel
    c1 = groups_of(problem.big_channels, c0)
    plain = packed.reshape(groups, kd, packed.shape[2], c1, kh, kw, c0)
    plain = plain.transpose(0, 2, 3, 6, 1, 4, 5).reshape(groups, packed.shape[2], c1 * c0, kd, kh, kw)
    kept = plain[:, : problem.small_channels, : problem.big_channels]
    return np.ascontiguousarray(kept).reshape(problem.weight)


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
        from ascendsim.ops.schedules.vector.taps import DiagonalWeight

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
    """Return the shape of a weight whose groups are merged into one: C0 channels of B, and all of S.

    (1, KD, C1, T, C0, columns) of weights, (1, KD, rows, C1, T, C0) of a grad_weight.
    """
    rows = groups_of(p.groups * p.small_channels, FRACTAL_ROWS) * FRACTAL_ROWS
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
        from ascendsim.ops.schedules.vector.taps import DiagonalGradient

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
