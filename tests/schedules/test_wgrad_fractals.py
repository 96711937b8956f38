"""Does grad_weight in parts of whole fractals load what its kernel loads, and have the bits of its order?"""

from collections import Counter
from dataclasses import replace
from functools import partial

import pytest

from ascendsim.errors import CapacityError, ConfigError
from ascendsim.ops.gradients.call import Gradients
from ascendsim.ops.lowering.known import lower
from ascendsim.ops.plan import Plan, Tiling
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.reference.call import reference_gradients
from ascendsim.ops.tiling.request import PartialPlan
from ascendsim.profile import load_profile
from tests.helpers.both_engines import time_kernel
from tests.helpers.conv_cases import assert_same_bits, call_of, run, tensors_of
from tests.helpers.hazards import assert_each_class_is_missed, outcomes_of
from tests.helpers.requests import plans_of
from tests.helpers.toy_profiles import toy_split, toy_unified

ONLY = (False, True, False)
# Room for tiles of several base blocks.
ROOM = {
    "buffers.L1.capacity_bytes": 1 << 18,
    "buffers.L0B.capacity_bytes": 8192,
    "buffers.L0A.capacity_bytes": 8192,
}
SPLIT, UNIFIED = (make(**ROOM, **{"cores.cube": 15}) for make in (toy_split, toy_unified))
# Five images of 9 x 10 pixels: 6 fractals, of which the last has 10; 48 rows, 3 x 3 taps of 40 channels.
PLAIN = ConvProblem((5, 40, 9, 10), (48, 40, 3, 3), 1, 1)
PROBLEMS = {
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


def planned(tiling, problem=PLAIN, profile=SPLIT, dtype="float16", **options):
    call = call_of(problem, dtype, profile=profile, **options)
    return replace(call, plans=call.plans | {"grad_weight": Plan("wgrad_fractals", tiling)})


def schedule_of(tiling, problem=PLAIN, **options):
    return planned(tiling, problem, **options).schedule("grad_weight")


def kernel_of(call):
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
    dealt = [(task.first_row, task.columns.first_column // 32) for task in schedule.dealt()[0]]
    assert dealt[:11] == [(row, column) for column in range(5) for row in (0, 16)] + [(32, 0)]
    assert dealt[15:17] == [(0, 5), (16, 5)]


@pytest.mark.parametrize("tiling", TILINGS.values(), ids=TILINGS)
@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_bits_are_those_of_the_definition_with_and_without_instructions(problem, tiling, dtype):
    tensors = tensors_of(problem, dtype, data="wide")
    # Added as they arrive, parts come in their order if each core has one cell of the grid.
    for deterministic, cores in ((True, 3), (False, tiling.cells)):
        call = planned(replace(tiling, used_cores=cores), problem, dtype=dtype, deterministic=deterministic)
        made, arrivals = run(call, tensors, "program", ONLY)
        want = reference_gradients(call, **tensors, arrivals=arrivals, mask=ONLY)["grad_weight"]
        assert_same_bits(made["grad_weight"], want)
        gradients = Gradients(call, tensors, "program")
        assert gradients.possible(ONLY) == ONLY
        assert_same_bits(gradients.make(ONLY)["grad_weight"], want)


@pytest.mark.parametrize("order", ["arrival", 5])
def test_parts_added_as_they_arrive_have_the_bits_of_that_order(order):
    call, tensors = planned(TILINGS["parts"]), tensors_of(PLAIN, data="wide")
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
    call = planned(tiling, profile=profile)
    kernel = kernel_of(call)
    timeline = time_kernel(kernel, call.profile)
    assert timeline.cycles == time_kernel(kernel, call.profile, folded=False).cycles


@pytest.mark.parametrize("name", ["blocks of both", "one copy"])
def test_a_missing_wait_is_seen(name):
    call = planned(replace(TILINGS[name], used_cores=1), deterministic=True)
    outcomes = partial(outcomes_of, call, tensors_of(PLAIN, seed=3), gradient="grad_weight")
    assert_each_class_is_missed(outcomes)


def test_zeros_to_add_to_come_from_a_kernel_before():
    names = [kernel.name for kernel in lower(planned(TILINGS["parts"]), ONLY).kernels]
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


def test_parts_that_are_not_given_are_as_many_as_have_fractals():
    # Of the 24 cores 3 are left for the parts of an image, whose 6 fractals they share evenly.
    given = {"grad_weight": PartialPlan({"batch_dim": 5, "m_dim": 1, "n_dim": 1}, "wgrad_fractals")}
    plan = plans_of(PLAIN, ["grad_weight"], "float16", load_profile("910B2"), given, {})["grad_weight"]
    assert plan.schedule == "wgrad_fractals"
    assert plan.tiling.k_dim == 3
