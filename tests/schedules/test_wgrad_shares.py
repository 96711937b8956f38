"""Do shares of grad_weight go to the cores as the products deal them, added with the bits of their order?"""

from dataclasses import replace

import pytest

from ascendsim.errors import ConfigError
from ascendsim.ops.lowering.known import lower
from ascendsim.ops.plan import Plan, Tiling
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.reference.call import reference_gradients
from ascendsim.ops.schedules.wgrad.tasks import WgradTasks
from ascendsim.program.kernel import Core
from tests.helpers.both_engines import time_kernel
from tests.helpers.conv_cases import assert_same_bits, blocks_dealt, call_of, run, tensors_of
from tests.helpers.toy_profiles import toy_split, toy_unified

ONLY_WEIGHT = (False, True, False)
# Room for base blocks of 16 x 48 with 16 pixels, and for rows of pixels in L1.
ROOM = {"buffers.L1.capacity_bytes": 65536, "buffers.L0B.capacity_bytes": 4096, "cores.cube": 4}
SPLIT, UNIFIED = toy_split(**ROOM, **{"cores.vector": 8}), toy_unified(**ROOM)
# Two images of 4 x 8 pixels, 40 rows (of 48) and 24 channels (of 32) under 3 x 3 taps: 288 columns.
PROBLEM = ConvProblem((2, 24, 4, 8), (40, 24, 3, 3), 1, 1)
# Shares of two rows of pixels; tiles of 16 pixels of either operand.
SHARES = Tiling(16, 48, 16, used_cores=4, single_core_m=16, single_core_n=288, single_core_k=16)
BY_ROWS = replace(SHARES, task_order="k batch d group m n")
PROBLEMS = [
    PROBLEM,
    ConvProblem((2, 20, 7, 6), (20, 40, 2, 2), 2, transposed=True),
    ConvProblem((1, 18, 4, 5, 5), (18, 18, 2, 1, 2)),  # three small depths, two of them at each kernel depth
    ConvProblem((1, 40, 30), (24, 20, 3), groups=2),
    ConvProblem((2, 16, 3, 5, 5), (16, 16, 3, 1, 1), padding=(1, 0, 0)),  # depths that meet padding
]


def planned(tiling=BY_ROWS, problem=PROBLEM, profile=SPLIT, *, deterministic=True, **more):
    """A call whose grad_weight is dealt in shares, unless another schedule is named."""
    schedule, dtype = more.get("schedule", "wgrad_shares"), more.get("dtype", "float16")
    call = call_of(problem, dtype, profile=profile, deterministic=deterministic)
    return replace(call, plans=call.plans | {"grad_weight": Plan(schedule, tiling)})


def dealt(tiling, problem=PROBLEM):
    return blocks_dealt(planned(tiling, problem))


def test_a_part_is_a_share_of_one_image():
    tasks = planned().schedule("grad_weight").tasks
    # Two images at one depth, each of 32 pixels in shares of 16.
    assert tasks.splits == 4
    assert [tasks.place(part)[0] for part in range(4)] == [0, 0, 1, 1]
    assert [[run[1:] for _, _, run in tasks.part(0, part)] for part in range(4)] == [
        [(0, 16)],
        [(16, 16)],
    ] * 2


def test_rows_of_pixels_come_slowest_and_rows_of_the_result_fastest():
    # 2 shares of pixels x 2 images x 3 of rows, each with all columns: 12 tasks on 4 cores, 3 each. A task
    # is 288 / 48 = 6 base blocks.
    cores = dealt(BY_ROWS)
    assert [len(blocks) for blocks in cores] == [18] * 4
    # The first core has all rows of share 0 of image 0, which is part 0; the second those of image 1.
    assert [sorted({(part, row) for part, row, _ in blocks}) for blocks in cores[:3]] == [
        [(0, 0), (0, 16), (0, 32)],
        [(2, 0), (2, 16), (2, 32)],
        [(1, 0), (1, 16), (1, 32)],
    ]


def test_tasks_of_one_column_share_each_have_all_rows():
    tiling = replace(BY_ROWS, single_core_m=48, single_core_n=96, task_order="k batch d group n m")
    first = dealt(tiling)[0]
    # 2 x 2 x 3 tasks on 4 cores: three shares of columns, each with 3 rows of 2 blocks.
    assert first[:6] == [(0, row, column) for row in (0, 16, 32) for column in (0, 48)]
    assert len(first) == 3 * 6


