"""The plans of a call: what the user gives of them, the rest chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ascendsim.arguments import shown
from ascendsim.errors import ConfigError
from ascendsim.ops.plan import Plan, Tiling
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.hf32 import stored_name
from ascendsim.ops.problems.matmul import MatmulProblem
from ascendsim.ops.schedules.catalogue import schedule_named
from ascendsim.ops.tiling.choose import choose_tiling
from ascendsim.profile import Profile

Given = Mapping[str, Any]
# The nest of a tiling that is given without one.
USUAL = {"grad_input": "dgrad", "grad_weight": "wgrad", "matmul": "matmul"}


def plans_of(
    problem: ConvProblem | MatmulProblem,
    gradients: Sequence[str],
    compute_dtype: str,
    profile: Profile,
    tilings: Given,
    schedules: Given,
    out_dtype: str | None = None,
    *,
    deterministic: bool = False,
) -> dict[str, Plan]:
    """Return the plan of each gradient of a call: the user's schedule and tiling, where given, else chosen.

    gradients   those that the cube makes: "grad_input", "grad_weight"; of a matrix product "matmul"
    out_dtype   the format in which a matrix product or grad_input leaves the cube
    deterministic   whether parts of grad_weight may be added in one order only

    Raises   CapacityError if no tile fits into the buffers; ConfigError for a plan of another gradient
    """
    plans = {}
    for gradient in gradients:
        tiling, schedule = tilings.get(gradient), schedules.get(gradient)
        strategy, chosen_by, instead = "product", "", ""
        if isinstance(tiling, str):
            strategy, tiling = tiling, None
        if isinstance(tiling, Plan):
            schedule, tiling = schedule or tiling.schedule, tiling.tiling
        # A tiling without a nest is for the usual one: those of the products read fields of their own.
        if tiling is not None:
            schedule = schedule or USUAL[gradient]
        else:
            stored, hf32 = stored_name(compute_dtype), compute_dtype == "hf32"
            # grad_weight always leaves in float32, so nothing is chosen anew for another format.
            made = None if gradient == "grad_weight" else out_dtype
            choose = partial(
                choose_tiling,
                problem,
                gradient,
                stored,
                profile,
                hf32=hf32,
                deterministic=deterministic,
                out_dtype=made,
            )
            chosen = choose(strategy=strategy)
            # A nest of the user's own may not know what the product's plan says; the search says the least.
            if schedule and not set(chosen.tiling.set_fields()) <= schedule_named(schedule).reads:
                chosen = choose(strategy="search")
            tiling, schedule, chosen_by = chosen.tiling, schedule or chosen.schedule, chosen.chosen_by
            instead = chosen.instead
        _require_makes(schedule, gradient)
        plans[gradient] = Plan(schedule, tiling, chosen_by, instead)
    return plans


def tilings_given(tiling: Any, gradients: Sequence[str]) -> dict[str, Tiling | Plan | str]:
    """Return the user's tilings by gradient; a text is the strategy by which to choose one.

    Raises   ConfigError where one tiling stands for several gradients, or a key is none
    """
    if tiling is None:
        return {}
    # How to choose is said for all gradients at once.
    if isinstance(tiling, str):
        return dict.fromkeys(gradients, tiling)
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
    return dict(tiling)


def schedules_given(schedule: Any, gradients: Sequence[str]) -> dict[str, Any]:
    """Return the user's schedules by gradient; a schedule says itself what it makes.

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
    """Refuse keys that no call of this kind has; a gradient that is masked in this one may be named."""
    known = ("matmul",) if "matmul" in gradients else ("grad_input", "grad_weight")
    unknown = set(given) - set(known)
    if unknown:
        raise ConfigError(f"{what} has keys {sorted(unknown, key=repr)}; it takes {' and '.join(known)}")
