"""Fit figures anew without some rows, and judge those rows by what comes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from ascendsim.profile.records import Figure
from ascendsim.validate.ablation import fitted
from ascendsim.validate.compare import Case, Summary, summarise
from ascendsim.validate.convolution import distinct
from ascendsim.validate.run import Overrides, compare_rows
from ascendsim.validate.schema import Row

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


def figures_on(product: str, rows: Sequence[Row]) -> dict[tuple[str, ...], Figure]:
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


def leave_out(name: str, product: str, held: Sequence[Row], others: Sequence[Row]) -> LeftOut:
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
        _errors(held, values),
        _errors(held, {}),
        _errors(held, none),
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


def _errors(rows: Sequence[Row], values: Mapping[tuple[str, ...], Any]) -> Summary:
    """Return the errors of distinct kernels under some values."""
    return summarise(_kernels(rows, values))


def _distance(rows: Sequence[Row], values: Mapping[tuple[str, ...], Any]) -> float:
    """Return the mean error of distinct kernels: of their times, and of each busy time that was counted.

    The time of a kernel tells of the pipe that binds it alone; a figure of another pipe is in its counter.
    """
    errors = []
    for case in _kernels(rows, values):
        counted = [abs(told / seen - 1) for seen, told in case.counters.values() if seen > 0]
        errors.append(mean([abs(case.error), *counted]))
    return mean(errors)


def _kernels(rows: Sequence[Row], values: Mapping[tuple[str, ...], Any]) -> list[Case]:
    overrides: Overrides = tuple((path, value) for paths, value in values.items() for path in paths)
    return distinct(compare_rows(rows, overrides=overrides).cases)
