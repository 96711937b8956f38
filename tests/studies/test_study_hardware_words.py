"""Does `study hardware` take what it is asked, and say in words and pages what its answer holds?"""

import json
from dataclasses import replace

import pytest

from ascendsim import ConvProblem, estimate, load_profile
from ascendsim.cli.studies.tiling import _questions
from ascendsim.errors import ConfigError
from ascendsim.report.studies.hardware import (
    figure_table,
    hardware_page,
    hardware_record,
    hardware_table,
    hardware_tables,
    notes,
)
from ascendsim.report.studies.hardware_words import hardware_sentence
from ascendsim.report.tables import value
from ascendsim.studies.hardware.figures import enlargings
from ascendsim.studies.hardware.records import Doubt, Gain, LayerGain
from ascendsim.studies.table import share
from ascendsim.studies.verdicts import Condition
from ascendsim.workloads import load_workload
from tests.helpers.report_samples import (
    BOTH,
    CORES,
    L0C,
    MEMORY,
    SMALL_LAYERS,
    answered,
    question,
)

# --- Does the study of changes say in words, tables and pages what its answer holds, and no more? ------


@pytest.fixture(scope="module")
def doubtful():
    """The gains of two changes; between what they lie is made up: here they are only told."""
    answer = answered(question(MEMORY, "scalar.issue_cycles=x2", layers=SMALL_LAYERS, starts=("warm",)))
    _, costs = answer.gains
    doubts = Doubt(0, 0, 1), Doubt(costs.share - 0.01, costs.share + 0.01, 1)
    gains = tuple(replace(one, doubt=doubt) for one, doubt in zip(answer.gains, doubts, strict=True))
    return replace(answer, gains=gains)


def gain(name, start, better, low, high):
    return Gain(name, {}, start, (LayerGain("l", 1, 100.0, 100.0, better, better),), Doubt(low, high, 1))


CASES = (
    (96.0, 0.03, 0.05, "saves 4.0 % (3.0 to 5.0 %)"),
    (96.0, -0.01, 0.05, "is not distinguishable from no change (costs 1.0 to saves 5.0 %)"),
    (104.0, -0.05, -0.03, "costs 4.0 % (3.0 to 5.0 %)"),
    (100.0, 0.0, 0.0, "changes nothing"),
    (100.0, -0.02, 0.0, "is not distinguishable from no change (costs 0.0 to 2.0 %)"),
)


@pytest.mark.parametrize(("better", "low", "high", "said"), CASES)
def test_the_sentence_says_what_the_interval_allows(doubtful, better, low, high, said):
    answer = replace(doubtful, gains=(gain("it", "warm", better, low, high),), refused={})
    assert hardware_sentence(answer) == f"On 910B2, a test: it {said} with L2 warm."


def hanging(better, *conditions, low=0.0, high=0.2):
    doubt = Doubt(low, high, 1, tuple(Condition(*one) for one in conditions), "launch.per_core_us")
    return Gain("it", {}, "warm", (LayerGain("l", 1, 100.0, 100.0, better, better),), doubt)


LAUNCH, FLAG = ("launch.per_core_us", "<", 0.0666, 0.195), ("l2.shared", "is", True, 0.1)
HANG = (
    (hanging(100.0, LAUNCH), "changes nothing", "but saves up to 19.5 % if launch.per_core_us < 0.0666"),
    (
        hanging(97.0, LAUNCH, FLAG),
        "is not distinguishable from no change",
        "but saves up to 19.5 % if launch.per_core_us < 0.0666 or l2.shared is True",
    ),
    (
        hanging(90.0, LAUNCH, FLAG),
        "saves 10.0 %",
        "if launch.per_core_us < 0.0666 and l2.shared is True",
    ),
)


