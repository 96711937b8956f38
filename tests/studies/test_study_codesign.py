"""Are designs timed under plans tuned for them, kept within the budget, and is the front the front?"""

import json
from dataclasses import replace

import pytest

from ascendsim import ConvProblem, estimate, load_profile
from ascendsim.errors import ConfigError
from ascendsim.profile import CostFormula, parse_changes
from ascendsim.profile.schema import LEVELS
from ascendsim.report.studies.codesign import (
    codesign_answered,
    codesign_page,
    codesign_record,
    codesign_sentence,
    codesign_table,
)
from ascendsim.studies.codesign import study_codesign
from ascendsim.studies.engine.run import Budget, Engine, Store
from ascendsim.studies.hardware.records import Design, DesignAnswer, DesignQuestion, Doubt, StudiedLayer
from ascendsim.studies.verdicts import Condition
from tests.helpers.report_samples import SMALL, STREAM, STUDIED_LAYERS

PROFILE = load_profile("910B2")
CORES, L0C = "cores.cube=12,x2", "buffers.L0C.capacity_bytes=x2"


def question(*groups, cost="cores.cube", budget=None, tilings=2):
    changes = tuple(parse_changes(text) for text in groups)
    return DesignQuestion(
        "a test", "910B2", STUDIED_LAYERS, changes, CostFormula(cost), budget, ("warm",), tilings, doubt=False
    )


def answered(asked):
    return study_codesign(asked, Engine(Store(), 1), Budget())


# ---- Costs


@pytest.mark.parametrize(
    ("formula", "cost"),
    [
        ("3", 3),
        ("cores.cube", 24),
        # 24 + 131072 / 4096 - 2 x 1.6
        ("cores.cube + buffers.L0C.capacity_bytes / 4096 - 2 * links.memory.nominal_tb_per_s", 52.8),
        ("-(cores.cube - 4) * 2", -40),
        ("2 * (cores.cube - 20) ^ 2 + sqrt(cores.cube + 1)", 37),
        ("min(cores.cube, 5) + max(cores.cube, 5)", 29),
    ],
)
def test_a_formula_is_what_it_says(formula, cost):
    assert CostFormula(formula).of(PROFILE) == pytest.approx(cost)


@pytest.mark.parametrize(
    ("formula", "told"),
    [
        ("cores.cub", "did you mean cores.cube"),
        ("core_structure", "no number"),
        ("1 / (cores.cube - 24)", "divides by 0"),
        ("1e400 - cores.cube", "is inf on 910B2; it must be a finite number"),
        ("__import__('os')", "is not allowed"),
        ("sqrt(cores.cube, 2)", "is not allowed"),
        ("(4 - cores.cube) ^ 0.5", "takes a root of a negative number"),
        ("min(sqrt(0 - 1), 2)", "takes a root of a negative number"),
        ("9 ^ 9 ^ 9 ^ 9", "must be a finite number"),
        ("cores.cube ** 9999", "is not allowed"),
        ("cores.cube +", "expected figures"),
        ("", "expected figures"),
    ],
)
def test_what_is_no_formula_is_told(formula, told):
    with pytest.raises(ConfigError, match=told):
        CostFormula(formula).of(PROFILE)


# ---- Designs


@pytest.fixture(scope="module")
def answer():
    return answered(question(CORES, L0C))


def test_every_combination_is_a_design_once(answer):
    # Two values of one figure and none, times one of another and none: 3 x 2.
    assert [design.name for design in answer.designs] == [
        "as it is",
        L0C,
        "cores.cube=12",
        f"cores.cube=12 {L0C}",
        "cores.cube=x2",
        f"cores.cube=x2 {L0C}",
    ]
    assert [design.cost for design in answer.designs] == [24, 24, 12, 12, 48, 48]


def test_usual_times_are_those_of_estimate(answer):
    for design in answer.designs:
        profile = load_profile("910B2", overrides=dict(design.figures) or None)
        masks = ((True, False, False), (False, True, False))
        kernels = (k for m in masks for k in estimate(STREAM, product=profile, output_mask=m).kernels)
        # Changes of layout are not counted: no plan changes them.
        alone = (kernel.time_us for kernel in kernels if not kernel.name.startswith("transdata_"))
        assert design.usual_us == pytest.approx(sum(alone), abs=1e-9)


