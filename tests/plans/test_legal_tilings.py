"""Are the legal tilings those that the loop nests follow, and do the tuner's steps reach them?"""

from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import product
from time import process_time

import pytest

from ascendsim import Plan, Tiling, estimate, legal_tilings, load_profile
from ascendsim.errors import AscendSimError, CapacityError, ConfigError, UnsupportedError
from ascendsim.instructions.cube import FRACTAL_ROWS, round_up
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.products import DgradGemm, WgradGemm
from ascendsim.ops.schedules.dgrad.nest import Dgrad
from ascendsim.ops.schedules.wgrad.cut import range_in_row
from ascendsim.ops.schedules.wgrad.nest import Wgrad
from ascendsim.ops.tiling.legal_space import CellGrid
from ascendsim.ops.tiling.request import PlanRequest
from ascendsim.studies.engine.run import Budget, Engine, Store
from ascendsim.studies.tuning.records import TilingQuestion, Trial
from ascendsim.studies.tuning.search import (
    Tilings,
    Wish,
    _climb,
    _moves,
    _resized,
    _sizes,
    _sliced,
    _slices,
    neighbours,
    tune,
)
from ascendsim.studies.tuning.tune import Tuner
from ascendsim.workloads import load_workload
from tests.helpers.conv_cases import SPLIT, UNIFIED, blocks_of, segments_of
from tests.helpers.toy_machines import toy_split

# --- Are the legal tilings those that the loop nests follow, each counted once, and drawn evenly? ------

GRADIENTS = ("grad_input", "grad_weight")
PRODUCTS = ("910B2", "910_9382", "950PR_9589", "310P3", "910A")
# One core each, so that brute force has less to go through.
ONE_CORE = {"cores.cube": 1, "cores.vector": 2}


def schedule_of(problem, gradient, tiling, profile):
    kind, gemm = {"grad_input": (Dgrad, DgradGemm), "grad_weight": (Wgrad, WgradGemm)}[gradient]
    return kind(gemm.of(problem, "float16"), tiling, profile)


def fits(problem, gradient, tiling, profile):
    """Return whether a schedule takes a tiling, and the slots of every core can be reserved."""
    try:
        schedule = schedule_of(problem, gradient, tiling, profile)
        for tasks in schedule.dealt():
            schedule.nest(schedule.tasks.sizes(tasks))
    except AscendSimError:
        return False
    return True


def plan_of(problem, gradient, tiling, profile):
    """Return what a tiling makes of a product: tasks of each core, cuts of the reduction, copies."""
    schedule = schedule_of(problem, gradient, tiling, profile)
    cut = schedule.tasks
    copies = [getattr(tiling, f"{name}_buffers") for name in ("al1", "bl1", "al0", "bl0", "cl0")]
    reduction = (
        cut.parts
        if gradient == "grad_input"
        else (cut.ranges_of_image, [segments_of(cut, *key) for key in cut._parts])
    )
    dealt = [blocks_of(cut, tasks) for tasks in schedule.dealt()]
    return repr((dealt, reduction, copies, schedule.canonical.base_k, tiling.k_split))


def held_as_written(schedule):
    """Return whether buffers hold all copies of tiles of just the sizes that a tiling says."""
    t, gemm, cut, held = schedule.tiling, schedule.gemm, schedule.tasks, schedule.profile.buffers
    s, n0 = gemm.sliding, schedule.profile.cube.n0
    size, m, n = s.itemsize, round_up(t.base_m, FRACTAL_ROWS), round_up(t.base_n, n0)
    if isinstance(gemm, DgradGemm):
        unit = FRACTAL_ROWS if t.pixel_dim else 0
        left = s.tile_bytes(t.base_m, cut.left_boxes[0], in_row=cut.in_row, unit=unit)
        right = max(box.groups for box in cut.right_boxes) * s.c0 * n * size
    else:
        pixels = t.step_ka * t.base_k
        in_row = range_in_row(gemm, t, cut.l1_budget)
        left = m * min(pixels, s.pixels) * size
        right = max(s.tile_bytes(pixels, block.box, in_row=in_row) for block in cut.column_blocks)
    k = round_up(t.base_k, schedule.profile.cube.rates[gemm.compute_dtype].k0)
    needed = {
        "L1": t.al1_buffers * left + t.bl1_buffers * right,
        "L0A": t.al0_buffers * m * k * size,
        "L0B": t.bl0_buffers * k * n * size,
        "L0C": t.cl0_buffers * m * n * 4,
    }
    return all(size <= held[name].capacity_bytes for name, size in needed.items())


