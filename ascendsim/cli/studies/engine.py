"""The words that all studies share, and the engine that answers their points."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ascendsim.cli.values import natural, positive

if TYPE_CHECKING:
    from ascendsim.report.page.records import Page
    from ascendsim.studies.engine.run import Budget, Engine


def add_engine_options(command: Any, *, has_table: bool = True) -> None:
    """Add what every study takes: who computes, how much, where answers are kept, what is written.

    has_table   whether the study writes a table of all calls; else its help says nothing of one
    """
    how = command.add_argument_group("how much, and by whom")
    how.add_argument(
        *("--jobs", "--workers"),
        dest="jobs",
        type=positive,
        metavar="N",
        help="processes (default: one for each core); --workers is the same",
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
    how.add_argument(
        "--store",
        type=Path,
        metavar="FILE",
        help="where answers are kept: no point is computed twice (default: a file in the user's cache)",
    )
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
    """Give the engine and the budget that the options ask for; how much was computed is told at the end.

    On standard error: a second run of the same study says 0 there, and prints the same answer.
    """
    from ascendsim.progress import counted
    from ascendsim.report.files import make_folder, require_file, require_folder
    from ascendsim.studies.engine.run import Budget, Engine
    from ascendsim.studies.engine.store import Store
    from ascendsim.studies.engine.table import require_table_name

    # What cannot be written is told before the work.
    if arguments.table is not None:
        require_table_name(arguments.table)
        require_folder(arguments.table.parent)
        # Some places refuse for reasons of their own, which only shows when one tries.
        make_folder(arguments.table.parent)
        require_file(arguments.table)
    if arguments.out is not None:
        require_folder(arguments.out)
        make_folder(arguments.out)

    with Store(arguments.store or _default_store()) as store, counted() as tell:

        def advance(done: int, total: int, point: Any) -> None:
            tell(done, total, point.label)

        yield (
            Engine(store, arguments.jobs, arguments.scheduler, advance),
            Budget(arguments.time, arguments.trials),
        )
    kept = arguments.store or "the user's cache"
    points = "1 point" if tell.computed == 1 else f"{tell.computed} points"
    print(f"{points} computed, the rest taken from {kept}", file=sys.stderr)


def write_study_page(arguments: Any, page: Page) -> None:
    """Write the page of a study where one is asked for, and say where it is."""
    if arguments.out is None:
        return
    from ascendsim.report.page.html import write_page

    path = arguments.out / "study.html"
    write_page(path, page)
    # JSON is for another program: nothing else stands beside it.
    print(f"\nPage in {path}", file=sys.stderr if arguments.json else sys.stdout)


def _default_store() -> Path | None:
    """Return a file in the user's cache for answers of this very code; None without a place for one."""
    from ascendsim.native.folder import mark_used, remove_unused, usable_folder
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
