"""Files of plans: a table for each gradient, whole or in part, in our names or the vendor's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ascendsim.errors import ConfigError, DataError, did_you_mean, shown
from ascendsim.files import parse_json, parse_toml, read_text, write_text
from ascendsim.frozen import FrozenMap
from ascendsim.ops.plan import Plan, form_of, plans_text
from ascendsim.ops.tiling.entries import LayerEntries, entries_in, lines_of
from ascendsim.ops.tiling.request import PartialPlan, plan_given
from ascendsim.ops.tiling.vendor.names import from_vendor, says_vendor_names, to_vendor

MADE = ("grad_input", "grad_weight", "matmul")
Plans = Mapping[str, Plan | PartialPlan | LayerEntries]


@dataclass(frozen=True)
class PlanFile:
    """The content of a file of plans.

    path     where it lies
    plans    plans by gradient ("matmul" of a matrix product), for every call
    layers   plans by gradient for single layers of a network, by the layer's name
    """

    path: Path
    plans: Plans = field(default_factory=FrozenMap)
    layers: Mapping[str, Plans] = field(default_factory=FrozenMap)

    def of_layer(self, name: str | None) -> Plans:
        """Return the plans for a layer of a network: its own, and beside them those for every call."""
        return FrozenMap({**self.plans, **self.layers.get(name or "", {})})


def read_plans(path: Path | str) -> PlanFile:
    """Read a file of plans: [grad_input] and [grad_weight], or [LAYER.grad_input] for a layer of a network.

    Or a file of the vendor's entries (runtime_kb), which say themselves which layers they are for.

    Raises   DataError if the file cannot be read as text, ConfigError naming file, table and field
    """
    path = _path(path)
    content = _content(path)
    entries = entries_in(content, path)
    if entries is not None:
        return PlanFile(path, FrozenMap(entries))
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: holds {shown(content)}; it must hold a table for each gradient")
    if not content:
        raise ConfigError(f"{path}: says no plan; it must hold a table for each gradient, as [{MADE[0]}]")
    plans: dict[str, Plan | PartialPlan] = {}
    layers: dict[str, Plans] = {}
    for name, table in content.items():
        if not isinstance(table, dict):
            raise ConfigError(
                f"{path}: {name} is {shown(table)}, outside of a table; write it under one, as [{MADE[0]}]"
            )
        if table and name not in MADE and all(isinstance(each, dict) for each in table.values()):
            layers[name] = FrozenMap(
                {made: _plan(path, each, made, f"{name}.") for made, each in table.items()}
            )
        else:
            plans[name] = _plan(path, table, name)
    return PlanFile(path, FrozenMap(plans), FrozenMap(layers))


def write_plans(path: Path | str, plans: Mapping[str, Plan], *, about: str = "", names: str = "ours") -> None:
    """Write the plans of a call, by gradient, to a file that `read_plans` and `tiling=` take.

    path     ends in .toml or .json
    plans    by gradient, such as `r.plans` of a result
    about    a comment at the top of a TOML file
    names    "ours", or "vendor": the field names of the vendor's tuning files, and ours for what these
             cannot say

    Raises   ConfigError for another ending, or a schedule that is a class; UnsupportedError where the vendor
             has no names; DataError if it cannot be written
    """
    path = _path(path)
    form = form_of(path)
    if not isinstance(plans, Mapping) or not all(isinstance(plan, Plan) for plan in plans.values()):
        rule = 'plans by what they make, such as {"grad_input": Plan(...)}, or the plans of a result'
        raise ConfigError(f"{path}: plans is {shown(plans)}; it must be {rule}")
    if not isinstance(about, str):
        raise ConfigError(f"{path}: about is {shown(about)}; it must be a text")
    values = {
        made: named_fields(made, plan, names) | {"chosen_by": plan.chosen_by} for made, plan in plans.items()
    }
    write_text(path, plans_text({"": values}, form, about))


def named_fields(made: str, plan: Plan, names: str = "ours") -> dict[str, Any]:
    """Return a plan as plain values in our names or the vendor's.

    Raises   as `write_plans`
    """
    if not isinstance(names, str) or names not in ("ours", "vendor"):
        raise ConfigError(f"names is {shown(names)}; it must be ours or vendor")
    return to_vendor(made, plan) if names == "vendor" else plan.to_dict()


LONGEST_PATH = 4096


def _path(path: Any) -> Path:
    """Return the path of a file of plans.

    Raises   ConfigError for what is no path
    """
    # No system has a path as long; a message that quoted it would be read by nobody.
    if not isinstance(path, str | Path) or not 0 < len(str(path)) <= LONGEST_PATH:
        raise ConfigError(f"path is {shown(path)}; it must name a file of plans, such as 'plans.toml'")
    return Path(path)


def _content(path: Path) -> Any:
    """Return the tables of a file, or its entries."""
    read: Callable[[str], Any] = _json if form_of(path) == "json" else parse_toml
    try:
        return read(read_text(path))
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error}); name a file of plans") from None
    except UnicodeDecodeError:
        raise DataError(f"{path}: is no text in UTF-8 that says plans") from None
    except ValueError as error:
        raise ConfigError(f"{path}: is not valid {form_of(path).upper()}: {error}") from None


def _json(text: str) -> Any:
    """Read JSON; files of entries have one object a line."""
    return lines_of(text) or parse_json(text)


def _plan(path: Path, table: Mapping[str, Any], made: str, layer: str = "") -> Plan | PartialPlan:
    """Return the plan that a table says."""
    if made not in MADE:
        hint = did_you_mean(made, MADE, f"it takes {', '.join(MADE)}, or [LAYER.{MADE[0]}]")
        raise ConfigError(f"{path}: the table {layer}{made} is for nothing that a call makes; {hint}")
    where = f"{path}: {layer}{made}"
    # A plan without fields would silently be no plan.
    if not table:
        raise ConfigError(f"{where} is empty; give fields of a plan, as base_m = 64, or leave the table out")
    plan = from_vendor(made, table, where) if says_vendor_names(table) else plan_given(table, where)
    return replace(plan, file=str(path))
