"""Does the study of changes say what they buy, by the times that the model gives, and how sure that is?"""

import json
from dataclasses import replace

import pytest
from test_study_engine import SMALL

from ascendsim import ConvProblem, Plan, Tiling, estimate, load_profile
from ascendsim.errors import AscendSimError, ConfigError
from ascendsim.frozen import FrozenMap
from ascendsim.ops.convolution_backward import plans_of_call
from ascendsim.profile import parse_changes
from ascendsim.report.studies.hardware import hardware_page, hardware_record, hardware_table, notes
from ascendsim.report.studies.hardware_words import hardware_sentence, share
from ascendsim.studies.engine.measure import Answer
from ascendsim.studies.engine.plans import plan_values
from ascendsim.studies.engine.run import Budget, Engine
from ascendsim.studies.engine.store import Store
from ascendsim.studies.hardware.enlarging import enlargings
from ascendsim.studies.hardware.gains import _better_plans, study_hardware
from ascendsim.studies.hardware.records import Doubt, Gain, LayerGain, Question, StudiedLayer
from ascendsim.studies.tuning.records import TilingQuestion
from ascendsim.studies.tuning.search import tune
from ascendsim.studies.tuning.tune import Tuner
from ascendsim.workloads import load_workload

# A layer whose tensors pass L2 once: with nothing in it, memory decides.
STREAM = ConvProblem((8, 64, 28, 28), (64, 64, 1, 1))
LARGE = ConvProblem((32, 256, 56, 56), (64, 256, 1, 1))
BOTH = (True, True, False)
CORES = "cores.cube=x2"
MEMORY = "links.memory.nominal_tb_per_s=x1.5"
L0C = "buffers.L0C.capacity_bytes=x0.25"


LAYERS = (StudiedLayer("stream", STREAM, BOTH),)
SMALL_LAYERS = (StudiedLayer("small", SMALL, BOTH),)


def question(*changes, layers=LAYERS, **options):
    parsed = tuple(change for text in changes for change in parse_changes(text))
    return Question("a test", "910B2", layers, parsed, **({"doubt": False} | options))


def answered(asked, store=None):
    answer, _ = study_hardware(asked, Engine(store or Store(), 1), Budget())
    return answer


def time_us(changes, start, tiling="product", problem=STREAM):
    profile = load_profile("910B2", overrides=changes)
    return estimate(problem, product=profile, output_mask=BOTH, l2_start=start, tiling=tiling)


# ---- Gains


@pytest.mark.parametrize("start", ["warm", "handed"])
def test_times_are_those_of_estimate(start):
    (gain,) = answered(question(CORES, starts=(start,))).gains
    (layer,) = gain.layers
    base = time_us({}, start)
    plans = {kernel.name: kernel.plan for kernel in base.kernels if kernel.plan}
    changed = {"cores.cube": 48}
    assert gain.figures == {"cores.cube": (24, 48)}
    assert layer.base_us == base.time_us
    assert layer.same_us == time_us(changed, start, plans).time_us
    assert layer.anew_us == time_us(changed, start).time_us


@pytest.mark.parametrize(("change", "calls"), [(MEMORY, 2), (CORES, 3)])
def test_planned_anew_is_timed_where_the_change_moves_a_plan(change, calls):
    store = Store()
    (gain,) = answered(question(change, starts=("handed",)), store).gains
    # Before, and under the same plans; anew too, where twice the cores are planned for otherwise.
    assert store.count() == calls
    (layer,) = gain.layers
    values = {path: new for path, (_, new) in gain.figures.items()}
    anew = time_us(values, "handed")
    assert layer.anew_us == anew.time_us
    chosen = plans_of_call(STREAM, output_mask=BOTH, product=load_profile("910B2", overrides=values))
    assert chosen == {kernel.name: kernel.plan for kernel in anew.kernels if kernel.plan}


def test_better_is_never_worse_than_either_plan():
    for gain in answered(question(CORES, MEMORY)).gains:
        for layer in gain.layers:
            assert layer.better_us <= min(layer.same_us, layer.anew_us)


