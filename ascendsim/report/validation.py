"""Measured against estimated, as tables, pages and plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ascendsim.report.markdown import table_text
from ascendsim.report.tables import TextTable, known
from ascendsim.validate.compare import FEW, grouped, pipe_errors, reached, slices, summarise
from ascendsim.validate.coverage import DTYPES
from ascendsim.validate.run import TOP, ranking_noise, rankings

if TYPE_CHECKING:
    from rich.console import Console

    from ascendsim.validate.compare import Case, Group, Summary
    from ascendsim.validate.coverage import Coverage
    from ascendsim.validate.run import Ranking, Validation


WORDS = {
    "primitives": "single instructions and streams",
    "matmul": "matrix products",
    "convolution": "kernels of convolution gradients",
    "layouts": "changes of layout",
    "calls": "whole calls and sums",
}


def answer_line(cases: Sequence[Case]) -> str:
    """Say the median error of each class that was compared, the largest first; "" where nothing was."""
    found = {kind: [case for case in cases if case.kind == kind] for kind in WORDS}
    medians = {kind: summarise(own).median for kind, own in found.items() if own}
    parts = [
        f"{medians[kind]:.1%} for {WORDS[kind]} ({len(found[kind])})"
        for kind in sorted(medians, key=lambda kind: -medians[kind])
    ]
    if not parts:
        return ""
    return f"Half of the estimates are within so much of what was measured: {', '.join(parts)}."


COVERED = (
    "Distinct kernels, not rows or repeats; +: known only as the sum of all kernels of a call. An empty cell "
    "was never measured: nothing below speaks of it."
)
LAYERS = (
    "Kernels are distinct problems, repeats taken by their median. A layer is of the first kind that fits: "
    f"few channels (at most {FEW} a group on a side), stride 2 (or more), 1x1, 3x3, other kernels. signed: "
    "the median with signs. bound: kernels whose busiest pipe is right, of those with counters, and what "
    "the model says of all."
)
ORDER = (
    "regret: what the tiling that the model takes for the fastest took longer than the fastest one, as "
    f"measured. top {TOP}: share of the {TOP} fastest that are among the model's {TOP}. ratio of two: "
    "how far the estimated ratio of two tilings' times is off; estimates that are closer are not told "
    "apart."
)
_GRADIENT_NAMES = {"grad_input": "dX", "grad_weight": "dW", "forward": "Y"}


def coverage_table(found: Coverage) -> TextTable:
    """Show which kernels were measured, by product, gradient, rank and format."""
    lines: dict[tuple[str, str], dict[str, str]] = {}
    for cell in found.cells:
        calls = f"+{cell.calls}" if cell.calls else ""
        name = f"{cell.gradient}, {cell.rank}-D"
        lines.setdefault((cell.product, name), {})[cell.dtype] = f"{cell.kernels or ''}{calls}"
    # Formats that only some table has come after the usual ones.
    dtypes = list(dict.fromkeys([*DTYPES, *(cell.dtype for cell in found.cells)]))
    rows = tuple((*key, *(counts.get(dtype, "") for dtype in dtypes)) for key, counts in lines.items())
    return TextTable(
        "Measured convolution kernels", ("product", "gradient", *dtypes), frozenset({0, 1}), rows
    )


def slices_table(cases: Sequence[Case]) -> TextTable:
    """Show the errors of gradients by network, gradient and kind of layer."""
    rows = []
    for item in slices(cases):
        s = item.summary
        errors = (f"{s.median:.1%}", f"{s.signed:+.1%}", f"{s.p90:.1%}", f"{s.worst:.1%}")
        said = ", ".join(f"{bound or 'none'} {count}" for bound, count in item.bounds.items())
        gradient = _GRADIENT_NAMES.get(item.gradient, item.gradient)
        rows.append((item.network, gradient, item.layers, str(s.count), *errors, *rank_and_bounds(s), said))
    headings = ("network", "of", "layers", "kernels", "median", "signed", "p90", "worst", "rank")
    return TextTable(
        "Convolution gradients by network and kind of layer",
        (*headings, "bound right", "estimated bounds"),
        frozenset({0, 1, 2, 10}),
        tuple(rows),
    )


def rank_and_bounds(summary: Summary) -> tuple[str, str]:
    """Return the rank correlation and how many bounds are right, as cells; empty where not known."""
    right = f"{summary.bounds_right} of {summary.bounds_told}" if summary.bounds_told else ""
    return known(summary.rank, ".3f"), right


def pipes_table(cases: Sequence[Case]) -> TextTable:
    """Show the errors of the pipes' busy times, of kernels whose source counted them."""
    rows = tuple(
        (
            item.network,
            _GRADIENT_NAMES.get(item.gradient, item.gradient),
            item.pipe,
            str(item.kernels),
            f"{item.median:.1%}",
            f"{item.signed:+.1%}",
        )
        for item in pipe_errors(cases)
    )
    headings = ("network", "of", "pipe", "kernels", "median", "signed")
    return TextTable("Busy times of the pipes of gradients", headings, frozenset({0, 1, 2}), rows)


