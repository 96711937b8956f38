"""The plans of a call: what the user gives of them, the rest chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ascendsim.errors import ConfigError, shown
from ascendsim.ops.plan import USER, Plan, Tiling, saying_whose
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.schedules.base import schedule_named
from ascendsim.ops.tiling.choose import choose
from ascendsim.ops.tiling.request import LayerPlans, PartialPlan, PlanRequest, plan_given

Given = Mapping[str, Any]
# The nest of a tiling that is given without one.
USUAL = {"grad_input": "dgrad", "grad_weight": "wgrad", "matmul": "matmul"}


def plan_of(request: PlanRequest, tiling: Any = None, schedule: Any = None) -> Plan:
    """Return the plan of one gradient of a call: the user's schedule and tiling, where given, else chosen.

    tiling     as `tilings_given` has it: a Plan, a Tiling, a part of a plan, or a strategy
    schedule   a nest by its name, or a class

    Raises   CapacityError if no tile fits into the buffers; ConfigError for a plan of another gradient
    """
    with saying_whose(request.gradient, tiling if isinstance(tiling, Plan | PartialPlan) else None):
        plan = _plan(request, tiling, schedule)
    # The nest of matrix products makes those gradients that are one.
    by_product = schedule_named(plan.schedule).makes == "matmul" and request.as_product is not None
    if not by_product:
        _require_makes(plan.schedule, request.gradient)
    return plan


def _plan(request: PlanRequest, tiling: Any, schedule: Any) -> Plan:
    """Return the plan: the given fields, and the rest chosen."""
    if isinstance(tiling, LayerPlans):
        # A matrix product has no layer, and a file of entries none for it.
        problem = request.problem
        tiling = tiling.of(problem, request.compute_dtype) if isinstance(problem, ConvProblem) else None
    strategy = tiling if isinstance(tiling, str) else "product"
    if isinstance(tiling, Plan):
        return replace(tiling, schedule=schedule or tiling.schedule, chosen_by=USER, instead="")
    # A tiling without a nest is for the usual one: those of the products read fields of their own.
    if isinstance(tiling, Tiling):
        return Plan(schedule or USUAL[request.gradient], tiling, chosen_by=USER)
    partial = isinstance(tiling, PartialPlan)
    # A nest that the user names is one of convolution kernels.
    by_rule = strategy == "product" and not partial and not schedule
    if by_rule and request.as_product:
        return choose(request.as_product, "interface")
    chosen = None if partial else choose(request, strategy)
    if chosen is not None and schedule:
        known = _of_another_kind(chosen, schedule) or _knows(schedule, chosen.tiling)
        # A nest of the user's own may not know what the product's plan says; the search says the least.
        chosen = chosen if known else choose(request, "search")
        if _of_another_kind(chosen, schedule):
            # As a plan with the nest alone given.
            tiling = PartialPlan({})
    if isinstance(tiling, PartialPlan):
        # Imported here: few calls give a part of a plan.
        from ascendsim.ops.tiling.complete import completed

        if schedule or tiling.schedule:
            tiling = replace(tiling, schedule=schedule or tiling.schedule)
            _require_makes(tiling.schedule, request.gradient)
        return completed(replace(request, fixed=tiling, group_merge=tiling.fields.get("group_merge", 0)))
    assert chosen is not None
    return replace(chosen, schedule=schedule).given_in_part() if schedule else chosen


def _knows(schedule: str | type, tiling: Tiling) -> bool:
    """Return whether a nest reads all that a tiling sets."""
    return set(tiling.set_fields()) <= schedule_named(schedule).obeyed()


def _of_another_kind(chosen: Plan, asked: str | type) -> bool:
    """Return whether a nest cannot take over the tiling of a plan as it is.

    It says something else by the same sizes (Winograd), numbers its tasks by axes that the plan does not, or
    splits the kernel, which the plan does not.
    """
    one, other = schedule_named(chosen.schedule), schedule_named(asked)
    if one is other:
        return False
    # Imported here, as above: few calls name a nest.
    from ascendsim.ops.tiling.complete import takes_over

    return bool(one.fixed or other.fixed) or not takes_over(other, chosen.tiling)


def tilings_given(tiling: Any, gradients: Sequence[str]) -> dict[str, Any]:
    """Return the user's tilings by gradient; a text is the strategy by which to choose one.

    A mapping is read as plans by gradient, or, with fields of a tiling for keys, as one partial plan.
    Raises   ConfigError where one tiling stands for several gradients, a key is none that is computed, or a
             field has no meaning
    """
    if tiling is None:
        return {}
    # How to choose is said for all gradients at once.
    if isinstance(tiling, str):
        return dict.fromkeys(gradients, tiling)
    if says_fields(tiling):
        tiling = plan_given(tiling)
    # One tiling cannot serve two gradients: m, n and k mean other axes in each.
    if not isinstance(tiling, Mapping):
        if len(gradients) != 1:
            computed = " and ".join(gradients) or "no cube gradient"
            raise ConfigError(
                f"tiling is one {type(tiling).__name__}, but the call computes {computed}; "
                'pass {"grad_input": ..., "grad_weight": ...}'
            )
        return {gradients[0]: tiling}
    _require_keys("tiling", tiling, gradients)
    return {
        gradient: plan_given(plan, f"tiling of {gradient}") if isinstance(plan, Mapping) else plan
        for gradient, plan in tiling.items()
    }


def says_fields(tiling: object) -> bool:
    """Return whether a mapping names fields of one plan, and not plans by gradient."""
    if not isinstance(tiling, Mapping) or not tiling:
        return False
    plans = (Tiling, Plan, PartialPlan, LayerPlans, Mapping)
    return not any(isinstance(plan, plans) for plan in tiling.values()) and not any(
        isinstance(key, str) and (key in USUAL or key.startswith("grad_")) for key in tiling
    )


def schedules_given(schedule: Any, gradients: Sequence[str]) -> dict[str, Any]:
    """Return the user's schedules by gradient; a schedule names its own gradient.

    Raises   ConfigError for an unknown schedule, or one that makes what the call does not compute
    """
    if schedule is None:
        return {}
    if not isinstance(schedule, Mapping):
        made: dict[str, Any] = {}
        for name in schedule if isinstance(schedule, list | tuple) else [schedule]:
            makes = schedule_named(name).makes
            if makes not in gradients:
                raise ConfigError(
                    f"schedule is {shown(name)}, which makes {makes}, but the call computes "
                    f"{' and '.join(gradients) or 'nothing on the cube'}"
                )
            if makes in made:
                raise ConfigError(
                    f"schedule has {shown(made[makes])} and {shown(name)}; both make {makes}: give one"
                )
            made[makes] = name
        return made
    _require_keys("schedule", schedule, gradients)
    for gradient, name in schedule.items():
        _require_makes(name, gradient)
    return dict(schedule)


def _require_makes(schedule: str | type, gradient: str) -> None:
    """Refuse a schedule that makes something else: its loops are over other tensors."""
    makes = schedule_named(schedule).makes
    if makes != gradient:
        raise ConfigError(f"schedule of {gradient} is {shown(schedule)}, which makes {makes}")


def _require_keys(what: str, given: Given, gradients: Sequence[str]) -> None:
    """Refuse keys that no call of this kind has, and gradients that this one does not compute."""
    known = ("matmul",) if "matmul" in gradients else ("grad_input", "grad_weight")
    unknown = set(given) - set(known)
    if unknown:
        raise ConfigError(f"{what} has keys {sorted(unknown, key=repr)}; it takes {' and '.join(known)}")
    # A file of plans may serve several calls; who names a gradient in the call itself wants it obeyed.
    idle = sorted(name for name in given if name not in gradients and not _of_file(given[name]))
    if idle:
        raise ConfigError(
            f"{what} is given for {' and '.join(idle)}, but the call computes "
            f"{' and '.join(gradients) or 'nothing on the cube'}; leave it out, or ask for the gradient "
            "(output_mask)"
        )


def _of_file(plan: Any) -> bool:
    """Return whether a plan was read from a file."""
    return isinstance(plan, LayerPlans) or (isinstance(plan, Plan | PartialPlan) and bool(plan.file))
