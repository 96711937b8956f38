"""Parse the words of the command line, with mistakes as our own errors."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from ascendsim import __version__
from ascendsim.cli.request import (
    Wrapped,
    add_budgets,
    add_keyword,
    add_problem,
    add_products,
    l2_start,
    natural,
    order,
    positive,
)
from ascendsim.cli.shell import HELP
from ascendsim.errors import ConfigError, did_you_mean
from ascendsim.ops.options.keywords import Keywords

_EXAMPLES = """\
examples:
  ascendsim run s3b1_3x3 --batch 4 --product 910B3 --out report
  ascendsim run --batch 32 --product 910B --product 910_93
  ascendsim run --network yolov5s --batch 16 --jobs 2
  ascendsim run --input 2,16,14,14 --weight 32,16,3,3 --padding 1 --dtype bfloat16
  ascendsim run --npz mine.npz --padding 1
"""


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that raises ConfigError instead of printing its usage and leaving."""

    def error(self, message: str) -> NoReturn:
        """Turn a mistake into an error of ours."""
        raise ConfigError(f"{message}; `{self.prog} --help` shows how it is used")


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Parse the words after `ascendsim`.

    Raises   ConfigError, with near misses for unknown options
    """
    parser, commands = make_parser()
    for word in words:
        # argparse takes it for the end of the options, and gives the command a list of nothing.
        if word.startswith("--") and word.endswith("=--"):
            raise ConfigError(f"{word[:-3]}: '--' is no value; write one after the =")
    # argparse would list all commands, and print its usage before; the nearest one is what helps.
    if words and not words[0].startswith("-") and words[0] not in commands:
        known = [name for name in commands if " " not in name]
        raise ConfigError(f"ascendsim has no command {words[0]!r}; {did_you_mean(words[0], known)}")
    # parse_args() would name an unknown word, but no word near it.
    arguments, unknown = parser.parse_known_args(words)
    # A study has options of its own, under both of its words.
    name = " ".join(filter(None, (arguments.command_name, getattr(arguments, "study_name", ""))))
    command: Parser = commands[name]
    if unknown:
        options = [option for action in command._actions for option in action.option_strings]
        there = f"`{command.prog} --help` lists what there is"
        hint = did_you_mean(unknown[0].partition("=")[0], options, there)
        raise ConfigError(f"`{command.prog}` does not know {unknown[0]!r}; {hint}")
    _refuse_repetition(command, words)
    _refuse_product_file(arguments, command.prog)
    # Not as a default of the option: argparse would append the user's products to it.
    if arguments.command_name == "run" and arguments.product is None:
        arguments.product = [Keywords.product]
    return arguments


def _refuse_product_file(arguments: argparse.Namespace, prog: str) -> None:
    """Refuse a TOML file where a layer or another file stands: products and networks have options."""
    wanted = (
        "a table of measured times" if arguments.command_name == "calibrate" else "a file of calls in JSON"
    )
    for place, what in (("layer", "a layer's name"), ("file", wanted)):
        word = str(getattr(arguments, place, None) or "")
        if word.endswith(".toml"):
            more = "; a network's file is named by --network" if place == "layer" else ""
            raise ConfigError(
                f"`{prog}` takes {what} there, not {word}; `ascendsim profiles {word}` checks a product "
                f"file and lists its figures, `--product {word}` beside {what} uses it{more}"
            )


def _refuse_repetition(command: Parser, words: Sequence[str]) -> None:
    """Refuse an option that is given twice; argparse would silently take the last one.

    Raises   ConfigError, unless the option collects its values
    """
    given: dict[str, str] = {}
    for word in words:
        # A value that looks like an option is an option to argparse, too, so that words alone are enough.
        option = word.partition("=")[0]
        action = command._option_string_actions.get(option)
        if action is None or isinstance(action, argparse._AppendAction):
            continue
        # By the setting and not by the name: --trace and --no-trace contradict each other.
        if action.dest in given:
            first = given[action.dest]
            told = f"{option} is given twice" if first == option else f"both {first} and {option} are given"
            raise ConfigError(f"`{command.prog}`: {told}; give one, or run the command once for each")
        given[action.dest] = option


def make_parser() -> tuple[Parser, dict[str, Parser]]:
    """Return the parser, and those of its commands by their words."""
    # allow_abbrev=False throughout: an abbreviation that works today is ambiguous with the next option.
    from ascendsim.cli.calibrate import add_calibrate
    from ascendsim.cli.checks import add_check
    from ascendsim.cli.profiles import add_probe
    from ascendsim.cli.shell import add_completion
    from ascendsim.cli.validate import add_validate

    parser = Parser(
        prog="ascendsim",
        description="Simulate convolution backward on the Ascend AI core: gradients bit for bit, "
        "cycles estimated.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"ascendsim {__version__}")
    choices = parser.add_subparsers(dest="command_name", required=True, metavar="COMMAND")
    run = choices.add_parser(
        "run",
        help="gradients and cycles of a layer, cycles of a network",
        description="Run convolution backward: a layer of a built-in network (gradients and cycles),\n"
        "a whole network (cycles only), a convolution given by its sizes, or your own tensors.",
        epilog=_EXAMPLES,
        formatter_class=Wrapped,
        allow_abbrev=False,
    )
    add_problem(run)
    _add_arithmetic(run)
    _add_output(run)
    # The commands load what they need when they are called, so that --help and mistakes are quick.
    run.set_defaults(command=_run)
    profiles = choices.add_parser(
        "profiles",
        help="products, their variants, and every figure with its source",
        description="List the products and variants; with a name, every figure of it with unit, value, "
        "confidence, range and source.",
        allow_abbrev=False,
    )
    profiles.add_argument(
        "name", nargs="?", metavar="PRODUCT", help="product, variant or path of a .toml file"
    )
    profiles.add_argument("--json", action="store_true", help="print JSON")
    profiles.add_argument(
        "--new",
        type=Path,
        metavar="FILE",
        help="write the file of a chip of your own: every figure with unit and meaning, to be filled in",
    )
    profiles.add_argument(
        "--like", metavar="PRODUCT", help="with --new: a product whose figures the file begins with"
    )
    profiles.set_defaults(command=_profiles)
    others = {"check": add_check(choices), "validate": add_validate(choices)}
    others |= {"calibrate": add_calibrate(choices)}
    others |= add_probe(choices) | add_study(choices) | add_completion(choices, make_parser)
    commands = {"run": run, "profiles": profiles, **others}
    parser.add_argument("-v", "--verbose", action="store_true", help=HELP)
    for command in commands.values():
        # No default below: it would overwrite what stands before the command's word.
        command.add_argument(*("-v", "--verbose"), action="store_true", default=argparse.SUPPRESS, help=HELP)
    return parser, commands


def _add_arithmetic(run: Parser) -> None:
    how = run.add_argument_group("on what, and how")
    add = partial(add_keyword, how)
    add_products(how)
    how.add_argument("--dtype", help="format of the tensors (default float16; of an .npz: as stored)")
    how.add_argument(
        "--cube-math-type",
        type=int,
        default=0,
        choices=range(4),
        help="the interface's cubeMathType: 0 keep, 1 allow lower precision, 2 float16, 3 HF32 (default 0)",
    )
    add("rules", metavar="NAME")
    add("accumulation", metavar="MODEL")
    add("deterministic", action=argparse.BooleanOptionalAction)
    add("tiling", metavar="PLANS")
    schedule = ". Your own is FILE.py:CLASS; repeat it for both gradients"
    add("schedule", schedule, action="append", metavar="NAME")
    add("l2_start", type=l2_start, metavar="WHAT")
    add("layout")
    add("engine")
    add_budgets(how)
    how.add_argument(
        "--order", type=order, default="program", help="order of execution: program, arrival or a seed"
    )
    how.add_argument("--seed", type=natural, default=0, help="of the synthetic normal tensors (default 0)")
    _add_times(how)


def _add_times(how: Any) -> None:
    how.add_argument(
        "--interval",
        action="store_true",
        help="also say between which times the call lies if figures lie anywhere in their ranges",
    )
    how.add_argument(
        *("--jobs", "--workers"),
        dest="workers",
        type=positive,
        metavar="N",
        help="processes that estimate the layers of a network (default 1), or the calls of --interval "
        "(default: one for each usable core, where there is much to do); "
        "--workers means the same",
    )
    how.add_argument("--cycles-only", action="store_true", help="estimate cycles, compute no gradients")


def _add_output(run: Parser) -> None:
    out = run.add_argument_group("what to write")
    out.add_argument("--json", action="store_true", help="print JSON instead of tables")
    out.add_argument(
        "--details",
        action="store_true",
        help="also print each product's pipes and bytes, or layers and plans",
    )
    out.add_argument("--out", type=Path, metavar="DIR", help="write a report folder")
    out.add_argument(
        "--write-tiling",
        type=Path,
        metavar="FILE",
        help="write the plans that were taken, in TOML or JSON, as --tiling reads them",
    )
    out.add_argument(
        "--tiling-names",
        choices=("ours", "vendor"),
        default="ours",
        help="field names in that file: ours, or those of the vendor's runtime_kb (default ours)",
    )
    out.add_argument(
        "--trace",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="with --out, write a trace of the pipes for Perfetto (default: yes)",
    )
    out.add_argument(
        "--trace-spans",
        type=positive,
        default=50_000,
        metavar="N",
        help="most spans in a trace (default %(default)s)",
    )


def _run(arguments: Any) -> int:
    from ascendsim.cli.run import run

    return run(arguments)


def _profiles(arguments: Any) -> int:
    from ascendsim.cli.profiles import profiles

    return profiles(arguments)


def add_study(choices: Any) -> dict[str, Any]:
    """Add the command with one subcommand a study, and return their parsers by name."""
    from ascendsim.cli.studies.devices import add_devices
    from ascendsim.cli.studies.hardware import add_codesign, add_hardware
    from ascendsim.cli.studies.precision import add_precision
    from ascendsim.cli.studies.tiling import add_tiling
    from ascendsim.cli.studies.traffic import add_traffic, add_why

    study = choices.add_parser(
        "study",
        help="questions over many calls: what a change of the hardware buys, what beats a plan",
        description="Ask one question of many calls. Each study prints one sentence that answers, then the "
        "table; with --out an HTML page.",
        allow_abbrev=False,
    )
    kinds = study.add_subparsers(dest="study_name", required=True, metavar="STUDY")
    return {
        "study": study,
        "study hardware": add_hardware(kinds),
        "study precision": add_precision(kinds),
        "study tiling": add_tiling(kinds),
        "study codesign": add_codesign(kinds),
        "study traffic": add_traffic(kinds),
        "study why": add_why(kinds),
        "study devices": add_devices(kinds),
    }
