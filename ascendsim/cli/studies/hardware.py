"""`ascendsim study hardware`: what changes of a product's figures buy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ascendsim.cli.request import finite, natural, positive
from ascendsim.cli.studies.output import add_kind, add_layers, layers_of, one_of, products_of, starts_of
from ascendsim.errors import ConfigError

if TYPE_CHECKING:
    from ascendsim.profile import Change
    from ascendsim.studies.hardware.records import DesignAnswer, DesignQuestion, Question


_EXAMPLES = """\
examples:
  ascendsim study hardware --batch 32 --change links.memory.nominal_tb_per_s=x1.5
  ascendsim study hardware s3b1_3x3 --batch 32 --change buffers.L0C.capacity_bytes=x2,x4 --out page
  ascendsim study hardware --changes mine.toml --product 910_95
  ascendsim study hardware s3b1_3x3 --batch 32 --every --no-interval
"""


def add_hardware(kinds: Any) -> Any:
    """Add the command to the kinds of studies and return it."""
    command, what = add_kind(
        kinds,
        "hardware",
        "what a change of a product's figures buys",
        "Time a layer or a network on a product and with figures of it changed: under the same "
        "plans, planned anew, and each gradient under the better of both.",
        _EXAMPLES,
        extra_starts=("network",),
    )
    add_layers(what)
    what.add_argument(
        "--change",
        action="append",
        default=[],
        metavar="PATH=xFACTOR",
        help="a figure and its factor or value; 1,2 are two changes, a=x2+b=x2 is one; repeat it for more",
    )
    what.add_argument("--changes", type=Path, metavar="FILE", help="changes with names, in TOML")
    what.add_argument(
        "--every",
        action="store_true",
        help="each figure of the product made better, alone: rates and sizes twice, times half",
    )
    what.add_argument(
        "--tuned",
        type=natural,
        default=0,
        metavar="N",
        help="also tune each gradient before and after each change: try N plans for it (0: none)",
    )
    _add_no_interval(what)
    command.set_defaults(command=hardware)
    return command


def _add_no_interval(what: Any) -> None:
    what.add_argument(
        "--no-interval",
        action="store_true",
        help="do not move figures through their ranges, which takes most of the time",
    )


def hardware(arguments: Any) -> int:
    """Answer `study hardware`: print the answer, and write the files that were asked for."""
    from ascendsim.cli.studies.output import engine_of, output_of, write_calls
    from ascendsim.report.studies.hardware import hardware_answered, hardware_compared
    from ascendsim.report.studies.hardware_words import hardware_sentence
    from ascendsim.studies.hardware.gains import study_hardware

    questions = [_question(arguments, product) for product in products_of(arguments)]
    with engine_of(arguments) as (engine, budget):
        found = [study_hardware(question, engine, budget) for question in questions]
        # Refused changes among others are named beside them; alone they are a mistake in the question.
        if not any(answer.gains for answer, _ in found):
            raise ConfigError(hardware_sentence(found[0][0]))
        write_calls(arguments, engine, [point for _, points in found for point in points])
    output_of(arguments).write([answer for answer, _ in found], hardware_answered, hardware_compared)
    return 0


def _question(arguments: Any, product: str) -> Question:
    from ascendsim.studies.hardware.records import Question
    from ascendsim.validate.run import tuning_noise

    title, layers = layers_of(arguments, convolutions=bool(arguments.tuned))
    return Question(
        title,
        product,
        layers,
        _changes(arguments, product),
        starts_of(arguments),
        arguments.dtype,
        arguments.cube_math_type,
        doubt=not arguments.no_interval,
        tilings=arguments.tuned,
        margin=tuning_noise().p90,
    )


def _changes(arguments: Any, product: str) -> tuple[Change, ...]:
    """Return the changes that are asked for.

    Raises   ConfigError where there is none, one is given twice, or one is no change of the product
    """
    from ascendsim.profile import load_profile, parse_changes, read_changes
    from ascendsim.studies.hardware.figures import enlargings

    changes = [change for text in arguments.change for change in parse_changes(text)]
    of_file = read_changes(arguments.changes) if arguments.changes else ()
    changes += of_file
    changes += enlargings(load_profile(product)) if arguments.every else ()
    if not changes:
        raise ConfigError(
            "study hardware needs --change PATH=xFACTOR, --changes FILE or --every: what is to change?"
        )
    names = [change.name for change in changes]
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated:
        raise ConfigError(f"the change {repeated} is given twice; give each once")
    # Of every product before anything is timed on the first.
    profile = load_profile(product)
    for change in changes:
        try:
            change.on(profile)
        except ConfigError as error:
            if change not in of_file:
                raise
            raise ConfigError(f"{arguments.changes}: {change.name}: {error}") from None
    return tuple(changes)


_CODESIGN_EXAMPLES = """\
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
        _CODESIGN_EXAMPLES,
        has_table=False,
        several=False,
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
        "--cost",
        required=True,
        metavar="FORMULA",
        help="of figures by their paths, results such as result.time_us, + - * / ^ sqrt min max ( )",
    )
    what.add_argument("--budget", type=finite, metavar="COST", help="time no design that costs more")
    what.add_argument(
        "--tilings", type=positive, default=20, metavar="N", help="plans tried for each gradient (20)"
    )
    _add_no_interval(what)
    command.set_defaults(command=codesign)
    return command


def codesign(arguments: Any) -> int:
    """Ask, answer, print, and write what was asked for."""
    from ascendsim.cli.studies.output import engine_of, output_of
    from ascendsim.report.studies.codesign import codesign_answered
    from ascendsim.studies.codesign import study_codesign

    question = _codesign_question(arguments)
    with engine_of(arguments) as (engine, budget):
        answer = study_codesign(question, engine, budget)
        _require_one(answer)
    output_of(arguments).write([answer], codesign_answered)
    return 0


def _require_one(answer: DesignAnswer) -> None:
    """Refuse an answer without a timed design, or with the unchanged product alone as others were refused.

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


def _codesign_question(arguments: Any) -> DesignQuestion:
    from ascendsim.profile import CostFormula, parse_changes
    from ascendsim.studies.hardware.records import DesignQuestion
    from ascendsim.validate.run import tuning_noise

    if not arguments.change:
        raise ConfigError("study codesign needs --change PATH=xFACTOR,...: what may a design have?")
    if arguments.table is not None:
        raise ConfigError("study codesign writes no --table: its plans are tuned; --json has every design")
    title, layers = layers_of(arguments, convolutions=True)
    return DesignQuestion(
        title,
        one_of("products", "a formula of cost is of the figures of one product", products_of(arguments)),
        layers,
        tuple(parse_changes(text) for text in arguments.change),
        CostFormula(arguments.cost),
        arguments.budget,
        starts_of(arguments),
        arguments.tilings,
        arguments.dtype,
        arguments.cube_math_type,
        tuning_noise().p90,
        not arguments.no_interval,
    )
