"""Are the best plans written for a device, and ranked anew by what it measured?"""

import csv
import json
from math import isnan

import pytest

from ascendsim import ConvProblem, read_plans
from ascendsim.errors import ConfigError, DataError
from ascendsim.report.studies.beside import measured_notes, measured_sentence, measured_table
from ascendsim.studies.engine.run import Budget, Engine, Store
from ascendsim.studies.tuning.records import TilingQuestion
from ascendsim.studies.tuning.search import tune
from ascendsim.studies.tuning.tune import INDEX, Tuner, export, exported_plans, top
from ascendsim.validate.plans.measured import MeasuredPlan, measured_times, ranked_anew

LAYER = ConvProblem((2, 64, 14, 14), (64, 64, 3, 3), padding=1)
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
    best = top(tuned, 4)
    assert [one.trial for one in found] == best
    assert [tuned.score(trial) for trial in best] == sorted(map(tuned.score, best))
    assert tuned.score(best[0]) == tuned.score(tuned.best)
    plans = exported_plans(tmp_path, "grad_weight")
    assert list(plans) == [f"plan-0{rank}.toml" for rank in (1, 2, 3, 4)]
    assert list(plans.values()) == [trial.plan for trial in best]


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
    assert [row["rank"] for row in rows] == ["1", "2"]
    assert float(rows[0]["us_warm"]) == top(tuned, 1)[0].times_us["warm"]
    assert rows[0]["plan"].startswith(str(top(tuned, 1)[0].plan.schedule))


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
    printed = answer(*words, "--tilings", "6", "--margin", "4", "--no-interval", "--export-top", "3")
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
