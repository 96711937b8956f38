"""Measured cases as records, and the table of them that `--data` names.

A table has the columns `id, chip, chip_variant, op, dtype, math_mode, layout, shapes_json,
stride_pad_dil_groups_json, measured_us, measured_cycles, other_counters_json, source, strength, notes`; the
three that end in `_json` hold objects. Columns beyond these are ignored, so that a table may carry more.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf, isfinite
from pathlib import Path
from typing import Any

from ascendsim.errors import DataError

COLUMNS = (
    *("id", "chip", "chip_variant", "op", "dtype", "math_mode", "layout", "shapes_json"),
    *("stride_pad_dil_groups_json", "measured_us", "measured_cycles", "other_counters_json"),
    *("source", "strength", "notes"),
)


@dataclass(frozen=True)
class Row:
    """One measured case.

    us, cycles   what the table says, None where it says nothing; `counters` are further measurements of the
                 same run, by the names of the tool that made them
    sizes        the geometry, in whatever spelling the source used; `window` its stride, padding, ...
    strength     "real-hardware" if a chip was measured
    inferred     what the reader of another format took for granted, for the note of the comparison
    """

    id: str
    chip: str
    chip_variant: str
    op: str
    dtype: str
    math_mode: str
    layout: str
    sizes: Mapping[str, Any]
    window: Mapping[str, Any]
    us: float | None
    cycles: float | None
    counters: Mapping[str, Any]
    source: str
    strength: str
    notes: str
    inferred: str = ""


# The source of rows that come from a user's own profile.
OWN_PROFILE = "the user's profile"
# Profiles of steps of networks whose weights and activations are more than L2 holds, by what their source
# says: the first operand (activation, or gradient of the next layer) was just written, the other a pass ago.
STEPS = ("Ascend/msinsight", "Ascend/mstt", OWN_PROFILE)
# Runs whose operands all came from memory though no source says so. On the first generation batches
# of products in such steps run at memory's rate whether they move 19 MB or 400 MB; in one sample of matrix
# products MTE2 is as busy as misses make it (28 us at 1536; the model has 27 with them, 24 without).
FROM_MEMORY = ("Huawei-Performance-Model", "pto-isa")


@dataclass(frozen=True)
class Unusable:
    """A case that nothing can be compared with, and why."""

    id: str
    reason: str


def read_rows(path: Path) -> list[Row | Unusable]:
    """Read a table of measured cases.

    Raises   DataError if the file cannot be read or lacks a column
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return list(_rows(csv.DictReader(file), path))
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}; --data takes a table of cases") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}: is not a table in UTF-8 with commas: {error}") from None


def l2_start_of(row: Row) -> str:
    """Return what L2 held of the operands of a row: "warm" unless its source or its times tell otherwise."""
    if "cold L2" in row.notes or any(name in row.source for name in FROM_MEMORY):
        return "cold"
    return "handed" if any(name in row.source for name in STEPS) else "warm"


def _rows(table: csv.DictReader[str], path: Path) -> Iterator[Row | Unusable]:
    missing = [column for column in COLUMNS if column not in (table.fieldnames or ())]
    if missing:
        raise DataError(
            f"{path}: has no column {', '.join(missing)}; a table of cases has {', '.join(COLUMNS)}"
        )
    for number, cells in enumerate(table, start=2):
        name = cells["id"] or f"line {number}"
        try:
            yield _row(name, cells)
        except ValueError as error:
            yield Unusable(name, f"cannot be read: {error}")


def _row(name: str, cells: Mapping[str, str]) -> Row:
    chip, chip_variant, op, dtype, math_mode, layout = (cells[column] or "" for column in COLUMNS[1:7])
    return Row(
        name,
        chip,
        chip_variant,
        op,
        dtype,
        math_mode,
        layout,
        sizes=_object(cells["shapes_json"]),
        window=_object(cells["stride_pad_dil_groups_json"]),
        us=_number(cells["measured_us"]),
        cycles=_number(cells["measured_cycles"]),
        counters=_object(cells["other_counters_json"]),
        source=cells["source"] or "",
        strength=cells["strength"] or "",
        notes=cells["notes"] or "",
    )


def _object(text: str | None) -> Mapping[str, Any]:
    found = json.loads(text, parse_constant=_finite, parse_float=_finite) if text else {}
    if not isinstance(found, dict):
        raise ValueError(f"{text!r} is not an object")
    return found


def _finite(text: str) -> float:
    """Return a number of an object; JSON knows no infinity, Python's reader does."""
    value = float(text)
    if not isfinite(value):
        raise ValueError(f"{text} is not finite")
    return value


def _number(text: str | None) -> float | None:
    """Return a positive number, None for an empty cell or a zero (which stands for a lost value)."""
    value = float(text) if text else 0.0
    if not 0 <= value < inf:
        raise ValueError(f"{text!r} is negative or not finite")
    return value or None
