"""Is a grad_weight by single taps, or by whole fractals, made from the pixels that each part reads?"""

from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from ascendsim import estimate
from ascendsim.errors import CapacityError, ConfigError
from ascendsim.ops.gradients.call import Gradients
from ascendsim.ops.lowering.kernels import lower
from ascendsim.ops.plan import Plan, Tiling
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.sliding import Sliding, Taps
from ascendsim.ops.problems.strips import Strips, tap_tile
from ascendsim.ops.reference.call import reference_gradients
from ascendsim.ops.reference.ordered import sources
from ascendsim.ops.tiling.request import PartialPlan
from ascendsim.profile import load_profile
from tests.helpers.both_engines import time_kernel
from tests.helpers.conv_cases import (
    assert_each_class_is_missed,
    assert_ordered,
    assert_ordered_without_instructions,
    assert_same_bits,
    call_of,
    outcomes_of,
    run,
    steps_of,
    tensors_of,
)
from tests.helpers.oracles_timing import assert_as_declared
from tests.helpers.slow_tilings import chosen_plan, plans_of
from tests.helpers.toy_machines import toy_split, toy_unified

# -------------------------------------------------------------------------------------------------------
# Is a grad_weight by single taps made with the bits of stream-K, from the pixels that each tap reads?
# -------------------------------------------------------------------------------------------------------

ONLY_WEIGHT = (False, True, False)
ROOM = {"buffers.L1.capacity_bytes": 65536, "cores.cube": 4, "cores.vector": 8}
TOY = toy_split(**ROOM)
PROBLEMS = {
    "3x3": ConvProblem((2, 40, 6, 9), (40, 40, 3, 3), 1, 1),
    "far apart": ConvProblem((2, 24, 7, 9), (20, 24, 3, 2), 1, (9, 4), (9, 8)),
    "wide steps": ConvProblem((1, 20, 30, 33), (20, 20, 2, 3), (7, 4), 1),
    "padding before": ConvProblem((1, 16, 5, 6), (16, 16, 2, 2), (1, 3), (6, 12)),
    "depth": ConvProblem((2, 16, 3, 6, 5), (16, 16, 2, 3, 2), (2, 1, 1), (1, 1, 0)),
    "groups": ConvProblem((3, 32, 6, 6), (40, 16, 2, 2), 2, groups=2),
    "line": ConvProblem((3, 20, 50), (24, 20, 5), 3, 2),
    "transposed": ConvProblem((2, 20, 7, 6), (20, 40, 2, 2), 2, transposed=True),
}
BLOCKS = Tiling(
    *(16, 32, 16, 2, 2), single_core_m=16, used_cores=4, mapping="interleaved", task_order="m n d group"
)
# How the last round is cut: not at all, into images, into rows.
AXES = {"whole": (1, ""), "images": (2, "batch_depth"), "rows": (2, "height")}
everywhere = pytest.mark.parametrize("name", PROBLEMS)
by_axis = pytest.mark.parametrize("axis", AXES)


def planned(name, axis="whole", strip=0, profile=TOY, schedule="wgrad_taps", **changes):
    """A call whose grad_weight takes a tap at a time: tasks of two groups of channels with all their taps."""
    problem, (ways, along) = PROBLEMS[name], AXES[axis]
    fields = {"k_split": ways, "stream_axis": along, "strip_w": strip, "tap_loop": "khkw"}
    fields["single_core_n"] = problem.kernel[1] * problem.kernel[2] * 32
    if schedule == "wgrad_stream":
        del fields["tap_loop"]
    call = call_of(problem, profile=profile, deterministic=True)
    plan = Plan(schedule, replace(BLOCKS, **fields, **changes))
    return replace(call, plans=call.plans | {"grad_weight": plan})


def kernel_of(*args, **options):
    kernels = lower(planned(*args, **options), ONLY_WEIGHT).kernels
    return next(kernel for kernel in kernels if kernel.name == "grad_weight")


