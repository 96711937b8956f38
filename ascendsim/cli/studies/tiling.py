"""`ascendsim study tiling`: what beats the product's plan of a gradient."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ascendsim.cli.plans import schedules_of
from ascendsim.cli.request import budgets_of, natural, positive
from ascendsim.cli.studies.output import add_kind, one_of, products_of, starts_of
from ascendsim.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ascendsim.studies.engine.run import Budget, Engine
    from ascendsim.studies.tuning.records import TilingAnswer, TilingQuestion
    from ascendsim.studies.tuning.tune import Tuner


# What needs a search, or calls that are kept.
_OF_A_SEARCH = ("write_plan", "export_top", "measured", "table")


def beside(arguments: Any, questions: Sequence[TilingQuestion]) -> int:
    """Time both plans, print them side by side, and write the page where one is asked for.

    Raises   ConfigError for options of a search, for several calls, or a file without a plan of the gradient
    """
    from ascendsim.cli.studies.output import output_of
    from ascendsim.report.studies.beside import beside_answered
    from ascendsim.studies.tuning.study import set_beside

    for option in _OF_A_SEARCH:
        if getattr(arguments, option):
            name = f"--{option.replace('_', '-')}"
            raise ConfigError(f"{name} is of plans that are searched; leave it out, or --plan and --schedule")
    question = one_of(
        "calls (of layers and products)", "--plan and --schedule are of the plan of one call", questions
    )
    schedules = schedules_of([arguments.schedule] if arguments.schedule else None)
    plan, schedule = _plan(arguments, question.gradient), schedules[0] if schedules else None
    answer = set_beside(question, plan, schedule, budgets_of(arguments))
    output_of(arguments).write([answer], beside_answered)
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


def add_file_options(command: Any) -> None:
    """Add the options for files that go to a device, and come back from it."""
    device = command.add_argument_group("to a device and back")
    device.add_argument(
        "--export-top",
        type=positive,
        metavar="K",
        help="write the best plans of the K least times, the usual plan, and the vendor's entries "
        "(runtime_kb) of those that have one",
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
    from ascendsim.files import require_folder

    if arguments.export_top is not None:
        require_folder(arguments.export)
    if arguments.measured and arguments.export_top:
        raise ConfigError("--measured ranks plans that are written; leave --export-top out")


def export_top(tuner: Tuner, arguments: Any) -> None:
    """Write the best plans where that is asked for, and say where they are and which have no entry."""
    if arguments.export_top is None:
        return
    from ascendsim.studies.tuning.tune import export

    found = export(arguments.export, tuner, arguments.export_top)
    if arguments.json:
        return
    entries = sum(bool(one.entry_file) for one in found)
    from ascendsim.report.terminal import print_line

    print()
    print_line(f"{len(found)} plans and {entries} entries in {arguments.export}")
    for why in dict.fromkeys(one.no_entry for one in found if one.no_entry):
        print_line(f"No {why}")


def rank_measured(question: TilingQuestion, engine: Engine, budget: Budget, arguments: Any) -> None:
    """Rank the plans of a folder by what a device measured, beside the model's times of them."""
    from ascendsim.cli.studies.output import output_of
    from ascendsim.report.studies.beside import measured_answered
    from ascendsim.studies.engine.run import require_answer
    from ascendsim.studies.tuning.tune import exported_plans, point_of
    from ascendsim.validate.coverage import MeasuredPlan, measured_times, ranked_anew

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
    output_of(arguments).show(measured_answered(ranking, where, start))


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
        help="what a winner has to save at least (default: the 90th percentile of the model's error of the "
        "ratio of two tilings' times, over the measured pairs)",
    )
    what.add_argument(
        "--no-interval",
        action="store_true",
        help="do not try the best plan at the ends of figures with a range",
    )
    what.add_argument(
        "--deterministic", action="store_true", default=None, help="tune calls that add in one order"
    )
    what.add_argument(
        "--write-plan", type=Path, metavar="FILE", help="write the best plan: a name in .toml or .json"
    )
    _add_own_plan(command)
    add_file_options(command)
    command.set_defaults(command=tiling)
    return command


def _add_own_plan(command: Any) -> None:
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


def tiling(arguments: Any) -> int:
    """Ask, answer, print, and write what was asked for."""
    from ascendsim.cli.studies.output import engine_of, output_of, write_calls
    from ascendsim.files import require_file
    from ascendsim.ops.plan import form_of
    from ascendsim.report.studies.tiling import tiling_answered, tiling_compared
    from ascendsim.studies.tuning.study import study_tiling

    # A file that cannot be written is refused before anything is timed.
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
        write_calls(arguments, engine, [point for _, tuner in found for point in tuner.timed.values()])
    # Files are written even where the reader of what is printed leaves early, as `head` does.
    try:
        output_of(arguments).write([answer for answer, _ in found], tiling_answered, tiling_compared)
    finally:
        _write_plan(found[0][0], arguments)
        export_top(found[0][1], arguments)
    return 0


def _questions(arguments: Any) -> list[TilingQuestion]:
    """Return a question for each product and layer."""
    from ascendsim.cli.request import convolution_of, convolutions_of
    from ascendsim.studies.tuning.records import TilingQuestion
    from ascendsim.workloads import load_workload
    from ascendsim.workloads.records import names_left_out

    workload = load_workload(arguments.workload)
    layers = replace(workload, layers=workload.select(arguments.layer), left_out=())
    chosen = convolutions_of(layers, arguments.layer)
    if rest := names_left_out(chosen.left_out):
        print(f"{workload.title}: plans of convolutions alone are tuned{rest}", file=sys.stderr)
    margin, batch = _margin(arguments.margin), arguments.batch or workload.batch or 1
    return [
        TilingQuestion(
            f"{layer.name} of {workload.title}, batch {batch}",
            product,
            convolution_of(layer, batch),
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
            deterministic=arguments.deterministic,
        )
        for product in products_of(arguments)
        for layer in chosen.layers
    ]


def _margin(percent: float | None) -> float:
    """Return the least saving of a winner, as a part of the time.

    Raises   ConfigError for a text that is no percentage
    """
    if percent is not None:
        if not 0 <= percent < 100:
            raise ConfigError(f"--margin is {percent:g}; it must be a percentage of 0 or more, below 100")
        return percent / 100
    from ascendsim.validate.run import tuning_noise

    return tuning_noise().p90


def _write_plan(answer: TilingAnswer, arguments: Any) -> None:
    from ascendsim.ops.tiling.plan_files import write_plans
    from ascendsim.report.studies.tiling_words import tiling_sentence

    if arguments.write_plan is not None:
        plans = {answer.question.gradient: answer.best.plan}
        write_plans(arguments.write_plan, plans, about=tiling_sentence(answer))
