"""Are the legal tilings those that the loop nests follow, each counted once, and drawn evenly?"""

from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import product

import pytest

from ascendsim import Tiling, estimate, legal_tilings, load_profile
from ascendsim.errors import AscendSimError, CapacityError, ConfigError, UnsupportedError
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.products import DgradGemm, WgradGemm
from ascendsim.ops.schedules.dgrad.nest import Dgrad
from ascendsim.ops.schedules.wgrad.nest import Wgrad
from tests.helpers.conv_cases import SPLIT, UNIFIED
from tests.helpers.toy_profiles import toy_split

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
        else (cut.ranges_of_image, [list(cut.part(*key)) for key in cut._parts])
    )
    dealt = [list(tasks) for tasks in schedule.dealt()]
    return repr((dealt, reduction, copies, tiling.base_k, tiling.k_split))


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
@pytest.mark.parametrize(("problem", "figures"), TINY, ids=[str(number) for number in range(len(TINY))])
def test_all_tilings_that_a_loop_nest_follows_are_listed_once(problem, figures, gradient):
    profile = toy_split(**ONE_CORE | figures)
    legal = legal_tilings(problem, gradient, profile)
    listed = list(legal)
    assert len(set(listed)) == len(listed) == len(legal) > 0
    tried = set(everything(problem, gradient, profile, step_most=99))
    followed = {tiling for tiling in tried if fits(problem, gradient, tiling, profile)}
    assert set(listed) <= followed
    assert {tiling for tiling in tried if tiling in legal} == set(listed)
    # What is left out means the same as something that is listed.
    plans = {plan_of(problem, gradient, tiling, profile) for tiling in listed}
    # Two base blocks are two plans, if all else is equal.
    apart = {(plan_of(problem, gradient, t, profile), replace(t, base_m=16, base_n=16)) for t in listed}
    assert len(apart) == len(listed)
    assert {plan_of(problem, gradient, tiling, profile) for tiling in followed} == plans


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
    # 64 pixels: 4 sizes; 48 channels either way: 3 sizes, 3 parts. 2,400 draws: 600 of each with a deviation
    # of 21, 800 with one of 23. L0A of 64 KiB holds 64 x 48 x 2 bytes, and so do the others.
    drawn = legal_tilings(ConvProblem((1, 48, 8, 8), (48, 48, 1, 1)), "grad_input", "910B2").sample(2400)
    for name, values in (("base_m", 4), ("base_n", 3), ("base_k", 3), ("k_split", 3)):
        found = Counter(getattr(tiling, name) for tiling in drawn)
        assert len(found) == values
        assert max(abs(count - 2400 / values) for count in found.values()) < 92


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