def test_memory_buys_nothing_with_a_warm_l2_and_something_with_a_handed_one():
    warm, handed = answered(question(MEMORY, layers=(StudiedLayer("large", LARGE, BOTH),))).gains
    # Warm, no byte crosses the link to memory: not one cycle can change.
    assert (warm.share, warm.distinguishable) == (0, False)
    assert handed.share > 0.01


def test_added_cores_stay_idle_where_they_cost_more_than_they_save():
    # 48 vector cores more take 0.1 us each to be launched, in each of nine kernels; the layer is small.
    changes = (CORES + "+cores.vector=x2", CORES + "+cores.vector=x2+scalar.start_us=x0.5")
    alone, with_more = answered(question(*changes, starts=("handed",), layers=SMALL_LAYERS)).gains
    (layer,) = alone.layers
    assert layer.better_us == layer.base_us < min(layer.same_us, layer.anew_us)
    # What else changes is still there: the idle cores are all that is left out.
    (layer,) = with_more.layers
    base = time_us({}, "handed", problem=SMALL)
    plans = {kernel.name: kernel.plan for kernel in base.kernels if kernel.plan}
    started = {"scalar.start_us": load_profile("910B2").figures["scalar.start_us"].value / 2}
    assert layer.better_us == time_us(started, "handed", plans, SMALL).time_us < base.time_us


def test_the_doubt_of_idle_cores_leaves_them_idle():
    layers = SMALL_LAYERS
    (gain,) = answered(
        question(CORES + "+cores.vector=x2", starts=("handed",), layers=layers, doubt=True)
    ).gains
    # Before and after are one call, whatever is assumed.
    assert (gain.share, gain.doubt.low, gain.doubt.high) == (0, 0, 0)


def test_tuned_plans_are_those_of_the_tuner_before_and_after():
    asked = question(CORES, starts=("handed",), layers=SMALL_LAYERS, tilings=6)
    (gain,) = answered(asked).gains
    (layer,) = gain.layers
    before, after = layer.tuned_us
    assert before <= layer.base_us
    assert after <= layer.better_us
    found = []
    for changes, usual in (({}, layer.base_us), ({"cores.cube": 48}, layer.better_us)):
        plans = {}
        for name in ("grad_input", "grad_weight"):
            one = TilingQuestion(
                "small", "910B2", SMALL, name, starts=("handed",), trials=6, changes=FrozenMap(changes)
            )
            plans[name] = tune(Tuner(one, Engine(Store(), 1), Budget(), "float16"))[1].plan
        found.append(min(usual, time_us(changes, "handed", plans, SMALL).time_us))
    assert (before, after) == gain.tuned_us == tuple(found)
    answer = answered(asked)
    row = dict(zip(hardware_table(answer).headings, hardware_table(answer).rows[0], strict=True))
    assert row["tuned saves"] == f"{share(1 - after / before)} %"


def test_nothing_is_tuned_unless_asked_for():
    answer = answered(question(MEMORY, starts=("warm",), layers=SMALL_LAYERS))
    assert answer.gains[0].tuned_us is None
    assert "tuned us" not in hardware_table(answer).headings


def answer_of(kernels, plans):
    rows = [{"kernel": name, "cycles": us, "time_us": us} for name, us in kernels.items()]
    values = {name: plan_values(Plan("s", Tiling(at, 16, 16))) for name, at in plans.items()}
    return Answer(json.dumps({"records": rows, "plans": values}))


def test_each_gradient_takes_its_better_plan():
    old = answer_of({"grad_input": 5, "grad_weight": 9}, {"grad_input": 16, "grad_weight": 16})
    # The cast belongs to grad_weight: 6 + 2 is less than 9, though 5 < 7 keeps the old plan of grad_input.
    new = answer_of(
        {"grad_input": 7, "grad_weight": 6, "cast_grad_weight": 2}, {"grad_input": 32, "grad_weight": 32}
    )
    expected = {"grad_input": Plan("s", Tiling(16, 16, 16)), "grad_weight": Plan("s", Tiling(32, 16, 16))}
    assert _better_plans(old, new) == expected


