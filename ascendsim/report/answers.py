"""Print what the interface answered to calls, product by product and rule set by rule set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console

from ascendsim.report.tables import Entry
from ascendsim.report.terminal import make_console, print_line, print_table, print_text
from ascendsim.studies.identify.records import Agreeing, Identification
from ascendsim.studies.table import text_table


def print_answers(
    answers: Sequence[Sequence[Entry]],
    titles: Mapping[str, str],
    left_out: str,
    console: Console | None = None,
) -> None:
    """Print a table for each call, then what the rule sets are.

    answers   by call: one entry for each product and rule set that was asked
    titles    of the rule sets, by name
    left_out  the products that were not asked; "" if there are none, or the user chose
    """
    out = console or make_console()
    headings = ("product", "rules", "status", "answer")
    for own in answers:
        expected = "" if own[0]["expected"] is None else f", expected {own[0]['expected']}"
        print_line(f"{own[0]['call']}{expected}", out)
        cells = tuple((row["product"], row["rules"], _status(row), _detail(row)) for row in own)
        print_table(out, text_table("", headings, frozenset({0, 1, 3}), cells))
        out.print()
    for name, title in titles.items():
        print_text(out, f"Rules {name}: {title}.")
    if {"documented", "shipped"} <= set(titles):
        print_text(out, "Where they differ, documented is what is promised and shipped what happens.")
    if left_out:
        print_text(out, f"Left out, without the operator: {left_out} (--product asks them).")


def _status(row: Entry) -> str:
    # The mark is for those who wrote down what they expect; to all others a refusal is an answer like others.
    mark = "" if row["expected"] is None or row["as_expected"] else " (!)"
    return f"{row['status']}{mark}"


def _detail(row: Entry) -> str:
    """Say in words what an answer means."""
    if row["status"]:
        return f"{row['name']}, check {row['check']}: {row['reason']}"
    how = "empty, writes zeros" if row["empty"] else f"computes in {row['compute_dtype']}"
    notes = "".join(f"; warning: {warning}" for warning in row["warnings"])
    return f"accepted, {how}, workspace {row['workspace_bytes']:,} bytes{notes}"


def identification_lines(found: Identification, depth: int) -> Iterator[str]:
    """Yield the findings of the answers in one format, a line each.

    depth   products of one sum: what a kernel takes in one Mmad if it takes all
    """
    yield f"{found.format} ({', '.join(found.routes)}): {len(found.left)} of {found.candidates} models left"
    for route, reading in found.readings.items():
        yield f"  {route} reads float32 {reading}"
    for agreeing in found.left:
        yield f"  {agreeing.model}{_assumption(agreeing, depth)}"
    if not found.left:
        yield "  none of our models; the nearest, by the share of sums:"
        yield from (f"    {near.model}  {near.share:.1%}" for near in found.nearest)
    yield "  what each question alone leaves:"
    for question in dict.fromkeys(one.question for one in found.evidence):
        of_it = [one for one in found.evidence if one.question == question]
        each = ", ".join(f"{one.route} {one.left}" for one in of_it)
        yield f"    {question} ({of_it[0].sums} sums): {each}"
    if len(found.classes) > 1:
        yield "  accumulators in float32 would tell these apart, in a kernel whose Mmads are known:"
        yield from (f"    {' = '.join(members)}" for members in found.classes)
    elif len(found.left) > 1:
        yield f"  no sums of {found.format} operands that were tried tell these apart, even in float32"


def _assumption(agreeing: Agreeing, depth: int) -> str:
    """Name the assumptions about kernels under which a model agrees."""
    assumed = [
        f"{route}: {f'{parts} parts added in float32, ' if parts > 1 else ''}Mmads of {mmad}"
        for (route, mmad), parts in zip(agreeing.mmad.items(), agreeing.parts.values(), strict=True)
        if (mmad, parts) != (depth, 1)
    ]
    return f"  (only with {'; '.join(assumed)})" if assumed else ""
