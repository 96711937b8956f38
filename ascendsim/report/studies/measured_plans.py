"""Plans that a device has measured: the sentence, the table, plain values."""

from __future__ import annotations

from math import isnan
from statistics import median
from typing import Any

from ascendsim.report.numbers import microseconds
from ascendsim.report.tables import TextTable
from ascendsim.validate.plans.measured import MeasuredRanking


def measured_sentence(found: MeasuredRanking, where: str) -> str:
    """Say which plan is the fastest as measured, and what following the model would have cost."""
    best, count = found.plans[0], len(found.plans)
    lead = f"{where}: of {count} plans that were measured, {best.name} is the fastest"
    if found.favourite == best:
        return f"{lead} ({microseconds(best.measured_us)} us), as the model says."
    return (
        f"{lead} ({microseconds(best.measured_us)} us); the model's favourite, {found.favourite.name}, takes "
        f"{100 * found.regret:.1f} % more."
    )


def measured_table(found: MeasuredRanking, start: str) -> TextTable:
    """Show the plans in the order of what was measured, with the model's place and error of each."""
    by_model = sorted(found.plans, key=lambda plan: (plan.estimated_us, -plan.measured_us))
    rows = [
        (
            str(rank),
            str(by_model.index(plan) + 1),
            plan.name,
            microseconds(plan.measured_us),
            microseconds(plan.estimated_us),
            f"{100 * plan.error:+.1f} %",
        )
        for rank, plan in enumerate(found.plans, start=1)
    ]
    headings = ("measured", "model", "plan", "measured us", f"estimated us, L2 {start}", "error")
    return TextTable("Plans by what was measured (places from 1)", headings, frozenset({2}), tuple(rows))


def measured_notes(found: MeasuredRanking) -> list[str]:
    """Say how far the model is off on these plans."""
    errors = [plan.error for plan in found.plans]
    said = [
        f"The model's error on these plans: median {100 * median(errors):+.1f} %, from "
        f"{100 * min(errors):+.1f} to {100 * max(errors):+.1f} %. Regret of its favourite: "
        f"{100 * found.regret:.1f} %."
    ]
    if not isnan(found.noise):
        said.append(
            f"Ratios of two plans' times are off by {100 * found.noise:.1f} % in the median: closer ones it "
            "does not tell apart."
        )
    few = "Fewer than three plans, or equal times, have no rank correlation."
    rank = found.rank
    said.append(few if isnan(rank) else f"Spearman's rank correlation of both times: {rank:.2f}.")
    return said


def measured_record(found: MeasuredRanking, where: str) -> dict[str, Any]:
    """Return the ranking as plain values; what is not defined is None."""
    return {
        "answer": measured_sentence(found, where),
        "rank_correlation": None if isnan(found.rank) else found.rank,
        "favourite": found.favourite.name,
        "regret": found.regret,
        "noise": None if isnan(found.noise) else found.noise,
        "plans": [{**plan._asdict(), "error": plan.error} for plan in found.plans],
    }
