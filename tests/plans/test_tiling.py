"""Is a plan always legal, obeyed, and refused by name where it does not fit?"""

from dataclasses import fields, replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ascendsim.errors import CapacityError, ConfigError
from ascendsim.ops.lowering.kernels import lower
from ascendsim.ops.plan import GRID, OF_ONE_BASE_BLOCK, UNCUT, Tiling, even_parts, shares
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.profile import load_profile
from tests.helpers.conv_cases import (
    Case,
    assert_same_bits,
    call_of,
    check_bits,
    filter_schedule,
    image_schedule,
    problems,
    profile_of,
    run,
    tensors_of,
)
from tests.helpers.slow_tilings import chosen_plan

ALL = (True, True, True)
PRODUCTS = ("910B", "910_93", "910_95", "310P", "910")


def build_all(call):
    """Build every program of a call; a capacity that is not kept raises. Return the kernels by name."""
    kernels = {kernel.name: kernel for kernel in lower(call, ALL).kernels}
    for kernel in kernels.values():
        for phase in kernel.phases:
            for work in phase.work:
                work.build()
    return kernels


# --- always legal


TOYS = ("toy_split", "toy_unified")
PLAIN_MODES = [("float16", 0), ("float32", 0), ("float32", 1), ("float32", 2)]


@pytest.mark.parametrize("name", [*TOYS, *PRODUCTS])
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_every_problem_has_a_legal_plan(name, data):
    profile = profile_of(name)
    modes = PLAIN_MODES if "float32" in profile.cube.rates else [("float16", 0), ("float32", 2)]
    limits = (20, 120) if name in TOYS else (40, 900)
    problem, mode = data.draw(problems(*limits)), data.draw(st.sampled_from(modes))
    build_all(call_of(problem, *mode, profile=profile, deterministic=data.draw(st.booleans())))


@pytest.mark.slow
@pytest.mark.parametrize("name", [*TOYS, *PRODUCTS])
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), deterministic=st.booleans())
def test_many_problems_have_a_legal_plan(name, data, deterministic):
    # The toys' buffers are so small that large problems would be millions of instructions.
    problem = data.draw(problems(*((30, 300) if name in TOYS else (200, 4000))))
    build_all(call_of(problem, profile=profile_of(name), deterministic=deterministic))


EXTREMES = [
    ConvProblem((1, 1, 1, 1), (1, 1, 1, 1)),
    ConvProblem((1, 3, 224, 224), (64, 3, 7, 7), 2, 3),
    ConvProblem((1, 4, 70, 70), (3, 4, 63, 63), 1, 0),  # a huge kernel
    ConvProblem((1, 2, 300), (3, 2, 255), 1, 17),
    ConvProblem((1, 5, 40000), (6, 5, 3), 1, 1),  # very wide rows
    ConvProblem((1, 5, 3, 20000), (6, 5, 3, 3), 1, 1),
    ConvProblem((1, 3, 2, 9000), (4, 3, 2, 5), (1, 63), (0, 40), (1, 31)),  # large stride and dilation
    ConvProblem((1, 3, 900, 5), (4, 3, 9, 2), (63, 1), (40, 0), (15, 1)),
    ConvProblem((1, 4099, 3, 3), (17, 4099, 1, 1)),  # any number of channels
    ConvProblem((1, 17, 3, 3), (4099, 17, 3, 3), 1, 1),
    ConvProblem((1, 2048, 7, 7), (512, 2048, 1, 1)),
    ConvProblem((1, 64, 9, 9), (64, 1, 3, 3), 1, 1, groups=64),
    ConvProblem((1, 2, 2, 2), (3, 2, 1, 1), 1, 255),  # almost nothing but padding
    ConvProblem((1, 2, 3, 3), (2, 3, 3, 3), 31, 0, 1, True, 30),
    ConvProblem((1, 3, 20, 9, 9), (4, 3, 15, 3, 3), 1, 1, (1, 2, 2)),
    ConvProblem((1, 3, 1, 9, 9), (4, 3, 1, 3, 3), (4, 1, 1), (1, 1, 1)),  # no depth meets any other
    ConvProblem((3, 601, 1, 1), (601, 1, 1, 1), groups=601),
]
# What does not fit in 8 KiB, such as 16 pixels with stride 63, and what makes 10^5 tiles of that size.
NOT_FOR_TOYS = (1, 2, 5, 6, 7, 10)


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("problem", EXTREMES, ids=lambda p: f"{p.input}{p.weight}".replace(" ", ""))
def test_extreme_problems_have_a_legal_plan(problem, name):
    build_all(call_of(problem, profile=profile_of(name)))


