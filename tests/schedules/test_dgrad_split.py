"""Is a kernel that the stride splits computed without inserted zeros, in segments where it is long?"""

from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from ascendsim import convolution_backward, estimate
from ascendsim.errors import ConfigError
from ascendsim.ops.lowering.kernels import lower
from ascendsim.ops.plan import Plan, Tiling
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.sliding import Sliding, Taps, phases_of, together
from ascendsim.ops.reference.ordered import sources
from ascendsim.profile import load_profile
from tests.helpers.both_engines import time_kernel
from tests.helpers.conv_cases import (
    UNIFIED,
    assert_each_class_is_missed,
    assert_ordered,
    assert_ordered_without_instructions,
    assert_same_bits,
    call_of,
    outcomes_of,
    run,
    tensors_of,
)
from tests.helpers.oracles_timing import assert_as_declared
from tests.helpers.slow_tilings import operators_plan
from tests.helpers.toy_machines import toy_split

# --- Is a kernel that the stride splits computed without inserted zeros, with the bits of its order? ---

SPLIT = toy_split(**{"cores.cube": 5, "cores.vector": 10, "buffers.L1.capacity_bytes": 65536})
ONLY_INPUT = (True, False, False)
IN_TURN = Tiling(
    *(16, 16, 16, 9, 9), used_cores=4, single_core_m=16, mapping="interleaved", task_order="batch group d m n"
)
PROBLEMS = {
    "3x3": ConvProblem((3, 40, 8, 12), (20, 40, 3, 3), 2, 1),
    "odd": ConvProblem((2, 20, 7, 9), (36, 20, 3, 3), 2, 1),
    "1x1": ConvProblem((2, 20, 8, 6), (20, 20, 1, 1), 2),  # three phases of four meet nothing
    "2x2": ConvProblem((2, 16, 6, 8), (20, 16, 2, 2), 2, 1),
    "4x4": ConvProblem((1, 16, 8, 8), (40, 16, 4, 4), 2, 1),
    "depth": ConvProblem((1, 16, 3, 6, 8), (16, 16, 2, 3, 3), (1, 2, 2), (0, 1, 1)),
    "wide stride": ConvProblem((1, 16, 9, 8), (16, 16, 4, 2), (3, 2), (1, 0)),
    "no padding": ConvProblem((1, 16, 9, 11), (16, 16, 3, 3), 2),
    "many images": ConvProblem((13, 16, 4, 4), (16, 16, 3, 3), 2, 1),
}


def planned(problem, axes, tiling=IN_TURN, profile=SPLIT, **options):
    """A call whose grad_input has its kernel split."""
    call = call_of(problem, profile=profile, **options)
    return replace(
        call, plans=call.plans | {"grad_input": Plan("dgrad_split", replace(tiling, kernel_split=axes))}
    )


def backwards(problem):
    return Sliding.of(problem, 2, backwards=True)


@pytest.mark.parametrize("axes", ["h", "hw"])
@pytest.mark.parametrize("name", PROBLEMS)
def test_phases_read_what_the_definition_reads(name, axes):
    problem = PROBLEMS[name]
    row_of, col_of = (sources(problem, axis, forward=False) for axis in (1, 2))
    seen = np.zeros(backwards(problem).out_size, int)
    for phase in phases_of(backwards(problem), axes):
        own, (a, b), (down, right) = phase.sliding, phase.first, phase.step
        seen[a::down, b::right] += 1
        # What an output reads, tap by tap of the kernel turned round; zeros may still lie between pixels.
        for axis, table, first, step, stored in (
            (0, row_of, a, down, phase.rows),
            (1, col_of, b, right, phase.cols),
        ):
            taken = table[stored][::-1][:, first::step]
            assert taken.shape == (own.kernel[axis], own.out_size[axis])
            for (tap, out), source in np.ndenumerate(taken):
                place, rest = divmod(out + tap * own.dilation[axis] - own.pad[axis], own.insert[axis])
                inside = rest == 0 and 0 <= place < own.image_size[axis]
                assert source == (place if inside else -1)
        left_out = np.delete(row_of, np.arange(len(row_of))[phase.rows], axis=0)
        assert (left_out[:, a::down] == -1).all()
    assert (seen == 1).all()