def test_a_grid_gives_a_core_many_images():
    # 2 images of 3 depths are 6; four shares of 2 each are three. Each has 32 pixels, one share of them.
    problem = ConvProblem((2, 16, 3, 4, 8), (16, 16, 1, 1, 1))
    grid = replace(BY_ROWS, base_n=16, single_core_n=16, single_core_k=32, batch_dim=4)
    assert [[part for part, _, _ in blocks] for blocks in dealt(grid, problem)] == [[0, 1], [2, 3], [4, 5]]
    # Three images on a grid of two: two of them, and one.
    odd = ConvProblem((3, 16, 4, 8), (16, 16, 1, 1))
    assert [len(blocks) for blocks in dealt(replace(grid, batch_dim=2), odd)] == [2, 1]


def test_columns_go_through_all_kernel_depths():
    # Two kernel depths of 16 x 1 columns, 32 in all: shares of 16 are one depth each, of 32 both.
    problem = ConvProblem((1, 16, 3, 4, 4), (16, 16, 2, 1, 1))
    one = replace(BY_ROWS, base_n=16, single_core_n=16, used_cores=1)
    schedule = planned(one, problem).schedule("grad_weight")
    # Two small depths: each has a task for either kernel depth.
    assert [[task.depth for task in unit] for unit in schedule.units] == [[0], [1], [0], [1]]
    both = planned(replace(one, single_core_n=32), problem).schedule("grad_weight")
    assert [[task.depth for task in unit] for unit in both.units] == [[0, 1], [0, 1]]


def test_an_order_that_leaves_an_axis_out_is_refused():
    with pytest.raises(ConfigError, match="name each of group, batch, d, k, m, n once"):
        dealt(replace(BY_ROWS, task_order="k batch d m n"))


def test_k_split_is_not_read():
    with pytest.raises(ConfigError, match="k_split is 2, but schedule wgrad_shares does not read it"):
        planned(replace(BY_ROWS, k_split=2)).schedule("grad_weight")


# Ranges of 32 pixels may lie in two rows of 4,001, of which 64 KiB of L1 hold not one.
LONG_ROWS = ConvProblem((1, 16, 2, 4001), (16, 16, 3, 3), 1, 1)


def test_shares_of_rows_that_l1_does_not_hold_are_refused():
    with pytest.raises(ConfigError, match=r"whole rows of the image do not fit in L1.* single_core_k"):
        planned(problem=LONG_ROWS).schedule("grad_weight").dealt()


def test_steps_that_do_not_divide_each_other_are_refused():
    with pytest.raises(ConfigError, match="step_ka is 2 and step_kb is 3; one must divide the other"):
        lower(planned(replace(BY_ROWS, step_ka=2, step_kb=3, single_core_k=0)), ONLY_WEIGHT)


@pytest.mark.parametrize("steps", [(1, 1), (2, 1), (1, 2)], ids=str)
@pytest.mark.parametrize("profile", [SPLIT, UNIFIED], ids=lambda profile: profile.variant)
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_parts_kept_apart_have_the_bits_of_the_definition(problem, profile, steps):
    tiling = replace(BY_ROWS, step_ka=steps[0], step_kb=steps[1], single_core_k=32)
    call, tensors = planned(tiling, problem, profile), tensors_of(problem, data="wide")
    made, _ = run(call, tensors, 3, ONLY_WEIGHT)
    want = reference_gradients(call, **tensors, mask=ONLY_WEIGHT)
    assert_same_bits(made["grad_weight"], want["grad_weight"])


@pytest.mark.parametrize("order", ["program", "arrival", 5])
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_parts_added_as_they_arrive_have_the_bits_of_that_order(problem, order):
    call, tensors = planned(problem=problem, deterministic=False), tensors_of(problem, data="wide")
    assert call.schedule("grad_weight").atomic
    made, arrivals = run(call, tensors, order, ONLY_WEIGHT)
    want = reference_gradients(call, **tensors, mask=ONLY_WEIGHT, arrivals=arrivals)
    assert_same_bits(made["grad_weight"], want["grad_weight"])