@pytest.mark.parametrize("name", TOYS)
@pytest.mark.parametrize("number", [i for i in range(len(EXTREMES)) if i not in NOT_FOR_TOYS])
def test_extreme_problems_have_a_legal_plan_in_tiny_buffers(number, name):
    build_all(call_of(EXTREMES[number], profile=profile_of(name)))


def test_a_reduction_that_meets_no_depth_gives_zeros():
    problem = EXTREMES[15]
    gradients, _ = run(call_of(problem), tensors_of(problem))
    assert not gradients["grad_input"].any()
    assert not gradients["grad_weight"].any()


# --- all cores


LARGE = [
    ConvProblem((4, 64, 56, 56), (64, 64, 3, 3), 1, 1),
    ConvProblem((4, 128, 28, 28), (128, 128, 3, 3), 1, 1),
    ConvProblem((4, 512, 7, 7), (2048, 512, 1, 1)),
    ConvProblem((4, 1024, 14, 14), (2048, 1024, 1, 1), 2),
]


# (product, number of the problem): cores that work on grad_weight where the search leaves some idle, and the
# base blocks that they have, one each: 128 rows in 2 of 64 and 9 x 128 columns in 12 of 96. More cores would
# need parts of the reduction, which are added in memory.
IDLE = {("910", 1): 2 * 12}


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("problem", LARGE, ids=lambda p: f"{p.input}{p.weight}".replace(" ", ""))
def test_large_shapes_use_every_core_but_for_the_blocks_that_are_named(problem, name):
    # Our own search: an operator of the first generation leaves cores idle rather than load an operand twice.
    profile = profile_of(name)
    searched = dict.fromkeys(("grad_input", "grad_weight"), "search")
    call = call_of(problem, profile=profile, tilings=searched)
    kernels = {kernel.name: kernel for kernel in lower(call, ALL).kernels}
    for gradient in ("grad_input", "grad_weight"):
        computing = [phase for phase in kernels[gradient].phases if phase.name == "compute"]
        usual = profile.cores.cube
        expected = IDLE.get((name, LARGE.index(problem)), usual) if gradient == "grad_weight" else usual
        assert [len(phase.work) for phase in computing] == [expected], gradient


# --- the user's plan


PROBLEM = ConvProblem((3, 20, 9, 10), (24, 20, 3, 3), 1, 1)
# C0 = 16: grad_input m = 90 pixels, n = 20 channels (32 padded), k = 2 * 9 * 16; grad_weight m = 24 (32),
# n = 2 * 9 * 16, k = 90 pixels of three images.
IMAGE_PLANS = [
    Tiling(16, 16, 16),
    Tiling(32, 16, 16, 3, 3, used_cores=2),
    Tiling(16, 32, 16, 2, 5, cl0_buffers=2, used_cores=5),
    Tiling(24, 16, 16, 1, 1, 1, 1, 1, 1, used_cores=4),  # a row and a half at a time, single buffers
    Tiling(16, 16, 16, 9, 3, k_split=2, used_cores=3),
]
FILTER_PLANS = [
    Tiling(16, 16, 16),
    Tiling(32, 16, 16, 2, 2, 1, 1, used_cores=5),
    Tiling(16, 32, 16, 1, 1, cl0_buffers=2, k_split=2, used_cores=4),
    Tiling(16, 16, 16, 3, 3, 1, 1, 1, 1, k_split=7, used_cores=3),
    Tiling(
        16, 16, 32, 1, 1, al0_buffers=1, bl0_buffers=1, k_split=100, used_cores=5
    ),  # more parts than steps
]


