"""Print what the interface answered to calls, product by product and rule set by rule set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console

from ascendsim.report.tables import Entry, TextTable
from ascendsim.report.terminal import make_console, print_table, print_text


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
        out.out(f"{own[0]['call']}{expected}", highlight=False)
        cells = tuple((row["product"], row["rules"], _status(row), _detail(row)) for row in own)
        print_table(out, TextTable("", headings, frozenset({0, 1, 3}), cells))
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
