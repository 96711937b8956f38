"""The weights as grad_input multiplies them: groups of channels, taps, channels of a group, columns."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ascendsim.numerics.compiled.gathered.threads import ALONE, Threads
from ascendsim.numerics.compiled.gathered.turned import turn_to
from ascendsim.ops.problems.convolution import groups_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.ops.problems.convolution import ConvProblem

    Floats = NDArray[np.float32]
    # Carriers, or binary16 as it is stored.
    Values = NDArray[Any]


def packed_kernels(weight: Values, problem: ConvProblem, c0: int, threads: Threads = ALONE) -> Floats:
    """Return what `pack_weight` makes with a `unit` of 1, in one pass.

    Shapes   weight as `problem` says -> (groups, KD, C1, KH, KW, C0, columns)
    """
    groups, (depth, *size) = problem.groups, problem.kernel
    taps = prod(size)
    source = weight.reshape(groups, problem.small_channels, problem.big_channels, depth * taps)
    if problem.transposed:
        source = source.swapaxes(1, 2)
    reduced, columns = source.shape[1:3]
    shape = groups, depth, groups_of(reduced, c0), *size, c0, columns
    # Channels that the last group lacks are +0.
    packed = (np.zeros if reduced % c0 else np.empty)(shape, np.float32)
    of_group, of_depth = packed[:1].size, packed[:1, :1].size
    channel = np.arange(reduced)
    begins = (channel // c0 * taps * c0 + channel % c0) * columns
    goals = np.arange(groups)[:, None] * of_group + begins
    places = np.arange(depth)[:, None] * of_depth + np.arange(taps) * c0 * columns
    matrices = source.reshape(groups * reduced, columns, depth * taps)
    turn_to(matrices, places.reshape(-1), packed, threads, goals.reshape(-1))
    return packed