def mmads(kernel):
    """Return the Mmads of every core."""
    [phase] = [phase for phase in kernel.phases if phase.name == "compute"]
    programs = [work.build() for work in phase.work]
    return [[i for i in program.instructions if type(i).__name__ == "Mmad"] for program in programs]


def obeys(kernel, plan):
    every = [i for core in mmads(kernel) for i in core]
    assert max(i.m for i in every) == plan.base_m
    assert max(i.n for i in every) == plan.base_n
    assert max(i.k for i in every) == plan.base_k
    assert len(mmads(kernel)) == plan.used_cores
    copies = {
        "A1": plan.al1_buffers,
        "B1": plan.bl1_buffers,
        "A0": plan.al0_buffers,
        "B0": plan.bl0_buffers,
        "C0": plan.cl0_buffers,
    }
    [phase] = [phase for phase in kernel.phases if phase.name == "compute"]
    for work in phase.work:
        slots = [slot.name.split("[")[0] for slot in work.build().slots]
        assert {name: slots.count(name) for name in copies} == copies


@pytest.mark.parametrize("plan", IMAGE_PLANS, ids=str)
def test_a_plan_of_grad_input_is_obeyed_and_right(plan):
    call = call_of(PROBLEM, tilings={"grad_input": plan})
    [kernel] = [k for k in lower(call, (True, False, False)).kernels if k.name == "grad_input"]
    obeys(kernel, plan)
    # Five slices mean the three of a kernel row.
    assert kernel.facts["plan"].tiling == replace(plan, step_kb=3 if plan.step_kb == 5 else plan.step_kb)
    check_bits(Case(PROBLEM, tilings=(("grad_input", plan),), order=3))


@pytest.mark.parametrize("plan", FILTER_PLANS, ids=str)
def test_a_plan_of_grad_weight_is_obeyed_and_right(plan):
    call = call_of(PROBLEM, tilings={"grad_weight": plan})
    [kernel] = [k for k in lower(call, (False, True, False)).kernels if k.name == "grad_weight"]
    obeys(kernel, plan)
    check_bits(Case(PROBLEM, tilings=(("grad_weight", plan),), order="arrival"))
    check_bits(Case(PROBLEM, tilings=(("grad_weight", plan),), deterministic=True, order=4))


def test_steps_say_how_much_of_the_reduction_one_tile_in_l1_holds():
    plan = Tiling(16, 16, 16, 3, 9)
    schedule = image_schedule(call_of(PROBLEM, tilings={"grad_input": plan})).tasks
    assert {box.groups for box in schedule.left_boxes} == {3}  # a kernel row of one channel group
    assert {box.groups for box in schedule.right_boxes} == {9}
    plan = Tiling(16, 16, 16, 2, 2)
    schedule = filter_schedule(call_of(PROBLEM, tilings={"grad_weight": plan})).tasks
    assert {pixels for _, pixels in schedule.ranges_of_image} == {32, 26}  # 90 = 2 * 32 + 26


def test_the_plan_changes_where_blocks_begin_and_nothing_else():
    # Whole numbers are exact however they are summed; random ones show that the plans differ.
    exact, rounded = set(), set()
    for plan in IMAGE_PLANS[:2]:
        call = call_of(PROBLEM, "float32", tilings={"grad_input": replace(plan, base_n=8, base_k=8)})
        for data, found in (("integers", exact), ("normal", rounded)):
            gradients, _ = run(call, tensors_of(PROBLEM, "float32", data), mask=(True, False, False))
            found.add(gradients["grad_input"].tobytes())
    assert len(exact) == 1
    assert len(rounded) >= 1


# --- what does not fit


