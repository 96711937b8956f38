"""Does the loop nest of Winograd make the bits of its order, and do both engines agree on its cycles?"""

import pickle
from dataclasses import replace

import numpy as np
import pytest

from ascendsim import ConvProblem, check_schedule, convolution_backward
from ascendsim.errors import ProgramError
from ascendsim.functional import run_kernel
from ascendsim.numerics.compiled.gathered.threads import Threads
from ascendsim.ops.gradients.call import Gradients
from ascendsim.ops.reference.call import reference_gradients
from ascendsim.ops.schedules.winograd import points, program
from tests.helpers.both_engines import time_kernel
from tests.helpers.conv_cases import assert_same_bits, tensors_of
from tests.helpers.hazards import assert_each_class_is_missed
from tests.helpers.nests import Unrolling, plain
from tests.helpers.winograd_cases import (
    CASES,
    FOUR,
    NAMES,
    ONLY_WEIGHT,
    PARTS,
    PROBLEMS,
    STREAMED,
    inputs_of,
    kernel_of,
    planned,
)


@pytest.mark.parametrize(("problem", "tiling", "profile"), CASES, ids=NAMES)
def test_every_order_has_the_bits_of_the_definition_and_alike_cores_take_alike_cycles(
    problem, tiling, profile
):
    given = {"tiling": {"grad_weight": tiling}, "product": profile}
    found = check_schedule("wgrad_winograd", problem, "float32", **given)
    assert found.orders == ("program", "seed 0", "seed 1", "seed 2", "arrival")


@pytest.mark.parametrize("data", ["wide", "special"])
@pytest.mark.parametrize(("problem", "tiling", "profile"), CASES, ids=NAMES)
def test_gradients_without_instructions_have_the_same_bits(problem, tiling, profile, data):
    call, tensors = planned(problem, tiling, profile), tensors_of(problem, "float32", data)
    without = Gradients(call, tensors, "program", Threads(2))
    assert without.possible(ONLY_WEIGHT) == ONLY_WEIGHT
    with np.errstate(all="ignore"):
        want = reference_gradients(call, **tensors, mask=ONLY_WEIGHT)
    assert_same_bits(without.make(ONLY_WEIGHT)["grad_weight"], want["grad_weight"])


@pytest.mark.parametrize("model", ["seq:RNE", "block:4:RZ", "align:16:F24:RZ:acc", "tree:8:halves:RNE"])
def test_under_other_models_too(model):
    problem = PROBLEMS["padded"]
    call = planned(problem, accumulation=model)
    tensors = tensors_of(problem, "float32", "wide")
    made = Gradients(call, tensors, "program").make(ONLY_WEIGHT)["grad_weight"]
    want = reference_gradients(call, **tensors, mask=ONLY_WEIGHT)["grad_weight"]
    assert_same_bits(made, want)
    executed = executed_weight(call, tensors)
    assert_same_bits(executed, want)


def executed_weight(call, tensors):
    kernel, gm = inputs_of(call, tensors)
    run_kernel(kernel, gm)
    sums = gm["grad_weight DNC1HWC0"]
    p, c0 = call.problem, call.c0
    grouped = sums.reshape(sums.shape[2], -1, 9, c0).transpose(0, 1, 3, 2)
    made = grouped.reshape(sums.shape[2], -1, 9)[: p.small_channels, : p.big_channels]
    return np.ascontiguousarray(made).reshape(p.weight)


def test_the_door_takes_it_with_cycles_and_without_in_the_same_bits():
    # 4 x 4 tiles fill half of a cluster, just enough.
    problem = ConvProblem((1, 256, 8, 8), (256, 256, 3, 3), 1, 1)
    rng = np.random.default_rng(3)
    shapes = problem.grad_output, problem.input, problem.weight
    tensors = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    call = (*tensors, None, 1, 1, 1, False, 0, 1, ONLY_WEIGHT, 0)
    with_cycles, without = (
        convolution_backward(*call, product="950PR_9589", timing=timing) for timing in (True, False)
    )
    [kernel] = [kernel for kernel in with_cycles.kernels if kernel.plan]
    assert kernel.plan.schedule == "wgrad_winograd"
    assert np.array_equal(with_cycles.grad_weight.view(np.uint32), without.grad_weight.view(np.uint32))
    direct = convolution_backward(*call, product="950PR_9589", timing=False, tiling="search")
    differing = (direct.grad_weight != without.grad_weight).mean()
    assert 0.5 < differing < 1  # the switch is seen in most bits
    assert np.allclose(direct.grad_weight, without.grad_weight, atol=1e-4)  # and is no other gradient


# --- waits and time


def outcomes(hazards):
    """Return the different results of random orders with some classes of waits; a failure counts as one."""
    call, tensors = planned(PROBLEMS["padded"]), tensors_of(PROBLEMS["padded"], "float32", "integers")
    kernel, gm = inputs_of(call, tensors)
    phases = replace(call.schedule("grad_weight"), hazards=hazards).phases()
    kernel, found = replace(kernel, phases=(*kernel.phases[:2], *phases)), set()
    for seed in range(4):
        memory = dict(gm)
        try:
            run_kernel(kernel, memory, order=seed)
            found.add(memory["grad_weight DNC1HWC0"].tobytes())
        except (ProgramError, ValueError) as error:
            found.add(str(error))
    return found


def test_a_missing_class_of_waits_is_found():
    assert_each_class_is_missed(outcomes)


@pytest.mark.parametrize(("problem", "tiling", "profile"), CASES, ids=NAMES)
def test_engines_agree_and_folded_cores_are_alike(problem, tiling, profile):
    kernel = kernel_of(problem, tiling, profile)
    for start in ("warm", "cold"):
        folded = time_kernel(kernel, profile, l2_start=start)
        assert folded.cycles == time_kernel(kernel, profile, folded=False, l2_start=start).cycles


@pytest.mark.parametrize(("problem", "tiling", "profile"), [CASES[0], CASES[-4]], ids=["whole", "parts"])
def test_programs_are_those_without_loops(problem, tiling, profile, monkeypatch):
    def programs():
        phases = kernel_of(problem, tiling, profile).phases[2:4]
        return [work.build() for phase in phases for work in phase.work]

    shared = programs()
    monkeypatch.setattr(program, "ProgramBuilder", Unrolling)
    monkeypatch.setattr(points, "ProgramBuilder", Unrolling)
    for one, other in zip(shared, programs(), strict=True):
        assert plain(one) == plain(other)


def test_alike_clusters_share_their_code():
    # 64 images of one cluster each. Rings of two copies on two vector cores come round after four clusters;
    # the first ones find rings that nothing has used. And the way out.
    found = kernel_of(ConvProblem((64, 16, 7, 7), (16, 16, 3, 3), 1, 1)).phases[3].work[0].build()
    units = {id(step.unit) for step in found.steps}
    assert len(units) <= 8
    assert len(found.instructions) > 64 * 50


def test_a_pickled_kernel_takes_the_same_cycles():
    kernel = kernel_of(STREAMED, PARTS, FOUR)
    again = pickle.loads(pickle.dumps(kernel))
    assert time_kernel(again, FOUR).cycles == time_kernel(kernel, FOUR).cycles