def test_tuned_plans_are_never_slower_than_usual_ones(answer):
    assert all(design.tuned_us <= design.usual_us for design in answer.designs)


def test_what_is_over_the_budget_is_not_timed():
    found = answered(question(CORES, budget=24, tilings=1))
    assert [design.reason for design in found.designs] == ["", "", "over the budget"]
    assert not any(design.refused for design in found.designs)
    assert codesign_table(found).rows[2] == ("3", "cores.cube=x2", "48", "-", "-", "", "", "over the budget")
    assert "within 24" in codesign_sentence(found)


def test_a_design_that_cannot_be_has_its_reason():
    # Fewer vector cores than cube cores, of which each needs one.
    found = answered(question("cores.vector=12", tilings=1))
    refused = found.designs[1]
    assert refused.reason.startswith("cores.vector: got 12 for 24 cube cores")
    assert refused.refused
    # There is no such product, so that nothing of it has a cost.
    assert refused.cost is None
    row = codesign_table(found).rows[1]
    assert row[1:5] == ("cores.vector=12", "-", "-", "-")
    assert row[-1].startswith("refused: ")
    assert codesign_sentence(found).endswith("1 of 1 designs are on the front; 1 is refused.")
    assert codesign_record(found)["designs"][1]["cost"] is None


def test_a_design_that_refuses_a_layer_is_timed_without_it_and_is_on_no_front():
    wide = ConvProblem((1, 3, 224, 224), (64, 3, 7, 7), stride=2, padding=3)
    layers = (
        StudiedLayer("small", SMALL, (False, True, False)),
        StudiedLayer("wide", wide, (False, True, False)),
    )
    asked = replace(question("buffers.L1.capacity_bytes=2560", cost="1", tilings=1), layers=layers)
    found = answered(asked)
    as_is, smaller = found.designs
    assert list(smaller.without) == ["grad_weight of wide"]
    assert 0 < smaller.tuned_us <= smaller.usual_us
    assert found.front == (as_is,)
    assert not found.untold
    assert codesign_table(found).rows[1][-1] == "without grad_weight of wide"
    assert codesign_sentence(found).endswith("1 of 1 designs are on the front.")
    assert "cannot run grad_weight of wide" in codesign_answered(found).notes[-1]


def test_a_figure_of_two_groups_is_refused():
    with pytest.raises(ConfigError, match=r"cores\.cube is changed by two"):
        answered(question("cores.cube=12", "cores.cube=20", tilings=1))


@pytest.mark.parametrize("change", ["cores.cube=24", "cores.cube=x1", "cores.cube=12,24"])
def test_what_the_product_has_already_is_no_design(change):
    store = Store()
    with pytest.raises(ConfigError, match=r"cores\.cube=\w+ is what 910B2 has: leave it out"):
        study_codesign(question(change), Engine(store, 1), Budget())
    assert store.count() == 0


def test_a_change_of_two_figures_may_leave_one_as_it_is():
    found = answered(question("cores.cube=24+cores.vector=24", tilings=1))
    assert [design.name for design in found.designs] == ["as it is", "cores.cube=24+cores.vector=24"]


def test_a_formula_of_no_figure_is_told_before_anything_is_timed():
    store = Store()
    with pytest.raises(ConfigError, match=r"did you mean cores\.cube"):
        study_codesign(question(CORES, cost="cores.cub"), Engine(store, 1), Budget())
    assert store.count() == 0


def test_without_trials_the_study_says_how_to_go_on():
    with pytest.raises(ConfigError, match="run the same command again"):
        study_codesign(question(CORES), Engine(Store(), 1), Budget(trials=1))


def test_a_design_with_fewer_plans_tried_is_none():
    # The usual and the searched plan of both gradients are four calls, and plans beside them more: cut there,
    # a design would be judged by fewer plans than the others.
    asked, store, cuts = question("cores.cube=12", tilings=5), Store(), 0
    wanted = Store()
    whole = study_codesign(asked, Engine(wanted, 1), Budget())
    while store.count() < wanted.count() - 3:
        with pytest.raises(ConfigError, match=r"used up .*run the same command again to go on"):
            study_codesign(asked, Engine(store, 1), Budget(trials=3))
        cuts += 1
    assert cuts > 2
    assert study_codesign(asked, Engine(store, 1), Budget(trials=3)) == whole