def test_no_third_plan_where_one_answer_has_both_better_gradients():
    old = answer_of({"grad_input": 5, "grad_weight": 9}, {"grad_input": 16, "grad_weight": 16})
    new = answer_of({"grad_input": 4, "grad_weight": 8}, {"grad_input": 32, "grad_weight": 32})
    assert _better_plans(old, new) is None
    assert _better_plans(Answer('{"reason": "does not fit"}'), new) is None


def test_a_plan_that_does_not_fit_any_more_leaves_the_one_planned_anew():
    # A quarter of L0C holds 8192 sums of float32; the plan of the whole one has more.
    (gain,) = answered(question(L0C, starts=("warm",))).gains
    assert gain.same_us is None
    assert gain.better_us == gain.anew_us


def test_a_change_that_contradicts_the_product_is_refused_with_its_reason():
    answer = answered(question("buffers.L0A.capacity_bytes=64", MEMORY))
    assert "buffers.L0A.capacity_bytes=64" in answer.refused
    assert {gain.change for gain in answer.gains} == {MEMORY}
    only = answered(question("buffers.L0A.capacity_bytes=64"))
    assert "none of the changes can be timed" in hardware_sentence(only)


def test_a_layer_that_the_product_cannot_run_is_told():
    asked = question(MEMORY, dtype="float8_e4m3fn")
    with pytest.raises(AscendSimError, match="stream on 910B2"):
        answered(asked)


def test_layers_add_up_to_the_network_with_their_counts():
    layers = (StudiedLayer("one", STREAM, BOTH, 3), StudiedLayer("two", SMALL, (False, True, False), 2))
    (gain,) = answered(question(MEMORY, layers=layers, starts=("handed",))).gains
    one, two = gain.layers
    assert gain.base_us == 3 * one.base_us + 2 * two.base_us
    assert gain.better_us == 3 * one.better_us + 2 * two.better_us
    assert (
        two.base_us
        == estimate(SMALL, product="910B2", output_mask=(False, True, False), l2_start="handed").time_us
    )


def test_a_study_without_trials_says_how_to_go_on_and_goes_on():
    store = Store()
    asked = question(CORES)
    with pytest.raises(ConfigError, match="run the same command again to go on"):
        study_hardware(asked, Engine(store, 1), Budget(trials=3))
    assert store.count() == 3
    assert answered(asked, store) == answered(asked)


# ---- How sure that is


@pytest.fixture(scope="module")
def doubtful():
    layers = (StudiedLayer("small", SMALL, BOTH),)
    return answered(question(MEMORY, "scalar.issue_cycles=x2", layers=layers, starts=("warm",), doubt=True))


def test_the_doubt_holds_the_gain(doubtful):
    for gain in doubtful.gains:
        assert gain.doubt.low <= gain.share <= gain.doubt.high


def test_what_changes_nothing_is_sure_to_change_nothing(doubtful):
    warm = doubtful.gains[0]
    assert (warm.change, warm.start, warm.doubt) == (MEMORY, "warm", Doubt(0, 0, 0))


def test_doubt_moves_a_figure_before_and_after_the_change(doubtful):
    # A core that issues for 2 cycles and one that issues for 40: x2 costs in both, the second time much more.
    gain = next(gain for gain in doubtful.gains if gain.change == "scalar.issue_cycles=x2")
    at = {}
    usual = time_us({}, "warm", problem=SMALL)
    plans = {kernel.name: kernel.plan for kernel in usual.kernels if kernel.plan}
    for end in (1, 20):
        before = time_us({"scalar.issue_cycles": end}, "warm", plans, SMALL).time_us
        after = time_us({"scalar.issue_cycles": 2 * end}, "warm", plans, SMALL).time_us
        at[end] = 1 - after / before
    assert gain.doubt.low <= min(at.values())
    assert gain.doubt.high >= max(at.values())


