"""Are cores dealt again where a user gives base blocks alone, and never to the call's harm?"""

from itertools import product
from math import ceil, prod

import pytest

from ascendsim import ConvProblem, Tiling, estimate
from ascendsim.ops.reference.call import reference_gradients
from ascendsim.ops.schedules.base import schedule_named
from ascendsim.ops.tiling import complete
from ascendsim.ops.tiling.complete import dealt_again
from ascendsim.ops.tiling.request import PartialPlan, PlanRequest
from ascendsim.profile import load_profile
from tests.helpers.conv_cases import SPLIT, assert_same_bits, call_of, run, tensors_of

PROFILE = load_profile("910B2")
# 4 images of 784 pixels and 128 channels.
LAYER = ConvProblem((4, 128, 28, 28), (128, 128, 3, 3), 1, 1)
MAKES = {"dgrad": "grad_input", "wgrad": "grad_weight"}
MASKS = {"grad_input": (True, False, False), "grad_weight": (False, True, False)}


def again(nest, tiling, part, **more):
    request = PlanRequest(LAYER, MAKES[nest], "float16", PROFILE, fixed=PartialPlan(part, **more))
    return dealt_again(tiling, schedule_named(nest), request)


def grid_of(tiling):
    return tiling.batch_dim, tiling.m_dim, tiling.n_dim, tiling.k_dim


def kernel_of(gradient, tiling):
    tilings = {gradient: tiling}
    made = estimate(LAYER, product=PROFILE, output_mask=MASKS[gradient], tiling=tilings, l2_start="warm")
    return next(kernel for kernel in made.kernels if kernel.macs), made.plans[gradient].tiling


def test_cells_get_whole_blocks_of_the_size_that_is_given():
    # Cells of the rules, 4 x 3 x 2, have 262 pixels and 64 channels: three 128 x 128 blocks each, half of
    # them empty. The image has 6.1 blocks, so 7, and 28 blocks on 24 cores are two each, on 14 of them.
    part = {"base_m": 128, "base_n": 128}
    made = again("dgrad", Tiling(128, 128, 48, batch_dim=4, m_dim=3, n_dim=2), part)
    assert grid_of(made) == (2, 7, 1, 0)
    # Two blocks in seven of 14 cells is as few as there can be with 14 cores, too.
    assert grid_of(again("dgrad", made, part, block_dim=14) or made) == (2, 7, 1, 0)
    # Of even parts of all pixels, which cut through images, nothing is left.
    even = again("dgrad", Tiling(128, 128, 48, pixel_dim=12, n_dim=2), part)
    assert (even.pixel_dim, grid_of(even)) == (0, (2, 7, 1, 0))


@pytest.mark.parametrize(
    ("tiling", "part"),
    [
        # Nothing about the sizes of blocks; a part of the grid; no grid; as few blocks a cell as can be.
        (Tiling(128, 128, 48, batch_dim=4, m_dim=3, n_dim=2), {"base_k": 48}),
        (Tiling(128, 128, 48, batch_dim=4, m_dim=3, n_dim=2), {"base_m": 128, "n_dim": 2}),
        (Tiling(128, 128, 48, pixel_dim=12), {"base_m": 128, "pixel_dim": 12}),
        (Tiling(128, 128, 48), {"base_m": 128}),
        (Tiling(128, 128, 48, batch_dim=2, m_dim=7, n_dim=1), {"base_m": 128}),
    ],
)
def test_a_grid_stays_where_there_is_no_reason_to_change_it(tiling, part):
    assert again("dgrad", tiling, part) is None


