"""Do shares of a gradient go to the cores as the products deal them, with the bits of their order?"""

from dataclasses import replace

import numpy as np
import pytest

from ascendsim.errors import ConfigError
from ascendsim.ops.lowering.kernels import lower
from ascendsim.ops.plan import Plan, Tiling
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.reference.call import reference_gradients
from ascendsim.ops.schedules.ranges import cut, cut_within, deal, numbered, tasks_of
from ascendsim.ops.schedules.wgrad.tasks import WgradTasks
from ascendsim.program.kernel import Core
from tests.helpers.both_engines import time_kernel
from tests.helpers.conv_cases import (
    SPLIT,
    UNIFIED,
    assert_same_bits,
    blocks_dealt,
    blocks_of,
    call_of,
    run,
    segments_of,
    tensors_of,
)
from tests.helpers.toy_machines import toy_split, toy_unified

# --- Do tasks of several base blocks go to the cores as the products deal them, with the same bits? ----

ONLY_INPUT = (True, False, False)
# Three images of 6 x 5 pixels and 40 channels: tasks of 2 rows x 32 channels, of which the second has 8 (as
# channels are padded, 16). Base blocks of 8 pixels, so that a task's second one has 2.
PROBLEM = ConvProblem((3, 40, 6, 5), (20, 40, 3, 3), 1, 1)
SHARES = Tiling(8, 16, 16, 2, 2, used_cores=4, single_core_m=10, single_core_n=32)
CONTIGUOUS = replace(SHARES, task_order="m batch group d n")
PROBLEMS = [
    PROBLEM,
    ConvProblem((2, 40, 9, 10), (20, 40, 3, 2), 2, 1),  # zeros inserted, pixels that nothing reaches
    ConvProblem((2, 20, 7, 6), (20, 40, 2, 2), 2, transposed=True),
    ConvProblem((1, 36, 4, 5, 5), (18, 36, 2, 1, 2)),  # depths that meet one or two kernel depths
    ConvProblem((1, 40, 30), (24, 20, 3), groups=2),
]


def planned(tiling=CONTIGUOUS, problem=PROBLEM, profile=SPLIT, dtype="float16"):
    """A call whose grad_input is dealt in tasks."""
    call = call_of(problem, dtype, profile=profile)
    return replace(call, plans=call.plans | {"grad_input": Plan("dgrad_shares", tiling)})


def dealt(tiling, problem=PROBLEM):
    """Return (image, first pixel, first column) of the base blocks of each core."""
    schedule = planned(tiling, problem).schedule("grad_input")
    cores = [blocks_of(schedule.tasks, tasks) for tasks in schedule.dealt()]
    return [[(t.image, t.first_pixel, t.first_column) for t in tasks] for tasks in cores]


def test_an_extent_is_cut_into_parts_that_do_not_reach_into_each_other():
    assert cut(10, 4) == [(0, 4), (4, 4), (8, 2)]
    assert cut_within([(0, 10), (10, 5)], 4) == [(0, 4), (4, 4), (8, 2), (10, 4), (14, 1)]


def test_tasks_are_numbered_with_the_last_axis_fastest():
    tasks = tasks_of("m n", range(2), range(3))
    numbers, count = numbered("x", "n m", {"m": (tasks["m"], 2), "n": (tasks["n"], 3)})
    # n is the slower axis: (0, 0), (1, 0), (0, 1), ...
    assert [tasks[at].tolist() for at in np.argsort(numbers)] == [(m, n) for n in range(3) for m in range(2)]
    assert (sorted(numbers), count) == (list(range(6)), 6)


@pytest.mark.parametrize("order", ["", "m n batch group", "m n d batch group n"])
def test_an_order_that_leaves_an_axis_out_is_refused(order):
    with pytest.raises(ConfigError, match=r"task_order is .*; it must name each of batch, group, d, m, n"):
        dealt(replace(SHARES, task_order=order))


