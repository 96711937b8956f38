"""Points and answers as a table: rows of plain values, and the files that hold them."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ascendsim.errors import ConfigError, UnsupportedError, install_hint
from ascendsim.studies.engine.run import Outcome

FORMATS = (".csv", ".parquet")


def rows_of(outcome: Outcome) -> list[dict[str, Any]]:
    """Return a row for each kernel of each point, in the order of the points; a failed point has one row.

    A point that stands there twice, as the product as it is may for several changes, has its rows once.

    The columns are those of `Point.values`, then `status` ("timed", "failed" or "left out") and `reason`,
    then those of `Estimate.to_records`.
    """
    found = []
    # By what a row says besides: layers of one shape have points of one key, and names of their own.
    each = {
        (key, *point.values.values()): point for point, key in zip(outcome.points, outcome.keys, strict=True)
    }
    for (key, *_), point in each.items():
        answer = outcome.answers.get(key)
        status = "left out" if answer is None else "failed" if answer.reason else "timed"
        own = point.values | {"status": status, "reason": answer.reason if answer else ""}
        records: Sequence[Mapping[str, Any]] = answer.records if answer else ()
        # The point says the product as it was asked for; the record would say it once more.
        found += [{**record, **own} for record in records or ({},)]
    columns = dict.fromkeys(name for row in found for name in row)
    first = [name for name in (*_point_columns(outcome), "status", "reason") if name in columns]
    order = [*first, *(name for name in columns if name not in first)]
    return [{name: row.get(name) for name in order} for row in found]


def _point_columns(outcome: Outcome) -> Sequence[str]:
    return list(outcome.points[0].values) if outcome.points else ()


def require_table_name(path: Path) -> None:
    """Refuse the name of a table that says no format.

    Raises   ConfigError
    """
    if path.suffix not in FORMATS:
        raise ConfigError(f"{path}: a table ends in {' or '.join(FORMATS)}; give it one of these names")


def write_table(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write rows as CSV or, with pyarrow (an extra), as Parquet; the ending of the path says which.

    Raises   ConfigError for another ending, UnsupportedError without pyarrow
    """
    require_table_name(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        _write_parquet(rows, path)
        return
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]) if rows else [])
        writer.writeheader()
        writer.writerows(rows)


def _write_parquet(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    try:
        from pyarrow import Table
        from pyarrow.parquet import write_table as write_parquet
    except ImportError:
        raise UnsupportedError(
            f"{path}: Parquet is written by pyarrow, which is not installed; "
            f"{install_hint('parquet')}, or end the name in .csv"
        ) from None
    write_parquet(Table.from_pylist(list(rows)), path)
