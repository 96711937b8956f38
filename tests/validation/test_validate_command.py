"""Does `ascendsim validate` find its rows, and refuse cells that do not fit with what stood there?"""

import io
import json
import sys
from dataclasses import fields, replace

import pytest

from ascendsim.errors import DataError
from ascendsim.ops.plan import Tiling
from ascendsim.report.validation import DEFINITIONS, answer_line, quoted_part, unmeasured
from ascendsim.validate.compare import MeasuredCase
from ascendsim.validate.run import RUNS, compare_rows, quoted_rows
from ascendsim.validate.schema import COLUMNS, KERNELS, PLAN, MeasuredRow, Unusable, read_row, read_rows
from tests.helpers.outside_records import KINDS, cells, made, write_table

# --- Does `ascendsim validate` find its rows, print what it compared, and answer mistakes? -------------

CLASS = ("--class", "primitives")


@pytest.fixture
def _without_outside_data(monkeypatch):
    monkeypatch.delenv("ASCENDSIM_DATA", raising=False)


def primitive(name="own", size=1024, cycles=173.0, **columns):
    return cells("move", id=name, bytes=size, measured_cycles=cycles, group="GM->L1", **columns)


@pytest.fixture
def table(tmp_path):
    def write(*rows, name="measured_rows.csv"):
        return write_table(tmp_path / name, *rows)

    return write


@pytest.mark.usefixtures("_without_outside_data")
def test_without_data_the_quoted_rows_are_compared_the_answer_first_and_the_rows_last(answer):
    text = " ".join(answer("validate", *CLASS).split())
    for words in ("ad-dc-ub-a-a2", "Errors by class", "median", "Not compared", unmeasured(), DEFINITIONS):
        assert words in text
    assert text.startswith("Half of the estimates are within so much of what was measured: ")
    order = ["Half of the", "Errors by class", "error: estimated / measured", "ad-dc-ub-a-a2", "Not compared"]
    assert [text.index(words) for words in order] == sorted(text.index(words) for words in order)


@pytest.mark.usefixtures("_without_outside_data")
def test_the_answer_names_every_class_the_worst_first():
    cases = compare_rows([made("move"), made("mmad", measured_cycles=100), made("mmad", id="b")]).cases
    moves, products = ([case for case in cases if case.row.kernel == name] for name in ("move", "mmad"))
    told = answer_line([replace(case, kind="matmul") for case in products] + moves)
    # Of two errors the median is their mean.
    errors = [abs(case.error) for case in products]
    assert f"{sum(errors) / 2:.1%} for matrix products (2), {abs(moves[0].error):.1%} for single" in told
    assert answer_line([]) == ""


@pytest.mark.usefixtures("_without_outside_data")
def test_every_quoted_row_names_its_source_and_may_be_quoted():
    rows = quoted_rows()
    assert sum(isinstance(row, MeasuredRow) for row in rows) == 30
    for row in rows:
        if isinstance(row, MeasuredRow):
            assert row.source
            assert row.quote, row.id
        else:
            assert row == Unusable(row.id, "what its copies move is not told", "primitives")


@pytest.mark.usefixtures("_without_outside_data")
def test_a_page_prints_only_numbers_that_may_be_quoted():
    rows = [
        row for row in quoted_rows() if isinstance(row, MeasuredRow) and row.id.startswith("ad-dc-ub-a-a2")
    ]
    shown = quoted_part(compare_rows(rows))
    hidden = quoted_part(compare_rows([replace(row, quote=False) for row in rows[:1]]))
    assert any("ad-dc-ub-a-a2" in part for part in shown)
    assert not any("ad-dc-ub" in part for part in hidden)


@pytest.mark.usefixtures("_without_outside_data")
def test_a_table_is_compared(answer, table):
    path = table(primitive(), primitive("odd", cycles="x"))
    text = answer("validate", "--data", str(path))
    assert "own" in text
    assert "Not compared: 1 rows" in text


@pytest.mark.usefixtures("_without_outside_data")
@pytest.mark.parametrize("folder", [True, False])
def test_a_table_is_found_by_its_variable(answer, table, monkeypatch, folder):
    path = table(primitive())
    monkeypatch.setenv("ASCENDSIM_DATA", str(path.parent if folder else path))
    assert "own" in answer("validate")


