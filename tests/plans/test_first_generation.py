"""Do tilings of the 910 and 310P follow the rules of their operators, on any problem and any product?"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ascendsim import Tiling, convolution_backward, estimate
from ascendsim.errors import ConfigError
from ascendsim.instructions.relayout import CopyUbToL1, SpreadPixels
from ascendsim.ops.lowering.kernels import lower
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.profile import load_profile
from tests.helpers.conv_cases import UNIFIED, call_of, problems
from tests.helpers.slow_tilings import LAYER, OLD, chosen_plan, first_rule

# --- any problem, any product


@pytest.mark.parametrize("gradient", ["grad_input", "grad_weight"])
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(problem=problems(most_channels=80, most_pixels=300), share=st.sampled_from([1, 2, 4]), data=st.data())
def test_plans_fit_the_buffers_of_any_product(gradient, problem, share, data):
    capacity = OLD.buffers["L1"].capacity_bytes // share
    cores = data.draw(st.integers(1, 40))
    profile = load_profile("910A", {"buffers.L1.capacity_bytes": capacity, "cores.cube": cores})
    plan = first_rule(problem, gradient, "float16", profile)
    if plan is None:
        return
    call = call_of(problem, profile=profile, tilings={gradient: plan})
    # Building refuses what does not fit.
    for phase in call.schedule(gradient).phases():
        for work in phase.work:
            work.build()


@pytest.mark.parametrize("problem", [
    ConvProblem((2, 32, 8, 8), (32, 16, 3, 3), 1, 1, groups=2),
    ConvProblem((2, 32, 8, 8), (32, 16, 3, 3), 1, 1, transposed=True),
], ids=["groups", "transposed"])  # fmt: skip
def test_where_no_rule_is_known_the_search_plans(problem):
    assert first_rule(problem, "grad_input", "float16", OLD) is None
    made = chosen_plan(problem, "grad_input", "float16", OLD)
    assert made == chosen_plan(problem, "grad_input", "float16", OLD, strategy="search")


def test_the_strategy_is_the_products_unless_another_is_asked_for():
    product = chosen_plan(LAYER, "grad_input", "float16", OLD)
    assert product == first_rule(LAYER, "grad_input", "float16", OLD)
    assert chosen_plan(LAYER, "grad_input", "float16", OLD, strategy="search") != product
    with pytest.raises(ConfigError, match="strategy is 'fast'; it must be one of product, search"):
        chosen_plan(LAYER, "grad_input", "float16", OLD, strategy="fast")


def test_a_call_takes_the_strategy_as_its_tiling_and_says_whose_it_is():
    small = ConvProblem((2, 32, 8, 8), (32, 32, 3, 3), 1, 1)
    mask = (True, False, False)
    product, searched = (
        estimate(small, product="910A", output_mask=mask, tiling=tiling) for tiling in ("product", "search")
    )
    dealt = [[k.plan.tiling.batch_dim for k in made.kernels if k.plan] for made in (product, searched)]
    assert dealt == [[2], [0]]
    assert any("rules of the product's operators" in note for note in product.notes)
    assert any("this simulator's own" in note for note in searched.notes)
    one = estimate(small, product="910A", output_mask=mask, tiling={"grad_input": "search"})
    assert one.cycles == searched.cycles


def notes_of(problem, dtype, product, **options):
    found = estimate(problem, dtype, product=product, output_mask=(True, True, False), **options).notes
    return [note for note in found if note.startswith("Tilings")]


def test_a_result_says_whose_each_tiling_is():
    small = ConvProblem((2, 32, 8, 8), (32, 32, 3, 3), 1, 1)
    [note] = notes_of(small, "float16", "910A")
    assert note.startswith("Tilings follow the rules of the product's operators")
    # How the library of 2-D gradients takes several groups is known of grad_weight alone.
    product, own = notes_of(replace(small, weight=(32, 16, 3, 3), groups=2), "float16", "910B2")
    assert product.startswith("Tilings of grad_weight follow")
    assert own.startswith("Tilings of grad_input are this simulator's own")
    # A transposed convolution's grad_input is another operator's, of which no rule is known.
    transposed = ConvProblem((2, 32, 8, 8), (32, 32, 3, 3), 1, 1, transposed=True)
    product, own = notes_of(transposed, "float16", "910A")
    assert product.startswith("Tilings of grad_weight follow")
    assert own.startswith("Tilings of grad_input are this simulator's own")
    # The operator of 910_95 plans both gradients.
    [note] = notes_of(small, "float16", "950PR_9589")
    assert note.startswith("Tilings follow the rules of the product's operators")
    # Who gives them knows whose they are.
    given = {"grad_input": Tiling(16, 16, 16), "grad_weight": Tiling(16, 16, 16)}
    assert notes_of(small, "float16", "910A", tiling=given) == []


def test_a_product_plan_that_is_not_taken_is_told_with_the_reason():
    layer, narrow = ConvProblem((1, 16, 16, 16), (32, 16, 3, 3), padding=1), "hifloat8"
    options = {"product": "950PR_9589", "output_mask": (True, False, False), "rules": "hardware"}
    made = estimate(layer, narrow, **options)
    [reason] = [note for note in made.notes if note.startswith("Not taken")]
    assert reason == (
        "Not taken: the product's plan of grad_input on 950PR_9589: inner_product with blocks that end "
        "inside a group of 32 channels has no loop nest here."
    )
    # Asked for a search, nobody misses a plan.
    searched = estimate(layer, narrow, **options, tiling="search")
    assert not any(note.startswith("Not taken") for note in searched.notes)
    # The plan that stands in for the refused one is the search's own.
    plans = [found.plans["grad_input"] for found in (made, searched)]
    assert plans[0] == plans[1]
    assert [plan.chosen_by for plan in plans] == ["search", "search"]


VOLUME = ConvProblem((1, 16, 4, 6, 6), (16, 16, 3, 3, 3), 1, 1)


def plans_of(**options):
    made = estimate(VOLUME, product="910B2", output_mask=(True, True, False), **options)
    return {
        kernel.name: kernel.kernel.facts["plan"] for kernel in made.kernels if "plan" in kernel.kernel.facts
    }


def test_a_deterministic_3d_gradient_streams_instead_of_keeping_every_image_apart():
    assert plans_of()["grad_weight"].schedule == "wgrad_shares"
    assert plans_of(deterministic=True)["grad_weight"].schedule == "wgrad_stream"


def test_a_tiling_without_a_nest_is_for_the_usual_one():
    tiling = Tiling(16, 16, 16, k_split=2, used_cores=2)
    given = plans_of(tiling={"grad_weight": tiling})["grad_weight"]
    assert (given.schedule, given.tiling, given.chosen_by) == ("wgrad", tiling, "user")


# --- schedules


def test_a_strided_grad_input_goes_through_ub_on_unified_cores_alone():
    strided = ConvProblem((2, 24, 10, 12), (20, 24, 3, 3), 2, 1)
    for name, through_ub in (("910A", True), ("310P3", True), ("910B2", False)):
        call = call_of(strided, profile=load_profile(name))
        [kernel] = [kernel for kernel in lower(call, (True, False, False)).kernels if kernel.macs]
        kinds = {type(i) for phase in kernel.phases for work in phase.work for i in work.build().instructions}
        assert ({SpreadPixels, CopyUbToL1} <= kinds) == through_ub, name


def test_the_way_through_ub_gives_what_a_strided_copy_gives():
    # One order of additions on both: the unified 910A spreads pixels in UB, the 910B2 in L1.
    problem = ConvProblem((5, 20, 7, 8), (40, 20, 3, 3), 2, 1)
    rng = np.random.default_rng(3)
    tensors = [
        rng.standard_normal(shape).astype(np.float16)
        for shape in (problem.grad_output, problem.input, problem.weight)
    ]
    made = [
        convolution_backward(
            *tensors, None, (2, 2), (1, 1), (1, 1), False, (0, 0), 1, (True, False, False), 0,
            product=product, tiling=Tiling(16, 16, 48, 3, 3, used_cores=3),
        ).grad_input
        for product in ("910A", "910B2")
    ]  # fmt: skip
    np.testing.assert_array_equal(*made)


def test_rows_of_float32_that_are_no_whole_fractal_take_the_room_of_one():
    # 8 rows of 48 pixels in the room of 16, and 43 pixels of 8 channels: 3072 + 1376 bytes, twice, are more
    # than 8 KiB. 2 slices of 16 pixels take 2048 + 1024.
    line = ConvProblem((1, 1, 43), (1, 1, 1))
    tiling = first_rule(line, "grad_weight", "float32", UNIFIED).tiling
    assert (tiling.base_m, tiling.base_k, tiling.step_ka, tiling.step_kb) == (8, 16, 2, 2)
    assert UNIFIED.buffers["L1"].capacity_bytes == 8192
    call = call_of(line, "float32", profile=UNIFIED, tilings={"grad_weight": tiling})
    for work in call.schedule("grad_weight").phases()[-1].work:
        work.build()


def test_toy_cores_are_planned_by_the_same_rules():
    # The random problems of the operators' tests run on them, so these rules are tried on all of them.
    assert first_rule(ConvProblem((2, 8, 5, 6), (12, 8, 3, 3), 1, 1), "grad_input", "float16", UNIFIED)
