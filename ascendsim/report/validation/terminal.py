"""Print a validation on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from ascendsim.report.terminal import make_console, print_table
from ascendsim.report.validation.answer import answer_line
from ascendsim.report.validation.gradients import COVERED, coverage_table, covered, gradient_tables
from ascendsim.report.validation.page import DEFINITIONS, UNMEASURED, reason_lines, roles_line
from ascendsim.report.validation.tables import rows_table, summary_table
from ascendsim.validate.compare import grouped

if TYPE_CHECKING:
    from ascendsim.validate.run import Validation


def print_validation(outcome: Validation, *, every: bool = False, console: Console | None = None) -> None:
    """Print the answer, the statistics and what they mean, then the rows, and what was not compared."""
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