def seen(tile, pixel, image):
    """Return the value of an image (H, W) that load3d finds for a pixel of a run; padding is -1."""
    row, column = divmod(tile.first_pixel + pixel, tile.window.out_width)
    row, column = row - tile.window.top, column - tile.window.left
    inside = 0 <= row < tile.window.rows and 0 <= column < tile.window.cols
    return image[tile.rows, tile.cols][row, column] if inside and tile.rows is not None else -1


@pytest.mark.parametrize("strip", [0, 4])
@everywhere
def test_a_tap_reads_the_pixels_of_the_definition(name, strip):
    problem = PROBLEMS[name]
    strips = Strips.of(Sliding.of(problem, 2), strip)
    image = np.arange(np.prod(problem.big_size[1:])).reshape(problem.big_size[1:])
    row_of, col_of = (sources(problem, axis, forward=True) for axis in (1, 2))
    numbers = 0
    for run_ in strips.runs(11):
        for row, col in np.ndindex(*problem.kernel[1:]):
            tile = tap_tile(strips, *run_, Taps(0, 1, row, 1, col, 1))
            for pixel in range(run_[1]):
                spot = strips.strip(run_[0] + pixel)
                down, right = divmod(run_[0] + pixel - spot.first, spot.width)
                at = row_of[row, down], col_of[col, spot.left + right]
                assert seen(tile, pixel, image) == (image[at] if min(at) >= 0 else -1)
                numbers += 1
    assert numbers == np.prod(problem.small_size[1:]) * np.prod(problem.kernel[1:])


@pytest.mark.parametrize("strip", [0, 4])
@by_axis
@everywhere
def test_the_bits_are_those_of_stream_k(name, axis, strip):
    call, tensors = planned(name, axis, strip), tensors_of(PROBLEMS[name], data="special")
    assert_ordered(call, tensors, "grad_weight")
    assert_ordered_without_instructions(call, tensors, "grad_weight")


@pytest.mark.parametrize("name", ["3x3", "wide steps"])
def test_unified_cores_write_a_tap_in_pieces(name):
    # 32 channels of 16 rows are 2 KiB in float32, of which half of UB holds one piece of 16 columns.
    call = planned(name, profile=toy_unified(**ROOM, **{"buffers.UB.capacity_bytes": 2048}))
    tensors = tensors_of(PROBLEMS[name])
    assert_ordered(call, tensors, "grad_weight")


def test_a_block_has_the_channels_of_one_tap():
    # 40 channels are three groups: tasks of two and of one, with 9 taps each; 48 rows in three blocks. Two
    # images of 54 pixels are slices of 16, 16, 16 and 6, and two of them a tile. A product of zeros comes
    # before.
    found = Counter(type(step).__name__ for step in steps_of(kernel_of("3x3")))
    assert found["Fixpipe"] == 3 * 2 * 9
    assert found["Mmad"] == 3 * 2 * 9 * (1 + 2 * 4)
    sizes = {step.n for step in steps_of(kernel_of("3x3")) if type(step).__name__ == "Mmad"}
    assert sizes == {16, 32}


def test_a_copy_takes_the_pixels_of_a_tap_alone():
    # A step of 7 x 4 pixels: of 30 rows and 33 columns a tap reads 5 and 9. 32 of those 45 pixels lie in four
    # rows, the other 13 in two.
    images = [
        step
        for step in steps_of(kernel_of("wide steps"))
        if type(step).__name__ == "CopyGmToL1" and step.src.tensor.name.startswith("input")
    ]
    places = {(step.src.index[4].step, step.src.index[5].step) for step in images}
    assert places == {(7, 4)}
    pixels = {(step.window.rows, step.window.cols) for step in images}
    assert (4, 9) in pixels
    assert max(rows * cols for rows, cols in pixels) == 36
    # Each pixel is a run of bytes of its own, in each of two groups of channels.
    assert all(step.rows == 2 * step.window.rows * step.window.cols for step in images)


