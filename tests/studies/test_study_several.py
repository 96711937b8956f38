"""Are several products or layers answered as each alone, in records and tables that say all?"""

import csv
import json
import pickle
import re
import socket
import threading
from dataclasses import FrozenInstanceError, asdict, fields, is_dataclass, replace

import numpy as np
import pytest

from ascendsim import estimate
from ascendsim.cli import main
from ascendsim.cli.studies.output import layers_of
from ascendsim.errors import ConfigError, UnsupportedError, install_hint
from ascendsim.frozen import FrozenMap
from ascendsim.ops.plan import Plan, Tiling
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.report.document import plain
from ascendsim.report.page import Page, Section
from ascendsim.report.studies.answer import Answered, Compared, listed, together
from ascendsim.report.studies.hardware_words import hardware_ranked
from ascendsim.report.studies.tiling import cases_tables, tiling_ranked, tiling_title
from ascendsim.studies import records
from ascendsim.studies.engine.measure import measure
from ascendsim.studies.engine.point import StudyPoint
from ascendsim.studies.engine.run import Engine, Store, calls_table
from ascendsim.studies.hardware.records import Doubt, Gain, HardwareAnswer, LayerGain, Question
from ascendsim.studies.records import (
    ErrorShare,
    FigureEffect,
    ModelError,
    PlanRisk,
    Ratio,
    StudyAnswer,
)
from ascendsim.studies.table import Table, form, numbers, saving, text_table, us, words
from ascendsim.studies.tuning.records import TilingAnswer, TilingQuestion, Trial
from ascendsim.workloads import load_workload
from tests.helpers.report_samples import SMALL, judged_gradient, made_up_interval, points

# --- Are several products or layers answered as each alone would be, and compared in a sentence? -------

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
    "precision": f"Which format and cubeMathType? MobileNet-v2 b14_project, batch 16 on {BOTH}",
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
        "precision": "MobileNet-v2 b14_project, batch 16, of the fastest modes that pass the most accurate ",
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
    # The plans and reasons of each are on the page, where another plan than the usual one is the best.
    others = [row for row in rows if not row.rstrip().endswith("the usual plan")]
    assert others
    assert text.count("Plan against plan") == 0
    assert (tmp_path / "study.html").read_text().count("Plan against plan</caption>") == len(others)


