"""Does the study of tilings find legal plans that the model times as faster, and say what they are worth?"""

import json
from dataclasses import replace

import pytest

from ascendsim import ConvProblem, Plan, Tiling, estimate, legal_tilings, load_profile, read_plans
from ascendsim.errors import ConfigError
from ascendsim.ops.tiling.request import PlanRequest
from ascendsim.profile.records import ranged_figures
from ascendsim.report.studies.tiling import (
    notes,
    plan_text,
    tiling_page,
    tiling_record,
    waits_table,
)
from ascendsim.report.studies.tiling_words import tiling_sentence
from ascendsim.studies.engine.run import Budget, Engine, Store
from ascendsim.studies.sweep import variables
from ascendsim.studies.tuning.records import TilingQuestion, Trial
from ascendsim.studies.tuning.search import Tilings, Wish, _told, neighbours, nests_of
from ascendsim.studies.tuning.study import set_beside, study_tiling
from ascendsim.studies.tuning.tune import Tuner
from ascendsim.studies.verdicts import Condition, GainVerdict
from ascendsim.validate.run import tuning_noise

LAYER = ConvProblem((4, 64, 14, 14), (64, 64, 3, 3), padding=1)
PROFILE = load_profile("910B2")
GRADIENTS = ("grad_input", "grad_weight")


def question(gradient="grad_weight", **options):
    options = {"problem": LAYER, "trials": 20, "doubt": False} | options
    return TilingQuestion("a test", "910B2", gradient=gradient, **options)


def studied(asked, store=None):
    return study_tiling(asked, Engine(store or Store(), 1), Budget())


def tuner(**options):
    return Tuner(question(**options), Engine(Store(), 1), Budget(), "float16")


@pytest.fixture(scope="module", params=GRADIENTS)
def found(request):
    return studied(question(request.param))


# ---- Plans


@pytest.mark.parametrize("gradient", GRADIENTS)
def test_every_neighbour_is_legal_and_another_plan(gradient):
    tilings = Tilings(PlanRequest(LAYER, gradient, "float16", PROFILE))
    legal = legal_tilings(LAYER, gradient, PROFILE)
    mask = (gradient == "grad_input", gradient == "grad_weight", False)
    plan = estimate(LAYER, product=PROFILE, output_mask=mask, tiling="search").plans[gradient]
    near = neighbours(plan, tilings)
    assert len(near) >= 20
    assert len(set(near)) == len(near)
    assert plan not in near
    assert [other for other in near if other.tiling not in legal] == []


def test_a_neighbour_orders_the_same_tasks_otherwise_where_a_nest_does():
    # `dgrad_columns_outer` is `dgrad` with its tasks sorted by columns; nests of shares obey other fields.
    assert nests_of("dgrad") == ("dgrad", "dgrad_columns_outer")
    assert nests_of("wgrad") == ("wgrad",)
    tilings = Tilings(PlanRequest(LAYER, "grad_input", "float16", PROFILE))
    mask = (True, False, False)
    plan = estimate(LAYER, product=PROFILE, output_mask=mask, tiling="search").plans["grad_input"]
    assert plan.schedule == "dgrad"
    assert "dgrad_columns_outer" in {near.schedule for near in neighbours(plan, tilings)}
    # From there steps stay in the other nest, and one leads back.
    other = replace(plan, schedule="dgrad_columns_outer")
    back = [near for near in neighbours(other, tilings) if near.schedule == "dgrad"]
    assert len(back) == 1


def test_wishes_that_mean_the_same_are_one_plan():
    tilings = Tilings(PlanRequest(LAYER, "grad_input", "float16", PROFILE))
    # A reduction of 9 taps x 64 channels = 576 in all: a tile of 10,000 holds what one of 576 holds.
    base = Wish.of(Tiling(64, 64, 64))
    long, longer = (replace(base, reduction_a=length, reduction_b=length) for length in (576, 10_000))
    assert tilings.plan(long) == tilings.plan(longer)