@pytest.mark.parametrize(("one", "first", "last"), HANG)
def test_a_gain_that_hangs_on_a_figure_is_told_with_its_break_even(doubtful, one, first, last):
    asked = replace(doubtful.question, margin=0.043, starts=("warm",))
    answer = replace(doubtful, question=asked, gains=(one,), refused={})
    comma = "" if first == "saves 10.0 %" else ","
    between = "(0.0 to 20.0 %, most by launch.per_core_us)"
    told = f"it {first} {between}{comma} {last}"
    assert hardware_sentence(answer) == f"On 910B2, a test: {told} with L2 warm."
    assert hardware_table(answer).rows[0][-1] == "hangs on a figure"
    assert any("launch.per_core_us < 0.0666" in note for note in notes(answer))
    conditions = hardware_record(answer)["gains"][0]["conditions"]
    assert conditions[0] == {"figure": LAUNCH[0], "relation": "<", "at": 0.0666, "share": 0.195}
    # Beside others it is no winner.
    two = replace(answer, gains=(one, replace(one, change="other")))
    said = hardware_sentence(two)
    assert (
        "none of 2 changes surely saves more than 4.3 % with L2 warm; of it (and of 1 more) it hangs" in said
    )


def planned(better, same, anew, *, new_plan=True, start="warm"):
    layer = LayerGain("l", 1, 100.0, same, anew, better, new_plan=new_plan)
    return Gain("it", {}, start, (layer,))


