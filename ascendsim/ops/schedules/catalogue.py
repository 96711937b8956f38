"""The schedules by name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Final

from ascendsim.arguments import shown
from ascendsim.errors import ConfigError, close_matches
from ascendsim.ops.schedules.base import Schedule

# By name: the module and the class. One is imported when it is first asked for, as a call takes one or two.
SCHEDULES: Final[Mapping[str, tuple[str, str]]] = {
    "dgrad": ("dgrad.schedule", "Dgrad"),
    "dgrad_columns_outer": ("dgrad.schedule", "DgradColumnsOuter"),
    "dgrad_shares": ("dgrad.shares", "DgradShares"),
    "dgrad_split": ("dgrad.split", "DgradSplit"),
    "dgrad_c04": ("dgrad.shares", "DgradC04"),
    "dgrad_passes": ("dgrad.passes", "DgradPasses"),
    "wgrad": ("wgrad.schedule", "Wgrad"),
    "wgrad_fractals": ("wgrad.fractals", "WgradFractals"),
    "wgrad_shares": ("wgrad.shares", "WgradShares"),
    "wgrad_stream": ("wgrad.stream", "WgradStream"),
    "wgrad_taps": ("wgrad.taps", "WgradTaps"),
    "wgrad_winograd": ("winograd.schedule", "WgradWinograd"),
    "matmul": ("matmul", "Matmul"),
}


def schedule_named(name: str | type) -> type[Schedule]:
    """Return a schedule by its name; a class of the user's own stands for itself.

    Raises   ConfigError, with near misses
    """
    # A class needs no entry: a user's own nest is passed as it is, and no registry has to know it.
    if isinstance(name, type) and issubclass(name, Schedule):
        if not hasattr(name, "makes"):
            raise ConfigError(
                f'schedule {name.__name__} does not say what it makes; give it makes = "grad_input", '
                "or derive it from Dgrad or Wgrad"
            )
        return name
    if isinstance(name, str) and name in SCHEDULES:
        return _imported(name)
    near = close_matches(shown(name), SCHEDULES, n=1)
    if near:
        hint = f"did you mean {near[0]}? A class derived from ascendsim.Schedule is taken as well"
    else:
        hint = f"it must be one of {', '.join(SCHEDULES)}, or a class derived from ascendsim.Schedule"
    raise ConfigError(f"schedule is {shown(name)}; {hint}")


@cache
def _imported(name: str) -> type[Schedule]:
    module, kind = SCHEDULES[name]
    found: type[Schedule] = getattr(import_module(f"ascendsim.ops.schedules.{module}"), kind)
    return found
