"""Tables of measured convolution gradients: what was measured, errors by kind of layer, order of tilings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ascendsim.report.numbers import known
from ascendsim.report.tables import TextTable
from ascendsim.validate.convolution import FEW, pipe_errors, slices
from ascendsim.validate.coverage import DTYPES
from ascendsim.validate.ranking import TOP, ranking_noise, rankings

if TYPE_CHECKING:
    from ascendsim.validate.compare import Case, Summary
    from ascendsim.validate.coverage import Coverage
    from ascendsim.validate.ranking import Ranking
    from ascendsim.validate.run import Validation

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
