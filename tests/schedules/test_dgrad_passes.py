"""Is a grad_input by rows of taps, or by single ones, made with the bits of its order, and no empty pass?"""

from collections import Counter
from dataclasses import replace
from functools import partial

import pytest

from ascendsim import estimate
from ascendsim.errors import ConfigError
from ascendsim.ops.gradients.call import Gradients
from ascendsim.ops.lowering.known import lower
from ascendsim.ops.plan import Plan, Tiling
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.reference.call import reference_gradients
from ascendsim.profile import load_profile
from tests.helpers.both_engines import time_kernel
from tests.helpers.conv_cases import UNIFIED, assert_same_bits, call_of, run, steps_of, tensors_of
from tests.helpers.hazards import assert_each_class_is_missed, outcomes_of
from tests.helpers.requests import chosen_plan
from tests.helpers.strict_memory import assert_as_declared
from tests.helpers.toy_profiles import toy_split

TOY = toy_split(**{"cores.cube": 5, "cores.vector": 10, "buffers.L1.capacity_bytes": 65536})
ONLY_INPUT = (True, False, False)
# Tasks of 32 pixels by 16 channels; two windows of 3 taps in a tile of weights, one in one of grad_output.
IN_TURN = Tiling(
    *(16, 16, 16, 3, 6), used_cores=4, single_core_m=32, mapping="interleaved", task_order="batch group d m n"
)
PROBLEMS = {
    "3x3": ConvProblem((2, 40, 8, 9), (40, 40, 3, 3), 1, 1),
    "strided": ConvProblem((2, 20, 9, 13), (36, 20, 3, 3), (3, 2), 1),
    "stride beyond the kernel": ConvProblem((1, 16, 11, 9), (20, 16, 2, 2), (5, 4)),
    "taps apart": ConvProblem((3, 16, 7, 6), (20, 16, 3, 3), 1, 9, 9),
    "one tile in a row": ConvProblem((1, 16, 2, 40), (16, 16, 1, 3), 2, (0, 5), (1, 5)),
    "depth": ConvProblem((1, 16, 4, 6, 5), (36, 16, 2, 3, 3), (2, 1, 1), (0, 1, 1)),
    "groups": ConvProblem((2, 32, 6, 6), (40, 16, 3, 2), 2, 1, groups=2),
    "line": ConvProblem((2, 16, 50), (20, 16, 7), 3, 2),
    # Tiles of 16, 16 and 8 pixels, of which each reads the one pixel that there is.
    "one pixel": ConvProblem((1, 16, 40, 1), (20, 16, 40, 1)),
}
SEGMENTS = replace(IN_TURN, k_split=2, single_core_k=32)
LOOPS = ("kh", "khkw")
everywhere = pytest.mark.parametrize("name", PROBLEMS)
both = pytest.mark.parametrize("loop", LOOPS)


def planned(problem, loop, tiling=IN_TURN, profile=TOY, dtype="float16", **options):
    """A call whose grad_input has a loop over taps outside of its products."""
    call = call_of(problem, dtype, profile=profile, **options)
    plan = Plan("dgrad_passes", replace(tiling, tap_loop=loop))
    return replace(call, plans=call.plans | {"grad_input": plan})


def kernel_of(name, loop, tiling=IN_TURN):
    nodes = lower(planned(PROBLEMS[name], loop, tiling), ONLY_INPUT).kernels
    return next(node for node in nodes if node.name == "grad_input")


@pytest.mark.parametrize("data", ["wide", "special"])
@both
@everywhere
def test_the_bits_are_those_of_its_order(name, loop, data):
    # Inf and NaN tell what is multiplied by a zero, and what is left out.
    call, tensors = planned(PROBLEMS[name], loop), tensors_of(PROBLEMS[name], data=data)
    made, _ = run(call, tensors, 3, ONLY_INPUT)
    want = reference_gradients(call, **tensors, mask=ONLY_INPUT)
    assert_same_bits(made["grad_input"], want["grad_input"])


