"""Does a call get the plans that its user gives, in every form, and the choice for the rest?"""

from dataclasses import dataclass
from typing import ClassVar

import pytest

from ascendsim import estimate, estimate_matmul
from ascendsim.errors import CapacityError, ConfigError
from ascendsim.ops.plan import Plan, Tiling
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.matmul import MatmulGemm, MatmulProblem
from ascendsim.ops.schedules.dgrad.nest import Dgrad
from ascendsim.ops.schedules.wgrad.nest import Wgrad
from ascendsim.ops.tiling import choose as search_plans
from ascendsim.ops.tiling import given
from ascendsim.ops.tiling.given import schedules_given, tilings_given
from ascendsim.ops.tiling.request import PlanRequest
from ascendsim.ops.tiling.search.dgrad import dgrad_tilings
from ascendsim.ops.tiling.search.matmul import matmul_tiling
from ascendsim.ops.tiling.search.wgrad import wgrad_tilings
from ascendsim.ops.tiling.timed import LEAST_CANDIDATES, MOST_MMADS, fastest, fastest_of_few
from ascendsim.ops.tiling.vendor.matmul import OperatorTiling, operator_tiling
from ascendsim.profile import load_profile
from tests.helpers.conv_cases import SPLIT, call_of
from tests.helpers.slow_tilings import chosen_plan, plans_of

BOTH = ("grad_input", "grad_weight")
PROBLEM = ConvProblem((1, 16, 6, 6), (16, 16, 3, 3), 1, 1)
SMALL, OTHER = Tiling(16, 16, 16), Tiling(16, 16, 32)


@dataclass(frozen=True)
class Own(Dgrad):
    """A schedule of the user's own."""

    name: ClassVar[str] = "own"


def plans(tiling=None, schedule=None, products=BOTH, compute="float16"):
    tilings, schedules = tilings_given(tiling, products), schedules_given(schedule, products)
    return plans_of(PROBLEM, products, compute, SPLIT, tilings, schedules)


def chosen(gradient, **options):
    return chosen_plan(PROBLEM, gradient, "float16", SPLIT, **options)


# --- what is given


def test_nothing_given_is_the_choice():
    assert plans() == {name: chosen(name) for name in BOTH}


@pytest.mark.parametrize("form", [SMALL, Plan("dgrad", SMALL), {"grad_input": SMALL}])
def test_a_tiling_for_the_one_product_in_every_form(form):
    assert plans(form, products=BOTH[:1]) == {"grad_input": Plan("dgrad", SMALL)}


@pytest.mark.parametrize(
    ("what", "named"), [("tiling", SMALL), ("tiling", {"base_m": 16}), ("schedule", "wgrad")]
)
def test_a_plan_of_a_gradient_that_is_not_computed_is_refused(what, named):
    message = f"{what} is given for grad_weight, but the call computes grad_input; leave it out, or ask for"
    with pytest.raises(ConfigError, match=message):
        estimate(PROBLEM, output_mask=(True, False, False), **{what: {"grad_weight": named}})


def test_a_file_of_plans_may_say_more_than_a_call_computes(tmp_path):
    file = tmp_path / "plans.toml"
    file.write_text("[grad_input]\nbase_m = 16\n[grad_weight]\nbase_m = 16\n")
    result = estimate(PROBLEM, output_mask=(True, False, False), tiling=file)
    assert result.plans["grad_input"].tiling.base_m == 16


def test_a_tiling_for_one_of_two_products_leaves_the_other_to_the_choice():
    assert plans({"grad_weight": SMALL}) == {
        "grad_input": chosen("grad_input"),
        "grad_weight": Plan("wgrad", SMALL),
    }


@pytest.mark.parametrize("form", ["dgrad_columns_outer", Own, {"grad_input": Own}])
def test_a_schedule_alone_keeps_the_tiling_of_the_choice(form):
    made, kind = plans(schedule=form), form["grad_input"] if isinstance(form, dict) else form
    assert made["grad_input"] == Plan(kind, chosen("grad_input").tiling)
    assert made["grad_weight"] == chosen("grad_weight")


