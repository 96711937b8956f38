"""`ascendsim study tiling`: what beats the product's plan of a gradient."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ascendsim.cli.values import natural, positive

if TYPE_CHECKING:
    from ascendsim.studies.tuning.records import TilingAnswer, TilingQuestion

_EXAMPLES = """\
examples:
  ascendsim study tiling s3b1_3x3 --batch 32 --gradient input
  ascendsim study tiling s4b0_3x3 --batch 32 --gradient weight --tilings 500 --write-plan best.toml
"""
# Median error of matrix products of the A2 generation that were measured with their tilings known, in
# percent: reports/validation.md. Nobody published times of two tilings of one convolution.
MARGIN_PERCENT = 8.5


def add_tiling(kinds: Any) -> Any:
    """Add the command to the kinds of studies and return it."""
    import argparse

    from ascendsim.cli.studies.engine import add_engine_options

    command = kinds.add_parser(
        "tiling",
        help="what beats the product's plan of a gradient, and why",
        description="Try plans of one gradient: steps from the product's plan, then Optuna if it is there.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    what = command.add_argument_group("what is tuned, on what")
    what.add_argument("layer", metavar="LAYER", help="a layer of the workload")
    what.add_argument("--workload", default="resnet50", help="network by name or .toml file (resnet50)")
    what.add_argument("--batch", type=positive, default=1, help="batch (1)")
    what.add_argument("--gradient", choices=("input", "weight"), default="input", help="which (input)")
    what.add_argument("--dtype", default="float16", help="format of the tensors (float16)")
    what.add_argument("--cube-math-type", type=int, default=0, choices=range(4), help="the interface's (0)")
    what.add_argument(
        "--product", default="910B", metavar="NAME", help="product, variant or .toml file (910B)"
    )
    what.add_argument(
        "--l2-start",
        action="append",
        choices=("warm", "cold", "handed"),
        help="what L2 holds when the kernel begins; repeat it for several (default: warm and handed)",
    )
    what.add_argument("--score", choices=("worst", "mean"), default="worst", help="over the starts (worst)")
    what.add_argument("--tilings", type=positive, default=200, metavar="N", help="most plans tried (200)")
    what.add_argument("--seed", type=natural, default=0, help="of what is drawn (0)")
    what.add_argument(
        "--margin",
        type=float,
        default=MARGIN_PERCENT,
        metavar="PERCENT",
        help="what a winner has to save at least: the model's own error (default %(default)s)",
    )
    what.add_argument(
        "--no-interval", action="store_true", help="do not try the best plan at the ends of assumed figures"
    )
    what.add_argument("--write-plan", type=Path, metavar="FILE", help="write the best plan, in TOML")
    add_engine_options(command)
    command.set_defaults(command=tiling)
    return command


def tiling(arguments: Any) -> int:
    """Ask, answer, print, and write what was asked for."""
    from ascendsim.cli.studies.engine import engine_of
    from ascendsim.studies.engine.table import rows_of, write_table
    from ascendsim.studies.tuning.study import study_tiling

    question = _question(arguments)
    with engine_of(arguments) as (engine, budget):
        answer, tuner = study_tiling(question, engine, budget)
        if arguments.table is not None:
            tried = [tuner.point(start, t.plan) for t in tuner.trials.values() for start in t.times_us]
            write_table(rows_of(engine.answer(tried)), arguments.table)
    _print(answer, arguments)
    return 0


def _question(arguments: Any) -> TilingQuestion:
    from ascendsim.ops.problems.convolution import ConvProblem
    from ascendsim.studies.tuning.records import TilingQuestion
    from ascendsim.workloads import load_workload

    workload = load_workload(arguments.workload)
    layer = workload.layer(arguments.layer)
    return TilingQuestion(
        f"{layer.name} of {workload.title}, batch {arguments.batch}",
        arguments.product,
        ConvProblem(**layer.problem_options(arguments.batch)),
        f"grad_{arguments.gradient}",
        arguments.dtype,
        arguments.cube_math_type,
        tuple(dict.fromkeys(arguments.l2_start or ("warm", "handed"))),
        arguments.score,
        arguments.tilings,
        arguments.seed,
        arguments.margin / 100,
        doubt=not arguments.no_interval,
    )


def _print(answer: TilingAnswer, arguments: Any) -> None:
    from ascendsim.cli.studies.engine import write_study_page
    from ascendsim.report.files import write_text
    from ascendsim.report.studies.facts import facts
    from ascendsim.report.studies.tiling import (
        notes,
        plan_table,
        plan_text,
        tiling_page,
        tiling_record,
        tiling_sentence,
        waits_table,
    )

    if arguments.json:
        print(json.dumps(tiling_record(answer), indent=1))
    else:
        from ascendsim.report.terminal import make_console, print_table, print_text

        out = make_console()
        print_text(out, tiling_sentence(answer))
        for table in (plan_table(answer), *map(waits_table, answer.waits)):
            print_table(out, table)
        out.print()
        for note in notes(answer):
            print_text(out, note)
    if arguments.write_plan is not None:
        write_text(arguments.write_plan, plan_text(answer))
    made = facts(arguments.words, answer.variant, answer.digest, answer.assumed)
    write_study_page(arguments, tiling_page(answer, made))
