"""The figures that were fitted on measured rows, and what happens to the errors without each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ascendsim.profile import list_products, load_profile
from ascendsim.profile.records import Figure
from ascendsim.validate.compare import Case, summarise
from ascendsim.validate.reading import Unusable
from ascendsim.validate.run import compare_rows
from ascendsim.validate.schema import Row

# What tells two measurements of one kernel apart.
REPEATED: dict[str, Any] = {
    "id": "",
    "source": "",
    "measured_us": 1.0,
    "inferred": "",
    "role": "judge",
    "group": "",
}
REPEATED |= dict.fromkeys(("m_us", "mte1_us", "mte2_us", "fix_us", "v_us", "mte3_us"))


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
    """Yield for every fitted figure of a product what it does to the product's kernels that it did not see.

    A kernel that was measured several times counts once. Instructions by themselves are left out: they were
    measured to fit figures, and judge each other only. So are sums of whole calls.
    """
    variants = next(item for item in list_products() if item.name == product).variants
    own = {
        replace(row, **REPEATED): row
        for row in reversed(rows)
        if isinstance(row, Row) and row.variant in variants and row.kind not in ("primitives", "calls")
    }
    kernels = list(own.values())
    kept = {case.id: case for case in compare_rows(kernels).cases}
    figures = fitted(product)
    tables: dict[str, dict[str, Any]] = {}
    for path, figure in figures.items():
        tables.setdefault(_table(path), {})[path] = figure.without
    # What no figure of a table moves together, none of them moves: most move few kernels or none.
    moved = {table: _moved(kernels, kept, without) for table, without in tables.items()}
    for path, figure in figures.items():
        unseen = [row for row in kernels if row.id in kept and not row.id.startswith(figure.fitted_on)]
        some = [row for row in unseen if row.id in moved[_table(path)]]
        changed = _changed(some, kept, {path: figure.without})
        if changed:
            before = [kept[case.id] for case in changed]
            yield Effect(path, len(unseen), len(changed), _errors(before), _errors(changed))
        else:
            yield Effect(path, len(unseen), 0, (0.0, 0.0), (0.0, 0.0))


def _table(path: str) -> str:
    """Return the table of a product's file that a figure stands in; paths have one each."""
    first, _, rest = path.partition(".")
    return f"{first}.{rest.partition('.')[0]}" if first == "paths" else first


def _changed(rows: Sequence[Row], kept: Mapping[str, Case], without: Mapping[str, Any]) -> list[Case]:
    """Return the cases of rows whose estimate is another one without some figures."""
    cases = compare_rows(rows, overrides=tuple(without.items())).cases
    return [case for case in cases if case.estimated != kept[case.id].estimated]


def _moved(rows: Sequence[Row], kept: Mapping[str, Case], without: Mapping[str, Any]) -> set[str]:
    """Return the rows that some figures together may move: also those that cannot run without them all."""
    outcome = compare_rows([row for row in rows if row.id in kept], overrides=tuple(without.items()))
    still = {case.id for case in outcome.cases if case.estimated == kept[case.id].estimated}
    return set(kept) - still


def _errors(cases: Sequence[Case]) -> tuple[float, float]:
    summary = summarise(cases)
    return summary.median, summary.mean
