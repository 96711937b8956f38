"""`ascendsim validate`: hold the model against measured cases."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ascendsim.errors import ConfigError, DataError
from ascendsim.progress import progress

if TYPE_CHECKING:
    from ascendsim.validate.run import Validation
    from ascendsim.validate.schema import MeasuredRow, Unusable

CLASSES = ("primitives", "matmul", "convolution", "layouts", "calls")
# In the folder that ASCENDSIM_DATA names: the columns, or the words that they are made of.
TABLES = ("measured_rows.csv", "silicon.csv")


def add_validate(choices: Any) -> Any:
    """Add the command to a parser's choices and return it."""
    command = choices.add_parser(
        "validate",
        help="hold the model against measured cases",
        description="Run the model on measured cases and print measured against estimated, per row and per "
        "class. Without --data and --msprof: the table that ASCENDSIM_DATA names, or the rows quoted here.",
        allow_abbrev=False,
    )
    command.add_argument("--data", type=Path, metavar="FILE", help="a table of measured cases")
    command.add_argument(
        "--msprof", type=Path, metavar="FILE", help="your own profile: kernel_details.csv or op_summary.csv"
    )
    command.add_argument("--product", metavar="NAME", help="with --msprof: the product the profile is of")
    command.add_argument(
        "--class",
        dest="classes",
        action="append",
        choices=CLASSES,
        metavar="CLASS",
        help=f"a class of cases: {', '.join(CLASSES)}; repeat it for several (default: all)",
    )
    command.add_argument(
        "--rows", choices=("worst", "all"), default="worst", help="rows of large groups to list"
    )
    command.add_argument(
        "--grid-from-row",
        action="store_true",
        help="cut gradients into the blocks that their rows say, not into those of the rules",
    )
    command.add_argument("--json", action="store_true", help="print JSON instead of tables")
    command.add_argument(
        "--out", type=Path, metavar="DIR", help="write validation.md and validation.png there"
    )
    command.set_defaults(command=validate)
    return command


def validate(arguments: Any) -> int:
    """Compare and print."""
    from ascendsim.files import require_folder

    if arguments.out:
        require_folder(arguments.out)
    rows = _rows(arguments)
    outcome = _compare(rows, arguments.classes or CLASSES, grid_from_row=arguments.grid_from_row)
    if not outcome.cases:
        raise DataError(_nothing(outcome, arguments.classes or CLASSES, len(rows)))
    if arguments.json:
        from ascendsim.report.validation import outcome_record

        print(json.dumps(outcome_record(outcome), indent=1))
    else:
        from ascendsim.report.validation import print_validation

        print_validation(outcome, every=arguments.rows == "all")
    if arguments.out:
        from ascendsim.report.folder import write_validation
        from ascendsim.validate.run import quoted_rows

        write_validation(arguments.out, _compare(quoted_rows(), CLASSES), outcome)
    return 0


def _nothing(outcome: Validation, classes: Sequence[str], count: int) -> str:
    """Say why nothing was compared: the reason of every row, or that there are none of the classes."""
    wanted = " or ".join(classes)
    if not outcome.unusable:
        return (
            f"no row of {wanted} among the {count} given; the rows quoted in the project hold copies and "
            "matrix products only: name a table with --data"
        )
    from ascendsim.report.validation import reason_lines

    first = f"no row of {wanted} can be compared among the {count} given; mend these or name others:"
    return "\n".join((first, *reason_lines(outcome)))


def _rows(arguments: Any) -> list[MeasuredRow | Unusable]:
    """Return the rows that were asked for.

    Raises   ConfigError if options do not fit together
    """
    from ascendsim.validate.msprof import read_msprof
    from ascendsim.validate.run import quoted_rows
    from ascendsim.validate.schema import read_rows

    if arguments.msprof:
        if arguments.data:
            raise ConfigError("--data and --msprof cannot be combined; validate them one after the other")
        if not arguments.product:
            raise ConfigError("--msprof needs --product, the variant that was profiled, such as 910B2")
        from ascendsim.profile import load_profile

        return read_msprof(arguments.msprof, load_profile(arguments.product).variant)
    if arguments.product:
        raise ConfigError("--product goes with --msprof; a table of cases names the product of every row")
    path = arguments.data or data_table()
    return read_rows(path) if path else quoted_rows()


def data_table() -> Path | None:
    """Return the table that ASCENDSIM_DATA names: a file, or one of TABLES in a folder; None if unset.

    Raises   DataError if it names neither
    """
    named = os.environ.get("ASCENDSIM_DATA")
    if not named:
        return None
    path = Path(named)
    found = next((p for p in (path, *(path / table for table in TABLES)) if p.is_file()), None)
    if found is None:
        raise DataError(
            f"ASCENDSIM_DATA names {named}, neither a table nor a folder with {' or '.join(TABLES)}"
        )
    return found


def _compare(rows: list[MeasuredRow | Unusable], classes: Any, *, grid_from_row: bool = False) -> Validation:
    from ascendsim.validate.run import compare_rows

    with progress(len(rows)) as advance:
        return compare_rows(rows, classes, advance, grid_from_row=grid_from_row)
