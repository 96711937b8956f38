"""Measured against estimated, as tables, pages and plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from ascendsim.profile import list_products, load_profile
from ascendsim.report.markdown import table_text
from ascendsim.studies.table import Table, form, numbers, words
from ascendsim.validate.compare import FEW, grouped, pipe_errors, reached, slices, summarise
from ascendsim.validate.coverage import DTYPES, known_coverage
from ascendsim.validate.run import NEAR, TOP, noise_by_distance, rankings

if TYPE_CHECKING:
    from rich.console import Console

    from ascendsim.validate.compare import Group, MeasuredCase, Summary
    from ascendsim.validate.coverage import Coverage
    from ascendsim.validate.run import Ranking, Validation


KINDS = {
    "primitives": "single instructions and streams",
    "matmul": "matrix products",
    "convolution": "kernels of convolution gradients",
    "layouts": "changes of layout",
    "calls": "whole calls and sums",
}


def answer_line(cases: Sequence[MeasuredCase]) -> str:
    """Say the median error of each class that was compared, the largest first; "" where nothing was."""
    found = {kind: [case for case in cases if case.kind == kind] for kind in KINDS}
    medians = {kind: summarise(own).median for kind, own in found.items() if own}
    parts = [
        f"{medians[kind]:.1%} for {KINDS[kind]} ({len(found[kind])})"
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
    f"measured. top {TOP}: share of the {TOP} fastest that are among the model's {TOP}."
)
PAIRED = (
    "measured, estimated: how many times as long the slower of two tilings takes, and how far the estimated "
    f"ratio is off. Pairs are near below {NEAR:g} as measured. Estimates that are closer than the 90th "
    "percentile are not distinguishable: the margin of studies."
)


def coverage_table(found: Coverage) -> Table:
    """Show which kernels were measured, by product, gradient, rank and format."""
    lines: dict[tuple[str, str], dict[str, str]] = {}
    for cell in found.cells:
        calls = f"+{cell.calls}" if cell.calls else ""
        name = f"{cell.gradient}, {cell.rank}-D"
        lines.setdefault((cell.product, name), {})[cell.dtype] = f"{cell.kernels or ''}{calls}"
    # Formats that only some table has come after the usual ones.
    dtypes = list(dict.fromkeys([*DTYPES, *(cell.dtype for cell in found.cells)]))
    rows = tuple((*key, *(counts.get(dtype) for dtype in dtypes)) for key, counts in lines.items())
    columns = words("product"), words("gradient"), *map(numbers, dtypes)
    return Table("Measured convolution kernels", columns, rows)


def _gradient(name: str) -> str:
    return {"grad_input": "dX", "grad_weight": "dW", "forward": "Y"}.get(name, name)


def bounds_right(summary: Summary) -> str:
    """Say how many bounds are right; nothing where no source tells them."""
    return f"{summary.bounds_right} of {summary.bounds_told}" if summary.bounds_told else ""


def _counted(bounds: Mapping[str, int]) -> str:
    return ", ".join(f"{bound or 'none'} {count}" for bound, count in bounds.items())


# An error, which is a share of 1; with its sign; and a count, whose thousands are not apart.
error, signed = partial(numbers, show=form(".1%")), partial(numbers, show=form("+.1%"))
count = partial(numbers, show=str)
NETWORK = words("network"), words("of", "gradient", show=_gradient)
RANKS = numbers("rank", "summary.rank", form(".3f"))
SLICES = (
    *(*NETWORK, words("layers"), count("kernels", "summary.count"), error("median", "summary.median")),
    *(signed("signed", "summary.signed"), error("p90", "summary.p90"), error("worst", "summary.worst")),
    *(RANKS, numbers("bound right", "summary", bounds_right)),
    words("estimated bounds", "bounds", show=_counted),
)
PIPES = (*NETWORK, words("pipe"), count("kernels"), error("median"), signed("signed"))
RANKINGS = (
    *(words("problem"), numbers("tilings", "ids", lambda ids: str(len(ids))), numbers("pairs right", "told")),
    *(numbers("rank", show=form(".3f")), words("the model's favourite", "favourite"), error("regret")),
    numbers(f"top {TOP}", "top3", form(".0%")),
)
NOISES = words("pairs of tilings", "kind"), count("pairs"), count("right"), error("median"), error("p90")
_twice = partial(numbers, show=form(".3f"))
PAIRS = (
    *(
        words("tilings", "ids", show=" / ".join),
        _twice("measured"),
        _twice("estimated"),
        error("off", "error"),
    ),
    words("order", "right", show=lambda right: "right" if right else "wrong"),
)


def slices_table(cases: Sequence[MeasuredCase]) -> Table:
    """Show the errors of gradients by network, gradient and kind of layer."""
    return Table.of("Convolution gradients by network and kind of layer", SLICES, slices(cases))


def pipes_table(cases: Sequence[MeasuredCase]) -> Table:
    """Show the errors of the pipes' busy times, of kernels whose source counted them."""
    return Table.of("Busy times of the pipes of gradients", PIPES, pipe_errors(cases))