@pytest.mark.parametrize("images", [1, 2])
@pytest.mark.parametrize("cores", [2, 5, 24])
@pytest.mark.parametrize("sizes", [(16, 16), (128, 128), (272, 64), (1024, 256)])
@pytest.mark.parametrize("nest", MAKES)
def test_no_other_grid_has_fewer_blocks_in_its_busiest_cell(nest, sizes, cores, images):
    base_m, base_n = sizes
    # 128 rows of grad_weight, and 72 groups of 16 columns; 784 pixels of grad_input, and 128 columns.
    m, n, height = (784, 128, 1) if nest == "dgrad" else (128, 1152, 28)

    def busiest(batch, m_dim, n_dim, high):
        return (
            ceil(4 / batch)
            * ceil(ceil(m / m_dim) / base_m)
            * ceil(ceil(n / n_dim) / base_n)
            * ceil(height / high)
        )

    # The slow way: every number of parts along each axis.
    # grad_weight of one part of the reduction stays of one: parts would have to be added.
    whole = nest == "wgrad" and images == 1
    ranges = [
        range(1, min(cores, most) + 1) for most in (1 if whole else 4, cores, cores, 1 if whole else height)
    ]
    least = min(busiest(*parts) for parts in product(*ranges) if prod(parts) <= cores)
    # A grid of one or two cells stays where no other is better.
    one = Tiling(base_m, base_n, 48, batch_dim=images, m_dim=1, n_dim=1)
    made = again(nest, one, {"base_m": base_m}, block_dim=cores) or one
    assert busiest(*(max(1, parts) for parts in grid_of(made))) == least
    assert made.cells <= cores


@pytest.mark.parametrize("gradient", MASKS)
def test_the_faster_of_both_grids_is_taken(gradient):
    rules, usual = kernel_of(gradient, "product")
    # For 4 images the library weighs idle cores against what the others save: 2 x 8 cells of one window each.
    assert rules.cores_used == {"grad_input": 24, "grad_weight": 16}[gradient]
    changed = 0
    for part in ({"base_m": 128, "base_n": 128}, {"base_m": 256, "base_n": 64}, {"base_m": 64, "base_n": 64}):
        kernel, tiling = kernel_of(gradient, part)
        # The same tiles under the grid of the rules.
        grid = {axis: getattr(usual, axis) for axis in ("batch_dim", "m_dim", "n_dim", "k_dim")}
        steps = {step: getattr(tiling, step) for step in ("step_ka", "step_kb")}
        before, _ = kernel_of(gradient, {**part, **grid, **steps})
        assert kernel.time_us <= before.time_us
        changed += grid_of(tiling) != tuple(grid.values())
    assert changed


@pytest.mark.parametrize(
    ("product", "layer", "base"),
    [
        # Dealt again: 64 x 64 blocks of 6 images.
        ("310P3", ConvProblem((6, 32, 7, 7), (256, 32, 3, 3), 1, 1), (64, 64)),
        # Left as they are: more parts would be sooner done, but for adding them in order.
        ("910A", ConvProblem((3, 32, 20, 20), (256, 32, 3, 3), 2, 1), (256, 256)),
        ("910A", ConvProblem((6, 32, 14, 14), (64, 32, 3, 3), 1, 1), (256, 256)),
        # Left as it is: parts of a reduction that was in one piece would be added to zeros.
        ("910A", ConvProblem((1, 64, 7, 7), (128, 64, 1, 1)), (128, 128)),
    ],
    ids=["dealt again", "strided", "padded", "in one piece"],
)
def test_a_call_whose_parts_are_added_in_order_takes_no_longer_for_it(monkeypatch, product, layer, base):
    part = dict(zip(("base_m", "base_n"), base, strict=True))
    options = {"product": product, "output_mask": MASKS["grad_weight"], "deterministic": True, "tiling": part}
    again = estimate(layer, **options)
    monkeypatch.setattr(complete, "dealt_again", lambda *_: None)
    rules = estimate(layer, **options)
    if product == "310P3":
        assert again.time_us < rules.time_us
    else:
        assert again.plans == rules.plans


@pytest.mark.parametrize(("gradient", "nest"), [("grad_input", "dgrad"), ("grad_weight", "wgrad")])
def test_the_bits_are_those_of_the_definition(gradient, nest):
    problem = ConvProblem((3, 32, 9, 10), (48, 32, 3, 3), 1, 1)
    request = PlanRequest(problem, gradient, "float16", SPLIT, fixed=PartialPlan({"base_m": 32}))
    one = Tiling(32, 16, 16, batch_dim=1, m_dim=1, n_dim=1, used_cores=SPLIT.cores.cube)
    tiling = dealt_again(one, schedule_named(nest), request)
    tensors, call = tensors_of(problem, data="wide"), call_of(problem, tilings={gradient: tiling})
    made, arrivals = run(call, tensors, 3, MASKS[gradient])
    want = reference_gradients(call, **tensors, mask=MASKS[gradient], arrivals=arrivals)
    assert_same_bits(made[gradient], want[gradient])
