"""`ascendsim study codesign`: hardware outside, tuned plans inside, a budget, a front."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ascendsim.cli.studies.words import add_kind, add_layers, layers_of, one_of, products_of, starts_of
from ascendsim.cli.values import finite, positive
from ascendsim.errors import ConfigError

if TYPE_CHECKING:
    from ascendsim.studies.codesign.records import DesignAnswer, DesignQuestion

_EXAMPLES = """\
examples:
  ascendsim study codesign s3b1_3x3 --batch 32 --cost "cores.cube" --change cores.cube=20,28
  ascendsim study codesign --batch 32 --cost "cores.cube + buffers.L0C.capacity_bytes / 4096" --budget 60 \\
    --change cores.cube=20,28 --change buffers.L0C.capacity_bytes=x0.5,x2
"""


def add_codesign(kinds: Any) -> Any:
    """Add the command to the kinds of studies and return it."""
    command, what = add_kind(
        kinds,
        "codesign",
        "which combinations of changes are worth their cost, each under tuned plans",
        "Time every combination of one value of each --change, the product as it is among them, "
        "under plans tuned for it; show those that nothing beats at their cost.",
        _EXAMPLES,
        has_table=False,
    )
    add_layers(what)
    what.add_argument(
        "--change",
        action="append",
        default=[],
        metavar="PATH=xFACTOR,...",
        help="values of a figure, of which a design has one or none; repeat it for other figures",
    )
    what.add_argument(
        "--cost", required=True, metavar="FORMULA", help="of figures by their paths, + - * / ( )"
    )
    what.add_argument("--budget", type=finite, metavar="COST", help="time no design that costs more")
    what.add_argument(
        "--tilings", type=positive, default=20, metavar="N", help="plans tried for each gradient (20)"
    )
    command.set_defaults(command=codesign)
    return command


def codesign(arguments: Any) -> int:
    """Ask, answer, print, and write what was asked for."""
    from ascendsim.cli.studies.engine import engine_of
    from ascendsim.studies.codesign.designs import study_codesign

    question = _question(arguments)
    with engine_of(arguments) as (engine, budget):
        answer = study_codesign(question, engine, budget)
        _require_one(answer)
    _print(answer, arguments)
    return 0


def _require_one(answer: DesignAnswer) -> None:
    """Refuse a question of which no design is timed, or none but the product as it is as others are refused.

    Raises   ConfigError with the first reason, or what the cheapest design costs
    """
    possible = [design for design in answer.designs if not design.refused]
    if possible and all(design.over_budget for design in possible):
        costs = {design.name: design.cost for design in answer.designs if design.cost is not None}
        name = min(costs, key=lambda name: costs[name])
        raise ConfigError(
            f"study codesign: no design costs at most {answer.question.budget:g}; the cheapest of "
            f"{len(costs)}, {name}, costs {costs[name]:g}: raise --budget, or add changes that cost less"
        )
    changed = [design for design in answer.designs if design.figures]
    if changed and all(design.refused for design in changed):
        first = changed[0]
        raise ConfigError(f"study codesign: every changed design is refused; {first.name}: {first.reason}")


def _question(arguments: Any) -> DesignQuestion:
    from ascendsim.profile import Cost, parse_changes
    from ascendsim.studies.codesign.records import DesignQuestion
    from ascendsim.validate.quoted import tuning_noise

    if not arguments.change:
        raise ConfigError("study codesign needs --change PATH=xFACTOR,...: what may a design have?")
    if arguments.table is not None:
        raise ConfigError("study codesign writes no --table: its plans are tuned; --json has every design")
    title, layers = layers_of(arguments)
    return DesignQuestion(
        title,
        one_of("products", "a formula of cost is of the figures of one product", products_of(arguments)),
        layers,
        tuple(parse_changes(text) for text in arguments.change),
        Cost(arguments.cost),
        arguments.budget,
        starts_of(arguments),
        arguments.tilings,
        arguments.dtype,
        arguments.cube_math_type,
        tuning_noise().median,
    )


def _print(answer: DesignAnswer, arguments: Any) -> None:
    from ascendsim.cli.studies.output import print_answer, write_answer_page
    from ascendsim.report.studies.codesign import (
        DEFINITIONS,
        codesign_page,
        codesign_record,
        codesign_sentence,
        codesign_table,
    )

    # The page is written even where the reader of what is printed leaves early, as `head` does.
    try:
        print_answer(
            arguments,
            answer,
            codesign_record,
            codesign_sentence,
            lambda answer: [codesign_table(answer)],
            lambda _: [f"Counted: {DEFINITIONS['counted']}"],
        )
    finally:
        write_answer_page(arguments, answer, codesign_page)