def rankings_table(found: Sequence[Ranking]) -> Table:
    """Show whether the tilings of one problem come in the right order."""
    rows = (
        item._asdict() | {"told": f"{sum(pair.right for pair in item.compared)} of {len(item.compared)}"}
        for item in found
    )
    return Table.of("One problem under several tilings", RANKINGS, rows)


def noise_table(found: Sequence[Ranking]) -> Table:
    """Show how far the ratios of two tilings' times are off, near and far pairs apart."""
    rows = ({"kind": kind, **noise._asdict()} for kind, noise in noise_by_distance(found) if noise)
    return Table.of("Ratios of two tilings' times", NOISES, rows)


def pairs_table(found: Sequence[Ranking]) -> Table:
    """Show every pair of tilings, the nearest first."""
    pairs = sorted((pair for item in found for pair in item.compared), key=lambda pair: pair.measured)
    return Table.of("Two tilings of one problem", PAIRS, pairs)


def gradient_tables(cases: Sequence[MeasuredCase]) -> list[tuple[Table, str]]:
    """Return the tables of gradients and of tilings that have rows, each with what explains it."""
    found = rankings(cases)
    tables = [(slices_table(cases), LAYERS), (pipes_table(cases), "")]
    if found:
        tables += [(rankings_table(found), ORDER), (noise_table(found), PAIRED)]
    return [(table, text) for table, text in tables if table.rows]


def covered(outcome: Validation) -> Coverage | None:
    """Return the coverage of convolutions by the whole table; None if none of its rows is a gradient."""
    found = outcome.covered
    return found if any(cell.kernels or cell.calls for cell in found.cells) else None


def gradient_record(outcome: Validation) -> dict[str, Any]:
    """Return coverage, errors by kind of layer, pipes and rankings as plain values for JSON."""
    cases = outcome.cases
    shown, found = covered(outcome), rankings(cases)
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
        "rankings": [plain(item._asdict()) | {"compared": pairs_table([item]).records()} for item in found],
        "ranking_noise": {kind: noise and noise._asdict() for kind, noise in noise_by_distance(found)},
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
SUMMARY = (
    *(words("cases", "name"), count("rows", "summary.count"), error("median", "summary.median")),
    *(error("mean", "summary.mean"), error("p95", "summary.p95"), error("worst", "summary.worst")),
    *(words("worst row", "summary.worst_id"), RANKS, numbers("bound", "summary", bounds_right)),
)


def summary_table(groups: Sequence[Group]) -> Table:
    """Show the statistics of every group, and of every class as a whole."""
    rows = []
    for kind, title in TITLES.items():
        own = [group for group in groups if group.kind == kind]
        rows += [{"name": f"{title}: {group.name}", "summary": group.summary} for group in own]
        if len(own) > 1:
            whole = summarise([case for group in own for case in group.cases])
            rows.append({"name": f"{title}, all", "summary": whole})
    return Table.of("Errors by class", SUMMARY, rows)


