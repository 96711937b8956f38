"""`ascendsim run`: find out what was asked for and on what, run it, print it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ascendsim.cli.plans import naming_plan_file, read_tiling, write_tiling
from ascendsim.cli.request import Network, Single, read_request
from ascendsim.cli.values import each_once
from ascendsim.errors import ConfigError
from ascendsim.report.columns import Entry


def run(arguments: Any) -> int:
    """Run what was asked for, print it, and write the report folder if one is asked for."""
    from ascendsim.profile import is_file_name, load_profile
    from ascendsim.report.files import require_folder

    request = read_request(arguments)
    if arguments.order != "program" and (arguments.cycles_only or isinstance(request, Network)):
        raise ConfigError(
            "--order is of gradients that are computed, and here are cycles alone; name one layer without "
            "--cycles-only, or leave it out"
        )
    # A large network takes its time: what cannot be written is told before.
    if arguments.out is not None:
        require_folder(arguments.out)
    if isinstance(request, Single):
        # A pattern may mean one layer: a file of plans knows it by its name.
        arguments.layer = request.layer
    # A product that is named twice would make two files of one name.
    arguments.product = each_once(arguments.product)
    read_tiling(arguments, request)
    profiles = [load_profile(name) for name in arguments.product]
    # A terminal shows no critical path; where one is asked for, the engines find the same.
    arguments.paths = arguments.json or arguments.out is not None
    if arguments.engine is None and (arguments.out is None or isinstance(request, Network)):
        arguments.engine = "compiled"
    if isinstance(request, Network):
        if arguments.interval:
            raise ConfigError("--interval is of one convolution; name a layer, or give --input and --weight")
        # Imported where they are needed: a network is estimated without what judges gradients.
        from ascendsim.cli.network import run_network

        with naming_plan_file(arguments):
            document, write = run_network(request, profiles, arguments)
    else:
        from ascendsim.cli.single import run_single

        with naming_plan_file(arguments):
            document, write = run_single(request, profiles, arguments)
    # What a reader can ask for again: a profile does not know the file that it came from.
    for product, name in zip(document["products"], arguments.product, strict=True):
        product["path"] = name if is_file_name(name) else None
    # The folder first: where it cannot be written, nothing is printed but the reason.
    files = write(arguments.out) if arguments.out is not None else ()
    if arguments.write_tiling is not None:
        write_tiling(document, arguments)
    _print(document, files, arguments)
    return 0


def _print(document: Entry, files: Sequence[Path], arguments: Any) -> None:
    if arguments.json:
        from ascendsim.report.folder import json_text

        sys.stdout.write(json_text(document))
        return
    # Here and not above: rich is not loaded for those who want JSON.
    from ascendsim.report.terminal import print_document

    print_document(document, details=arguments.details)
    if files:
        print(f"\nReport in {files[0].parent}: {_listed([file.name for file in files])}")


def _listed(names: Sequence[str]) -> str:
    """Return names of files with commas between; of many, those that a reader opens first."""
    # Three are of all products; of one there are up to four more.
    if len(names) <= 3 + 4:
        return ", ".join(names)
    return f"{', '.join(names[:3])} and {len(names) - 3} files of its products"