# ---- What is said


def gain(name, start, better, low, high):
    return Gain(name, {}, start, (LayerGain("l", 1, 100.0, 100.0, better, better),), Doubt(low, high, 1))


CASES = (
    (96.0, 0.03, 0.05, "saves 4.0 % (3.0 to 5.0 %)"),
    (96.0, -0.01, 0.05, "is not distinguishable from no change (-1.0 to 5.0 %)"),
    (104.0, -0.05, -0.03, "costs 4.0 % (-5.0 to -3.0 %)"),
    (100.0, 0.0, 0.0, "changes nothing"),
    (100.0, -0.02, 0.0, "is not distinguishable from no change (-2.0 to 0.0 %)"),
)


@pytest.mark.parametrize(("better", "low", "high", "said"), CASES)
def test_the_sentence_says_what_the_interval_allows(doubtful, better, low, high, said):
    answer = replace(doubtful, gains=(gain("it", "warm", better, low, high),), refused={})
    assert hardware_sentence(answer) == f"On 910B2, a test: it {said} with L2 warm."


def planned(better, same, anew, *, new_plan=True, start="warm"):
    layer = LayerGain("l", 1, 100.0, same, anew, better, new_plan=new_plan)
    return Gain("it", {}, start, (layer,))


PLANS = (
    # All of 12 % comes of the new plan; the old one is as slow as before.
    (planned(88.0, 100.0, 88.0), "saves 12.0 % by another plan (same plan 0.0 %, planned anew 12.0 %)"),
    # Half of it: 6 of 12 %.
    (planned(88.0, 94.0, 88.0), "saves 12.0 % by another plan (same plan 6.0 %, planned anew 12.0 %)"),
    # 2 of 12 %. Of a mixed one the better time is below both.
    (
        planned(88.0, 90.0, 89.0),
        "saves 12.0 % partly by another plan (same plan 10.0 %, planned anew 11.0 %)",
    ),
    # 1 of 12 % is less than a tenth.
    (planned(88.0, 89.0, 88.0), "saves 12.0 %"),
    # Cores that are left idle are no plan.
    (planned(88.0, 100.0, 100.0, new_plan=False), "saves 12.0 %"),
    (planned(88.0, None, 88.0), "saves 12.0 %, under new plans since old ones do not fit,"),
    (
        planned(98.0, None, 98.0),
        "saves 2.0 %, under new plans since old ones do not fit, below the model's margin of 4.3 %,",
    ),
    (planned(98.0, 98.0, 98.0, new_plan=False), "saves 2.0 %, below the model's margin of 4.3 %,"),
    (
        planned(98.0, 100.0, 98.0),
        "saves 2.0 % by another plan (same plan 0.0 %, planned anew 2.0 %), below the model's margin of "
        "4.3 %,",
    ),
    (planned(103.0, 103.0, 104.0, new_plan=False), "costs 3.0 %, below the model's margin of 4.3 %,"),
    (planned(96.0, 96.0, 96.0, new_plan=False), "saves 4.0 %, below the model's margin of 4.3 %,"),
    (planned(95.0, 95.0, 95.0, new_plan=False), "saves 5.0 %"),
)


@pytest.mark.parametrize(("one", "said"), PLANS)
def test_the_sentence_says_what_comes_of_another_plan_and_what_is_below_the_margin(doubtful, one, said):
    asked = replace(doubtful.question, margin=0.043)
    answer = replace(doubtful, question=asked, gains=(one,), refused={})
    assert hardware_sentence(answer) == f"On 910B2, a test: it {said} with L2 warm."
    # The table's verdict, where there is one, says the same in short.
    table = hardware_table(answer)
    cell = table.rows[0][-1] if table.headings[-1] == "verdict" else ""
    assert ("another plan" in said, "below" in said) == ("another plan" in cell, "below the margin" in cell)
    assert ("do not fit" in said) == ("does not fit" in cell)
    assert hardware_record(answer)["gains"][0]["verdict"] == cell


