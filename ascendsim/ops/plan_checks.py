"""Whether a machine and a loop nest can follow a tiling: what every nest refuses alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ascendsim.arguments import shown
from ascendsim.errors import ConfigError
from ascendsim.ops.plan import Tiling

if TYPE_CHECKING:
    from ascendsim.profile import Profile


def require_whole_units(owner: str, tiling: Tiling, units: Mapping[str, int], profile: Profile) -> None:
    """Refuse a tiling that cuts through a unit of the machine, or wants cores that are not there.

    Units    field -> elements of one unit: channels of a group of C0, pixels of a fractal
    Raises   ConfigError naming the field
    """
    for name, unit in units.items():
        value = getattr(tiling, name)
        if value % unit:
            raise ConfigError(
                f"tiling of {owner}: {name} is {value}, which is no multiple of {unit}; take "
                f"{-(-value // unit) * unit}"
            )
    if tiling.used_cores > profile.cores.cube:
        raise ConfigError(
            f"tiling of {owner}: used_cores is {tiling.used_cores}, but {profile.variant} has "
            f"{profile.cores.cube} cores; take no more"
        )


def require_obeyed(owner: str, schedule: str, tiling: Tiling, reads: frozenset[str]) -> None:
    """Refuse a tiling that sets a field which the schedule does not read.

    Raises   ConfigError naming the field and the schedule
    """
    for name, value in tiling.set_fields().items():
        if name not in reads:
            raise ConfigError(
                f"tiling of {owner}: {name} is {shown(value)}, but schedule {schedule} does not read it; "
                "leave it out"
            )
