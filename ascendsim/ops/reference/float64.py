"""The gradients in float64, quickly: what errors are measured against.

One matrix product per kernel tap and chunk of images, so no im2col matrix is ever held. This is not the
definition of anything bit for bit: the order of additions is the linear-algebra library's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ascendsim.ops.problems.convolution import ConvProblem, Triple

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Float64 = NDArray[np.float64]

_CHUNK_BYTES = 32 << 20
Gradients = tuple[Any, Any, Any]


class _Tap(NamedTuple):
    """One position in the kernel, and what it sees of the padded big side."""

    at: Triple
    window: tuple[slice, ...]


def gradients_float64(
    problem: ConvProblem,
    grad_output: NDArray[Any],
    input: NDArray[Any],
    weight: NDArray[Any],
    output_mask: tuple[bool, bool, bool] = (True, True, True),
) -> Gradients:
    """Return (grad_input, grad_weight, grad_bias) as float64 arrays, None where masked.

    Shapes   as `problem` says; any dtype that casts to float64
    Special  Inf and NaN propagate as in float64 arithmetic
    """
    small, big = (input, grad_output) if problem.transposed else (grad_output, input)
    small_made = np.zeros(small.shape) if output_mask[0] and problem.transposed else None
    big_made = np.zeros(big.shape) if output_mask[0] and not problem.transposed else None
    kernels = _grouped(np.asarray(weight).astype(np.float64), problem)
    weight_made = np.zeros(kernels.shape) if output_mask[1] else None
    bias_made = np.zeros(problem.grad_output[1]) if output_mask[2] else None
    spatial = tuple(range(2, 2 + problem.rank))
    with np.errstate(invalid="ignore", over="ignore"):
        for images in _chunks(problem):
            if bias_made is not None:
                bias_made += grad_output[images].astype(np.float64).sum(axis=(0, *spatial))
            if weight_made is None and small_made is None and big_made is None:
                continue
            for group in range(problem.groups):
                parts = (small_made, big_made, weight_made)
                _group(problem, images, group, small, big, kernels[group], parts)
    made_input = small_made if problem.transposed else big_made
    made_weight = None if weight_made is None else _ungrouped(weight_made, problem)
    return made_input, made_weight, bias_made


def _group(
    problem: ConvProblem,
    images: slice,
    group: int,
    small: NDArray[Any],
    big: NDArray[Any],
    kernel: Float64,
    made: tuple[Float64 | None, Float64 | None, Float64 | None],
) -> None:
    """Add what one group and some images contribute; `kernel` is (taps..., small channels, big channels)."""
    small_made, big_made, weight_made = made
    small_channels = slice(group * problem.small_channels, (group + 1) * problem.small_channels)
    big_channels = slice(group * problem.big_channels, (group + 1) * problem.big_channels)
    rows = _channels_first(small[images, small_channels], problem.small_size)
    count = rows.shape[1]
    flat = rows.reshape(len(rows), -1)
    padded = _pad(_channels_first(big[images, big_channels], problem.big_size), problem)
    sums = np.zeros_like(padded if big_made is not None else flat)
    for tap in _taps(problem):
        window = padded[tap.window]
        if weight_made is not None:
            weight_made[(group, *tap.at)] += flat @ window.reshape(len(window), -1).T
        if big_made is not None:
            sums[tap.window] += (kernel[tap.at].T @ flat).reshape(window.shape)
        elif small_made is not None:
            sums += kernel[tap.at] @ window.reshape(len(window), -1)
    if big_made is not None:
        shape = big_made[images, big_channels].shape
        big_made[images, big_channels] = _unpad(sums, problem).swapaxes(0, 1).reshape(shape)
    elif small_made is not None:
        shape = small_made[images, small_channels].shape
        sums = sums.reshape(len(flat), count, -1).swapaxes(0, 1)
        small_made[images, small_channels] = sums.reshape(shape)


def _chunks(problem: ConvProblem) -> Iterator[slice]:
    """Cut the batch so that a chunk of either side takes some tens of megabytes."""
    image = 8 * max(
        problem.big_channels
        * int(np.prod([s + sum(p) for s, p in zip(problem.big_size, problem.pads, strict=True)])),
        problem.small_channels * int(np.prod(problem.small_size)),
    )
    step = max(1, _CHUNK_BYTES // image)
    for first in range(0, problem.batch, step):
        yield slice(first, min(first + step, problem.batch))


def _taps(problem: ConvProblem) -> Iterator[_Tap]:
    depth, height, width = (range(extent) for extent in problem.kernel)
    for at in product(depth, height, width):
        window = [
            slice(tap * dilation, tap * dilation + (size - 1) * stride + 1, stride)
            for tap, dilation, size, stride in zip(
                at, problem.dilations, problem.small_size, problem.strides, strict=True
            )
        ]
        yield _Tap(at, (slice(None), slice(None), *window))


def _channels_first(values: NDArray[Any], size: Triple) -> Float64:
    """Bring (N, C, spatial...) to (C, N, D, H, W)."""
    shape = (*values.shape[:2], *size)
    return np.ascontiguousarray(values.reshape(shape).swapaxes(0, 1).astype(np.float64))


def _pad(values: Float64, problem: ConvProblem) -> Float64:
    return np.pad(values, ((0, 0), (0, 0), *problem.pads))


def _unpad(values: Float64, problem: ConvProblem) -> Float64:
    inner = tuple(
        slice(before, before + size) for (before, _), size in zip(problem.pads, problem.big_size, strict=True)
    )
    return values[(slice(None), slice(None), *inner)]


def _grouped(weight: Float64, problem: ConvProblem) -> Float64:
    """Bring weight to (groups, KD, KH, KW, small channels, big channels)."""
    shape = (problem.groups, problem.small_channels, problem.big_channels, *problem.kernel)
    return np.ascontiguousarray(weight.reshape(shape).transpose(0, 3, 4, 5, 1, 2))


def _ungrouped(weight: Float64, problem: ConvProblem) -> Float64:
    return np.ascontiguousarray(weight.transpose(0, 4, 5, 1, 2, 3)).reshape(problem.weight)
