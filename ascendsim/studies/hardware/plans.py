"""Plans of a call on a product and on a changed one: which are new, and the better of each gradient."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ascendsim.errors import AscendSimError
from ascendsim.frozen import FrozenMap
from ascendsim.ops.convolution_backward import plans_of_call
from ascendsim.ops.plan import Plan
from ascendsim.profile import Profile
from ascendsim.studies.engine.measure import Answer
from ascendsim.studies.engine.point import Point
from ascendsim.studies.hardware.records import StudiedLayer

Place = tuple[StudiedLayer, str]  # a layer, and a start of L2
Asking = Callable[[Mapping[Any, Point]], dict[Any, Answer]]
GRADIENTS = ("grad_input", "grad_weight")
CORES = ("cores.cube", "cores.vector")


def under(point: Point, plans: Mapping[str, Plan]) -> Point:
    """Return a point under given plans."""
    return replace(point, tiling=FrozenMap(plans))


def keeps(point: Point, plans: Mapping[str, Plan]) -> bool:
    """Tell whether a call chooses just these plans."""
    call = point.problem, point.dtype, point.cube_math_type
    try:
        chosen = plans_of_call(*call, output_mask=point.gradients, product=point.profile)
    except AscendSimError:
        return False  # timing it will say why
    # Who chose a plan is no part of it.
    return _values(chosen) == _values(plans)


def mixed(changed: Mapping[Place, Point], tried: Mapping[tuple[str, Place], Answer]) -> dict[Place, Point]:
    """Return the calls whose gradients are best under plans of both kinds, each under its better one."""
    plans = {place: better_plans(tried["same", place], tried["anew", place]) for place in changed}
    return {place: under(changed[place], own) for place, own in plans.items() if own}


def better_plans(same: Answer, anew: Answer) -> Mapping[str, Plan] | None:
    """Return the faster plan of each gradient, if they come from different answers; else None."""
    if same.reason:
        return None
    stays = {name: _gradient_us(same, name) <= _gradient_us(anew, name) for name in GRADIENTS}
    named = [name for name in GRADIENTS if name in same.plans]
    if len({stays[name] for name in named}) < 2:
        return None
    return {name: (same if stays[name] else anew).plans[name] for name in named}


def _gradient_us(answer: Answer, gradient: str) -> float:
    """Return the microseconds of the kernels that make a gradient, casts of it included."""
    return float(sum(row["time_us"] for row in answer.records if str(row["kernel"]).endswith(gradient)))


def without_change(
    new: Mapping[Place, Mapping[str, Plan]],
    spared: Mapping[Place, Point],
    points: Mapping[Place, Point],
    base: Mapping[Place, Answer],
    asking: Asking,
) -> tuple[dict[Place, tuple[Point, float]], list[Point]]:
    """Time what needs no change on the unchanged product: new plans, and leaving unused what a change takes.

    new     new plans of the calls that have some
    spared  calls under the better plans on the unchanged product with as little of it used as the changed one
            has
    Each gradient's plan is tried by itself, as one may fit the unchanged product and the other not; those
    that save time are tried together. Return the fastest call that fits of each layer and start with its
    time, and all points that were timed.
    """
    own = {place: dict(base[place].plans) for place in new}
    alone = {
        (place, name): under(points[place], own[place] | {name: plan})
        for place, plans in new.items()
        for name, plan in plans.items()
        if _values({name: plan}) != _values({name: own[place][name]})
    }
    answers = asking(alone)
    fits = {at: answer.time_us for at, answer in answers.items() if not answer.reason}
    faster: dict[Place, dict[str, Plan]] = {}
    for (place, name), time_us in fits.items():
        if time_us < base[place].time_us:
            faster.setdefault(place, {})[name] = new[place][name]
    together = {
        (place, "together"): under(points[place], own[place] | plans)
        for place, plans in faster.items()
        if len(plans) > 1
    }
    others = together | {(place, "spared"): point for place, point in spared.items()}
    fits |= {at: answer.time_us for at, answer in asking(others).items() if not answer.reason}
    tried = alone | others
    found: dict[Place, tuple[Point, float]] = {}
    for (place, name), time_us in fits.items():
        if place not in found or time_us < found[place][1]:
            found[place] = tried[place, name], time_us
    return found, list(tried.values())


def left_unused(values: Mapping[str, Any], profile: Profile) -> FrozenMap[str, Any]:
    """Return the sizes that a change makes smaller: an unchanged product may use no more of its own.

    Some loop nests fill a buffer whatever their plan says, and kernels beside the products are launched on
    all vector cores. So less of them may take less time, which needs no smaller product.
    """
    smaller = {
        path: value
        for path, value in values.items()
        if (path in CORES or (path.endswith(".capacity_bytes") and path.startswith("buffers.")))
        and value < profile.figures[path].value
    }
    return _with_both_cores(smaller, values, profile)


def without_added_cores(values: Mapping[str, Any], profile: Profile) -> FrozenMap[str, Any] | None:
    """Return a change without the cores that it adds; None where it adds none."""
    added = {path for path in CORES if path in values and values[path] > profile.figures[path].value}
    if not added:
        return None
    kept = {path: value for path, value in values.items() if path not in added}
    return _with_both_cores(kept, values, profile)


def _with_both_cores(
    kept: dict[str, Any], values: Mapping[str, Any], profile: Profile
) -> FrozenMap[str, Any]:
    """Return figures with the product's number of the other cores, which would follow one alone."""
    if kept.keys() & set(CORES):
        kept |= {path: profile.figures[path].value for path in CORES if path in values and path not in kept}
    return FrozenMap(kept)


def _values(plans: Mapping[str, Plan]) -> dict[str, object]:
    return {name: plan.to_dict() for name, plan in plans.items()}