def number(value: float) -> str:
    """Print a measurement with as many digits as tell something."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


CASES = (
    *(words("row", "id"), words("on", "variant"), words("used for", "used_for"), words("unit")),
    *(numbers("measured", show=number), numbers("estimated", show=number)),
    signed("error"),
)


def rows_table(group: Group, *, every: bool = False) -> Table:
    """Show the rows of a group, or the worst of a large one."""
    shown: Sequence[MeasuredCase] = group.cases
    title = f"{TITLES[group.kind]}: {group.name}"
    if len(shown) > MOST_ROWS and not every:
        shown = sorted(shown, key=lambda case: -abs(case.error))[:WORST_ROWS]
        title += f", the {WORST_ROWS} worst of {len(group.cases)}"
    table = Table.of(title, CASES, shown)
    if not any(case.bounds[1] for case in shown):
        return table
    told = any(case.bound_right is not None for case in shown)
    values = tuple((*row, _bound(case, told)) for row, case in zip(table.values, shown, strict=True))
    heading = words("bound by" if told else "estimated bound")
    return replace(table, columns=(*table.columns, heading), values=values)


def _bound(case: MeasuredCase, told: bool) -> str:
    """Name the estimated bound, and the measured one where it is another; `told`: other rows show one."""
    measured, estimated = (" ".join(sorted(bound)) for bound in case.bounds)
    if not told or not estimated or case.bound_right:
        return estimated
    return f"{estimated}, measured {measured}" if measured else f"{estimated}, not measured"


_STATISTICS = {"p90": "90th percentile", "p95": "95th percentile", "bounds": "wrong bounds"}
AIMS = (
    words("cases", "target.name"),
    words("of the errors", "target.statistic", show=lambda name: _STATISTICS.get(name) or str(name)),
    *(count("rows", "count"), numbers("aim", "target.limit", form(".0%")), error("reached", "value")),
    words("kept", show=lambda kept: "yes" if kept else "no"),
)


def targets_table(cases: Sequence[MeasuredCase]) -> Table:
    """Show what was aimed at and what is reached."""
    return Table.of("Aims", AIMS, reached(cases))


def roles_table(cases: Sequence[MeasuredCase]) -> Table:
    """Show the statistics of calibration rows and of validation rows of every class."""
    rows = [
        {"name": f"{title}: {role} rows", "summary": summarise(own)}
        for kind, title in TITLES.items()
        for role in ("calibration", "validation")
        if (own := [case for case in cases if case.kind == kind and case.used_for == role])
    ]
    return Table.of("Rows that constants were fitted on, and all others", SUMMARY, rows)


@lru_cache(maxsize=1)
def unmeasured() -> str:
    """Say of which products no convolution backward was measured at all, and what is known of each."""
    met = {cell.product for cell in known_coverage().cells}
    names = [product.name for product in list_products() if product.name not in met]
    told = ". ".join(f"{name}: {load_profile(name).evidence}" for name in names)
    return f"Of some products no kernel or call of convolution backward was measured in public. {told}."


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


def roles_line(cases: Sequence[MeasuredCase]) -> str:
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
    # The page is published: a row without a licence that allows it shows no number.
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
    paired = pairs_table(rankings([case for case in outcome.cases if case.quote]))
    parts += [table_text(paired)] if paired.rows else []
    if outcome.unusable:
        parts.append("Not compared:\n\n" + "\n".join(f"- {row.id}: {row.reason}" for row in outcome.unusable))
    return parts


def outside_part(outcome: Validation) -> list[str]:
    """Return the part on rows whose source has no licence: statistics only, no measured number."""
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
    """Return the counts of measured convolutions, which stand above the statements about them."""
    found = covered(outcome)
    return [table_text(coverage_table(found)), COVERED] if found else []


def gradients_part(cases: Sequence[MeasuredCase]) -> list[str]:
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
    paired = pairs_table(rankings(outcome.cases))
    for table, text in (*gradient_tables(outcome.cases), *(((paired, ""),) if paired.rows else ())):
        print_table(out, table)
        out.print(Text(text))
    out.print()
    out.print(Text(DEFINITIONS))
    out.print(Text(unmeasured()))
    for group in groups:
        print_table(out, rows_table(group, every=every))
    if outcome.unusable:
        out.print(Text(f"\nNot compared: {len(outcome.unusable)} rows", style="bold"))
        for line in reason_lines(outcome):
            out.print(Text(line))
