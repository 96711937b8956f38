"""Do tasks of several base blocks go to the cores as the products deal them, with the same bits?"""

from dataclasses import replace

import pytest

from ascendsim.errors import ConfigError
from ascendsim.ops.lowering.known import lower
from ascendsim.ops.plan import Plan, Tiling
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.reference.call import reference_gradients
from ascendsim.ops.schedules.ranges import cut, cut_within, deal, numbered
from tests.helpers.both_engines import time_kernel
from tests.helpers.conv_cases import SPLIT, UNIFIED, assert_same_bits, call_of, run, tensors_of

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
    cores = planned(tiling, problem).schedule("grad_input").dealt()
    return [[(t.image, t.first_pixel, t.first_column) for t in tasks] for tasks in cores]


def test_an_extent_is_cut_into_parts_that_do_not_reach_into_each_other():
    assert cut(10, 4) == [(0, 4), (4, 4), (8, 2)]
    assert cut_within([(0, 10), (10, 5)], 4) == [(0, 4), (4, 4), (8, 2), (10, 4), (14, 1)]


def test_tasks_are_numbered_with_the_last_axis_fastest():
    places = numbered("x", "n m", {"m": [0, 1], "n": "ab"})
    assert [(p["n"], p["m"]) for p in places] == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]


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
    tiling = Tiling(16, 16, 16, used_cores=3, mapping=mapping)
    assert deal([[number] for number in range(5)], tiling) == found


def test_a_mapping_is_one_of_two_words():
    with pytest.raises(ConfigError, match="mapping is 'grid'; it must be contiguous or interleaved"):
        replace(SHARES, mapping="grid")


def test_no_core_gets_more_tasks_than_there_are():
    assert deal([[0], [1]], Tiling(16, 16, 16, used_cores=8)) == [[0], [1]]


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