@pytest.mark.parametrize(
    ("gradient", "plan", "message"),
    [
        # the toy: L1 8 KiB, L0A and L0B 2 KiB, L0C 4 KiB
        # A0: 48 pixels (3 fractals) * 32 * 2 bytes * 2 copies
        (
            "grad_input",
            Tiling(48, 16, 32),
            r"L0A of toy_split holds 2048 bytes, but A0 \(2 x 3072\) .* need to 6144",
        ),
        (
            "grad_input",
            Tiling(16, 32, 32),
            r"L0B of toy_split holds 2048 bytes, but B0 \(2 x 2048\) .* need to 4096",
        ),
        # C0: 32 * 32 * 4 bytes * 2 copies
        (
            "grad_input",
            Tiling(32, 32, 16, cl0_buffers=2),
            r"L0C of toy_split holds 4096 bytes, but C0 \(2 x 4096\)",
        ),
        # B1: 18 (channel group, tap) pairs * 16 * 32 columns * 2 bytes, after two image tiles
        ("grad_input", Tiling(16, 32, 16, 1, 18), r"L1 of toy_split holds 8192 bytes, but B1 \(2 x 18432\)"),
        (
            "grad_weight",
            Tiling(32, 16, 32, 1, 1, 1, 1),
            r"L0A of toy_split holds 2048 bytes, but A0 \(2 x 2048\) .* need to 4096",
        ),
        (
            "grad_weight",
            Tiling(16, 32, 32, 1, 1, 1, 1),
            r"L0B of toy_split holds 2048 bytes, but B0 \(2 x 2048\) .* need to 4096",
        ),
        (
            "grad_weight",
            Tiling(32, 32, 16, cl0_buffers=2),
            r"L0C of toy_split holds 4096 bytes, but C0 \(2 x 4096\) .* need to 8192; take a smaller tile",
        ),
    ],
)
def test_a_plan_that_does_not_fit_names_buffer_need_and_capacity(gradient, plan, message):
    with pytest.raises(CapacityError, match=message):
        build_all(call_of(PROBLEM, tilings={gradient: plan}))


def test_a_reduction_of_grad_weight_that_does_not_fit_names_l1():
    # Two tiles of 192 pixels * 16 channels * 2 bytes of the left operand alone are 12 KiB.
    call = call_of(
        ConvProblem((1, 20, 2, 200), (24, 20, 3, 3), 1, 1), tilings={"grad_weight": Tiling(16, 16, 64, 3, 3)}
    )
    with pytest.raises(
        CapacityError, match=r"L1 of toy_split holds 8192 bytes, but A1 \(2 x 6144\) .* to 12288"
    ):
        build_all(call)


def test_a_problem_of_which_nothing_fits_says_what_it_would_need():
    # One output row of 16 pixels with stride 400 needs 15 * 400 + 1 pixels of 32 bytes at once.
    with pytest.raises(
        CapacityError, match=r"fits in L1 of toy_split: .* needs 384064 bytes, .* and L1 holds 8192"
    ):
        build_all(call_of(ConvProblem((1, 1, 8000), (1, 1, 1), 400)))


@pytest.mark.parametrize(
    ("buffer", "what"),
    [("L0C", "16 x 16 sums of 4 bytes")]
    + [(buffer, "16 x 16 elements of 2 bytes in two copies") for buffer in ("L0A", "L0B")],
)
@pytest.mark.parametrize("gradient", ["grad_input", "grad_weight"])
def test_the_buffer_that_is_short_is_named(gradient, buffer, what):
    # A single fractal: 256 sums of 4 bytes, or twice 256 elements of 2 bytes, are 1024.
    profile = load_profile("910B2", {f"buffers.{buffer}.capacity_bytes": 1000})
    message = f"fits in {buffer} of 910B2: {what} need 1024 bytes, and {buffer} holds 1000"
    with pytest.raises(CapacityError, match=message) as told:
        chosen_plan(PROBLEM, gradient, "float16", profile, strategy="search")
    assert told.value.buffer == buffer


