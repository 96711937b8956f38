"""The figures that were fitted on measured rows, and what happens to the errors without each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ascendsim.profile import list_products, load_profile
from ascendsim.profile.records import Figure
from ascendsim.validate.compare import Case, summarise
from ascendsim.validate.run import compare_rows
from ascendsim.validate.schema import Row, Unusable


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


def fitted(product: str) -> dict[str, Figure]:
    """Return the fitted figures that a product does not take over from its base, by path."""
    # A product that builds on another holds its figures unchanged; their rows judged the base already.
    base = next((other.base for other in list_products() if other.name == product), "")
    inherited = load_profile(base).figures if base else {}
    figures = load_profile(product).figures
    return {p: figure for p, figure in figures.items() if figure.fitted_on and figure != inherited.get(p)}


def ablations(product: str, rows: Sequence[Row | Unusable]) -> Iterator[Ablation]:
    """Yield every fitted figure of a product whose rows are at hand."""
    for path, figure in fitted(product).items():
        own = [row for row in rows if isinstance(row, Row) and row.id.startswith(figure.fitted_on)]
        # Only rows of this figure: over all of them one that matters to a few would drown.
        kept = compare_rows(own).cases
        dropped = compare_rows(own, overrides=((path, figure.without),)).cases
        if kept and dropped:
            told = figure.value, figure.without, figure.fitted_on, len(kept)
            yield Ablation(path, *told, _errors(kept), _errors(dropped))


def _errors(cases: Sequence[Case]) -> tuple[float, float]:
    summary = summarise(cases)
    return summary.median, summary.mean
