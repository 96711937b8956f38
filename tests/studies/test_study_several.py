"""Are several products or layers answered as each alone would be, and compared in a sentence?"""

import csv
import json
from dataclasses import replace

import pytest

from ascendsim.frozen import FrozenMap
from ascendsim.ops.plan import Plan, Tiling
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.report.page.records import Page, Section
from ascendsim.report.studies.hardware import joined, listed
from ascendsim.report.studies.hardware_words import hardware_compared
from ascendsim.report.studies.tiling_cases import cases_tables, tiling_compared, tiling_title
from ascendsim.report.tables import TextTable
from ascendsim.studies.hardware.records import Doubt, Gain, HardwareAnswer, LayerGain, Question
from ascendsim.studies.tuning.records import TilingAnswer, TilingQuestion, Trial

PRODUCTS = ("--product", "910B2", "--product", "950PR_9589")
LAYER = ("b14_project", "--network", "mobilenet_v2")
ASKED = {
    "hardware": ("--change", "links.memory.nominal_tb_per_s=x1.5", "--no-interval", "--l2-start", "handed"),
    "tiling": ("--gradient", "weight", "--tilings", "4", "--no-interval", "--l2-start", "warm"),
    "precision": ("--dtype", "float16", "--cube-math-type", "0", "--accumulation", "default"),
}


# What the page of both products is of.
BOTH = "910B2 and 950PR_9589"
TITLES = {
    "hardware": f"What do changes of {BOTH} buy? b14_project of MobileNet-v2, batch 1",
    "tiling": f"What beats the plan of grad_weight? b14_project of MobileNet-v2, batch 1 on {BOTH}",
    "precision": f"Which format and cubeMathType? MobileNet-v2 b14_project, batch 1 on {BOTH}",
}


@pytest.fixture
def asked(answer, tmp_path):
    """Run a study of one small layer."""
    store = ("--store", str(tmp_path / "s"), "--jobs", "1")
    return lambda study, *words: answer("study", study, *LAYER, *ASKED[study], *store, *words)


@pytest.mark.parametrize("study", ASKED)
def test_several_products_are_answered_as_each_alone(study, asked, tmp_path):
    both = json.loads(asked(study, *PRODUCTS, "--json", "--out", str(tmp_path)))
    alone = [json.loads(asked(study, *PRODUCTS[at : at + 2], "--json")) for at in (0, 2)]
    assert both["answers"] == alone
    page = (tmp_path / "study.html").read_text()
    for variant, one in zip(("910B2", "950PR_9589"), alone, strict=True):
        assert variant in both["answer"] or study == "tiling"
        assert f"{variant}: " in page
        assert one["answer"].split(":")[0] in page
    assert f"<h1>{TITLES[study]}</h1>" in page


@pytest.mark.parametrize("study", ASKED)
def test_the_terminal_compares_first_and_has_a_table_for_each_product(study, asked, tmp_path):
    text = asked(study, *PRODUCTS, "--table", str(tmp_path / "t.csv"))
    headings = {
        "hardware": "What each change buys, in microseconds:",
        "precision": "Modes:",
        "tiling": "under the usual and the",
    }
    assert text.count(headings[study]) == 2
    first = " ".join(text.partition("\n\n")[0].split())
    begins = {
        "hardware": "b14_project of MobileNet-v2, batch 1, what saves most first: on ",
        "tiling": "Of 2 calls for grad_weight, ",
        "precision": "MobileNet-v2 b14_project, batch 1, the cheapest mode within ",
    }
    assert first.startswith(begins[study])
    with (tmp_path / "t.csv").open() as file:
        assert {row["product"] for row in csv.DictReader(file)} == {"910B2", "950PR_9589"}


def test_a_product_that_is_named_twice_is_studied_once(asked):
    twice = asked("hardware", "--product", "910B2", "--product", "910B2")
    assert twice == asked("hardware", "--product", "910B2")


def test_one_chip_by_two_names_is_studied_once(asked):
    # The plain name of a product is that of one of its variants.
    twice = asked("hardware", "--product", "910B", "--product", "910B2")
    assert twice == asked("hardware", "--product", "910B2")


def test_layers_are_tuned_side_by_side(answer, tmp_path):
    words = ("study", "tiling", "b14", "--network", "mobilenet_v2", *ASKED["tiling"], "--jobs", "1")
    text = answer(*words, "--store", str(tmp_path / "s"), "--out", str(tmp_path))
    rows = [line for line in text.splitlines() if line.startswith("b14_") and "  warm  " in line]
    assert [row.split()[0] for row in rows] == ["b14_expand", "b14_depthwise", "b14_project"]
    # The plans and reasons of each are on the page.
    assert text.count("Plan against plan") == 0
    assert (tmp_path / "study.html").read_text().count("Plan against plan</caption>") == 3


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ("codesign", "s5b1_3x3", "--cost", "1", "--change", "cores.cube=20"),
            "cost is of the figures of one",
        ),
        (("tiling", "s5b1_3x3", "--write-plan", "p.toml"), "--write-plan is of the plans of one call"),
        (("tiling", "s5b1_3x3", "--export-top", "2"), "and 2 calls (of layers and products) are asked for"),
    ],
)
def test_what_is_of_one_product_says_so(refusal, words, told):
    assert told in " ".join(refusal("study", *words, *PRODUCTS).split())


