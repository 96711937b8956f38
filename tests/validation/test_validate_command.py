"""Does `ascendsim validate` find its rows, print what it compared, and answer mistakes?"""

import io
import json
import sys
from dataclasses import replace

import pytest

from ascendsim.report.validation import DEFINITIONS, UNMEASURED, answer_line, quoted_part
from ascendsim.validate.run import compare_rows, quoted_rows
from ascendsim.validate.schema import Row, Unusable
from tests.helpers.measured_samples import cells, made, write_table

CLASS = ("--class", "primitives")


@pytest.fixture(autouse=True)
def _without_outside_data(monkeypatch):
    monkeypatch.delenv("ASCENDSIM_DATA", raising=False)


def primitive(name="own", size=1024, cycles=173.0, **columns):
    return cells("move", id=name, bytes=size, measured_cycles=cycles, group="GM->L1", **columns)


@pytest.fixture
def table(tmp_path):
    def write(*rows, name="measured_rows.csv"):
        return write_table(tmp_path / name, *rows)

    return write


def test_without_data_the_quoted_rows_are_compared_the_answer_first_and_the_rows_last(answer):
    text = " ".join(answer("validate", *CLASS).split())
    for words in ("ad-dc-ub-a-a2", "Errors by class", "median", "Not compared", UNMEASURED, DEFINITIONS):
        assert words in text
    assert text.startswith("Half of the estimates are within so much of what was measured: ")
    order = ["Half of the", "Errors by class", "error: estimated / measured", "ad-dc-ub-a-a2", "Not compared"]
    assert [text.index(words) for words in order] == sorted(text.index(words) for words in order)


def test_the_answer_names_every_class_the_worst_first():
    cases = compare_rows([made("move"), made("mmad", measured_cycles=100), made("mmad", id="b")]).cases
    moves, products = ([case for case in cases if case.row.kernel == name] for name in ("move", "mmad"))
    told = answer_line([replace(case, kind="matmul") for case in products] + moves)
    # Of two errors the median is their mean.
    errors = [abs(case.error) for case in products]
    assert f"{sum(errors) / 2:.1%} for matrix products (2), {abs(moves[0].error):.1%} for single" in told
    assert answer_line([]) == ""


def test_every_quoted_row_names_its_source_and_may_be_quoted():
    rows = quoted_rows()
    assert sum(isinstance(row, Row) for row in rows) == 30
    for row in rows:
        if isinstance(row, Row):
            assert row.source
            assert row.quote, row.id
        else:
            assert row == Unusable(row.id, "what its copies move is not told", "primitives")


def test_a_page_prints_only_numbers_that_may_be_quoted():
    rows = [row for row in quoted_rows() if isinstance(row, Row) and row.id.startswith("ad-dc-ub-a-a2")]
    shown = quoted_part(compare_rows(rows))
    hidden = quoted_part(compare_rows([replace(row, quote=False) for row in rows[:1]]))
    assert any("ad-dc-ub-a-a2" in part for part in shown)
    assert not any("ad-dc-ub" in part for part in hidden)


def test_a_table_is_compared(answer, table):
    path = table(primitive(), primitive("odd", cycles="x"))
    text = answer("validate", "--data", str(path))
    assert "own" in text
    assert "Not compared: 1 rows" in text


@pytest.mark.parametrize("folder", [True, False])
def test_a_table_is_found_by_its_variable(answer, table, monkeypatch, folder):
    path = table(primitive())
    monkeypatch.setenv("ASCENDSIM_DATA", str(path.parent if folder else path))
    assert "own" in answer("validate")


def test_a_folder_with_the_words_of_the_sources_alone_says_what_to_run(refusal, tmp_path, monkeypatch):
    (tmp_path / "silicon.csv").write_text("id,chip_variant,op\n")
    monkeypatch.setenv("ASCENDSIM_DATA", str(tmp_path))
    assert f"run python tools/measured_rows.py {tmp_path / 'silicon.csv'} OUT" in refusal("validate")


def test_json_holds_cases_groups_and_reasons(answer, table):
    path = table(primitive(), primitive("sim", role="skip", reason="too old"))
    found = json.loads(answer("validate", "--data", str(path), "--json"))
    (case,), (group,) = found["cases"], found["groups"]
    assert (case["id"], case["measured"], case["role"]) == ("own", 173.0, "validation")
    assert case["error"] == pytest.approx(case["estimated"] / 173 - 1)
    assert (group["class"], group["count"], group["rank"]) == ("primitives", 1, None)
    assert found["unusable"] == [{"id": "sim", "reason": "too old"}]


def test_of_many_rows_the_worst_are_listed_unless_all_are_asked_for(answer, table):
    path = table(*(primitive(f"row-{size}", size * 512, 300 + size) for size in range(1, 80)))
    few, all_of_them = (
        answer("validate", "--data", str(path), "--rows", rows).count("\nrow-") for rows in ("worst", "all")
    )
    assert (few, all_of_them) == (10, 79)


