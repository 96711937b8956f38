"""One line of a table in the words of its sources."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

COLUMNS = (
    *("id", "chip", "chip_variant", "op", "dtype", "math_mode", "layout", "shapes_json"),
    *("stride_pad_dil_groups_json", "measured_us", "measured_cycles", "other_counters_json"),
    *("source", "strength", "notes"),
)


class SkipError(Exception):
    """Why nothing can be compared with a line."""


@dataclass(frozen=True)
class Raw:
    """A line with its numbers and objects read; `sizes` and `counters` are in its source's spelling."""

    id: str
    chip: str
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


def read_line(name: str, line: Mapping[str, str | None]) -> Raw:
    """Read a line.

    Raises   ValueError if a number is none, or an object is none
    """
    words = {column: line.get(column) or "" for column in COLUMNS}
    return Raw(
        name,
        words["chip_variant"],
        *(words[column] for column in ("op", "dtype", "math_mode", "layout")),
        _object(words["shapes_json"]),
        _object(words["stride_pad_dil_groups_json"]),
        _number(words["measured_us"]),
        _number(words["measured_cycles"]),
        _object(words["other_counters_json"]),
        *(words[column] for column in ("source", "strength", "notes")),
    )


def busy_us(raw: Raw) -> dict[str, float]:
    """Return the busy microseconds of each pipe that was counted, as times or as shares of the duration.

    Words such as "N/A" tell nothing.
    """
    found = {}
    for column, times, shares in PIPES:
        for name in times:
            if is_number(told := raw.counters.get(name, raw.sizes.get(name))):
                found[column] = told
        for name in shares:
            if raw.us is not None and is_number(told := raw.counters.get(name)):
                found[column] = told / 100 * raw.us
    return found


# Column, what the sources call the pipe's time, and its share of the duration in percent.
PIPES = (
    ("m_us", ("aic_mac_time(us)", "mac_us", "cube_us"), ("cube_pct", "TMATMUL_pct")),
    ("mte1_us", ("aic_mte1_time(us)", "mte1_us"), ("mte1_pct", "TEXTRACT_pct")),
    ("mte2_us", ("aic_mte2_time(us)", "mte2_us"), ("mte2_pct", "TLOAD_pct")),
    ("fix_us", ("aic_fixpipe_time(us)", "fixpipe_us"), ("store_pct", "TSTORE_pct")),
)


def is_number(value: Any) -> bool:
    """Tell whether a value is a number; truth values are none."""
    return type(value) in (int, float)


def _object(text: str) -> Mapping[str, Any]:
    found = json.loads(text, parse_constant=_finite, parse_float=_finite) if text else {}
    if not isinstance(found, dict):
        raise ValueError(f"{text!r} is not an object")
    return found


def _finite(text: str) -> float:
    # JSON knows no infinity, Python's reader does.
    value = float(text)
    if not isfinite(value):
        raise ValueError(f"{text} is not finite")
    return value


def _number(text: str) -> float | None:
    """Return a positive number, None for an empty cell or a zero (which stands for a lost value)."""
    value = _finite(text) if text else 0.0
    if value < 0:
        raise ValueError(f"{text!r} is negative")
    return value or None