def test_a_new_plan_of_the_study_is_marked_as_one():
    # Half the L0C: the old plan of grad_input does not fit, so that any gain or loss is of a new one.
    (gained,) = answered(question(L0C, starts=("warm",))).gains
    assert gained.layers[0].new_plan
    assert gained.plan_share is None
    # Faster memory moves no plan.
    (gained,) = answered(question(MEMORY, starts=("handed",))).gains
    assert not gained.layers[0].new_plan
    assert gained.plan_share == 0
    # Cores that are left idle follow the old plan.
    change = CORES + "+cores.vector=x2+scalar.start_us=x0.5"
    (gained,) = answered(question(change, starts=("handed",), layers=SMALL_LAYERS)).gains
    assert not gained.layers[0].new_plan


NONE_SAVES = (
    # (changes, what is said)
    (((100.0, 0.0, 0.0), (100.0, 0.0, 0.0)), "none of 2 changes changes anything with L2 warm."),
    (
        ((99.0, -0.01, 0.03), (100.0, 0.0, 0.0)),
        "none of 2 changes is distinguishable from no change with L2 warm.",
    ),
    (
        ((103.0, -0.04, -0.02), (101.0, -0.02, -0.01)),
        "none of 2 changes saves time with L2 warm; c1, the least costly, costs 1.0 % (-2.0 to -1.0 %) with "
        "L2 warm.",
    ),
    (
        ((103.0, -0.04, -0.02), (100.0, 0.0, 0.0)),
        "none of 2 changes surely saves time with L2 warm; 1 of them changes nothing.",
    ),
    (
        ((103.0, -0.04, -0.02), (100.0, -0.01, 0.01), (100.0, 0.0, 0.0), (100.0, 0.0, 0.0)),
        "none of 4 changes surely saves time with L2 warm; 2 of them change nothing; 1 of them cannot be "
        "told from no change.",
    ),
)


@pytest.mark.parametrize(("changes", "said"), NONE_SAVES)
def test_where_nothing_saves_the_sentence_says_so(doubtful, changes, said):
    gains = tuple(gain(f"c{at}", "warm", *one) for at, one in enumerate(changes))
    asked = replace(doubtful.question, starts=("warm",))
    answer = replace(doubtful, question=asked, gains=gains, refused={})
    assert hardware_sentence(answer) == f"On 910B2, a test: {said}"


def test_starts_of_which_the_same_is_true_are_told_together(doubtful):
    gains = tuple(gain("it", start, 100.0, 0.0, 0.0) for start in ("warm", "handed"))
    answer = replace(doubtful, gains=gains, refused={})
    assert hardware_sentence(answer) == "On 910B2, a test: it changes nothing with L2 warm and handed."


def test_of_several_the_one_that_surely_saves_most_is_named(doubtful):
    gains = (gain("hope", "warm", 90.0, -0.05, 0.2), gain("sure", "warm", 98.0, 0.01, 0.03))
    answer = replace(doubtful, gains=gains, refused={})
    assert "of 2 changes sure buys most: it saves 2.0 %" in hardware_sentence(answer)
    assert hardware_sentence(answer).endswith("; 1 of them cannot be told from no change.")


@pytest.mark.parametrize(
    ("part", "text"), [(0, "0.0"), (0.1234, "12.3"), (-0.00012, "-0.012"), (0.001, "0.1")]
)
def test_what_is_not_nothing_is_not_printed_as_nothing(part, text):
    assert share(part) == text


def test_columns_of_intervals_are_left_out_where_none_was_asked_for(doubtful):
    assert hardware_table(doubtful).headings[-3:] == ("saves", "between", "verdict")
    # With L2 handed a faster memory saves something, so that there is no verdict of "no change" either.
    table = hardware_table(answered(question(MEMORY, starts=("handed",))))
    assert table.headings[-2:] == ("better us", "saves")
    assert {len(row) for row in table.rows} == {len(table.headings)}
    # With L2 warm it changes nothing: a verdict without an interval.
    warm = hardware_table(answered(question(MEMORY, starts=("warm",))))
    assert warm.headings[-2:] == ("saves", "verdict")
    assert warm.rows[0][-1] == "no change"


