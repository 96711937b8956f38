"""Are the rules of the products' operators followed? Small layers, with every expected value derived."""

import doctest
from dataclasses import replace
from pathlib import Path

import pytest

from ascendsim import ConvProblem
from ascendsim.errors import CapacityError, UnsupportedError
from ascendsim.ops.tiling.vendor.arch35.dgrad_block import Dgrad35Part
from ascendsim.ops.tiling.vendor.arch35.wgrad import Tail, tail_along
from ascendsim.ops.tiling.vendor.layer import (
    LayerSizes,
    Machine,
    dgrad_rows,
    rows_touched,
    wgrad_channels,
    wgrad_rows,
)
from ascendsim.ops.tiling.vendor.operators import plan_of_layer
from ascendsim.profile import load_profile
from tests.helpers.slow_tilings import ARCH22, base, operators_plan

B2, PR = load_profile("910B2"), load_profile("950PR_9599", {"cores.cube": 32})

GROUPED = ConvProblem((1, 32, 8, 8), (32, 16, 3, 3), groups=2)


def problem(channels=64, out=64, size=32, kernel=3, batch=1, **more):
    more.setdefault("padding", kernel // 2)
    return ConvProblem((batch, channels, size, size), (out, channels, kernel, kernel), **more)


def plan(problem, gradient, profile=B2, dtype="float16", **more):
    return operators_plan(problem, gradient, dtype, profile, **more)


@pytest.mark.parametrize(
    ("pixels", "width", "rows"),
    # 32 of rows of 16: two whole rows. 8 of 16: half a row. 24 of 16: from the middle of a row it is two,
    # from its last pixel three. 10 of 16: at most two.
    [(32, 16, 2), (8, 16, 1), (24, 16, 3), (10, 16, 2)],
)
def test_rows_that_a_run_of_pixels_touches(pixels, width, rows):
    assert rows_touched(pixels, width) == rows


def test_rows_of_grad_output_stop_at_what_there_is():
    # 64 pixels of rows of 32 are 2 rows; a kernel of 3 reaches 2 rows further.
    layer = LayerSizes.of(problem(), "float16")
    assert dgrad_rows(layer, 64) == 4
    # 32 rows are all that there are.
    assert dgrad_rows(layer, 32 * 32) == 32
    # With stride 2 the 16 rows of grad_output are 31 once zeros stand between them.
    assert dgrad_rows(LayerSizes.of(problem(stride=2), "float16"), 32 * 32) == 31


def test_rows_of_input_step_by_the_stride():
    # 32 pixels of rows of 16 are 2 rows of grad_output: 2 apart in input, and 3 rows of kernel.
    assert wgrad_rows(LayerSizes.of(problem(stride=2), "float16"), 32) == (2 - 1) * 2 + 3


@pytest.mark.parametrize(
    ("columns", "taps", "channels"),
    # 8 groups of 9 taps: less than a window, but a run may begin in one and end in the next. 9 are a window.
    # 4 of 16 taps never cut one. Without neighbouring taps each group is a channel group of its own.
    [(128, 9, 32), (144, 9, 16), (64, 16, 16), (128, 1, 128)],
)
def test_channels_of_input_under_columns(columns, taps, channels):
    assert wgrad_channels(columns, taps, 16) == channels


def test_arch22_grad_input_takes_blocks_that_divide_windows():
    # m = 1024 >= n = 64, so 256 x 128, of which n leaves 64. A window is 9 * 16 = 144: the largest k up to 64
    # that divides it is 48. With n below 256 and k below 64 m grows to what half of L0A (16384 elements)
    # holds, 16384 / 48 = 341, so 336; and k to 16384 / 336 = 48.
    found = plan(problem(), "grad_input")
    assert (found.strategy, *base(found)) == ("basic_block", 336, 64, 48)
    # Weights stay only where one slice is whole windows, and 48 of k are a third. A quarter of L1 holds all
    # four groups of channels of either operand: 9 of 14 * 32 pixels, 7 of 64 columns; 4 * 144 / 48 slices.
    assert (found.step_ka, found.step_kb, found.al1_buffers, found.bl1_buffers) == (12, 12, 2, 2)
    # A task is whole rows: 336 / 32 = 10 of them. 1024 / 320 = 4 tasks for 24 cores.
    assert (found.single_core_m, found.tasks, found.used_cores) == (320, 4, 4)
    assert (found.mapping, found.order) == ("contiguous", ("m", "batch", "d", "n"))


def test_arch22_grad_input_of_float32_is_a_grid_of_cores():
    # 24 cores: depth 1 and batch 8 take 8 of them, rows the other 3: 10 rows of 32 are more than 128 pixels.
    found = plan(problem(batch=8), "grad_input", dtype="float32")
    assert found.strategy == "core_grid"
    assert dict(found.grid) == {"d": 1, "batch": 8, "m": 3, "n": 1}
    assert (found.used_cores, found.single_core_m) == (24, 11 * 32)
    # m = 352 > n = 64: 256 x 64. Three taps of 8 channels are 24, all nine would be 72: with one C0 group to
    # spare, half of L0B (8192 elements) holds 8192 / 64 - 8 = 120 of k, half of L0A 8192 / 256 = 32.
    assert base(found) == (256, 64, 24)


def test_arch22_grad_weight_splits_the_reduction_where_blocks_are_few():
    # m = 64, n = 64 * 9 = 576: too few rows for basic blocks of 3 x 3, so the library's search takes it.
    assert plan(problem(), "grad_weight").strategy == "library"
    # With 128 channels n = 1152 > m = 128, so grad_output stays: tasks are cut along m and k.
    found = plan(problem(128, 128), "grad_weight")
    assert (found.strategy, found.split) == ("basic_mk", "mk")
    # k = 16384 / 128, four rows of 32; the first depth, 4 slices in each of two copies, gives singleK = 16
    # rows and 2 tasks, then 2 slices 8 rows and 4 tasks, and so on: 24 cores never get work, as 1 slice of 4
    # rows gives 8 tasks. It takes the last step of the ladder.
    assert base(found) == (128, 128, 128)
    assert (found.step_ka, found.step_kb, found.single_core_k) == (1, 1, 128)
    assert (found.tasks, found.used_cores) == (8, 8)


def test_arch22_grad_weight_with_stride_cuts_the_result_instead():
    # Stride 2 and 16 taps: m, n tasks. n = 128 * 16 = 2048 in strips of one window of 256; m = 256.
    found = plan(problem(128, 256, 64, 4, batch=4, stride=2, padding=1), "grad_weight")
    assert (found.split, found.order) == ("mn", ("m", "batch", "d", "n"))
    assert base(found) == (256, 128, 64)
    # A task reduces a whole image of 32 x 32, and there are 4 images x 8 windows.
    assert (found.single_core_n, found.single_core_k, found.tasks) == (256, 1024, 32)


def test_arch22_deterministic_grad_weight_cuts_only_the_last_round():
    # 1152 rows are 5 blocks of 256; n = 4 padded to 16, times 4 taps. 24 / 5 = 4 ways, and 16 rows of
    # grad_output give 4 parts where one image gives one: 5 x 4 = 20 cores.
    found = plan(problem(4, 1152, 32, 2, stride=2, padding=0), "grad_weight", deterministic=True)
    assert (found.strategy, found.stream_ways, found.stream_axis) == ("basic_det", 4, "height")
    assert (found.tasks, found.used_cores) == (5, 20)
    assert not found.zero_first


def test_a_grid_of_20_cores_is_for_bfloat16_on_20_cores():
    layer = problem(512, 8, 32, batch=5)
    b3 = load_profile("910B3")
    assert plan(layer, "grad_weight", b3, "bfloat16").strategy == "core_grid"
    assert plan(layer, "grad_weight", b3, "float16").strategy == "library"
    assert plan(layer, "grad_weight", B2, "bfloat16").strategy == "library"


@pytest.mark.parametrize(
    ("tasks", "batch", "tail"),
    [
        (64, 4, Tail()),  # two full rounds of 32
        (50, 4, Tail()),  # 18 left over are more than half of the cores
        (40, 4, Tail(4, "batch_depth", 1)),  # 8 left over: 4 ways, of 4 images as of 16 rows; images first
        (40, 3, Tail(4, "height", 4)),  # 3 images give 3 parts, 16 rows give 4
        (33, 4, Tail(16, "height", 1)),  # one left over: 32 ways, of which 16 rows give 16
    ],
)
def test_the_last_round_is_cut_where_that_gives_most_parts(tasks, batch, tail):
    assert tail_along({"batch_depth": batch, "height": 16}, tasks, 32) == tail


def test_arch35_grad_weight_deals_tiles_to_all_cores():
    # 256 x 2304: m whole, n as 9 equal parts of 256, cut to 144, one window. 16 tiles for 32 cores: two ways,
    # images first.
    found = plan(problem(256, 256, batch=2), "grad_weight", PR)
    assert (found.strategy, *base(found)[:2]) == ("stream_k", 256, 144)
    assert (found.tasks, found.stream_ways, found.stream_axis, found.used_cores) == (16, 2, "batch_depth", 32)
    # k: half of L0A holds 16384 / 256 = 64, which is two rows of 32.
    assert found.base_k == 64
    assert found.mapping == "interleaved"


@pytest.mark.parametrize(
    ("batch", "sides", "tasks", "ways"),
    [
        # 32 images: one task, cut in 32 along them.
        (32, (128, 128), 1, 32),
        # Of 4 images a task has 4 parts, so that it takes 8 tasks: as many as 128 rows have fractals.
        (4, (16, 128), 8, 4),
        # One image: nothing of its only row to cut. 8 tasks of rows leave 4 cores for each, and 7968 pixels
        # of 32 for 4 x 7968; a single task has columns cut by no rule.
        (1, (128, 128), 1, 1),
    ],
)
def test_arch35_grad_weight_cuts_its_sides_where_the_reduction_has_too_few_parts(batch, sides, tasks, ways):
    line = ConvProblem((batch, 64, 8000), (128, 64, 2), padding=32, dilation=64)
    found = plan(line, "grad_weight", PR)
    assert (base(found)[:2], found.tasks, found.stream_ways) == (sides, tasks, ways)


def test_arch35_grad_weight_of_wide_rows_works_in_strips():
    found = plan(problem(16, 16, 600), "grad_weight", PR)
    assert found.strip_w == 128


@pytest.mark.parametrize(
    ("given", "strategy", "taps", "split"),
    [
        # 1024 x 512 accumulators are 8 times L0C: fewer than 2.5 rounds of 32.
        (problem(512, 64), "small_shape", "all", ""),
        # 64 channels of 9 taps fit beside two tiles of pixels, and 128 images are enough rounds.
        (problem(64, 64, batch=128), "full_load", "all", ""),
        # Weights of 512 x 4608 do not fit.
        (problem(512, 512, batch=128), "inner_product", "all", ""),
        # Stride 2 with a square kernel of 4.
        (problem(64, 64, 64, 4, stride=2, padding=1), "kernel_split_full", "all", "hw"),
        # So many channels do not stay in L1 as a whole.
        (problem(64, 512, 64, 4, stride=2, padding=1), "kernel_split_hw", "all", "hw"),
        # The same with 6 taps along each axis: too many for four phases at once.
        (problem(64, 64, 64, 6, stride=2, padding=1), "kernel_split_h", "all", "h"),
        # Three channels: 4 of them a tap. 16384 x 64 accumulators are 16 times L0C.
        (problem(64, 3, 128), "small_shape", "c04", ""),
        # Padding that load3d cannot say: 400 - 1 backwards.
        (ConvProblem((1, 16, 400, 1), (16, 16, 400, 1)), "inner_product", "kh", ""),
    ],
)
def test_arch35_grad_input_takes_the_strategy_of_its_shape(given, strategy, taps, split):
    found = plan(given, "grad_input", PR)
    assert (found.strategy, found.taps, found.kernel_split) == (strategy, taps, split)
    # Half of L0A and L0B is loaded while the other one is multiplied, whatever the strategy.
    assert (found.al0_buffers, found.bl0_buffers) == (2, 2)


@pytest.mark.parametrize(
    ("batch", "strategy"),
    # An image is one tile of L0C. 2.5 rounds of 32 cores are 80 tasks, which are no longer few.
    [(79, "small_shape"), (80, "full_load")],
)
def test_arch35_few_tasks_end_where_the_rounds_are_reached(batch, strategy):
    assert plan(problem(16, 16, 8, batch=batch), "grad_input", PR).strategy == strategy


@pytest.mark.parametrize(
    ("kernel", "smallest"),
    # Taps 0 and 2 of 3 serve even pixels and tap 1 odd ones: the smallest of four kernels is 1 x 1, 16 of one
    # channel group. Of 4 taps either phase has two.
    [(3, 16), (4, 64)],
)
def test_arch35_the_smallest_kernel_of_a_split(kernel, smallest):
    layer = LayerSizes.of(problem(64, 64, 64, kernel, stride=2, padding=1), "float16")
    part = Dgrad35Part(layer, Machine.of(PR), split="hw")
    assert (part.kernel, part.smallest_window) == ((2, 2), smallest)


def test_arch35_full_load_divides_rows_among_cores():
    # 32 images of 64 x 64: the 32 cores take one each, all rows of it. 64 x 576 weights stay.
    found = plan(problem(64, 64, 64, batch=32), "grad_input", PR)
    assert (found.strategy, found.bl1_buffers) == ("full_load", 1)
    assert (found.single_core_m, found.tasks, found.used_cores) == (64 * 64, 32, 32)


def test_arch35_cuts_long_reductions_into_segments():
    # float32 and plain layouts: 2048 / 9 = 227 channels, in whole groups of 8.
    given = problem(64, 512, batch=32)
    assert plan(given, "grad_input", PR, "float32").k_segment == 224
    # Of 16 bits 32768 / 9 channels, and there are fewer.
    assert plan(given, "grad_input", PR).k_segment == 0
    # A quarter of the images are a small shape, which is added whole.
    small = plan(problem(64, 512, batch=8), "grad_input", PR, "float32")
    assert (small.strategy, small.k_segment) == ("small_shape", 0)


def test_groups_are_merged_until_they_fill_fractals():
    # Two channels a group: 8 of them make 16.
    grouped = ConvProblem((1, 128, 32, 32), (128, 2, 3, 3), padding=1, groups=64)
    assert plan(grouped, "grad_input", PR).group_merge == 8
    assert plan(grouped, "grad_weight", PR).group_merge == 8
    # A merged block that UB cannot turn is not made: 2 * 1 * 9 * 1 * 256 * 2 + 256 bytes are 9472.
    small = load_profile("950PR_9599", {"buffers.UB.capacity_bytes": 9216, "cores.cube": 32})
    assert plan(grouped, "grad_input", small).group_merge == 1


def test_groups_that_are_one_as_the_weights_lie_have_the_plan_of_one():
    # FRACTAL_Z holds four groups of 4 and 8 channels as one of 16 and 32.
    several = ConvProblem((24, 16, 8, 16), (32, 4, 1, 1), groups=4)
    whole = ConvProblem((24, 16, 8, 16), (32, 16, 1, 1))
    assert plan(several, "grad_input") == replace(plan(whole, "grad_input"), group_merge=4)


def test_of_float32_fewer_groups_are_one():
    # 8 channels of float32 fill a group of C0: two groups of 4 and 8, but four of 2.
    in_two = ConvProblem((24, 16, 8, 16), (32, 4, 1, 1), groups=4)
    with pytest.raises(UnsupportedError, match="closed library"):
        plan(in_two, "grad_input", B2, "float32")
    in_one = ConvProblem((24, 8, 8, 16), (16, 2, 1, 1), groups=4)
    whole = ConvProblem((24, 8, 8, 16), (16, 8, 1, 1))
    expected = replace(plan(whole, "grad_input", B2, "float32"), group_merge=4)
    assert plan(in_one, "grad_input", B2, "float32") == expected


def test_half_the_cores_make_another_plan():
    # 4 tasks of 320 pixels for 24 cores (above); on 3 cores as many tasks, but three at a time.
    few = load_profile("910B2", {"cores.cube": 3})
    assert plan(problem(), "grad_input", few).used_cores == 3
    # 16 tiles on 16 cores: no last round is left to be cut.
    half = load_profile("950PR_9599", {"cores.cube": 16})
    assert plan(problem(256, 256, batch=2), "grad_weight", half).stream_ways == 1


def test_half_of_l1_makes_another_plan():
    # Of 128 KiB a quarter holds two groups of 16 channels of grad_output, 14 * 32 * 16 * 2 bytes each, and
    # one of the weights, 144 * 64 * 2 bytes: 6 and 3 slices. Two of either fill L1: 56 KiB and 72 KiB.
    small = load_profile("910B2", {"buffers.L1.capacity_bytes": 131072})
    found = plan(problem(), "grad_input", small)
    assert (found.step_ka, found.step_kb, found.bl1_buffers) == (6, 6, 2)


@pytest.mark.parametrize(
    ("given", "gradient", "profile", "dtype", "words"),
    [
        (problem(), "grad_input", load_profile("310P"), "float16", "known rules"),
        (problem(), "grad_weight", PR, "hifloat8", "does not take hifloat8"),
        (problem(kernel=1, size=200, stride=64), "grad_weight", B2, "float16", "stride above 63"),
        (GROUPED, "grad_input", B2, "float16", "closed library"),
        (problem(transposed=True), "grad_input", PR, "float16", "forward convolution"),
    ],
)
def test_what_no_rule_is_known_for_is_refused(given, gradient, profile, dtype, words):
    with pytest.raises(UnsupportedError, match=words):
        plan(given, gradient, profile, dtype)


def test_what_fits_in_no_tile_is_refused():
    # One row of grad_output under a kernel that reaches over 255 rows of 255 pixels: 2 MB of 16 channels.
    wide = ConvProblem((1, 1, 510, 510), (1, 1, 2, 2), dilation=255)
    with pytest.raises(CapacityError, match="524288 bytes"):
        plan(wide, "grad_input")


def test_a_transposed_convolution_forwards_never_takes_basic_blocks():
    layer = LayerSizes.of(problem(batch=8), "float16", transposed_forward=True)
    found = plan_of_layer(layer, ARCH22, "grad_input", "float16", "2201")
    assert found is not None
    assert found.strategy == "core_grid"


def test_the_page_of_plans_prints_what_it_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # it writes a file
    page = Path(__file__).parents[2] / "docs" / "plans.md"
    done = doctest.testfile(str(page), module_relative=False)
    assert done.attempted >= 12
    assert done.failed == 0
