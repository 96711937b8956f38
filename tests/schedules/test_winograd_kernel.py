"""Is the kernel of Winograd the one of its plan, with the bits of its order, at every door?"""

import pickle
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from ascendsim import ConvProblem, check_schedule, convolution_backward, estimate, load_profile
from ascendsim.errors import ConfigError, ProgramError, UnsupportedError
from ascendsim.functional import run_kernel
from ascendsim.numerics.factor import Threads
from ascendsim.ops.gradients.call import Gradients
from ascendsim.ops.plan import Plan
from ascendsim.ops.reference.call import reference_gradients
from ascendsim.timing.kernel import measure_kernel
from tests.helpers.both_engines import time_kernel
from tests.helpers.calls import arguments_of, conv, first_phase
from tests.helpers.conv_cases import (
    CASES,
    FOUR,
    NAMES,
    ONLY_WEIGHT,
    PARTS,
    PR,
    PROBLEMS,
    SMALL,
    STREAMED,
    WIDER,
    assert_each_class_is_missed,
    assert_same_bits,
    call_of,
    inputs_of,
    kernel_of,
    kernels_with_inputs,
    planned,
    tensors_of,
)
from tests.helpers.oracles_timing import check_gm

# -------------------------------------------------------------------------------------------------------
# Is the kernel of Winograd the one that its plan says: phases, instructions, parts, and what is refused?
# -------------------------------------------------------------------------------------------------------


def counts(phase):
    return Counter(type(step).__name__ for work in phase.work for step in work.build().instructions)


def test_instructions_are_those_of_a_winograd():
    # 20 x 20 channels are 3 groups of 8 on either side: 2 x 2 blocks of two groups and of one, each on a core
    # of its own. 9 x 11 pixels are 5 x 6 tiles: 2 clusters an image, 4 in all.
    problem = ConvProblem((2, 20, 9, 11), (20, 20, 3, 3), 1, 1)
    kernel = kernel_of(problem)
    names = [phase.name for phase in kernel.phases]
    assert names == ["re-lay grad_output", "re-lay input", "points", "compute"]
    found = counts(kernel.phases[3])
    clusters = 4 * 4
    # 16 products a cluster, where the direct sum has 9 taps for each of the 4 pixels of a tile: 36 for 16.
    assert found["Mmad"] == found["LoadL0A"] == found["LoadL0B"] == 16 * clusters
    # Points of input come from global memory, those of grad_output through UB, all groups in one piece.
    assert found["CopyGmToL1"] == found["CopyUbToL1"] == found["ToPoints"] == clusters
    # Two blocks have two groups of columns, two have one: each takes 16 sums out of L0C.
    assert found["ToTaps"] == found["CopyUbToGm"] == 6
    assert found["CopyL0cToUb"] == 16 * 6
    # Points of the left side: 3 groups, once for all blocks, of 4 clusters.
    assert counts(kernel.phases[2])["ToPoints"] == 4


def test_the_side_with_fewer_channels_is_the_one_whose_points_are_kept():
    for problem, name in ((STREAMED, "grad_output"), (WIDER, "input")):
        tensors = kernel_of(problem).tensors
        [points_of] = [tensor for key, tensor in tensors.items() if key.startswith("points of ")]
        assert points_of.name.startswith(f"points of {name}")
        # 20 channels are 3 groups; 3 images of 2 clusters.
        assert points_of.shape == (3, 2, 3, 16, 32, 8)


def test_the_vector_cores_take_clusters_in_turn():
    work = kernel_of(PROBLEMS["padded"]).phases[3].work[0]
    built = work.build()
    steps = zip(built.pipes, built.instructions, strict=True)
    pipes = [pipe for pipe, step in steps if type(step).__name__ == "ToPoints"]
    assert pipes == ["AIV0.V", "AIV1.V"] * 2
    assert len(work.cores) == 3