def test_the_page_has_every_change_under_every_start(doubtful):
    page = hardware_page(doubtful, {"command": "c"})
    assert page.answer == hardware_sentence(doubtful)
    (table,) = page.sections[0].tables
    assert table == hardware_table(doubtful)
    assert len(table.rows) == 2
    (picture,) = page.sections[0].pictures
    assert picture.caption == "What each change saves with L2 warm; the line is its interval."
    # Without intervals there is no line to explain.
    plain = replace(doubtful, gains=tuple(replace(gain, doubt=None) for gain in doubtful.gains))
    (picture,) = hardware_page(plain, {}).sections[0].pictures
    assert picture.caption == "What each change saves with L2 warm."
    # Layer by layer: a table for each, whose last row is the total.
    assert [t.rows[-1][0] for t in page.sections[-1].tables] == ["all"] * 2


# ---- The command

WORDS = ("study", "hardware", "s5b1_3x3", "--change", MEMORY, "--no-interval", "--jobs", "1")


def test_the_command_answers_first_and_computes_once(capsys, tmp_path):
    from ascendsim.cli import main

    store = ("--store", str(tmp_path / "store.sqlite"))
    printed = []
    for computed in (4, 0):
        assert main([*WORDS, *store]) == 0
        out, err = capsys.readouterr()
        assert out.replace("\n", " ").startswith("On 910B2, s5b1_3x3 of ResNet-50 v1.5, batch 1: ")
        assert f"{computed} points computed" in err
        printed.append(out)
    assert printed[0] == printed[1]


BAD_CHANGES = (
    ("cores.cube=many", "change of cores.cube: got 'many'; expected an integer"),
    ("cores.cube=16,many", "change of cores.cube: got 'many'"),
    ("cores.cube=x0", "got x0 of 24, which is 0"),
    ("bufers.L0C.capacity_bytes=x2", "did you mean buffers.L0C.capacity_bytes?"),
)


@pytest.mark.parametrize("study", ["hardware", "codesign"])
@pytest.mark.parametrize(("change", "told"), BAD_CHANGES)
def test_a_bad_change_is_told_before_any_work(study, change, told, refusal, tmp_path, monkeypatch):
    # A good one stands before it, and must not be timed.
    monkeypatch.setattr("ascendsim.studies.engine.run.Engine.answer", no_work)
    words = ["study", study, "s5b1_3x3", "--change", MEMORY, "--change", change, "--jobs", "1"]
    words += ["--cost", "cores.cube"] if study == "codesign" else ["--no-interval"]
    said = " ".join(refusal(*words, "--store", str(tmp_path / "s")).split())
    assert told in said
    assert "Error" not in said


def test_a_bad_change_of_the_second_product_is_told_before_the_first_is_timed(refusal, tmp_path, monkeypatch):
    monkeypatch.setattr("ascendsim.studies.engine.run.Engine.answer", no_work)
    # The 310P has no hf32.
    words = ["study", "hardware", "s5b1_3x3", "--change", "cube.hf32_mantissa_bits=10", "--jobs", "1"]
    said = refusal(*words, "--product", "910B", "--product", "310P", "--store", str(tmp_path / "s"))
    assert "no such figure of 310P3" in " ".join(said.split())


def no_work(*_):
    raise AssertionError("a point was asked for")


def test_a_table_that_cannot_be_written_is_told_before_the_work(refusal, monkeypatch, tmp_path):
    def nothing(*arguments):
        raise AssertionError(arguments)

    monkeypatch.setattr("ascendsim.studies.hardware.gains.study_hardware", nothing)
    words = ("study", "hardware", "s5b0_1x1b", "--change", "cores.cube=20", "--jobs", "1")
    (tmp_path / "folder.csv").mkdir()
    assert "this is a folder" in refusal(*words, "--table", str(tmp_path / "folder.csv"))
    # Nobody, the superuser neither, can make a folder there.
    assert "cannot be made" in refusal(*words, "--table", "/proc/none/table.csv")