def test_a_page_and_a_plot_are_written(answer, table, tmp_path):
    answer("validate", "--data", str(table(primitive())), "--out", str(tmp_path / "out"))
    text = (tmp_path / "out" / "validation.md").read_text()
    assert text.startswith("# Measured and estimated")
    assert "| Primitives: GM->L1 | 1 |" in text
    assert (tmp_path / "out" / "validation.png").read_bytes().startswith(b"\x89PNG")


def test_an_own_profile_is_compared(answer, tmp_path):
    path = tmp_path / "op_summary.csv"
    path.write_text(
        "Op Name,OP Type,Task Duration(us),Block Dim,Input Shapes,Input Data Types,Output Shapes\n"
        'mine,MatMulV2,10.0,20,"512,512;512,512",FLOAT16;FLOAT16,"512,512"\n'
    )
    text = answer("validate", "--msprof", str(path), "--product", "910B3")
    assert "mine" in text
    assert "910B3" in text


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--data", "a.csv", "--msprof", "b.csv", "--product", "910B2"), "cannot be combined"),
        (("--msprof", "b.csv"), "--msprof needs --product"),
        (("--product", "910B2"), "--product goes with --msprof"),
        (("--data", "none.csv"), "cannot be read"),
        (("--class", "convolution"), "name a table with --data"),
        (("--msprof", "none.csv", "--product", "911"), "911"),
        (("--class", "sorting"), "sorting"),
        (("--rows", "some"), "some"),
    ],
)
def test_mistakes_are_answered(refusal, tmp_path, monkeypatch, words, told):
    monkeypatch.chdir(tmp_path)
    assert told in refusal("validate", *words)


def test_a_variable_that_names_nothing_is_refused(refusal, monkeypatch, tmp_path):
    monkeypatch.setenv("ASCENDSIM_DATA", str(tmp_path / "none"))
    assert "neither a table nor a folder" in refusal("validate")


def test_a_table_without_a_usable_row_is_refused(refusal, table):
    assert "no row of primitives" in refusal("validate", "--data", str(table()))


def test_a_table_of_unusable_rows_says_why_of_each(refusal, table):
    many = (primitive(f"row-{number}", number, role="skip", reason="too old") for number in range(1, 6))
    path = table(primitive("none", 0), *many)
    told = refusal("validate", "--data", str(path))
    assert "can be compared among the 6 given" in told
    assert "1: bytes is '0'; it must be a whole number from 1 to 2^40 (none)" in told
    assert "5: too old (row-1, row-2, row-3 and 2 more)" in told
    assert "--data" not in told


def test_a_profile_of_unusable_kernels_says_why(refusal, tmp_path):
    path = tmp_path / "op_summary.csv"
    path.write_text(
        "Op Name,OP Type,Task Duration(us),Block Dim,Input Shapes,Input Data Types,Output Shapes\n"
        'mine,Cast,10.0,20,"512,512",FLOAT16,"512,512"\n'
    )
    told = refusal("validate", "--msprof", str(path), "--product", "910B3")
    assert "Cast: neither a matrix product" in told
    assert "(mine)" in told


def test_a_malformed_row_leaves_the_others_compared(answer, table):
    path = table(primitive(), primitive("odd", 0), primitive("nan", cycles="nan"))
    text = answer("validate", "--data", str(path))
    assert "own" in text
    assert "Not compared: 2 rows" in text
    assert "nan%" not in text


def gradient(name, **counters):
    return cells("grad_input", id=name, **counters)


def test_rows_without_counters_show_the_estimated_bound(answer, table):
    path = table(gradient("mine"))
    found = json.loads(answer("validate", "--data", str(path), "--json"))
    (case,) = found["cases"]
    assert (case["measured_bound"], case["bound_right"]) == ([], None)
    text = answer("validate", "--data", str(path))
    assert "estimated bound" in text
    row = next(line for line in text.splitlines() if line.startswith("mine"))
    assert " ".join(case["estimated_bound"]) in row


def test_beside_measured_bounds_the_others_are_marked(answer, table):
    # The cube is no bound of so small a gradient.
    path = table(gradient("mine"), gradient("other", m_us=9, mte2_us=1))
    lines = {line.split()[0]: line for line in answer("validate", "--data", str(path)).splitlines() if line}
    assert "not measured" in lines["mine"]
    assert "MTE2, measured M" in lines["other"]


def test_on_a_terminal_each_row_is_named_as_it_is_run(answer, table, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stderr", Terminal())
    answer("validate", "--data", str(table(primitive("own"))))
    assert "own" in sys.stderr.getvalue()
