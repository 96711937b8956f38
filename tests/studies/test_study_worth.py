"""Does a best plan win only where it wins at every end, and is what it saves told of call and step?"""

from dataclasses import replace

import pytest

from ascendsim import ConvProblem, estimate, load_profile
from ascendsim.errors import UnsupportedError
from ascendsim.ops.plan import Plan
from ascendsim.ops.tiling.entries import entry_values
from ascendsim.ops.tiling.request import PlanRequest
from ascendsim.report.studies.tiling import tiling_record, tiling_tables
from ascendsim.report.studies.tiling_words import margin_note, tiling_sentence
from ascendsim.studies.engine.measure import planned
from ascendsim.studies.engine.run import Budget, Engine, Store
from ascendsim.studies.tuning.records import TilingQuestion
from ascendsim.studies.tuning.search import OperatorTilings, unmade
from ascendsim.studies.tuning.study import set_beside, study_tiling
from ascendsim.validate.run import tuning_noise
from ascendsim.workloads import load_workload

NEWER = "950PR_9589"
TURNING = "paths.GM_L1.transposing_bytes_per_cycle"


def layer(name, batch):
    return ConvProblem(**load_workload("resnet50").layer(name).problem_options(batch))


def studied(problem, product, gradient, **options):
    options = {"trials": 6, "starts": ("handed",), "margin": tuning_noise().p90} | options
    asked = TilingQuestion("a test", product, problem, gradient, **options)
    return study_tiling(asked, Engine(Store(), 1), Budget())


@pytest.fixture(scope="module")
def turned():
    """A plan whose gain is that vector cores turn the weights first."""
    return studied(layer("s4b1_3x3", 32), NEWER, "grad_input", nests="operators")[0]


def saved(answer, **figures):
    """What the best plan saves with figures at other values, timed by itself."""
    profile = load_profile(answer.question.product, overrides={TURNING: figures["turning"]})
    times = [
        sum(
            kernel.time_us
            for kernel in planned(
                estimate(
                    answer.question.problem,
                    product=profile,
                    output_mask=answer.question.gradients,
                    tiling={answer.question.gradient: plan},
                    l2_start="handed",
                )
            )
        )
        for plan in (answer.usual.plan, answer.best.plan)
    ]
    return 1 - times[1] / times[0]


def test_a_gain_that_hangs_on_a_derived_figure_is_no_win_but_a_condition(turned):
    assert turned.best.plan.tiling.transpose_first
    assert load_profile(NEWER).figures[TURNING].confidence == "derived"
    assert turned.leads
    assert not turned.wins
    assert f"but wins only if {TURNING} < " in tiling_sentence(turned)
    (table,) = [one for one in tiling_tables(turned) if one.title.startswith("Figures that decide")]
    # Where the figure stands, between which values it may lie, and what is saved at the end that decides.
    headings = "figure", "now", "may be", "wins if", "no faster if", "at that end"
    assert table.headings == headings
    figure = load_profile(NEWER).figures[TURNING]
    assert table.rows[0][:3] == (TURNING, f"{figure.value}", "{} to {}".format(*figure.range))
    assert tiling_record(turned)["verdict"]["conditions"][0]["figure"] == TURNING


def test_the_condition_is_where_the_saving_passes_the_margin(turned):
    (condition,) = [one for one in turned.conditions if one.figure == TURNING]
    margin = turned.question.margin
    # A whole number: the last one that wins is the one before.
    assert saved(turned, turning=condition.at - 1) > margin >= saved(turned, turning=condition.at)
    (even,) = [one for one in turned.even if one.figure == TURNING]
    assert saved(turned, turning=even.at - 1) > 0 >= saved(turned, turning=even.at)
    assert condition.at < even.at


def test_no_operator_splits_a_kernel_of_stride_1():
    problem, profile = layer("s4b1_3x3", 32), load_profile(NEWER)
    tilings = OperatorTilings(PlanRequest(problem, "grad_input", "float16", profile))
    found = [near for start in tilings.starts() for near in (start, *tilings.neighbours(start))]
    assert {plan.schedule for plan in found} == {"dgrad_shares"}
    split = replace(found[0], schedule="dgrad_split", tiling=replace(found[0].tiling, kernel_split="hw"))
    assert "splits the kernel along an axis of stride 1" in unmade(split, problem)
    assert not unmade(split, replace(problem, stride=(2, 2)))
    assert unmade(replace(split, schedule="dgrad"), problem) == "its nest, dgrad, is this simulator's"
    own = Plan("dgrad", found[0].tiling)
    assert not unmade(own, problem, own)


