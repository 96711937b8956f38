"""What happens to the errors without each calibrated constant."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ascendsim.profile import load_profile
from ascendsim.validate.compare import Case, summarise
from ascendsim.validate.constants import CONSTANTS
from ascendsim.validate.rows import Row, Unusable
from ascendsim.validate.run import compare_rows


@dataclass(frozen=True)
class Ablation:
    """A constant and the errors of its rows, median and mean, with it and without."""

    path: str
    value: Any
    without: Any
    rows: tuple[str, ...]
    count: int
    kept: tuple[float, float]
    dropped: tuple[float, float]


def ablations(product: str, rows: Sequence[Row | Unusable]) -> Iterator[Ablation]:
    """Yield every constant of a product whose rows are at hand."""
    profile = load_profile(product)
    for constant in CONSTANTS[product]:
        own = [row for row in rows if isinstance(row, Row) and row.id.startswith(constant.rows)]
        kept = compare_rows(own).cases
        dropped = compare_rows(own, overrides=((constant.path, constant.without),)).cases
        if not kept or not dropped:
            continue
        figure = profile.figures[constant.path]
        yield Ablation(
            constant.path,
            figure.value,
            constant.without,
            constant.rows,
            len(kept),
            _errors(kept),
            _errors(dropped),
        )


def _errors(cases: Sequence[Case]) -> tuple[float, float]:
    summary = summarise(cases)
    return summary.median, summary.mean
