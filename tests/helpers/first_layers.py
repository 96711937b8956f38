"""A layer, a part and what its rules give: shared by the tests of the first generation's plans."""

from ascendsim import ConvProblem
from ascendsim.profile import load_profile
from tests.helpers.requests import first_rule

OLD = load_profile("910B_old_1001")
# 128 <- 128 channels of 3x3 on 40x40, 32 images.
LAYER = ConvProblem((32, 128, 40, 40), (128, 128, 3, 3), 1, 1)


def tiling_of(problem, gradient, profile=OLD, **more):
    """The tiling of a gradient in float16, as the rules choose it."""
    return first_rule(problem, gradient, "float16", profile, **more).tiling


def grid_of(tiling):
    """The parts of batch, columns and rows, and the cores that work on them."""
    return tiling.batch_dim, tiling.n_dim, tiling.m_dim, tiling.used_cores