@pytest.mark.parametrize(("layers", "told"), [("f*,s5b0_1x1b", True), ("s5b0_1x1b", False)])
def test_layers_of_other_kinds_that_are_left_out_are_told(capsys, tmp_path, layers, told):
    words = ("study", "tiling", layers, *ASKED["tiling"], "--jobs", "1", "--store", str(tmp_path / "s"))
    assert main([*words]) == 0
    said = "ResNet-50 v1.5: plans of convolutions alone are tuned; left out: fc (linear)\n"
    assert (said in capsys.readouterr().err) == told


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
    assert hardware_ranked([small, large, gained("R")]) == (
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
    assert tiling_ranked(answers) == f"{said}; it saves most on Q in a test: 20.0 % with L2 warm."
    alone = replace(answers[2])
    assert tiling_ranked([alone, alone]) == f"{said.replace('3', '2', 1).replace(', 2', ', 0')}."


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
    table = text_table("T", ("x",), frozenset(), (("1",),))
    pages = [
        Page(f"Of {name}", f"Answer {name}.", (Section("Why", ("Text.",)),), {"word": "meaning"},
             {"command": "c", "product": name})
        for name in "PQ"
    ]  # fmt: skip
    each = [Answered(page, {"answer": page.answer}, legend=("Words.",)) for page in pages]
    told = together(Compared("What are P and Q?", "Both.", (table,)), each, ["P", "Q"])
    page = told.page
    assert told.record == {"answer": "Both.", "answers": [{"answer": "Answer P."}, {"answer": "Answer Q."}]}
    # What words mean is told once, and each answer on a terminal unless the page has all of them.
    assert (told.legend, [part.legend for part in told.parts]) == (("Words.",), [(), ()])
    assert together(Compared("Both", "Both.", brief=True), each, ["P", "Q"]).parts == ()
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


# --- May every study be asked of a stage, a pattern or several layers, counted as in the network? ------


class Words:
    """What the parser makes of the words of a study."""

    def __init__(self, layer, **options):
        words = {"workload": "resnet50", "batch": 2, "mask": None, "first_grad_input": False}
        self.__dict__.update(words | options, layer=layer)


def test_a_stage_counts_its_layers_as_the_network_does():
    title, layers = layers_of(Words("s5"))
    assert title == "6 layers (s5) of ResNet-50 v1.5, batch 2"
    rows = [row for row in load_workload("resnet50").layers if row.name.startswith("s5")]
    assert [(layer.name, layer.count) for layer in layers] == [(row.name, row.count) for row in rows]
    assert sum(layer.count for layer in layers) > len(layers)
    assert {layer.problem.input[0] for layer in layers} == {2}


def test_one_layer_counts_once_whichever_word_means_it():
    for word in ("s5b1_3x3", "s5b1_3*"):
        title, (layer,) = layers_of(Words(word))
        assert (title, layer.count) == ("s5b1_3x3 of ResNet-50 v1.5, batch 2", 1)


def test_the_first_layer_among_others_goes_without_grad_input_as_in_the_network():
    _, (first, other) = layers_of(Words("conv1,s2b0_3x3"))
    assert first.gradients[:2] == (False, True)
    assert other.gradients[:2] == (True, True)
    _, (first, _) = layers_of(Words("conv1,s2b0_3x3", first_grad_input=True))
    assert first.gradients[:2] == (True, True)


START = ("--l2-start", "warm")
OPTIONS = {
    "hardware": (*START, "--change", "cores.cube=20", "--no-interval"),
    "codesign": (*START, "--change", "cores.cube=20", "--cost", "cores.cube", "--tilings", "2"),
    "precision": ("--dtype", "float16", "--cube-math-type", "0", "--accumulation", "default"),
}


@pytest.mark.parametrize("study", OPTIONS)
def test_every_study_takes_several_layers(study, answer, tmp_path):
    words = ("study", study, "b14", "--network", "mobilenet_v2", *OPTIONS[study], "--jobs", "1", "--json")
    said = json.loads(answer(*words, "--store", str(tmp_path / "s")))
    assert "3 layers (b14) of MobileNet-v2, batch 1" in said["answer"]


def test_a_word_of_no_layer_is_told(refusal, tmp_path):
    words = ("study", "hardware", "s9", "--change", "cores.cube=20", "--store", str(tmp_path / "s"))
    assert "has no layer, stage or pattern 's9'" in " ".join(refusal(*words).split())


# --- Are the answers of the studies plain, frozen records, with every field explained? -----------------

EFFECT = FigureEffect("sync.flag_cycles", 10, 0, 20, 4.0, 3.5, None)
GRADIENT = judged_gradient(np.array([1, 2], np.float16), [1, 2])
ANSWER = StudyAnswer("what is faster", "910B2", "0" * 64, 28)
PLAN, SHARE = PlanRisk("ours", 4.0), ErrorShare("dx", 0.5, 0.2, "910", True)
MODEL, RATIO = ModelError(0.8, 1.25, 9, "rows", "2201", (SHARE,)), Ratio(2.0, 1.5, 3.0, "the plan", (0,))
SAMPLES = (EFFECT, made_up_interval(), GRADIENT, ANSWER, PLAN, SHARE, MODEL, RATIO)
KINDS = [kind for kind in vars(records).values() if is_dataclass(kind)]


def test_every_record_has_a_sample():
    assert {type(sample) for sample in SAMPLES} == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_is_documented(kind):
    for field in fields(kind):
        assert field.name in kind.__doc__, field.name


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: type(sample).__name__)
def test_a_record_is_frozen(sample):
    with pytest.raises(FrozenInstanceError):
        setattr(sample, fields(sample)[0].name, None)
    with pytest.raises((AttributeError, TypeError)):  # slots: no field that nobody declared
        sample.comment = "mine"


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: type(sample).__name__)
def test_a_record_pickles(sample):
    assert pickle.loads(pickle.dumps(sample)) == sample


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: type(sample).__name__)
def test_a_record_holds_plain_values(sample):
    # No array, timeline or profile hides in it: it becomes JSON as it is.
    assert json.loads(json.dumps({key: plain(value) for key, value in asdict(sample).items()}))


