"""The plans of a call: what the user gives of them, the rest chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ascendsim.errors import ConfigError
from ascendsim.ops.plan import Plan, Tiling
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.hf32 import stored_name
from ascendsim.ops.problems.matmul import MatmulProblem
from ascendsim.ops.schedules.catalogue import schedule_named
from ascendsim.ops.tiling.choose import choose_tiling
from ascendsim.profile import Profile

Given = Mapping[str, Any]


def plans_of(
    problem: ConvProblem | MatmulProblem,
    products: Sequence[str],
    compute_dtype: str,
    profile: Profile,
    tilings: Given,
    schedules: Given,
) -> dict[str, Plan]:
    """Return the plan of each product of a call: the user's schedule and tiling, where given, else chosen.

    Raises   CapacityError if no tile fits into the buffers
    """
    plans = {}
    for product in products:
        tiling, schedule = tilings.get(product), schedules.get(product)
        if isinstance(tiling, Plan):
            schedule, tiling = schedule or tiling.schedule, tiling.tiling
        # A choice may take long, so none is made where everything is given.
        if tiling is None or schedule is None:
            hf32 = compute_dtype == "hf32"
            chosen = choose_tiling(problem, product, stored_name(compute_dtype), profile, hf32=hf32)
            tiling, schedule = tiling or chosen.tiling, schedule or chosen.schedule
        plans[product] = Plan(schedule, tiling)
    return plans


def tilings_given(tiling: Any, products: Sequence[str]) -> dict[str, Tiling | Plan]:
    """Return the user's tilings by product.

    Raises   ConfigError where one tiling stands for several products, or a key is no product
    """
    if tiling is None:
        return {}
    # One tiling cannot serve two products: m, n and k mean other axes in each.
    if not isinstance(tiling, Mapping):
        if len(products) != 1:
            computed = " and ".join(products) or "no cube gradient"
            raise ConfigError(
                f"tiling is one {type(tiling).__name__}, but the call computes {computed}; "
                'pass {"grad_input": ..., "grad_weight": ...}'
            )
        return {products[0]: tiling}
    _require_products("tiling", tiling)
    return dict(tiling)


def schedules_given(schedule: Any, products: Sequence[str]) -> dict[str, Any]:
    """Return the user's schedules by product; a schedule says itself what it makes.

    Raises   ConfigError for an unknown schedule, or one that makes what the call does not compute
    """
    if schedule is None:
        return {}
    if not isinstance(schedule, Mapping):
        made: dict[str, Any] = {}
        for name in schedule if isinstance(schedule, list | tuple) else [schedule]:
            makes = schedule_named(name).makes
            if makes not in products:
                raise ConfigError(
                    f"schedule is {name!r}, which makes {makes}, but the call computes "
                    f"{' and '.join(products) or 'no product'}"
                )
            if makes in made:
                raise ConfigError(f"schedule has {made[makes]!r} and {name!r}; both make {makes}: give one")
            made[makes] = name
        return made
    _require_products("schedule", schedule)
    for product, name in schedule.items():
        makes = schedule_named(name).makes
        if makes != product:
            raise ConfigError(f"schedule of {product} is {name!r}, which makes {makes}")
    return dict(schedule)


def _require_products(what: str, given: Given) -> None:
    unknown = set(given) - {"grad_input", "grad_weight"}
    if unknown:
        raise ConfigError(f"{what} has keys {sorted(unknown)}; it takes grad_input and grad_weight")