@pytest.mark.parametrize(
    ("mapping", "found"),
    # Five tasks on three cores: ranges of 2, 2 and 1, or every third.
    [("contiguous", [[0, 1], [2, 3], [4]]), ("interleaved", [[0, 3], [1, 4], [2]])],
)
def test_tasks_go_to_the_cores_in_ranges_or_in_turn(mapping, found):
    tasks = tasks_of("number", range(5))
    made = deal(tasks, tasks["number"], 5, 3, in_turn=mapping == "interleaved")
    assert [own["number"].tolist() for own in made] == found


def test_a_mapping_is_one_of_two_words():
    with pytest.raises(ConfigError, match="mapping is 'grid'; it must be contiguous or interleaved"):
        replace(SHARES, mapping="grid")


def test_no_core_gets_more_tasks_than_there_are():
    tasks = tasks_of("number", range(2))
    assert [own["number"].tolist() for own in deal(tasks, tasks["number"], 2, 8, in_turn=True)] == [[0], [1]]
    assert deal(tasks[:0], tasks[:0]["number"], 0, 8, in_turn=True) == []


def test_contiguous_tasks_take_channels_first_then_images_then_rows():
    # 3 shares of 10 pixels x 3 images x 2 shares of channels = 18 tasks on 4 cores: 5, 5, 4, 4. A task of
    # 32 channels is 2 pixel tiles x 2 column tiles, one of the last 8 or 16 channels 2 x 1.
    cores = dealt(CONTIGUOUS)
    assert cores[0][:6] == [(0, 0, 0), (0, 0, 16), (0, 8, 0), (0, 8, 16), (0, 0, 32), (0, 8, 32)]
    # Task 5 is the last channels of image 2 in rows 0 and 1: it begins the second core.
    assert cores[1][:2] == [(2, 0, 32), (2, 8, 32)]
    # Each core's blocks: 5 tasks that begin with the wide one have 3 of it and 2 narrow ones.
    assert [len(blocks) for blocks in cores] == [3 * 4 + 2 * 2, 2 * 4 + 3 * 2, 2 * 4 + 2 * 2, 2 * 4 + 2 * 2]


def test_interleaved_tasks_lie_cores_apart():
    cores = dealt(replace(CONTIGUOUS, mapping="interleaved"))
    # Tasks 0, 4, 8, ...: even ones, which are all wide.
    assert all(column < 32 for _, _, column in cores[0])
    assert cores[0][4] == (2, 0, 0)


def test_a_grid_is_one_task_a_core():
    # 3 parts of the images x 2 of the channels, all rows: 6 tasks, each of 30 pixels.
    grid = replace(SHARES, single_core_m=30, batch_dim=3, used_cores=5, task_order="n m batch d group")
    assert [len({image for image, _, _ in blocks}) for blocks in dealt(grid)] == [2, 1, 1, 1, 1]
    whole = replace(grid, batch_dim=1)
    assert [len({image for image, _, _ in blocks}) for blocks in dealt(whole)] == [3, 3]


@pytest.mark.parametrize("profile", [SPLIT, UNIFIED], ids=lambda profile: profile.variant)
@pytest.mark.parametrize("mapping", ["contiguous", "interleaved"])
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_the_bits_are_those_of_the_definition(problem, mapping, profile):
    tiling = replace(CONTIGUOUS, mapping=mapping, used_cores=3)
    call, tensors = planned(tiling, problem, profile), tensors_of(problem, data="wide")
    made, _ = run(call, tensors, 3, ONLY_INPUT)
    want = reference_gradients(call, **tensors, mask=ONLY_INPUT)
    assert_same_bits(made["grad_input"], want["grad_input"])