def says_what_runs(schedule):
    """Return whether the longest run of pixels ends in the last fractal or slice that the tiling says.

    Even parts are cut into blocks of nearly equal length, base_m at most.
    """
    t, cut = schedule.tiling, schedule.tasks
    if isinstance(schedule.gemm, DgradGemm):
        runs, less = cut.pixel_tiles, t.base_m - FRACTAL_ROWS
    else:
        runs, less = cut.ranges_of_image, max((t.step_ka - 1) * t.base_k, t.base_k - FRACTAL_ROWS)
    return bool(t.pixel_dim) or max(pixels for _, pixels in runs) > less


def everything(problem, gradient, profile, step_most):
    """Yield all tilings of whole units up to the sizes of the product, fitting or not."""
    gemm = schedule_of(problem, gradient, Tiling(16, 16, 16), profile).gemm
    s = gemm.sliding
    reduced, cores = gemm.all_taps.groups * s.c0, range(1, profile.cores.cube + 1)
    pixels = range(16, s.pixels + 16, 16)
    if gradient == "grad_input":
        sizes = pixels, range(16, gemm.columns + 1, 16), range(16, reduced + 1, 16)
        splits = range(1, gemm.channel_groups + 1)
    else:
        sizes = range(16, gemm.rows + 1, 16), range(16, reduced + 1, 16), pixels
        splits = cores
    for m, n, k, split, used in product(*sizes, splits, cores):
        most = range(1, min(step_most, -(-sizes[2][-1] // k)) + 1)
        for steps, copies in product(product(most, most), product((1, 2), repeat=5)):
            if gradient == "grad_input" or steps[0] == steps[1]:
                yield Tiling(m, n, k, *steps, *copies, k_split=split, used_cores=used)


# --- counts by hand

POINT = ConvProblem((1, 16, 4, 4), (16, 16, 1, 1))


@pytest.mark.parametrize("gradient", GRADIENTS)
def test_one_fractal_has_as_many_tilings_as_copies(gradient):
    # 16 pixels x 16 channels x 16 channels: one base block, one slice, one task; 1 or 2 copies of five tiles.
    assert len(legal_tilings(POINT, gradient, SPLIT)) == 2**5


def test_images_are_tasks_of_grad_input_and_parts_of_grad_weight():
    three = replace(POINT, input=(3, 16, 4, 4))
    # Three tasks, on 1, 2 or 3 of 5 cores.
    assert legal_tilings(three, "grad_input", SPLIT).count == 3 * 2**5
    # k_split 1, 2, 3 makes as many tasks: 1 + 2 + 3 numbers of cores.
    assert legal_tilings(three, "grad_weight", SPLIT).count == 6 * 2**5


def test_a_buffer_that_holds_one_copy_halves_the_count():
    # A fractal of 16 x 16 float16 is 512 bytes, its float32 sums 1024.
    for name, size in (("L0A", 512), ("L0B", 512), ("L0C", 1024)):
        small = toy_split(**{f"buffers.{name}.capacity_bytes": size})
        for gradient in GRADIENTS:
            assert len(legal_tilings(POINT, gradient, small)) == 2**4


# --- against brute force

TINY = [
    (ConvProblem((1, 16, 3, 5), (32, 16, 2, 1)), {}),
    (ConvProblem((1, 32, 1, 20), (16, 32, 1, 3), 1, 1), {"buffers.L0A.capacity_bytes": 1024}),
    # Rows of 20 pixels: whole ones do not fit everywhere, and blocks of 32 and more pixels are cut alike.
    (ConvProblem((1, 16, 3, 20), (16, 16, 2, 2), 1, 1), {"buffers.L1.capacity_bytes": 4096}),
    (ConvProblem((2, 16, 3, 20), (16, 16, 3, 2), 2, 1), {"buffers.L1.capacity_bytes": 3072}),
    # L1 holds two of three groups of channels, 384 bytes each beside 512 of the other side: four columns that
    # begin inside a group touch three, and so are cut to the two of one group.
    (ConvProblem((1, 48, 3, 4), (16, 48, 2, 1)), {"buffers.L1.capacity_bytes": 1536}),
    (ConvProblem((1, 16, 2, 3, 3), (16, 16, 2, 1, 1), 1, (1, 0, 0), transposed=True), {}),
]


@pytest.mark.parametrize("gradient", GRADIENTS)
@pytest.mark.parametrize(
    ("problem", "figures"),
    [
        pytest.param(*each, id=str(number), marks=[pytest.mark.slow] if number in (2, 3) else [])
        for number, each in enumerate(TINY)
    ],
)
def test_all_tilings_that_a_loop_nest_follows_are_listed_once(problem, figures, gradient):
    profile = toy_split(**ONE_CORE | figures)
    legal = legal_tilings(problem, gradient, profile)
    listed = list(legal)
    assert len(set(listed)) == len(listed) == len(legal) > 0
    tried = set(everything(problem, gradient, profile, step_most=99))
    followed = {tiling for tiling in tried if fits(problem, gradient, tiling, profile)}
    assert set(listed) <= followed
    assert {tiling for tiling in tried if tiling in legal} == set(listed)
    # What is left out means the same as something that is listed: unless it is longer than what runs, or as
    # large as nothing holds, or is blocks of a row of the image, which is no whole number of fractals.
    plans = {plan_of(problem, gradient, tiling, profile) for tiling in listed}
    for tiling in followed:
        meant = schedule_of(problem, gradient, tiling, profile).canonical
        again = schedule_of(problem, gradient, meant, profile)
        made = plan_of(problem, gradient, tiling, profile)
        assert again.canonical == meant
        assert plan_of(problem, gradient, meant, profile) == made
        sound = not meant.base_m % FRACTAL_ROWS and says_what_runs(again) and held_as_written(again)
        assert (made in plans) == sound, (tiling, meant)
        assert tiling not in legal or (tiling == meant and sound)
    # Two base blocks are two plans, if all else is equal.
    apart = {(plan_of(problem, gradient, t, profile), replace(t, base_m=16, base_n=16)) for t in listed}
    assert len(apart) == len(listed)


@pytest.mark.parametrize("gradient", GRADIENTS)
@pytest.mark.parametrize("profile", [SPLIT, UNIFIED], ids=["split", "unified"])
def test_cores_and_parts_are_counted_as_they_are_listed(profile, gradient):
    legal = legal_tilings(ConvProblem((3, 16, 3, 5), (16, 16, 2, 1)), gradient, profile)
    listed = list(legal)
    assert len(set(listed)) == len(listed) == legal.count
    # Three images of 15 pixels are three base blocks; three parts of two column blocks are six.
    tasks = 3 if gradient == "grad_input" else 6
    assert max(tiling.used_cores for tiling in listed) == min(tasks, profile.cores.cube)


# --- what is in, and what is not


def test_what_says_the_same_or_nothing_is_not_in():
    # 90 pixels of 9 x 10, 2 groups of 16 channels in, 9 taps: the reduction is 18 slices of 16.
    legal = legal_tilings(ConvProblem((3, 20, 9, 10), (24, 20, 3, 3), 1, 1), "grad_input", SPLIT)
    base = Tiling(16, 16, 16)
    assert base in legal
    others = [
        replace(base, swizzle=2),  # no field of this schedule
        replace(base, base_m=24),  # a fractal and a half
        replace(base, base_n=48),  # more columns than there are
        replace(base, base_k=32 * 9 + 16),
        replace(base, step_ka=4),  # holds no more than the three taps of a kernel row
        replace(base, k_split=3),  # of two groups
        replace(base, used_cores=6),  # of five
        replace(base, al0_buffers=3),
        replace(base, al1_buffers=3),
        replace(base, base_k=16 * 9),  # 16 x 144 x 2 bytes, twice, in 2 KiB
        replace(base, base_n=32, step_kb=18),  # 18 slices of weights, twice, in 8 KiB
    ]
    assert [tiling in legal for tiling in others] == [False] * len(others)
    assert "tiling" not in legal
    assert replace(base, used_cores=5, step_ka=3, k_split=2) in legal


def test_of_grad_weight_both_steps_are_equal():
    legal = legal_tilings(ConvProblem((3, 20, 9, 10), (24, 20, 3, 3), 1, 1), "grad_weight", SPLIT)
    assert Tiling(16, 16, 16, 2, 2) in legal
    assert Tiling(16, 16, 16, 2, 1) not in legal


@pytest.mark.parametrize("gradient", ["grad_bias", "matmul"])
def test_another_gradient_is_refused(gradient):
    with pytest.raises(ConfigError, match=f"gradient is '{gradient}'; it must be grad_input or"):
        legal_tilings(POINT, gradient, SPLIT)


def test_a_format_that_the_cube_does_not_multiply_is_refused():
    with pytest.raises(UnsupportedError, match="dtype is 'bfloat16', which the cube of 910A does not"):
        legal_tilings(POINT, "grad_input", "910A", "bfloat16")


# --- samples

LAYER = ConvProblem((2, 96, 14, 14), (64, 96, 3, 3), 1, 1)


@cache
def profile_of(name):
    return load_profile(name)


@pytest.mark.parametrize("product", PRODUCTS)
def test_what_is_drawn_runs(product):
    profile = profile_of(product)
    for gradient in GRADIENTS:
        legal = legal_tilings(LAYER, gradient, profile)
        drawn = legal.sample(20, seed=3)
        assert all(tiling in legal and fits(LAYER, gradient, tiling, profile) for tiling in drawn)
    # 1 x 1 blocks of a small image take no time, so that whole estimates can be made.
    small = ConvProblem((2, 40, 5, 9), (24, 40, 2, 3), 1, 1)
    both = [legal_tilings(small, gradient, profile).sample(4, seed=5) for gradient in GRADIENTS]
    for pair in zip(*both, strict=True):
        tilings = dict(zip(GRADIENTS, pair, strict=True))
        made = estimate(small, product=profile, tiling=tilings, output_mask=(True, True, False))
        assert {k.name: k.plan.tiling for k in made.kernels if k.plan is not None} == tilings


# Of images of wide rows L1 holds few whole ones, so that blocks stay inside a row.
DRAWN_FROM = {
    "rows of 14": LAYER,
    "rows of 223": ConvProblem((2, 80, 223, 223), (48, 80, 3, 3), 1, 1),
    "rows of 230": ConvProblem((1, 64, 12, 460), (32, 64, 3, 5), 2, (1, 2)),
    "groups": ConvProblem((2, 96, 30, 30), (96, 32, 3, 3), 1, 1, groups=3),
    "one row": ConvProblem((2, 96, 700), (64, 96, 7), 1, 3),
}


@pytest.mark.parametrize("gradient", GRADIENTS)
@pytest.mark.parametrize("problem", DRAWN_FROM.values(), ids=DRAWN_FROM)
def test_what_is_drawn_says_what_runs(problem, gradient):
    # 2,000 in all.
    profile = profile_of("910B2")
    drawn = legal_tilings(problem, gradient, profile).sample(200, seed=11)
    assert len(set(drawn)) > 190
    for tiling in drawn:
        schedule = schedule_of(problem, gradient, tiling, profile)
        assert schedule.canonical == tiling
        assert says_what_runs(schedule)
        assert held_as_written(schedule)


LONGER = {
    "a row": ("grad_input", {"base_m": 9200}, {"base_m": 230}),
    "a part": ("grad_input", {"base_m": 16, "base_k": 400, "k_split": 4}, {"base_k": 16 * 9}),
    "boxes": ("grad_input", {"base_m": 16, "step_ka": 14}, {"step_ka": 9}),
    "columns": ("grad_weight", {"base_n": 4096}, {"base_n": 16 * 9}),
    "rows": ("grad_weight", {"base_m": 1024}, {"base_m": 64}),
}


@pytest.mark.parametrize(("gradient", "given", "runs"), LONGER.values(), ids=LONGER)
def test_of_a_tiling_that_is_longer_than_what_runs_the_result_says_what_runs(gradient, given, runs):
    problem = ConvProblem((1, 16, 40, 230), (64, 16, 3, 3), 1, 1)
    base, mask = (
        Tiling(16, 16, 16, used_cores=2),
        (gradient == "grad_input", gradient == "grad_weight", False),
    )
    results = [
        estimate(problem, product="910B2", tiling={gradient: replace(base, **fields)}, output_mask=mask)
        for fields in (given, given | runs)
    ]
    assert [result.plans[gradient].tiling for result in results] == [replace(base, **given | runs)] * 2
    assert results[0].cycles == results[1].cycles


def test_equal_seeds_draw_equal_tilings():
    legal = legal_tilings(LAYER, "grad_input", "910B2")
    assert legal.sample(20, seed=7) == legal.sample(20, seed=7) == legal.sample(30, seed=7)[:20]
    assert legal.sample(20, seed=7) != legal.sample(20, seed=8)


def test_fields_that_no_buffer_decides_are_drawn_uniformly():
    # Tasks: 5 images on 5 cores; copies of one fractal all fit. 3,000 draws: 600 of each number of cores with
    # a deviation of 22, 1,500 of each number of copies with one of 27; four of them are allowed.
    drawn = legal_tilings(replace(POINT, input=(5, 16, 4, 4)), "grad_input", SPLIT).sample(3000, seed=1)
    cores = Counter(tiling.used_cores for tiling in drawn)
    assert set(cores) == {1, 2, 3, 4, 5}
    assert max(abs(count - 600) for count in cores.values()) < 88
    for name in ("al1", "bl1", "al0", "bl0", "cl0"):
        copies = Counter(getattr(tiling, f"{name}_buffers") for tiling in drawn)
        assert set(copies) == {1, 2}
        assert abs(copies[1] - 1500) < 108


def test_sizes_and_parts_that_no_buffer_decides_are_drawn_uniformly():
    # 64 pixels: 4 sizes; 48 channels either way: 3 sizes. A base_k of 48 leaves one part, one of 32 two, as
    # the longest has two of three groups, one of 16 three. 2,400 draws: 600 of each with a deviation of 21,
    # 800 with one of 23, 1467 with one of 24. L0A of 64 KiB holds 64 x 48 x 2 bytes, and so do the others.
    drawn = legal_tilings(ConvProblem((1, 48, 8, 8), (48, 48, 1, 1)), "grad_input", "910B2").sample(2400)
    parts = {1: 800 * (1 + 1 / 2 + 1 / 3), 2: 800 * (1 / 2 + 1 / 3), 3: 800 / 3}
    uniform = (("base_m", range(16, 65, 16)), ("base_n", range(16, 49, 16)), ("base_k", range(16, 49, 16)))
    meant = {name: dict.fromkeys(values, 2400 / len(values)) for name, values in uniform} | {"k_split": parts}
    for name, counts in meant.items():
        found = Counter(getattr(tiling, name) for tiling in drawn)
        assert found.keys() == counts.keys()
        assert max(abs(found[value] - count) for value, count in counts.items()) < 98


def test_where_nothing_fits_nothing_is_drawn():
    # 16 pixels with stride 400 read 15 * 400 + 1 pixels of 32 bytes at once; L1 holds 8 KiB.
    legal = legal_tilings(ConvProblem((1, 1, 8000), (1, 1, 1), 400), "grad_weight", SPLIT)
    assert legal.count == 0
    assert list(legal) == []
    with pytest.raises(CapacityError, match="no tiling of schedule wgrad fits into the buffers of toy_split"):
        legal.sample(1)


@pytest.mark.parametrize(
    ("count", "seed"), [(None, 0), (2.5, 0), (-1, 0), ([3], 0), (3, None), (3, "a"), (True, 0)]
)
def test_a_count_or_a_seed_that_is_no_number_is_refused(count, seed):
    legal = legal_tilings(ConvProblem((1, 48, 8, 8), (48, 48, 1, 1)), "grad_input", "910B2")
    with pytest.raises(
        ConfigError, match=r"^LegalTilings\.sample: (count|seed) is .*; it must be a whole number from 0 on$"
    ):
        legal.sample(count, seed)


# --- Do the steps of the tuner reach plans with even parts of all pixels, each in one spelling? --------

PROFILE = load_profile("910B2")
# 28 x 28 pixels are 49 fractals of 16, and 128 channels: s3b1_3x3 of ResNet-50.
TUNED_LAYER = ConvProblem((32, 128, 28, 28), (128, 128, 3, 3), padding=1)
SEARCHED = Tiling(400, 64, 32, 9, 36, used_cores=24)


@pytest.fixture(scope="module")
def tilings():
    return Tilings(PlanRequest(TUNED_LAYER, "grad_input", "float16", PROFILE))


def test_tilings_are_of_one_gradient_that_has_a_nest():
    with pytest.raises(ConfigError, match="gradient is 'grad_bias'; it must be grad_input or grad_weight"):
        Tilings(PlanRequest(TUNED_LAYER, "grad_bias", "float16", PROFILE))


def test_from_whole_blocks_a_step_leads_to_even_parts_and_another_back(tilings):
    near = neighbours(Plan("dgrad", SEARCHED), tilings)
    grids = {(plan.tiling.pixel_dim, plan.tiling.n_dim) for plan in near}
    # 24 cores: 24 parts of the pixels; 12, times 2 of the columns; 24, with both column blocks in turn. Two
    # blocks are in no 3 parts.
    assert grids == {(0, 0), (24, 0), (12, 2), (24, 2)}
    even = next(plan for plan in near if plan.tiling.pixel_dim)
    assert any(not plan.tiling.pixel_dim for plan in neighbours(even, tilings))
    legal = legal_tilings(TUNED_LAYER, "grad_input", PROFILE)
    both = (*near, *neighbours(even, tilings))
    assert [plan for plan in both if plan.tiling not in legal] == []
    assert {plan.tiling.used_cores for plan in both if plan.tiling.pixel_dim} == {24}


def test_the_longest_block_is_the_one_that_l0_holds_in_as_many_copies(tilings):
    wish = replace(Wish.of(SEARCHED), grid=CellGrid(24, 0))
    # L0A: 64 KiB, two copies of m x 32 x 2 bytes: 512 rows. L0C: 128 KiB, one of m x 64 x 4 bytes: 512.
    assert tilings.longest(wish).base.m == 512
    # One copy in L0A holds 1024 rows, in L0C still 512; two in L0C 256.
    assert tilings.longest(replace(wish, copies=(2, 2, 1, 2, 1))).base.m == 512
    assert tilings.longest(replace(wish, copies=(2, 2, 2, 2, 2))).base.m == 256


def test_column_parts_are_no_more_than_column_blocks(tilings):
    wish = replace(Wish.of(SEARCHED), grid=CellGrid(24, 5))
    plan = tilings.plan(wish)
    # 128 channels in blocks of 64 are two.
    assert (plan.tiling.pixel_dim, plan.tiling.n_dim) == (24, 2)
    # 32 parts of 32 images end with images: ranges of whole blocks are the same.
    assert tilings.plan(replace(wish, grid=CellGrid(32, 0))) is None


def test_grids_of_whole_images_are_asked_for_as_ranges():
    grid = replace(SEARCHED, batch_dim=8, m_dim=3, n_dim=1)
    assert Wish.of(grid) == Wish.of(SEARCHED)


def test_even_parts_beat_the_search_by_5_percent_in_200_plans_and_20_seconds():
    # Where the search has 64 blocks along m times 2 along n, 6 rounds at most and 5.33 were they even.
    layer = ConvProblem(**load_workload("resnet50").layer("s3b1_3x3").problem_options(32))
    asked = TilingQuestion("s3b1_3x3", "910B2", layer, "grad_input", starts=("warm",), trials=200)
    tuner = Tuner(asked, Engine(Store(), 1), Budget(), "float16")
    begin = process_time()
    _, best = tune(tuner)
    assert process_time() - begin < 20
    assert len(tuner.trials) <= 200
    assert best.plan.tiling.pixel_dim
    assert tuner.score(best) <= 0.95 * tuner.score(tuner.chosen("search"))


def at(size):
    """A plan that stands for a number."""
    return Plan("wgrad", Tiling(size, 16, 16))


class Scored:
    """Stands for a tuner: the score of a plan is how far its base_m is from 100; `groups` were asked for."""

    def __init__(self, trials):
        self.trials, self.left, self.groups = {}, trials, []

    def try_all(self, plans, found_by, best):
        """Remember the plans that are new."""
        assert best == self.score(self.here)
        self.groups.append([plan.tiling.base_m for plan in plans])
        new = {plan: Trial(plan, found_by, {}) for plan in plans if plan not in self.trials}
        self.trials |= new
        self.left -= len(new)

    def neighbours(self, plan):
        """30 steps: twelve down, twelve down and one up by one, and six, of which one is up by ten."""
        self.here = Trial(plan, "steps", {})
        size = plan.tiling.base_m
        return [at(size - step) for step in (*range(1, 13), *range(13, 24), -1, 24, 25, 26, -10, 27, 28)]

    @staticmethod
    def score(trial):
        """Return how far it is."""
        return abs(100 - trial.plan.tiling.base_m)


def test_a_climb_steps_after_each_group_of_neighbours_and_ends_where_none_is_better():
    made = Scored(10_000)
    _climb(made, made.neighbours, Trial(at(78), "steps", {}))
    # Groups of 12, 12 and 6 in turn. Down is no better, so 78 stays; one up is 79, from where ten up is 89.
    # Again: 90, 100. Nothing is better than that, which three groups say.
    assert [len(group) for group in made.groups] == [12, 12, 6, 12, 12, 6, 12, 12, 6]
    assert [max(group) for group in made.groups] == [77, 79, 89, 88, 90, 100, 99, 101, 110]


def test_a_climb_ends_where_trials_do():
    # The third group begins from 51 and asks for one number again: 29 plans are new.
    made = Scored(29)
    _climb(made, made.neighbours, Trial(at(50), "steps", {}))
    assert len(made.groups) == 3


# ---- Steps of the fields of a plan, reckoned by hand

FIELDS = {
    "base_m": 64,
    "base_n": 32,
    "base_k": 32,
    "step_ka": 4,
    "step_kb": 2,
    "k_split": 2,
    "single_core_m": 192,
    "single_core_n": 0,
    "single_core_k": 64,
    "transpose_first": False,
    **dict.fromkeys(("al1_buffers", "bl1_buffers", "al0_buffers", "bl0_buffers"), 2),
    "cl0_buffers": 1,
}


@pytest.mark.parametrize(
    ("base", "sizes"),
    [
        # Twice, half, a fractal of 16 more and less, 3/2, 2/3 (42, so 32 again).
        (64, [128, 32, 80, 48, 96]),
        # Half is no fractal; 24 and 10 are 16 and none.
        (16, [32]),
        (48, [96, 16, 64, 32]),
    ],
)
def test_sizes_near_that_of_a_block(base, sizes):
    assert _sizes({"base_m": base}, "m") == sizes


def test_a_resized_block_keeps_how_many_of_it_a_share_has():
    assert _resized(FIELDS, m=32) == FIELDS | {"base_m": 32, "single_core_m": 96}
    # Without a share there stays none; of less than a block it becomes one.
    assert _resized(FIELDS, n=64) == FIELDS | {"base_n": 64}
    assert _resized(FIELDS | {"single_core_m": 32}, m=16)["single_core_m"] == 16


def test_other_slices_keep_the_tiles_of_l1_as_long():
    assert _sliced(FIELDS, 64) == FIELDS | {"base_k": 64, "step_ka": 2, "step_kb": 1}
    assert _sliced(FIELDS, 16) == FIELDS | {"base_k": 16, "step_ka": 8, "step_kb": 4}
    assert _sliced(FIELDS, 256)["step_kb"] == 1


def slices(gradient):
    return [(step["base_k"], step["step_ka"], step["step_kb"]) for step in _slices(FIELDS, gradient)]


def test_steps_of_slices():
    # 64, 16, 48, 16, 40 and 96 of a slice, each with as many slices in L1 and with tiles as long.
    sizes = [(64, 4, 2), (64, 2, 1), (16, 4, 2), (16, 8, 4), (48, 4, 2), (48, 2, 1), (16, 4, 2), (16, 8, 4)]
    sizes += [(40, 4, 2), (40, 3, 1), (96, 4, 2), (96, 1, 1)]
    one_more = [(32, 5, 3), (32, 3, 1)]
    both = [(32, 8, 4), (32, 2, 1)]
    assert slices("grad_weight") == [*sizes, *both, *one_more]
    alone = [(32, 8, 2), (32, 4, 4), (32, 2, 2), (32, 4, 1)]
    assert slices("grad_input") == [*sizes, *both, *alone, *one_more]


def test_steps_of_base_blocks():
    moved = list(_moves(FIELDS, "grad_input"))
    blocks = [(step["base_m"], step["base_n"], step["base_k"]) for step in moved]
    rows, columns = [128, 32, 80, 48, 96], [64, 16, 48]
    expected = [(m, 32, 32) for m in rows] + [(64, n, 32) for n in columns]
    # Three quarters: 48, and 24, so 16; each and both.
    expected += [(48, 32, 32), (64, 16, 32), (48, 16, 32)]
    # A half of each side with slices twice as long, a quarter of m with four times, an eighth is no fractal.
    expected += [(64, 16, 64), (32, 32, 64), (16, 32, 128)]
    expected += [(m, n, 32) for m in rows for n in columns]
    assert blocks[: len(expected)] == expected
    shares = [(step["single_core_m"], step["single_core_n"]) for step in moved[len(expected) :][:4]]
    # Twice and half of a share, no less than a block; without one, of a block.
    assert shares == [(384, 0), (96, 0), (192, 64), (192, 32)]
    end = moved[-8:]
    copies = ("al1_buffers", "bl1_buffers", "al0_buffers", "bl0_buffers", "cl0_buffers")
    assert [next(name for name in copies if step[name] != FIELDS[name]) for step in end[:5]] == list(copies)
    assert [end[at][name] for at, name in enumerate(copies)] == [1, 1, 1, 1, 2]
    assert end[5] == FIELDS | {"al1_buffers": 1, "bl1_buffers": 1, "step_ka": 8, "step_kb": 4}
    assert end[6] == FIELDS | {"transpose_first": True}
    assert end[7] == FIELDS | {"k_split": 1, "single_core_k": 0}
    assert list(_moves(FIELDS, "grad_weight"))[-1] == FIELDS | {"transpose_first": True}