def test_the_front_is_what_nothing_beats_at_its_cost():
    places = {"a": (1, 9.0), "b": (2, 9.0), "c": (2, 7.0), "d": (3, 8.0), "e": (4, 5.0)}
    designs = [Design(name, {}, cost, us, us) for name, (cost, us) in places.items()]
    designs.append(Design("f", {}, 0.5, reason="cannot be"))
    answer = DesignAnswer(question(CORES), "910B2", "", 0, tuple(designs))
    # b costs more than a for the same time, d more than c for a longer one, f was not timed.
    assert [design.name for design in answer.front] == ["a", "c", "e"]


@pytest.mark.parametrize(("margin", "told"), [(0.0, False), (0.04, True), (0.03, False)])
def test_a_gain_below_the_margin_is_no_difference(margin, told):
    # 100 us as it is, 96.5 us with a change: 3.5 % less.
    designs = Design("as it is", {}, 24, 100.0, 100.0), Design("other", {}, 16, 96.5, 96.5)
    asked = replace(question(CORES), margin=margin)
    sentence = codesign_sentence(DesignAnswer(asked, "910B2", "", 0, designs))
    assert ("3.5 % less than the product as it is (24)" in sentence) is not told
    assert ("; not distinguishable from it, the cheapest first: as it is (24, 100.00 us)" in sentence) is told


@pytest.mark.parametrize(
    ("margin", "told"),
    [
        # 95 is 1.0 % less than 96, 5.0 % less than 100, and much less than 120.
        (0.043, "takes 95.00 us; not distinguishable from it, the cheapest first: b (20, 96.00 us); 4 of"),
        (0.06, "not distinguishable from it, the cheapest first: c (16, 100.00 us), b (20, 96.00 us); 4 of"),
        (0.005, "takes 95.00 us; 4 of"),
        (0.5, "the cheapest first: d (12, 120.00 us), c (16, 100.00 us), b (20, 96.00 us); 4 of"),
    ],
)
def test_designs_that_are_as_fast_are_named(margin, told):
    times = {"a": (28, 95.0), "b": (20, 96.0), "c": (16, 100.0), "d": (12, 120.0)}
    designs = [Design(name, {}, cost, us, us) for name, (cost, us) in times.items()]
    asked = replace(question(CORES), margin=margin)
    assert told in codesign_sentence(DesignAnswer(asked, "910B2", "", 0, tuple(designs)))


def test_points_inside_each_others_bars_are_one_class():
    # The margin of 5 % makes the bars: 100 and 97 lie in each other's, 80 in none.
    asked = replace(question(CORES), margin=0.05)
    times = {"a": (1, 100.0), "b": (2, 97.0), "c": (3, 80.0)}
    designs = tuple(Design(name, {}, cost, us, us) for name, (cost, us) in times.items())
    found = DesignAnswer(asked, "910B2", "", 0, designs)
    assert [[one.name for one in own] for own in found.classes] == [["c"], ["b", "a"]]
    # What the fastest saves of the time of b lies between so much: inside the margin's bar, and beyond it.
    for ends, bar in (((0.15, 0.2), (97 * 0.95, 97 * 1.05)), ((0, 0.5), (80, 160))):
        doubted = replace(designs[1], behind=Doubt(*ends, 1))
        assert replace(found, designs=(designs[0], doubted, designs[2])).bar(doubted) == bar


def test_a_cost_of_results_is_that_of_the_timed_calls():
    (timed, by_time) = (answered(question(CORES, cost=cost)) for cost in ("cores.cube", "2 * result.time_us"))
    assert [one.cost for one in by_time.designs] == [2 * one.tuned_us for one in timed.designs]
    by_bytes = answered(question(CORES, cost="result.bytes.L2 / 1e6"))
    assert all(one.cost > 0 for one in by_bytes.designs)
    with pytest.raises(ConfigError, match="lacks energy"):
        answered(question(CORES, cost="result.energy_uj"))