def test_the_command_writes_page_and_table(answer, tmp_path):
    words = (
        "--store",
        str(tmp_path / "s"),
        "--out",
        str(tmp_path / "out"),
        "--table",
        str(tmp_path / "t.csv"),
    )
    assert "study.html" in answer(*WORDS, *words)
    text = (tmp_path / "out" / "study.html").read_text()
    assert "ascendsim study hardware s5b1_3x3" in text
    # Four calls (before and after under two starts; faster memory moves no plan) of ten kernels each (two
    # products, three changes of layout around each, zeros, a cast), under their headings.
    assert len((tmp_path / "t.csv").read_text().splitlines()) == 1 + 4 * 10


def test_processes_have_one_name_and_its_alias():
    from ascendsim.cli.parser import parse

    words = ["study", "hardware", "--change", MEMORY]
    assert parse([*words, "--workers", "3"]).jobs == parse([*words, "--jobs", "3"]).jobs == 3
    assert parse(["run", "--jobs", "3"]).workers == parse(["run", "--workers", "3"]).workers == 3


def test_json_holds_the_answer(answer, tmp_path):
    made = json.loads(answer(*WORDS, "--json", "--store", str(tmp_path / "s")))
    assert [row["l2_start"] for row in made["gains"]] == ["warm", "handed"]
    assert made["gains"][0]["saved_share"] == 0


def test_every_figure_can_be_asked_for_at_once():
    from ascendsim.cli.parser import parse
    from ascendsim.cli.studies.hardware import _question

    asked = _question(
        parse(["study", "hardware", "--every", "--change", "cores.cube=9", "--product", "310P"]), "310P"
    )
    names = [change.name for change in enlargings(load_profile("310P"))]
    assert [change.name for change in asked.changes] == ["cores.cube=9", *names]


def test_of_many_changes_those_without_an_effect_are_told_in_a_line(doubtful):
    def answer_of_changes(count):
        quiet = tuple(gain(f"q{at}", "warm", 100.0, 0.0, 0.0) for at in range(count))
        return replace(doubtful, gains=(*quiet, gain("sure", "warm", 98.0, 0.01, 0.03)), refused={})

    few, many = answer_of_changes(3), answer_of_changes(20)
    assert len(hardware_table(few, short=True).rows) == 4
    assert [row[0] for row in hardware_table(many, short=True).rows] == ["sure"]
    assert len(hardware_table(many).rows) == 21
    # So does the picture of the page, whose table has all of them.
    (section, *_) = hardware_page(many, {}).sections
    (picture,) = section.pictures
    assert picture.svg.count('class="whisker"') == 1
    assert "those that change nothing are left out" in picture.caption
    assert len(section.tables[0].rows) == 21
    assert hardware_page(few, {}).sections[0].pictures[0].svg.count('class="whisker"') == 4
    said = "20 changes, which the table leaves out, change nothing: q0, q1, q2"
    assert any(note.startswith(said) for note in notes(many, short=True))
    assert not any("leaves out" in note for note in (*notes(few, short=True), *notes(many)))


def test_many_changes_stand_in_the_order_of_what_they_save(doubtful):
    starts = ("warm", "handed")
    # What a change saves most under any start: 1, 2, ... 20 %; the other start says less.
    gains = tuple(
        Gain(f"c{at}", {}, start, (LayerGain("l", 1, 100.0, 100.0, better, better),))
        for at in range(1, 21)
        for start, better in zip(starts, (99.9, 100.0 - at), strict=True)
    )
    many = replace(doubtful, gains=gains, refused={})
    rows = hardware_table(many, short=True).rows
    assert [row[:2] for row in rows[:4]] == [
        ("c20", "warm"),
        ("c20", "handed"),
        ("c19", "warm"),
        ("c19", "handed"),
    ]
    # Few, and those of the page, are in the order of the question.
    assert [row[0] for row in hardware_table(replace(many, gains=gains[:6]), short=True).rows[::2]] == [
        "c1",
        "c2",
        "c3",
    ]
    assert hardware_table(many).rows[0][0] == "c1"


