"""A plan that says some things and leaves the rest to the rules: what was given, read and checked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ascendsim.arguments import shown, whole
from ascendsim.errors import ConfigError
from ascendsim.frozen import FrozenMap
from ascendsim.ops.plan import WHOLE, Plan, Tiling, require_fields

if TYPE_CHECKING:
    from ascendsim.ops.problems.convolution import ConvProblem

# What a partial plan may say besides the fields of a tiling.
BESIDE = ("schedule", "block_dim")
_ANY = {"base_m": 1, "base_n": 1, "base_k": 1}


@dataclass(frozen=True)
class PartialPlan:
    """What a user fixes of a plan.

    fields     fields of a tiling, by name
    schedule   name or class of the loop nest; None: that of the rules
    block_dim  blocks that the kernel is launched with, as msprof counts them: the rules plan for so many
               cores. 0: all cores
    file       the file of plans that it was read from; "": none

    Raises     ConfigError for a value that no tiling takes, or a grid of another number of blocks
    """

    fields: Mapping[str, Any] = field(default_factory=FrozenMap)
    schedule: str | type | None = None
    block_dim: int = 0
    file: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        """Refuse what no tiling takes."""
        if not isinstance(self.fields, Mapping):
            rule = 'fields of a tiling by name, such as {"base_m": 64}'
            raise ConfigError(f"tiling: fields is {shown(self.fields)}; it must be {rule}")
        require_fields("tiling", self.fields)
        blocks = whole(self.block_dim)
        if blocks is None or blocks < 0:
            raise ConfigError(
                f"tiling: block_dim is {shown(self.block_dim)}; it must be a whole number, 0 for all cores"
            )
        # What a field may be, a tiling says itself: here of one whose other fields do not matter.
        made = Tiling(**{**_ANY, **self.fields})
        object.__setattr__(self, "fields", FrozenMap({name: getattr(made, name) for name in self.fields}))
        if self.block_dim and made.cells > self.block_dim:
            raise ConfigError(
                f"tiling: the grid has {made.cells} cells, but block_dim is {self.block_dim}; leave one of "
                "them out"
            )


class LayerPlans(ABC):
    """What is given for some layers of a network; a call takes that of its own layer."""

    @abstractmethod
    def of(self, problem: ConvProblem, compute_dtype: str) -> PartialPlan | None:
        """Return what is given for a layer; None: nothing."""


def is_plan_file(given: object) -> bool:
    """Tell the name of a file of plans from the name of a strategy."""
    return isinstance(given, Path) or (isinstance(given, str) and given.endswith((".toml", ".json")))


def plan_given(values: Mapping[str, Any], where: str = "tiling") -> Plan | PartialPlan:
    """Return the plan that a table of fields says: whole if it names a schedule and what every nest reads.

    values   fields of a tiling, `schedule` and `block_dim`
    where    the place that a message names

    Raises   ConfigError naming the place, what was got, and the rule
    """
    require_fields(where, values, BESIDE)
    fields = {name: value for name, value in values.items() if name not in BESIDE}
    schedule, block_dim = values.get("schedule"), whole(values.get("block_dim", 1))
    if schedule is not None and not isinstance(schedule, str | type):
        raise ConfigError(f"{where}: schedule is {shown(schedule)}; it must be a name or a class")
    if block_dim is None or block_dim < 1:
        given = shown(values["block_dim"])
        raise ConfigError(
            f"{where}: block_dim is {given}; it must be a positive integer, the blocks launched"
        )
    try:
        if schedule and "block_dim" not in values and all(name in fields for name in WHOLE):
            return Plan(schedule, Tiling(**fields))
        return PartialPlan(fields, schedule, block_dim if "block_dim" in values else 0)
    except ConfigError as error:
        raise ConfigError(str(error).replace("tiling:", f"{where}:", 1)) from None
