"""Do nests get the fields of a product's plan as they mean them: copies, depths, segments, what stays?"""

import pytest

from ascendsim import ConvProblem, load_profile
from tests.helpers.requests import nest_plan, operators_plan

B2, PR = load_profile("910B2"), load_profile("950PR_9589")


def fields(problem, gradient, profile, dtype="float16"):
    return nest_plan(problem, gradient, dtype, profile).tiling


@pytest.mark.parametrize(
    ("problem", "copies"),
    [
        # A copy of grad_output for each kernel depth, and of the weights for each of its four phases.
        (ConvProblem((2, 16, 2, 24, 24), (32, 16, 3, 4, 4), (1, 2, 2), 1), (3, 12)),
        (ConvProblem((2, 16, 2, 24, 24), (32, 16, 1, 4, 4), (1, 2, 2), (0, 1, 1)), (1, 4)),
        # One tap has one phase.
        (ConvProblem((2, 16, 128, 128), (32, 16, 1, 1), 2), (1, 1)),
    ],
)
def test_copies_of_whole_operands_of_a_split_kernel(problem, copies):
    told = operators_plan(problem, "grad_input", "float16", PR)
    assert (told.kernel_split, told.al1_buffers, told.bl1_buffers) == ("hw", 1, 1)
    tiling = fields(problem, "grad_input", PR)
    assert (tiling.al1_buffers, tiling.bl1_buffers) == copies


@pytest.mark.parametrize(
    ("batch", "depths", "parts"),
    # Images alone keep 32 cores busy: all four depths in a task. 16 images leave two depths for each. With 8
    # there is one, which is what nests take without being told.
    [(32, 4, 1), (16, 2, 2), (8, 1, 0)],
)
def test_depths_of_a_task_of_grad_input(batch, depths, parts):
    problem = ConvProblem((batch, 16, 4, 8, 16), (32, 16, 1, 1, 1))
    told = operators_plan(problem, "grad_input", "float16", PR)
    assert (told.strategy, told.single_core_d) == ("full_load", depths)
    assert fields(problem, "grad_input", PR).depth_dim == parts


@pytest.mark.parametrize(
    ("channels", "segments"), [(227, (1, 0)), (228, (2, 224)), (448, (2, 224)), (449, (3, 224))]
)
def test_segments_of_a_long_reduction(channels, segments):
    # float32 from 2048 / 9 channels on, 224 in each segment. 32 images are a task for each core.
    tiling = fields(ConvProblem((32, 32, 5, 5), (channels, 32, 3, 3), 1, 1), "grad_input", PR, "float32")
    assert (tiling.k_split, tiling.single_core_k) == segments


@pytest.mark.parametrize(
    ("channels", "out", "size", "resident", "steps"),
    # 49 slices of 16 pixels, 7 at a time; 14 of 224, two at a time. What stays has all of them.
    [
        (16, 256, 28, "b", (7, 49)),
        (256, 16, 28, "a", (49, 7)),
        (16, 256, 56, "b", (2, 14)),
        (256, 16, 56, "a", (14, 2)),
    ],
)
def test_a_resident_operand_has_all_slices_in_l1(channels, out, size, resident, steps):
    problem = ConvProblem((24 if size == 28 else 1, channels, 3, size, size), (out, channels, 1, 1, 1))
    assert operators_plan(problem, "grad_weight", "float32", B2).resident == resident
    tiling = fields(problem, "grad_weight", B2, "float32")
    assert (tiling.step_ka, tiling.step_kb) == steps
    assert (tiling.al1_buffers, tiling.bl1_buffers) == ((1, 2) if resident == "a" else (2, 1))