@pytest.mark.parametrize("profile", [SPLIT, UNIFIED], ids=lambda profile: profile.variant)
def test_segments_of_a_reduction_are_of_one_length_but_the_last(profile):
    # 72 channels are 5 groups of 16 (the last of 8): segments of 32 have 2, 2 and 1, as even parts have. Of
    # 48 there are 3 and 2; three even parts were 2, 2 and 1.
    deep = ConvProblem((1, 16, 4, 4), (72, 16, 3, 3), 1, 1)
    tiling = replace(CONTIGUOUS, used_cores=2, k_split=3, single_core_k=32)
    schedule = planned(tiling, deep, profile).schedule("grad_input")
    assert schedule.tasks.part_channels == [(0, 2), (2, 2), (4, 1)]
    longer = replace(tiling, k_split=2, single_core_k=48)
    assert planned(longer, deep).schedule("grad_input").tasks.part_channels == [(0, 3), (3, 2)]
    tensors = tensors_of(deep, data="wide")
    made, _ = run(planned(longer, deep, profile), tensors, mask=ONLY_INPUT)
    want = reference_gradients(planned(longer, deep, profile), **tensors, mask=ONLY_INPUT)
    assert_same_bits(made["grad_input"], want["grad_input"])


@pytest.mark.parametrize("changes", [{"single_core_k": 24}, {"k_split": 2}], ids=str)
def test_segments_that_do_not_cover_the_reduction_are_refused(changes):
    deep = ConvProblem((1, 16, 4, 4), (72, 16, 3, 3), 1, 1)
    tiling = replace(CONTIGUOUS, k_split=3, single_core_k=32)
    with pytest.raises(ConfigError, match="whole groups of 16 channels, and as many parts as cover 5 groups"):
        planned(replace(tiling, **changes), deep).schedule("grad_input")


def test_slices_have_base_k_and_the_last_one_what_is_left():
    # 5 groups of 16 channels in slices of 2: 2, 2, 1, where the plain nest makes them even, 1, 2, 2. So the
    # blocks of the accumulation model begin in other places.
    deep = ConvProblem((1, 16, 4, 4), (80, 16, 1, 1))
    tiling = replace(CONTIGUOUS, base_k=32, step_ka=3, step_kb=3, bl1_buffers=1)
    assert planned(tiling, deep).schedule("grad_input").order().slices == (2, 2, 1)
    call = call_of(deep, profile=SPLIT, tilings={"grad_input": Tiling(8, 16, 32, 3, 3)})
    assert call.schedule("grad_input").order().slices == (1, 2, 2)
    tensors = tensors_of(deep, data="wide")
    made, _ = run(planned(tiling, deep), tensors, mask=ONLY_INPUT)
    want = reference_gradients(planned(tiling, deep), **tensors, mask=ONLY_INPUT)
    assert_same_bits(made["grad_input"], want["grad_input"])


def test_a_share_is_cut_in_rows_where_whole_rows_do_not_fit():
    # A tile over two rows of 64 pixels of 16 channels needs two more under a kernel of 3: 4 x 64 x 16 x 2 =
    # 8 KiB, all of L1. Tiles inside a row need only their own columns. Shares end where they ended.
    wide = ConvProblem((1, 16, 4, 64), (16, 16, 3, 3), 1, 1)
    tiling = replace(CONTIGUOUS, base_m=24, single_core_m=72, step_ka=9, step_kb=3, bl1_buffers=1)
    schedule = planned(tiling, wide).schedule("grad_input")
    assert schedule.tasks.in_row
    assert schedule.tasks.pixel_tiles[:5] == [(0, 24), (24, 24), (48, 16), (64, 8), (72, 24)]
    tensors = tensors_of(wide, data="wide")
    made, _ = run(planned(tiling, wide), tensors, mask=ONLY_INPUT)
    want = reference_gradients(planned(tiling, wide), **tensors, mask=ONLY_INPUT)
    assert_same_bits(made["grad_input"], want["grad_input"])


@pytest.mark.parametrize("problem", PROBLEMS[:2], ids=str)
def test_engines_agree_and_folded_cores_are_alike(problem):
    call = planned(problem=problem)
    kernel = lower(call, ONLY_INPUT).kernels[0]
    assert time_kernel(kernel, SPLIT).cycles == time_kernel(kernel, SPLIT, folded=False).cycles


