"""Plans as plain values and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ascendsim.ops.plan import Plan


def plan_values(plan: Plan) -> dict[str, Any]:
    """Return a plan as plain values: those of `Plan.to_dict`, and who chose it.

    Raises   ConfigError for a schedule that is a class: another day may find another one under its name
    """
    return {**plan.to_dict(), "chosen_by": plan.chosen_by}


def plan_of(values: Mapping[str, Any]) -> Plan:
    """Return the plan that `plan_values` made these of."""
    said = dict(values)
    chosen_by = said.pop("chosen_by")
    return replace(Plan.from_dict(said), chosen_by=chosen_by)


def plan_text(values: Mapping[str, Any]) -> str:
    """Return plain values of a plan on one line, without who chose it."""
    words = (f"{name}={value}" for name, value in values.items() if name not in ("schedule", "chosen_by"))
    return " ".join((values["schedule"], *words))
