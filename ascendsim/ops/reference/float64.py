"""The gradients in float64, quickly: what errors are measured against.

One matrix product per kernel tap and chunk of images, so no im2col matrix is ever held. This is not the
definition of anything bit for bit: the order of additions is the linear-algebra library's own, and so is the
rounding of its threads, which keep the mode that was set when numpy was imported.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.ops.problems.convolution import ConvProblem, Triple
from ascendsim.ops.problems.layers import LayerProblem, TbcLayer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Float64 = NDArray[np.float64]

# Float64 copies of a whole batch, padded, would take many times the memory of the tensors.
_CHUNK_BYTES = 32 << 20
Gradients = tuple[Any, Any, Any]


@default_arithmetic
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
    kernels = _grouped(np.asarray(weight).astype(np.float64), problem)
    made_input = np.zeros(input.shape) if output_mask[0] else None
    made_weight = np.zeros(kernels.shape) if output_mask[1] else None
    made_bias = np.zeros(problem.grad_output[1]) if output_mask[2] else None
    spatial = tuple(range(2, 2 + problem.rank))
    with np.errstate(invalid="ignore", over="ignore"):
        for images in _chunks(problem):
            if made_bias is not None:
                made_bias += grad_output[images].astype(np.float64).sum(axis=(0, *spatial))
            if made_input is None and made_weight is None:
                continue
            for group in range(problem.groups):
                sides = grad_output[images], input[images], kernels[group]
                into = None if made_input is None else made_input[images]
                _group(problem, group, *sides, into, None if made_weight is None else made_weight[group])
    return made_input, None if made_weight is None else _ungrouped(made_weight, problem), made_bias


@default_arithmetic
def layer_gradients_float64(
    problem: LayerProblem,
    grad_output: NDArray[Any],
    input: NDArray[Any],
    weight: NDArray[Any],
    output_mask: tuple[bool, bool, bool] = (True, True, True),
) -> Gradients:
    """Return the gradients of a layer of any kind, as `gradients_float64` does those of a convolution."""
    if isinstance(problem, ConvProblem):
        return gradients_float64(problem, grad_output, input, weight, output_mask)
    if isinstance(problem, TbcLayer):
        inwards = grad_output.transpose(1, 2, 0), input.transpose(1, 2, 0), weight.transpose(2, 1, 0)
        made = gradients_float64(problem.conv, *inwards)
        return made[0].transpose(2, 0, 1), made[1].transpose(2, 1, 0), made[2]
    result, a, b = (np.asarray(one).astype(np.float64) for one in (grad_output, input, weight))
    rows = result.reshape(-1, result.shape[-1])
    with np.errstate(invalid="ignore", over="ignore"):
        if problem.linear:
            found: Gradients = result @ b, rows.T @ a.reshape(-1, a.shape[-1]), rows.sum(axis=0)
        else:
            found = result @ b.swapaxes(-1, -2), a.swapaxes(-1, -2) @ result, None
    made_input, made_weight, made_bias = (
        one if asked else None for one, asked in zip(found, output_mask, strict=True)
    )
    return made_input, made_weight, made_bias


def _group(
    problem: ConvProblem,
    group: int,
    grad_output: NDArray[Any],
    input: NDArray[Any],
    kernel: Float64,
    made_input: Float64 | None,
    made_weight: Float64 | None,
) -> None:
    """Add what one group of some images contributes; `kernel` is (taps..., small channels, big channels)."""
    small_channels = slice(group * problem.small_channels, (group + 1) * problem.small_channels)
    big_channels = slice(group * problem.big_channels, (group + 1) * problem.big_channels)
    small, big = (input, grad_output) if problem.transposed else (grad_output, input)
    rows = _channels_first(small[:, small_channels], problem.small_size)
    flat = rows.reshape(len(rows), -1)
    padded = _pad(_channels_first(big[:, big_channels], problem.big_size), problem)
    sums = np.zeros_like(rows if problem.transposed else padded)
    for tap, window in _taps(problem):
        seen = padded[window]
        columns = seen.reshape(len(seen), -1)
        if made_weight is not None:
            made_weight[tap] += flat @ columns.T
        if made_input is None:
            continue
        if problem.transposed:
            sums += (kernel[tap] @ columns).reshape(sums.shape)
        else:
            sums[window] += (kernel[tap].T @ flat).reshape(seen.shape)
    if made_input is not None:
        channels = small_channels if problem.transposed else big_channels
        made = sums if problem.transposed else _unpad(sums, problem)
        shape = made_input[:, channels].shape
        made_input[:, channels] = made.swapaxes(0, 1).reshape(shape)


def _chunks(problem: ConvProblem) -> Iterator[slice]:
    """Cut the batch so that a chunk of either side takes some tens of megabytes."""
    image = 8 * max(
        problem.big_channels
        * int(np.prod([s + sum(p) for s, p in zip(problem.big_size, problem.pads, strict=True)])),
        problem.small_channels * int(np.prod(problem.small_size)),
    )
    step = max(
        1,  # Float64 copies of a whole batch, padded, would take many times the memory of the tensors.
        _CHUNK_BYTES // image,
    )
    for first in range(0, problem.batch, step):
        yield slice(first, min(first + step, problem.batch))


def _taps(problem: ConvProblem) -> Iterator[tuple[Triple, tuple[slice, ...]]]:
    """Yield each position in the kernel, and its view of the padded big side."""
    depth, height, width = (range(extent) for extent in problem.kernel)
    for at in product(depth, height, width):
        window = [
            slice(tap * dilation, tap * dilation + (size - 1) * stride + 1, stride)
            for tap, dilation, size, stride in zip(
                at, problem.dilations, problem.small_size, problem.strides, strict=True
            )
        ]
        yield at, (slice(None), slice(None), *window)


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