def test_what_is_no_base_block_is_no_plan():
    tilings = Tilings(PlanRequest(LAYER, "grad_input", "float16", PROFILE))
    assert tilings.plan(Wish.of(Tiling(65, 64, 64))) is None
    # L0C holds 128 KiB; 1024 x 64 sums of float32 take 256.
    assert tilings.plan(Wish.of(Tiling(1024, 64, 64))) is None
    assert tilings.plan(Wish.of(Tiling(64, 64, 64, k_split=1000))) is None


@pytest.mark.parametrize("gradient", GRADIENTS)
def test_no_plan_is_faster_than_its_bound(gradient):
    asked = tuner(gradient=gradient)
    for tiling in legal_tilings(LAYER, gradient, PROFILE).sample(12, seed=1):
        plan = Plan("dgrad" if gradient == "grad_input" else "wgrad", tiling)
        result = estimate(LAYER, product=PROFILE, output_mask=asked.question.gradients, tiling=plan)
        assert asked.least_us(plan) <= result.time_us


VOLUMES = {
    # Of three taps in depth one meets the only depth; of six pairs of tap and depth four meet one of two.
    "one depth": ConvProblem((4, 64, 1, 14, 14), (64, 64, 3, 3, 3), padding=(1, 1, 1)),
    "two depths": ConvProblem((2, 64, 2, 9, 9), (64, 64, 3, 3, 3), padding=(1, 2, 2)),
}


def test_taps_that_meet_padding_alone_are_not_counted():
    # Along H and W of 9 pixels, 3 taps and 2 of padding, 11 pixels are made: 9 of them meet under each tap.
    assert VOLUMES["two depths"].met_macs == 2 * 64 * 64 * 4 * 27 * 27
    # 14 pixels of padding 1: 13, 14 and 13 of them meet.
    assert VOLUMES["one depth"].met_macs == 4 * 64 * 64 * 1 * 40 * 40


@pytest.mark.parametrize(("size", "kernel"), [(1, 7), (5, 3), (12, 5)])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("pad", [0, 1, 13])
def test_products_that_meet_an_element_are_counted_as_they_are_listed(size, kernel, stride, dilation, pad):
    if size + 2 * pad >= (kernel - 1) * dilation + 1:
        problem = ConvProblem((1, 1, size), (1, 1, kernel), stride, pad, dilation)
        places = [
            pixel * stride + tap * dilation - pad
            for tap in range(kernel)
            for pixel in range(problem.grad_output[2])
        ]
        assert problem.met_macs == sum(0 <= place < size for place in places)


@pytest.mark.parametrize("layer", VOLUMES.values(), ids=VOLUMES)
@pytest.mark.parametrize("gradient", GRADIENTS)
@pytest.mark.parametrize("product", ["910B2", "950PR_9589"])
def test_no_plan_of_a_padded_volume_is_faster_than_its_bound(layer, gradient, product):
    asked = TilingQuestion("a test", product, layer, gradient, trials=2, doubt=False)
    made = Tuner(asked, Engine(Store(), 1), Budget(), "float16")
    for strategy in ("product", "search"):
        trial = made.chosen(strategy)
        assert made.least_us(trial.plan) <= min(trial.times_us.values())


def test_a_layer_whose_taps_all_meet_padding_is_refused():
    # Two taps two apart around the only depth: one meets the padding before it, one that behind it.
    nothing = ConvProblem((1, 16, 1, 8, 8), (16, 16, 2, 1, 1), padding=(1, 0, 0), dilation=(2, 1, 1))
    assert nothing.met_macs == 0
    for gradient in GRADIENTS:
        asked = question(gradient, problem=nothing)
        for call in (studied, set_beside):
            with pytest.raises(ConfigError, match=f"{gradient} of a test: all taps meet padding alone"):
                call(asked)
        # Studies that tune on their way go on: one core does nothing.
        tilings = Tilings(PlanRequest(nothing, gradient, "float16", PROFILE))
        assert tilings.plan(Wish.of(Tiling(16, 16, 16))).tiling.used_cores == 1