@pytest.mark.parametrize(("leakage", "least"), [(0, 500), (150_000, 1000)])
def test_energy_has_a_minimum_between_the_clocks_where_leakage_is_high(tmp_path, leakage, least):
    # Slow clocks leak for longer, fast ones need more volts.
    figures = {
        "energy.mac_pj.float16": 4,
        "energy.vector_pj_per_cycle": 500,
        "energy.core_pj_per_cycle": 1500,
        "energy.leakage_pj_per_cycle": leakage,
        "energy.nominal_mhz": 1800,
        **{f"energy.{way}_pj_per_byte.{level}": 1 for way in ("read", "write") for level in LEVELS},
        **{f"energy.voltage_v.{mhz}": volts for mhz, volts in ((500, 0.6), (1000, 0.65), (1800, 1.0))},
    }
    product = tmp_path / "own.toml"
    told = (
        f'{path} = {{ value = {value}, source = "a test", confidence = "design" }}'
        for path, value in figures.items()
    )
    product.write_text("\n".join(['base = "910B2"', *told]))
    mhz = "500,1000,1500,2000"
    asked = question(f"clock.cube_mhz={mhz}+clock.vector_mhz={mhz}", cost="result.energy_uj", tilings=1)
    found = answered(replace(asked, product=str(product)))
    *timed, beyond = found.designs
    by_clock = {one.figures.get("clock.cube_mhz", 1800): one for one in timed}
    assert min(by_clock, key=lambda clock: by_clock[clock].cost) == least
    assert sorted(by_clock, key=lambda clock: by_clock[clock].tuned_us) == [1800, 1500, 1000, 500]
    # What is decided is no doubt.
    assert {one.cost_ends for one in found.designs} == {None}
    assert "cost between" not in codesign_table(found).headings
    product.write_text(
        product.read_text().replace(
            '4, source = "a test", confidence = "design"',
            '4, source = "a test", confidence = "assumed", range = [2, 8]',
        )
    )
    ranged = answered(replace(asked, product=str(product)))
    # From 4 pJ a multiply-add may take 2 less, or 4 more; at the product's own clock nothing scales them.
    macs = sum(layer.problem.met_macs * layer.count * sum(layer.gradients) for layer in asked.layers)
    low, high = ranged.designs[0].cost_ends
    assert (high - ranged.designs[0].cost) / 2 == pytest.approx(ranged.designs[0].cost - low)
    assert ranged.designs[0].cost - low == pytest.approx(2 * macs / 1e6)
    assert f"{low:g} to {high:g}" in codesign_table(ranged).rows[0]
    assert codesign_record(ranged)["designs"][0]["cost_ends"] == (low, high)
    # It is refused by itself, and none of its calls was timed.
    assert beyond.reason == (
        "clock.cube_mhz: got 2000; energy.voltage_v of own has voltages for 500 to 1800 MHz: take a clock "
        "among them, or add its voltage"
    )
    assert not beyond.usual_us


def test_what_figures_can_turn_is_not_told_apart():
    launch = (Condition("launch.per_core_us", "<", 0.2, -0.01),)
    behind = {"sure": Doubt(0.05, 0.2, 3), "hangs": Doubt(0.05, 0.2, 3, launch), "wide": Doubt(-0.1, 0.2, 3)}
    slower = [Design(name, {}, 24, 100.0, 100.0, behind=doubt) for name, doubt in behind.items()]
    answer = DesignAnswer(question(CORES), "910B2", "", 0, (*slower, Design("fast", {}, 28, 90.0, 90.0)))
    assert [design.name for design in answer.untold] == ["hangs", "wide"]
    assert [row[6] for row in codesign_table(answer).rows] == [
        "5.0 to 20.0 %",
        "unclear",
        "unclear",
        "is it",
    ]


def test_a_design_that_has_more_is_never_slower():
    found = answered(question("buffers.L1.capacity_bytes=x0.25,x2", "cores.cube=12", tilings=4))
    us = {design.name: design.tuned_us for design in found.designs}
    names = ["buffers.L1.capacity_bytes=x0.25", "as it is", "buffers.L1.capacity_bytes=x2"]
    for tail in ("", " cores.cube=12"):
        quarter, usual, double = (us[(name + tail).replace("as it is ", "")] for name in names)
        assert quarter >= usual >= double
    assert us["cores.cube=12"] >= us["as it is"]


