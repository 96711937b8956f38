"""Do nests get the fields of a product's plan as they mean them: copies, depths, segments, what stays?"""

import pytest

from ascendsim import ConvProblem, load_profile
from ascendsim.errors import UnsupportedError
from tests.helpers.requests import nest_plan, operators_plan

B2, PR = load_profile("910B2"), load_profile("950PR_9589")


def fields(problem, gradient, profile, dtype="float16"):
    return nest_plan(problem, gradient, dtype, profile).tiling


@pytest.mark.parametrize(
    ("problem", "copies"),
    [
        # A copy of grad_output, and of the weights for each of four phases: of the only kernel depth, or of
        # the one at which the only depth of grad_output is met.
        (ConvProblem((2, 16, 2, 24, 24), (32, 16, 1, 4, 4), (1, 2, 2), (0, 1, 1)), (1, 4)),
        (ConvProblem((2, 16, 1, 24, 24), (32, 16, 3, 4, 4), (1, 2, 2), 1), (1, 4)),
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
    ("channels", "segments"), [(224, (1, 0)), (225, (2, 224)), (448, (2, 224)), (449, (3, 224))]
)
def test_segments_of_a_long_reduction(channels, segments):
    # float32 from 2048 / 9 channels on, 224 in each segment: 28 groups of 8 are 2016 of k, 29 are 2088. 32
    # images are a task for each core.
    tiling = fields(ConvProblem((32, 96, 9, 9), (channels, 96, 3, 3), 1, 1), "grad_input", PR, "float32")
    assert (tiling.k_split, tiling.single_core_k) == segments


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        # Half of L0 holds 256 of k beside 32 pixels, of which rows of taps take 240. Windows of 72 make that
        # 288, which are 36864 bytes.
        (ConvProblem((32, 32, 5, 5), (256, 32, 3, 3), 1, 1), "slices of 36864 bytes"),
        # 2048 / 625 taps are three channels, less than a group of 8.
        (ConvProblem((32, 32, 25, 25), (64, 32, 25, 25), 5, 12), "segments that end inside a group of 8"),
    ],
)
def test_segments_that_no_nest_takes_are_refused_with_the_reason(layer, words):
    assert operators_plan(layer, "grad_input", "float32", PR).k_segment
    with pytest.raises(UnsupportedError, match=words):
        fields(layer, "grad_input", PR, "float32")
