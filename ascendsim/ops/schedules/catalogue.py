"""The schedules by name."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from ascendsim.arguments import shown
from ascendsim.errors import ConfigError
from ascendsim.ops.schedules.base import Schedule
from ascendsim.ops.schedules.dgrad.c04 import DgradC04
from ascendsim.ops.schedules.dgrad.columns_outer import DgradColumnsOuter
from ascendsim.ops.schedules.dgrad.schedule import Dgrad
from ascendsim.ops.schedules.dgrad.shares import DgradShares
from ascendsim.ops.schedules.dgrad.split import DgradSplit
from ascendsim.ops.schedules.matmul import Matmul
from ascendsim.ops.schedules.wgrad.schedule import Wgrad
from ascendsim.ops.schedules.wgrad.shares import WgradShares
from ascendsim.ops.schedules.wgrad.stream import WgradStream
from ascendsim.ops.schedules.winograd.schedule import WgradWinograd

SCHEDULES: Mapping[str, type[Schedule]] = {
    kind.name: kind
    for kind in (
        *(Dgrad, DgradColumnsOuter, DgradShares, DgradSplit, DgradC04),
        *(Wgrad, WgradShares, WgradStream, WgradWinograd, Matmul),
    )
}


def schedule_named(name: str | type) -> type[Schedule]:
    """Return a schedule by its name; a class of the user's own stands for itself.

    Raises   ConfigError, with near misses
    """
    # A class needs no entry: a user's own nest is passed as it is, and no registry has to know it.
    if isinstance(name, type) and issubclass(name, Schedule):
        lacking = [what for what in ("name", "makes") if not hasattr(name, what)]
        if lacking:
            raise ConfigError(f"schedule {name.__name__} says no {' and no '.join(lacking)}")
        return name
    if isinstance(name, str) and name in SCHEDULES:
        return SCHEDULES[name]
    near = get_close_matches(shown(name), SCHEDULES, n=1)
    if near:
        hint = f"did you mean {near[0]}? A class derived from ascendsim.Schedule is taken as well"
    else:
        hint = f"it must be one of {', '.join(SCHEDULES)}, or a class derived from ascendsim.Schedule"
    raise ConfigError(f"schedule is {shown(name)}; {hint}")