@pytest.mark.parametrize(
    ("gradient", "plan", "message"),
    [
        (
            "grad_input",
            Tiling(16, 24, 16),
            "tiling of grad_input: base_n is 24, which is no multiple of 16; take 32",
        ),
        ("grad_input", Tiling(16, 16, 8), "base_k is 8, which is no multiple of 16; take 16"),
        ("grad_input", Tiling(16, 16, 16, used_cores=6), "used_cores is 6, but toy_split has 5 cores"),
        ("grad_input", Tiling(16, 16, 16, k_split=3), "k_split is 3, but the reduction has 2 groups of 16"),
        ("grad_weight", Tiling(8, 16, 16), "tiling of grad_weight: base_m is 8, which is no multiple of 16"),
        ("grad_weight", Tiling(16, 40, 16), "base_n is 40, which is no multiple of 16; take 48"),
        ("grad_weight", Tiling(16, 16, 20), "base_k is 20, which is no multiple of 16; take 32"),
        ("grad_weight", Tiling(16, 16, 16, 2, 3), "step_ka is 2 and step_kb is 3; they must be equal"),
    ],
)
def test_a_plan_that_no_program_can_follow_is_refused(gradient, plan, message):
    with pytest.raises(ConfigError, match=message):
        build_all(call_of(PROBLEM, tilings={gradient: plan}))


@pytest.mark.parametrize("value", [0, -16, 1.5, True, "16"])
@pytest.mark.parametrize("field", [field.name for field in fields(Tiling) if field.type == "int"])
def test_every_size_in_a_plan_is_a_positive_integer(field, value):
    if value == 0 and field in OF_ONE_BASE_BLOCK:
        assert getattr(Tiling(16, 32, 16), field.replace("single_core", "block")) in (16, 32)
        return
    if value == 0 and field in UNCUT and field not in GRID:
        assert getattr(Tiling(16, 32, 16), field) == 0
        return
    if value == 0 and field in GRID:
        assert [Tiling(16, 32, 16, **{field: parts}).has_grid for parts in (0, 1)] == [False, True]
        return
    with pytest.raises(ConfigError, match=f"tiling: {field} is {value!r}; it must be a positive integer"):
        replace(Tiling(16, 16, 16), **{field: value})


@pytest.mark.parametrize("value", [0, 1, "rows ", None])
@pytest.mark.parametrize("field", ["panels", "reuse_l1", "unit_flag"])
def test_switches_are_no_numbers(field, value):
    with pytest.raises(ConfigError, match=f"tiling: {field} is .*; it must be"):
        replace(Tiling(16, 16, 16), **{field: value})


@pytest.mark.parametrize(
    ("gradient", "field", "value"),
    [("grad_input", "swizzle", 2), ("grad_weight", "single_core_m", 64), ("grad_input", "unit_flag", True)],
)
def test_a_field_that_the_schedule_does_not_read_is_refused(gradient, field, value):
    plan = replace(Tiling(16, 16, 16), **{field: value})
    with pytest.raises(ConfigError, match=f"tiling of {gradient}: {field} is {value}, .* does not read it"):
        build_all(call_of(PROBLEM, tilings={gradient: plan}))


# --- shares and even parts


@given(st.integers(0, 200), st.integers(1, 40))
def test_tasks_are_dealt_in_order_and_evenly(tasks, cores):
    dealt = shares(tasks, cores)
    assert [task for share in dealt for task in share] == list(range(tasks))
    assert len(dealt) == min(tasks, cores)
    sizes = [len(share) for share in dealt]
    assert not sizes or max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)


@given(st.integers(1, 400), st.sampled_from([1, 8, 16]), st.sampled_from([16, 64, 512]))
def test_even_parts_are_the_sizes_that_waste_least(total, step, most):
    sizes = even_parts(total, step, most)
    assert sizes == sorted(set(sizes), reverse=True)
    assert sizes[-1] == step
    for size in sizes:
        assert size % step == 0
        assert size <= max(most, step)
        # no smaller multiple of the step gives as few parts
        assert size == step or -(-total // size) < -(-total // (size - step))


def test_same_bits_whichever_core_count_a_plan_uses():
    made = []
    for cores in (1, 2, 5):
        call = call_of(PROBLEM, tilings={"grad_input": Tiling(16, 16, 16, 3, 3, used_cores=cores)})
        made.append(run(call, tensors_of(PROBLEM), mask=(True, False, False))[0]["grad_input"])
    for other in made[1:]:
        assert_same_bits(other, made[0])
