"""The meaning of TransData: from row after row to the cube's layouts (`problems/packed.py`), and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ascendsim.ops.problems.convolution import ConvProblem, Triple
from ascendsim.ops.problems.merged import merged
from ascendsim.ops.problems.packed import groups_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    # Carriers, or binary16 as it is stored.
    Values = NDArray[Any]


def with_channels(values: Values, channels: int) -> Values:
    """Return (N, C, spatial...) with so many channels, the last of them zeros, or the first of its own."""
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
