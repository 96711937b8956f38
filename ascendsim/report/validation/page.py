"""Measured against estimated: tables, the page of a validation and its scatter plot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ascendsim.report.markdown import table_text
from ascendsim.report.tables import TextTable
from ascendsim.report.validation.answer import answer_line
from ascendsim.report.validation.gradients import (
    COVERED,
    coverage_table,
    covered,
    gradient_record,
    gradient_tables,
    plain,
    rank_and_bounds,
)
from ascendsim.validate.compare import grouped, summarise
from ascendsim.validate.targets import reached

if TYPE_CHECKING:
    from ascendsim.validate.compare import Case, Group, Summary
    from ascendsim.validate.run import Validation

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
UNMEASURED = (
    "No kernel of the 310P, and no convolution backward of the 910_93, was measured in public: nothing here "
    "says how well their cycles are estimated."
)
DEFINITIONS = (
    "error: estimated / measured - 1. median, mean, p95, worst: of its absolute value over the rows of a "
    "group. rank: Spearman's correlation of measured and estimated. bound: rows whose busiest pipe is right, "
    "of those whose source tells it; pipes within 7 % of the busiest count as busiest. A pipe is busy while "
    "an instruction is under way, until its result is visible, as the profiler counts."
)
SUMMARY = ("cases", "rows", "median", "mean", "p95", "worst", "worst row", "rank", "bound")
NO_CLASS = ": no class of these"
TILINGS = (
    "No source gives the tilings of the other matrix products. On the 910B they run in the basic blocks "
    "that counters of its kernels tell, elsewhere under this simulator's plan for the measured number of "
    "cores; every tile brings both operands. The kernels of the first generation were often cut worse than "
    "that, and neighbouring sizes very differently: there an estimate is a bound from below. What L2 held "
    "is inferred from the source: nothing for the 910's training steps and one sample (their operands come "
    "at the rate of memory), the first operand alone for other steps of networks, all of it elsewhere "
    "unless the source says otherwise."
)


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


def reasons(outcome: Validation) -> list[tuple[str, list[str]]]:
    """Return why rows could not be used, most frequent first, with their ids."""
    found: dict[str, list[str]] = {}
    for row in outcome.unusable:
        found.setdefault(row.reason, []).append(row.id)
    return sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))


def reason_lines(outcome: Validation) -> list[str]:
    """Return one line for each reason, with how many rows it holds for and the first of them."""
    lines = []
    for reason, ids in reasons(outcome):
        more = f" and {len(ids) - 3} more" if len(ids) > 3 else ""
        lines.append(f"  {len(ids)}: {reason} ({', '.join(ids[:3])}{more})")
    return lines


def roles_line(cases: Sequence[Case]) -> str:
    """Say how many rows calibrated the model and how many only judge it."""
    roles = [case.used_for for case in cases]
    fitted = roles.count("calibration")
    return (
        f"{len(roles)} comparisons: {fitted} of calibration rows, on which constants of the model were "
        f"fitted, and {len(roles) - fitted} of validation rows, on which none was."
    )


def outcome_record(outcome: Validation) -> dict[str, Any]:
    """Return everything as plain values for JSON."""
    return {
        "groups": [
            {"class": group.kind, "group": group.name, **plain(asdict(group.summary))}
            for group in grouped(outcome.cases)
        ],
        "cases": [
            {
                "id": case.id,
                "class": case.kind,
                "group": case.group,
                "variant": case.variant,
                "unit": case.unit,
                "measured": case.measured,
                "estimated": case.estimated,
                "error": case.error,
                "measured_bound": sorted(case.bounds[0]),
                "estimated_bound": sorted(case.bounds[1]),
                "bound_right": case.bound_right,
                "counters": {pipe: list(pair) for pipe, pair in case.counters.items()},
                "role": case.used_for,
                "note": case.note,
                "source": case.source,
            }
            for case in outcome.cases
        ],
        **gradient_record(outcome),
        "unusable": [{"id": row.id, "reason": row.reason} for row in outcome.unusable],
    }


def quoted_part(outcome: Validation) -> list[str]:
    """Return the part of the page that shows every row of the quoted table."""
    # The page is published: a row whose licence is not told to allow it shows no number.
    groups = grouped([case for case in outcome.cases if case.quote])
    parts = [
        "## Rows that are quoted in the project",
        "Figures of published documents; each row of `ascendsim/validate/quoted.csv` names its own.",
        table_text(summary_table(groups)),
    ]
    for group in groups:
        parts.append(table_text(rows_table(group, every=True)))
        notes = sorted({f"{_stem(case.id)}: {case.note}" for case in group.cases if case.note})
        parts += ["\n".join(f"- {note}" for note in notes)] if notes else []
    if outcome.unusable:
        parts.append("Not compared:\n\n" + "\n".join(f"- {row.id}: {row.reason}" for row in outcome.unusable))
    return parts


def outside_part(outcome: Validation) -> list[str]:
    """Return the part that tells of rows whose source has no licence: statistics only, no measured number."""
    groups = grouped(outcome.cases)
    return [
        "## All rows at hand",
        "Read with `--data`; most sources have no licence, so their numbers stay outside and only what they "
        "say of the model is shown. " + roles_line(outcome.cases),
        answer_line(outcome.cases),
        *coverage_part(outcome),
        table_text(targets_table(outcome.cases)),
        table_text(summary_table(groups)),
        table_text(roles_table(outcome.cases)),
        *gradients_part(outcome.cases),
        TILINGS,
        "![Measured against estimated, all rows](validation.png)",
        *_unusable_part(outcome),
    ]


def coverage_part(outcome: Validation) -> list[str]:
    """Return what was measured of convolutions, which stands above what is said of them."""
    found = covered(outcome)
    return [table_text(coverage_table(found)), COVERED] if found else []


def gradients_part(cases: Sequence[Case]) -> list[str]:
    """Return the tables of gradients by kind of layer and of tilings of one problem."""
    parts = ((table_text(table), text) for table, text in gradient_tables(cases))
    return [part for pair in parts for part in pair if part]


def _unusable_part(outcome: Validation) -> list[str]:
    """Count the rows that were not compared by reason; kernels of other kinds on one line."""
    found = reasons(outcome)
    others = [(reason.removesuffix(NO_CLASS), ids) for reason, ids in found if reason.endswith(NO_CLASS)]
    lines = [f"- {len(ids)}: {reason} ({ids[0]})" for reason, ids in found if not reason.endswith(NO_CLASS)]
    kinds = ", ".join(f"{name} {len(ids)}" for name, ids in others)
    count = sum(len(ids) for _, ids in others)
    parts = [
        f"{len(outcome.unusable)} rows were not compared, by reason, with one of each:",
        "\n".join(lines),
    ]
    if others:
        parts.append(f"{count} more measured what no class here compares: {kinds}.")
    return parts if outcome.unusable else []


def _stem(name: str) -> str:
    return name.rpartition(" ")[0] or name