PLANS = (
    # All of 12 % comes of the new plan; the old one is as slow as before.
    (
        planned(88.0, 100.0, 88.0),
        "saves 12.0 % by a plan that needs it (same plan 0.0 %, planned anew 12.0 %)",
    ),
    # Half of it: 6 of 12 %.
    (
        planned(88.0, 94.0, 88.0),
        "saves 12.0 % by a plan that needs it (same plan 6.0 %, planned anew 12.0 %)",
    ),
    # 2 of 12 %. Of a mixed one the better time is below both.
    (
        planned(88.0, 90.0, 89.0),
        "saves 12.0 % partly by a plan that needs it (same plan 10.0 %, planned anew 11.0 %)",
    ),
    # 1 of 12 % is less than a tenth.
    (planned(88.0, 89.0, 88.0), "saves 12.0 %"),
    # Cores that are left idle are no plan.
    (planned(88.0, 100.0, 100.0, new_plan=False), "saves 12.0 %"),
    (planned(88.0, None, 88.0), "saves 12.0 %, under new plans since old ones do not fit,"),
    # Below the margin it is all one, by which plans.
    (planned(98.0, None, 98.0), "is not distinguishable from no change (saves 2.0 %; margin 4.3 %)"),
    (planned(98.0, 100.0, 98.0), "is not distinguishable from no change (saves 2.0 %; margin 4.3 %)"),
    (
        planned(103.0, 103.0, 104.0, new_plan=False),
        "is not distinguishable from no change (costs 3.0 %; margin 4.3 %)",
    ),
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
    told = "that needs it" in said, "distinguishable" in said
    assert told == ("needs a new plan" in cell, cell == "unclear")
    assert ("do not fit" in said) == ("does not fit" in cell)
    assert hardware_record(answer)["gains"][0]["verdict"] == cell


def test_a_new_plan_of_the_study_is_marked_as_one():
    # Half the L0C: the old plan of grad_input does not fit, so that any gain or loss is of a new one.
    (gained,) = answered(question(L0C, starts=("warm",))).gains
    assert gained.layers[0].new_plan
    assert gained.needing_share is None
    # Faster memory moves no plan.
    (gained,) = answered(question(MEMORY, starts=("handed",))).gains
    assert not gained.layers[0].new_plan
    assert (gained.plan_share, gained.needing_share) == (0, 0)
    # Cores that are left idle follow the old plan.
    change = CORES + "+cores.vector=x2+scalar.start_us=x0.5"
    (gained,) = answered(question(change, starts=("handed",), layers=SMALL_LAYERS)).gains
    assert not gained.layers[0].new_plan


ANOTHER = "another plan that the product as it is can follow saves"
BETTER = "(same plan 0.0 %, planned anew 10.0 %)"
PARTS = (
    # (the product as it is under the new plan; the changed one under the old plan and the new; between what
    # the change itself saves; what is said; the table's saving and verdict)
    (
        97.0,
        97.0,
        97.0,
        None,
        f"itself changes nothing, but {ANOTHER} 3.0 % (within the margin),",
        "3.0 %",
        "another plan alone",
    ),
    (95.0, 95.0, 90.0, None, f"itself saves 5.0 %, and {ANOTHER} 5.0 %,", "10.0 %", ""),
    (
        *(95.0, 104.0, 99.0, None),
        f"itself is not distinguishable from no change (costs 4.0 %; margin 4.5 %), but {ANOTHER} 5.0 %,",
        *("1.0 %", "unclear"),
    ),
    (
        *(95.0, 100.0, 95.0, (-0.01, 0.02)),
        f"itself is not distinguishable from no change (costs 1.0 to saves 2.0 %), but {ANOTHER} 5.0 %,",
        *("5.0 %", "unclear"),
    ),
    # No saving of the product as it is: all is the change's.
    (
        101.0,
        100.0,
        90.0,
        None,
        f"saves 10.0 % by a plan that needs it {BETTER}",
        "10.0 %",
        "needs a new plan",
    ),
)


@pytest.mark.parametrize(("there", "same", "after", "between", "said", "saves", "word"), PARTS)
def test_what_a_plan_saves_without_the_change_is_not_the_change_s(
    doubtful, there, same, after, between, said, saves, word
):
    layer = LayerGain("l", 1, 100.0, same, after, after, new_plan=True, plan_us=there)
    one = Gain("it", {}, "warm", (layer,), Doubt(*between, 1) if between else None)
    asked = replace(doubtful.question, margin=0.045)
    answer = replace(doubtful, question=asked, gains=(one,), refused={})
    assert hardware_sentence(answer) == f"On 910B2, a test: it {said} with L2 warm."
    table = hardware_table(answer)
    row = dict(zip(table.headings, table.rows[0], strict=True))
    assert row["saves"] == saves
    assert row.get("verdict", "") == word
    parts = hardware_record(answer)["gains"][0]
    assert parts["saved_by_plans_share"] + parts["saved_itself_share"] == parts["saved_share"]
    assert ("itself" in row) == (there < 100)


def test_what_buys_most_goes_by_what_the_change_itself_saves(doubtful):
    plan = Gain(
        "smaller", {}, "warm", (LayerGain("l", 1, 100.0, None, 90.0, 90.0, new_plan=True, plan_us=90.0),)
    )
    own = Gain("faster", {}, "warm", (LayerGain("l", 1, 100.0, 98.0, 98.0, 98.0),))
    answer = replace(doubtful, gains=(plan, own), refused={})
    assert "of 2 changes faster buys most: it saves 2.0 %" in hardware_sentence(answer)
    assert hardware_sentence(answer).endswith(
        "; of 1 of them only another plan helps, which needs no change."
    )
    alone = replace(answer, gains=(plan, replace(plan, change="tiny")))
    said = "none of 2 changes surely saves time with L2 warm; of 2 of them only another plan helps"
    asked = replace(doubtful.question, starts=("warm",))
    assert said in hardware_sentence(replace(alone, question=asked))


@pytest.mark.parametrize(
    ("figures", "name"),
    [
        ({"links.l": (1.6, 2.4)}, "links.l=x1.5 (1.6 to 2.4)"),
        # A name that says no figure gets it.
        ({"cores.cube": (24, 32)}, "links.l=x1.5 (cores.cube 24 to 32)"),
        ({"links.l": (1, 2), "l2.c": (100, 200000)}, "links.l=x1.5 (links.l 1 to 2, l2.c 100 to 200,000)"),
        ({f"f{at}": (1, 2) for at in range(9)}, "links.l=x1.5"),
    ],
)
def test_a_change_is_named_with_what_its_figures_were_and_become(doubtful, figures, name):
    one = replace(gain("links.l=x1.5", "warm", 96.0, 0.03, 0.05), figures=figures)
    answer = replace(doubtful, gains=(one,), refused={})
    assert hardware_sentence(answer) == f"On 910B2, a test: {name} saves 4.0 % (3.0 to 5.0 %) with L2 warm."
    table = figure_table(answer)
    # Shown where the sentence does not say it all.
    other = replace(answer, gains=(one, gain("other", "warm", 100.0, 0.0, 0.0)))
    assert figure_table(other) in hardware_tables(other)
    assert (table in hardware_tables(answer)) == (name == one.change)
    assert table.headings == ("change", "figure", "from", "to")
    assert [row[1] for row in table.rows] == list(figures)
    (row, *_) = table.rows
    assert row[2:] == tuple(map(value, next(iter(figures.values()))))


def test_two_figures_that_change_together_fit_a_wide_terminal(doubtful):
    name = "buffers.L0C.capacity_bytes=x2+buffers.L1.capacity_bytes=x2"
    layer = LayerGain("l", 1, 110.02, 110.02, 107.79, 107.79, (103.61, 101.7), new_plan=True)
    one = Gain(name, {}, "handed", (layer,), Doubt(0.02, 0.021, 1))
    asked = replace(doubtful.question, margin=0.043, tilings=10)
    answer = replace(doubtful, question=asked, gains=(one, one), refused={})
    tables = hardware_tables(answer)
    assert tables[0].rows[0][-1] == "unclear"
    assert tables[1].title == "Under plans tuned for each, in microseconds"
    for table in tables:
        widths = [max(map(len, column)) for column in zip(table.headings, *table.rows, strict=True)]
        assert sum(widths) + 2 * (len(widths) - 1) <= 160


def test_a_loss_is_called_one_and_a_dash_is_explained(doubtful):
    misfit = "tiling of grad_input: L0C of 910B2 holds 64 bytes"
    layer = LayerGain("l", 1, 100.0, None, 1088.5, 1088.5, new_plan=True, misfit=misfit)
    answer = replace(doubtful, gains=(Gain("it", {}, "warm", (layer,)),), refused={})
    table = hardware_table(answer)
    row = dict(zip(table.headings, table.rows[0], strict=True))
    assert (row["same plan"], row["saves"]) == ("-", "costs 988.5 %")
    said = f"A dash: plans of 910B2 as it is do not fit the changed product. So with it: l: {misfit}."
    assert said in notes(answer)
    assert not any("dash" in note for note in notes(doubtful))


NONE_SAVES = (
    # (changes, what is said)
    (((100.0, 0.0, 0.0), (100.0, 0.0, 0.0)), "none of 2 changes changes anything with L2 warm."),
    (
        ((99.0, -0.01, 0.03), (100.0, 0.0, 0.0)),
        "none of 2 changes surely saves time with L2 warm; 1 of them changes nothing; 1 of them cannot be "
        "distinguished from none.",
    ),
    (
        ((103.0, -0.04, -0.02), (101.0, -0.02, -0.01)),
        "none of 2 changes saves time with L2 warm; c1, the least costly, costs 1.0 % (1.0 to 2.0 %) with "
        "L2 warm.",
    ),
    (
        ((103.0, -0.04, -0.02), (100.0, 0.0, 0.0)),
        "none of 2 changes surely saves time with L2 warm; 1 of them changes nothing.",
    ),
    (
        ((103.0, -0.04, -0.02), (100.0, -0.01, 0.01), (100.0, 0.0, 0.0), (100.0, 0.0, 0.0)),
        "none of 4 changes surely saves time with L2 warm; 2 of them change nothing; 1 of them cannot be "
        "distinguished from none.",
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


def test_starts_that_differ_in_their_intervals_alone_are_told_in_one_clause(doubtful):
    gains = (gain("it", "warm", 96.0, -0.01, 0.05), gain("it", "cold", 97.0, -0.02, 0.04))
    assert hardware_sentence(replace(doubtful, gains=gains, refused={})) == (
        "On 910B2, a test: it is not distinguishable from no change with L2 warm (costs 1.0 to saves 5.0 %) "
        "and with L2 cold (costs 2.0 to saves 4.0 %)."
    )


def test_of_several_the_one_that_surely_saves_most_is_named(doubtful):
    gains = (gain("hope", "warm", 90.0, -0.05, 0.2), gain("sure", "warm", 98.0, 0.01, 0.03))
    answer = replace(doubtful, gains=gains, refused={})
    assert "of 2 changes sure buys most: it saves 2.0 %" in hardware_sentence(answer)
    assert hardware_sentence(answer).endswith("; 1 of them cannot be distinguished from none.")


@pytest.mark.parametrize(
    ("part", "text"), [(0, "0.0"), (0.1234, "12.3"), (-0.00012, "-0.012"), (0.001, "0.1")]
)
def test_what_is_not_nothing_is_not_printed_as_nothing(part, text):
    assert share(part) == text


def test_columns_of_intervals_are_left_out_where_none_was_asked_for(doubtful):
    assert hardware_table(doubtful).headings[-3:] == ("saves", "between", "verdict")
    # With L2 cold a faster memory saves something, so that there is no verdict of "no change" either.
    table = hardware_table(answered(question(MEMORY, starts=("cold",))))
    assert table.headings[-2:] == ("better", "saves")
    assert {len(row) for row in table.rows} == {len(table.headings)}
    # With L2 warm it changes nothing: a verdict without an interval.
    warm = hardware_table(answered(question(MEMORY, starts=("warm",))))
    assert warm.headings[-2:] == ("saves", "verdict")
    assert warm.rows[0][-1] == "no change"


def test_the_page_has_every_change_under_every_start(doubtful):
    page = hardware_page(doubtful)
    assert page.answer == hardware_sentence(doubtful)
    assert {f"L2 {start}" for start in doubtful.question.starts} <= page.definitions.keys()
    table, parts = page.sections[0].tables
    assert table == hardware_table(doubtful)
    # Before and after, what the time is made of adds up to it.
    assert [row[2] for row in parts.values] == ["before", "better"] * 2
    for row in parts.values:
        assert sum(row[3:8]) == pytest.approx(row[8])
    assert len(table.rows) == 2
    (picture,) = page.sections[0].pictures
    assert picture.caption == "What each change itself saves with L2 warm; the line is its interval."
    # Without intervals there is no line to explain.
    plain = replace(doubtful, gains=tuple(replace(gain, doubt=None) for gain in doubtful.gains))
    (picture,) = hardware_page(plain).sections[0].pictures
    assert picture.caption == "What each change itself saves with L2 warm."
    # Layer by layer: a table for each, whose last row is the total.
    assert [t.rows[-1][0] for t in page.sections[-1].tables] == ["all"] * 2


def test_of_many_changes_those_without_an_effect_are_told_in_a_line(doubtful):
    def answer_of_changes(count):
        quiet = tuple(gain(f"q{at}", "warm", 100.0, 0.0, 0.0) for at in range(count))
        return replace(doubtful, gains=(*quiet, gain("sure", "warm", 98.0, 0.01, 0.03)), refused={})

    few, many = answer_of_changes(3), answer_of_changes(20)
    assert len(hardware_table(few, short=True).rows) == 4
    assert [row[0] for row in hardware_table(many, short=True).rows] == ["sure"]
    assert len(hardware_table(many).rows) == 21
    # So does the picture of the page, whose table has all of them.
    (section, *_) = hardware_page(many).sections
    (picture,) = section.pictures
    assert [bar.label for bar in picture.chart.bars] == ["sure"]
    assert "those that change nothing are left out" in picture.caption
    assert len(section.tables[0].rows) == 21
    assert len(hardware_page(few).sections[0].pictures[0].chart.bars) == 4
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


# -------------------------------------------------------------------------------------------------------
# Does `study hardware` take what it is asked, refuse what is wrong before any work, and write its answer?
# -------------------------------------------------------------------------------------------------------

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
    # Four calls (before and after under two starts; faster memory moves no plan) of nine kernels each (two
    # products, three changes of layout around each, a cast), under their headings. No zeros: the library cuts
    # the 512 x 4608 weights of a single image, not its 49 pixels.
    assert len((tmp_path / "t.csv").read_text().splitlines()) == 1 + 4 * 9


def test_processes_have_one_name_and_its_alias():
    from ascendsim.cli.parser import parse

    words = ["study", "hardware", "--change", MEMORY]
    assert parse([*words, "--workers", "3"]).jobs == parse([*words, "--jobs", "3"]).jobs == 3
    assert parse(["run", "--jobs", "3"]).workers == parse(["run", "--workers", "3"]).workers == 3


def test_json_holds_the_answer(answer, tmp_path):
    made = json.loads(answer(*WORDS, "--json", "--store", str(tmp_path / "s")))
    assert [row["l2_start"] for row in made["gains"]] == ["warm", "step"]
    assert made["gains"][0]["saved_share"] == 0


def test_every_figure_can_be_asked_for_at_once():
    from ascendsim.cli.parser import parse
    from ascendsim.cli.studies.hardware import _question

    asked = _question(
        parse(["study", "hardware", "--every", "--change", "cores.cube=9", "--product", "310P"]), "310P"
    )
    names = [change.name for change in enlargings(load_profile("310P"))]
    assert [change.name for change in asked.changes] == ["cores.cube=9", *names]


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
    from ascendsim.cli.studies.output import layers_of

    _, layers = layers_of(parse(["study", "hardware", "--change", MEMORY]))
    assert layers[0].gradients == (False, True, False)
    # Behind 53 convolutions comes a linear layer, which alone has a bias.
    assert {layer.gradients for layer in layers[1:-1]} == {BOTH}
    assert layers[-1].gradients == (True, True, True)
    assert sum(layer.count for layer in layers) == 54
    _, layers = layers_of(parse(["study", "hardware", "--change", MEMORY, "--first-grad-input"]))
    assert layers[0].gradients == BOTH


def test_a_study_of_convolutions_says_which_other_layers_of_a_network_it_leaves_out():
    from ascendsim.cli.parser import parse
    from ascendsim.cli.studies.output import layers_of

    words = ["study", "hardware", "--change", MEMORY]
    title, layers = layers_of(parse(words), convolutions=True)
    # 2,048,000 of 4,089,184,256.
    assert title == "ResNet-50 v1.5, batch 1 (without fc (linear): 0.05 % of its multiply-adds)"
    assert [layer.name for layer in layers] == [row.name for row in load_workload("resnet50").convolutions]
    assert layers_of(parse(words))[0] == "ResNet-50 v1.5, batch 1"
    with pytest.raises(ConfigError, match=r"layer fc is of kind linear, and .* `study why`"):
        layers_of(parse([*words, "fc"]), convolutions=True)


@pytest.mark.parametrize(("chosen", "told"), [("*", "0.05"), ("s5b1_3x3, f*", "0.9")])
def test_of_a_pattern_a_study_of_convolutions_takes_these_and_says_so(chosen, told):
    from ascendsim.cli.parser import parse
    from ascendsim.cli.studies.output import layers_of

    words = ["study", "hardware", "--change", MEMORY, chosen]
    title, layers = layers_of(parse(words), convolutions=True)
    assert title.endswith(
        f"({chosen}) of ResNet-50 v1.5, batch 1 (without fc (linear): {told} % of its multiply-adds)"
    )
    every = [layer.name for layer in layers_of(parse(words))[1]]
    assert [layer.name for layer in layers] == every[:-1]
    assert every[-1] == "fc"
    tilings = _questions(parse(["study", "tiling", chosen, "--gradient", "weight"]))
    assert [question.title.split()[0] for question in tilings] == every[:-1]


def test_gradients_are_those_that_training_asks_for_unless_told():
    from ascendsim.cli.parser import parse
    from ascendsim.cli.studies.output import layers_of

    def masks(*words):
        _, layers = layers_of(parse(["study", "hardware", "--change", MEMORY, *words]))
        return [layer.gradients for layer in layers]

    # AlexNet's layers have a bias, and its first one reads images.
    assert masks("--network", "alexnet") == [(False, True, True)] + [(True, True, True)] * 7
    assert masks("--network", "alexnet", "--mask", "input,weight")[:2] == [(False, True, False), BOTH]
    # Of the first one alone, training asks for no grad_input, so that nothing of it is left.
    assert masks("--network", "alexnet", "--mask", "input") == [(True, False, False)] * 7
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


def test_a_figure_that_no_call_reads_names_the_study_that_does(doubtful):
    layer = LayerGain("l", 1, 100.0, 100.0, 100.0, 100.0)
    link = Gain("link", {"package.link_gb_per_s": (224, 112)}, "warm", (layer,))
    told = "No call's time hangs on package.link_gb_per_s: ask `ascendsim study devices` of package"
    assert any(note.startswith(told) for note in notes(replace(doubtful, gains=(link,), refused={})))
    cores = replace(link, figures={"cores.cube": (24, 30)})
    assert not any("No call's" in note for note in notes(replace(doubtful, gains=(cores,), refused={})))