def test_the_order_of_tasks_decides_what_is_loaded_again():
    # One core, one share of pixels, two images, two shares of 16 channels, one tap: with channels fastest an
    # image tile stays for both shares, and weights come again with each image; with images fastest the other
    # way round. One slot each in L1.
    problem = ConvProblem((2, 32, 4, 4), (16, 32, 1, 1))
    tiling = Tiling(16, 16, 16, al1_buffers=1, bl1_buffers=1, single_core_m=16)
    found = {}
    for order in ("m batch group d n", "n m batch group d"):
        kernel = lower(planned(replace(tiling, task_order=order), problem), ONLY_INPUT).kernels[0]
        found[order] = time_kernel(kernel, SPLIT).bytes["l2_read"]
    image, weights = 16 * 16 * 2, 16 * 16 * 2
    assert found == {
        "m batch group d n": 2 * image + 4 * weights,
        "n m batch group d": 4 * image + 2 * weights,
    }


# -------------------------------------------------------------------------------------------------------
# Do shares of grad_weight go to the cores as the products deal them, added with the bits of their order?
# -------------------------------------------------------------------------------------------------------

ONLY_WEIGHT = (False, True, False)
# Room for base blocks of 16 x 48 with 16 pixels, and for rows of pixels in L1.
ROOM = {"buffers.L1.capacity_bytes": 65536, "buffers.L0B.capacity_bytes": 4096, "cores.cube": 4}
WGRAD_SPLIT, WGRAD_UNIFIED = toy_split(**ROOM, **{"cores.vector": 8}), toy_unified(**ROOM)
# Two images of 4 x 8 pixels, 40 rows (of 48) and 24 channels (of 32) under 3 x 3 taps: 288 columns.
WGRAD_PROBLEM = ConvProblem((2, 24, 4, 8), (40, 24, 3, 3), 1, 1)
# Shares of two rows of pixels; tiles of 16 pixels of either operand.
WGRAD_SHARES = Tiling(16, 48, 16, used_cores=4, single_core_m=16, single_core_n=288, single_core_k=16)
BY_ROWS = replace(WGRAD_SHARES, task_order="k batch d group m n")
WGRAD_PROBLEMS = [
    WGRAD_PROBLEM,
    ConvProblem((2, 20, 7, 6), (20, 40, 2, 2), 2, transposed=True),
    ConvProblem((1, 18, 4, 5, 5), (18, 18, 2, 1, 2)),  # three small depths, two of them at each kernel depth
    ConvProblem((1, 40, 30), (24, 20, 3), groups=2),
    ConvProblem((2, 16, 3, 5, 5), (16, 16, 3, 1, 1), padding=(1, 0, 0)),  # depths that meet padding
]


def planned_wgrad(tiling=BY_ROWS, problem=WGRAD_PROBLEM, profile=WGRAD_SPLIT, *, deterministic=True, **more):
    """A call whose grad_weight is dealt in shares, unless another schedule is named."""
    schedule, dtype = more.get("schedule", "wgrad_shares"), more.get("dtype", "float16")
    call = call_of(problem, dtype, profile=profile, deterministic=deterministic)
    return replace(call, plans=call.plans | {"grad_weight": Plan(schedule, tiling)})


def dealt_wgrad(tiling, problem=WGRAD_PROBLEM):
    return blocks_dealt(planned_wgrad(tiling, problem))


def test_a_part_is_a_share_of_one_image():
    tasks = planned_wgrad().schedule("grad_weight").tasks
    # Two images at one depth, each of 32 pixels in shares of 16.
    assert tasks.splits == 4
    assert [tasks.place(part)[0] for part in range(4)] == [0, 0, 1, 1]
    assert [[run[1:] for _, _, run in segments_of(tasks, 0, part)] for part in range(4)] == [
        [(0, 16)],
        [(16, 16)],
    ] * 2


