"""Is no plan faster than its gradient's bound, and is the bound what the figures say?"""

import pytest

from ascendsim import ConvProblem, estimate, legal_tilings, load_profile
from ascendsim.ops.tiling.bounds import least_time
from ascendsim.ops.tiling.request import PlanRequest
from ascendsim.workloads.loader import load_workload

GRADIENTS = {"grad_input": (True, False, False), "grad_weight": (False, True, False)}
LAYERS = {
    "3x3": ConvProblem((4, 64, 14, 14), (64, 64, 3, 3), padding=1),
    "strided": ConvProblem((2, 40, 15, 9), (72, 40, 3, 2), stride=2, padding=1),
    "grouped": ConvProblem((2, 64, 9, 9), (96, 32, 3, 3), padding=1, groups=2),
    "deep": ConvProblem((2, 32, 3, 7, 7), (32, 32, 3, 3, 3), padding=1),
    "wide": ConvProblem((1, 32, 2, 700), (32, 32, 1, 5)),
}
PRODUCTS = ("910B2", "950PR_9589", "310P3", "910A")


def time_of(problem, gradient, product, tiling):
    """Microseconds of the gradient's own kernel."""
    made = estimate(problem, product=product, output_mask=GRADIENTS[gradient], tiling=tiling)
    return next(kernel.time_us for kernel in made.kernels if kernel.plan is not None)


def test_one_fractal_by_hand():
    # 16 pixels x 16 channels x 16: one core, one Mmad of one fractal. load3d makes a fractal of 16 pixels in
    # four rows: 2 cycles, and one for each row, beside 2 + 6 of the load and its command. Weights: 512 bytes
    # at 128 a cycle and 11 to turn the block, beside one of the load. All that is on MTE1.
    profile = load_profile("910B2")
    bound = least_time(
        PlanRequest(ConvProblem((1, 16, 4, 4), (16, 16, 1, 1)), "grad_input", "float16", profile)
    )
    cycles = profile.scalar.start_cycles + (2 + 4 + 2 + 6) + (4 + 11 + 1)
    assert bound.pipe == "MTE1"
    assert bound.time_us == pytest.approx(profile.launch_us(1) + cycles / profile.clock.cube_mhz)


def test_where_l2_is_slow_the_operands_are_the_bound():
    profile = load_profile("910B2", {"links.l2_read.nominal_tb_per_s": 0.1})
    bound = least_time(
        PlanRequest(ConvProblem((64, 16, 56, 56), (16, 16, 1, 1)), "grad_weight", "float16", profile)
    )
    assert bound.pipe == "MTE2"
    # Both activations, 3136 pixels x 16 channels x 2 bytes an image; launched on as few cores as keep up.
    link = profile.links["l2_read"].total_bytes_per_cycle
    cycles = profile.scalar.start_cycles + 2 * 64 * 3136 * 16 * 2 / link
    least, most = (profile.launch_us(cores) + cycles / profile.clock.cube_mhz for cores in (1, 24))
    assert least <= bound.time_us <= most


@pytest.mark.parametrize(
    ("product", "layer"),
    # The first generation takes no volumes.
    [(product, name) for product in PRODUCTS for name in LAYERS if name != "deep" or product in PRODUCTS[:2]],
)
@pytest.mark.parametrize("gradient", GRADIENTS)
def test_no_legal_tiling_is_faster_than_the_bound(layer, product, gradient):
    problem = LAYERS[layer]
    profile = load_profile(product)
    bound = least_time(PlanRequest(problem, gradient, "float16", profile))
    legal = legal_tilings(problem, gradient, profile)
    times = [time_of(problem, gradient, product, tiling) for tiling in legal.sample(4, seed=2)]
    times += [time_of(problem, gradient, product, "search")]
    assert 0 < bound.time_us <= min(times)


@pytest.mark.parametrize("name", ["s2b0_1x1a", "s3b0_3x3", "s5b1_1x1a"])
@pytest.mark.parametrize("gradient", GRADIENTS)
def test_the_products_own_plan_is_no_faster_either(name, gradient):
    problem = ConvProblem(**load_workload("resnet50").layer(name).problem_options(32))
    bound = least_time(PlanRequest(problem, gradient, "float16", load_profile("910B2")))
    usual = time_of(problem, gradient, "910B2", "product")
    # Nor is it so far below that it says nothing.
    assert usual / 4 < bound.time_us <= usual