@pytest.mark.parametrize("product", ["910B", "910_93", "910_95", "310P", "910"])
@pytest.mark.parametrize(
    ("gradient", "nest"),
    [("grad_input", "dgrad_shares"), ("grad_weight", "wgrad_shares"), ("grad_weight", "wgrad_stream")],
)
@pytest.mark.parametrize("stride", [1, 2])
def test_a_nest_of_shares_is_had_by_its_name_alone(product, gradient, nest, stride):
    # Whatever nest the product's own plan has: it may number tasks by other axes, or not at all.
    layer = ConvProblem((2, 64, 28, 28), (64, 64, 3, 3), stride, 1)
    call = {"product": product, "output_mask": (gradient == "grad_input", gradient == "grad_weight", False)}
    named = estimate(layer, schedule=nest, **call).plans[gradient]
    assert named.schedule == nest
    # Naming the nest is giving a part of a plan, and the rest is filled in alike.
    part = estimate(layer, tiling={gradient: {"schedule": nest}}, **call).plans[gradient]
    assert named.tiling == part.tiling
    # So is a size besides, which stands.
    sized = estimate(layer, schedule=nest, tiling={gradient: {"base_m": 16}}, **call).plans[gradient]
    assert (sized.schedule, sized.tiling.base_m) == (nest, 16)


@pytest.mark.parametrize("product", ["910B", "910_95"])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(("dilation", "axes"), [(1, "hw"), ((1, 2), "h")])
def test_a_kernel_is_split_along_all_axes_that_can_be_if_only_the_nest_is_named(
    product, stride, dilation, axes
):
    layer = ConvProblem((2, 64, 28, 28), (64, 64, 3, 3), stride, 1, dilation)
    call = {"product": product, "output_mask": (True, False, False)}
    named = estimate(layer, schedule="dgrad_split", **call).plans["grad_input"]
    assert (named.schedule, named.tiling.kernel_split) == ("dgrad_split", axes)
    part = estimate(layer, tiling={"grad_input": {"schedule": "dgrad_split"}}, **call).plans["grad_input"]
    assert named.tiling == part.tiling
    # What is said stands.
    along_h = estimate(layer, schedule="dgrad_split", tiling={"kernel_split": "h"}, **call)
    assert along_h.plans["grad_input"].tiling.kernel_split == "h"


def test_a_schedule_stands_above_that_of_a_plan():
    plan = {"grad_input": Plan("dgrad", SMALL)}
    assert plans(plan, "dgrad_columns_outer")["grad_input"] == Plan("dgrad_columns_outer", SMALL)
    assert plans(plan, products=BOTH[:1])["grad_input"] == plan["grad_input"]


