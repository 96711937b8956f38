"""Tables of measured against estimated: errors by class, their rows, aims, and what rows are used for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ascendsim.report.tables import TextTable
from ascendsim.report.validation.gradients import rank_and_bounds
from ascendsim.validate.compare import summarise
from ascendsim.validate.targets import reached

if TYPE_CHECKING:
    from ascendsim.validate.compare import Case, Group, Summary

# Of a group with more rows than this the ones with the largest errors are listed.
MOST_ROWS = 60
WORST_ROWS = 10
TITLES = {
    "primitives": "Primitives",
    "matmul": "Matrix products",
    "convolution": "Convolution gradients",
    "layouts": "Changes of layout",
    "calls": "Calls and sums",
}
SUMMARY = ("cases", "rows", "median", "mean", "p95", "worst", "worst row", "rank", "bound")


def summary_table(groups: Sequence[Group]) -> TextTable:
    """Show the statistics of every group, and of every class as a whole."""
    rows = []
    for kind, title in TITLES.items():
        own = [group for group in groups if group.kind == kind]
        if not own:
            continue
        rows += [_summary_row(f"{title}: {group.name}", group.summary) for group in own]
        if len(own) > 1:
            rows.append(
                _summary_row(f"{title}, all", summarise([case for group in own for case in group.cases]))
            )
    return TextTable("Errors by class", SUMMARY, frozenset({0, 6}), tuple(rows))


def _summary_row(name: str, summary: Summary) -> tuple[str, ...]:
    errors = (summary.median, summary.mean, summary.p95, summary.worst)
    shares = (f"{e:.1%}" for e in errors)
    return (name, str(summary.count), *shares, summary.worst_id, *rank_and_bounds(summary))


def rows_table(group: Group, *, every: bool = False) -> TextTable:
    """Show the rows of a group, or the worst of a large one."""
    shown: Sequence[Case] = group.cases
    title = f"{TITLES[group.kind]}: {group.name}"
    if len(shown) > MOST_ROWS and not every:
        shown = sorted(shown, key=lambda case: -abs(case.error))[:WORST_ROWS]
        title += f", the {WORST_ROWS} worst of {len(group.cases)}"
    headings: tuple[str, ...] = ("row", "on", "used for", "unit", "measured", "estimated", "error")
    rows = [_case_row(case) for case in shown]
    if any(case.bounds[1] for case in shown):
        told = any(case.bound_right is not None for case in shown)
        headings += ("bound by" if told else "estimated bound",)
        rows = [(*row, _bound(case, told)) for row, case in zip(rows, shown, strict=True)]
    return TextTable(title, headings, frozenset({0, 1, 2, 3, 7}), tuple(rows))


def _case_row(case: Case) -> tuple[str, ...]:
    """Return the cells of one case but for its bound."""
    return (
        case.id,
        case.variant,
        case.used_for,
        case.unit,
        number(case.measured),
        number(case.estimated),
        f"{case.error:+.1%}",
    )


def _bound(case: Case, told: bool) -> str:
    """Name the estimated bound, and the measured one where it is another; `told`: other rows have one."""
    measured, estimated = (" ".join(sorted(bound)) for bound in case.bounds)
    if not told or not estimated or case.bound_right:
        return estimated
    return f"{estimated}, measured {measured}" if measured else f"{estimated}, not measured"


def targets_table(cases: Sequence[Case]) -> TextTable:
    """Show what was aimed at and what is reached."""
    words = {"p90": "90th percentile", "p95": "95th percentile", "bounds": "wrong bounds"}
    rows = tuple(
        (
            item.target.name,
            words.get(item.target.statistic, item.target.statistic),
            str(item.count),
            f"{item.target.limit:.0%}",
            f"{item.value:.1%}",
            "yes" if item.kept else "no",
        )
        for item in reached(cases)
    )
    headings = ("cases", "of the errors", "rows", "aim", "reached", "kept")
    return TextTable("Aims", headings, frozenset({0, 1, 5}), rows)


def roles_table(cases: Sequence[Case]) -> TextTable:
    """Show the statistics of calibration rows and of validation rows of every class."""
    rows = []
    for kind, title in TITLES.items():
        for role in ("calibration", "validation"):
            own = [case for case in cases if case.kind == kind and case.used_for == role]
            if own:
                rows.append(_summary_row(f"{title}: {role} rows", summarise(own)))
    return TextTable(
        "Rows that constants were fitted on, and all others", SUMMARY, frozenset({0, 6}), tuple(rows)
    )


def number(value: float) -> str:
    """Print a measurement with as many digits as tell something."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