def test_the_same_tiles_are_tried_in_the_operators_other_nests():
    problem = ConvProblem((2, 64, 28, 28), (64, 64, 3, 3), stride=2, padding=1)
    tilings = OperatorTilings(PlanRequest(problem, "grad_input", "float16", load_profile(NEWER)))
    for start in tilings.starts():
        sizes = start.tiling.base_m, start.tiling.base_n, start.tiling.base_k
        same = [
            plan
            for plan in tilings.neighbours(start)
            if (plan.tiling.base_m, plan.tiling.base_n, plan.tiling.base_k) == sizes
        ]
        kinds = {(plan.tiling.kernel_split, plan.tiling.transpose_first) for plan in (start, *same)}
        assert kinds >= {("", False), ("", True), ("h", False), ("h", True), ("hw", False), ("hw", True)}


@pytest.mark.parametrize(("schedule", "advice"), [("dgrad_split", False), ("dgrad", True)])
def test_what_has_no_entry_is_not_told_to_tune_the_operators_nests_again(turned, schedule, advice):
    with pytest.raises(UnsupportedError, match="entries are written of dgrad_shares") as refused:
        entry_values(
            "grad_input",
            layer("s4b1_3x3", 32),
            "float16",
            replace(turned.best.plan, schedule=schedule),
            "3510",
        )
    assert ("--nests operators" in str(refused.value)) == advice


# --- What is saved of the kernel, the call, a deterministic call and a training step


@pytest.fixture(scope="module")
def weight():
    return studied(layer("s2b0_1x1a", 8), "910B2", "grad_weight", trials=8, doubt=False)[0]


def test_what_is_saved_is_told_of_the_kernel_the_call_and_the_step(weight):
    found = {row.what: row for row in weight.reaches}
    assert list(found) == ["kernel", "call", "deterministic call", "training step"]
    saved = [row.saved for row in found.values()]
    assert saved[0] == weight.saved("handed")
    # The call has changes of layout beside, the step the other gradients.
    assert saved[0] > saved[1] > saved[3] > 0
    problem, best = weight.question.problem, {"grad_weight": weight.best.plan}
    for name, options in {
        "call": {"output_mask": (False, True, False)},
        "deterministic call": {"output_mask": (False, True, False), "deterministic": True},
        "training step": {"output_mask": (True, True, True)},
    }.items():
        for tiling, time_us in ((None, found[name].usual_us), (best, found[name].best_us)):
            result = estimate(problem, product="910B2", tiling=tiling, l2_start="handed", **options)
            assert result.time_us == pytest.approx(time_us), name
    said = tiling_sentence(weight)
    assert f"{100 * saved[1]:.1f} % of the whole call" in said
    assert f"{100 * saved[2]:.1f} % of a deterministic call" in said
    assert f"{100 * saved[3]:.1f} % of the layer's training step" in said
    assert [row["what"] for row in tiling_record(weight)["reaches"]] == list(found)


def test_deterministic_calls_can_be_tuned():
    answer, tuner = studied(
        layer("s2b0_1x1a", 8), "910B2", "grad_weight", trials=6, doubt=False, deterministic=True
    )
    usual = estimate(
        answer.question.problem, product="910B2", output_mask=(False, True, False), deterministic=True
    )
    assert answer.usual.plan.tiling == usual.plans["grad_weight"].tiling
    assert {point.deterministic for point in tuner.timed.values()} == {True}
    assert [row.what for row in answer.reaches] in ([], ["kernel", "call", "training step"])
    assert ", deterministic: " in tiling_sentence(answer)
    beside = set_beside(answer.question)
    assert beside.starts[0].times_us[0] == answer.usual.times_us["handed"]


def test_the_margin_is_said_to_be_of_so_many_pairs():
    noise = tuning_noise()
    (note,) = margin_note(noise.p90)
    assert f"of {noise.pairs} measured pairs of matrix products, {noise.near} of them near" in note
    assert not margin_note(0.07)