def test_rows_of_pixels_come_slowest_and_rows_of_the_result_fastest():
    # 2 shares of pixels x 2 images x 3 of rows, each with all columns: 12 tasks on 4 cores, 3 each. A task
    # is 288 / 48 = 6 base blocks.
    cores = dealt_wgrad(BY_ROWS)
    assert [len(blocks) for blocks in cores] == [18] * 4
    # The first core has all rows of share 0 of image 0, which is part 0; the second those of image 1.
    assert [sorted({(part, row) for part, row, _ in blocks}) for blocks in cores[:3]] == [
        [(0, 0), (0, 16), (0, 32)],
        [(2, 0), (2, 16), (2, 32)],
        [(1, 0), (1, 16), (1, 32)],
    ]


def test_tasks_of_one_column_share_each_have_all_rows():
    tiling = replace(BY_ROWS, single_core_m=48, single_core_n=96, task_order="k batch d group n m")
    first = dealt_wgrad(tiling)[0]
    # 2 x 2 x 3 tasks on 4 cores: three shares of columns, each with 3 rows of 2 blocks.
    assert first[:6] == [(0, row, column) for row in (0, 16, 32) for column in (0, 48)]
    assert len(first) == 3 * 6


def test_a_grid_gives_a_core_many_images():
    # 2 images of 3 depths are 6; four shares of 2 each are three. Each has 32 pixels, one share of them.
    problem = ConvProblem((2, 16, 3, 4, 8), (16, 16, 1, 1, 1))
    grid = replace(BY_ROWS, base_n=16, single_core_n=16, single_core_k=32, batch_dim=4)
    assert [[part for part, _, _ in blocks] for blocks in dealt_wgrad(grid, problem)] == [
        [0, 1],
        [2, 3],
        [4, 5],
    ]
    # Three images on a grid of two: two of them, and one.
    odd = ConvProblem((3, 16, 4, 8), (16, 16, 1, 1))
    assert [len(blocks) for blocks in dealt_wgrad(replace(grid, batch_dim=2), odd)] == [2, 1]


def test_images_are_dealt_in_the_parts_that_a_plan_says():
    # Two images of 5 depths are 10: parts of six are six and four, where two even ones are five and five.
    problem = ConvProblem((2, 16, 5, 4, 8), (16, 16, 1, 1, 1))
    grid = replace(BY_ROWS, base_n=16, single_core_n=16, single_core_k=32, batch_dim=2)
    assert [len(blocks) for blocks in dealt_wgrad(grid, problem)] == [5, 5]
    uneven = replace(grid, single_core_batch=6)
    assert [[part for part, _, _ in blocks] for blocks in dealt_wgrad(uneven, problem)] == [
        [*range(6)],
        [6, 7, 8, 9],
    ]


# One image of four depths under three kernel depths of 40 channels: 48 columns at each.
DEEP = ConvProblem((1, 40, 6, 4, 4), (16, 40, 3, 1, 1))
# Parts of 32 columns at each kernel depth by itself, and all three depths, or each, in a task.
APART = replace(
    BY_ROWS,
    base_n=32,
    single_core_n=32,
    single_core_k=16,
    used_cores=2,
    batch_dim=1,
    depth_dim=1,
    task_order="group batch d n m k",
)


# Blocks of 48 columns end with the 32 of a task.
@pytest.mark.parametrize("base_n", [32, 48])
def test_columns_are_cut_at_each_kernel_depth_where_a_plan_cuts_these(base_n):
    def blocks(tiling):
        schedule = planned_wgrad(replace(tiling, base_n=base_n), DEEP).schedule("grad_weight")
        columns = [(block.first_column, block.groups) for block in schedule.tasks.column_blocks]
        return [
            [(part, depth, *columns[at]) for part, depth, at in tasks[["part", "depth", "column"]].tolist()]
            for tasks in schedule.dealt()
        ]

    # All four depths of grad_output one after the other, each with all kernel depths of the task.
    assert blocks(APART) == [
        [(part, depth, *columns) for part in range(4) for depth in range(3)] for columns in ((0, 2), (32, 1))
    ]
    # Six tasks on four cores: the first two have two each, both halves of a kernel depth.
    each = blocks(replace(APART, depth_dim=3, used_cores=4))
    assert each[1] == [(part, 1, *columns) for columns in ((0, 2), (32, 1)) for part in range(4)]
    assert each[3] == [(part, 2, 32, 1) for part in range(4)]


