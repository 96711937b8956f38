"""The figures that were fitted on measured rows, and what happens to the errors without each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import Any

from ascendsim.profile import list_products, load_profile
from ascendsim.profile.records import Figure
from ascendsim.validate.calibrate import REPEATED
from ascendsim.validate.compare import MeasuredCase, Summary, distinct, summarise
from ascendsim.validate.run import Overrides, compare_rows
from ascendsim.validate.schema import MeasuredRow, Unusable


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
    """The effect of a constant on rows that it was not fitted on.

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


def ablations(product: str, rows: Sequence[MeasuredRow | Unusable]) -> Iterator[Ablation]:
    """Yield every fitted figure of a product whose rows are at hand."""
    for path, figure in fitted(product).items():
        own = [row for row in rows if isinstance(row, MeasuredRow) and row.id.startswith(figure.fitted_on)]
        # Only rows of this figure: over all of them one that matters to a few would drown.
        kept = compare_rows(own).cases
        dropped = compare_rows(own, overrides=((path, figure.without),)).cases
        if kept and dropped:
            told = figure.value, figure.without, figure.fitted_on, len(kept)
            yield Ablation(path, *told, _errors(kept), _errors(dropped))


def effects(product: str, rows: Sequence[MeasuredRow | Unusable]) -> Iterator[Effect]:
    """Yield the effect of every fitted figure of a product on the kernels that it was not fitted on.

    A kernel that was measured several times counts once. Instructions by themselves are left out: they were
    measured to fit figures, and judge each other only. So are sums of whole calls.
    """
    variants = next(item for item in list_products() if item.name == product).variants
    own = {
        replace(row, **REPEATED): row
        for row in reversed(rows)
        if isinstance(row, MeasuredRow)
        and row.variant in variants
        and row.kind not in ("primitives", "calls")
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


def _changed(
    rows: Sequence[MeasuredRow], kept: Mapping[str, MeasuredCase], without: Mapping[str, Any]
) -> list[MeasuredCase]:
    """Return the cases of rows whose estimate is another one without some figures."""
    cases = compare_rows(rows, overrides=tuple(without.items())).cases
    return [case for case in cases if case.estimated != kept[case.id].estimated]


def _moved(
    rows: Sequence[MeasuredRow], kept: Mapping[str, MeasuredCase], without: Mapping[str, Any]
) -> set[str]:
    """Return the rows that some figures together may move: also those that cannot run without them all."""
    outcome = compare_rows([row for row in rows if row.id in kept], overrides=tuple(without.items()))
    still = {case.id for case in outcome.cases if case.estimated == kept[case.id].estimated}
    return set(kept) - still


def _errors(cases: Sequence[MeasuredCase]) -> tuple[float, float]:
    summary = summarise(cases)
    return summary.median, summary.mean


# Values that are tried of a figure, from one end of its range to the other, beside its own and none at all.
TRIED = 7
# Each figure is fitted with the others as they stand, all of them so many times.
ROUNDS = 2
LAUNCH = "launch."


@dataclass(frozen=True)
class LeftOut:
    """The errors on rows that took no part in a fit.

    values      figure -> value fitted without these rows; figures that have no other rows stand without
    fitted      the errors under these values
    committed   the errors under the figures as they are, which saw the rows
    unfitted    the errors with every one of the figures without its mechanism
    """

    name: str
    values: Mapping[str, Any]
    fitted: Summary
    committed: Summary
    unfitted: Summary


def figures_on(product: str, rows: Sequence[MeasuredRow]) -> dict[tuple[str, ...], Figure]:
    """Return the figures of a product that were fitted on any of some rows, those of one fit together.

    Without those of the launch: they are read off the difference of two columns of a profile, task and core
    time, and not off what the model makes of a row.
    """
    found: dict[tuple[Any, ...], list[tuple[str, Figure]]] = {}
    for path, figure in fitted(product).items():
        if not path.startswith(LAUNCH) and any(row.id.startswith(figure.fitted_on) for row in rows):
            # One number that two paths share was fitted as one.
            together = figure.value, figure.without, figure.source, figure.fitted_on
            found.setdefault(together, []).append((path, figure))
    return {tuple(path for path, _ in some): some[0][1] for some in found.values()}


def leave_out(name: str, product: str, held: Sequence[MeasuredRow], others: Sequence[MeasuredRow]) -> LeftOut:
    """Fit the figures that saw `held` anew on those of `others` that they name, and judge `held` by them.

    Figures that did not see these rows stay as they are.

    Raises   ValueError if a row is on both sides
    """
    both = {row.id for row in held} & {row.id for row in others}
    if both:
        raise ValueError(f"{sorted(both)[0]} is both held out and fitted on; take each row on one side")
    figures = figures_on(product, held)
    values = {paths: figure.without for paths, figure in figures.items()}
    own = {
        paths: [row for row in others if row.id.startswith(figure.fitted_on)]
        for paths, figure in figures.items()
    }
    for _ in range(ROUNDS):
        for paths, figure in figures.items():
            if own[paths]:
                values[paths] = min(
                    candidates(figure),
                    key=lambda value: _distance(own[paths], values | {paths: value}),
                )
    none = {paths: figure.without for paths, figure in figures.items()}
    return LeftOut(
        name,
        {path: value for paths, value in values.items() for path in paths},
        _errors_of_rows(held, values),
        _errors_of_rows(held, {}),
        _errors_of_rows(held, none),
    )


def candidates(figure: Figure) -> list[Any]:
    """Return the values that are tried: even steps over the range, and the one without the mechanism.

    The figure's own value is none of them, unless a step falls on it: a fit must find it by itself.
    """
    low, high = figure.range if isinstance(figure.range, list | tuple) else (figure.without, figure.value)
    low, high = min(low, high), max(low, high)
    steps = [low + (high - low) * step / (TRIED - 1) for step in range(TRIED)]
    whole = all(isinstance(end, int) for end in (low, high, figure.value))
    return list(dict.fromkeys([figure.without, *(round(step) if whole else step for step in steps)]))


def _errors_of_rows(rows: Sequence[MeasuredRow], values: Mapping[tuple[str, ...], Any]) -> Summary:
    """Return the errors of distinct kernels under some values."""
    return summarise(_kernels(rows, values))


def _distance(rows: Sequence[MeasuredRow], values: Mapping[tuple[str, ...], Any]) -> float:
    """Return the mean error of distinct kernels: of their times, and of each busy time that was counted.

    The time of a kernel depends on the pipe that binds it alone; other pipes show in their counters.
    """
    errors = []
    for case in _kernels(rows, values):
        counted = [abs(told / seen - 1) for seen, told in case.counters.values() if seen > 0]
        errors.append(mean([abs(case.error), *counted]))
    return mean(errors)


def _kernels(rows: Sequence[MeasuredRow], values: Mapping[tuple[str, ...], Any]) -> list[MeasuredCase]:
    overrides: Overrides = tuple((path, value) for paths, value in values.items() for path in paths)
    return distinct(compare_rows(rows, overrides=overrides).cases)