def test_a_tap_in_the_padding_copies_nothing_and_adds_zeros():
    # Rows of taps 9 apart over 7 rows: of three the middle one alone reads any.
    steps = steps_of(kernel_of("far apart"))
    found = Counter(type(step).__name__ for step in steps)
    assert found["FillL1"] > 0
    call, tensors = planned("far apart"), tensors_of(PROBLEMS["far apart"])
    made, _ = run(call, tensors, mask=ONLY_WEIGHT)
    assert not made["grad_weight"][:, :, [0, 2]].any()
    assert made["grad_weight"][:, :, 1].any()


@by_axis
@everywhere
def test_engines_agree_and_folded_cores_are_alike(name, axis):
    kernel = kernel_of(name, axis)
    assert time_kernel(kernel, TOY).cycles == time_kernel(kernel, TOY, folded=False).cycles


@pytest.mark.parametrize(("size", "padding", "alike"), [((8, 6), 0, True), ((6, 4), 1, False)])
def test_parts_of_rows_are_alike_if_their_taps_read_alike(size, padding, alike):
    # One task of 6 rows in two parts. Without padding each tap reads three rows for either; with it the upper
    # taps of the first part read two.
    problem = ConvProblem((1, 16, *size), (16, 16, 3, 3), 1, padding)
    tiling = replace(BLOCKS, k_split=2, stream_axis="height", tap_loop="khkw", single_core_n=9 * 16)
    call = call_of(problem, profile=TOY, deterministic=True)
    schedule = replace(call, plans=call.plans | {"grad_weight": Plan("wgrad_taps", tiling)}).schedule(
        "grad_weight"
    )
    first, second, *_ = map(schedule.signature, schedule.dealt())
    assert (first == second) == alike


@pytest.mark.parametrize("name", ["3x3", "wide steps", "far apart", "depth"])
def test_every_instruction_touches_what_it_declares_and_fits_in_its_slot(name):
    assert_as_declared(planned(name, "rows", 4), tensors_of(PROBLEMS[name]), ONLY_WEIGHT)


def test_a_missing_class_of_waits_is_found():
    call, tensors = planned("3x3"), tensors_of(PROBLEMS["3x3"], data="integers")
    assert_each_class_is_missed(partial(outcomes_of, call, tensors, gradient="grad_weight"))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"tap_loop": "kh"}, "tap_loop is 'kh'; wgrad_taps takes khkw"),
        ({"tap_loop": ""}, "tap_loop is ''; wgrad_taps takes khkw"),
        ({"single_core_n": 48}, "single_core_n is 48; take whole windows of 144 columns"),
    ],
)
def test_what_it_cannot_do_is_refused(changes, why):
    call = planned("3x3")
    plan = call.plans["grad_weight"]
    plan = replace(plan, tiling=replace(plan.tiling, **changes))
    with pytest.raises(ConfigError, match=why):
        replace(call, plans=call.plans | {"grad_weight": plan}).schedule("grad_weight")


@pytest.mark.parametrize(("stride", "nest"), [(63, "wgrad_stream"), (64, "wgrad_taps")])
def test_the_product_takes_it_for_steps_beyond_load3d(stride, nest):
    layer = ConvProblem((2, 32, 200, 9), (48, 32, 3, 3), (stride, 1), 1)
    plan = chosen_plan(layer, "grad_weight", "float16", load_profile("950PR_9589"))
    assert (plan.schedule, plan.tiling.tap_loop, plan.instead) == (nest, "khkw" * (stride > 63), "")


def test_the_nest_alone_takes_a_tap_at_a_time():
    layer, device = ConvProblem((2, 32, 12, 12), (64, 32, 3, 3), 1, 1), load_profile("950PR_9589")
    for asked in ({"schedule": "wgrad_taps"}, {"tiling": {"grad_weight": {"schedule": "wgrad_taps"}}}):
        made = estimate(layer, product=device, output_mask=ONLY_WEIGHT, **asked)
        assert (made.plans["grad_weight"].schedule, made.plans["grad_weight"].tiling.tap_loop) == (
            "wgrad_taps",
            "khkw",
        )
        assert not [note for note in made.notes if "columns" in note]


