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
from ascendsim.timing.kernel import measure_kernel
from tests.helpers.both_engines import time_kernel
from tests.helpers.conv_cases import assert_same_bits, tensors_of
from tests.helpers.hazards import assert_each_class_is_missed
from tests.helpers.winograd_cases import (
    CASES,
    FOUR,
    NAMES,
    ONLY_WEIGHT,
    PARTS,
    PR,
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


def test_a_core_takes_clusters_at_all_points_and_then_columns():
    # 3 groups of rows and 5 of columns in blocks of two; blocks 0 to 3 on cores 0 to 3, then block 4 in parts
    # on cores 0 and 1. So core 1 has rows 0 and 1, then row 2, of columns 2 and 3 each time; of the part the
    # last 3 of 6 clusters. The lower of an image's two begins at row 8, and reads one row before that.
    whole = [(image, cluster) for image in range(3) for cluster in range(2)]
    due, turn = [], 0
    for rows, clusters, part in ((slice(0, 2), whole, ()), (slice(2, 3), whole[3:], (1,))):
        for image, cluster in clusters:
            read = (0, image, 0, slice(2, 4), slice(7 * cluster, 9), slice(0, 11), slice(None))
            due += [
                ("MTE2", "CopyGmToL1", (image, cluster, rows)),
                (f"AIV{turn}.MTE2", "CopyGmToUb", read),
                (f"AIV{turn}.V", "ToPoints", None),
                (f"AIV{turn}.MTE3", "CopyUbToL1", None),
            ]
            turn = 1 - turn
            for point in range(16):
                due += [("MTE1", "LoadL0A", None), ("MTE1", "LoadL0B", None)]
                due.append(("M", "Mmad", (f"sums at {point}", (image, cluster) == clusters[0])))
        for column in (2, 3):
            due += [("FIX", "CopyL0cToUb", f"sums at {point}") for point in range(16)]
            place = *part, 0, 0, slice(8 * rows.start, 8 * rows.stop), slice(72 * column, 72 * column + 72)
            due += [(f"AIV{column % 2}.V", "ToTaps", None), (f"AIV{column % 2}.MTE3", "CopyUbToGm", place)]
    made = kernel_of(STREAMED, PARTS, FOUR).phases[3].work[1].build()
    found = zip(made.pipes, made.instructions, strict=True)
    assert [(pipe, type(step).__name__, told_of(step)) for pipe, step in found] == due


def told_of(step):
    """What an instruction moves of global memory, multiplies into, or brings out of L0C."""
    if type(step).__name__ == "Mmad":
        return step.dst.name, step.first
    if type(step).__name__ == "CopyL0cToUb":
        return step.src.name
    return step.gm and step.gm.index


def test_a_vector_core_without_a_turn_takes_no_part():
    # One cluster and one group of columns: both are the first one's.
    kernel = kernel_of(ConvProblem((1, 8, 7, 7), (8, 8, 3, 3), 1, 1))
    [work] = kernel.phases[3].work
    assert work.build().cores == 2
    assert len(time_kernel(kernel, PR, l2_start="cold").phases[3].cores) == 1
    times = measure_kernel(kernel, PR, l2_start="cold")
    assert [core for one in times.phases[3].cores for core in one.cores] == list(work.cores[:2])


def test_images_are_a_loop_that_costs_no_memory():
    def sizes(images):
        problem = ConvProblem((images, 16, 7, 7), (16, 16, 3, 3), 1, 1)
        made = kernel_of(problem).phases[3].work[0].build()
        return made.nest.code.code.size, made.nest.code.data.size, len(made.nest.forms), len(made.tasks)

    # Equal tables stand once, as that of one image and one cluster would.
    assert sizes(64) == sizes(3)


def test_a_pickled_kernel_takes_the_same_cycles():
    kernel = kernel_of(STREAMED, PARTS, FOUR)
    again = pickle.loads(pickle.dumps(kernel))
    assert time_kernel(again, FOUR).cycles == time_kernel(kernel, FOUR).cycles