def test_a_bad_change_of_a_file_names_file_and_change(refusal, tmp_path, monkeypatch):
    monkeypatch.setattr("ascendsim.studies.engine.run.Engine.answer", no_work)
    path = tmp_path / "mine.toml"
    path.write_text('[[change]]\nname = "more"\nfigures = { "cores.cube" = "20 cores" }\n')
    said = refusal("study", "hardware", "s5b1_3x3", "--changes", str(path), "--store", str(tmp_path / "s"))
    assert f"{path}: more: change of cores.cube: got '20 cores'; expected an integer" in " ".join(
        said.split()
    )


def test_a_network_leaves_out_the_first_grad_input_unless_asked():
    from ascendsim.cli.parser import parse
    from ascendsim.cli.studies.words import layers_of

    _, layers = layers_of(parse(["study", "hardware", "--change", MEMORY]))
    assert layers[0].gradients == (False, True, False)
    assert {layer.gradients for layer in layers[1:]} == {BOTH}
    assert sum(layer.count for layer in layers) == 53
    _, layers = layers_of(parse(["study", "hardware", "--change", MEMORY, "--first-grad-input"]))
    assert layers[0].gradients == BOTH


def test_gradients_are_those_that_training_asks_for_unless_told():
    from ascendsim.cli.parser import parse
    from ascendsim.cli.studies.words import layers_of

    def masks(*words):
        _, layers = layers_of(parse(["study", "hardware", "--change", MEMORY, *words]))
        return [layer.gradients for layer in layers]

    # AlexNet's convolutions have a bias, and its first one reads images.
    assert masks("--network", "alexnet") == [(False, True, True)] + [(True, True, True)] * 4
    assert masks("--network", "alexnet", "--mask", "input,weight")[:2] == [(False, True, False), BOTH]
    # Of the first one alone, training asks for no grad_input, so that nothing of it is left.
    assert masks("--network", "alexnet", "--mask", "input") == [(True, False, False)] * 4
    assert masks("conv1", "--network", "alexnet") == [(True, True, True)]


def test_l2_may_be_handed_from_kernel_to_kernel(answer, tmp_path):
    words = (*WORDS, "--l2-start", "chained", "--json", "--store", str(tmp_path / "s"))
    (gain,) = json.loads(answer(*words))["gains"]
    assert gain["l2_start"] == "chained"
    layer = load_workload("resnet50").layer("s5b1_3x3")
    call = estimate(
        ConvProblem(**layer.problem_options(1)), product="910B", output_mask=BOTH, l2_start="chained"
    )
    assert gain["base_us"] == call.time_us


REFUSED = {
    (): "needs --change",
    ("--change", "cores.cub=x2"): "did you mean cores.cube",
    ("--change", CORES, "--change", CORES): "given twice",
    ("--change", CORES, "--time", "-1"): "seconds",
    ("--change", CORES, "--jbs", "2"): "did you mean --jobs",
}


@pytest.mark.parametrize("words", REFUSED)
def test_mistakes_are_told(refusal, tmp_path, words):
    assert REFUSED[words] in refusal("study", "hardware", *words, "--store", str(tmp_path / "s"))


def test_changes_of_which_none_can_be_timed_are_a_mistake(capsys, tmp_path):
    from ascendsim.cli import main

    words = ("study", "hardware", "s5b1_3x3", "--change", "buffers.L0A.capacity_bytes=64")
    assert main([*words, "--jobs", "1", "--store", str(tmp_path / "s")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "none of the changes can be timed" in " ".join(err.split())
