"""Does the loop nest of Winograd make the bits of its order, and do both engines agree on its cycles?"""

import pickle
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from ascendsim import ConvProblem, Tiling, check_schedule, convolution_backward, estimate, load_profile
from ascendsim.errors import ConfigError, ProgramError, UnsupportedError
from ascendsim.functional import run_kernel
from ascendsim.ops.gradients.call import Gradients
from ascendsim.ops.lowering.lower import lower
from ascendsim.ops.plan import Plan
from ascendsim.ops.reference.call import reference_gradients
from ascendsim.ops.schedules.winograd import points, program
from ascendsim.program.builder import HAZARDS
from tests.both_engines import time_kernel
from tests.conv_cases import assert_same_bits, call_of, kernels_with_inputs, tensors_of
from tests.nests import Unrolling, plain
from tests.strict_memory import check_gm, strict
from tests.winograd_cases import PROBLEMS

PR = load_profile("950PR_9589")
ONLY_WEIGHT = (False, True, False)
SMALL = Tiling(16, 16, 32, used_cores=32)
# Four cores, and 2 x 3 blocks of 16 channels at least: two of them are left for the last round.
FOUR = load_profile("950PR_9589", {"cores.cube": 4, "cores.vector": 8})
PARTS = replace(SMALL, used_cores=4, k_split=2)
STREAMED = ConvProblem((3, 40, 9, 11), (20, 40, 3, 3), 1, 1)
WIDER = ConvProblem((3, 20, 9, 11), (40, 20, 3, 3), 1, 1)


def planned(problem, tiling=SMALL, profile=PR, **options):
    """A call whose grad_weight is made by Winograd."""
    call = call_of(problem, "float32", profile=profile, **options)
    return replace(call, plans=call.plans | {"grad_weight": Plan("wgrad_winograd", tiling)})


def kernel_of(problem, tiling=SMALL, profile=PR):
    [kernel] = lower(planned(problem, tiling, profile), ONLY_WEIGHT).kernels
    return kernel


CASES = [(problem, SMALL, PR) for problem in PROBLEMS.values()]
CASES += [(STREAMED, PARTS, FOUR), (WIDER, PARTS, FOUR)]
NAMES = [*PROBLEMS, "parts", "parts of the turned one"]


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
    without = Gradients(call, tensors, "program", threads=2)
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


def inputs_of(call, tensors):
    """Return the kernel of grad_weight, and the tensors in GM that it begins with."""
    found = [(kernel, dict(gm)) for kernel, gm in kernels_with_inputs(call, tensors)]
    [made] = [(kernel, gm) for kernel, gm in found if kernel.name == "grad_weight"]
    return made


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


# --- what it does


def counts(phase):
    return Counter(type(step).__name__ for work in phase.work for step in work.build().instructions)


def test_instructions_are_those_of_a_winograd():
    # 20 x 20 channels are 3 groups of 8 on either side: 2 x 2 blocks of two groups and of one, each on a core
    # of its own. 9 x 11 pixels are 5 x 6 tiles: 2 clusters an image, 4 in all.
    problem = ConvProblem((2, 20, 9, 11), (20, 20, 3, 3), 1, 1)
    kernel = kernel_of(problem)
    names = [phase.name for phase in kernel.phases]
    assert names == ["re-lay input", "re-lay grad_output", "points", "compute"]
    found = counts(kernel.phases[3])
    clusters = 4 * 4
    # 16 products a cluster, where the direct sum has 9 taps for each of the 4 pixels of a tile: 36 for 16.
    assert found["Mmad"] == found["LoadL0A"] == found["LoadL0B"] == 16 * clusters
    # Points of grad_output come from global memory, those of input through UB, all groups in one piece.
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
    for problem, tiling, profile in (CASES[0], CASES[-1]):
        written = check_gm(kernel_of(problem, tiling, profile))
        left = [name for name in written if name.startswith("points of ")]
        assert (written[left[0]] == 1).all()
        assert (written["grad_weight DNC1HWC0"] == 1).all()


@pytest.mark.parametrize(("problem", "tiling", "profile"), [CASES[0], CASES[3], CASES[-1]], ids=str)
def test_every_instruction_touches_what_it_declares_and_fits_in_its_slot(problem, tiling, profile):
    call, tensors = planned(problem, tiling, profile), tensors_of(problem, "float32")
    for kernel, gm in kernels_with_inputs(call, tensors):
        if kernel.name != "grad_weight":
            continue
        strict_gm = dict(gm)
        run_kernel(kernel, gm)
        run_kernel(strict(kernel, 4), strict_gm, order=5)
        assert np.array_equal(gm["grad_weight DNC1HWC0"], strict_gm["grad_weight DNC1HWC0"])


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
    right = outcomes(HAZARDS)
    assert len(right) == 1
    for missing in ("RAW", "WAR"):
        assert outcomes(HAZARDS - {missing}) - right


@pytest.mark.parametrize(("problem", "tiling", "profile"), CASES, ids=NAMES)
def test_engines_agree_and_folded_cores_are_alike(problem, tiling, profile):
    kernel = kernel_of(problem, tiling, profile)
    for start in ("warm", "cold"):
        folded = time_kernel(kernel, profile, l2_start=start)
        assert folded.cycles == time_kernel(kernel, profile, folded=False, l2_start=start).cycles


@pytest.mark.parametrize(("problem", "tiling", "profile"), [CASES[0], CASES[-2]], ids=["whole", "parts"])
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


def test_a_large_layer_takes_less_than_half_of_the_products_of_the_direct_sum():
    # M is busy for 16 x 32 products of 64 x 64 a cluster, where the direct sum has 9 x 128: 4 / 9 where all
    # tiles are real, as of 16 x 16 pixels.
    problem = ConvProblem((4, 256, 16, 16), (256, 256, 3, 3), 1, 1)
    options = {"product": "950PR_9589", "output_mask": ONLY_WEIGHT}
    busy = []
    for tiling in ("product", "search"):
        [kernel] = [k for k in estimate(problem, "float32", tiling=tiling, **options).kernels if k.plan]
        busy.append(sum(work_of(kernel, PR)))
    assert busy[0] / busy[1] == pytest.approx(4 / 9, rel=0.01)


def work_of(kernel, profile):
    """Yield the fractal products of each Mmad of a kernel, 16 x 16 x 8 each."""
    del profile
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