@pytest.mark.slow
def test_what_the_fastest_saves_hangs_on_figures():
    found = answered(replace(question("cores.cube=2", tilings=4), doubt=True))
    usual, few = found.designs
    assert found.front[-1] is usual
    assert usual.behind is None
    # More cores may stay idle, so that they cost nothing wherever figures lie; where a launch on each takes
    # longest, they do.
    assert few.behind.low == 0 < few.behind.high
    assert [one.figure for one in few.behind.conditions] == ["launch.per_core_us"]
    assert found.untold == (few,)


def test_the_page_draws_the_front(answer):
    page = codesign_page(answer)
    dots = page.sections[0].pictures[0].chart.dots
    assert sum(dot.marked for dot in dots) == len(answer.front)
    class_of = {one.name: f"class {at}" for at, own in enumerate(answer.classes, 1) for one in own}
    for dot, design in zip(dots, answer.designs, strict=True):
        assert (dot.bar, dot.group) == (answer.bar(design), class_of.get(design.name, ""))
        assert bool(dot.group) == dot.marked
    # Each dot has the number of its design in the table beside it.
    (table,) = page.sections[0].tables
    assert [dot.mark for dot in dots] == [row[0] for row in table.rows] == list("123456")


def test_the_command_answers_first(capsys, tmp_path):
    from ascendsim.cli import main

    words = ["study", "codesign", "s5b1_1x1a", "--cost", "cores.cube", "--change", "cores.cube=12"]
    more = [
        "--tilings",
        "2",
        "--jobs",
        "1",
        "--store",
        str(tmp_path / "s"),
        "--l2-start",
        "warm",
        "--no-interval",
    ]
    assert main([*words, *more, "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("On 910B2, s5b1_1x1a of ResNet-50 v1.5, batch 1: the fastest design is ")
    assert (tmp_path / "study.html").exists()
    assert main([*words, *more, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["designs"]) == 2


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "needs --change PATH=xFACTOR"),
        (("--change", "cores.cube=12", "--table", "x.csv"), "writes no --table: its plans are tuned"),
    ],
)
def test_a_question_that_is_not_whole_is_refused(refusal, words, told):
    assert told in " ".join(refusal("study", "codesign", "s5b1_1x1a", "--cost", "cores.cube", *words).split())


@pytest.mark.parametrize(("study", "listed"), [("codesign", False), ("hardware", True)])
def test_the_help_lists_a_table_only_where_one_is_written(capsys, study, listed):
    from ascendsim.cli import main

    with pytest.raises(SystemExit):
        main(["study", study, "--help"])
    assert ("--table" in capsys.readouterr().out) == listed


def test_designs_of_which_all_are_refused_are_a_mistake(refusal, tmp_path):
    words = ["study", "codesign", "s5b1_1x1a", "--cost", "cores.cube", "--l2-start", "warm"]
    words += ["--tilings", "2", "--jobs", "1", "--store", str(tmp_path / "s")]
    change = ["--change", "cores.vector=12"]
    told = " ".join(refusal(*words, *change).split())
    assert "study codesign: every changed design is refused; cores.vector=12: cores.vector: got 12" in told
    # One that can be timed makes an answer, with the refused one named.
    from ascendsim.cli import main

    assert main([*words, "--change", "cores.vector=12,x2"]) == 0


def test_a_budget_that_no_design_keeps_is_told_with_the_cheapest(refusal, tmp_path):
    words = ["study", "codesign", "s5b1_1x1a", "--cost", "cores.cube", "--l2-start", "warm", "--jobs", "1"]
    words += ["--store", str(tmp_path / "s"), "--change", "cores.cube=20,28", "--budget", "16"]
    told = " ".join(refusal(*words).split())
    # 24 as it is, 20 and 28.
    assert "no design costs at most 16; the cheapest of 3, cores.cube=20, costs 20: raise --budget" in told
    # One that contradicts itself has no cost, and is none of them.
    told = " ".join(refusal(*words, "--change", "cores.vector=12").split())
    assert "no design costs at most 16; the cheapest of 3, cores.cube=20, costs 20" in told
