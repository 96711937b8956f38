"""Measured against estimated: the record of a validation, and the parts of its page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ascendsim.report.markdown import table_text
from ascendsim.report.validation.answer import answer_line
from ascendsim.report.validation.gradients import (
    COVERED,
    coverage_table,
    covered,
    gradient_record,
    gradient_tables,
    plain,
)
from ascendsim.report.validation.tables import roles_table, rows_table, summary_table, targets_table
from ascendsim.validate.compare import grouped

if TYPE_CHECKING:
    from ascendsim.validate.compare import Case
    from ascendsim.validate.run import Validation

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
NO_CLASS = ": no class of these"
TILINGS = (
    "No source gives the tilings of the other matrix products. On 910B, 910_93 and 910_95 they run as their "
    "operator plans them where its rules are known, elsewhere under this simulator's plan for the measured "
    "number of cores, by which every tile brings both operands. The kernels of the first generation were "
    "often cut worse than that, and neighbouring sizes very differently: there an estimate is a bound from "
    "below. What L2 held is inferred from the source: nothing for the 910's training steps and one sample "
    "(their operands come at the rate of memory), the first operand alone for other steps of networks, all "
    "of it elsewhere unless the source says otherwise."
)


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
