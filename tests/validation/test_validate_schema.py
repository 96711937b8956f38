"""Is the table of measured cases read column by column, and refused with what stood where?"""

from dataclasses import fields
from pathlib import Path

import pytest

from ascendsim.errors import DataError
from ascendsim.ops.plan import Tiling
from ascendsim.validate.run import RUNS
from ascendsim.validate.schema import COLUMNS, KERNELS, PLAN, Row, Unusable, read_row, read_rows
from tests.helpers.measured_samples import KINDS, cells, made, write_table

PAGE = Path(__file__).parents[2] / "docs" / "validation.md"


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


def test_the_page_lists_every_column_with_its_rule_and_meaning():
    text = PAGE.read_text()
    for field in fields(Row):
        if field.name not in PLAN:
            form, meaning = field.metadata["form"], field.metadata["meaning"]
            assert f"| `{field.name}` | {form.rule} | {meaning} |" in text, field.name
    assert ", ".join(f"`{name}`" for name in PLAN) in text
    for name, kernel in KERNELS.items():
        needs = ", ".join(f"`{column}`" for column in kernel.needs)
        assert f"| `{name}` | {kernel.kind} | `measured_{kernel.unit}` | {needs} |" in text, name


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
    with pytest.raises(DataError, match=f"has no column {column}; docs/validation.md"):
        read_rows(path)


def test_a_misspelt_column_is_refused_and_not_passed_over(tmp_path):
    path = write_table(tmp_path / "t.csv", columns=[*COLUMNS, "transpos_a"])
    with pytest.raises(DataError, match=r"unknown column 'transpos_a'; did you mean transpose_a\?"):
        read_rows(path)


def test_a_table_in_the_words_of_its_sources_says_what_to_run(tmp_path):
    path = tmp_path / "silicon.csv"
    path.write_text("id,chip_variant,op,shapes_json\n")
    with pytest.raises(DataError, match=r"run python tools/measured_rows\.py .*silicon\.csv OUT"):
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
