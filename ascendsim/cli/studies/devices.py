"""`ascendsim study devices`: what the all-reduce of data parallel training takes of a step."""

from __future__ import annotations

from argparse import ArgumentTypeError
from fractions import Fraction
from typing import Any

from ascendsim.cli.request import finite, positive
from ascendsim.cli.studies.output import add_kind, add_layers, layers_of, products_of
from ascendsim.errors import ConfigError

_EXAMPLES = """\
examples:
  ascendsim study devices --product 910C --batch 32
  ascendsim study devices --product 910B2 --devices 8 --batch 32 --link-gb-per-s 28 --link-latency-us 2
"""


def add_devices(kinds: Any) -> Any:
    """Add the command to the kinds of studies and return it."""
    command, what = add_kind(
        kinds,
        "devices",
        "what the all-reduce of the gradients takes of a step on several devices",
        "Time the backward of a network on each of several devices, which share the images, and the ring "
        "all-reduce of the gradients over the link between them, with and without overlap.",
        _EXAMPLES,
        starts=("step",),
    )
    add_layers(what)
    what.add_argument(
        "--devices", type=positive, metavar="N", help="devices in a ring (the dies of the package)"
    )
    what.add_argument(
        "--link-gb-per-s",
        type=_rate,
        metavar="RATE",
        help="10^9 bytes a second, each way, or a factor such as x0.5 (the product's)",
    )
    what.add_argument("--link-latency-us", type=finite, metavar="US", help="of each step (the product's)")
    what.add_argument(
        "--most", type=finite, default=1.0, metavar="PERCENT", help="of the step, which counts as none (1)"
    )
    command.set_defaults(command=devices)
    return command


def devices(arguments: Any) -> int:
    """Answer `study devices`: print the answer, and write the files that were asked for."""
    from ascendsim.cli.studies.output import engine_of, output_of, write_calls
    from ascendsim.report.studies.devices import devices_answered, devices_compared
    from ascendsim.studies.devices import study_devices
    from ascendsim.studies.devices_records import DevicesQuestion

    for name, least in (("link_gb_per_s", 0.001), ("link_latency_us", 0.0), ("most", 0.0)):
        value = getattr(arguments, name)
        if isinstance(value, (int, float)) and not value >= least:
            raise ConfigError(f"--{name.replace('_', '-')} is {value:g}; it must be {least:g} or more")
    asked = arguments.link_gb_per_s
    factor = asked if isinstance(asked, Fraction) else None
    title, layers = layers_of(arguments)
    starts = tuple(dict.fromkeys(arguments.l2_start or ("step",)))
    questions = [
        DevicesQuestion(
            title,
            product,
            layers,
            starts,
            arguments.dtype,
            arguments.cube_math_type,
            arguments.devices,
            None if factor else _exact(arguments.link_gb_per_s),
            _exact(arguments.link_latency_us),
            Fraction(str(arguments.most)) / 100,
            factor or Fraction(1),
        )
        for product in products_of(arguments)
    ]
    with engine_of(arguments) as (engine, budget):
        found = [study_devices(question, engine, budget) for question in questions]
        write_calls(arguments, engine, [point for _, points in found for point in points])
    output_of(arguments).write([answer for answer, _ in found], devices_answered, devices_compared)
    return 0


def _rate(text: str) -> float | Fraction:
    """Read a rate, or the factor of the product's own rate as a fraction."""
    if not text.startswith("x"):
        return finite(text)
    factor = Fraction(str(finite(text[1:])))
    if factor <= 0:
        raise ArgumentTypeError(f"{text!r} is no factor of a rate; give one above 0, such as x0.5")
    return factor


def _exact(value: float | None) -> Fraction | None:
    return None if value is None else Fraction(str(value))
