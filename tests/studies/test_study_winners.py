"""Are the best plans of a study faster whatever L2 holds, written for a device, and ranked anew?"""

import csv
import json
from dataclasses import replace
from itertools import product
from math import isnan
from types import SimpleNamespace

import pytest

from ascendsim import ConvProblem, estimate, load_profile, read_plans
from ascendsim.errors import ConfigError, DataError
from ascendsim.ops.tiling.entries import TilingEntry, entry_values, layer_of
from ascendsim.ops.tiling.request import PlanRequest
from ascendsim.program.kernel import Core
from ascendsim.report.studies.beside import measured_notes, measured_sentence, measured_table
from ascendsim.report.studies.tiling import plan_text
from ascendsim.report.studies.tiling_words import tiling_sentence
from ascendsim.studies.engine.measure import planned
from ascendsim.studies.engine.run import Budget, Engine, Store
from ascendsim.studies.tuning.records import SCORES, TilingQuestion
from ascendsim.studies.tuning.search import OperatorTilings, tune
from ascendsim.studies.tuning.study import study_tiling
from ascendsim.studies.tuning.tune import INDEX, Tuner, export, exported_plans, kernel_parts, top
from ascendsim.timing.times import CoreTimes, KernelTimes, TimedPhase
from ascendsim.validate.coverage import MeasuredPlan, measured_times, ranked_anew
from tests.helpers.outside_records import GRADIENTS, overrides_of, problem_of, records
from tests.helpers.slow_tilings import plans_of

# --- Does the study of tilings find plans of the operators' nests, which a device can be given? --------

LAYER = ConvProblem((2, 64, 14, 14), (64, 64, 3, 3), padding=1)
STRIDED = ConvProblem((2, 64, 28, 28), (64, 64, 3, 3), stride=2, padding=1)
PRODUCT = "950PR_9589"
PROFILE = load_profile(PRODUCT)


def test_the_parts_of_a_kernel_are_those_of_the_first_core_that_ends_last():
    first, second = Core("cube", 0), Core("cube", 1)
    apart = [CoreTimes((core,), {"M": busy}, {}, busy) for core, busy in ((first, 5), (second, 3))]
    alike = CoreTimes((first, second), {"M": 4}, {"M": {"MTE1": 2}}, 13)
    sooner = CoreTimes((Core("cube", 2),), {"M": 1}, {}, 8)
    # Vector cores, which have no such pipe, end after them.
    other = CoreTimes((Core("vector", 0),), {"V": 9}, {}, 20)
    phases = TimedPhase("a", 0, 5, tuple(apart)), TimedPhase("b", 5, 20, (sooner, alike, other))
    kernel = SimpleNamespace(times=KernelTimes("k", 20, phases, {}))
    assert kernel_parts(kernel) == {"busy": 9, "waits for MTE1": 2, "idle": 9}
    # One core alone, as in a kernel of one base block.
    kernel = SimpleNamespace(times=KernelTimes("k", 7, (TimedPhase("a", 0, 7, (apart[0],)),), {}))
    assert kernel_parts(kernel) == {"busy": 5, "idle": 2}


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


@pytest.mark.parametrize("gradient", ["grad_input", "grad_weight"])
def test_where_blocks_have_no_share_others_have_none_either(gradient):
    # The older operators deal all blocks out and say no shares, which are 0.
    own = OperatorTilings(PlanRequest(LAYER, gradient, "float16", load_profile("910B2")))
    start = own.starts()[0]
    blocks = start.tiling.base_m, start.tiling.base_n
    assert (start.tiling.single_core_m, start.tiling.single_core_n) == (0, 0)
    near = [plan.tiling for plan in own.neighbours(start)]
    others = [t for t in near if t.base_m != blocks[0] and t.base_n != blocks[1]]
    assert others
    assert {(t.single_core_m, t.single_core_n) for t in others} == {(0, 0)}


