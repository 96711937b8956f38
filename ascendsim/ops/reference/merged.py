"""The accumulators of gradients whose groups are merged, by definition.

`factor` groups of the convolution are computed as one. Its weight is written out with zeros: element (s, b)
of block q of a merged group stands in row q * S + s, column q * B + b, where S and B are the channels of one
group. The gradients are those of the convolution with that weight, zeros multiplied like other values, so
that Inf or NaN in grad_output reaches grad_input of all groups that are merged with its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.merged import merged
from ascendsim.ops.reference.phases import any_dgrad
from ascendsim.ops.reference.winograd import any_wgrad
from ascendsim.ops.schedules.order import DgradOrder, WgradOrder, WinogradOrder

if TYPE_CHECKING:
    from ascendsim.ops.reference.ordered import Floats, Reduce

Place = tuple[int, int, int]


def merged_dgrad(
    problem: ConvProblem,
    factor: int,
    grad_output: Floats,
    weight: Floats,
    order: DgradOrder,
    reduce: Reduce,
) -> Floats:
    """Return the accumulators of grad_input; arguments and shapes as of `ordered_dgrad`."""
    whole = merged(problem, factor)
    blocks = np.zeros((whole.groups, whole.small_channels, *whole.weight[1:]), np.float32)
    given = weight.reshape(problem.groups, problem.small_channels, *problem.weight[1:])
    for own, place in _places(problem, factor):
        blocks[place] = given[own]
    made = any_dgrad(
        whole, _filled(grad_output, whole.grad_output), blocks.reshape(whole.weight), order, reduce
    )
    return made[:, : problem.input[1]]


def merged_wgrad(
    problem: ConvProblem,
    factor: int,
    grad_output: Floats,
    input: Floats,
    order: WgradOrder | WinogradOrder,
    reduce: Reduce,
) -> Floats:
    """Return the accumulators of grad_weight; arguments and shapes as of `ordered_wgrad`."""
    whole = merged(problem, factor)
    sides = _filled(grad_output, whole.grad_output), _filled(input, whole.input)
    made = any_wgrad(whole, *sides, order, reduce)
    blocks = made.reshape(whole.groups, whole.small_channels, *whole.weight[1:])
    kept = np.zeros((problem.groups, problem.small_channels, *problem.weight[1:]), np.float32)
    for own, place in _places(problem, factor):
        kept[own] = blocks[place]
    return kept.reshape(problem.weight)


def _places(problem: ConvProblem, factor: int) -> Iterator[tuple[Place, Place]]:
    """Yield (group, row, column) of each element of the weight, and where it stands in the merged one."""
    for group, small, big in np.ndindex(problem.groups, problem.small_channels, problem.big_channels):
        at, block = divmod(group, factor)
        row, column = block * problem.small_channels + small, block * problem.big_channels + big
        yield (group, small, big), (at, row, column)


def _filled(values: Floats, shape: tuple[int, ...]) -> Floats:
    """Return an activation with zeros for the channels that the last merged group lacks."""
    filled = np.zeros(shape, np.float32)
    filled[:, : values.shape[1]] = values
    return filled
