"""The accumulators of grad_input whose kernel the stride splits, by definition: phase after phase."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.reference.ordered import append_slices, im2col, ordered_dgrad, reduction_by_groups, sources
from ascendsim.ops.reference.passes import passed_dgrad
from ascendsim.ops.reference.sums import add_to_zeros
from ascendsim.ops.schedules.order import DgradOrder

if TYPE_CHECKING:
    from ascendsim.ops.reference.ordered import Floats, Reduce


def any_dgrad(
    problem: ConvProblem, grad_output: Floats, weight: Floats, order: DgradOrder, reduce: Reduce
) -> Floats:
    """Return the accumulators of grad_input in an order with phases, with passes, or neither."""
    made = phased_dgrad if order.axes else passed_dgrad if order.tap_loop else ordered_dgrad
    return made(problem, grad_output, weight, order, reduce)


def phased_dgrad(
    problem: ConvProblem, grad_output: Floats, weight: Floats, order: DgradOrder, reduce: Reduce
) -> Floats:
    """Return the accumulators of grad_input; a phase of the stride multiplies only the taps that it meets.

    Shapes   grad_output and weight as `problem` says, on the grid that the cube multiplies -> as input
    Order    of each pixel as in `ordered_dgrad`, without the taps that read a zero between pixels; a pixel
             that meets no tap is +0
    """
    depth_of = sources(problem, 0, forward=False)
    rows, cols = problem.strides[1], problem.strides[2] if order.axes == "hw" else 1
    kernels = weight.reshape(problem.groups, problem.small_channels, problem.big_channels, *problem.kernel)
    source = grad_output.reshape(problem.batch, problem.groups, problem.small_channels, *problem.small_size)
    result = np.zeros((problem.batch, problem.groups, problem.big_channels, *problem.big_size), np.float32)
    _, height, width = problem.big_size
    for number, (a, b) in enumerate(np.ndindex(min(rows, height), min(cols, width))):
        row_taps, col_taps = _met(problem, 1, a, rows), _met(problem, 2, b, cols)
        if not (row_taps and col_taps):
            continue
        row_of = sources(problem, 1, forward=False)[row_taps][:, a::rows]
        col_of = sources(problem, 2, forward=False)[col_taps][:, b::cols]
        for image, group, depth in np.ndindex(problem.batch, problem.groups, problem.big_size[0]):
            runs = order.of_phase(number).runs()
            parts: list[list[tuple[Floats, Floats]]] = [[] for _ in runs]
            for tap, found in enumerate(depth_of[:, depth]):
                if found < 0:
                    continue
                taken = kernels[group, :, :, tap][:, :, row_taps][:, :, :, col_taps]
                left = reduction_by_groups(im2col(source[image, group, :, found], row_of, col_of), order.c0).T
                right = reduction_by_groups(taken.transpose(0, 2, 3, 1), order.c0)
                append_slices(parts, left, right, runs, order.c0)
            shape = problem.big_channels, row_of.shape[1], col_of.shape[1]
            made = add_to_zeros([reduce(slices, (shape[1] * shape[2], shape[0])) for slices in parts])
            result[image, group, :, depth, a::rows, b::cols] = made.T.reshape(shape)
    return result.reshape(problem.input)


def _met(problem: ConvProblem, axis: int, first: int, step: int) -> list[int]:
    """Return the taps that pixels first, first + step, ... meet, the last one first."""
    pad, gap = problem.pads[axis][0], problem.dilations[axis]
    return [tap for tap in reversed(range(problem.kernel[axis])) if (first + pad - tap * gap) % step == 0]