# ---- The search


def test_the_best_is_no_slower_than_the_usual_plan_and_the_search(found):
    answer, made = found
    usual, searched = made.chosen("product"), made.chosen("search")
    assert answer.usual == usual
    assert made.score(answer.best) <= min(made.score(usual), made.score(searched))
    # Every trial that is known in full was no better.
    assert made.score(answer.best) == min(map(made.score, made.trials.values()))


def test_times_are_those_of_estimate(found):
    answer, _ = found
    question = answer.question
    for start in question.starts:
        tiling = {question.gradient: answer.best.plan}
        keywords = {"output_mask": question.gradients, "l2_start": start, "tiling": tiling}
        kernels = estimate(LAYER, product="910B2", **keywords).kernels
        counted = [k.time_us for k in kernels if not k.name.startswith("transdata_")]
        assert 0 < len(counted) < len(kernels)
        assert sum(counted) == answer.best.times_us[start]


def test_no_more_tilings_are_tried_than_asked(found):
    answer, made = found
    assert len(made.trials) <= 20
    assert sum(answer.tried.values()) == len(made.trials)


def test_the_same_question_has_the_same_answer_and_computes_nothing_again():
    store = Store()
    asked = question(trials=10)
    first, _ = studied(asked, store)
    kept = store.count()
    assert studied(asked, store)[0] == first
    assert store.count() == kept


def test_a_search_that_trials_cut_says_so_and_goes_on():
    store = Store()
    asked = question(starts=("warm",), trials=6, doubt=False)
    # The usual and the searched plan, and two more.
    cut, _ = study_tiling(asked, Engine(store, 1), Budget(trials=4))
    assert cut.cut
    assert notes(cut)[0].startswith(
        "Time or trials were used up before 6 plans were tried: run the same command"
    )
    whole, _ = studied(asked, store)
    assert not whole.cut
    assert not any("used up" in note for note in notes(whole))
    assert whole == studied(asked)[0]


def test_a_best_plan_is_told_where_nothing_is_left_for_the_ends_of_figures():
    asked, store = question(starts=("warm",), trials=6), Store()
    searched, _ = studied(asked, store)
    # The search is kept, and two trials are one end: the usual plan and the best.
    doubted = replace(asked, doubt=True)
    cut, _ = study_tiling(doubted, Engine(store, 1), Budget(trials=2))
    assert (cut.best, cut.cut) == (searched.best, False)
    assert cut.untried > len(variables(PROFILE))
    assert not cut.wins
    said = f"is no winner yet: {cut.untried} ends of figures with a range are left"
    assert said in tiling_sentence(cut)
    assert notes(cut)[0].startswith("Time or trials were used up before all ends of figures with a range")
    assert tiling_record(cut)["untried"] == cut.untried
    # Nothing at all is left for them where the search has been cut.
    shorter, _ = study_tiling(replace(doubted, trials=12), Engine(store, 1), Budget(trials=1))
    assert shorter.cut
    assert not shorter.wins


@pytest.mark.slow
def test_two_processes_find_what_one_finds():
    asked = question(trials=12)
    two, _ = study_tiling(asked, Engine(Store(), 2), Budget())
    assert two == studied(asked)[0]


def test_a_plan_that_is_too_slow_under_one_start_is_not_timed_under_the_next():
    made = tuner()
    usual = made.chosen("product")
    plans = neighbours(usual.plan, Tilings(PlanRequest(LAYER, "grad_weight", "float16", PROFILE)))[:6]
    made.try_all(plans, "steps", 0.5)
    # Nothing takes less than half a microsecond, which only the launch takes: one start says enough of each.
    assert {len(made.trials[plan].times_us) for plan in plans} <= {0, 1}
    assert all(made.score(made.trials[plan]) == float("inf") for plan in plans)


