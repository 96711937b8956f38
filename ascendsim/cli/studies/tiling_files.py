"""The files of `ascendsim study tiling`: its best plans for a device, and what a device made of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ascendsim.cli.values import positive
from ascendsim.errors import ConfigError

if TYPE_CHECKING:
    from ascendsim.studies.engine.run import Budget, Engine
    from ascendsim.studies.tuning.records import TilingQuestion
    from ascendsim.studies.tuning.tune import Tuner


def add_file_options(command: Any) -> None:
    """Add the options of what goes to a device, and comes from it."""
    device = command.add_argument_group("to a device and back")
    device.add_argument(
        "--export-top",
        type=positive,
        metavar="K",
        help="write the K best plans, and the vendor's entries (runtime_kb) of those that have one",
    )
    device.add_argument(
        "--export", type=Path, default=Path("top-plans"), metavar="DIR", help="where to (top-plans)"
    )
    device.add_argument(
        "--measured",
        type=Path,
        action="append",
        metavar="FILE",
        help="msprof's op_summary.csv of runs of the plans in that folder, in their order, each equally "
        "often; or, repeated, a file for each plan: they are ranked anew, and nothing is tuned",
    )


def check_file_options(arguments: Any) -> None:
    """Refuse options that contradict each other, and a folder that nothing can be written to.

    Raises   ConfigError, DataError
    """
    from ascendsim.report.files import require_folder

    if arguments.export_top is not None:
        require_folder(arguments.export)
    if arguments.measured and arguments.export_top:
        raise ConfigError("--measured ranks plans that are written; leave --export-top out")


def export_top(tuner: Tuner, arguments: Any) -> None:
    """Write the best plans where that is asked for, and say where they are and which have no entry."""
    if arguments.export_top is None:
        return
    from ascendsim.studies.tuning.export import export

    found = export(arguments.export, tuner, arguments.export_top)
    if arguments.json:
        return
    entries = sum(bool(one.entry_file) for one in found)
    print(f"\n{len(found)} plans and {entries} entries in {arguments.export}")
    for why in dict.fromkeys(one.no_entry for one in found if one.no_entry):
        print(f"No {why}")


def rank_measured(question: TilingQuestion, engine: Engine, budget: Budget, arguments: Any) -> None:
    """Rank the plans of a folder by what a device measured, beside the model's times of them."""
    from ascendsim.report.studies.measured_plans import (
        measured_notes,
        measured_record,
        measured_sentence,
        measured_table,
    )
    from ascendsim.report.terminal import make_console, print_table, print_text
    from ascendsim.studies.engine.run import require_answer
    from ascendsim.studies.tuning.export import exported_plans
    from ascendsim.studies.tuning.tune import point_of
    from ascendsim.validate.plans.measured import MeasuredPlan, measured_times, ranked_anew

    plans = exported_plans(arguments.export, question.gradient)
    times = measured_times(arguments.measured, question.gradient, len(plans))
    # A profile of one kernel again and again finds in L2 what the run before has left.
    start = question.starts[0]
    points = [point_of(question, start, plan) for plan in plans.values()]
    found = []
    for name, measured_us, (point, answer) in zip(plans, times, engine.answer(points, budget), strict=True):
        rows = require_answer(point, answer).records
        (product,) = [row for row in rows if row["kernel"] == question.gradient]
        found.append(MeasuredPlan(name, measured_us, float(product["time_us"])))
    ranking = ranked_anew(found)
    where = f"On {question.product}, {question.gradient} of {question.title}"
    if arguments.json:
        print(json.dumps(measured_record(ranking, where), indent=1))
        return
    out = make_console()
    print_text(out, measured_sentence(ranking, where))
    print_table(out, measured_table(ranking, start))
    out.print()
    for note in measured_notes(ranking):
        print_text(out, note)