@pytest.mark.parametrize("tiling", [APART, replace(APART, depth_dim=3, used_cores=4)], ids=["all", "each"])
@pytest.mark.parametrize("problem", [DEEP, WGRAD_PROBLEMS[4]], ids=str)
def test_columns_cut_at_each_kernel_depth_have_the_bits_of_the_definition(problem, tiling):
    call, tensors = planned_wgrad(tiling, problem), tensors_of(problem, data="wide")
    made, _ = run(call, tensors, 3, ONLY_WEIGHT)
    want = reference_gradients(call, **tensors, mask=ONLY_WEIGHT)
    assert_same_bits(made["grad_weight"], want["grad_weight"])
    kernel = product_of(tiling, problem)
    assert time_kernel(kernel, WGRAD_SPLIT).cycles == time_kernel(kernel, WGRAD_SPLIT, folded=False).cycles


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"single_core_batch": 2},
            "depth_dim and single_core_batch are of a grid of cores, but batch_dim is 0",
        ),
        ({"depth_dim": 1}, "depth_dim and single_core_batch are of a grid of cores, but batch_dim is 0"),
        (
            {"batch_dim": 2, "single_core_batch": 2},
            "single_core_batch is 2, so that 2 images and depths make 1 parts, but batch_dim is 2",
        ),
    ],
)
def test_parts_that_say_no_grid_are_refused(given, message):
    with pytest.raises(ConfigError, match=message):
        planned_wgrad(replace(BY_ROWS, **given)).schedule("grad_weight").dealt()


def depths_of_tasks(schedule):
    """The kernel depths of the base blocks of each task."""
    units, depths = schedule.units, schedule.tasks.tasks["depth"]
    return [depths[units == unit].tolist() for unit in range(units.max() + 1)]


def test_columns_go_through_all_kernel_depths():
    # Two kernel depths of 16 x 1 columns, 32 in all: shares of 16 are one depth each, of 32 both.
    problem = ConvProblem((1, 16, 3, 4, 4), (16, 16, 2, 1, 1))
    one = replace(BY_ROWS, base_n=16, single_core_n=16, used_cores=1)
    schedule = planned_wgrad(one, problem).schedule("grad_weight")
    # Two small depths: each has a task for either kernel depth.
    assert depths_of_tasks(schedule) == [[0], [1], [0], [1]]
    both = planned_wgrad(replace(one, single_core_n=32), problem).schedule("grad_weight")
    assert depths_of_tasks(both) == [[0, 1], [0, 1]]


def test_an_order_that_leaves_an_axis_out_is_refused_wgrad():
    with pytest.raises(ConfigError, match="name each of group, batch, d, k, m, n once"):
        dealt_wgrad(replace(BY_ROWS, task_order="k batch d m n"))


def test_k_split_is_not_read():
    with pytest.raises(ConfigError, match="k_split is 2, but schedule wgrad_shares does not read it"):
        planned_wgrad(replace(BY_ROWS, k_split=2)).schedule("grad_weight")


# Ranges of 32 pixels may lie in two rows of 4,001, of which 64 KiB of L1 hold not one.
LONG_ROWS = ConvProblem((1, 16, 2, 4001), (16, 16, 3, 3), 1, 1)


def test_shares_of_rows_that_l1_does_not_hold_are_refused():
    with pytest.raises(ConfigError, match=r"whole rows of the image do not fit in L1.* single_core_k"):
        planned_wgrad(problem=LONG_ROWS).schedule("grad_weight").dealt()


