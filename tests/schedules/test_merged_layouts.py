"""Do weights go onto the diagonal of merged groups and off it, and activations past the groups that lack?

What is expected is written out element by element: in `ops/reference/call.py` for whole gradients, here for
single changes of layout.
"""

from dataclasses import replace

import numpy as np
import pytest

from ascendsim.numerics.formats.dtypes import dtype as find_dtype
from ascendsim.ops.lowering.layouts import (
    activation_in,
    activation_out,
    block_diagonal,
    diagonal_blocks,
    pack_activation,
    pack_weight,
    weight_in,
    weight_out,
    with_channels,
)
from ascendsim.ops.problems.convolution import ConvProblem, activation, filling_groups, merged
from ascendsim.ops.problems.products import DgradGemm, WgradGemm
from ascendsim.program.places import GmTensor
from tests.helpers.both_engines import time_kernel
from tests.schedules.test_transdata import SPLIT, UNIFIED, changed, counted, kernel_of

# (problem, groups as one): depthwise, more outputs than inputs, channels that fill no fractal, a last merged
# group with fewer groups (24 as 16 and 8, 5 as 2, 2 and 1), and as many as there are.
CASES = [
    (ConvProblem((1, 32, 5, 6), (32, 1, 3, 3), groups=32), 16),
    (ConvProblem((1, 24, 5, 6), (48, 1, 3, 2), groups=24), 16),
    (ConvProblem((2, 15, 4, 3), (10, 3, 2, 2), groups=5), 2),
    (ConvProblem((1, 12, 5, 6), (20, 3, 1, 1), groups=4), 4),
    (ConvProblem((1, 24, 5, 6), (24, 2, 3, 3), groups=24, transposed=True), 8),
    (ConvProblem((1, 6, 3, 5, 6), (6, 1, 2, 3, 3), groups=6), 4),
    # Merged groups of 48 x 80 channels, the second one with 12 x 20: many boxes in each, no two alike.
    (ConvProblem((1, 60, 3, 3), (100, 3, 2, 2), groups=20), 16),
]
PROFILES = pytest.mark.parametrize("profile", [SPLIT, UNIFIED], ids=["split", "unified"])
MERGED = pytest.mark.parametrize(("problem", "factor"), CASES, ids=str)


@pytest.mark.parametrize(
    ("groups", "big", "small", "unit", "expected"),
    [
        (1, 3, 5, 16, 1),
        (32, 1, 1, 16, 16),  # depthwise: 16 of one channel fill a fractal
        (32, 1, 1, 8, 16),  # of float32, too: the small side comes in fractals of 16
        (9, 1, 1, 16, 9),  # there are no more
        (64, 8, 16, 16, 2),  # two of 8 channels; one of 16 fills a fractal
        (64, 24, 32, 16, 2),  # 48 channels are three times 16
        (64, 12, 6, 16, 8),  # the least multiple of 4 (12 x 4 = 48) and of 8 (6 x 8 = 48)
        (6, 32, 64, 16, 1),
    ],
)
def test_as_many_groups_are_merged_as_fill_whole_units(groups, big, small, unit, expected):
    assert filling_groups(groups, big, small, unit) == expected


def test_a_merged_convolution_has_the_channels_of_its_groups_and_those_that_fill_up():
    # 24 groups of (1, 2) channels, 16 as one: two groups of (16, 32), so that 8 groups are zeros.
    whole = merged(ConvProblem((1, 24, 5, 6), (48, 1, 3, 2), groups=24), 16)
    assert (whole.input, whole.weight, whole.groups) == ((1, 32, 5, 6), (64, 16, 3, 2), 2)
    assert whole.grad_output == (1, 64, 3, 5)
    # Transposed, the weight has the input's channels in front.
    whole = merged(ConvProblem((1, 24, 5, 6), (24, 2, 3, 3), groups=24, transposed=True), 8)
    assert (whole.input, whole.weight, whole.groups) == ((1, 24, 5, 6), (24, 16, 3, 3), 3)
    same = ConvProblem((1, 24, 5, 6), (24, 24, 3, 3))
    assert merged(same, 1) is same


