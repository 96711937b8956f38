"""Do answers become tables as they are, whoever made them?"""

import csv
import re

import pytest

from ascendsim import estimate
from ascendsim.errors import ConfigError, UnsupportedError, install_hint
from ascendsim.studies.engine.measure import measure
from ascendsim.studies.engine.point import Point
from ascendsim.studies.engine.run import Engine, Store, rows_of, write_table
from tests.helpers.study_points import SMALL, points

ASKED = [
    Point(SMALL, "910B2", label="fine"),
    Point(SMALL, "910B2", {"scalar.issue_cycles": -1}, label="refused"),
]


@pytest.fixture(scope="module")
def rows():
    return rows_of(Engine(Store(), 1).answer(ASKED))


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
    other = Point(SMALL, "910B2", label="other")
    made = rows_of(Engine(Store(), 1).answer([*ASKED, ASKED[0], other, ASKED[0]]))
    assert made[: len(rows)] == rows
    assert [row["label"] for row in made[len(rows) :]] == ["other"] * 10


def test_csv_holds_the_rows(rows, tmp_path):
    path = tmp_path / "made" / "table.csv"
    write_table(rows, path)
    with path.open(newline="") as file:
        read = list(csv.DictReader(file))
    # Texts in a file; nothing where there is nothing.
    assert read == [{k: "" if v is None else str(v) for k, v in row.items()} for row in rows]


def test_parquet_holds_the_rows(rows, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    path = tmp_path / "table.parquet"
    write_table(rows, path)
    assert parquet.read_table(path).to_pylist() == rows


def test_parquet_without_pyarrow_says_what_to_install(rows, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(UnsupportedError, match=re.escape(install_hint("parquet"))):
        write_table(rows, tmp_path / "table.parquet")


def test_another_ending_is_refused(rows, tmp_path):
    with pytest.raises(ConfigError, match=r"ends in \.csv or \.parquet"):
        write_table(rows, tmp_path / "table.txt")


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
        made = Engine(Store(), scheduler=cluster.scheduler_address).answer(ASKED)
    assert made.computed == 2
    assert rows_of(made) == rows


def test_no_scheduler_is_told(monkeypatch):
    pytest.importorskip("distributed", reason="dask is not installed")
    monkeypatch.setattr("ascendsim.studies.engine.run.PATIENCE", 0.2)
    with pytest.raises(ConfigError, match="no scheduler answers"):
        Engine(Store(), scheduler="tcp://127.0.0.1:9").answer(points(1))


def test_the_samples_are_timed():
    assert not measure(ASKED[0]).reason
