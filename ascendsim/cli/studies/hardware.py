"""`ascendsim study hardware`: what changes of a product's figures buy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ascendsim.cli.values import gradients, positive
from ascendsim.errors import ConfigError

if TYPE_CHECKING:
    from ascendsim.studies.engine.point import Point
    from ascendsim.studies.hardware.records import HardwareAnswer, Question, StudiedLayer

_EXAMPLES = """\
examples:
  ascendsim study hardware --batch 32 --change links.memory.nominal_tb_per_s=x1.5
  ascendsim study hardware s3b1_3x3 --batch 32 --change buffers.L0C.capacity_bytes=x2,x4 --out page
  ascendsim study hardware --changes mine.toml --product 910_95
"""
# Before the user says otherwise: what a repeated kernel finds, and what one inside a large network does.
STARTS = ("warm", "handed")


def add_hardware(kinds: Any) -> Any:
    """Add the command to the kinds of studies and return it."""
    import argparse

    from ascendsim.cli.studies.engine import add_engine_options

    command = kinds.add_parser(
        "hardware",
        help="what a change of a product's figures buys",
        description="Time a layer or a network on a product and with figures of it changed: under the same "
        "plans, planned anew, and each gradient under the better of both.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    what = command.add_argument_group("what changes, on what")
    what.add_argument(
        "--change",
        action="append",
        default=[],
        metavar="PATH=xFACTOR",
        help="a figure and its factor or value; 1,2 are two changes, a=x2+b=x2 is one; repeat it for more",
    )
    what.add_argument("--changes", type=Path, metavar="FILE", help="changes with names, in TOML")
    what.add_argument(
        "--product", default="910B", metavar="NAME", help="product, variant or .toml file (910B)"
    )
    add_layers(what)
    what.add_argument(
        "--l2-start",
        action="append",
        choices=("warm", "cold", "handed"),
        help="what L2 holds when a kernel begins; repeat it for several (default: warm and handed)",
    )
    what.add_argument(
        "--no-interval",
        action="store_true",
        help="do not move assumed figures through their ranges, which takes most of the time",
    )
    add_engine_options(command)
    command.set_defaults(command=hardware)
    return command


def add_layers(what: Any) -> None:
    """Add the words that name a layer or a network and its gradients."""
    what.add_argument("layer", nargs="?", metavar="LAYER", help="a layer of the workload (none: the network)")
    what.add_argument("--workload", default="resnet50", help="network by name or .toml file (resnet50)")
    what.add_argument("--batch", type=positive, default=1, help="batch (1)")
    what.add_argument("--dtype", default="float16", help="format of the tensors (float16)")
    what.add_argument("--cube-math-type", type=int, default=0, choices=range(4), help="the interface's (0)")
    what.add_argument(
        "--mask",
        type=gradients,
        default=(True, True, False),
        metavar="NAMES",
        help="gradients (input,weight)",
    )
    what.add_argument(
        "--first-grad-input",
        action="store_true",
        help="make grad_input of a network's first layer too, which training never runs",
    )


def hardware(arguments: Any) -> int:
    """Ask, answer, print, and write what was asked for."""
    from ascendsim.cli.studies.engine import engine_of
    from ascendsim.studies.hardware.gains import study_hardware

    question = _question(arguments)
    with engine_of(arguments) as (engine, budget):
        answer, points = study_hardware(question, engine, budget)
        _write_table(arguments, points, engine)
    _print(answer, arguments)
    return 0


def _question(arguments: Any) -> Question:
    from ascendsim.profile import parse_changes, read_changes
    from ascendsim.studies.hardware.records import Question

    changes = [change for text in arguments.change for change in parse_changes(text)]
    changes += read_changes(arguments.changes) if arguments.changes else ()
    if not changes:
        raise ConfigError("study hardware needs --change PATH=xFACTOR, or --changes FILE: what is to change?")
    names = [change.name for change in changes]
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated:
        raise ConfigError(f"the change {repeated} is given twice; give each once")
    title, layers = layers_of(arguments)
    return Question(
        title,
        arguments.product,
        layers,
        tuple(changes),
        tuple(dict.fromkeys(arguments.l2_start or STARTS)),
        arguments.dtype,
        arguments.cube_math_type,
        doubt=not arguments.no_interval,
    )


def layers_of(arguments: Any) -> tuple[str, tuple[StudiedLayer, ...]]:
    """Return what the words name: its title, and its layers with the gradients that are made of each."""
    from ascendsim.ops.problems.convolution import ConvProblem
    from ascendsim.studies.hardware.records import StudiedLayer
    from ascendsim.workloads import load_workload

    workload = load_workload(arguments.workload)
    rows = (workload.layer(arguments.layer),) if arguments.layer else workload.layers
    found = []
    for row in rows:
        mask = arguments.mask
        # The images that a network is trained on are no parameters of it.
        if not arguments.layer and row is workload.layers[0] and not arguments.first_grad_input:
            mask = (False, *mask[1:])
        count = 1 if arguments.layer else row.count
        if any(mask):
            found.append(
                StudiedLayer(row.name, ConvProblem(**row.problem_options(arguments.batch)), mask, count)
            )
    named = f"{rows[0].name} of {workload.title}" if arguments.layer else workload.title
    return f"{named}, batch {arguments.batch}", tuple(found)


def _write_table(arguments: Any, points: list[Point], engine: Any) -> None:
    if arguments.table is None:
        return
    from ascendsim.studies.engine.table import rows_of, write_table

    # All of them are kept by now, so that nothing is computed.
    write_table(rows_of(engine.answer(points)), arguments.table)


def _print(answer: HardwareAnswer, arguments: Any) -> None:
    from ascendsim.cli.studies.engine import write_study_page
    from ascendsim.report.studies.facts import facts
    from ascendsim.report.studies.hardware import (
        hardware_page,
        hardware_record,
        hardware_sentence,
        hardware_table,
        notes,
    )

    if arguments.json:
        print(json.dumps(hardware_record(answer), indent=1))
    else:
        from ascendsim.report.terminal import make_console, print_table, print_text

        out = make_console()
        print_text(out, hardware_sentence(answer))
        print_table(out, hardware_table(answer))
        out.print()
        for note in notes(answer):
            print_text(out, note)
    made = facts(arguments.words, answer.variant, answer.digest, answer.assumed)
    write_study_page(arguments, hardware_page(answer, made))
