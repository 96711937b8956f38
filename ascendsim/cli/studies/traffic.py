"""`ascendsim study traffic` and `ascendsim study why`: where the bytes of a call go, and what binds it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ascendsim.cli.request import positive
from ascendsim.cli.studies.output import add_kind, add_layers, layers_of, one_of, products_of

if TYPE_CHECKING:
    from ascendsim.studies.table import Table

_START = "step"
_TRAFFIC_EXAMPLES = """\
examples:
  ascendsim study traffic s4b1_3x3 --batch 32
  ascendsim study traffic --batch 32 --product mine.toml --table bytes.csv --out page
"""
_WHY_EXAMPLES = """\
examples:
  ascendsim study why s4b1_3x3 --batch 32
  ascendsim study why s4b1_3x3 --batch 32 --mask weight --l2-start warm --table levers.csv
"""


def add_traffic(kinds: Any) -> Any:
    """Add `study traffic` to the kinds of studies and return it."""
    command, what = add_kind(
        kinds,
        "traffic",
        "bytes read and written at every level, by operand, and the energy they take",
        "Count the bytes of each kernel at L0A, L0B, L0C, L1, UB, L2 and memory, by operand. A byte, a "
        "multiply-add and a cycle take the energy that the product file gives in its [energy] table.",
        _TRAFFIC_EXAMPLES,
        several=False,
        has_engine=False,
        starts=(_START,),
    )
    add_layers(what)
    command.set_defaults(command=traffic)
    return command


def add_why(kinds: Any) -> Any:
    """Add `study why` to the kinds of studies and return it."""
    command, what = add_kind(
        kinds,
        "why",
        "why a layer is slow: its time with each figure of the product halved, and the next bounds",
        "Time one layer with each figure of the product halved, plans held; show the figures that move it "
        "most, what binds each kernel, and what would bind it next.",
        _WHY_EXAMPLES,
        several=False,
        has_engine=False,
        starts=(_START,),
    )
    add_layers(what)
    what.add_argument("--jobs", type=positive, metavar="N", help="processes (default: one for each core)")
    command.set_defaults(command=why)
    return command


def traffic(arguments: Any) -> int:
    """Count, print, and write what was asked for."""
    from ascendsim.cli.studies.output import output_of
    from ascendsim.progress import progress
    from ascendsim.report.studies.traffic import bytes_table, traffic_answered
    from ascendsim.studies.accounts import TrafficQuestion
    from ascendsim.studies.traffic import estimate_call, study_traffic

    _require_paths(arguments)
    title, layers = layers_of(arguments)
    question = TrafficQuestion(title, _product(arguments), layers)
    with progress(len(layers)) as advance:
        answer = study_traffic(question, partial(estimate_call, _options(arguments)), advance)
    output_of(arguments).write([answer], traffic_answered)
    _write_table(arguments, bytes_table(answer))
    return 0


def why(arguments: Any) -> int:
    """Time the layer with other figures, print, and write what was asked for."""
    from ascendsim.cli.studies.output import output_of
    from ascendsim.profile import load_profile
    from ascendsim.progress import progress
    from ascendsim.report.studies.traffic import levers_table, why_answered
    from ascendsim.studies.accounts import SHOWN, LeverQuestion
    from ascendsim.studies.levers import steps_of, study_levers
    from ascendsim.studies.traffic import estimate_call

    _require_paths(arguments)
    title, layers = layers_of(arguments)
    layer = one_of("layers", "the figures of one call are changed", layers)
    question = LeverQuestion(title, _product(arguments))
    call = partial(estimate_call, _options(arguments), layer)
    # Those that move most are changed the other way, too.
    with progress(len(steps_of(load_profile(question.product))) + SHOWN) as advance:
        answer = study_levers(question, call, arguments.jobs, advance)
    output_of(arguments).write([answer], why_answered)
    _write_table(arguments, levers_table(answer))
    return 0


def _product(arguments: Any) -> str:
    return str(one_of("products", "one product is looked at", products_of(arguments)))


def _options(arguments: Any) -> dict[str, Any]:
    """Return the keywords of the estimate of one call."""
    starts = arguments.l2_start or [_START]
    return {
        "l2_start": one_of("starts of L2", "one call is looked at", starts),
        "dtype": arguments.dtype,
        "cube_math_type": arguments.cube_math_type,
    }


def _require_paths(arguments: Any) -> None:
    """Refuse files that cannot be written before the work."""
    from ascendsim.files import require_folder
    from ascendsim.studies.table import require_table_name

    if arguments.table is not None:
        require_table_name(arguments.table)
        require_folder(arguments.table.parent)
    if arguments.out is not None:
        require_folder(arguments.out)


def _write_table(arguments: Any, table: Table) -> None:
    if arguments.table is not None:
        table.write(arguments.table)