def rankings_table(found: Sequence[Ranking]) -> TextTable:
    """Show whether the tilings of one problem come in the right order."""
    rows = tuple(
        (
            item.problem,
            str(len(item.ids)),
            f"{item.pairs_right} of {item.pairs}",
            known(item.rank, ".3f"),
            item.favourite,
            f"{item.regret:.1%}",
            known(item.top3, ".0%"),
        )
        for item in found
    )
    headings = ("problem", "tilings", "pairs right", "rank", "the model's favourite", "regret", f"top {TOP}")
    return TextTable("One problem under several tilings", headings, frozenset({0, 4}), rows)


def noise_line(found: Sequence[Ranking]) -> str:
    """Say how far the ratio of two tilings' times is off."""
    noise = ranking_noise(found)
    assert noise is not None
    return (
        f"Ratio of two tilings' times, over {noise.pairs} pairs: {noise.median:.1%} off in the median, "
        f"{noise.p90:.1%} at the 90th percentile."
    )


def gradient_tables(cases: Sequence[Case]) -> list[tuple[TextTable, str]]:
    """Return the tables of gradients and of tilings that have rows, each with what explains it."""
    found = rankings(cases)
    tables = [(slices_table(cases), LAYERS), (pipes_table(cases), "")]
    if found:
        tables.append((rankings_table(found), f"{ORDER} {noise_line(found)}"))
    return [(table, text) for table, text in tables if table.rows]


def covered(outcome: Validation) -> Coverage | None:
    """Return what the whole table has of convolutions; None if none of its rows is a gradient."""
    found = outcome.covered
    return found if any(cell.kernels or cell.calls for cell in found.cells) else None


def gradient_record(outcome: Validation) -> dict[str, Any]:
    """Return coverage, errors by kind of layer, pipes and rankings as plain values for JSON."""
    cases = outcome.cases
    shown, found = covered(outcome), rankings(cases)
    noise = ranking_noise(found)
    return {
        "coverage": [cell._asdict() for cell in shown.cells] if shown else [],
        "convolution": [
            {
                "network": item.network,
                "gradient": item.gradient,
                "layers": item.layers,
                **plain(vars(item.summary)),
                "estimated_bounds": dict(item.bounds),
            }
            for item in slices(cases)
        ],
        "pipes": [item._asdict() for item in pipe_errors(cases)],
        "rankings": [plain(item._asdict()) for item in found],
        "ranking_noise": noise._asdict() if noise else None,
    }


def plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values that JSON has: no NaN."""
    return {key: None if value != value else value for key, value in values.items()}


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


def print_validation(outcome: Validation, *, every: bool = False, console: Console | None = None) -> None:
    """Print the answer, the statistics and what they mean, then the rows, and what was not compared."""
    from rich.text import Text

    from ascendsim.report.terminal import make_console, print_table

    out = console or make_console()
    answer = answer_line(outcome.cases)
    if answer:
        out.print(Text(answer))
    shown = covered(outcome)
    if shown:
        print_table(out, coverage_table(shown))
        out.print(Text(COVERED))
    groups = grouped(outcome.cases)
    if groups:
        print_table(out, summary_table(groups))
        out.print(Text(roles_line(outcome.cases)))
    for table, text in gradient_tables(outcome.cases):
        print_table(out, table)
        out.print(Text(text))
    out.print()
    out.print(Text(DEFINITIONS))
    out.print(Text(UNMEASURED))
    for group in groups:
        print_table(out, rows_table(group, every=every))
    if outcome.unusable:
        out.print(Text(f"\nNot compared: {len(outcome.unusable)} rows", style="bold"))
        for line in reason_lines(outcome):
            out.print(Text(line))