def test_a_plan_stops_above_the_score_to_beat_and_only_then():
    free = tuner()
    plans = neighbours(
        free.chosen("product").plan, Tilings(PlanRequest(LAYER, "grad_weight", "float16", PROFILE))
    )[:8]
    free.try_all(plans, "steps", float("inf"))
    middle = sorted(map(free.score, free.trials.values()))[3]
    # Launches count in a score and stop nothing, so that a plan a little slower is timed to its end.
    for best, some_stop in ((middle, False), (middle / 2, True)):
        made = tuner()
        made.chosen("product")
        made.try_all(plans, "steps", best)
        assert made.stopped > 0 or not some_stop
        for plan in plans:
            # What beats the score is known as without a bound; of the others, that they do not.
            if free.score(free.trials[plan]) < best:
                assert made.trials[plan] == free.trials[plan]
            else:
                assert made.score(made.trials[plan]) >= best


def test_neither_a_mean_nor_a_chain_stops():
    tilings = Tilings(PlanRequest(LAYER, "grad_weight", "float16", PROFILE))
    for options in ({"score": "mean"}, {"starts": ("chained",)}):
        made = tuner(**options)
        usual = made.chosen("product")
        made.try_all(neighbours(usual.plan, tilings)[:3], "steps", 99.0)
        assert made.stopped == 0
        assert {point.stop_above for point in made.timed.values()} == {None}


def test_small_blocks_are_told_to_be_slow_by_the_heads_of_their_products():
    # Per product 16^3 multiply-adds are one cycle's work, and 128^3 are 512, each behind the same head.
    small, large = (Plan("wgrad", Tiling(side, side, side, used_cores=24)) for side in (16, 128))
    made, head = tuner(), PROFILE.cube.mmad_head_cycles
    least, of_large = (made.least_us(plan) - PROFILE.launch.base_us for plan in (small, large))
    assert least / of_large == pytest.approx((1 + head) / (1 + head / 512))
    assert least > 2 * of_large


def test_the_mean_is_over_all_starts():
    made = tuner(score="mean")
    trial = Trial(Plan("wgrad", Tiling(16, 16, 16)), "steps", {"warm": 2.0, "step": 4.0})
    assert made.score(trial) == 3.0
    made = tuner(score="worst")
    assert made.score(trial) == 4.0


def test_optuna_is_told_the_score_that_was_asked_for():
    made = tuner(score="mean")
    full, part = (Plan("wgrad", Tiling(size, 16, 16)) for size in (16, 32))
    made.trials[full] = Trial(full, "optuna", {"warm": 2.0, "step": 4.0})
    made.trials[part] = Trial(part, "optuna", {"warm": 2.0})
    # Of all starts the mean, (2 + 4) / 2; where one is not known, the worst of the others; else nothing.
    assert [_told(made, plan) for plan in (full, part, None)] == [3.0, 2.0, None]


def test_optuna_is_told_what_a_plan_that_was_not_timed_to_its_end_does_not_beat():
    made = tuner()
    stopped, bounded, begun, refused = (Plan("wgrad", Tiling(16 * at, 16, 16)) for at in range(1, 5))
    made.trials[stopped] = Trial(stopped, "optuna", {}, above_us=7.0)
    made.trials[bounded] = Trial(bounded, "optuna", {}, above_us=9.0)
    made.trials[begun] = Trial(begun, "optuna", {"warm": 3.0}, above_us=5.0)
    made.trials[refused] = Trial(refused, "optuna", {}, "L1 is short")
    assert [_told(made, plan) for plan in (stopped, bounded, begun, refused)] == [7.0, 9.0, 5.0, None]


