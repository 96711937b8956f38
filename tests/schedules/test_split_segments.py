"""Is a long reduction of a kernel that the stride splits added in segments, phase by phase?

A plan of the user's own may ask for segments of channels. The operator of 910_95 takes a split kernel whole.
"""

from dataclasses import replace

import numpy as np
import pytest

from ascendsim import ConvProblem, convolution_backward, estimate
from ascendsim.errors import ConfigError
from ascendsim.ops.gradients.call import Gradients
from ascendsim.ops.lowering.known import lower
from ascendsim.ops.reference.call import reference_gradients
from ascendsim.profile import load_profile
from tests.helpers.both_engines import time_kernel
from tests.helpers.conv_cases import assert_same_bits, run, tensors_of
from tests.helpers.hazards import assert_each_class_is_missed, outcomes_of
from tests.helpers.requests import operators_plan
from tests.helpers.strict_memory import assert_as_declared
from tests.schedules.test_dgrad_split import IN_TURN, ONLY_INPUT, SPLIT, counts, planned

# 72 channels are five groups of 16: segments of two groups, the last one of one.
SEGMENTS = replace(IN_TURN, k_split=3, single_core_k=32, step_ka=18, step_kb=18)
PROBLEMS = {
    "3x3": ConvProblem((2, 24, 8, 12), (72, 24, 3, 3), 2, 1),
    "1x1": ConvProblem((2, 20, 8, 6), (72, 20, 1, 1), 2),  # three phases of four meet nothing
    "depth": ConvProblem((1, 16, 3, 6, 8), (72, 16, 2, 3, 3), (1, 2, 2), (0, 1, 1)),
    "odd": ConvProblem((1, 20, 7, 9), (72, 20, 3, 3), 2, 1),
}
EACH = pytest.mark.parametrize("axes", ["h", "hw"]), pytest.mark.parametrize("name", PROBLEMS)


def each(test):
    return EACH[0](EACH[1](test))


def call_in_segments(name, axes, **options):
    return planned(PROBLEMS[name], axes, SEGMENTS, **options)


# --- bits


@each
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_the_bits_are_those_of_its_order(name, axes, dtype):
    # 8 channels of float32 are a group.
    call = call_in_segments(name, axes, dtype=dtype)
    tensors = tensors_of(PROBLEMS[name], dtype, data="wide")
    made, _ = run(call, tensors, 3, ONLY_INPUT)
    assert_same_bits(made["grad_input"], reference_gradients(call, **tensors, mask=ONLY_INPUT)["grad_input"])


@each
def test_gradients_without_instructions_have_the_same_bits(name, axes):
    call, tensors = call_in_segments(name, axes), tensors_of(PROBLEMS[name], data="special")
    without = Gradients(call, tensors, "program")
    assert without.possible(ONLY_INPUT) == ONLY_INPUT
    want = reference_gradients(call, **tensors, mask=ONLY_INPUT)
    assert_same_bits(without.make(ONLY_INPUT)["grad_input"], want["grad_input"])


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
    whole, _ = counts(lower(planned(PROBLEMS["3x3"], "hw"), ONLY_INPUT).kernels[0])
    assert found["Fixpipe"] == 3 * whole["Fixpipe"]
    assert all(step.atomic for step in steps if type(step).__name__ == "Fixpipe")


def test_float32_is_added_in_the_result():
    kernel = lower(call_in_segments("3x3", "hw", dtype="float32"), ONLY_INPUT).kernels[0]
    assert [phase.name for phase in kernel.phases] == ["zero fill", "compute"]


@pytest.mark.parametrize("axes", ["h", "hw"])
def test_a_missing_class_of_waits_is_found(axes):
    def outcomes(hazards):
        call = call_in_segments("3x3", axes)
        return outcomes_of(call, tensors_of(PROBLEMS["3x3"], data="integers"), hazards)

    assert_each_class_is_missed(outcomes)


@each
def test_every_instruction_touches_what_it_declares_and_fits_in_its_slot(name, axes):
    assert_as_declared(call_in_segments(name, axes), tensors_of(PROBLEMS[name]))


@each
def test_engines_agree_and_folded_cores_are_alike(name, axes):
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
        planned(PROBLEMS["3x3"], "hw", replace(SEGMENTS, k_split=2)).schedule("grad_input")


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