def test_the_last_round_is_cut_and_added_in_order():
    # 2 x 3 blocks on 4 cores: the last two in 2 parts each, of 3 of the 6 clusters.
    kernel = kernel_of(STREAMED, PARTS, FOUR)
    assert [phase.name for phase in kernel.phases][3:] == ["compute", "ordered sum"]
    call = planned(STREAMED, PARTS, FOUR)
    dealt = call.schedule("grad_weight").dealt()
    assert [[task.part for task in tasks] for tasks in dealt] == [[-1, 0], [-1, 1], [-1, 0], [-1, 1]]
    order = call.schedule("grad_weight").order()
    assert order.parts == 2
    # Rows 16 to 23 (20 channels in groups of 8), columns 16 to 31 and 32 to 39.
    assert order.streamed == ((16, 8, 16, 16), (16, 8, 32, 8))
    assert [len(order.clusters.part(part, 2)) for part in (0, 1)] == [3, 3]


def test_every_element_is_written_once_and_nothing_else_is_read():
    for problem, tiling, profile in (CASES[0], CASES[-3], CASES[-1]):
        written = check_gm(kernel_of(problem, tiling, profile))
        left = [name for name in written if name.startswith("points of ")]
        assert (written[left[0]] == 1).all()
        assert (written["grad_weight DNC1HWC0"] == 1).all()


@pytest.mark.parametrize(
    ("problem", "tiling", "profile"),
    [CASES[0], CASES[3], CASES[-3], CASES[-1]],
    ids=["padded", "much padding", "parts", "pieces"],
)
def test_every_instruction_touches_what_it_declares_and_fits_in_its_slot(problem, tiling, profile):
    call, tensors = planned(problem, tiling, profile), tensors_of(problem, "float32")
    for kernel, gm in kernels_with_inputs(call, tensors):
        if kernel.name != "grad_weight":
            continue
        strict_gm = dict(gm)
        run_kernel(kernel, gm)
        run_kernel(kernel, strict_gm, order=5)
        assert np.array_equal(gm["grad_weight DNC1HWC0"], strict_gm["grad_weight DNC1HWC0"])


def test_a_large_layer_takes_less_than_half_of_the_products_of_the_direct_sum():
    # M is busy for 16 x 32 products of 64 x 64 a cluster, where the direct sum has 9 x 128: 4 / 9 where all
    # tiles are real, as of 16 x 16 pixels.
    problem = ConvProblem((4, 256, 16, 16), (256, 256, 3, 3), 1, 1)
    options = {"product": "950PR_9589", "output_mask": ONLY_WEIGHT}
    busy = []
    for tiling in ("product", "search"):
        [kernel] = [k for k in estimate(problem, "float32", tiling=tiling, **options).kernels if k.plan]
        busy.append(sum(products_of(kernel)))
    assert busy[0] / busy[1] == pytest.approx(4 / 9, rel=0.01)


