"""Do even parts and grids of cores make every gradient once, with the bits that its order asks for?"""

from dataclasses import replace
from itertools import pairwise, product
from random import Random

import numpy as np
import pytest

from ascendsim import estimate, legal_tilings, read_plans, write_plans
from ascendsim.errors import CapacityError, ConfigError
from ascendsim.ops.lowering.kernels import lower
from ascendsim.ops.plan import Plan, Tiling, chunks
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.products import DgradGemm
from ascendsim.ops.reference.call import reference_gradients
from ascendsim.ops.schedules.dgrad.tasks import EvenCut, ends_of_parts, tiles_of
from tests.helpers.both_engines import time_kernel
from tests.helpers.conv_cases import SPLIT, UNIFIED, assert_same_bits, blocks_of, call_of, run, tensors_of

# -------------------------------------------------------------------------------------------------------
# Do even parts of all pixels make every gradient once, with the bits of its order, and no core much more?
# -------------------------------------------------------------------------------------------------------

ONLY = (True, False, False)
PROBLEMS = {
    "plain": ConvProblem((5, 40, 9, 10), (24, 40, 3, 3), 1, 1),
    "grouped": ConvProblem((3, 40, 7, 6), (64, 20, 2, 2), 2, groups=2),
    "deep": ConvProblem((2, 18, 4, 5, 5), (18, 18, 2, 1, 2)),
    # Of five depths every other one meets the only kernel depth.
    "gaps": ConvProblem((2, 16, 5, 4, 9), (32, 16, 1, 2, 2), (2, 1, 1)),
}
EVEN = Tiling(48, 16, 16, al0_buffers=1, used_cores=5, pixel_dim=5)
GRIDS = {
    "alone": EVEN,
    "columns too": replace(EVEN, pixel_dim=2, n_dim=2, used_cores=4),
    "columns outside": replace(EVEN, n_dim=3),
    "in turns": replace(EVEN, pixel_dim=7, used_cores=3),
    "parts of the sum": replace(EVEN, k_split=2),
}


def even(problem, tiling, profile=SPLIT):
    return call_of(problem, profile=profile, tilings={"grad_input": tiling})


def kernel_of(call):
    return next(kernel for kernel in lower(call, ONLY).kernels if kernel.name == "grad_input")


# ---- Where parts end


def test_32_images_of_49_fractals_on_24_cores():
    # 32 x 49 = 1568 fractals, 65.33 a core. Blocks of 32: an image is two of them if it is cut at 17 to 32.
    # The first end, 65.33, lies 16.33 inside an image: 17. The second, 130.67, lies 32.67 inside: 32.
    ends = ends_of_parts(1568, 24, 49, 32)
    assert ends[:4] == [0, 66, 130, 196]
    assert max(b - a for a, b in pairwise(ends)) == 66
    # Blocks of 25, two of which leave one fractal free, are cut at 24 or 25; whole blocks would make 75, too.
    assert ends_of_parts(1568, 24, 49, 25)[:4] == [0, 73, 123, 196]


