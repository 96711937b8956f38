"""Plans as plain values and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from ascendsim.errors import ConfigError
from ascendsim.ops.plan import Plan, Tiling


def plan_values(plan: Plan) -> dict[str, Any]:
    """Return a plan as plain values: its schedule, fields without a default, and those not at theirs.

    Raises   ConfigError for a schedule that is a class: another day may find another one under its name
    """
    if not isinstance(plan.schedule, str):
        raise ConfigError(
            f"a study takes schedules by name, not the class {plan.schedule.__name__}; estimate it directly"
        )
    required = {f.name: getattr(plan.tiling, f.name) for f in fields(Tiling) if f.default is MISSING}
    return {"schedule": plan.schedule, **required, **plan.tiling.set_fields(), "chosen_by": plan.chosen_by}


def plan_of(values: Mapping[str, Any]) -> Plan:
    """Return the plan that `plan_values` made these of."""
    tiling = {name: value for name, value in values.items() if name not in ("schedule", "chosen_by")}
    return Plan(values["schedule"], Tiling(**tiling), values["chosen_by"])


def plan_text(values: Mapping[str, Any]) -> str:
    """Return plain values of a plan on one line, without who chose it."""
    words = (f"{name}={value}" for name, value in values.items() if name not in ("schedule", "chosen_by"))
    return " ".join((values["schedule"], *words))
