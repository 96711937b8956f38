"""The options that all studies take, and who computes and writes their answers."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ascendsim.cli.request import (
    Wrapped,
    add_budgets,
    add_products,
    budgets_of,
    each_once,
    gradients,
    l2_start,
    natural,
    positive,
)
from ascendsim.errors import ConfigError
from ascendsim.ops.options.keywords import Keywords

if TYPE_CHECKING:
    from ascendsim.report.studies.answer import Output
    from ascendsim.studies.engine.point import StudyPoint
    from ascendsim.studies.engine.run import Budget, Engine
    from ascendsim.studies.hardware.records import StudiedLayer
    from ascendsim.workloads import Layer, Workload


def add_engine_options(command: Any, *, has_table: bool = True) -> None:
    """Add the options of every study: workers, budget, the store of answers, files to write.

    has_table   whether the study writes a table of all calls; else its help says nothing of one
    """
    how = command.add_argument_group("how much, and by whom")
    how.add_argument(
        *("--jobs", "--workers"),
        dest="jobs",
        type=positive,
        metavar="N",
        help="processes (default: one for each core); --workers means the same",
    )
    how.add_argument(
        "--scheduler", default="", metavar="ADDRESS", help="Dask scheduler to send points to, in their place"
    )
    how.add_argument(
        "--time", type=seconds, metavar="SECONDS", help="begin no new point after so long; run again to go on"
    )
    how.add_argument(
        "--trials",
        type=natural,
        metavar="N",
        help="compute at most N new points in all, of which each is one call (in `study precision` a case); "
        "what is kept does not count; run again to go on",
    )
    add_budgets(how)
    how.add_argument(
        "--store",
        type=Path,
        metavar="FILE",
        help="where answers are kept: no point is computed twice (default: a file in the user's cache)",
    )
    _add_outputs(command, has_table=has_table)


def _add_outputs(command: Any, *, has_table: bool) -> None:
    out = command.add_argument_group("what to write")
    out.add_argument("--json", action="store_true", help="print JSON instead of tables")
    table = "write every call: a name in .csv or .parquet" if has_table else argparse.SUPPRESS
    out.add_argument("--table", type=Path, metavar="FILE", help=table)
    out.add_argument("--out", type=Path, metavar="DIR", help="write the page there, as study.html")


def seconds(text: str) -> float:
    """Read a number of seconds of 0 or more."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds of 0 or more")
    return number


@contextmanager
def engine_of(arguments: Any) -> Iterator[tuple[Engine, Budget]]:
    """Yield the engine and the budget of the options; at the end, print how many points were computed.

    On standard error: a second run of the same study says 0 there, and prints the same answer.
    """
    from ascendsim.files import make_folder, require_file, require_folder
    from ascendsim.progress import counted
    from ascendsim.studies.engine.measure import measure
    from ascendsim.studies.engine.run import Budget, Engine, Store
    from ascendsim.studies.table import require_table_name

    # Paths that cannot be written are refused before the work.
    if arguments.table is not None:
        require_table_name(arguments.table)
        require_folder(arguments.table.parent)
        # Some places refuse for reasons of their own, which only shows when one tries.
        make_folder(arguments.table.parent)
        require_file(arguments.table)
    if arguments.out is not None:
        require_folder(arguments.out)
        make_folder(arguments.out)

    limits = budgets_of(arguments)
    compute = partial(measure, limits=limits)
    with Store(arguments.store or _default_store()) as store, counted(arguments.trials) as tell:

        def advance(done: int, total: int, point: Any) -> None:
            tell(done, total, point.label)

        yield (
            Engine(store, arguments.jobs, arguments.scheduler, advance, compute, limits),
            Budget(arguments.time, arguments.trials),
        )
    kept = arguments.store or "the user's cache"
    points = "1 point" if tell.computed == 1 else f"{tell.computed} points"
    again = f" ({store.damaged} of them again: what was kept is damaged)" if store.damaged else ""
    print(f"{points} computed{again}, the rest taken from {kept}", file=sys.stderr)


def output_of(arguments: Any) -> Output:
    """Return where the options want answers to be written."""
    from ascendsim.report.studies.answer import Output

    return Output(arguments.words, arguments.json, arguments.out)


def write_calls(arguments: Any, engine: Engine, points: Sequence[StudyPoint]) -> None:
    """Write a row for each kernel of each call of a study where a table is asked for."""
    if arguments.table is not None:
        from ascendsim.studies.engine.run import calls_table

        # All of them are kept by now, so that nothing is computed.
        calls_table(engine.answer(points)).write(arguments.table)