@pytest.mark.usefixtures("_without_outside_data")
def test_a_folder_with_the_words_of_the_sources_alone_says_what_to_run(refusal, tmp_path, monkeypatch):
    (tmp_path / "silicon.csv").write_text("id,chip_variant,op\n")
    monkeypatch.setenv("ASCENDSIM_DATA", str(tmp_path))
    assert f"run python tools/measured_rows.py {tmp_path / 'silicon.csv'} OUT" in refusal("validate")


@pytest.mark.usefixtures("_without_outside_data")
def test_json_holds_cases_groups_and_reasons(answer, table):
    path = table(primitive(), primitive("sim", role="skip", reason="too old"))
    found = json.loads(answer("validate", "--data", str(path), "--json"))
    (case,), (group,) = found["cases"], found["groups"]
    assert (case["id"], case["measured"], case["role"]) == ("own", 173.0, "validation")
    assert case["error"] == pytest.approx(case["estimated"] / 173 - 1)
    assert (group["class"], group["count"], group["rank"]) == ("primitives", 1, None)
    assert found["unusable"] == [{"id": "sim", "reason": "too old"}]


@pytest.mark.usefixtures("_without_outside_data")
def test_of_many_rows_the_worst_are_listed_unless_all_are_asked_for(answer, table):
    path = table(*(primitive(f"row-{size}", size * 512, 300 + size) for size in range(1, 80)))
    few, all_of_them = (
        answer("validate", "--data", str(path), "--rows", rows).count("\nrow-") for rows in ("worst", "all")
    )
    assert (few, all_of_them) == (10, 79)