def slow_ends(total, parts, each, most):
    """Of all places that leave an image its least number of blocks the nearest; of two the lower."""
    blocks = -(-each // most)
    inside = [at for at in range(each + 1) if -(-at // most) + -(-(each - at) // most) == blocks]
    legal = sorted({image * each + at for image in range(total // each) for at in inside})
    even = [min(legal, key=lambda at: abs(at * parts - part * total)) for part in range(1, parts)]
    return [0, *even, total]


def test_ends_are_the_nearest_that_cost_no_block():
    rng = Random(3)
    for _ in range(300):
        each, most, parts = rng.randint(1, 30), rng.randint(1, 35), rng.randint(1, 12)
        total = each * rng.randint(1, 9)
        assert ends_of_parts(total, parts, each, most) == slow_ends(total, parts, each, most)


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_parts_have_every_pixel_once_in_order(problem):
    gemm = DgradGemm.of(problem, "float16")
    depths = [depth for depth, pairs in enumerate(gemm.depths) if pairs]
    whole = [*product(range(gemm.groups), range(gemm.batch), depths, range(gemm.sliding.pixels))]
    for parts, base_m in product((2, 3, 5, 7), (16, 48)):
        cut = EvenCut(gemm, replace(EVEN, base_m=base_m, pixel_dim=parts))
        made = [
            (*place, pixel)
            for part in cut.parts
            for *place, (first, pixels) in part
            for pixel in range(first, first + pixels)
        ]
        assert made == whole
        assert all(cut.parts)


def test_blocks_of_a_run_are_few_and_nearly_equal():
    # Fractals 2 to 8 are 6, in blocks of at most 4 two of 3; of 120 pixels the last fractal has 8.
    assert tiles_of(2, 8, 4, 120) == [(32, 48), (80, 40)]
    assert tiles_of(2, 8, 6, 128) == [(32, 96)]


# ---- The nest


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
@pytest.mark.parametrize("tiling", GRIDS.values(), ids=GRIDS)
def test_even_parts_make_every_pixel_once_with_the_ordered_bits(problem, tiling):
    call = even(problem, tiling)
    schedule = call.schedule("grad_input")
    made = [
        (task.group, task.image, task.depth, pixel, column)
        for tasks in schedule.dealt()
        for task in blocks_of(schedule.tasks, tasks)
        for pixel in range(task.first_pixel, task.first_pixel + task.pixels)
        for column in range(task.first_column, task.first_column + task.columns)
    ]
    gemm = schedule.gemm
    each = gemm.groups * gemm.batch * gemm.sliding.pixels * gemm.columns
    assert len(made) == len(set(made)) == each * sum(map(bool, gemm.depths))
    tensors = tensors_of(problem)
    found, arrivals = run(call, tensors, mask=ONLY)
    want = reference_gradients(call, **tensors, arrivals=arrivals, mask=ONLY)["grad_input"]
    assert_same_bits(found["grad_input"], want)


@pytest.mark.parametrize("profile", [SPLIT, UNIFIED], ids=["split", "unified"])
@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
@pytest.mark.parametrize("tiling", GRIDS.values(), ids=GRIDS)
def test_cores_that_are_timed_as_one_take_what_each_takes(profile, problem, tiling):
    cores = min(tiling.used_cores, profile.cores.cube)
    # Float32 parts leave through a UB that pixels with zeros between them take a share of.
    base_m = 16 if profile is UNIFIED and tiling.k_split > 1 else 32
    call = even(problem, replace(tiling, base_m=base_m, used_cores=cores), profile)
    kernel = kernel_of(call)
    timeline = time_kernel(kernel, call.profile)
    assert timeline.cycles == time_kernel(kernel, call.profile, folded=False).cycles


def test_the_busiest_core_has_a_fractal_more_and_not_a_block():
    # 8 images of 100 pixels, 7 fractals, on 5 cores: 11.2 a core. Blocks of 4 and 3 fractals are 16, of which
    # a core makes up to 4: 14. An image of two blocks may be cut at 3 or 4: 11, 10, 14, 10, 11 would be whole
    # blocks; blocks of 6 leave 1 to 6 free, so that ends lie within half a fractal: 11, 11, 12, 11, 11.
    problem = ConvProblem((8, 16, 10, 10), (16, 16, 1, 1))
    fractals = []
    for tiling in (Tiling(64, 16, 16, used_cores=5), Tiling(96, 16, 16, used_cores=5, pixel_dim=5)):
        schedule = even(problem, tiling).schedule("grad_input")
        dealt = [blocks_of(schedule.tasks, tasks) for tasks in schedule.dealt()]
        fractals.append([sum(-(-task.pixels // 16) for task in tasks) for tasks in dealt])
    assert max(fractals[0]) == 14
    assert fractals[1] == [11, 11, 12, 11, 11]


def test_a_tile_that_l1_does_not_hold_is_refused_by_its_buffer():
    # A row of 400 pixels x 32 bytes x 3 rows of taps, twice, is more than the 8 KiB of L1; tiles inside a row
    # would fit, but parts that end anywhere have none.
    wide = ConvProblem((2, 16, 3, 400), (16, 16, 3, 3), 1, 1)
    plain = Tiling(32, 16, 16)
    assert time_kernel(kernel_of(even(wide, plain)), SPLIT).cycles
    with pytest.raises(CapacityError, match="L1 of toy_split holds 8192 bytes"):
        time_kernel(kernel_of(even(wide, replace(plain, pixel_dim=2))), SPLIT)


# ---- Plans


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"batch_dim": 2},
            "pixel_dim is 5, and batch_dim is 2; pixel_dim cuts images and their pixels",
        ),
        ({"m_dim": 3}, "pixel_dim is 5, and m_dim is 3; pixel_dim cuts"),
        (
            {"pixel_dim": 10**4},
            "pixel_dim is 10000, but all pixels are .* fractals of 16, of which a part has one",
        ),
        ({"base_m": 40}, "base_m is 40; parts of pixel_dim are cut by fractals of 16 pixels: take 48"),
        ({"pixel_dim": -1}, "pixel_dim is -1; it must be a positive integer"),
    ],
)
def test_what_contradicts_even_parts_is_refused(fields, message):
    with pytest.raises(ConfigError, match=message):
        _ = even(PROBLEMS["plain"], replace(EVEN, **fields)).schedule("grad_input").tasks


@pytest.mark.parametrize("nest", ["dgrad_columns_outer", "dgrad_shares", "dgrad_split", "wgrad"])
def test_other_nests_refuse_even_parts(nest):
    gradient = "grad_weight" if nest == "wgrad" else "grad_input"
    mask = (nest != "wgrad", nest == "wgrad", False)
    plan = {gradient: Plan(nest, Tiling(48, 16, 16, pixel_dim=5))}
    with pytest.raises(ConfigError, match=f"pixel_dim is 5, but schedule {nest} does not read it"):
        estimate(PROBLEMS["plain"], product="910B2", output_mask=mask, tiling=plan)


def test_a_plan_file_says_even_parts(tmp_path):
    plans = {"grad_input": Plan("dgrad", replace(EVEN, n_dim=2))}
    write_plans(tmp_path / "even.toml", plans)
    assert "pixel_dim = 5" in (tmp_path / "even.toml").read_text()
    assert read_plans(tmp_path / "even.toml").plans == plans


def test_a_part_of_a_plan_may_ask_for_even_parts():
    layer = ConvProblem((8, 64, 14, 14), (64, 64, 3, 3), 1, 1)
    asked = {"pixel_dim": 24, "base_m": 112}
    made = estimate(layer, product="910B2", output_mask=ONLY, tiling=asked).plans["grad_input"]
    assert made.schedule == "dgrad"
    # The product's own grid is gone: even parts stand for it.
    fields = made.tiling.set_fields()
    assert fields["pixel_dim"] == 24
    assert not fields.keys() & {"batch_dim", "m_dim", "n_dim"}
    with pytest.raises(ConfigError, match="the grid has 24 cells, but block_dim is 8"):
        estimate(layer, product="910B2", output_mask=ONLY, tiling={"pixel_dim": 24, "block_dim": 8})


# ---- Legal ones


@pytest.mark.parametrize("profile", [SPLIT, UNIFIED], ids=["split", "unified"])
@pytest.mark.parametrize(
    "problem",
    [ConvProblem((3, 32, 3, 20), (16, 32, 2, 1)), ConvProblem((1, 32, 7, 7), (16, 32, 3, 3), 1, 1)],
    ids=["wide", "square"],
)
def test_legal_even_parts_are_those_that_fit_wherever_they_end(profile, problem):
    legal = legal_tilings(problem, "grad_input", profile)
    listed = list(legal)
    assert len(set(listed)) == len(listed) == legal.count
    parts = [tiling for tiling in listed if tiling.pixel_dim]
    assert {tiling.n_dim for tiling in parts} >= {0}
    rng = Random(1)
    for tiling in rng.sample(parts, 200):
        assert tiling in legal
        schedule = even(problem, tiling, profile).schedule("grad_input")
        for tasks in schedule.dealt():
            schedule.nest(schedule.tasks.sizes(tasks))
        # One part at least ends inside an image: whole ones are ranges of blocks.
        fractals = -(-schedule.gemm.sliding.pixels // 16)
        total = schedule.gemm.batch * fractals
        ends = ends_of_parts(total, tiling.pixel_dim, fractals, tiling.base_m // 16)
        assert any(at % fractals for at in ends)


def test_grids_that_are_no_even_parts_are_not_listed():
    legal = legal_tilings(PROBLEMS["plain"], "grad_input", SPLIT)
    base = Tiling(16, 16, 16)
    # 5 images of 6 fractals in 3 parts: an end lies 10 fractals on, inside the second image.
    assert replace(base, pixel_dim=3) in legal
    for fields in (
        {"pixel_dim": 5},
        {"pixel_dim": 6},
        {"n_dim": 2},
        {"batch_dim": 2},
        {"pixel_dim": 3, "n_dim": 9},
    ):
        assert replace(base, **fields) not in legal


# -------------------------------------------------------------------------------------------------------
# Does a grid of cores make every gradient once, with the bits that its order asks for, and at equal cost?
# -------------------------------------------------------------------------------------------------------

PLAIN = ConvProblem((5, 40, 9, 10), (24, 40, 3, 3), 1, 1)
GROUPED = ConvProblem((3, 40, 7, 6), (64, 20, 2, 2), 2, groups=2)
DEEP = ConvProblem((2, 18, 4, 5, 5), (18, 18, 2, 1, 2))
DGRAD, WGRAD = Tiling(16, 16, 16, used_cores=3), Tiling(16, 32, 16, used_cores=3)
GRIDS_ONLY = {"grad_input": (True, False, False), "grad_weight": (False, True, False)}


def kernel_of_grids(call, gradient):
    return next(kernel for kernel in lower(call, GRIDS_ONLY[gradient]).kernels if kernel.name == gradient)


def names_of(call):
    names = [kernel.name for kernel in lower(call, GRIDS_ONLY["grad_weight"]).kernels]
    return [name for name in names if not name.startswith("cast")]


def on_grid(problem, gradient, tiling, profile=SPLIT, **options):
    return call_of(problem, profile=profile, tilings={gradient: tiling}, **options)


@pytest.mark.parametrize(
    ("total", "parts", "lengths"),
    [(32, 30, [2] * 16), (32, 8, [4] * 8), (7, 3, [3, 3, 1]), (2, 5, [1, 1]), (5, 0, [5]), (0, 3, [])],
)
def test_parts_are_equal_but_for_the_last(total, parts, lengths):
    made = chunks(total, parts)
    assert [len(part) for part in made] == lengths
    assert [at for part in made for at in part] == list(range(total))


@pytest.mark.parametrize("problem", [PLAIN, GROUPED, DEEP], ids=["plain", "grouped", "deep"])
@pytest.mark.parametrize(
    ("gradient", "tiling"),
    [
        ("grad_input", replace(DGRAD, batch_dim=2, m_dim=3, n_dim=2)),
        ("grad_input", replace(DGRAD, batch_dim=3, n_dim=9, k_split=2)),
        ("grad_weight", replace(WGRAD, batch_dim=2, m_dim=2, n_dim=2)),
        ("grad_weight", replace(WGRAD, batch_dim=2, k_dim=2)),
        ("grad_weight", replace(WGRAD, k_dim=3)),
        ("grad_weight", replace(WGRAD, m_dim=2, n_dim=2)),
    ],
)
def test_a_grid_deals_every_base_block_once_and_gives_the_ordered_bits(problem, gradient, tiling):
    call = on_grid(problem, gradient, tiling)
    schedule = call.schedule(gradient)
    dealt = np.concatenate(schedule.dealt())
    assert len(dealt) == len(np.unique(dealt)) == len(schedule.tasks.tasks)
    tensors = tensors_of(problem)
    made, arrivals = run(call, tensors, mask=GRIDS_ONLY[gradient])
    want = reference_gradients(call, **tensors, arrivals=arrivals, mask=GRIDS_ONLY[gradient])[gradient]
    assert_same_bits(made[gradient], want)


@pytest.mark.parametrize("problem", [PLAIN, DEEP], ids=["plain", "deep"])
def test_parts_of_a_grid_that_are_kept_apart_are_added_in_order(problem):
    tiling = replace(WGRAD, batch_dim=2, k_dim=2, n_dim=2)
    call = on_grid(problem, "grad_weight", tiling, deterministic=True)
    assert call.schedule("grad_weight").target.shape[0] == 4  # 2 parts of the images, each of 2 of the rows
    tensors = tensors_of(problem)
    made, arrivals = run(call, tensors, mask=GRIDS_ONLY["grad_weight"])
    want = reference_gradients(call, **tensors, mask=GRIDS_ONLY["grad_weight"])["grad_weight"]
    assert arrivals is None
    assert_same_bits(made["grad_weight"], want)


@pytest.mark.parametrize("profile", [SPLIT, UNIFIED], ids=["split", "unified"])
@pytest.mark.parametrize(
    ("gradient", "tiling"),
    [
        ("grad_input", replace(DGRAD, batch_dim=5, n_dim=3, used_cores=2)),
        ("grad_weight", replace(WGRAD, batch_dim=5, n_dim=3, used_cores=2)),
    ],
)
def test_more_cells_than_cores_go_round_in_the_same_cycles_on_both_engines(profile, gradient, tiling):
    call = on_grid(PLAIN, gradient, tiling, profile)
    kernel, whole = kernel_of_grids(call, gradient), call.schedule(gradient).dealt()
    assert len(whole) == 2
    timeline = time_kernel(kernel, call.profile)
    assert timeline.cycles == time_kernel(kernel, call.profile, folded=False).cycles


def test_whole_images_leave_cores_idle():
    # 5 images in 4 parts are 2, 2 and 1: three cells of 3 column blocks each, however many cores there are.
    call = on_grid(PLAIN, "grad_input", replace(DGRAD, batch_dim=4, used_cores=5))
    assert [len({task.image for task in tasks}) for tasks in call.schedule("grad_input").dealt()] == [2, 2, 1]


def test_parts_of_the_rows_end_where_rows_do():
    # 9 rows of 10 pixels in 2 parts: 5 rows and 4; runs of 32 pixels end with either.
    call = on_grid(PLAIN, "grad_weight", Tiling(16, 32, 16, 2, 2, k_dim=2))
    cut = call.schedule("grad_weight").tasks
    assert cut.ranges_of_image == [(0, 32), (32, 18), (50, 32), (82, 8)]
    assert cut.grid_parts == [(range(5), range(2)), (range(5), range(2, 4))]


def test_parts_that_are_added_atomically_find_zeros_of_another_kernel():
    tiling = replace(WGRAD, batch_dim=2)
    assert names_of(on_grid(PLAIN, "grad_weight", tiling)) == ["memset_grad_weight", "grad_weight"]
    # Kept apart nothing is added to what is there; and one part is no sum.
    apart = on_grid(PLAIN, "grad_weight", tiling, deterministic=True)
    alone = on_grid(PLAIN, "grad_weight", replace(WGRAD, n_dim=2))
    assert names_of(apart) == names_of(alone) == ["grad_weight"]


def test_a_loop_nest_that_goes_another_way_takes_no_grid():
    plan = Plan("dgrad_columns_outer", replace(DGRAD, batch_dim=2))
    with pytest.raises(ConfigError, match="batch_dim is 2, but schedule dgrad_columns_outer does not"):
        lower(on_grid(PLAIN, "grad_input", plan), GRIDS_ONLY["grad_input"])
