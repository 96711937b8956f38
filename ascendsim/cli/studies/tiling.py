"""`ascendsim study tiling`: what beats the product's plan of a gradient."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ascendsim.cli.studies.beside import beside
from ascendsim.cli.studies.tiling_files import (
    add_file_options,
    check_file_options,
    export_top,
    rank_measured,
)
from ascendsim.cli.studies.words import add_kind, one_of, products_of, starts_of
from ascendsim.cli.values import natural, positive
from ascendsim.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ascendsim.studies.tuning.records import TilingAnswer, TilingQuestion

_EXAMPLES = """\
examples:
  ascendsim study tiling s3b1_3x3 --batch 32 --gradient input
  ascendsim study tiling s4b0_3x3 --batch 32 --gradient weight --tilings 500 --write-plan best.toml
  ascendsim study tiling s3b1_3x3 --batch 32 --gradient input --plan mine.toml
"""


def add_tiling(kinds: Any) -> Any:
    """Add the command to the kinds of studies and return it."""
    command, what = add_kind(
        kinds,
        "tiling",
        "what beats the product's plan of a gradient, and why",
        "Try plans of one gradient: steps from the product's plan, then Optuna if it is there.",
        _EXAMPLES,
    )
    what.add_argument(
        "layer",
        metavar="LAYER",
        help="a layer of the workload, a stage (s3), a pattern ('s3*') or several with commas between",
    )
    what.add_argument("--gradient", choices=("input", "weight"), default="input", help="which (input)")
    what.add_argument("--score", choices=("worst", "mean"), default="worst", help="over the starts (worst)")
    what.add_argument("--tilings", type=positive, default=200, metavar="N", help="most plans tried (200)")
    what.add_argument(
        "--nests",
        choices=("any", "ours", "operators"),
        default="any",
        help="loop nests of plans: this simulator's, the operators', which a device can be given, or any: "
        "ours, and the operators' where a call follows them by default (any)",
    )
    what.add_argument("--seed", type=natural, default=0, help="of what is drawn (0)")
    what.add_argument(
        "--margin",
        type=float,
        metavar="PERCENT",
        help="what a winner has to save at least (default: the model's median error of the ratio of two "
        "tilings' times, by the measured products that the project quotes)",
    )
    what.add_argument(
        "--no-interval", action="store_true", help="do not try the best plan at the ends of assumed figures"
    )
    what.add_argument(
        "--write-plan", type=Path, metavar="FILE", help="write the best plan: a name in .toml or .json"
    )
    own = command.add_argument_group(
        "a plan of your own beside the usual one",
        "Instead of a search: what says how to search (--tilings, --nests, --seed, --score, --margin, "
        "--no-interval) is left out.",
    )
    own.add_argument(
        "--plan",
        type=Path,
        metavar="FILE",
        help="a file of plans as `ascendsim run --tiling` takes it: time its plan of the gradient, show what "
        "differs, and the cycles, waits and bytes of both",
    )
    own.add_argument(
        "--schedule",
        metavar="NAME",
        help="a loop nest by name or, your own, as FILE.py:CLASS; alone or with --plan",
    )
    add_file_options(command)
    command.set_defaults(command=tiling)
    return command


def tiling(arguments: Any) -> int:
    """Ask, answer, print, and write what was asked for."""
    from ascendsim.cli.studies.engine import engine_of
    from ascendsim.ops.plan_text import form_of
    from ascendsim.report.files import require_file
    from ascendsim.studies.engine.table import rows_of, write_table
    from ascendsim.studies.tuning.study import study_tiling

    # A file that no plan can be written to is told before anything is timed.
    if arguments.write_plan is not None:
        form_of(arguments.write_plan)
        require_file(arguments.write_plan)
    check_file_options(arguments)
    questions = _questions(arguments)
    if arguments.plan is not None or arguments.schedule is not None:
        return beside(arguments, questions)
    for option in ("write_plan", "export_top", "measured"):
        if getattr(arguments, option) is not None:
            why = f"--{option.replace('_', '-')} is of the plans of one call"
            one_of("calls (of layers and products)", why, questions)
    if arguments.measured:
        with engine_of(arguments) as (engine, budget):
            rank_measured(questions[0], engine, budget, arguments)
        return 0
    with engine_of(arguments) as (engine, budget):
        found = [study_tiling(question, engine, budget) for question in questions]
        if arguments.table is not None:
            points = [point for _, tuner in found for point in tuner.timed.values()]
            write_table(rows_of(engine.answer(points)), arguments.table)
    # Files are written even where the reader of what is printed leaves early, as `head` does.
    try:
        _print([answer for answer, _ in found], arguments)
    finally:
        _write_plan(found[0][0], arguments)
        export_top(found[0][1], arguments)
    return 0


def _questions(arguments: Any) -> list[TilingQuestion]:
    """Return a question for each product and layer."""
    from ascendsim.cli.request import problem_of
    from ascendsim.studies.tuning.records import TilingQuestion
    from ascendsim.workloads import load_workload

    workload = load_workload(arguments.workload)
    margin = _margin(arguments.margin)
    return [
        TilingQuestion(
            f"{layer.name} of {workload.title}, batch {arguments.batch}",
            product,
            problem_of(layer, arguments.batch),
            f"grad_{arguments.gradient}",
            arguments.dtype,
            arguments.cube_math_type,
            starts_of(arguments),
            arguments.score,
            arguments.tilings,
            arguments.seed,
            margin,
            doubt=not arguments.no_interval,
            nests=arguments.nests,
        )
        for product in products_of(arguments)
        for layer in workload.select(arguments.layer)
    ]


def _margin(percent: float | None) -> float:
    """Return the least saving of a winner, as a part of the time.

    Raises   ConfigError for what is no percentage
    """
    if percent is not None:
        if not 0 <= percent < 100:
            raise ConfigError(f"--margin is {percent:g}; it must be a percentage of 0 or more, below 100")
        return percent / 100
    from ascendsim.validate.quoted import tuning_noise

    return tuning_noise().median


def _print(answers: Sequence[TilingAnswer], arguments: Any) -> None:
    from ascendsim.cli.studies.output import Report, tell
    from ascendsim.report.studies.tiling import (
        notes,
        tiling_page,
        tiling_record,
        tiling_sentence,
        tiling_tables,
    )
    from ascendsim.report.studies.tiling_cases import cases_tables, tiling_compared, tiling_title

    told = Report(
        *(tiling_record, tiling_sentence, tiling_tables, notes, tiling_page),
        *(tiling_title, tiling_compared),
        cases_tables,
        brief=True,
    )
    tell(arguments, answers, told)


def _write_plan(answer: TilingAnswer, arguments: Any) -> None:
    from ascendsim.ops.tiling.plan_files import write_plans
    from ascendsim.report.studies.tiling import tiling_sentence

    if arguments.write_plan is not None:
        plans = {answer.question.gradient: answer.best.plan}
        write_plans(arguments.write_plan, plans, about=tiling_sentence(answer))