def test_the_example_of_the_docstring():
    # Even pixels meet the middle tap, odd ones the two others.
    phases = phases_of(backwards(ConvProblem((1, 16, 8, 8), (16, 16, 3, 3), 2, 1)), "hw")
    assert [phase.taps for phase in phases] == [1, 2, 2, 4]
    assert [phase.rows for phase in phases[::2]] == [slice(1, 2, 2), slice(0, 3, 2)]


def test_one_tile_holds_what_all_phases_read():
    phases = phases_of(backwards(PROBLEMS["3x3"]), "hw")
    shared = together(phases)
    for phase in phases:
        own = phase.sliding
        mine = own.tile(6, 12, Taps(0, 1, 0, own.kernel[0], 0, own.kernel[1]))
        both = shared.tile(6, 12, Taps(0, 1, 0, shared.kernel[0], 0, shared.kernel[1]))
        assert both.rows.start <= mine.rows.start
        assert mine.rows.stop <= both.rows.stop


@pytest.mark.parametrize("axes", ["h", "hw"])
@pytest.mark.parametrize("name", PROBLEMS)
def test_the_bits_are_those_of_its_order(name, axes):
    call, tensors = planned(PROBLEMS[name], axes), tensors_of(PROBLEMS[name], data="wide")
    assert_ordered(call, tensors, "grad_input")


@pytest.mark.parametrize("axes", ["h", "hw"])
@pytest.mark.parametrize("name", PROBLEMS)
def test_gradients_without_instructions_have_the_same_bits(name, axes):
    call, tensors = planned(PROBLEMS[name], axes), tensors_of(PROBLEMS[name], data="special")
    assert_ordered_without_instructions(call, tensors, "grad_input")


@pytest.mark.parametrize("axes", ["h", "hw"])
def test_sums_of_integers_are_those_of_inserted_zeros(axes):
    # Integers are added exactly in any order, so a plan changes nothing.
    for problem in PROBLEMS.values():
        tensors = tensors_of(problem, data="integers")
        made, _ = run(planned(problem, axes), tensors, mask=ONLY_INPUT)
        want, _ = run(call_of(problem, profile=SPLIT), tensors, mask=ONLY_INPUT)
        assert_same_bits(made["grad_input"], want["grad_input"])


def kernel_of(name, axes, tiling=IN_TURN):
    return lower(planned(PROBLEMS[name], axes, tiling), ONLY_INPUT).kernels[0]


def counts(kernel):
    [phase] = [phase for phase in kernel.phases if phase.name == "compute"]
    steps = [step for work in phase.work for step in work.build().instructions]
    return Counter(type(step).__name__ for step in steps), steps


def test_a_split_along_both_axes_multiplies_no_zeros_and_reads_a_tile_once():
    found, steps = counts(kernel_of("3x3", "hw"))
    # 4 x 6 pixels a phase; a task of 16 is 2 rows of 6 and 4 pixels of the third, the next one 2 more and a
    # whole row: 4 tiles. 40 channels are 48: 3 blocks. 3 images, 4 phases.
    assert found["Fixpipe"] == 4 * 3 * 3 * 4
    assert not found["FillL1"]
    images = [
        step
        for step in steps
        if type(step).__name__ == "CopyGmToL1" and step.src.tensor.name.startswith("grad_output")
    ]
    # L1 gets the pixels of a task with both groups of channels in one copy, which four phases read: 4 tiles
    # of 3 images, once for each of the 3 blocks of columns. Each phase for itself would copy them 4 times.
    assert len(images) == 4 * 3 * 3
    assert len({str(step.src.index) for step in images}) == 4 * 3
    # (1 + 2 + 2 + 4) taps x 2 groups of channels, against 4 x 9 x 2 with zeros between the pixels.
    assert found["Mmad"] == 4 * 3 * 3 * 9 * 2


def test_a_split_along_h_leaves_zeros_between_columns():
    found, _ = counts(kernel_of("3x3", "h"))
    assert found["FillL1"] > 0


def test_pixels_that_meet_no_tap_are_zeros():
    assert kernel_of("1x1", "hw").phases[0].name != "compute"
    assert kernel_of("3x3", "hw").phases[0].name == "compute"


def outcomes(name, axes, hazards):
    """Return the different results of random orders with some classes of waits; a failure counts as one."""
    return outcomes_of(planned(PROBLEMS[name], axes), tensors_of(PROBLEMS[name], data="integers"), hazards)


