"""`ascendsim study tiling --plan`: a plan of the user's own beside the usual one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ascendsim.cli.own_schedules import schedules_of
from ascendsim.cli.studies.words import one_of
from ascendsim.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ascendsim.studies.tuning.records import TilingQuestion

# What needs a search, or calls that are kept.
_OF_A_SEARCH = ("write_plan", "export_top", "measured", "table")


def beside(arguments: Any, questions: Sequence[TilingQuestion]) -> int:
    """Time both plans, print them side by side, and write the page where one is asked for.

    Raises   ConfigError for options of a search, for several calls, or a file without a plan of the gradient
    """
    from ascendsim.cli.studies.output import print_answer, write_answer_page
    from ascendsim.report.studies.beside import (
        beside_notes,
        beside_page,
        beside_record,
        beside_sentence,
        beside_tables,
    )
    from ascendsim.studies.tuning.beside import set_beside

    for option in _OF_A_SEARCH:
        if getattr(arguments, option):
            name = f"--{option.replace('_', '-')}"
            raise ConfigError(f"{name} is of plans that are searched; leave it out, or --plan and --schedule")
    question = one_of(
        "calls (of layers and products)", "--plan and --schedule are of the plan of one call", questions
    )
    schedules = schedules_of([arguments.schedule] if arguments.schedule else None)
    answer = set_beside(question, _plan(arguments, question.gradient), schedules[0] if schedules else None)
    try:
        print_answer(arguments, answer, beside_record, beside_sentence, beside_tables, beside_notes)
    finally:
        write_answer_page(arguments, answer, beside_page)
    return 0


def _plan(arguments: Any, gradient: str) -> Any:
    """Return the plan that the file has for the gradient of the layer; None without a file."""
    if arguments.plan is None:
        return None
    from ascendsim.ops.tiling.plan_files import read_plans

    plans = read_plans(arguments.plan).of_layer(arguments.layer)
    if gradient not in plans:
        has = ", ".join(plans) or "none"
        raise ConfigError(
            f"{arguments.plan}: has no plan of {gradient} for {arguments.layer} (but of {has}); write it "
            f"under [{gradient}], or choose the other --gradient"
        )
    return plans[gradient]