@pytest.mark.parametrize("kind", KINDS)
def test_a_time_and_a_count_of_cycles_name_their_unit(kind):
    times = {"shortest_us", "longest_us", "usual_us", "low_us", "high_us", "least_cycles", "most_cycles"}
    times |= {"search_us", "draws_us"}
    ratios = {"low", "high", "usual", "share", "error"}
    factors = ratios if kind in (ErrorShare, ModelError, Ratio) else set()
    for field in fields(kind):
        if "float" in str(field.type) or "cycles" in field.name:
            assert field.name in times | factors


def test_an_interval_is_as_wide_as_its_figures_together():
    made = made_up_interval()
    # By hand: 4.16 as it is, 0.5 off by the rate and 0.1 off by the flag; a us more by the rate alone.
    assert made.shortest_us == pytest.approx(4.16 - 0.5 - 0.1)
    assert made.longest_us == pytest.approx(4.16 + 1.0)
    assert [effect.span_us for effect in made.effects] == pytest.approx([1.5, 0.1])


# --- Do answers become tables as they are, whoever made them? ------------------------------------------

TABLES_ASKED = [
    StudyPoint(SMALL, "910B2", label="fine"),
    StudyPoint(SMALL, "910B2", {"scalar.issue_cycles": -1}, label="refused"),
]


@pytest.fixture(scope="module")
def rows():
    return calls_table(Engine(Store(), 1).answer(TABLES_ASKED)).records()


def test_records_say_what_the_kernels_say():
    result = estimate(SMALL, product="910B2", output_mask=(True, True, False))
    records = result.to_records()
    assert [record["kernel"] for record in records] == [kernel.name for kernel in result.kernels]
    assert sum(record["cycles"] for record in records) == result.cycles
    for record, kernel in zip(records, result.kernels, strict=True):
        assert record["bytes_l2_read"] == kernel.bytes["l2_read"]
        # A pipe that a kernel does not use has 0 cycles, so that all records have the same names.
        assert record["busy_M"] == kernel.busy.get("M", 0)
        assert record["schedule"] == (kernel.plan.schedule if kernel.plan else "")


def test_records_go_into_pandas_as_they_are():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    result = estimate(SMALL, product="910B2", output_mask=(True, True, False))
    frame = pandas.DataFrame(result.to_records())
    assert frame["cycles"].sum() == result.cycles
    # No hole in any column: integers stay integers, numbers numbers.
    assert not frame.isna().any().any()
    assert frame["macs"].dtype.kind == "i"


def test_all_rows_have_all_columns_and_a_failed_point_has_one(rows):
    assert len({tuple(row) for row in rows}) == 1
    # Two products, each with a change of layout of both operands and of what it makes, zeros for the parts of
    # grad_weight, and a cast: 2 x 4 + 2.
    assert [row["status"] for row in rows] == ["timed"] * 10 + ["failed"]
    assert rows[-1]["cycles"] is None
    assert "issue_cycles" in rows[-1]["reason"]


def test_a_point_that_is_asked_twice_has_its_rows_once(rows):
    # A layer of the same shape, but of another name, has rows of its own.
    other = StudyPoint(SMALL, "910B2", label="other")
    made = calls_table(
        Engine(Store(), 1).answer([*TABLES_ASKED, TABLES_ASKED[0], other, TABLES_ASKED[0]])
    ).records()
    assert made[: len(rows)] == rows
    assert [row["label"] for row in made[len(rows) :]] == ["other"] * 10


def test_csv_holds_the_rows(rows, tmp_path):
    path = tmp_path / "made" / "table.csv"
    Table.of_records("Calls", rows).write(path)
    with path.open(newline="") as file:
        read = list(csv.DictReader(file))
    # Texts in a file; nothing where there is nothing.
    assert read == [{k: "" if v is None else str(v) for k, v in row.items()} for row in rows]


