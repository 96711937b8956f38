"""Several groups of a convolution as one: the shapes of the convolution whose weights are block-diagonal.

Groups of few channels leave most of a fractal empty. The operators take some of them as one group, in whose
weights each of them is a block on the diagonal and all else is zero:

    weight of 2 groups, 2 channels each      a b . .
    (rows: small side, columns: big side)    c d . .
                                             . . e f
                                             . . g h
"""

from __future__ import annotations

from dataclasses import replace
from math import lcm

from ascendsim.ops.problems.convolution import ConvProblem

FRACTAL = 16


def filling_groups(groups: int, big_channels: int, small_channels: int, unit: int) -> int:
    """Return how many groups together have channels in whole units, but no more than there are.

    unit   of the big side's channels; the small side's come in fractals of 16
    """
    if groups == 1:
        return 1
    big, small = lcm(big_channels, unit) // big_channels, lcm(small_channels, FRACTAL) // small_channels
    return min(lcm(big, small), groups)


def merged(problem: ConvProblem, factor: int) -> ConvProblem:
    """Return the convolution in which `factor` groups are one; channels that the last one lacks are zeros.

    An example: 24 groups of one channel, 16 of them as one, are two groups of 16 channels, and the last 8
    channels are zeros.
    """
    if factor == 1:
        return problem
    groups = -(-problem.groups // factor)
    small, big = groups * factor * problem.small_channels, groups * factor * problem.big_channels
    return replace(
        problem,
        input=(problem.batch, small if problem.transposed else big, *problem.input[2:]),
        weight=(small, factor * problem.big_channels, *problem.weight[2:]),
        groups=groups,
    )