@pytest.mark.usefixtures("_without_outside_data")
def test_a_page_and_a_plot_are_written(answer, table, tmp_path, monkeypatch):
    # All quoted rows take half a minute; the committed page has them.
    few = [row for row in quoted_rows() if row.id.startswith("ad-dc-ub-a-a2")]
    monkeypatch.setattr("ascendsim.validate.run.quoted_rows", lambda: few)
    answer("validate", "--data", str(table(primitive())), "--out", str(tmp_path / "out"))
    text = (tmp_path / "out" / "validation.md").read_text()
    assert text.startswith("# Measured and estimated")
    assert "| Primitives: GM->L1 | 1 |" in text
    assert "ad-dc-ub-a-a2" in text
    assert (tmp_path / "out" / "validation.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("_without_outside_data")
def test_an_own_profile_is_compared(answer, tmp_path):
    path = tmp_path / "op_summary.csv"
    path.write_text(
        "Op Name,OP Type,Task Duration(us),Block Dim,Input Shapes,Input Data Types,Output Shapes\n"
        'mine,MatMulV2,10.0,20,"512,512;512,512",FLOAT16;FLOAT16,"512,512"\n'
    )
    text = answer("validate", "--msprof", str(path), "--product", "910B3")
    assert "mine" in text
    assert "910B3" in text


@pytest.mark.usefixtures("_without_outside_data")
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


@pytest.mark.usefixtures("_without_outside_data")
def test_a_variable_that_names_nothing_is_refused(refusal, monkeypatch, tmp_path):
    monkeypatch.setenv("ASCENDSIM_DATA", str(tmp_path / "none"))
    assert "neither a table nor a folder" in refusal("validate")


@pytest.mark.usefixtures("_without_outside_data")
def test_a_table_without_a_usable_row_is_refused(refusal, table):
    assert "no row of primitives" in refusal("validate", "--data", str(table()))


@pytest.mark.usefixtures("_without_outside_data")
def test_a_table_of_unusable_rows_says_why_of_each(refusal, table):
    many = (primitive(f"row-{number}", number, role="skip", reason="too old") for number in range(1, 6))
    path = table(primitive("none", 0), *many)
    told = refusal("validate", "--data", str(path))
    assert "can be compared among the 6 given" in told
    assert "1: bytes is '0'; it must be a whole number from 1 to 2^40 (none)" in told
    assert "5: too old (row-1, row-2, row-3 and 2 more)" in told
    assert "--data" not in told


@pytest.mark.usefixtures("_without_outside_data")
def test_a_profile_of_unusable_kernels_says_why(refusal, tmp_path):
    path = tmp_path / "op_summary.csv"
    path.write_text(
        "Op Name,OP Type,Task Duration(us),Block Dim,Input Shapes,Input Data Types,Output Shapes\n"
        'mine,Cast,10.0,20,"512,512",FLOAT16,"512,512"\n'
    )
    told = refusal("validate", "--msprof", str(path), "--product", "910B3")
    assert "Cast: neither a matrix product" in told
    assert "(mine)" in told


@pytest.mark.usefixtures("_without_outside_data")
def test_a_malformed_row_leaves_the_others_compared(answer, table):
    path = table(primitive(), primitive("odd", 0), primitive("nan", cycles="nan"))
    text = answer("validate", "--data", str(path))
    assert "own" in text
    assert "Not compared: 2 rows" in text
    assert "nan%" not in text


def gradient(name, **counters):
    return cells("grad_input", id=name, **counters)


@pytest.mark.usefixtures("_without_outside_data")
def test_rows_without_counters_show_the_estimated_bound(answer, table):
    path = table(gradient("mine"))
    found = json.loads(answer("validate", "--data", str(path), "--json"))
    (case,) = found["cases"]
    assert (case["measured_bound"], case["bound_right"]) == ([], None)
    text = answer("validate", "--data", str(path))
    assert "estimated bound" in text
    row = next(line for line in text.splitlines() if line.startswith("mine"))
    assert " ".join(case["estimated_bound"]) in row


@pytest.mark.usefixtures("_without_outside_data")
def test_beside_measured_bounds_the_others_are_marked(answer, table):
    # The cube is no bound of so small a gradient.
    path = table(gradient("mine"), gradient("other", m_us=9, mte2_us=1))
    lines = {line.split()[0]: line for line in answer("validate", "--data", str(path)).splitlines() if line}
    assert "not measured" in lines["mine"]
    assert "MTE2, measured M" in lines["other"]


@pytest.mark.usefixtures("_without_outside_data")
def test_on_a_terminal_each_row_is_named_as_it_is_run(answer, table, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stderr", Terminal())
    answer("validate", "--data", str(table(primitive("own"))))
    assert "own" in sys.stderr.getvalue()


# --- Does a row whose cells do not fit cost that row alone, and is it told what stood there? -----------

WHOLE = "it must be a whole number from 1 to 2^40"
# Kind, column, what stands in it (None: nothing), words of the reason.
MALFORMED = [
    ("move", "kernel", None, "kernel is empty; it must be one of mmad, vector, move"),
    ("move", "kernel", "moove", "kernel is 'moove'; it must be one of mmad"),
    ("move", "variant", None, "variant is empty; it must be a text"),
    ("move", "variant", "graphics card", "unknown product 'graphics card'"),
    ("move", "bytes", None, "bytes is empty; it must be a whole number"),
    ("move", "bytes", 0, f"bytes is '0'; {WHOLE}"),
    ("move", "bytes", 10**400, "bytes is '1" + "0" * 39 + "...'; it must"),
    ("move", "bytes", "1_000", f"bytes is '1_000'; {WHOLE}"),
    ("move", "path", "GM_MARS", "910B1 has no path GM->MARS here"),
    ("move", "measured_cycles", None, "measured_cycles is empty; it must be a positive number up to 2^40"),
    ("move", "measured_cycles", -1.5, "measured_cycles is '-1.5'"),
    ("move", "measured_cycles", "nan", "measured_cycles is 'nan'"),
    ("move", "measured_cycles", "1e999", "measured_cycles is '1e999'"),
    ("move", "in_a_row", "true", "in_a_row is 'true'; it must be yes or no"),
    ("move", "role", "none", "role is 'none'; it must be one of fit, judge, report, skip"),
    ("load", "repeats", 2.5, "repeats is '2.5'"),
    ("load", "path", "UB_MARS", "has no path UB->MARS"),
    ("vector", "repeats", "True", "repeats is 'True'"),
    ("vector", "vector_kind", "sideways", "no figure for vector instructions of the kind sideways on 910B1"),
    ("mmad", "m", "a", "m is 'a'"),
    ("mmad", "k", None, "k is empty"),
    ("mmad", "compute_dtype", "int4", "operands of int4 are not multiplied on 910B1"),
    ("mmad", "compute_dtype", None, "compute_dtype is empty"),
    ("copy_and_wait", "bytes", "many", "bytes is 'many'"),
    ("stream", "bytes", None, "bytes is empty"),
    ("stream", "bytes", 1, "it copies 16777216 bytes of a working set of 1; 1 cores copy 32 bytes each"),
    ("stream", "moved_bytes", 8, "it copies 8 bytes of a working set"),
    ("stream", "bytes", 1 << 40, "549,755,813,888 elements; no chip's memory holds that"),
    ("stream", "cores", 0, "cores is '0'"),
    ("stream", "cores", 1000, "cores is 1000; 950DT_9582 has 64 that copy on GM_UB"),
    ("stream", "path", "L1_L0A", "path is 'L1_L0A'; a stream takes one of GM_L1, GM_UB, UB_GM"),
    ("stream", "tile_bytes", 10**6, "UB of 950DT_9582 holds"),
    ("matmul", "m", 0, "m is '0'"),
    ("matmul", "m", 10**9, "256,000,000,000 elements; no chip's memory"),
    ("matmul", "batch", 10**9, "no chip's memory"),
    ("matmul", "batch", "x", "batch is 'x'"),
    ("matmul", "blocks", -3, f"blocks is '-3'; {WHOLE}"),
    ("matmul", "m_us", -1, "m_us is '-1'; it must be a number from 0 to 2^40"),
    ("matmul", "m_us", "N/A", "m_us is 'N/A'"),
    ("matmul", "layout", "NHWC", "layout is 'NHWC'; it must be one of ND, NZ"),
    ("matmul", "l2_start", "hot", "l2_start is 'hot'; it must be one of warm, cold, handed"),
    ("matmul", "compute_dtype", "int4", "operands of int4 are not multiplied on 910B1"),
    ("plan", "base_m", 0, "base_m is '0'"),
    ("plan", "base_k", None, "base_k is empty; it must be given where base_m is"),
    ("plan", "used_cores", 25, "used_cores is 25, but 910B1 has 24 cores"),
    ("tiles", "tiles_on_core", 9, "tiles_on_core is 9; cores of this run take 1 or 2"),
    ("tiles", "pipe", "MTE9", "pipe is 'MTE9'; it must be one of M, MTE1, MTE2, FIX"),
    ("grad_input", "input_shape", "2x32", "input"),
    ("grad_input", "input_shape", "2,32,12,10", "input_shape is '2,32,12,10'; it must be whole numbers with"),
    ("grad_input", "stride", "0x1", "stride"),
    ("grad_input", "padding", "-1x1", "padding is '-1x1'"),
    ("grad_input", "groups", 5, "groups"),
    ("grad_input", "input_shape", "999999999x32x12x10", "no chip's memory"),
    ("grad_weight", "weight_shape", None, "weight_shape is empty"),
    ("grad_weight", "compute_dtype", "int4", "operands of int4 are not convolved on 910B1"),
    ("transdata", "change", "NCHW->NZ", "change is 'NCHW->NZ'; it must be one of NCHW->NC1HWC0"),
    ("transdata", "change", None, "change is empty"),
    ("transdata", "c0", 0, "c0 is '0'"),
    ("transdata", "input_shape", "2x32x12", "the shape is (2, 32, 12); give 4 sizes"),
    ("transdata", "input_shape", "999999999x32x12x10", "no chip's memory"),
    ("transdata", "compute_dtype", "int4", "int4"),
    ("forward", "groups", 5, "groups"),
    ("grad_bias", "input_shape", "32x1000", "give that of grad_output, (N, C, ...)"),
    ("grad_bias", "input_shape", "999999999x32x12x10", "no chip's memory"),
    ("grad_input_call", "weight_shape", "", "weight_shape is empty; it must be"),
    ("grad_weight_call", "compute_dtype", "int8", "operands of int8 are not convolved"),
]


@pytest.mark.parametrize(
    ("kind", "column", "value", "reason"),
    MALFORMED,
    ids=[f"{kind}-{column}-{number}" for number, (kind, column, *_) in enumerate(MALFORMED)],
)
def test_a_malformed_row_says_what_was_got_and_the_next_is_compared(kind, column, value, reason):
    found = compare_rows([made(kind, **{column: value}), made("move", id="next")])
    assert [case.id for case in found.cases] == ["next"]
    ((name, told),) = [(row.id, row.reason) for row in found.unusable]
    assert name == "mine"
    assert reason in told


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_row_with_its_numbers_is_compared(kind):
    found = compare_rows([made(kind)])
    assert found.unusable == ()
    assert all(isinstance(case, MeasuredCase) and case.estimated > 0 for case in found.cases)
    assert len(found.cases) == 1


def test_every_kind_has_a_malformed_row():
    assert {kind for kind, *_ in MALFORMED} == set(KINDS)


def test_a_first_generation_core_multiplies_no_single_precision():
    row = made("matmul", variant="910B_old_1001", compute_dtype="float32")
    (found,) = compare_rows([row]).unusable
    assert found.reason == "operands of float32 are not multiplied on 910B_old_1001"


# --- Is the table of measured cases read column by column, and refused with what stood where? ----------


def test_cells_become_numbers_flags_and_sizes():
    row = made("matmul", batch="3", transpose_a="yes", m_us="0", role="fit", inferred="all of it")
    assert (row.m, row.batch, row.transpose_a, row.m_us) == (256, 3, True, 0.0)
    assert (row.role, row.inferred) == ("fit", "all of it")
    assert (row.measured, row.unit, row.kind) == (10, "us", "matmul")
    assert made("grad_input").input_shape == (2, 32, 12, 10)


def test_an_empty_cell_stands_for_what_is_usual():
    row = made("matmul", layout="", batch=" ", role="")
    assert (row.layout, row.batch, row.role, row.l2_start, row.quote) == ("ND", 1, "judge", "warm", False)
    assert row == made("matmul")


def test_a_row_tells_its_measurement_in_the_unit_of_its_kernel():
    assert made("move", measured_us="7").measured == 173
    assert made("matmul", measured_cycles="7").measured == 10


def test_pipes_that_were_not_counted_are_no_counters():
    assert made("matmul").counters == {"M": 3, "MTE2": 5}
    assert made("grad_input").counters == {}


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_kernel_has_a_sample_a_model_and_columns_that_exist(kernel):
    assert kernel in {kind["kernel"] for kind in KINDS.values()}
    assert kernel in RUNS
    assert {*KERNELS[kernel].needs, f"measured_{KERNELS[kernel].unit}"} <= set(COLUMNS)


def test_the_columns_of_a_plan_are_fields_of_one():
    assert set(PLAN) <= {field.name for field in fields(Tiling)}


def test_a_skipped_row_keeps_its_reason_and_its_class():
    found = read_row({"id": "a", "kernel": "move", "role": "skip", "reason": "too old", "bytes": "none"})
    assert found == Unusable("a", "too old", "primitives")
    assert read_row({"id": "a", "role": "skip"}) == Unusable("a", "its table says to skip it")


def test_a_row_without_a_name_is_named_by_its_line(tmp_path):
    path = write_table(tmp_path / "t.csv", cells("move", id=None), cells("move", id=None, bytes="x"))
    good, bad = read_rows(path)
    assert (good.id, bad.id) == ("line 2", "line 3")


def test_a_short_line_is_read_as_far_as_it_goes(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("id,variant,kernel,path,bytes,measured_cycles\nmine,910B1,move\n")
    (found,) = read_rows(path)
    assert found.reason.startswith("path is empty; it must be a text")


def test_a_mark_of_windows_in_front_is_no_part_of_the_first_name(tmp_path):
    path = write_table(tmp_path / "t.csv", cells("move"))
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert read_rows(path) == [made("move")]


def test_columns_that_no_row_uses_need_not_be_there(tmp_path):
    path = write_table(tmp_path / "t.csv", cells("move"), columns=cells("move"))
    assert read_rows(path) == [made("move")]


@pytest.mark.parametrize("column", ["id", "variant", "kernel"])
def test_a_missing_column_is_named(tmp_path, column):
    path = write_table(tmp_path / "t.csv", columns=[name for name in COLUMNS if name != column])
    with pytest.raises(DataError, match=f"has no column {column}; reports/columns.md"):
        read_rows(path)


def test_a_misspelt_column_is_refused_and_not_passed_over(tmp_path):
    path = write_table(tmp_path / "t.csv", columns=[*COLUMNS, "transpos_a"])
    with pytest.raises(DataError, match=r"unknown column 'transpos_a'; did you mean transpose_a\?"):
        read_rows(path)


def test_a_table_in_the_words_of_its_sources_says_what_to_run(tmp_path):
    path = tmp_path / "silicon.csv"
    path.write_text("id,chip_variant,op,shapes_json\n")
    with pytest.raises(
        DataError, match=r"run python tools/measured_rows\.py .*silicon\.csv OUT .*, or let A"
    ):
        read_rows(path)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00"])
def test_what_is_no_table_is_refused(tmp_path, content):
    path = tmp_path / "table.csv"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"table\.csv"):
        read_rows(path)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(DataError, match="cannot be read"):
        read_rows(tmp_path / "none.csv")