@pytest.mark.parametrize("axes", ["h", "hw"])
def test_a_missing_class_of_waits_is_found(axes):
    assert_each_class_is_missed(partial(outcomes, "3x3", axes))


@pytest.mark.parametrize("axes", ["h", "hw"])
@pytest.mark.parametrize("name", ["3x3", "odd", "wide stride", "depth"])
def test_every_instruction_touches_what_it_declares_and_fits_in_its_slot(name, axes):
    assert_as_declared(planned(PROBLEMS[name], axes), tensors_of(PROBLEMS[name]))


@pytest.mark.parametrize("axes", ["h", "hw"])
@pytest.mark.parametrize("name", ["3x3", "odd", "many images"])
def test_engines_agree_and_folded_cores_are_alike(name, axes):
    kernel = kernel_of(name, axes)
    assert time_kernel(kernel, SPLIT).cycles == time_kernel(kernel, SPLIT, folded=False).cycles


@pytest.mark.parametrize(
    ("problem", "axes", "profile"),
    [
        (PROBLEMS["3x3"], "", SPLIT),
        (PROBLEMS["3x3"], "hw", UNIFIED),
        (ConvProblem((1, 16, 9, 9), (16, 16, 3, 3), 2, 1, 2), "hw", SPLIT),
        (ConvProblem((1, 16, 9, 9), (16, 16, 3, 3), 2, 1, transposed=True), "hw", SPLIT),
    ],
)
def test_what_has_no_phases_is_refused(problem, axes, profile):
    with pytest.raises(ConfigError, match=r"kernel_split is .*; it must be h or hw"):
        planned(problem, axes, profile=profile).schedule("grad_input")


def test_a_layer_whose_pixels_meet_no_tap_is_refused():
    # The only row of the image lies between the two that outputs read: -1 and 1, both padding.
    problem = ConvProblem((1, 16, 1, 8), (16, 16, 1, 2), 2, (1, 0))
    with pytest.raises(ConfigError, match="no pixel of the input meets a tap"):
        planned(problem, "hw").schedule("grad_input")


# --- Is a long reduction of a kernel that the stride splits added in segments, phase by phase? ---------
# A plan of the user's own may ask for segments of channels. The operator of 910_95 takes a split kernel
# whole.

# 72 channels are five groups of 16: segments of two groups, the last one of one.
SEGMENTS = replace(IN_TURN, k_split=3, single_core_k=32, step_ka=18, step_kb=18)
SEGMENTS_PROBLEMS = {
    "3x3": ConvProblem((2, 24, 8, 12), (72, 24, 3, 3), 2, 1),
    "1x1": ConvProblem((2, 20, 8, 6), (72, 20, 1, 1), 2),  # three phases of four meet nothing
    "depth": ConvProblem((1, 16, 3, 6, 8), (72, 16, 2, 3, 3), (1, 2, 2), (0, 1, 1)),
    "odd": ConvProblem((1, 20, 7, 9), (72, 20, 3, 3), 2, 1),
}
EACH = pytest.mark.parametrize("axes", ["h", "hw"]), pytest.mark.parametrize("name", SEGMENTS_PROBLEMS)


def each(test):
    return EACH[0](EACH[1](test))


def call_in_segments(name, axes, **options):
    return planned(SEGMENTS_PROBLEMS[name], axes, SEGMENTS, **options)


# --- bits


@each
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_the_bits_are_those_of_its_order_segments(name, axes, dtype):
    # 8 channels of float32 are a group.
    call = call_in_segments(name, axes, dtype=dtype)
    tensors = tensors_of(SEGMENTS_PROBLEMS[name], dtype, data="wide")
    assert_ordered(call, tensors, "grad_input")


@each
def test_gradients_without_instructions_have_the_same_bits_segments(name, axes):
    call, tensors = call_in_segments(name, axes), tensors_of(SEGMENTS_PROBLEMS[name], data="special")
    assert_ordered_without_instructions(call, tensors, "grad_input")