@both
@pytest.mark.parametrize("name", ["3x3", "strided", "depth"])
def test_segments_of_channels_are_added_one_after_the_other(name, loop):
    # 36 and 40 channels are segments of 32 and one more group.
    call, tensors = planned(PROBLEMS[name], loop, SEGMENTS), tensors_of(PROBLEMS[name], data="special")
    assert len(call.schedule("grad_input").order().parts) == 2
    made, _ = run(call, tensors, 3, ONLY_INPUT)
    want = reference_gradients(call, **tensors, mask=ONLY_INPUT)
    assert_same_bits(made["grad_input"], want["grad_input"])


@both
@everywhere
def test_sums_of_integers_are_those_of_all_taps(name, loop):
    # Integers are added exactly in any order, and a pass that is left out has only zeros to add.
    tensors = tensors_of(PROBLEMS[name], data="integers")
    made, _ = run(planned(PROBLEMS[name], loop), tensors, mask=ONLY_INPUT)
    want, _ = run(call_of(PROBLEMS[name], profile=TOY), tensors, mask=ONLY_INPUT)
    assert_same_bits(made["grad_input"], want["grad_input"])


@both
def test_unified_cores_insert_zeros_on_the_way(loop):
    problem = PROBLEMS["strided"]
    call, tensors = planned(problem, loop, replace(IN_TURN, used_cores=3), UNIFIED), tensors_of(problem)
    made, _ = run(call, tensors, 3, ONLY_INPUT)
    want = reference_gradients(call, **tensors, mask=ONLY_INPUT)
    assert_same_bits(made["grad_input"], want["grad_input"])


def test_rows_before_channels_are_another_order():
    # The same products, of which an accumulation model takes 16 at a time in another order: sums differ.
    problem = PROBLEMS["3x3"]
    tensors = tensors_of(problem, "float32")
    calls = [planned(problem, loop, dtype="float32") for loop in LOOPS]
    usual = Plan("dgrad_shares", IN_TURN)
    calls.append(replace(calls[0], plans=calls[0].plans | {"grad_input": usual}))
    made = [reference_gradients(call, **tensors, mask=ONLY_INPUT)["grad_input"] for call in calls]
    assert (made[0] != made[1]).any()
    assert (made[0] != made[2]).any()