def test_a_reduction_in_parts_is_also_made_whole_under_the_same_nest():
    own = tilings("grad_input", STRIDED)
    whole = next(plan for plan in own.starts() if plan.schedule == "dgrad_split")
    assert whole.tiling.k_split == 1
    parts = replace(whole, tiling=replace(whole.tiling, k_split=2))
    assert whole in own.neighbours(parts)


@pytest.mark.parametrize(("gradient", "problem"), [("grad_input", STRIDED), ("grad_weight", LAYER)])
def test_a_block_longer_than_the_product_is_one_plan_with_that_as_long_as_it(gradient, problem):
    own = tilings(gradient, problem)
    mask = gradient == "grad_input", gradient == "grad_weight", False
    for plan in own.starts():
        # 64 channels, 576 of them with taps; 28 x 28 pixels of an image, of which a split kernel makes every
        # other one along H, and along W: 1024 is more than any.
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
        pixels = {"": 784, "h": 400, "hw": 208}[plan.tiling.kernel_split]  # in whole fractals
        m, n = (pixels, 64) if gradient == "grad_input" else (64, 576)
        fields |= {"base_m": m, "single_core_m": m, "base_n": 16, "single_core_n": n}
        assert spelled == replace(plan, tiling=replace(plan.tiling, **fields))
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


@pytest.mark.slow
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


@pytest.mark.slow
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
    # No rule is known for groups on 310P.
    asked = tuner(product="310P", trials=6, problem=replace(LAYER, weight=(64, 32, 3, 3), groups=2))
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
    part = TilingEntry(record["case"], gradient, one, record["expected"]).plan()
    entry = plans_of(problem, [gradient], "hf32", made.profile, {gradient: part}, {})[gradient]
    _, best = tune(made)
    alone = Tuner(asked, Engine(Store(), 1), Budget(), "hf32")
    alone.try_all([entry], "entry", float("inf"))
    return alone.score(alone.trials[entry]), made.score(best)


@pytest.mark.slow
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


# --- Are the best plans written for a device, and ranked anew by what it measured? ---------------------

KIND = "Conv3DBackpropFilterV2"


@pytest.fixture(scope="module")
def tuned():
    asked = TilingQuestion(
        "a test", "950PR_9589", LAYER, "grad_weight", starts=("warm",), trials=24, nests="any"
    )
    tuner = Tuner(asked, Engine(Store(), 1), Budget(), "float16")
    tune(tuner)
    return tuner


# ---- Plans to a device


def test_the_best_plans_are_written_best_first_and_come_back(tuned, tmp_path):
    found = export(tmp_path, tuned, 4)
    *best, usual = top(tuned, 4)
    assert [one.trial for one in found] == [*best, usual]
    scores = [tuned.score(trial) for trial in best]
    assert scores == sorted(set(scores))
    assert scores[0] == tuned.score(tuned.best)
    plans = exported_plans(tmp_path, "grad_weight")
    assert list(plans) == [f"plan-0{number}.toml" for number in (1, 2, 3, 4, 5)]
    assert list(plans.values()) == [trial.plan for trial in (*best, usual)]


def test_plans_of_equal_times_are_written_once_and_the_usual_one_beside_the_best(tuned, tmp_path):
    first, second, usual = top(tuned, 2)
    assert usual.found_by == "product"
    spelled = replace(first.plan.tiling, cl0_buffers=3 - first.plan.tiling.cl0_buffers)
    alike = replace(first, plan=replace(first.plan, tiling=spelled))
    twice = replace(tuned, trials={**tuned.trials, alike.plan: alike}, allowed=lambda _: True)
    assert [*top(twice, 2)] == [first, second, usual]
    # By its times it comes behind all plans that take other, shorter ones.
    scores = {trial.times_us: tuned.score(trial) for trial in tuned.trials.values() if trial.times_us}
    assert top(tuned, 2)[usual] == 1 + sum(score < tuned.score(usual) for score in scores.values()) > 3
    assert top(twice, 24)[usual] == top(tuned, 2)[usual]
    assert top(replace(tuned, allowed=lambda plan: plan != usual.plan), 2)[usual] is None
    export(tmp_path, tuned, 2)
    rows = list(csv.DictReader((tmp_path / INDEX).read_text().splitlines()))
    assert [row["found_by"] == "product" for row in rows] == [False, False, True]
    said = [(tmp_path / f"plan-0{rank}.toml").read_text() for rank in (1, 2, 3)]
    assert ["the usual plan, to compare" in text for text in said] == [False, False, True]


