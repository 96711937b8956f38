"""`ascendsim completion`: what a shell needs to complete commands, options, products, networks and files."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ascendsim.errors import ConfigError

SHELLS = ("bash", "zsh", "tcsh")


def add_completion(choices: Any) -> dict[str, Any]:
    """Add the command, and return its parser by name."""
    command = choices.add_parser(
        "completion",
        help="print what a shell needs to complete this command",
        description="Print a script that completes commands, options, products and files: `eval "
        '"$(ascendsim completion bash)"` for the shell at hand.',
        allow_abbrev=False,
    )
    command.add_argument("shell", choices=SHELLS, help="whose script")
    command.set_defaults(command=_completion)
    return {"completion": command}


def _completion(arguments: Any) -> int:
    from ascendsim.cli.parser import make_parser

    parser, commands = make_parser()
    print(script(arguments.shell, parser, commands))
    return 0


def script(shell: str, parser: argparse.ArgumentParser, commands: Mapping[str, Any]) -> str:
    """Return the script of a shell for these parsers, which are changed by this.

    Raises   ConfigError where shtab is not installed
    """
    try:
        import shtab
    except ImportError:
        raise ConfigError(
            "`ascendsim completion` needs shtab, which is not installed; python -m pip install shtab "
            "installs it"
        ) from None
    from ascendsim.profile import list_products
    from ascendsim.workloads import workload_names

    products = [name for product in list_products() for name in (product.name, *product.variants)]
    for command in commands.values():
        for action in command._actions:
            if action.type is Path:
                action.complete = shtab.DIRECTORY if action.metavar == "DIR" else shtab.FILE
            # Lists that the parser does not check, since a path may stand in place of a name.
            elif "--product" in action.option_strings:
                action.choices = tuple(dict.fromkeys(products))
            elif "--network" in action.option_strings:
                action.choices = tuple(workload_names())
    return str(shtab.complete(parser, shell=shell))