def products_of(kernel):
    """Yield the fractal products of each Mmad of a kernel, 16 x 16 x 8 each."""
    for phase in kernel.kernel.phases:
        for work in phase.work:
            for step in work.build().instructions:
                if type(step).__name__ == "Mmad":
                    yield -(-step.m // 16) * -(-step.n // 16) * -(-step.k // 8)


# --- refusals


@pytest.mark.parametrize(
    ("problem", "changes", "words"),
    [
        (ConvProblem((1, 16, 8, 8), (16, 16, 3, 3), 2, 1), {}, "3 x 3 taps with stride and dilation 1"),
        (ConvProblem((1, 16, 8, 8), (16, 16, 2, 2)), {}, "3 x 3 taps"),
        (ConvProblem((1, 16, 8, 8), (16, 8, 3, 3), groups=2), {"group_merge": 1}, "one group"),
        (ConvProblem((1, 8, 3, 8, 8), (8, 8, 1, 3, 3)), {}, "one depth"),
        (PROBLEMS["padded"], {"base_k": 16}, "base_k is 16; by Winograd it is 32"),
        (PROBLEMS["padded"], {"cl0_buffers": 2}, "cl0_buffers is 2"),
        (PROBLEMS["padded"], {"base_m": 24}, "base_m is 24, which is no multiple of 16"),
        (PROBLEMS["padded"], {"k_split": 3}, "4 clusters of tiles in so many equal parts"),
        (PROBLEMS["padded"], {"single_core_m": 32}, "single_core_m is 32"),
    ],
)
def test_what_winograd_cannot_make_is_refused(problem, changes, words):
    with pytest.raises(ConfigError, match=words):
        planned(problem, replace(SMALL, **changes)).schedule("grad_weight")


def test_other_formats_and_products_are_refused():
    problem = PROBLEMS["padded"]
    call = call_of(problem, "float16", profile=PR)
    plans = call.plans | {"grad_weight": Plan("wgrad_winograd", SMALL)}
    with pytest.raises(ConfigError, match="the cube multiplies float16"):
        replace(call, plans=plans).schedule("grad_weight")
    with pytest.raises(UnsupportedError, match="910B2 has no path from UB to L1"):
        planned(problem, profile=load_profile("910B2")).schedule("grad_weight")


def test_more_parts_than_cores_are_refused():
    problem = ConvProblem((3, 48, 9, 11), (40, 48, 3, 3), 1, 1)  # 3 x 3 blocks on 4 cores: one is left
    with pytest.raises(ConfigError, match=r"1 tasks in 6 parts each, but .* has 4 cores"):
        planned(problem, replace(PARTS, k_split=6), FOUR).schedule("grad_weight")


# -------------------------------------------------------------------------------------------------------
# Does the loop nest of Winograd make the bits of its order, and do both engines agree on its cycles?
# -------------------------------------------------------------------------------------------------------


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


# --- Do all doors take Winograd where the operator does: the interface in C's manner, torch, a network?

# 4 x 4 tiles fill half of a cluster, just enough.
SMALLEST = ConvProblem((1, 256, 8, 8), (256, 256, 3, 3), 1, 1)


def drawn(problem):
    rng = np.random.default_rng(3)
    shapes = problem.grad_output, problem.input, problem.weight
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def test_the_interface_asks_for_what_the_operator_does():
    # 16 MiB of the runtime; 256 channels at 16 points of 2 clusters with 32 tiles; both sides re-laid; for
    # each of 32 cores a block of 64 x 64 x 9.
    call = conv((1, 256, 16, 16), (256, 256, 3, 3), 1, groups=1, dtype="float32", mask=ONLY_WEIGHT)
    found = first_phase(call, arguments_of(call, arrays=False), product="950PR_9589")[0]
    assert found == 2**24 + 2 * 16 * 32 * 256 * 4 + 2 * 256 * 256 * 4 + 32 * 64 * 64 * 9 * 4


def test_both_gradients_of_one_call_read_grad_output_each_in_its_own_way():
    # grad_input reads it as it lies; grad_weight has copies of its own under other names.
    r = estimate(SMALLEST, "float32", product="950PR_9589")
    made = {kernel.name: set(kernel.kernel.tensors) for kernel in r.kernels}
    assert made["grad_input"] & made["grad_weight"] <= {"grad_output"}
    assert {"grad_output NDC1HWC0 re-laid", "input NDC1HWC0 re-laid"} <= made["grad_weight"]
    tensors = drawn(SMALLEST)
    rest = (None, 1, 1, 1, False, 0, 1)
    both = convolution_backward(*tensors, *rest, (True, True, False), 0, product="950PR_9589")
    alone = convolution_backward(*tensors, *rest, ONLY_WEIGHT, 0, product="950PR_9589")
    assert np.array_equal(both.grad_weight.view(np.uint32), alone.grad_weight.view(np.uint32))


def test_a_script_of_torch_gets_the_bits_of_winograd():
    from tests.helpers.torch_samples import door, torch

    grad_output, input, weight = map(torch.from_numpy, drawn(SMALLEST))
    weight.requires_grad_()
    with door.Simulation(product="950PR_9589"):
        torch.nn.functional.conv2d(input, weight, padding=1).backward(grad_output)
    rest = (None, 1, 1, 1, False, 0, 1, ONLY_WEIGHT, 0)
    direct = convolution_backward(*drawn(SMALLEST), *rest, product="950PR_9589", timing=False)
    asked = estimate(SMALLEST, "float32", product="950PR_9589", output_mask=ONLY_WEIGHT)
    assert asked.plans["grad_weight"].schedule == "wgrad_winograd"
    assert np.array_equal(weight.grad.numpy().view(np.uint32), direct.grad_weight.view(np.uint32))


@pytest.mark.parametrize("start", ["warm", "cold", "handed", "chained"])
def test_every_start_of_l2_times_it(start):
    options = {"product": "950PR_9589", "output_mask": ONLY_WEIGHT, "l2_start": start}
    assert estimate(SMALLEST, "float32", **options).cycles > 0
