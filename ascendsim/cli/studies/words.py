"""The words by which studies name a product, layers and the starts of L2, and what they mean."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from ascendsim.cli.studies.engine import add_engine_options
from ascendsim.cli.values import each_once, gradients, positive
from ascendsim.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ascendsim.studies.hardware.records import StudiedLayer
    from ascendsim.workloads import Layer, Workload

# Before the user says otherwise: what a repeated kernel finds, and what one inside a large network does.
STARTS = ("warm", "handed")
DEFAULT_PRODUCT = "910B"


def add_kind(
    kinds: Any,
    name: str,
    help: str,
    description: str,
    epilog: str,
    extra_starts: tuple[str, ...] = (),
    *,
    has_table: bool = True,
) -> tuple[Any, Any]:
    """Add a study to the kinds and return it, with the group of options that say what is studied.

    extra_starts   of L2, which this study knows beside those of every call
    has_table      whether it writes a table of all calls
    """
    command = kinds.add_parser(
        name,
        help=help,
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    what = command.add_argument_group("what is studied, on what")
    add_products(what)
    what.add_argument(
        *("--network", "--workload"),
        dest="workload",
        default="resnet50",
        metavar="NAME",
        help="network by name or file (resnet50)",
    )
    what.add_argument("--batch", type=positive, default=1, help="batch (1)")
    what.add_argument("--dtype", default="float16", help="format of the tensors (float16)")
    what.add_argument("--cube-math-type", type=int, default=0, choices=range(4), help="the interface's (0)")
    what.add_argument(
        "--l2-start",
        action="append",
        choices=("warm", "cold", "handed", "chained", *extra_starts),
        help="what L2 holds when a kernel begins; repeat it for several (default: warm and handed)",
    )
    add_engine_options(command, has_table=has_table)
    return command, what


def add_products(what: Any) -> None:
    """Add the option that names the products."""
    what.add_argument(
        "--product",
        action="append",
        metavar="NAME",
        help="product, variant or .toml file (910B); repeat it to compare several",
    )


def products_of(arguments: Any) -> tuple[str, ...]:
    """Return the products that are asked about, each once.

    Raises   ConfigError for a name of no product
    """
    return each_once(arguments.product or (DEFAULT_PRODUCT,))


def one_of(what: str, why: str, found: Sequence[Any]) -> Any:
    """Return the only one of what was asked for.

    Raises   ConfigError where there are several: `what` they are, and `why` one is needed
    """
    if len(found) > 1:
        raise ConfigError(f"{why}, and {len(found)} {what} are asked for; name one of them")
    return found[0]


def starts_of(arguments: Any) -> tuple[str, ...]:
    """Return the starts of L2 that are asked for."""
    return tuple(dict.fromkeys(arguments.l2_start or STARTS))


def add_layers(what: Any) -> None:
    """Add the words that name a layer or the whole network, and the gradients."""
    what.add_argument(
        "layer",
        nargs="?",
        metavar="LAYER",
        help="a layer of the workload, a stage (s3), a pattern ('s3*') or several with commas between "
        "(none: the network)",
    )
    what.add_argument(
        "--mask",
        type=gradients,
        metavar="NAMES",
        help="gradients, such as input,weight (none: those that training asks for)",
    )
    what.add_argument(
        "--first-grad-input",
        action="store_true",
        help="make grad_input of a network's layers that read images too, which training never runs",
    )


def layers_of(arguments: Any) -> tuple[str, tuple[StudiedLayer, ...]]:
    """Return what the words name: its title, and its layers with the gradients that are made of each."""
    from ascendsim.cli.request import problem_of
    from ascendsim.studies.hardware.records import StudiedLayer
    from ascendsim.workloads import load_workload

    workload = load_workload(arguments.workload)
    rows = workload.select(arguments.layer) if arguments.layer else workload.layers
    alone = bool(arguments.layer) and len(rows) == 1
    found = []
    for row in rows:
        # As `ascendsim run` does: who names one layer wants its grad_input, whatever training asks for.
        always = alone or arguments.first_grad_input
        asked = arguments.mask or (True, *row.mask[1:])
        mask = (asked[0] and (always or row.mask[0]), *asked[1:])
        count = 1 if alone else row.count
        if any(mask):
            found.append(StudiedLayer(row.name, problem_of(row, arguments.batch), mask, count))
    return f"{layers_title(arguments.layer, rows, workload)}, batch {arguments.batch}", tuple(found)


def layers_title(words: str | None, rows: Sequence[Layer], workload: Workload) -> str:
    """Name the layers that are studied, for people: one, several by what was asked for, or the network."""
    if not words:
        return workload.title
    named = rows[0].name if len(rows) == 1 else f"{len(rows)} layers ({words})"
    return f"{named} of {workload.title}"