def test_a_share_is_not_the_same_as_an_even_part():
    # Three rows of 8 pixels in shares of 16: parts of 16 and 8 pixels of each image. Three even parts of the
    # whole reduction have one, one and two of these ranges, so that sums are rounded in other places.
    problem = ConvProblem((2, 16, 3, 8), (16, 16, 1, 1))
    tensors = tensors_of(problem, "float32")
    found = {}
    for name, tiling in (
        ("wgrad_shares", replace(BY_ROWS, base_n=16, single_core_n=16)),
        ("wgrad", Tiling(16, 16, 16, k_split=3, used_cores=4)),
    ):
        call = planned(tiling, problem, schedule=name, dtype="float32")
        made, _ = run(call, tensors, mask=ONLY_WEIGHT)
        found[name] = made["grad_weight"]
    assert (found["wgrad"] != found["wgrad_shares"]).any()


def product_of(tiling=BY_ROWS, problem=PROBLEM):
    """Return the kernel that follows a tiling; where it adds to zeros, another one writes these."""
    made = lower(planned(tiling, problem, deterministic=False), ONLY_WEIGHT).kernels
    [kernel] = [kernel for kernel in made if kernel.macs]
    return kernel


def counts(tiling, problem=PROBLEM):
    """Return how many instructions of each kind the first core runs."""
    kernel = product_of(tiling, problem)
    [phase] = [phase for phase in kernel.phases if phase.name == "compute"]
    program = next(work for work in phase.work if work.core == Core("cube", 0)).build()
    names = [type(instruction).__name__ for instruction in program.instructions]
    return {name: names.count(name) for name in ("CopyGmToL1", "LoadL0A", "LoadL0B", "Mmad", "Fixpipe")}


def test_what_stays_in_l1_is_loaded_once_for_a_task():
    # One core has all: 2 x 2 shares x 3 rows = 12 tasks of 6 column blocks of 48. A block of 3 taps lies in
    # one channel group of 9: the tile of a group serves 3 blocks, two groups make a task's 2 loads, and a
    # third one the rows' own: 12 x 3.
    one = replace(BY_ROWS, used_cores=1, bl1_buffers=1)
    assert counts(one) == {"CopyGmToL1": 12 * 3, "LoadL0A": 72, "LoadL0B": 72, "Mmad": 72, "Fixpipe": 72}


def test_a_longer_tile_of_one_operand_serves_several_of_the_other():
    # Shares of 32 pixels, tiles of 32 of grad_output and of 16 of input, one block of 48 columns of one task.
    problem = ConvProblem((1, 16, 4, 8), (16, 16, 1, 3), 1, (0, 1))
    tiling = replace(BY_ROWS, single_core_k=32, step_ka=2, step_kb=1)
    assert counts(tiling, problem) == {
        "CopyGmToL1": 1 + 2,
        "LoadL0A": 2,
        "LoadL0B": 2,
        "Mmad": 2,
        "Fixpipe": 1,
    }


@pytest.mark.parametrize("problem", PROBLEMS[:3], ids=str)
def test_engines_agree_and_folded_cores_are_alike(problem):
    kernel = product_of(problem=problem)
    assert time_kernel(kernel, SPLIT).cycles == time_kernel(kernel, SPLIT, folded=False).cycles


@pytest.mark.parametrize("problem", PROBLEMS)
def test_what_shares_reduce_is_what_their_segments_are(problem):
    cut = planned(problem=problem).schedule("grad_weight").tasks
    rows, counts = cut.reductions
    # The usual cut reads them off the segments of each part, one after the other.
    listed = WgradTasks.reductions.function(cut)
    assert rows.tolist() == listed[0].tolist()
    assert counts.tolist() == listed[1].tolist()
    shapes, usual = cut._part_shapes.ravel().tolist(), WgradTasks._part_shapes.function(cut).ravel().tolist()
    assert [shapes.index(shape) for shape in shapes] == [usual.index(shape) for shape in usual]
    assert cut.count == len(cut.tasks) == len(set(cut.tasks))
    reducing = [
        cut.reduces(depth, part) for depth in range(len(shapes) // cut.splits) for part in range(cut.splits)
    ]
    assert reducing == [count > 0 for count in counts]


@pytest.mark.parametrize("problem", PROBLEMS)
def test_shares_deal_each_base_block_once(problem):
    schedule = planned(problem=problem).schedule("grad_weight")
    made = [task for tasks in schedule.dealt() for task in tasks]
    assert len(made) == len(set(made))
    assert set(made) == set(schedule.tasks.tasks)
