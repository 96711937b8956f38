"""Does the study of tilings find plans of the operators' nests, which a device can be given?"""

from dataclasses import replace

import pytest

from ascendsim import ConvProblem, estimate, load_profile
from ascendsim.ops.tiling.entries import Entry, entry_values, layer_of
from ascendsim.ops.tiling.request import PlanRequest
from ascendsim.studies.engine.run import Budget, Engine, Store
from ascendsim.studies.tuning.records import TilingQuestion
from ascendsim.studies.tuning.search import OperatorTilings, tune
from ascendsim.studies.tuning.tune import Tuner, top
from tests.helpers.requests import plans_of
from tests.helpers.vendor_tilings import GRADIENTS, overrides_of, problem_of, records

LAYER = ConvProblem((2, 64, 14, 14), (64, 64, 3, 3), padding=1)
STRIDED = ConvProblem((2, 64, 28, 28), (64, 64, 3, 3), stride=2, padding=1)
PRODUCT = "950PR_9589"
PROFILE = load_profile(PRODUCT)


def tilings(gradient, problem=LAYER):
    return OperatorTilings(PlanRequest(problem, gradient, "float16", PROFILE))


def tuner(gradient="grad_weight", product=PRODUCT, problem=LAYER, **options):
    keywords = {"trials": 12, "doubt": False, "starts": ("warm",)} | options
    asked = TilingQuestion("a test", product, problem, gradient, **keywords)
    return Tuner(asked, Engine(Store(), 1), Budget(), "float16")


@pytest.mark.parametrize("gradient", ["grad_input", "grad_weight"])
def test_every_neighbour_runs_and_is_another_plan(gradient):
    near = tilings(gradient)
    (plan, *_) = near.starts()
    found = near.neighbours(plan)
    assert len(found) >= 15
    assert len(set(found)) == len(found)
    assert plan not in found
    mask = gradient == "grad_input", gradient == "grad_weight", False
    for other in found[::7]:
        # As asked for: what is given whole is taken whole.
        result = estimate(LAYER, product=PROFILE, output_mask=mask, tiling={gradient: other})
        assert result.plans == {gradient: other}


def test_a_strided_layer_is_also_split_by_its_stride():
    starts = tilings("grad_input", STRIDED).starts()
    assert {(plan.schedule, plan.tiling.kernel_split) for plan in starts} == {
        ("dgrad_shares", ""),
        ("dgrad_split", "h"),
        ("dgrad_split", "hw"),
    }


def test_a_last_round_is_cut_anew_for_other_blocks():
    near = tilings("grad_weight")
    found = near.neighbours(near.starts()[0])
    # 64 rows x 576 columns in blocks leave different numbers of tasks for 32 cores.
    assert len({plan.tiling.k_split for plan in found}) > 1


