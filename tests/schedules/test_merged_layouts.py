"""Do weights come into and out of the layout of merged groups, and to the place of their group?"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascendsim import estimate
from ascendsim.errors import CapacityError
from ascendsim.functional import run_kernel
from ascendsim.instructions.relayout import OffDiagonal, OntoDiagonal
from ascendsim.numerics.accumulation import AccumulationModel, MathSettings
from ascendsim.numerics.dtypes import dtype as find_dtype
from ascendsim.ops.lowering.layouts import (
    activation_in,
    activation_out,
    block_diagonal,
    diagonal_blocks,
    join_groups,
    one_group,
    pack_activation,
    pack_weight,
    split_groups,
    weight_in,
    weight_out,
    with_channels,
)
from ascendsim.ops.matmul import estimate_transdata, regroup_of
from ascendsim.ops.problems.convolution import ConvProblem, activation, filling_groups, merged
from ascendsim.ops.problems.products import DgradGemm, WgradGemm
from ascendsim.ops.schedules.vector.regroup import regroup
from ascendsim.program.kernel import Kernel
from ascendsim.program.places import GmTensor
from tests.helpers.both_engines import time_kernel
from tests.helpers.oracles_timing import check_gm
from tests.helpers.toy_machines import toy_split
from tests.schedules.test_transdata import SPLIT, UNIFIED, changed, counted, kernel_of

# -------------------------------------------------------------------------------------------------------
# Do weights go onto the diagonal of merged groups and off it, and activations past the groups that lack?
# -------------------------------------------------------------------------------------------------------
# What is expected is written out element by element: in `ops/reference/call.py` for whole gradients, here
# for single changes of layout.

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


# --- Does regrouping bring each weight to the place that its group has, in as many moves as that takes?

REGROUP_SPLIT = toy_split(**{"cores.cube": 2, "cores.vector": 4, "buffers.UB.capacity_bytes": 4096})
MATH = MathSettings(AccumulationModel("exact"))
# Depthwise; a merged group that is not full; blocks that begin amid others; whole blocks; three dimensions;
# transposed; more weights of a group than half of UB holds.
REGROUP_CASES = [
    (ConvProblem((1, 32, 5, 6), (32, 1, 3, 3), groups=32), 16),
    (ConvProblem((1, 24, 6, 5), (48, 1, 3, 3), groups=24), 16),
    (ConvProblem((1, 15, 6, 7), (10, 3, 2, 3), groups=5), 4),
    (ConvProblem((1, 12, 6, 7), (60, 4, 1, 2), groups=3), 2),
    (ConvProblem((1, 32, 4, 4), (64, 16, 2, 2), groups=2), 1),
    (ConvProblem((1, 18, 3, 5, 4), (18, 1, 2, 3, 3), groups=18), 16),
    (ConvProblem((1, 20, 4, 5), (20, 2, 3, 3), transposed=True, groups=20), 8),
    (ConvProblem((1, 80, 4, 4), (96, 40, 1, 3), groups=2), 1),
]


def counted_regroup(shape):
    return (np.arange(np.prod(shape)) % 2039 + 1).astype(np.float32).reshape(shape)


def packed_as_one(values, p, c0, *, gradient):
    """Return a weight (groups * S, B, kernel) in the layout of one group, element by element of its lanes."""
    shape = one_group(p, c0, gradient=gradient)
    made = np.zeros(shape, np.float32)
    rows = p.groups * p.small_channels
    split = values.reshape(rows, p.big_channels, p.kernel[0], -1)
    for channel in range(p.big_channels):
        part = split[:, channel].transpose(1, 2, 0)  # depth, taps, rows
        if gradient:
            made[0, :, :rows, channel // c0, :, channel % c0] = part.transpose(0, 2, 1)
        else:
            made[0, :, channel // c0, :, channel % c0, :rows] = part
    return made


def kernel_of_regroup(change, profile=REGROUP_SPLIT):
    tensors = {tensor.name: tensor for tensor in (change.source, change.target)}
    return Kernel("regroup", (regroup(profile, change),), tensors, MATH)


def regrouped(change, values):
    """Run the kernel of a change into zeros, each instruction held to what it declares, and at once."""
    kernel = kernel_of_regroup(change)
    # No element is written twice, and those of no group are left to the MemSet.
    assert check_gm(kernel)[change.target.name].max() == 1
    zeros = np.zeros(change.target.shape, np.float32)
    gm = {change.source.name: values.reshape(change.source.shape), change.target.name: zeros}
    at_once = {name: value.copy() for name, value in gm.items()}
    run_kernel(kernel, gm, order=1)
    run_kernel(kernel, at_once, at_once=True)
    assert np.array_equal(at_once[change.target.name], gm[change.target.name])
    return gm[change.target.name]


@pytest.mark.parametrize(("problem", "merge"), REGROUP_CASES, ids=str)
def test_weights_go_where_the_groups_lie(problem, merge):
    # Along C0 lie the channels of S, or of B for a transposed convolution.
    p, values, whole, back = (
        problem,
        counted_regroup(problem.weight),
        merged(problem, merge),
        not problem.transposed,
    )
    gemm = DgradGemm.of(whole, "float16")
    one = GmTensor.of("one", one_group(p, 16, gradient=False), "float16")
    change = split_groups(one, gemm.weights, p, reduce_small=back, merge=merge)
    made = regrouped(change, packed_as_one(values, p, 16, gradient=False))
    expected = pack_weight(block_diagonal(values, p, merge), whole, 16, reduce_small=back)
    assert np.array_equal(made.reshape(expected.shape), expected)


@pytest.mark.parametrize(("problem", "merge"), REGROUP_CASES, ids=str)
def test_gradients_come_from_where_the_groups_lie(problem, merge):
    p, whole = problem, merged(problem, merge)
    source = WgradGemm.of(whole, "float16").output
    one = GmTensor.of("one", one_group(p, 16, gradient=True), "float32", "output")
    # Everywhere but on the diagonal are other numbers, which nobody asked for.
    values = counted_regroup(source.shape)
    made = regrouped(join_groups(source, one, p, merge), values)
    groups, depth, rows, _ = source.shape
    split = values.reshape(groups, depth, rows, -1, p.kernel[1] * p.kernel[2], 16)
    weight = np.zeros((p.groups * p.small_channels, p.big_channels, depth, split.shape[4]), np.float32)
    for row, channel in np.ndindex(weight.shape[:2]):
        group = row // p.small_channels
        merged_group, place = divmod(group, merge)
        lane = place * p.big_channels + channel
        inside = row - merged_group * merge * p.small_channels
        weight[row, channel] = split[merged_group, :, inside, lane // 16, :, lane % 16]
    assert np.array_equal(made, packed_as_one(weight, p, 16, gradient=True))


def test_a_part_of_a_block_moves_for_one_tap_and_whole_blocks_for_all():
    # Depthwise, 25 taps of 192 groups: one move for each, on 48 cores 100 apiece.
    change = regroup_of((192, 1, 5, 5), "float32", 8, 192)
    assert len(list(change.moves(98304))) == 192 * 25
    # 16 channels are two whole blocks of 8: all 25 taps of 4 rows at once.
    change = regroup_of((8, 16, 5, 5), "float32", 8, 2)
    moves = list(change.moves(98304))
    assert [(len(move.lanes), len(move.across), len(move.taps)) for move in moves] == [(16, 4, 25)] * 2
    # 12 channels are one block and a half; those of the second group begin in the midst of a merged one's.
    change = regroup_of((8, 12, 1, 1), "float32", 8, 2)
    assert change.factor == 2
    assert [move.lanes for move in change.moves(98304)] == [
        *(range(8), range(8, 12)),
        # Blocks of the merged group end after 4 lanes, those of one group after 8.
        *(range(4), range(4, 8), range(8, 12)),
    ]


def test_a_group_that_ub_does_not_hold_is_refused():
    # A block of 16 lanes of 2 bytes is 32 bytes: half of UB has 16.
    change = regroup_of((64, 16, 1, 1), "float16", 16, 2)
    with pytest.raises(CapacityError, match=r"a block of 16 lanes .* takes 32 bytes, and half of UB has 16"):
        list(change.moves(16))


def test_both_engines_time_it_alike_and_moves_follow_each_other():
    kernel = kernel_of_regroup(regroup_of((6, 1, 1, 1), "float32", 8, 6))
    timeline = time_kernel(kernel, REGROUP_SPLIT)
    # 6 moves on 3 cores that are alike, 2 each.
    [core] = timeline.phases[0].cores
    assert len(core.cores) == 3
    pipes = [instruction.pipe for instruction in core.program.instructions]
    assert pipes == ["MTE2", "V", "MTE3"] * 2
    assert core.start[3] >= core.end[2]


@pytest.mark.parametrize("product", ["910B", "310P"])
def test_calls_of_several_groups_regroup_their_weights_into_zeros(product):
    problem = ConvProblem((2, 32, 5, 6), (32, 1, 3, 3), padding=1, groups=32)
    asked = {"product": product, "output_mask": (True, True, False)}
    names = [kernel.name for kernel in estimate(problem, "float16", **asked).kernels]
    at = names.index("transdata_weight")
    assert names[at + 1 : at + 3] == ["memset_regrouped_weight", "regroup_weight"]
    at = names.index("grad_weight")
    assert names[at + 1 : at + 4] == [
        *("memset_regrouped_grad_weight", "regroup_grad_weight", "transdata_grad_weight")
    ]
    single = ConvProblem((2, 32, 5, 6), (32, 32, 3, 3), padding=1)
    assert not any("regroup" in k.name for k in estimate(single, "float16", **asked).kernels)


def test_the_time_goes_with_groups_and_taps():
    # Twice the groups take twice the moves; launch and entry do not double.
    half, whole = (
        estimate_transdata(
            "FRACTAL_Z->FRACTAL_Z", (groups, 1, 5, 5), "float32", REGROUP_SPLIT, groups=groups
        ).cycles
        for groups in (192, 384)
    )
    moves = whole - half
    # 4 cores, 1200 moves more on each: at least MTE2 4 + 1 and 100 until it is there, V 2 + 1 and 10, MTE3 3.
    assert moves >= 1200 * 121
    assert moves < 1200 * 200


# -------------------------------------------------------------------------------------------------------
# Are blocks put on the diagonal of a merged matrix, and picked out of it, element by element as said?
# -------------------------------------------------------------------------------------------------------

SMALL = st.integers(1, 4)


@given(
    block=st.tuples(SMALL, SMALL), row=SMALL, rows=SMALL, depths=SMALL, taps=SMALL,
    c0=st.sampled_from([1, 2, 3]), groups=SMALL, columns=st.integers(1, 9),
    first=st.tuples(st.integers(0, 6), st.integers(0, 6)), reduces_small=st.booleans(),
)  # fmt: skip
def test_each_element_of_a_block_is_put_where_its_row_and_column_are(
    block, row, rows, depths, taps, c0, groups, columns, first, reduces_small
):
    tile = 1 + np.arange(rows * block[1] * depths * taps, dtype=np.float32)
    tile = tile.reshape(rows, block[1], depths, taps)
    padded = (groups * c0, columns, depths, taps)
    want = np.zeros((depths, groups, taps, c0, columns), np.float32)
    for (at, column, depth, tap), value in np.ndenumerate(tile):
        small = row + at
        # The columns of a block begin where those of the groups before it end.
        big = small // block[0] * block[1] + column
        down, across = (small, big) if reduces_small else (big, small)
        down, across = down - first[0], across - first[1]
        if 0 <= down < groups * c0 and 0 <= across < columns:
            want[depth, down // c0, tap, down % c0, across] = value
    made = OntoDiagonal(padded, first, row, block, c0, reduces_small).turned(tile)
    np.testing.assert_array_equal(made, want)


@given(
    block=st.tuples(SMALL, SMALL), row=SMALL, rows=SMALL, depths=SMALL, taps=SMALL,
    c0=st.sampled_from([1, 2, 3]), data=st.data(),
)  # fmt: skip
def test_each_element_of_a_block_is_picked_from_where_it_lies(block, row, rows, depths, taps, c0, data):
    # As many columns as the last row needs.
    most = ((row + rows - 1) // block[0] + 1) * block[1]
    padded = (depths, rows, -(-most // c0), taps, c0)
    tile = np.arange(np.prod(padded), dtype=np.float32).reshape(padded)
    kept = data.draw(st.integers(1, rows))
    made = OffDiagonal(padded, row, block, kept).turned(tile)
    assert made.shape == (kept, block[1], depths, taps)
    for (at, column, depth, tap), value in np.ndenumerate(made):
        big = (row + at) // block[0] * block[1] + column
        assert value == tile[depth, at, big // c0, tap, big % c0]
