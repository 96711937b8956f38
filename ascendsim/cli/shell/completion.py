"""`ascendsim completion`: what a shell needs to complete commands, options, products, networks and files."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ascendsim.errors import ConfigError, install_hint

SHELLS = ("bash", "zsh", "tcsh")


Parsers = tuple[argparse.ArgumentParser, Mapping[str, Any]]


def add_completion(choices: Any, make: Callable[[], Parsers]) -> dict[str, Any]:
    """Add the command, and return its parser by name; `make` makes all parsers anew."""
    command = choices.add_parser(
        "completion",
        help="print what a shell needs to complete this command",
        description="Print a script that completes commands, options, products and files: `eval "
        '"$(ascendsim completion bash)"` for the shell at hand.',
        allow_abbrev=False,
    )
    command.add_argument("shell", choices=SHELLS, help="whose script")
    command.set_defaults(command=partial(_completion, make))
    return {"completion": command}


def _completion(make: Callable[[], Parsers], arguments: Any) -> int:
    print(script(arguments.shell, *make()))
    return 0


def script(shell: str, parser: argparse.ArgumentParser, commands: Mapping[str, Any]) -> str:
    """Return the script of a shell for these parsers, which are changed by this.

    Raises   ConfigError where shtab is not installed
    """
    try:
        import shtab
    except ImportError:
        raise ConfigError(
            f"`ascendsim completion` needs shtab, which is not installed; {install_hint('completion')}"
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
