"""Plans of a call on a product and on a changed one: which are new, and the better of each gradient."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ascendsim.errors import AscendSimError
from ascendsim.frozen import FrozenMap
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.ops.convolution_backward import plans_of_call
from ascendsim.ops.plan import Plan
from ascendsim.profile import Change, Profile
from ascendsim.studies.engine.measure import PointAnswer
from ascendsim.studies.engine.point import StudyPoint
from ascendsim.studies.hardware.records import StudiedLayer

Place = tuple[StudiedLayer, str]  # a layer, and a start of L2
Ask = Callable[[Mapping[Any, StudyPoint]], dict[Any, PointAnswer]]
GRADIENTS = ("grad_input", "grad_weight")
CORES = ("cores.cube", "cores.vector")


def under(point: StudyPoint, plans: Mapping[str, Plan]) -> StudyPoint:
    """Return a point under given plans."""
    return replace(point, tiling=FrozenMap(plans))


def keeps(point: StudyPoint, plans: Mapping[str, Plan]) -> bool:
    """Return whether a call chooses just these plans."""
    call = point.problem, point.dtype, point.cube_math_type
    try:
        chosen = plans_of_call(*call, output_mask=point.gradients, product=point.profile)
    except AscendSimError:
        return False  # timing it will say why
    # Who chose a plan is no part of it.
    return _values(chosen) == _values(plans)


def mixed(
    changed: Mapping[Place, StudyPoint], tried: Mapping[tuple[str, Place], PointAnswer]
) -> dict[Place, StudyPoint]:
    """Return the calls whose gradients are best under plans of both kinds, each under its better one."""
    plans = {place: better_plans(tried["same", place], tried["anew", place]) for place in changed}
    return {place: under(changed[place], own) for place, own in plans.items() if own}


def better_plans(same: PointAnswer, anew: PointAnswer) -> Mapping[str, Plan] | None:
    """Return the faster plan of each gradient, if they come from different answers; else None."""
    if same.reason:
        return None
    stays = {name: _gradient_us(same, name) <= _gradient_us(anew, name) for name in GRADIENTS}
    named = [name for name in GRADIENTS if name in same.plans]
    if len({stays[name] for name in named}) < 2:
        return None
    return {name: (same if stays[name] else anew).plans[name] for name in named}


def _gradient_us(answer: PointAnswer, gradient: str) -> float:
    """Return the microseconds of the kernels that make a gradient, casts of it included."""
    return float(sum(row["time_us"] for row in answer.records if str(row["kernel"]).endswith(gradient)))


def without_change(
    new: Mapping[Place, Mapping[str, Plan]],
    spared: Mapping[Place, StudyPoint],
    points: Mapping[Place, StudyPoint],
    base: Mapping[Place, PointAnswer],
    asking: Ask,
) -> tuple[dict[Place, tuple[StudyPoint, float]], list[StudyPoint]]:
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
    found: dict[Place, tuple[StudyPoint, float]] = {}
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


# Figures of size and number where more is better. The two clocks of a product are one oscillator.
SIZES = (
    {"cores.cube", "cores.vector"},
    {"clock.cube_mhz", "clock.vector_mhz"},
    *({f"buffers.{name}.capacity_bytes"} for name in ("L1", "L0A", "L0B", "L0C", "UB", "BT", "FB")),
    {"l2.capacity_bytes"},
)
# Neither speed nor size: what a product is, what its numbers mean, and marks.
_NOT_SPEED = ("cores.", "buffers.", "cube.rates.", "l2.", "accumulation.", "clock.")
_NOT_SPEEDS = ("m0", "n0", "same_l0c_spacing_cycles", "hf32_mantissa_bits", "fractal_bytes", "request_bytes")
# What follows from other figures, and cannot be changed itself.
_FOLLOWS = ("total_bytes_per_cycle", "barrier_cycles", "start_cycles", "macs_per_cycle")


@default_arithmetic
def enlargings(profile: Profile) -> tuple[Change, ...]:
    """Return a change for each figure that can be better: half the time, twice the rate, size or number.

    The names are those of `--change`. A rate of the cube follows from the sizes of its block, so that it is
    no figure of its own; the numbers of cube and vector cores change together, and so do both clocks.
    """
    found = [
        _change({path: better_value(path, figure.value)})
        for path, figure in profile.figures.items()
        if better_value(path, figure.value) not in (None, figure.value) and not _follows(path, profile)
    ]
    for paths in SIZES:
        known = {path: profile.figures[path].value for path in sorted(paths) if path in profile.figures}
        doubled = {path: 2 * value for path, value in known.items() if value}
        if doubled:
            found.append(_change(doubled))
    return tuple(found)


def better_value(path: str, value: Any) -> Any:
    """Return a faster value of a figure of speed; None for other figures.

    A share becomes a tenth larger, at most 1; a whole number of cycles is rounded down, to the least that a
    product file may give.
    """
    name = path.rpartition(".")[2]
    if isinstance(value, bool | str | list | tuple) or path.startswith(_NOT_SPEED) or name in _NOT_SPEEDS:
        return None
    if name in ("efficiency", "shared_efficiency"):
        return min(1.0, 1.1 * value)
    # The nearest part of L2 answers so much earlier; queues and buffers hold more.
    if name in ("spread_cycles", "buffer_bytes") or path.startswith("queues."):
        return 2 * value
    if name in ("request_fixed_share", "row_cycles", "m_stall_share"):
        return value / 2
    if "cycles_per" in name or name.endswith("_cycles") or ".repeat_cycles." in path or "_cycles." in path:
        return max(_least(path), value // 2 if isinstance(value, int) else value / 2)
    if name.endswith("_us"):
        return value / 2
    if "per_cycle" in path or name.endswith("tb_per_s"):
        return type(value)(2 * value)
    return None


def _least(path: str) -> int:
    return 1 if path.startswith(("vector.repeat", "vector.kind")) or ".cycles_per_stride" in path else 0


def _follows(path: str, profile: Profile) -> bool:
    return profile.figures[path].confidence == "derived" and path.endswith(_FOLLOWS)


def _change(values: dict[str, Any]) -> Change:
    # All digits of a size: the name can be given to --change, and 4.02653e+08 bytes are other ones.
    return Change("+".join(f"{path}={value:.12g}" for path, value in values.items()), FrozenMap(values))
