"""Does regrouping bring each weight to the place that its group has, in as many moves as that takes?"""

import numpy as np
import pytest

from ascendsim import ConvProblem, estimate
from ascendsim.errors import CapacityError
from ascendsim.functional import run_kernel
from ascendsim.numerics.accumulation.models import AccumulationModel, MathSettings
from ascendsim.ops.lowering.layouts import block_diagonal, join_groups, one_group, pack_weight, split_groups
from ascendsim.ops.matmul import estimate_transdata, regroup_of
from ascendsim.ops.problems.convolution import merged
from ascendsim.ops.problems.products import DgradGemm, WgradGemm
from ascendsim.ops.schedules.vector.regroup import regroup
from ascendsim.program.kernel import Kernel
from ascendsim.program.places import GmTensor
from tests.helpers.both_engines import time_kernel
from tests.helpers.strict_memory import check_gm, strict
from tests.helpers.toy_profiles import toy_split

SPLIT = toy_split(**{"cores.cube": 2, "cores.vector": 4, "buffers.UB.capacity_bytes": 4096})
MATH = MathSettings(AccumulationModel("exact"))
# Depthwise; a merged group that is not full; blocks that begin amid others; whole blocks; three dimensions;
# transposed; more weights of a group than half of UB holds.
CASES = [
    (ConvProblem((1, 32, 5, 6), (32, 1, 3, 3), groups=32), 16),
    (ConvProblem((1, 24, 6, 5), (48, 1, 3, 3), groups=24), 16),
    (ConvProblem((1, 15, 6, 7), (10, 3, 2, 3), groups=5), 4),
    (ConvProblem((1, 12, 6, 7), (60, 4, 1, 2), groups=3), 2),
    (ConvProblem((1, 32, 4, 4), (64, 16, 2, 2), groups=2), 1),
    (ConvProblem((1, 18, 3, 5, 4), (18, 1, 2, 3, 3), groups=18), 16),
    (ConvProblem((1, 20, 4, 5), (20, 2, 3, 3), transposed=True, groups=20), 8),
    (ConvProblem((1, 80, 4, 4), (96, 40, 1, 3), groups=2), 1),
]


def counted(shape):
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


def kernel_of(change, profile=SPLIT):
    tensors = {tensor.name: tensor for tensor in (change.source, change.target)}
    return Kernel("regroup", (regroup(profile, change),), tensors, MATH)


def regrouped(change, values):
    """Run the kernel of a change into zeros, each instruction held to what it declares, and at once."""
    kernel = kernel_of(change)
    # No element is written twice, and those of no group are left to the MemSet.
    assert check_gm(kernel)[change.target.name].max() == 1
    zeros = np.zeros(change.target.shape, np.float32)
    gm = {change.source.name: values.reshape(change.source.shape), change.target.name: zeros}
    at_once = {name: value.copy() for name, value in gm.items()}
    run_kernel(strict(kernel, change.source.itemsize), gm, order=1)
    run_kernel(kernel, at_once, at_once=True)
    assert np.array_equal(at_once[change.target.name], gm[change.target.name])
    return gm[change.target.name]


@pytest.mark.parametrize(("problem", "merge"), CASES, ids=str)
def test_weights_go_where_the_groups_lie(problem, merge):
    # Along C0 lie the channels of S, or of B for a transposed convolution.
    p, values, whole, back = problem, counted(problem.weight), merged(problem, merge), not problem.transposed
    gemm = DgradGemm.of(whole, "float16")
    one = GmTensor.of("one", one_group(p, 16, gradient=False), "float16")
    change = split_groups(one, gemm.weights, p, reduce_small=back, merge=merge)
    made = regrouped(change, packed_as_one(values, p, 16, gradient=False))
    expected = pack_weight(block_diagonal(values, p, merge), whole, 16, reduce_small=back)
    assert np.array_equal(made.reshape(expected.shape), expected)


@pytest.mark.parametrize(("problem", "merge"), CASES, ids=str)
def test_gradients_come_from_where_the_groups_lie(problem, merge):
    p, whole = problem, merged(problem, merge)
    source = WgradGemm.of(whole, "float16").output
    one = GmTensor.of("one", one_group(p, 16, gradient=True), "float32", "output")
    # Everywhere but on the diagonal are other numbers, which nobody asked for.
    values = counted(source.shape)
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
    kernel = kernel_of(regroup_of((6, 1, 1, 1), "float32", 8, 6))
    timeline = time_kernel(kernel, SPLIT)
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
        estimate_transdata("FRACTAL_Z->FRACTAL_Z", (groups, 1, 5, 5), "float32", SPLIT, groups=groups).cycles
        for groups in (192, 384)
    )
    moves = whole - half
    # 4 cores, 1200 moves more on each: at least MTE2 4 + 1 and 100 until it is there, V 2 + 1 and 10, MTE3 3.
    assert moves >= 1200 * 121
    assert moves < 1200 * 200
