"""The accumulators of grad_input by passes over the taps, by definition: pass after pass."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.reference.ordered import im2col, reduction_by_groups, sources
from ascendsim.ops.reference.sums import add_to_zeros
from ascendsim.ops.schedules.order import DgradOrder

if TYPE_CHECKING:
    from ascendsim.ops.reference.ordered import Floats, Reduce

# Rows and columns of the kernel that one pass takes, in the order in which they are added.
Pass = tuple[list[int], list[int]]


def passed_dgrad(
    problem: ConvProblem, grad_output: Floats, weight: Floats, order: DgradOrder, reduce: Reduce
) -> Floats:
    """Return the accumulators of grad_input of which a pass takes a row of taps, or one tap.

    Shapes   grad_output and weight as `problem` says, on the grid that the cube multiplies -> as input
    Order    of each pixel: parts, which are channels; in each of them kernel depths, passes from the last tap
             to the first, and in a pass as in `ordered_dgrad`. A tile of pixels leaves out what reads no
             pixel of grad_output there; where nothing is left it is +0
    """
    depth_of = sources(problem, 0, forward=False)
    kernels = weight.reshape(problem.groups, problem.small_channels, problem.big_channels, *problem.kernel)
    source = grad_output.reshape(problem.batch, problem.groups, problem.small_channels, *problem.small_size)
    depths, height, width = problem.big_size
    shape = problem.batch, problem.groups, problem.big_channels, depths, height * width
    result = np.zeros(shape, np.float32)
    for first, pixels in order.tiles:
        met = [taps for taps in _passes(problem, order) if _reads(problem, taps, first, pixels)]
        for image, group, depth in np.ndindex(problem.batch, problem.groups, depths):
            reached = [(tap, int(found)) for tap, found in enumerate(depth_of[:, depth]) if found >= 0]
            if not (met and reached):
                continue
            sums = []
            for channels, runs in _parts(problem, order):
                factors = []
                for (tap, found), taps in product(reached, met):
                    a, b = source[image, group, channels, found], kernels[group, channels, :, tap]
                    left, right = _operands(problem, a, b, taps, order.c0)
                    own = runs[_passes(problem, order).index(taps)]
                    for begin, end in own:
                        factors.append((left[first : first + pixels, begin:end], right[begin:end]))
                sums.append(reduce(factors, (pixels, problem.big_channels)))
            result[image, group, :, depth, first : first + pixels] = add_to_zeros(sums).T
    return result.reshape(problem.input)


def _passes(problem: ConvProblem, order: DgradOrder) -> list[Pass]:
    """Return the passes, the last taps first."""
    rows, cols = (list(reversed(range(taps))) for taps in problem.kernel[1:])
    if order.tap_loop == "kh":
        return [([row], cols) for row in rows]
    return [([row], [col]) for row, col in product(rows, cols)]


def _reads(problem: ConvProblem, taps: Pass, first: int, pixels: int) -> bool:
    """Tell whether the copy for a tile of pixels under a pass has a pixel of grad_output in it.

    It takes all columns if the tile lies in several rows, and what lies between those that are read.
    """
    width = problem.big_size[2]
    top, bottom = first // width, (first + pixels - 1) // width
    left, right = (first % width, (first + pixels - 1) % width) if top == bottom else (0, width - 1)
    found = True
    for axis, outs, own in ((1, (top, bottom), taps[0]), (2, (left, right), taps[1])):
        pad, gap, stride = problem.pads[axis][0], problem.dilations[axis], problem.strides[axis]
        places = [out + pad - tap * gap for out in outs for tap in own]
        copied = range(min(places), max(places) + 1)
        found = found and any(pixel * stride in copied for pixel in range(problem.small_size[axis]))
    return found


def _parts(problem: ConvProblem, order: DgradOrder) -> Iterator[tuple[slice, list[list[tuple[int, int]]]]]:
    """Yield the channels of each part, and for each pass the (begin, end) of its slices of the reduction."""
    first = 0
    for slices in order.runs():
        groups = sum(slices) // (problem.kernel[1] * problem.kernel[2])
        left, of_passes = list(slices), []
        for rows, cols in _passes(problem, order):
            ends: list[tuple[int, int]] = []
            at = 0
            while at < groups * len(rows) * len(cols) * order.c0:
                ends.append((at, at + left.pop(0) * order.c0))
                at = ends[-1][1]
            of_passes.append(ends)
        assert not left
        yield slice(first, first + groups * order.c0), of_passes
        first += groups * order.c0


def _operands(problem: ConvProblem, a: Floats, b: Floats, taps: Pass, c0: int) -> tuple[Floats, Floats]:
    """Return both matrices of a pass: (pixels of an image, reduction) and (reduction, channels of input).

    a (channels, H, W) of grad_output, b (channels, channels of input, kernel rows, kernel columns)
    """
    row_of, col_of = (
        sources(problem, axis, forward=False)[own] for axis, own in ((1, taps[0]), (2, taps[1]))
    )
    left = reduction_by_groups(im2col(a, row_of, col_of), c0).T
    taken = b[:, :, taps[0]][:, :, :, taps[1]]
    return left, reduction_by_groups(taken.transpose(0, 2, 3, 1), c0)
