"""Read a table of measured cases; what is wrong with a row is said of that row alone."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ascendsim.errors import DataError
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.profile.check import hint
from ascendsim.validate.schema import COLUMNS, KERNELS, Row

# 128 GiB of half precision; the largest memory of a product is 144 GB.
MOST_ELEMENTS = 1 << 36
# Columns that only tables in the words of their sources have.
PROSE = ("chip_variant", "shapes_json", "other_counters_json")
NEEDED = ("id", "variant", "kernel")
SHOWN = 40  # characters of a wrong value that a reason repeats


@dataclass(frozen=True)
class Unusable:
    """A case that nothing can be compared with, and why; `kind` is its class where that is known."""

    id: str
    reason: str
    kind: str = ""


@default_arithmetic
def read_rows(path: Path) -> list[Row | Unusable]:
    """Read a table of measured cases; a row with a wrong value costs that row alone.

    Raises   DataError if the file cannot be read, lacks a column or has one that is not known
    """
    columns, lines = read_lines(path, "--data takes a table of cases")
    _check_columns(columns, path)
    return [read_row(cells, f"line {number}") for number, cells in enumerate(lines, start=2)]


def read_lines(path: Path, takes: str) -> tuple[Sequence[str], list[dict[str, str]]]:
    """Return the names of the columns of a CSV file, and its lines by them.

    Raises   DataError if it cannot be read; `takes` says what file is wanted
    """
    try:
        # Windows' tools begin a file in UTF-8 with a mark; it is no part of the first name.
        with path.open(newline="", encoding="utf-8-sig") as file:
            table = csv.DictReader(file)
            return table.fieldnames or (), list(table)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}; {takes}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}: is not a table in UTF-8 with commas: {error}") from None


def _check_columns(names: Sequence[str], path: Path) -> None:
    if set(PROSE) & set(names):
        raise DataError(
            f"{path}: {', '.join(name for name in PROSE if name in names)} hold the words of its sources, "
            f"not columns; run python tools/measured_rows.py {path} OUT, then --data OUT"
        )
    missing = [name for name in NEEDED if name not in names]
    if missing:
        raise DataError(f"{path}: has no column {', '.join(missing)}; docs/validation.md lists the columns")
    # A misspelt column that is passed over would leave its default in place, unseen.
    unknown = [name for name in names if name not in COLUMNS]
    if unknown:
        raise DataError(f"{path}: unknown column {unknown[0]!r}{hint(unknown[0], tuple(COLUMNS))}")


def read_row(cells: Mapping[str, str | None], place: str = "") -> Row | Unusable:
    """Read one line by its columns; `place` names it where it has no name."""
    # A short line has None for what is missing, a spreadsheet blanks.
    told = {name: text for name in COLUMNS if (text := (cells.get(name) or "").strip())}
    name, kernel = told.get("id", place), KERNELS.get(told.get("kernel", ""))
    kind = kernel.kind if kernel else ""
    # Before its cells are read: what is skipped need not be whole.
    if told.get("role") == "skip":
        return Unusable(name, told.get("reason", "its table says to skip it"), kind)
    values: dict[str, Any] = {}
    for column, text in told.items():
        try:
            values[column] = COLUMNS[column].read(text)
        except ValueError:
            return Unusable(name, wrong(column, text, COLUMNS[column].rule), kind)
    needs = (*kernel.needs, f"measured_{kernel.unit}", "variant") if kernel else ("kernel",)
    missing = next((column for column in needs if column not in values), None)
    if missing:
        return Unusable(name, wrong(missing, "", COLUMNS[missing].rule), kind)
    return Row(**values | {"id": name})


def wrong(column: str, text: str, rule: str) -> str:
    """Say what stands in a column, and what must."""
    # A cell may hold thousands of digits.
    shown = text if len(text) <= SHOWN else text[:SHOWN] + "..."
    return f"{column} is {shown!r}; it must be {rule}" if text else f"{column} is empty; it must be {rule}"


def refuse_beyond_memory(elements: int) -> None:
    """Check that a tensor could have been on a chip: the model would take as long as its tiles are many.

    Raises   DataError if not
    """
    if elements > MOST_ELEMENTS:
        raise DataError(f"its sizes make a tensor of {elements:,} elements; no chip's memory holds that")