def test_the_order_of_a_sum_shows_in_its_bits():
    # 1 + 2^-24 is 1 in float32: what a segment adds by itself is not what one sum of all channels makes.
    p = ConvProblem((1, 16, 2, 2), (48, 16, 1, 1), 2)
    whole = replace(IN_TURN, k_split=1)
    grad_output, weight = np.zeros(p.grad_output, np.float32), np.ones(p.weight, np.float32)
    grad_output[0, 0], grad_output[0, 16:18] = 1, 2.0**-24
    tensors = {"grad_output": grad_output, "input": np.zeros(p.input, np.float32), "weight": weight}
    made = {}
    for parts, tiling in ((1, whole), (3, replace(SEGMENTS, single_core_k=16))):
        call = planned(p, "hw", tiling, dtype="float32", accumulation="seq:RNE")
        made[parts] = run(call, tensors, mask=ONLY_INPUT)[0]["grad_input"][0, 0, 0, 0]
    assert made[1] == 1
    assert made[3] == 1 + 2.0**-23


# --- the kernel


def test_every_part_of_every_phase_leaves_l0c_and_is_added():
    kernel = lower(call_in_segments("3x3", "hw"), ONLY_INPUT).kernels[0]
    assert [phase.name for phase in kernel.phases] == ["zero fill", "compute", "cast"]
    found, steps = counts(kernel)
    whole, _ = counts(lower(planned(SEGMENTS_PROBLEMS["3x3"], "hw"), ONLY_INPUT).kernels[0])
    assert found["Fixpipe"] == 3 * whole["Fixpipe"]
    assert all(step.atomic for step in steps if type(step).__name__ == "Fixpipe")


def test_float32_is_added_in_the_result():
    kernel = lower(call_in_segments("3x3", "hw", dtype="float32"), ONLY_INPUT).kernels[0]
    assert [phase.name for phase in kernel.phases] == ["zero fill", "compute"]


@pytest.mark.parametrize("axes", ["h", "hw"])
def test_a_missing_class_of_waits_is_found_segments(axes):
    def outcomes(hazards):
        call = call_in_segments("3x3", axes)
        return outcomes_of(call, tensors_of(SEGMENTS_PROBLEMS["3x3"], data="integers"), hazards)

    assert_each_class_is_missed(outcomes)


@each
def test_every_instruction_touches_what_it_declares_and_fits_in_its_slot_segments(name, axes):
    assert_as_declared(call_in_segments(name, axes), tensors_of(SEGMENTS_PROBLEMS[name]))


@each
def test_engines_agree_and_folded_cores_are_alike_segments(name, axes):
    kernel = lower(call_in_segments(name, axes), ONLY_INPUT).kernels[0]
    assert time_kernel(kernel, SPLIT).cycles == time_kernel(kernel, SPLIT, folded=False).cycles


# --- which layers


def test_the_operator_takes_a_split_kernel_whole():
    # 512 channels x 4 taps of the largest phase are 2048, where float32 has segments in inner products.
    p = ConvProblem((1, 256, 40, 40), (512, 256, 3, 3), 2, 1)
    profile = load_profile("950PR_9589")
    plan = operators_plan(p, "grad_input", "float32", profile)
    found = estimate(p, "float32", product=profile, output_mask=ONLY_INPUT).plans["grad_input"]
    assert (found.schedule, found.chosen_by) == ("dgrad_split", "product")
    assert (found.tiling.single_core_k, plan.k_segment, found.tiling.k_split) == (0, 0, 1)


def test_segments_that_do_not_cover_the_channels_are_refused():
    with pytest.raises(ConfigError, match="as many parts as cover"):
        planned(SEGMENTS_PROBLEMS["3x3"], "hw", replace(SEGMENTS, k_split=2)).schedule("grad_input")


def test_a_call_in_16_bits_runs_it():
    # 8256 channels: a segment of 8192, and what is left.
    p = ConvProblem((1, 16, 24, 24), (8256, 16, 3, 3), 2, 1)
    rng = np.random.default_rng(0)
    given = [rng.integers(-2, 3, shape).astype(np.float16) for shape in (p.grad_output, p.input, p.weight)]
    attributes = [8256], 2, 1, 1, False, 0, 1, ONLY_INPUT, 0
    whole = estimate(p, product="950PR_9589", output_mask=ONLY_INPUT).plans["grad_input"]
    plan = replace(whole, tiling=replace(whole.tiling, k_split=2, single_core_k=8192))
    assert plan.schedule == "dgrad_split"
    made, other = (
        convolution_backward(*given, *attributes, tiling=tiling, product="950PR_9589", timing=False)
        for tiling in ({"grad_input": plan}, "search")
    )
    # Integers are added exactly, in whatever order.
    assert np.array_equal(made.grad_input, other.grad_input)