# -------------------------------------------------------------------------------------------------------
# Does grad_weight in parts of whole fractals load what its kernel loads, and have the bits of its order?
# -------------------------------------------------------------------------------------------------------

ONLY = (False, True, False)
# Room for tiles of several base blocks.
FRACTALS_ROOM = {
    "buffers.L1.capacity_bytes": 1 << 18,
    "buffers.L0B.capacity_bytes": 8192,
    "buffers.L0A.capacity_bytes": 8192,
}
SPLIT, UNIFIED = (make(**FRACTALS_ROOM, **{"cores.cube": 15}) for make in (toy_split, toy_unified))
# Five images of 9 x 10 pixels: 6 fractals, of which the last has 10; 48 rows, 3 x 3 taps of 40 channels.
PLAIN = ConvProblem((5, 40, 9, 10), (48, 40, 3, 3), 1, 1)
FRACTALS_PROBLEMS = {
    "plain": PLAIN,
    "grouped": ConvProblem((3, 40, 7, 6), (64, 20, 2, 2), 2, groups=2),
    "deep": ConvProblem((2, 18, 4, 5, 5), (18, 18, 2, 1, 2)),
}
TILING = Tiling(16, 32, 16, used_cores=3)
TILINGS = {
    "parts": replace(TILING, batch_dim=2, k_dim=4),
    "blocks of columns": replace(TILING, step_kb=2, k_dim=2, n_dim=2, step_n=3),
    "blocks of both": replace(TILING, step_ka=4, step_kb=2, m_dim=2, step_m=2, step_n=2, batch_dim=5),
    "one copy": replace(TILING, step_ka=8, step_kb=8, al1_buffers=1, bl1_buffers=1, step_m=3, batch_dim=5),
    "no grid": replace(TILING, step_m=2),
}
# AlexNet in float32, batch 32, as the library of the 910B's operators plans it.
ALEX = {
    "conv2": (
        ConvProblem((32, 64, 27, 27), (192, 64, 5, 5), 1, 2),
        Tiling(192, 160, 32, 4, 4, used_cores=24, batch_dim=2, n_dim=2, m_dim=1, k_dim=6),
    ),
    "conv4": (
        ConvProblem((32, 384, 13, 13), (256, 384, 3, 3), 1, 1),
        Tiling(128, 192, 32, 2, 2, used_cores=24, batch_dim=2, n_dim=2, m_dim=2, k_dim=3),
    ),
}


def planned_fractals(tiling, problem=PLAIN, profile=SPLIT, dtype="float16", **options):
    call = call_of(problem, dtype, profile=profile, **options)
    return replace(call, plans=call.plans | {"grad_weight": Plan("wgrad_fractals", tiling)})


def schedule_of(tiling, problem=PLAIN, **options):
    return planned_fractals(tiling, problem, **options).schedule("grad_weight")


def kernel_of_fractals(call):
    [kernel] = [kernel for kernel in lower(call, ONLY).kernels if kernel.macs]
    return kernel


def copies(schedule, core=0):
    """How often a core copies each slice of each side into L1."""
    program = schedule.program(schedule.dealt()[core])
    moved = [made.src for made in program.instructions if type(made).__name__ == "CopyGmToL1"]
    return [Counter(str(src.index) for src in moved if src.tensor is side) for side in schedule.tensors[:2]]


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_parts_are_equally_many_fractals(dtype):
    # 6 fractals in 4 parts are 2, 2, 2 and none: in float32 each is two groups of 8 pixels.
    tasks = schedule_of(replace(TILING, k_dim=4), dtype=dtype).tasks
    assert tasks.ranges_of_image == [(0, 16), (16, 16), (32, 16), (48, 16), (64, 16), (80, 10)]
    assert tasks.grid_parts == [(range(5), range(2)), (range(5), range(2, 4)), (range(5), range(4, 6))]
    assert tasks.splits == 3