def _default_store() -> Path | None:
    """Return a file in the user's cache for answers of this very code; None without a place for one."""
    from ascendsim.native.cache import mark_used, remove_unused, usable_folder
    from ascendsim.studies.engine.point import code_version

    folder = usable_folder("studies", "")
    if folder is None:
        return None
    # Answers of other code are of no use to this one; whoever goes back and forth keeps both for a day.
    path = folder / f"{code_version()[:16]}.sqlite"
    remove_unused(other for other in folder.iterdir() if not other.name.startswith(path.name))
    path.touch()
    mark_used(path)
    return path


# Before the user says otherwise: what a repeated kernel finds, and what a call in a training step does.
STARTS = ("warm", "step")


def add_command(kinds: Any, name: str, help: str, description: str, epilog: str) -> Any:
    """Add a study to the kinds and return it, without options."""
    return kinds.add_parser(
        name, help=help, description=description, epilog=epilog, formatter_class=Wrapped, allow_abbrev=False
    )


def add_kind(
    kinds: Any,
    name: str,
    help: str,
    description: str,
    epilog: str,
    extra_starts: tuple[str, ...] = (),
    *,
    has_table: bool = True,
    several: bool = True,
    has_engine: bool = True,
    starts: tuple[str, ...] = STARTS,
) -> tuple[Any, Any]:
    """Add a study to the kinds and return it, with the group of options that name the subject.

    extra_starts   of L2, which this study knows beside those of every call
    has_table      whether it writes a table of all calls
    several        whether it compares products
    has_engine     whether points are kept, and sent to workers
    starts         of L2, where the user names none
    """
    command = add_command(kinds, name, help, description, epilog)
    what = command.add_argument_group("what is studied, on what")
    add_products(what, several=several)
    what.add_argument(
        *("--network", "--workload"),
        dest="workload",
        default="resnet50",
        metavar="NAME",
        help="network by name or file (resnet50)",
    )
    what.add_argument("--batch", type=positive, help="batch (that of the network's file, or 1)")
    what.add_argument("--dtype", default="float16", help="format of the tensors (float16)")
    what.add_argument("--cube-math-type", type=int, default=0, choices=range(4), help="the interface's (0)")
    what.add_argument(
        "--l2-start",
        action="append",
        type=partial(l2_start, more=extra_starts),
        metavar="WHAT",
        help="what L2 holds: words or operands, as of `ascendsim run`"
        + "".join(f", or {word}" for word in extra_starts)
        + f"; repeat it for several (default: {' and '.join(starts)})",
    )
    if has_engine:
        add_engine_options(command, has_table=has_table)
    else:
        _add_outputs(command, has_table=has_table)
    return command, what


def products_of(arguments: Any) -> tuple[str, ...]:
    """Return the products that are asked about, each once.

    Raises   ConfigError for a name of no product
    """
    return each_once(arguments.product or (str(Keywords.product),))


def one_of(what: str, why: str, found: Sequence[Any]) -> Any:
    """Return the single value of an option.

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


def layers_of(arguments: Any, *, convolutions: bool = False) -> tuple[str, tuple[StudiedLayer, ...]]:
    """Return the title of the named workload, and its layers, each with the gradients to be made.

    convolutions   whether the study knows convolutions alone; of a network, or of a pattern, the title says
                   what is left out, and a layer of another kind that is named is a ConfigError
    """
    from ascendsim.cli.request import convolution_of, convolutions_of, left_out_words, problem_of
    from ascendsim.studies.hardware.records import StudiedLayer
    from ascendsim.workloads import load_workload

    workload = load_workload(arguments.workload)
    rows = workload.select(arguments.layer) if arguments.layer else workload.layers
    studied = replace(workload, layers=rows, left_out=()) if arguments.layer else workload
    if convolutions:
        studied = convolutions_of(studied, arguments.layer)
    alone = bool(arguments.layer) and len(rows) == 1
    batch = arguments.batch or workload.batch or 1
    found = []
    for row in studied.layers:
        # As `ascendsim run` does: who names one layer wants its grad_input, whatever training asks for.
        always = alone or arguments.first_grad_input
        asked = arguments.mask or (True, *row.mask[1:])
        mask = (asked[0] and (always or row.mask[0]), *asked[1:])
        count = 1 if alone else row.count
        problem = (convolution_of if convolutions else problem_of)(row, batch)
        if any(mask):
            found.append(StudiedLayer(row.name, problem, mask, count))
    title = f"{layers_title(arguments.layer, rows, workload)}, batch {batch}"
    return title + left_out_words(studied), tuple(found)


def layers_title(words: str | None, rows: Sequence[Layer], workload: Workload) -> str:
    """Name the layers that are studied, for people: one, several by what was asked for, or the network."""
    if not words:
        return workload.title
    named = rows[0].name if len(rows) == 1 else f"{len(rows)} layers ({words})"
    return f"{named} of {workload.title}"