def test_blocks_stand_on_the_diagonal_and_zeros_beside_them():
    # Three groups of one row and two columns, two of them as one: the second merged group has one block.
    problem = ConvProblem((1, 6, 1, 1), (3, 2, 1, 1), groups=3)
    values = np.arange(1, 7, dtype=np.float32).reshape(problem.weight)
    made = block_diagonal(values, problem, 2)
    assert made[:, :, 0, 0].tolist() == [[1, 2, 0, 0], [0, 0, 3, 4], [5, 6, 0, 0], [0, 0, 0, 0]]
    assert np.array_equal(diagonal_blocks(made, problem, 2), values)
    assert diagonal_blocks(values, problem, 1) is values is block_diagonal(values, problem, 1)


def test_channels_that_a_group_lacks_are_zeros():
    values = np.ones((1, 2, 1), np.float32)
    assert with_channels(values, 3)[0, :, 0].tolist() == [1, 1, 0]
    assert with_channels(values, 1)[0, :, 0].tolist() == [1]


@PROFILES
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@MERGED
def test_a_weight_goes_onto_the_diagonal(problem, factor, dtype, profile):
    back = not problem.transposed
    target = DgradGemm.of(merged(problem, factor), dtype).weights
    given = GmTensor.of("weight", problem.weight, dtype)
    change = weight_in(given, target, problem, reduce_small=back, merge=factor)
    values, c0 = counted(problem.weight), target.shape[5]
    whole = block_diagonal(values, problem, factor)
    expected = pack_weight(whole, merged(problem, factor), c0, reduce_small=back)
    assert np.array_equal(changed(change, values, profile).reshape(expected.shape), expected)


@PROFILES
@MERGED
def test_a_grad_weight_comes_off_the_diagonal(problem, factor, profile):
    whole = merged(problem, factor)
    source = WgradGemm.of(whole, "float16").output
    # What is beside the diagonal, or fills up, must not come out: it is 7, and on the diagonal are 1, 2, ...
    values = np.full(source.shape, 7, np.float32)
    weight = counted(problem.weight)
    rows = whole.small_channels
    taps = np.prod(problem.kernel[1:])
    split = values.reshape(*source.shape[:3], -1, taps, 16)
    for group in range(problem.groups):
        at, place = divmod(group, factor)
        for small, big in np.ndindex(problem.small_channels, problem.big_channels):
            row, column = place * problem.small_channels + small, place * problem.big_channels + big
            block = weight.reshape(problem.groups, -1, *weight.shape[1:])[group, small, big]
            split[at, :, row, column // 16, :, column % 16] = block.reshape(-1, taps)
    assert rows <= source.shape[2]
    change = weight_out(source, GmTensor.of("grad_weight", problem.weight, "float32"), problem, 16, factor)
    assert np.array_equal(changed(change, values, profile).reshape(problem.weight), weight)


@PROFILES
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@MERGED
def test_an_activation_has_zeros_for_groups_that_lack(problem, factor, dtype, profile):
    whole, storage, values = merged(problem, factor), find_dtype(dtype), counted(problem.input)
    big = not problem.transposed
    size, channels = (whole.big_size, whole.big_channels) if big else (whole.small_size, whole.small_channels)
    packed = replace(activation("x", whole, size, channels, storage), role="output")
    given = GmTensor.of("x", problem.input, dtype)
    made = changed(activation_in(given, packed, channels), values, profile)
    filled = with_channels(values, whole.input[1])
    expected = pack_activation(filled, whole.groups, size, packed.shape[-1])
    assert np.array_equal(made.reshape(expected.shape), expected)
    source = replace(packed, shape=(*expected.shape[:4], size[1] * size[2], expected.shape[-1]))
    back = changed(activation_out(source, given, problem.input, channels), made, profile)
    assert np.array_equal(back.reshape(problem.input), values)


@PROFILES
@MERGED
def test_equal_cores_take_equal_cycles_and_so_do_both_engines(problem, factor, profile):
    whole = merged(problem, factor)
    target = DgradGemm.of(whole, "float32").weights
    given = GmTensor.of("weight", problem.weight, "float32")
    into = weight_in(given, target, problem, reduce_small=True, merge=factor)
    source = WgradGemm.of(whole, "float32").output
    made = GmTensor.of("grad_weight", problem.weight, "float32")
    for change in (into, weight_out(source, made, problem, 8, factor)):
        kernel = kernel_of(change, profile)
        assert time_kernel(kernel, profile).cycles == time_kernel(kernel, profile, folded=False).cycles
