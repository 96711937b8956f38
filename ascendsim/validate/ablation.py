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


@dataclass(frozen=True)
class Effect:
    """What a constant does to rows that it was not fitted on.

    count     rows of other kernels of the product
    moved     those whose estimate it changes
    kept      median and mean error of the moved rows with it
    dropped   the same without it
    """

    path: str
    count: int
    moved: int
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


def effects(product: str, rows: Sequence[Row | Unusable]) -> Iterator[Effect]:
    """Yield for every fitted figure of a product what it does to the product's rows that it did not see.

    Instructions by themselves are left out: they were measured to fit figures, and judge each other only.
    """
    base = next(item for item in list_products() if item.name == product)
    usable = [row for row in rows if isinstance(row, Row)]
    own = [row for row in usable if row.variant in base.variants and row.kind != "primitives"]
    kept = {case.id: case for case in compare_rows(own).cases}
    for path, figure in fitted(product).items():
        unseen = [row for row in own if row.id in kept and not row.id.startswith(figure.fitted_on)]
        changed = [
            case
            for case in compare_rows(unseen, overrides=((path, figure.without),)).cases
            if case.estimated != kept[case.id].estimated
        ]
        if not changed:
            yield Effect(path, len(unseen), 0, (0.0, 0.0), (0.0, 0.0))
            continue
        before = [kept[case.id] for case in changed]
        yield Effect(path, len(unseen), len(changed), _errors(before), _errors(changed))


def _errors(cases: Sequence[Case]) -> tuple[float, float]:
    summary = summarise(cases)
    return summary.median, summary.mean
