"""Do tensors come through the cube's layouts unchanged, and lie where the cube reads them?"""

import numpy as np
import pytest

from ascendsim.ops.lowering.layouts import (
    groups_of,
    pack_activation,
    pack_weight,
    unpack_activation,
    unpack_weight,
)
from ascendsim.ops.problems.convolution import ConvProblem


def counted(shape):
    """Number the elements 1, 2, 3, ..., so that none equals a padding zero."""
    return np.arange(1, np.prod(shape) + 1, dtype=np.float32).reshape(shape)


@pytest.mark.parametrize(("channels", "groups"), [(1, 1), (15, 1), (16, 1), (17, 2), (32, 2), (33, 3)])
def test_channels_fill_groups_of_c0(channels, groups):
    assert groups_of(channels, 16) == groups


SHAPES = [
    ((2, 5, 3, 4), 1, 16),
    ((1, 17, 3, 4), 1, 16),
    ((3, 16, 1, 1), 1, 8),
    ((2, 6, 3, 4), 3, 8),
    ((2, 34, 2, 3, 4), 2, 16),
    ((1, 7, 9), 1, 8),
]


def spatial(shape):
    return (1,) * (5 - len(shape)) + shape[2:]


@pytest.mark.parametrize(("shape", "groups", "c0"), SHAPES)
def test_an_activation_comes_back_unchanged(shape, groups, c0):
    values, size = counted(shape), spatial(shape)
    packed = pack_activation(values, groups, size, c0)
    c1 = groups_of(shape[1] // groups, c0)
    assert packed.shape == (groups, shape[0], size[0], c1, size[1], size[2], c0)
    flat = packed.reshape(*packed.shape[:4], size[1] * size[2], c0)
    assert np.array_equal(unpack_activation(flat, shape[1] // groups, shape), values)


@pytest.mark.parametrize(("shape", "groups", "c0"), SHAPES)
def test_every_element_of_an_activation_lies_where_the_layout_says(shape, groups, c0):
    values, size = counted(shape), spatial(shape)
    packed = pack_activation(values, groups, size, c0)
    channels = shape[1] // groups
    plain = values.reshape(shape[0], shape[1], *size)
    for n, c, d, h, w in np.ndindex(plain.shape):
        group, channel = divmod(c, channels)
        assert packed[group, n, d, channel // c0, h, w, channel % c0] == plain[n, c, d, h, w]
    # everything else is zero
    assert np.count_nonzero(packed) == values.size


PROBLEMS = [
    ConvProblem((1, 5, 6, 7), (4, 5, 3, 2)),
    ConvProblem((1, 17, 6, 7), (19, 17, 1, 1)),
    ConvProblem((1, 6, 6, 7), (9, 2, 3, 3), groups=3),
    ConvProblem((1, 5, 6, 7), (5, 3, 3, 2), transposed=True),
    ConvProblem((1, 6, 4, 5), (6, 2, 2, 3), transposed=True, groups=2),
    ConvProblem((1, 3, 5, 6, 7), (4, 3, 2, 3, 1)),
    ConvProblem((1, 3, 9), (4, 3, 5)),
]


@pytest.mark.parametrize("reduce_small", [True, False])
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_every_weight_lies_where_the_reduction_walks(problem, reduce_small):
    c0 = 8
    values = counted(problem.weight)
    packed = pack_weight(values, problem, c0, reduce_small=reduce_small)
    plain = values.reshape(problem.groups, problem.small_channels, problem.big_channels, *problem.kernel)
    for group, small, big, d, h, w in np.ndindex(plain.shape):
        reduced, column = (small, big) if reduce_small else (big, small)
        assert (
            packed[group, d, reduced // c0, h, w, reduced % c0, column] == plain[group, small, big, d, h, w]
        )
    assert np.count_nonzero(packed) == values.size
    assert packed.shape[-1] % c0 == 0


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_a_filter_comes_back_in_the_shape_of_weight(problem):
    # Built element by element; what is padding holds NaN and is dropped.
    c0 = 8
    values = counted(problem.weight)
    plain = values.reshape(problem.groups, problem.small_channels, problem.big_channels, *problem.kernel)
    kd, kh, kw = problem.kernel
    rows, c1 = groups_of(problem.small_channels, c0) * c0, groups_of(problem.big_channels, c0)
    packed = np.full((problem.groups, kd, rows, c1, kh, kw, c0), np.nan, np.float32)
    for group, small, big, d, h, w in np.ndindex(plain.shape):
        packed[group, d, small, big // c0, h, w, big % c0] = plain[group, small, big, d, h, w]
    flat = packed.reshape(problem.groups, kd, rows, -1)
    assert np.array_equal(unpack_weight(flat, problem, c0), values)