def test_tiles_in_l1_end_with_parts():
    # 3 fractals a part; left tiles of 2 slices and right ones of 4, of which a part fills three.
    tasks = schedule_of(replace(TILING, k_dim=2, step_ka=2, step_kb=4)).tasks
    assert tasks.ranges_of_image == [(0, 32), (32, 16), (48, 32), (80, 10)]
    assert tasks.pixels.left.tolist() == [[0, 32], [32, 16], [48, 32], [80, 10]]
    assert tasks.pixels.right.tolist() == [[0, 48], [48, 42]]


@pytest.mark.parametrize(("layer", "tiles", "of_left"), [("conv2", 5, 1), ("conv4", 9, 1)])
def test_the_left_operand_is_copied_for_every_column_tile(layer, tiles, of_left):
    # 1600 columns in halves of 800 are five tiles of 160, 3456 in halves nine of 192; each goes through 16
    # images, with one copy of either operand: 160 and 288 copies.
    problem, tiling = ALEX[layer]
    profile = load_profile("910B2")
    small, big = copies(schedule_of(tiling, problem, profile=profile, dtype="float32"))
    assert set(small.values()) == {tiles}
    assert len(small) == 16 * of_left
    assert set(big.values()) == {1}
    assert sum(small.values()) + sum(big.values()) == 2 * 16 * tiles


def test_an_operand_that_lies_in_l1_as_a_whole_is_copied_once():
    # One image a core, and all of its 90 pixels and 48 rows in one tile: with two copies it would be copied
    # for each of 14 blocks of columns, 432 in all, as 40 channels are three groups.
    whole = Tiling(16, 32, 16, 6, 6, step_m=3, al1_buffers=1, used_cores=5, batch_dim=5)
    small, _ = copies(schedule_of(whole))
    assert set(small.values()) == {1}
    small, _ = copies(schedule_of(replace(whole, al1_buffers=2)))
    assert set(small.values()) == {14}


def test_tiles_of_several_blocks_are_copied_once_for_all_of_them():
    # Three blocks of rows, in strips of two and one; 432 columns of 3 channel groups are 14 blocks of 32, in
    # strips of five, five and four. An image of 90 pixels is one tile, so a left one comes once a strip of
    # columns, a right one once under all rows.
    tiling = Tiling(16, 32, 16, 6, 6, used_cores=5, batch_dim=5, step_m=2, step_n=5)
    schedule = schedule_of(tiling)
    small, big = copies(schedule)
    assert sorted(small.values()) == [3, 3]
    assert set(big.values()) == {1}
    dealt = [(16 * task.row, task.column) for task in schedule.dealt()[0]]
    assert dealt[:11] == [(row, column) for column in range(5) for row in (0, 16)] + [(32, 0)]
    assert dealt[15:17] == [(0, 5), (16, 5)]


@pytest.mark.parametrize("tiling", TILINGS.values(), ids=TILINGS)
@pytest.mark.parametrize("problem", FRACTALS_PROBLEMS.values(), ids=FRACTALS_PROBLEMS)
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_bits_are_those_of_the_definition_with_and_without_instructions(problem, tiling, dtype):
    tensors = tensors_of(problem, dtype, data="wide")
    # Added as they arrive, parts come in their order if each core has one cell of the grid.
    for deterministic, cores in ((True, 3), (False, tiling.cells)):
        call = planned_fractals(
            replace(tiling, used_cores=cores), problem, dtype=dtype, deterministic=deterministic
        )
        made, arrivals = run(call, tensors, "program", ONLY)
        want = reference_gradients(call, **tensors, arrivals=arrivals, mask=ONLY)["grad_weight"]
        assert_same_bits(made["grad_weight"], want)
        gradients = Gradients(call, tensors, "program")
        assert gradients.possible(ONLY) == ONLY
        assert_same_bits(gradients.make(ONLY)["grad_weight"], want)