@pytest.mark.parametrize("tiling", [IN_TURN, SEGMENTS], ids=["whole", "segments"])
@both
@everywhere
def test_gradients_without_instructions_have_the_same_bits(name, loop, tiling):
    problem = PROBLEMS[name]
    # Of 16 to 32 channels there is one segment, which is the whole.
    parts = -(-problem.small_channels // 32)
    call = planned(problem, loop, replace(tiling, k_split=min(parts, tiling.k_split)))
    tensors = tensors_of(problem, data="special")
    without = Gradients(call, tensors, "program")
    assert without.possible(ONLY_INPUT) == ONLY_INPUT
    want = reference_gradients(call, **tensors, mask=ONLY_INPUT)
    assert_same_bits(without.make(ONLY_INPUT)["grad_input"], want["grad_input"])


def test_a_pass_that_reads_padding_alone_is_left_out():
    # Taps 9 pixels apart over 7 x 6 pixels: one of nine reads any. The 42 pixels are tiles of 16, 16 and 10
    # in tasks of 32; 20 channels are two groups, of which a tile in L1 holds one row of taps of a group.
    by_row, by_tap = (
        Counter(type(step).__name__ for step in steps_of(kernel_of("taps apart", loop))) for loop in LOOPS
    )
    tiles = 3 * 3  # of three images
    assert by_row["Fixpipe"] == tiles
    assert by_row["Mmad"] == tiles * 2 * 3  # a row of three taps, for each group
    # Tiles end where one of the 7 rows of an image ends, and where a task does.
    rows = 3 * len({*range(0, 42, 6), 32})
    assert (by_tap["Fixpipe"], by_tap["Mmad"]) == (rows, rows * 2)


def test_what_no_tap_reads_is_never_multiplied_and_stays_zero():
    # Rows 2 to 4, 7 to 9 of 11 meet no tap of two at a stride of 5; tiles of a row are 9 pixels.
    kernel = kernel_of("stride beyond the kernel", "khkw")
    assert kernel.phases[0].name != "compute"
    written = {step.dst.index[4].start // 9 for step in steps_of(kernel) if type(step).__name__ == "Fixpipe"}
    assert written == {0, 1, 5, 6}


def test_a_row_of_taps_needs_no_rows_around_its_pixels():
    # 16 pixels of 9 columns lie in two or three rows, and three rows of taps reach two rows further.
    def most(schedule):
        return max(tile.window.rows for tile in schedule.tasks.left_tiles.values())

    call = planned(PROBLEMS["3x3"], "kh")
    usual = replace(
        call, plans=call.plans | {"grad_input": Plan("dgrad_shares", replace(IN_TURN, step_ka=9))}
    )
    assert most(call.schedule("grad_input")) == 3
    assert most(usual.schedule("grad_input")) == 5


@both
@pytest.mark.parametrize("name", ["strided", "one tile in a row", "depth", "groups"])
def test_every_instruction_touches_what_it_declares_and_fits_in_its_slot(name, loop):
    assert_as_declared(planned(PROBLEMS[name], loop), tensors_of(PROBLEMS[name]), ONLY_INPUT)


def outcomes(loop, hazards):
    """Return the different results of random orders with some classes of waits; a failure counts as one."""
    problem = PROBLEMS["strided"]
    return outcomes_of(planned(problem, loop), tensors_of(problem, data="integers"), hazards)


@both
def test_a_missing_class_of_waits_is_found(loop):
    assert_each_class_is_missed(partial(outcomes, loop))


@both
@everywhere
def test_engines_agree_and_folded_cores_are_alike(name, loop):
    kernel = kernel_of(name, loop)
    assert time_kernel(kernel, TOY).cycles == time_kernel(kernel, TOY, folded=False).cycles


@pytest.mark.parametrize(
    ("problem", "loop"),
    [
        (PROBLEMS["3x3"], ""),
        (ConvProblem((1, 16, 9, 9), (16, 16, 3, 3), 2, 1, transposed=True), "kh"),
    ],
)
def test_what_it_cannot_do_is_refused(problem, loop):
    with pytest.raises(ConfigError, match=r"tap_loop is .*; dgrad_passes takes kh or khkw"):
        planned(problem, loop).schedule("grad_input")


def test_the_product_takes_it_for_taps_too_far_apart_for_load3d():
    # A gap of 260 pixels does not fit in a byte: between rows of taps, and between the taps of a row.
    layer, device = ConvProblem((1, 32, 12, 12), (64, 32, 3, 3), 1, 250, 250), load_profile("950PR_9589")
    assert chosen_plan(layer, "grad_input", "float16", device).schedule == "dgrad_shares"
    for far, loop in (((260, 250), "kh"), ((250, 260), "khkw"), ((260, 260), "khkw")):
        plan = chosen_plan(replace(layer, padding=far, dilation=far), "grad_input", "float16", device)
        assert (plan.schedule, plan.tiling.tap_loop, plan.instead) == ("dgrad_passes", loop, "")


def test_the_nest_alone_takes_a_row_of_taps_at_a_time():
    layer, device = ConvProblem((2, 32, 12, 12), (64, 32, 3, 3), 1, 1), load_profile("950PR_9589")
    for asked in ({"schedule": "dgrad_passes"}, {"tiling": {"grad_input": {"schedule": "dgrad_passes"}}}):
        made = estimate(layer, product=device, output_mask=ONLY_INPUT, **asked).plans["grad_input"]
        assert (made.schedule, made.tiling.tap_loop) == ("dgrad_passes", "kh")