def test_nothing_is_searched_where_everything_is_given(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("a choice was made")

    monkeypatch.setattr(given, "choose", refuse)
    both = {"grad_input": Plan("dgrad", SMALL), "grad_weight": SMALL}
    assert plans(both, "wgrad") == {"grad_input": Plan("dgrad", SMALL), "grad_weight": Plan("wgrad", SMALL)}
    with pytest.raises(AssertionError, match="a choice was made"):
        plans({"grad_weight": SMALL}, "wgrad")


@pytest.mark.parametrize(
    ("tiling", "products", "message"),
    [
        (SMALL, BOTH, r"tiling is one Tiling, but the call computes grad_input and grad_weight; pass \{"),
        (Plan("dgrad", SMALL), BOTH, "tiling is one Plan, but"),
        (SMALL, (), "but the call computes no cube gradient"),
        ({"grad_bias": SMALL}, BOTH, r"tiling has keys \['grad_bias'\]; it takes grad_input and grad_weight"),
    ],
)
def test_a_tiling_that_stands_for_nothing_is_refused(tiling, products, message):
    with pytest.raises(ConfigError, match=message):
        tilings_given(tiling, products)


@pytest.mark.parametrize(
    ("schedule", "products", "message"),
    [
        ("wgrad", BOTH[:1], "which makes grad_weight, but the call computes grad_input"),
        (Own, BOTH[1:], "which makes grad_input, but the call computes grad_weight"),
        ("dgrad", (), "but the call computes nothing on the cube"),
        ({"grad_weight": Own}, BOTH, "schedule of grad_weight is .*, which makes grad_input"),
        ({"product": "matmul"}, BOTH, r"schedule has keys \['product'\]"),
    ],
)
def test_a_schedule_that_makes_something_else_is_refused(schedule, products, message):
    with pytest.raises(ConfigError, match=message):
        schedules_given(schedule, products)


# --- what is chosen


def test_the_choice_of_a_gradient_is_that_of_its_search():
    call = call_of(PROBLEM)
    for gradient, kind, search in (
        ("grad_input", Dgrad, dgrad_tilings),
        ("grad_weight", Wgrad, wgrad_tilings),
    ):
        gemm = call.schedule(gradient).gemm
        tiling = fastest_of_few(kind, gemm, SPLIT, search(gemm, SPLIT))
        assert chosen(gradient) == Plan(kind.name, tiling) == call.plans[gradient]


def test_hf32_is_planned_as_what_it_is_stored_as():
    made = plans(compute="hf32")["grad_input"]
    assert made == chosen_plan(PROBLEM, "grad_input", "float32", SPLIT, hf32=True)
    # C0 is 8 of 4 bytes, not 16 of 2.
    assert made.tiling.base_k % 8 == 0


def test_a_search_takes_the_operators_plan_where_it_is_faster(monkeypatch):
    # 20 cores, 16 x 6 blocks of 128 x 256: 96 blocks in five rounds.
    profile, problem = load_profile("910B4"), MatmulProblem(2048, 512, 1536)
    gemm = MatmulGemm.of(problem, "float16")
    planned, _ = operator_tiling(gemm, profile)
    made = search_plans.search_plan(PlanRequest(problem, "matmul", "float16", profile))
    assert made == Plan("matmul", matmul_tiling(gemm, profile, others=[planned]))
    assert made.tiling in (planned, matmul_tiling(gemm, profile))
    # Where a product has no plan of its own the search stands alone.
    monkeypatch.setattr(search_plans, "operator_tiling", lambda *_: OperatorTiling(None, "none"))
    assert search_plans.search_plan(
        PlanRequest(problem, "matmul", "float16", profile)
    ).tiling == matmul_tiling(gemm, profile)


# --- the fastest of some

GEMM = MatmulGemm.of(MatmulProblem(64, 64, 64), "float16")


@pytest.fixture
def timed(monkeypatch):
    """Return what is timed, in turn; a tiling takes as many cycles as its swizzle says."""
    asked = []

    def cycles(gemm, profile, tiling):
        del gemm, profile
        asked.append(tiling.swizzle)
        return tiling.swizzle // 10

    monkeypatch.setattr("ascendsim.ops.tiling.timed._cycles", cycles)
    return asked


def tilings(*swizzles, base=16):
    return [Tiling(base, base, base, swizzle=swizzle) for swizzle in swizzles]


def test_the_fastest_is_the_first_of_least_cycles(timed):
    assert fastest(GEMM, SPLIT, tilings(50, 31, 30, 40)).swizzle == 31
    assert timed == [50, 31, 30, 40]


def test_equal_tilings_are_timed_once(timed):
    assert fastest(GEMM, SPLIT, tilings(50, 50, 20, 20)).swizzle == 20
    assert timed == [50, 20]


def test_a_single_one_is_not_timed_at_all(timed):
    assert fastest(GEMM, SPLIT, tilings(50)).swizzle == 50
    assert timed == []


def test_large_products_get_as_many_candidates_as_every_one_does(timed):
    # 32 * 32 * 16 = 16384 Mmads each, below the limit for one but not for two: six besides the first.
    gemm = MatmulGemm.of(MatmulProblem(512, 256, 512), "float16")
    assert MOST_MMADS // 2 < 16384 <= MOST_MMADS
    many = tilings(*range(990, 0, -10))
    assert fastest(gemm, SPLIT, many).swizzle == 990 - 10 * LEAST_CANDIDATES
    assert len(timed) == 1 + LEAST_CANDIDATES


def test_a_product_of_too_many_mmads_takes_the_first(timed):
    # 64 * 32 * 16 Mmads are 32768.
    gemm = MatmulGemm.of(MatmulProblem(1024, 256, 512), "float16")
    assert fastest(gemm, SPLIT, tilings(50, 20)).swizzle == 50
    assert timed == []


def test_cycles_are_those_of_the_timing_executor():
    # One Mmad of 64 x 64 x 64 beats 64 of 16 x 16 x 16, whichever comes first.
    large, small = (Tiling(base, base, base) for base in (64, 16))
    profile = load_profile("910B")
    assert fastest(GEMM, profile, [small, large]) == fastest(GEMM, profile, [large, small]) == large


# --- plans of something else


@pytest.mark.parametrize("name", ["wgrad", "matmul"])
def test_a_plan_of_another_gradient_is_refused(name):
    with pytest.raises(ConfigError, match=f"schedule of grad_input is '{name}', which makes"):
        plans({"grad_input": Plan(name, SMALL)})


def test_a_mapping_on_a_matrix_product_takes_its_own_key_alone():
    with pytest.raises(ConfigError, match=r"tiling has keys \['grad_input'\]; it takes matmul"):
        estimate_matmul(MatmulProblem(64, 64, 64), tiling={"grad_input": SMALL})
    made = estimate_matmul(MatmulProblem(64, 64, 64), tiling={"matmul": SMALL})
    assert made.kernels[0].plan.tiling == SMALL


@pytest.mark.parametrize(("m", "k", "n"), [(3000, 8192, 3000), (2100, 9000, 2600)])
def test_plans_of_the_operator_stand_in_the_rank_of_what_is_too_long_to_time(m, k, n):
    # More Mmads than are timed: the best rank is taken, and it is not handed to the operator's unseen.
    profile, problem = load_profile("910B"), MatmulProblem(m, k, n)
    gemm = MatmulGemm.of(problem, "float16")
    planned, _ = operator_tiling(gemm, profile)
    assert m * k * n > MOST_MMADS * planned.base_m * planned.base_n * planned.base_k
    assert matmul_tiling(gemm, profile, others=[planned]) == matmul_tiling(gemm, profile) != planned


def test_the_format_of_the_result_takes_part_in_the_choice():
    # Writing float32 takes twice as long as float16: over few slices of k it decides how tiles are cut.
    profile, problem = load_profile("910A"), MatmulProblem(2048, 32, 2048)
    narrow, wide = (
        chosen_plan(problem, "matmul", "float16", profile, out_dtype=out).tiling for out in (None, "float32")
    )
    assert (narrow, wide) == tuple(
        matmul_tiling(MatmulGemm.of(problem, "float16", out), profile) for out in ("float16", "float32")
    )


def test_a_block_that_l0_cannot_hold_is_refused_however_long_its_tile_in_l1_is():
    # An image of 32 x 32 = 1,024 pixels is a run of 512 twice; a tile in L1 that would hold 2,048 is as long
    # as the image, so that L0A is what is short: two copies of 64 rows x 512 pixels of 2 bytes are 128 KiB.
    problem = ConvProblem((1, 64, 32, 32), (64, 64, 3, 3), 1, 1)
    for step in (1, 2, 4):
        tiling = Tiling(512, 512, 512, step, step, used_cores=24)
        with pytest.raises(CapacityError, match=r"L0A of 910B2 holds 65536 bytes, but A0 \(2 x 65536\)"):
            estimate(problem, product="910B2", output_mask=(False, True, False), tiling=tiling)