@pytest.mark.parametrize("order", ["arrival", 5])
def test_parts_added_as_they_arrive_have_the_bits_of_that_order(order):
    call, tensors = planned_fractals(TILINGS["parts"]), tensors_of(PLAIN, data="wide")
    assert call.schedule("grad_weight").atomic
    made, arrivals = run(call, tensors, order, ONLY)
    want = reference_gradients(call, **tensors, mask=ONLY, arrivals=arrivals)
    assert_same_bits(made["grad_weight"], want["grad_weight"])


def test_parts_of_fractals_have_other_bits_than_parts_of_rows():
    # 9 rows in 3 parts end at pixels 30 and 60, 6 fractals at 32 and 64.
    tensors, found = tensors_of(PLAIN, "float32"), []
    for nest in ("wgrad", "wgrad_fractals"):
        call = call_of(PLAIN, "float32", profile=SPLIT, deterministic=True)
        plans = {"grad_weight": Plan(nest, replace(TILING, k_dim=3))}
        found.append(run(replace(call, plans=call.plans | plans), tensors, mask=ONLY)[0]["grad_weight"])
    assert (found[0] != found[1]).any()


@pytest.mark.parametrize("profile", [SPLIT, UNIFIED], ids=["split", "unified"])
@pytest.mark.parametrize("tiling", TILINGS.values(), ids=TILINGS)
def test_both_engines_time_equal_cores_as_one(tiling, profile):
    call = planned_fractals(tiling, profile=profile)
    kernel = kernel_of_fractals(call)
    timeline = time_kernel(kernel, call.profile)
    assert timeline.cycles == time_kernel(kernel, call.profile, folded=False).cycles


@pytest.mark.parametrize("name", ["blocks of both", "one copy"])
def test_a_missing_wait_is_seen(name):
    call = planned_fractals(replace(TILINGS[name], used_cores=1), deterministic=True)
    outcomes = partial(outcomes_of, call, tensors_of(PLAIN, seed=3), gradient="grad_weight")
    assert_each_class_is_missed(outcomes)


def test_zeros_to_add_to_come_from_a_kernel_before():
    names = [kernel.name for kernel in lower(planned_fractals(TILINGS["parts"]), ONLY).kernels]
    assert [name for name in names if not name.startswith("cast")] == ["memset_grad_weight", "grad_weight"]


@pytest.mark.parametrize(
    ("fields", "problem", "error", "message"),
    [
        ({"k_split": 2}, PLAIN, ConfigError, "k_split is 2, but schedule wgrad_fractals does not read it"),
        ({"step_ka": 2, "step_kb": 3}, PLAIN, ConfigError, "step_ka is 2 and step_kb is 3; one must divide"),
        (
            {"k_dim": 2},
            ConvProblem((1, 16, 2, 40001), (16, 16, 3, 3), 1, 1),
            ConfigError,
            r"whole rows of the image do not fit in L1.* be cut by k_dim; make base_n or step_kb smaller",
        ),
        (
            {"step_n": 200, "step_kb": 6, "step_ka": 6},
            ConvProblem((1, 960, 30, 30), (16, 960, 3, 3), 1, 1),
            CapacityError,
            r"L1 does not hold 200 base blocks of columns \(step_n\) with 6 slices \(step_kb\) beside",
        ),
    ],
)
def test_what_no_program_can_follow_is_refused(fields, problem, error, message):
    with pytest.raises(error, match=message):
        schedule_of(replace(TILING, **fields), problem).dealt()


@pytest.mark.parametrize("nest", ["wgrad", "wgrad_fractals"])
def test_parts_that_are_not_given_are_as_many_as_have_rows_or_fractals(nest):
    # Of the 24 cores four are left for the parts of an image: three share its 9 rows, or 6 fractals, evenly.
    given = {"grad_weight": PartialPlan({"batch_dim": 5, "m_dim": 1, "n_dim": 1}, nest)}
    plan = plans_of(PLAIN, ["grad_weight"], "float16", load_profile("910B2"), given, {})["grad_weight"]
    assert (plan.schedule, plan.tiling.k_dim) == (nest, 3)
