"""Is the kernel of Winograd the one that its plan says: phases, instructions, parts, and what is refused?"""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from ascendsim import ConvProblem, estimate, load_profile
from ascendsim.errors import ConfigError, UnsupportedError
from ascendsim.functional import run_kernel
from ascendsim.ops.plan import Plan
from tests.helpers.conv_cases import call_of, kernels_with_inputs, tensors_of
from tests.helpers.strict_memory import check_gm, strict
from tests.helpers.winograd_cases import (
    CASES,
    FOUR,
    ONLY_WEIGHT,
    PARTS,
    PR,
    PROBLEMS,
    SMALL,
    STREAMED,
    WIDER,
    kernel_of,
    planned,
)


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
        run_kernel(strict(kernel, 4), strict_gm, order=5)
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
