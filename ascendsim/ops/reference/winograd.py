"""grad_weight by Winograd, by definition: plain loops over the clusters, tile after tile.

For each cluster of 32 tiles every tile of both sides is brought to 4 x 4 points; at each point the tiles of
the cluster are the reduction of one Mmad, added to the sums of the clusters before it. At the end the 16 sums
are brought to nine taps. All transforms are float32 sums of two numbers, rounded to nearest even.

Pixels outside an image are zero, on the big side as on the small one. A tile that reaches beyond the last row
or column of the small side has zeros there, and pixels of the big side wherever the image has them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from ascendsim.numerics.winograd import (
    PIXELS,
    POINTS,
    TAPS,
    WINDOW,
    big_line,
    in_plane,
    small_line,
    taps_line,
)
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.reference.ordered import add_in_order, ordered_wgrad
from ascendsim.ops.schedules.base import WgradOrder, WinogradOrder

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.ops.reference.ordered import Floats, Reduce


def any_wgrad(
    problem: ConvProblem,
    grad_output: Floats,
    input: Floats,
    order: WgradOrder | WinogradOrder,
    reduce: Reduce,
) -> Floats:
    """Return the accumulators of grad_weight in an order by Winograd or a direct one; arguments as there."""
    if isinstance(order, WinogradOrder):
        return winograd_wgrad(problem, grad_output, input, order, reduce)
    return ordered_wgrad(problem, grad_output, input, order, reduce)


def winograd_wgrad(
    problem: ConvProblem, grad_output: Floats, input: Floats, order: WinogradOrder, reduce: Reduce
) -> Floats:
    """Return grad_weight in float32.

    Shapes   grad_output and input as `problem` says, of one group and one depth -> as weight
    """
    small, big = (input, grad_output) if problem.transposed else (grad_output, input)
    small = small.reshape(problem.batch, problem.small_channels, *problem.small_size[1:])
    big = big.reshape(problem.batch, problem.big_channels, *problem.big_size[1:])
    pads = problem.pads[1][0], problem.pads[2][0]
    whole = _taps(small, big, pads, order, range(len(order.clusters)), reduce)
    if order.streamed:
        parts = [order.clusters.part(part, order.parts) for part in range(order.parts)]
        sums = add_in_order(np.stack([_taps(small, big, pads, order, own, reduce) for own in parts]))
        whole = np.where(_streamed(whole.shape, order), sums, whole)
    return whole.reshape(problem.weight)


def _streamed(shape: tuple[int, ...], order: WinogradOrder) -> NDArray[np.bool_]:
    """Return which elements are added in parts."""
    chosen = np.zeros(shape, bool)
    for block in order.streamed:
        rows = slice(block.first_small, block.first_small + block.small)
        chosen[rows, block.first_big : block.first_big + block.big] = True
    return chosen


def _taps(
    small: Floats,
    big: Floats,
    pads: tuple[int, int],
    order: WinogradOrder,
    taken: Iterable[int],
    reduce: Reduce,
) -> Floats:
    """Return what some clusters make, as (small channels, big channels, 3, 3)."""
    points = [(row, column) for row in range(POINTS) for column in range(POINTS)]
    slices: dict[tuple[int, int], list[tuple[Floats, Floats]]] = {point: [] for point in points}
    for number in taken:
        cluster = order.clusters.at(number)
        left, right = [], []
        for row, column in order.clusters.tiles(cluster):
            given = _tile(small[cluster.image], row, column, PIXELS)
            left.append(in_plane(small_line, given))
            given = _tile(big[cluster.image], row - pads[0], column - pads[1], WINDOW)
            right.append(in_plane(big_line, given))
        for i, j in points:
            a = np.stack([tile[i][j] for tile in left], axis=1)  # small channels x tiles
            b = np.stack([tile[i][j] for tile in right], axis=0)  # tiles x big channels
            slices[i, j].append((a, b))
    shape = small.shape[1], big.shape[1]
    sums = [[reduce(slices[i, j], shape) for j in range(POINTS)] for i in range(POINTS)]
    made = in_plane(taps_line, sums)
    return np.stack([np.stack([made[i][j] for j in range(TAPS)], -1) for i in range(TAPS)], axis=-2)


def _tile(image: Floats, row: int, column: int, size: int) -> list[list[Floats]]:
    """Return the pixels of a tile, each with all its channels; +0 outside of the image."""
    channels, height, width = image.shape
    outside = np.zeros(channels, np.float32)
    return [
        [
            image[:, row + i, column + j] if 0 <= row + i < height and 0 <= column + j < width else outside
            for j in range(size)
        ]
        for i in range(size)
    ]