# ---- The sentences


def gained(variant, *savings, low=0.0):
    """An answer of changes "a", "b", ... that save so many microseconds of 100."""
    gains = tuple(
        Gain(
            name,
            FrozenMap(),
            "warm",
            (LayerGain("l", 1, 100.0, None, 100 - us, 100 - us),),
            Doubt(low, 0.5, 1),
        )
        for name, us in zip("ab", savings, strict=False)
    )
    asked = Question("a test", variant, (), (), ("warm",))
    return HardwareAnswer(asked, variant, "", 0, tuple(gains), FrozenMap({} if gains else {"a": "why"}))


def test_products_stand_in_the_order_of_what_they_surely_save():
    small, large = gained("P", 1.0, 2.0, low=0.01), gained("Q", 9.0, low=0.05)
    # Of P both changes surely save as much: the first is named.
    assert hardware_compared([small, large, gained("R")]) == (
        "a test, what saves most first: on Q a saves 9.0 % (5.0 to 50.0 %) with L2 warm; "
        "on P a saves 1.0 % (1.0 to 50.0 %) with L2 warm; on R no change can be timed."
    )


def tuned(variant, saved, margin=0.05, title="a test"):
    """An answer whose best plan saves such a part."""
    problem = ConvProblem((1, 16, 6, 6), (16, 16, 3, 3))
    asked = TilingQuestion(title, variant, problem, "grad_weight", starts=("warm",), margin=margin)
    usual, best = (Plan("wgrad", Tiling(size, 16, 16)) for size in (16, 32))
    trials = Trial(usual, "product", {"warm": 1.0}), Trial(best, "steps", {"warm": 1 - saved})
    return TilingAnswer(asked, variant, "", 0, *trials, (), (), {"timed": 2})


def test_winners_are_counted_and_the_largest_is_named():
    answers = [tuned("P", 0.1), tuned("Q", 0.2), tuned("R", 0.01)]
    said = "Of 3 calls for grad_weight, 2 have a plan that beats the usual one"
    assert tiling_compared(answers) == f"{said}; it saves most on Q in a test: 20.0 % with L2 warm."
    alone = replace(answers[2])
    assert tiling_compared([alone, alone]) == f"{said.replace('3', '2', 1).replace(', 2', ', 0')}."


@pytest.mark.parametrize(("doubt", "verdict"), [(True, "winner"), (False, "winner, ends not tried")])
def test_a_winner_of_which_no_ends_were_tried_says_so(doubt, verdict):
    answer = tuned("P", 0.1)
    asked = replace(answer, question=replace(answer.question, doubt=doubt))
    [table] = cases_tables([asked])
    assert table.rows[0][-1] == verdict


def test_names_are_listed_each_once():
    assert listed(["A"]) == listed(["A", "A"]) == "A"
    assert listed(["A", "B"]) == "A and B"
    assert listed(["A", "B", "A", "C"]) == "A, B and C"


def test_the_title_of_many_layers_has_their_number():
    names = [f"l{at} of a net" for at in range(4)]
    assert tiling_title([tuned("910B2", 0.1, title=name) for name in names[:3]]) == (
        "What beats the plan of grad_weight? l0 of a net; l1 of a net; l2 of a net on 910B2"
    )
    assert tiling_title([tuned("910B2", 0.1, title=name) for name in names]) == (
        "What beats the plan of grad_weight? 4 layers, l0 of a net the first on 910B2"
    )


def test_pages_are_joined_with_what_is_common_told_once():
    table = TextTable("T", ("x",), frozenset(), (("1",),))
    pages = [
        Page(f"Of {name}", f"Answer {name}.", (Section("Why", ("Text.",)),), {"word": "meaning"},
             {"command": "c", "product": name})
        for name in "PQ"
    ]  # fmt: skip
    page = joined("What are P and Q?", pages, ["P", "Q"], "Both.", (table,))
    assert (page.title, page.answer) == ("What are P and Q?", "Both.")
    assert [(section.title, section.collapsed) for section in page.sections] == [
        ("All of them", False),
        *(("Of P", False), ("P: Why", True)),
        *(("Of Q", False), ("Q: Why", True)),
    ]
    assert page.sections[1].text == ("Answer P.",)
    assert page.facts == {"command": "c", "product, P": "P", "product, Q": "Q"}
    assert page.definitions == {"word": "meaning"}


@pytest.mark.parametrize("study", ASKED)
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--table", "calls.pdf"), "calls.pdf: a table ends in .csv or .parquet"),
        (("--out", "/proc/page"), "/proc/page: this folder cannot be made"),
    ],
)
def test_what_cannot_be_written_is_told_before_the_work(study, words, says, refusal, monkeypatch, tmp_path):
    def work(*_):
        raise AssertionError("points were computed")

    monkeypatch.setattr("ascendsim.studies.engine.run.Engine.answer", work)
    command = ("study", study, *LAYER, *ASKED[study], "--store", str(tmp_path / "s"), *words)
    assert says in refusal(*command)