def test_steps_that_do_not_divide_each_other_are_refused():
    with pytest.raises(ConfigError, match="step_ka is 2 and step_kb is 3; one must divide the other"):
        lower(planned_wgrad(replace(BY_ROWS, step_ka=2, step_kb=3, single_core_k=0)), ONLY_WEIGHT)


@pytest.mark.parametrize("steps", [(1, 1), (2, 1), (1, 2)], ids=str)
@pytest.mark.parametrize("profile", [WGRAD_SPLIT, WGRAD_UNIFIED], ids=lambda profile: profile.variant)
@pytest.mark.parametrize("problem", WGRAD_PROBLEMS, ids=str)
def test_parts_kept_apart_have_the_bits_of_the_definition(problem, profile, steps):
    tiling = replace(BY_ROWS, step_ka=steps[0], step_kb=steps[1], single_core_k=32)
    call, tensors = planned_wgrad(tiling, problem, profile), tensors_of(problem, data="wide")
    made, _ = run(call, tensors, 3, ONLY_WEIGHT)
    want = reference_gradients(call, **tensors, mask=ONLY_WEIGHT)
    assert_same_bits(made["grad_weight"], want["grad_weight"])


@pytest.mark.parametrize("order", ["program", "arrival", 5])
@pytest.mark.parametrize("problem", WGRAD_PROBLEMS, ids=str)
def test_parts_added_as_they_arrive_have_the_bits_of_that_order(problem, order):
    call, tensors = planned_wgrad(problem=problem, deterministic=False), tensors_of(problem, data="wide")
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
        call = planned_wgrad(tiling, problem, schedule=name, dtype="float32")
        made, _ = run(call, tensors, mask=ONLY_WEIGHT)
        found[name] = made["grad_weight"]
    assert (found["wgrad"] != found["wgrad_shares"]).any()


def product_of(tiling=BY_ROWS, problem=WGRAD_PROBLEM):
    """Return the kernel that follows a tiling; where it adds to zeros, another one writes these."""
    made = lower(planned_wgrad(tiling, problem, deterministic=False), ONLY_WEIGHT).kernels
    [kernel] = [kernel for kernel in made if kernel.macs]
    return kernel


def counts(tiling, problem=WGRAD_PROBLEM):
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


@pytest.mark.parametrize("problem", WGRAD_PROBLEMS[:3], ids=str)
def test_engines_agree_and_folded_cores_are_alike_wgrad(problem):
    kernel = product_of(problem=problem)
    assert time_kernel(kernel, WGRAD_SPLIT).cycles == time_kernel(kernel, WGRAD_SPLIT, folded=False).cycles


@pytest.mark.parametrize("problem", WGRAD_PROBLEMS)
def test_what_shares_reduce_is_what_their_segments_are(problem):
    cut = planned_wgrad(problem=problem).schedule("grad_weight").tasks
    rows, counts = cut.reductions
    # The usual cut reads them off the segments of each part, one after the other.
    listed = WgradTasks.reductions.function(cut)
    assert rows.tolist() == listed[0].tolist()
    assert counts.tolist() == listed[1].tolist()
    shapes, usual = cut._part_shapes.ravel().tolist(), WgradTasks._part_shapes.function(cut).ravel().tolist()
    assert [shapes.index(shape) for shape in shapes] == [usual.index(shape) for shape in usual]
    each = cut.gemm.groups * len(cut.row_tiles) * len(cut.column_blocks)
    assert each * np.count_nonzero(counts) == len(cut.tasks) == len(np.unique(cut.tasks))


@pytest.mark.parametrize("problem", WGRAD_PROBLEMS)
def test_shares_deal_each_base_block_once(problem):
    schedule = planned_wgrad(problem=problem).schedule("grad_weight")
    made = np.concatenate(schedule.dealt())
    assert np.sort(made).tolist() == np.sort(schedule.tasks.tasks).tolist() == np.unique(made).tolist()