def test_parquet_holds_the_rows(rows, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    path = tmp_path / "table.parquet"
    Table.of_records("Calls", rows).write(path)
    assert parquet.read_table(path).to_pylist() == rows


def test_parquet_without_pyarrow_says_what_to_install(rows, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(UnsupportedError, match=re.escape(install_hint("parquet"))):
        Table.of_records("Calls", rows).write(tmp_path / "table.parquet")


def test_another_ending_is_refused(rows, tmp_path):
    with pytest.raises(ConfigError, match=r"ends in \.csv or \.parquet"):
        Table.of_records("Calls", rows).write(tmp_path / "table.txt")


# ---- Dask


def test_without_dask_the_scheduler_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    with pytest.raises(UnsupportedError, match=re.escape(install_hint("dask"))):
        Engine(Store(), scheduler="tcp://127.0.0.1:1").answer(points(1))


def test_a_local_cluster_makes_the_table_of_one_process(rows):
    distributed = pytest.importorskip("distributed", reason="dask is not installed")
    cluster = distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, protocol="tcp://", dashboard_address=None
    )
    with cluster:
        made = Engine(Store(), scheduler=cluster.scheduler_address).answer(TABLES_ASKED)
    assert made.computed == 2
    assert calls_table(made).records() == rows


def test_no_scheduler_is_told(monkeypatch):
    pytest.importorskip("distributed", reason="dask is not installed")
    monkeypatch.setattr("ascendsim.studies.engine.run.PATIENCE", 0.2)
    with pytest.raises(ConfigError, match="no Dask scheduler answers"):
        Engine(Store(), scheduler="tcp://127.0.0.1:9").answer(points(1))


def test_whatever_else_answers_is_no_scheduler(monkeypatch):
    pytest.importorskip("distributed", reason="dask is not installed")
    monkeypatch.setattr("ascendsim.studies.engine.run.PATIENCE", 2)

    # As a web server does, whose first bytes Dask takes for the size of what follows: 3.07 EiB.
    def answer():
        taken, _ = server.accept()
        taken.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 4)
        taken.close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=answer, daemon=True).start()
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(ConfigError, match="no Dask scheduler answers"):
            Engine(Store(), scheduler=address).answer(points(1))


def test_the_samples_are_timed():
    assert not measure(TABLES_ASKED[0]).reason


# ---- Cells

COLUMNS = (words("of", "name"), us("us", "time.us"), numbers("saves", "part", saving), numbers("n", show=str))
ITEMS = [
    {"name": "a", "time": {"us": 1234.5}, "part": -0.25, "n": 3},
    {"name": "b", "time": {"us": None}, "part": float("nan"), "n": "many"},
]


def test_a_column_finds_its_values_by_a_path_and_prints_them():
    table = Table.of("T", COLUMNS, ITEMS)
    # A time that is not known is a dash; of other numbers nothing is shown, and a text stands as it is.
    assert table.rows == (("a", "1,234", "costs 25.0 %", "3"), ("b", "-", "", "many"))
    assert (table.headings, table.left) == (("of", "us", "saves", "n"), {0})
    assert table.records()[0] == {"name": "a", "time.us": 1234.5, "part": -0.25, "n": 3}


def test_a_column_reads_records_as_it_reads_mappings():
    (point,) = points(1)
    table = Table.of("T", (words("start", "l2_start"), words("sizes", "problem.input", show=str)), [point])
    assert table.rows == ((point.l2_start, str(point.problem.input)),)


def test_columns_leave_by_their_heading_and_where_they_are_empty():
    table = Table.of("T", COLUMNS, ITEMS[1:]).with_total(("all", 2.0, None, None))
    assert table.total
    # The total counts: a column that has a sum alone stays, and one that was not named.
    assert table.without_empty({"us", "saves", "n"}).headings == ("of", "us", "n")
    assert table.without({"us", "n"}).rows == (("b", ""), ("all", ""))


def test_numbers_are_printed_as_their_column_says():
    column = numbers("share", show=form(".1%"), absent="?")
    assert Table("T", (column,), ((0.125,), (None,))).rows == (("12.5%",), ("?",))