def test_each_plan_of_an_operators_nest_has_an_entry_and_others_say_why_not(tuned, tmp_path):
    found = export(tmp_path, tuned, 24)
    kinds = {one.trial.plan.schedule for one in found}
    assert kinds == {"wgrad", "wgrad_stream"}
    for one in found:
        assert bool(one.entry_file) == (one.trial.plan.schedule == "wgrad_stream")
        assert ("written of wgrad_stream" in one.no_entry) == (not one.entry_file)
        if one.entry_file:
            part = read_plans(tmp_path / one.entry_file).plans["grad_weight"].of(LAYER, "float16")
            assert part.fields["base_m"] == one.trial.plan.tiling.base_m


def test_the_index_lists_files_times_and_plans(tuned, tmp_path):
    export(tmp_path, tuned, 2)
    rows = list(csv.DictReader((tmp_path / INDEX).read_text().splitlines()))
    best, _, usual = top(tuned, 2)
    assert [row["rank"] for row in rows] == ["1", "2", str(top(tuned, 2)[usual])]
    assert float(rows[0]["us_warm"]) == best.times_us["warm"]
    assert rows[0]["plan"].startswith(str(best.plan.schedule))


def test_a_folder_without_plans_of_the_gradient_is_refused(tuned, tmp_path):
    with pytest.raises(ConfigError, match=r"has no plan-NN.toml; write them with --export-top"):
        exported_plans(tmp_path, "grad_weight")
    export(tmp_path, tuned, 1)
    with pytest.raises(ConfigError, match="has no whole plan of grad_input; name that with --gradient"):
        exported_plans(tmp_path, "grad_input")
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="is no folder"):
        export(tmp_path / "file", tuned, 1)


# ---- And back


def profile(folder, times, name="op_summary.csv", kind=KIND, **columns):
    """A profile of runs; other columns by name, a value for each run."""
    path = folder / name
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["Op Name", "OP Type", "Task Duration(us)", "Input Shapes", *columns])
        writer.writerow(["cast", "Cast", "99", "", *("0" for _ in columns)])
        for at, time in enumerate(times):
            more = [column[at] for column in columns.values()]
            writer.writerow([f"dw {at}", kind, time, "2,64,14,14", *more])
    return path


def test_runs_of_one_profile_are_dealt_in_order_and_the_median_counts(tmp_path):
    path = profile(tmp_path, [10, 30, 11, 7, 5, 6])
    assert measured_times([path], "grad_weight", 2) == [11, 6]
    # Two files of three runs each say the same of two plans.
    files = [profile(tmp_path, [10, 30, 11], "a.csv"), profile(tmp_path, [7, 5, 6], "b.csv")]
    assert measured_times(files, "grad_weight", 2) == [11, 6]


def test_runs_are_taken_in_the_order_in_which_they_began(tmp_path):
    path = profile(tmp_path, [10, 20], **{"Task Start Time(us)": [5, 1]})
    assert measured_times([path], "grad_weight", 2) == [20, 10]


@pytest.mark.parametrize(
    ("times", "count", "options", "message"),
    [
        ([1, 2, 3], 2, {}, "has 3 runs .*, no equal number for each of 2 plans"),
        ([1, "N/A"], 2, {}, r"Task Duration\(us\) is 'N/A'; it must be a number"),
        ([1, 0], 2, {}, r"Task Duration\(us\) is '0'"),
        ([1, 2], 2, {"kind": "Conv3DBackpropInputV2"}, "has no operator BackpropFilter"),
        ([1, 2], 2, {"Output Shapes": ["1", "2"]}, "its grad_weight is of 2 layers"),
    ],
)
def test_a_profile_that_says_something_else_is_refused(tmp_path, times, count, options, message):
    with pytest.raises(DataError, match=message):
        measured_times([profile(tmp_path, times, **options)], "grad_weight", count)