def test_a_plan_that_stops_or_is_bounded_keeps_the_score_that_it_does_not_beat():
    free = tuner()
    plans = neighbours(
        free.chosen("product").plan, Tilings(PlanRequest(LAYER, "grad_weight", "float16", PROFILE))
    )[:8]
    free.try_all(plans, "steps", float("inf"))
    made = tuner()
    made.chosen("product")
    best = sorted(map(free.score, free.trials.values()))[3] / 2
    made.try_all(plans, "steps", best)
    assert made.stopped > 0
    for plan in plans:
        trial = made.trials[plan]
        assert (
            best
            <= max((trial.above_us, *trial.times_us.values()))
            <= max(best, free.score(free.trials[plan]))
        )


def test_another_score_is_refused():
    with pytest.raises(ConfigError, match="score is 'best'; it must be one of worst, mean"):
        tuner(score="best")


def test_other_nests_are_refused():
    with pytest.raises(ConfigError, match="nests is 'theirs'; it must be one of any, ours, operators"):
        tuner(nests="theirs")


def test_without_optuna_the_steps_are_all(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    _, made = studied(question(trials=12))
    assert {trial.found_by for trial in made.trials.values()} <= {"product", "search", "steps"}


@pytest.mark.slow
def test_optuna_goes_on_where_the_steps_end():
    pytest.importorskip("optuna", reason="optuna is not installed: nothing is drawn")
    _, made = studied(question("grad_input", trials=150, starts=("warm",)))
    assert "optuna" in {trial.found_by for trial in made.trials.values()}


# ---- Why, and how sure


def test_parts_add_up_to_the_cycles_of_both_plans(found):
    answer, _ = found
    for waits in answer.waits:
        assert sum(part.before for part in waits.parts) == waits.before
        assert sum(part.after for part in waits.parts) == waits.after
        table = waits_table(waits)
        differences = [int(row[-1].replace(",", "")) for row in table.rows]
        # The last row is the total, of the same numbers.
        assert sum(differences[:-1]) == differences[-1] == waits.after - waits.before


@pytest.mark.slow
def test_figures_that_are_lists_are_moved_to_their_ends_too():
    # The strides that load3d of the 910A is fast at are assumed; points could not be named by a list.
    asked = question("grad_input", trials=3, starts=("warm",), doubt=True)
    asked = replace(asked, product="910A", problem=ConvProblem((1, 128, 28, 28), (128, 128, 3, 3), padding=1))
    assert any(isinstance(figure.value, list) for figure in ranged_figures(load_profile("910A")).values())
    answer, _ = studied(asked)
    assert answer.verdict
    assert not answer.verdict.untimed


def test_cycles_and_launches_make_the_time(found):
    answer, _ = found
    for waits in answer.waits:
        mhz = PROFILE.clock.cube_mhz
        assert waits.after / mhz + waits.launch_us[1] == pytest.approx(answer.best.times_us[waits.start])


def better(answer, share, **options):
    """The same answer with a best plan that saves so much under every start."""
    times = {start: us * (1 - share) for start, us in answer.usual.times_us.items()}
    plan = replace(answer.usual.plan, tiling=replace(answer.usual.plan.tiling, cl0_buffers=7))
    return replace(answer, best=Trial(plan, "steps", times), **options)


@pytest.mark.parametrize(
    ("saved", "margin", "conditions", "said"),
    [
        (0.10, 0.05, (), "more than the margin of 5.0 %, and does so at both ends of all 28 figures"),
        (0.04, 0.05, (), "but is no winner: that is within the margin of 5.0 %"),
        (0.10, 0.05, (Condition("a.b", "<", 5, 0.0),), "but wins only if a.b < 5."),
        (0.04, 0.05, (Condition("a.b", "<", 1.5, 0.2),), "%; it would win if a.b < 1.5."),
    ],
)
def test_a_winner_wins_by_more_than_the_margin_and_at_every_end(found, saved, margin, conditions, said):
    answer = replace(found[0], question=replace(found[0].question, margin=margin))
    ends = tuple((f"figure {at}", 1, saved / 2) for at in range(28))
    verdict = GainVerdict(saved, saved > margin, ends, conditions)
    judged = better(answer, saved, verdict=verdict)
    assert judged.wins == (saved > margin and not conditions)
    assert said in tiling_sentence(judged)


def test_the_usual_plan_never_beats_itself(found):
    answer = replace(found[0], best=found[0].usual)
    assert not answer.wins
    assert "beats the usual one" in tiling_sentence(answer)


def test_changes_of_the_product_reach_both_plans_and_all_that_is_said_of_them():
    # Half the clock: as many microseconds of 900 MHz as the cycles say, beside the launches.
    asked = question(trials=3, starts=("warm",), changes={"clock.cube_mhz": 900})
    answer, made = studied(asked)
    (waits,) = answer.waits
    assert waits.after / 900 + waits.launch_us[1] == pytest.approx(answer.best.times_us["warm"])
    assert answer.digest == made.profile.content.hex() != PROFILE.content.hex()


@pytest.mark.slow
def test_ends_of_assumed_figures_are_tried_where_asked():
    answer, _ = studied(question("grad_input", trials=30, doubt=True, starts=("warm",)))
    if answer.best.plan == answer.usual.plan:
        pytest.skip("the usual plan is the best: there is no other to try")
    assert 0 < answer.verdict.figures <= len(ranged_figures(PROFILE))


# ---- What is written


def test_the_file_of_the_plan_says_all_of_it(found, tmp_path):
    answer, _ = found
    (tmp_path / "best.toml").write_text(plan_text(answer))
    # A plan that left a field open would be read as a part, which equals no plan.
    assert read_plans(tmp_path / "best.toml").plans == {answer.question.gradient: answer.best.plan}


def test_the_usual_margin_is_the_noise_of_measured_ratios(answer, tmp_path):
    words = ("study", "tiling", "s5b1_1x1a", "--tilings", "2", "--no-interval", "--json", "--jobs", "1")
    words += ("--store", str(tmp_path / "s"), "--l2-start", "warm", "--write-plan", str(tmp_path / "p.json"))
    assert json.loads(answer(*words))["margin"] == tuning_noise().p90
    assert json.loads(answer(*words, "--margin", "7"))["margin"] == pytest.approx(0.07)
    assert isinstance(read_plans(tmp_path / "p.json").plans["grad_input"], Plan)


@pytest.mark.parametrize("percent", ["-50", "100", "nan"])
def test_a_margin_is_a_percentage(refusal, percent):
    words = ("study", "tiling", "s5b1_1x1a", "--tilings", "2", "--margin", percent)
    assert f"--margin is {percent}; it must be a percentage of 0 or more" in refusal(*words)


def test_the_page_has_the_sentence_and_the_waits(found):
    answer, _ = found
    page = tiling_page(answer)
    assert page.answer == tiling_sentence(answer)
    assert len(page.sections[1].tables) == len(answer.question.starts)


def test_the_command_prints_the_answer_first(answer, tmp_path):
    words = ("study", "tiling", "s5b1_1x1a", "--gradient", "weight", "--tilings", "5", "--no-interval")
    paths = ("--store", str(tmp_path / "s"), "--out", str(tmp_path), "--write-plan", str(tmp_path / "p.toml"))
    printed = answer(*words, *paths, "--jobs", "1", "--table", str(tmp_path / "t.csv"))
    assert printed.startswith("On 910B2, grad_weight of s5b1_1x1a of ResNet-50 v1.5, batch 1: ")
    assert set(read_plans(tmp_path / "p.toml").plans) == {"grad_weight"}
    assert "Changes of layout (TransData), which every plan" in " ".join(printed.split())
    assert (tmp_path / "study.html").exists()
    assert (tmp_path / "t.csv").exists()
    made = json.loads(answer(*words, *paths[:2], "--jobs", "1", "--json"))
    assert made["gradient"] == "grad_weight"