def test_a_step_makes_blocks_for_more_cores_and_slices_longer_at_once():
    # 8 images of 3 x 3 x 3: 24 planes times 768 channels. In blocks of 384 the busiest of 28 cores makes two,
    # as many columns as eight of 96, of which it makes seven; halves of 384 are four of 192: no less.
    deep = ConvProblem((8, 768, 3, 3, 3), (768, 768, 3, 3, 3), padding=1)
    own = OperatorTilings(PlanRequest(deep, "grad_input", "float16", PROFILE))
    start = own.starts()[0].tiling
    found = [plan.tiling for plan in own.neighbours(own.starts()[0])]
    for part in (2, 4, 8):
        less = [t for t in found if t.base_n == start.base_n // part]
        assert any(t.base_k == part * start.base_k and t.single_core_n == t.base_n for t in less)


def test_a_step_makes_both_sides_three_quarters():
    # 768 rows and 3072 columns of an entry tuned by hand: blocks of 192 on either side, not of 256.
    deep = ConvProblem((8, 384, 6, 6, 6), (768, 384, 2, 2, 2), stride=2)
    own = OperatorTilings(PlanRequest(deep, "grad_weight", "float16", PROFILE))
    start = own.starts()[0]
    quarters = start.tiling.base_m * 3 // 4, start.tiling.base_n * 3 // 4
    found = {(plan.tiling.base_m, plan.tiling.base_n) for plan in own.neighbours(start)}
    assert quarters in found
    assert (quarters[0], start.tiling.base_n) in found


@pytest.mark.parametrize(("gradient", "problem"), [("grad_input", STRIDED), ("grad_weight", LAYER)])
def test_a_block_longer_than_the_product_is_one_plan_with_that_as_long_as_it(gradient, problem):
    own = tilings(gradient, problem)
    mask = gradient == "grad_input", gradient == "grad_weight", False
    for plan in own.starts():
        # 64 channels, 576 of them with taps, at most 784 pixels of an image: 1024 is more than any.
        fields = {"base_m": 1024, "single_core_m": 1024, "base_n": 16, "single_core_n": 1024, "base_k": 16}
        fields |= {
            "step_ka": 1,
            "step_kb": 1,
            "al0_buffers": 1,
            "cl0_buffers": 1,
            "k_split": 1,
            "stream_axis": "",
        }
        longer = replace(plan, tiling=replace(plan.tiling, **fields))
        spelled = own.spelled(longer)
        assert spelled != longer
        assert max(spelled.tiling.base_m, spelled.tiling.single_core_n) < 1024
        assert own.spelled(spelled) == spelled
        made = [
            next(
                kernel.times
                for kernel in estimate(
                    problem, product=PROFILE, output_mask=mask, tiling={gradient: each}
                ).kernels
                if kernel.plan
            )
            for each in (longer, spelled)
        ]
        assert made[0] == made[1]


def test_no_two_of_the_exported_plans_are_one():
    asked = tuner(nests="operators", trials=40)
    tune(asked)
    own = tilings("grad_weight")
    best = [own.spelled(trial.plan) for trial in top(asked, 10)]
    assert len(set(best)) == len(best) > 1


def test_plans_for_a_device_are_of_its_nests_and_can_be_written():
    asked = tuner(nests="operators")
    usual, best = tune(asked)
    assert asked.score(best) <= asked.score(usual)
    assert best.plan.schedule == "wgrad_stream"
    assert entry_values("grad_weight", LAYER, "float16", best.plan, "3510")


def test_ours_alone_and_any_go_through_the_nests_that_they_name():
    only = tuner(nests="ours")
    tune(only)
    # The product's own plan is timed in any case.
    found = {trial.plan.schedule for trial in only.trials.values() if trial.found_by != "product"}
    assert found == {"wgrad"}
    both = tuner(nests="any", trials=40)
    tune(both)
    assert {trial.plan.schedule for trial in both.trials.values()} == {"wgrad", "wgrad_stream"}


def test_where_calls_follow_our_search_any_means_our_nests():
    # No rule is known for groups on 910B2.
    asked = tuner(product="910B2", trials=6, problem=replace(LAYER, weight=(64, 32, 3, 3), groups=2))
    tune(asked)
    assert {trial.plan.schedule for trial in asked.trials.values()} == {"wgrad"}


def test_and_where_calls_follow_rules_whose_plans_no_device_can_be_given():
    # The product's own plan, of the nest of 910B2's library, is timed in any case.
    asked = tuner(product="910B2", trials=6)
    tune(asked)
    found = {(trial.plan.schedule, trial.found_by == "product") for trial in asked.trials.values()}
    assert found == {("wgrad_fractals", True), ("wgrad", False)}


# ---- The entries that were tuned by hand


def hand_tuned(data_dir):
    """Yield (record, gradient) of entries that are read; two parts of 32 cores have the same ones."""
    for op, gradient in GRADIENTS.items():
        for record in records(data_dir, op, "arch35", "runtime_kb"):
            if not record["expected"].get("enableSplitK") and "_958b_" not in record["soc"]:
                yield record, gradient


def against_entry(record, gradient, trials):
    """Return the scores of the entry and of the best plan that is found without it."""
    problem, one = problem_of(record), layer_of(gradient, record["kb_inputs"], record["case"])
    asked = TilingQuestion(
        record["case"],
        "950PR_9599",
        problem,
        gradient,
        record["dtype"],
        cube_math_type=int(record["hf32"]),
        trials=trials,
        doubt=False,
        changes=overrides_of(record),
        nests="operators",
    )
    made = Tuner(asked, Engine(Store(), 1), Budget(), "hf32")
    part = Entry(record["case"], gradient, one, record["expected"]).plan()
    entry = plans_of(problem, [gradient], "hf32", made.profile, {gradient: part}, {})[gradient]
    _, best = tune(made)
    alone = Tuner(asked, Engine(Store(), 1), Budget(), "hf32")
    alone.try_all([entry], "entry", float("inf"))
    return alone.score(alone.trials[entry]), made.score(best)


def test_a_split_kernel_reaches_the_hand_tuned_one(data_dir):
    record, gradient = next(
        (record, gradient)
        for record, gradient in hand_tuned(data_dir)
        if record["expected"].get("kernelSplitMode")
    )
    entry, best = against_entry(record, gradient, 40)
    assert best <= entry


@pytest.mark.slow
def test_the_tuner_reaches_every_hand_tuned_entry(data_dir):
    found = list(hand_tuned(data_dir))
    assert len(found) == 22
    slower = {}
    for record, gradient in found:
        entry, best = against_entry(record, gradient, 120)
        if best > entry:
            slower[record["case"], gradient] = best / entry
    assert slower == {}