def test_a_file_that_is_no_profile_is_refused(tmp_path):
    path = profile(tmp_path, [1, 2])
    with pytest.raises(DataError, match="2 profiles of 3 plans"):
        measured_times([path, path], "grad_weight", 3)
    (tmp_path / "no.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match="has no column OP Type or Type"):
        measured_times([tmp_path / "no.csv"], "grad_weight", 1)


# Three plans: (measured, estimated). The model takes the second for the fastest.
PLANS = (MeasuredPlan("a", 10.0, 9.0), MeasuredPlan("b", 12.0, 8.0), MeasuredPlan("c", 20.0, 18.0))


def test_ranks_regret_and_errors_are_those_of_their_definitions():
    found = ranked_anew((PLANS[2], PLANS[1], PLANS[0]))
    assert [plan.name for plan in found.plans] == ["a", "b", "c"]
    # Ranks 1 2 3 against 2 1 3: 1 - 6 x (1 + 1 + 0) / (3 x 8) = 0.5.
    assert found.rank == pytest.approx(0.5)
    assert found.favourite.name == "b"
    assert found.regret == pytest.approx(0.2)
    assert [plan.error for plan in found.plans] == pytest.approx([-0.1, -1 / 3, -0.1])
    # Ratios a:b 1.125 for 0.8333, off by 1.35; a:c 0.5 for 0.5, off by 1; b:c 0.4444 for 0.6, off by 1.35.
    assert found.noise == pytest.approx(0.35)


def test_of_equal_estimates_the_slowest_is_the_favourite():
    found = ranked_anew((MeasuredPlan("a", 10.0, 9.0), MeasuredPlan("b", 12.0, 9.0)))
    assert found.favourite.name == "b"
    assert isnan(found.rank)


def test_the_sentence_says_what_following_the_model_costs():
    found = ranked_anew(PLANS)
    assert measured_sentence(found, "On X").endswith("the model's favourite, b, takes 20.0 % more.")
    assert measured_sentence(ranked_anew(PLANS[:1]), "On X").endswith("as the model says.")
    assert [row[:3] for row in measured_table(found, "warm").rows] == [
        ("1", "2", "a"),
        ("2", "1", "b"),
        ("3", "3", "c"),
    ]
    assert "median -10.0 %, from -33.3 to -10.0 %" in measured_notes(found)[0]
    assert "have no rank correlation" in measured_notes(ranked_anew(PLANS[:1]))[-1]


def test_the_command_writes_plans_and_ranks_them_by_a_profile(answer, refusal, tmp_path):
    plans = str(tmp_path / "plans")
    words = ("study", "tiling", "s5b1_1x1a", "--gradient", "weight", "--jobs", "1", "--export", plans)
    words += ("--store", str(tmp_path / "s"), "--l2-start", "warm")
    printed = answer(*words, "--tilings", "6", "--margin", "4", "--no-interval", "--export-top", "2")
    assert "3 plans and 0 entries in" in printed
    assert "known of npu_arch 3510" in " ".join(printed.split())
    file = str(profile(tmp_path, [30, 20, 10]))
    printed = " ".join(answer(*words, "--measured", file).split())
    assert "of 3 plans that were measured, plan-03.toml is the fastest (10.00 us)" in printed
    found = json.loads(answer(*words, "--measured", file, "--json"))
    assert [plan["name"] for plan in found["plans"]] == ["plan-03.toml", "plan-02.toml", "plan-01.toml"]
    assert found["regret"] == pytest.approx(2.0)
    said = refusal(*words, "--measured", file, "--export-top", "2")
    assert "--measured ranks plans that are written" in said


# --- Is a plan that a study publishes as a winner faster under every start of L2 that it was scored on?
# Each is timed again from its file, by the door that anybody would use and event by event (SimPy), not by
# what the study kept.

LAYERS = {
    "1x1": ConvProblem((4, 64, 28, 28), (128, 64, 1, 1)),
    "3x3": ConvProblem((4, 64, 14, 14), (64, 64, 3, 3), padding=1),
    "3x3, stride 2": ConvProblem((2, 64, 28, 28), (64, 64, 3, 3), stride=2, padding=1),
    "5x5, few channels": ConvProblem((2, 8, 24, 24), (24, 8, 5, 5), padding=2),
    "depthwise": ConvProblem((2, 32, 28, 28), (32, 1, 3, 3), padding=1, groups=32),
    "small and deep": ConvProblem((2, 512, 7, 7), (512, 512, 3, 3), padding=1),
}
PRODUCTS = ("910B2", "950PR_9589", "310P", "910A")
WINNERS_GRADIENTS = ("grad_input", "grad_weight")
# Layers, products and gradients that have winners among so few plans: of both kinds of cores.
QUICK = [
    ("1x1", "910B2", "grad_weight"),
    ("3x3", "310P", "grad_weight"),
    ("3x3, stride 2", "950PR_9589", "grad_input"),
    ("3x3", "910A", "grad_input"),
]


def studied(layer, product, gradient, **options):
    options = {"trials": 12, "doubt": False, "starts": ("warm", "handed", "cold")} | options
    asked = TilingQuestion("a test", product, LAYERS[layer], gradient, **options)
    return study_tiling(asked, Engine(Store(), 1), Budget())[0]


def timed_again(answer, plan, start):
    """Microseconds of the kernels on which a plan has a say, from the call itself."""
    asked = answer.question
    result = estimate(
        asked.problem,
        output_mask=asked.gradients,
        product=asked.product,
        tiling={asked.gradient: plan},
        l2_start=start,
        engine="simpy",
    )
    return sum(kernel.time_us for kernel in planned(result))


def check(answer, folder):
    """Time both plans again under every start that was scored; return whether a winner was published."""
    (folder / "best.toml").write_text(plan_text(answer))
    published = read_plans(folder / "best.toml").plans[answer.question.gradient]
    for start in answer.question.starts:
        before, after = (timed_again(answer, plan, start) for plan in (answer.usual.plan, published))
        assert (before, after) == (answer.usual.times_us[start], answer.best.times_us[start])
        assert after < before or not answer.wins
    return answer.wins


@pytest.mark.parametrize("case", QUICK, ids=" ".join)
def test_no_published_winner_loses_under_a_start_it_was_scored_on(case, tmp_path):
    assert check(studied(*case), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("name", PRODUCTS)
def test_no_published_winner_of_many_loses_under_a_start_it_was_scored_on(name, score, tmp_path):
    cases = list(product(LAYERS, WINNERS_GRADIENTS))
    answers = [studied(layer, name, gradient, trials=40, score=score) for layer, gradient in cases]
    # At least a quarter of all calls has a winner, so that there is something to hold.
    assert sum(check(answer, tmp_path) for answer in answers) >= len(cases) // 4


def test_a_plan_that_loses_under_one_start_is_no_winner_and_is_said_to_lose():
    answer = studied("3x3", "310P", "grad_weight", trials=2)
    times = {start: us / 2 for start, us in answer.usual.times_us.items()}
    times["handed"] = 1.25 * answer.usual.times_us["handed"]
    judged = replace(answer, best=replace(answer.best, times_us=times))
    assert not judged.wins
    said = (
        "saves 50.0 % with L2 warm and costs 25.0 % with L2 handed and saves 50.0 % with L2 cold, but is no "
        "winner: it loses with L2 handed."
    )
    assert said in tiling_sentence(judged)
