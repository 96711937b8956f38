"""`ascendsim calibrate`: move a product's ranged figures by a user's own measurements."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ascendsim.cli.request import positive
from ascendsim.errors import ConfigError, DataError

if TYPE_CHECKING:
    from ascendsim.validate.calibrate import Calibration
    from ascendsim.validate.schema import MeasuredRow, Unusable

MOST_ROWS, MOST_NAMED = 12, 8


def add_calibrate(choices: Any) -> Any:
    """Add the command to a parser's choices and return it."""
    command = choices.add_parser(
        "calibrate",
        help="narrow a product's figures by your own measurements",
        description="Fit a product's figures that have a range on measured kernels, each inside its range, "
        "judge every row by a fit of the others, and write a product file with the figures that rows settle. "
        "What that says holds of kernels like the measured ones.",
        allow_abbrev=False,
    )
    command.add_argument(
        "file", type=Path, metavar="FILE", help="kernel_details.csv, op_summary.csv, or a table of cases"
    )
    command.add_argument("--product", required=True, metavar="NAME", help="what was measured, such as 910B2")
    command.add_argument("--out", type=Path, metavar="FILE", help="product file to write, ending in .toml")
    command.add_argument(
        "--timings", type=positive, metavar="N", help="the most rows to time, in all steps (default 20,000)"
    )
    command.add_argument(
        "--workers", type=positive, default=1, metavar="N", help="processes that time rows (default 1)"
    )
    command.add_argument(
        "--rows", choices=("worst", "all"), default="worst", help="rows to list, if there are many"
    )
    command.add_argument("--json", action="store_true", help="print JSON instead of tables")
    command.set_defaults(command=calibrate)
    return command


def calibrate(arguments: Any) -> int:
    """Fit, print, and write what carries over; 1 where nothing does."""
    from hashlib import sha256

    from ascendsim.files import read_bytes, require_file, write_text
    from ascendsim.profile import load_profile
    from ascendsim.profile.files import is_file_name
    from ascendsim.progress import counted
    from ascendsim.validate.calibrate import TIMINGS, calibrated_toml
    from ascendsim.validate.calibrate import calibrate as fit

    out, product = arguments.out, arguments.product
    if out is not None:
        if out.suffix != ".toml":
            raise ConfigError(f"--out is {out}; a product file ends in .toml, as {out.with_suffix('.toml')}")
        require_file(out)
    rows = _rows(arguments.file, load_profile(product).variant)
    budget = arguments.timings or TIMINGS
    with counted() as shown:
        found = fit(rows, product, timings=budget, workers=arguments.workers, advance=shown)
    if arguments.json:
        print(json.dumps({**asdict(found), "carries_over": found.carries_over}, indent=1))
    else:
        _print(found, every=arguments.rows == "all")
    if out is not None and found.carries_over:
        # A base that is a file is found from where the new one lies.
        base = os.path.relpath(product, out.parent) if is_file_name(product) else product
        base = base if not is_file_name(product) or is_file_name(base) else f"./{base}"
        digest = sha256(read_bytes(arguments.file)).hexdigest()
        write_text(out, calibrated_toml(found, base, arguments.file.name, digest))
        if not arguments.json:
            print(f"\n{out}: {product} with these figures; give it as --product")
    return 0 if found.carries_over else 1


def _rows(path: Path, variant: str) -> list[MeasuredRow | Unusable]:
    """Read a profile or, where its first line names an id, a table of cases."""
    from ascendsim.validate.msprof import read_msprof
    from ascendsim.validate.schema import read_lines, read_rows

    columns, _ = read_lines(path, "calibrate takes a profile of msprof or a table of cases")
    if "id" in columns:
        return read_rows(path)
    if not {"Name", "Op Name"} & set(columns):
        raise DataError(
            f"{path}: the first line has neither id, as a table of cases, nor Name or Op Name, as "
            "kernel_details.csv and op_summary.csv of msprof; give one of these"
        )
    return read_msprof(path, variant)


def _print(found: Calibration, *, every: bool) -> None:
    """Print the answer, what was settled and by what, what stays unknown, and the rows."""
    from ascendsim.report.tables import bounds
    from ascendsim.report.terminal import make_console, print_table, print_text
    from ascendsim.report.validation import reason_lines
    from ascendsim.studies.table import Table, form, numbers, text_table, words
    from ascendsim.validate.run import Validation

    out = make_console()
    print_text(out, _answer(found))
    if found.figures:
        headings = ("figure", "before", "range", "after", "range", "rows", "moved most, over the old range")
        told = [
            (
                " and ".join(figure.paths),
                f"{figure.before:g}",
                bounds(figure.range_before),
                f"{figure.after:g}",
                bounds(figure.range_after),
                str(len(figure.rows)),
                _moves(figure.rows),
            )
            for figure in found.figures
        ]
        print_table(out, text_table("Figures that rows settle", headings, (0, 6), told))
    for what, paths in (
        ("Moved by rows, but not settled by them", found.unsettled),
        ("Moved by no row", found.unmoved),
    ):
        more = f" and {len(paths) - MOST_NAMED} more" if len(paths) > MOST_NAMED and not every else ""
        shown = paths if every else paths[:MOST_NAMED]
        if paths:
            out.print()
            print_text(out, f"{what}: {', '.join(shown)}{more}. They stay as they are.")
    for said in found.missing:
        out.print()
        print_text(out, f"{said}.")
    rows = sorted(found.rows, key=lambda row: -abs(row.left_out))
    title = "Rows, by their error when left out"
    if len(rows) > MOST_ROWS and not every:
        title, rows = f"{title}: {MOST_ROWS} of {len(rows)}", rows[:MOST_ROWS]
    percent = form("+.1%")
    columns = [
        *(words("row", "id"), words("kernel"), numbers("before", show=percent)),
        *(numbers("after", show=percent), numbers("left out", "left_out", percent)),
        words("moved most by", "figures", show=_moves),
    ]
    print_table(out, Table.of(title, columns, rows))
    if found.unusable:
        out.print()
        print_text(out, f"Not used: {len(found.unusable)} rows")
        for line in reason_lines(Validation((), found.unusable)):
            print_text(out, line)


def _moves(moves: Sequence[tuple[str, float]]) -> str:
    return ", ".join(f"{name} {move:+.0%}" for name, move in moves[:2])


def _answer(found: Calibration) -> str:
    """Say in sentences what the rows settle, and whether that holds of rows that a fit did not see."""
    ranged = len(found.unsettled) + len(found.unmoved) + sum(len(figure.paths) for figure in found.figures)
    settled = sum(len(figure.paths) for figure in found.figures)
    before, after, left_out = (found.error(which) for which in ("before", "after", "left_out"))
    # As the table of rows shows them.
    gains = [round(abs(row.before), 3) - round(abs(row.left_out), 3) for row in found.rows]
    nearer, further = sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)
    said = (
        f"{len(found.rows)} rows settle {settled} of {ranged} figures that have a range on {found.product}. "
        f"Median error {before:.1%} before, {after:.1%} after; {left_out:.1%} of each row by figures that "
        f"the others give ({'fitted anew' if found.exact else 'by the fit in its last linear form'}): "
        f"{nearer} of them nearer than before, {further} further off."
    )
    if not found.whole:
        said += " The timings are spent: these are the best figures so far; --timings allows more."
    if not found.figures:
        return f"{said} Nothing is to be written."
    if not found.carries_over:
        old, out = (found.mean_error(which) for which in ("before", "left_out"))
        return (
            f"{said} On average rows left out are further off than before (logarithms {out:.3f}, not "
            f"{old:.3f}): nothing is to be written."
        )
    return said
