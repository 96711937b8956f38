"""grad_weight by Winograd: all tiles brought to points at once, and one product over them at each point."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ascendsim.numerics.compiled.gathered.factor import Factor, Values
from ascendsim.numerics.compiled.gathered.product import product_of
from ascendsim.numerics.compiled.gathered.threads import ALONE, Threads
from ascendsim.numerics.winograd import PIXELS, POINTS, WINDOW, big_line, in_plane, small_line, taps_line
from ascendsim.ops.problems.products import CLUSTER, Clusters
from ascendsim.ops.reference.ordered import add_in_order

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.numerics.accumulation.models import AccumulationModel
    from ascendsim.ops.problems.convolution import ConvProblem
    from ascendsim.ops.schedules.base import WinogradOrder

    Floats = NDArray[np.float32]


def winograd_gradient(
    problem: ConvProblem,
    order: WinogradOrder,
    model: AccumulationModel,
    grad_output: Floats,
    input: Floats,
    threads: Threads = ALONE,
) -> Floats:
    """Return grad_weight in float32; the points of both sides are held, four times their pixels.

    Shapes   grad_output and input as `problem` says -> as weight
    """
    small, big = (input, grad_output) if problem.transposed else (grad_output, input)
    pads = problem.pads[1][0], problem.pads[2][0]
    small = small.reshape(problem.batch, -1, *problem.small_size[1:])
    big = big.reshape(problem.batch, -1, *problem.big_size[1:])
    sides = [_points(small, order.clusters, None), _points(big, order.clusters, pads)]
    chosen = np.zeros((small.shape[1], big.shape[1]), bool)
    for block in order.streamed:
        columns = slice(block.first_big, block.first_big + block.big)
        chosen[block.first_small : block.first_small + block.small, columns] = True
    found = []
    if not chosen.all():
        found.append(_taps(sides, range(len(order.clusters)), model, threads))
    if chosen.any():
        parts = [order.clusters.part(part, order.parts) for part in range(order.parts)]
        found.append(add_in_order([_taps(sides, own, model, threads) for own in parts]))
    made = found[0] if len(found) == 1 else np.where(chosen[:, :, None, None], found[1], found[0])
    return made.reshape(problem.weight)


def _points(images: Floats, clusters: Clusters, pads: tuple[int, int] | None) -> list[Floats]:
    """Return all tiles of one side at each point, (channels, tiles), cluster after cluster.

    images   (N, C, H, W); pads: of the big side, whose tiles are 4 x 4 and begin so far outside
    """
    size, line = (PIXELS, small_line) if pads is None else (WINDOW, big_line)
    down, right = pads or (0, 0)
    batch, channels, height, width = images.shape
    counts = clusters.down * clusters.rows, clusters.across * clusters.columns
    extents = [count * PIXELS + size - PIXELS for count in counts]
    framed = np.zeros((batch, channels, *extents), np.float32)
    framed[:, :, down : down + height, right : right + width] = images
    ends = [PIXELS * (count - 1) + 1 for count in counts]
    tile = [
        [framed[:, :, i : i + ends[0] : PIXELS, j : j + ends[1] : PIXELS] for j in range(size)]
        for i in range(size)
    ]
    # Clusters are blocks of tiles: images, clusters down and across, and tiles of each, down and across.
    blocks = batch, channels, clusters.down, clusters.rows, clusters.across, clusters.columns
    points = (values for row in in_plane(line, tile) for values in row)
    return [one.reshape(blocks).transpose(1, 0, 2, 4, 3, 5).reshape(channels, -1) for one in points]


def _taps(sides: list[list[Floats]], taken: range, model: AccumulationModel, threads: Threads) -> Floats:
    """Return what some clusters make, as (small channels, big channels, 3, 3)."""
    sums = list(_sums(sides, taken, model, threads))
    rows = in_plane(taps_line, [sums[at : at + POINTS] for at in range(0, len(sums), POINTS)])
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)


def _sums(
    sides: list[list[Floats]], taken: range, model: AccumulationModel, threads: Threads
) -> Iterator[Floats]:
    """Yield the sums at each point, an Mmad a cluster."""
    steps = np.arange(taken.start * CLUSTER, taken.stop * CLUSTER)
    ends = np.arange(CLUSTER, CLUSTER * len(taken) + 1, CLUSTER)
    for pair in zip(*sides, strict=True):
        a, b = (Factor(Values(one), np.arange(len(one)) * one.shape[1], steps, CLUSTER) for one in pair)
        yield product_of(model, a, b, ends, threads)
