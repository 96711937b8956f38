"""How sure a time is: between what it lies by its figures, its plans, and the model's own error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from math import exp, log
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.ops.lowering.call import GRADIENTS
from ascendsim.profile import Profile, load_profile
from ascendsim.studies.records import ErrorShare, Interval, ModelError, PlanRisk
from ascendsim.studies.sweep import (
    Advance,
    Sweep,
    TimedCall,
    TimedPoint,
    Variable,
    effects_of,
    end_moves,
    ends,
    times,
    variables,
)

if TYPE_CHECKING:
    from ascendsim.ops.results import Estimate
    from ascendsim.profile import Figure

# With 64 draws the least and the most of them hold a further one in 63 of 65 cases.
DRAWS = 64
# The rule of a plan whose operator is not public (`ops/tiling/vendor/operators.py`).
OWN = "our own"
# From this ratio of its ends on, a figure's range is a matter of orders: its logarithm is drawn.
LARGE = 4


def interval_size(profile: Profile) -> int:
    """Return the number of calls that an interval times."""
    return len(end_moves(variables(profile))) + DRAWS


@default_arithmetic
def interval(
    product: str | Path,
    call: TimedCall,
    advance: Advance = lambda _: None,
    usual: Estimate | None = None,
    workers: int | None = 1,
) -> Interval:
    """Return the interval of a call on one product; see `intervals`."""
    (found,) = intervals([Sweep.of(product, call, usual)], advance, workers)
    return found


@default_arithmetic
def intervals(
    sweeps: Sequence[Sweep], advance: Advance = lambda _: None, workers: int | None = 1
) -> list[Interval]:
    """Move each figure of each product alone to both ends of its range, then all of them at random.

    sweeps   the same call on each product
    advance  is called with the figure of each call of the sweep, or with the number of a draw
    workers  processes that time the calls, as `estimate_many` takes them; others than this are sent the call

    Figures of one source move together (`variables`). All draws are of one Latin hypercube, the same in every
    run: uniform in each range, or log-uniform where the high end is four times the low one or more.
    """
    moved = [variables(load_profile(sweep.product)) for sweep in sweeps]
    moves = [end_moves(own) for own in moved]
    points = [[*ended.values(), *draws(own)] for ended, own in zip(moves, moved, strict=True)]
    drawn = [f"draw {number + 1} of {DRAWS}" for number in range(DRAWS)]
    names = [name for own in moves for name in [*(path for path, _ in own), *drawn]]
    found = times(sweeps, points, workers, names, advance)
    return [_interval(*own) for own in zip(sweeps, moved, moves, found, strict=True)]


def _interval(
    sweep: Sweep,
    moved: Sequence[Variable],
    moves: Mapping[tuple[str, int], Any],
    found: Sequence[TimedPoint | None],
) -> Interval:
    """Return the interval that the times at all ends, and of all draws, give."""
    usual = TimedPoint(sweep.usual.time_us, sweep.usual.cycles)
    ended = {name: point and point.time_us for name, point in zip(moves, found, strict=False)}
    effects = effects_of(moved, usual.time_us, ended)
    known = [usual, *(point for point in found if point is not None)]
    cycles = [point.cycles for point in known]
    return Interval(
        figures=sum(len(one.figures) for one in moved),
        usual_us=usual.time_us,
        shortest_us=min(point.time_us for point in known),
        longest_us=max(point.time_us for point in known),
        least_cycles=min(cycles),
        most_cycles=max(cycles),
        effects=tuple(sorted((e for e in effects if e.span_us), key=lambda effect: -effect.span_us)),
        left_out=tuple(
            f"{effect.figure}={end}"
            for effect in effects
            for end, time_us in ((effect.low, effect.low_us), (effect.high, effect.high_us))
            if time_us is None
        ),
        draws_us=tuple(point and point.time_us for point in found[len(moves) :]),
        plan=plan_risk(sweep),
        model=model_error(load_profile(sweep.product), sweep.usual, sweep.dimensions),
    )


def plan_risk(sweep: Sweep) -> PlanRisk:
    """Time a call with searched plans in the place of those that no public rule made."""
    usual, found = sweep.usual, sweep.usual.plans
    own = [name for name, plan in found.items() if plan.rule == OWN]
    if own:
        plans: dict[str, Any] = {**found, **dict.fromkeys(own, "search")}
        searched_us = sweep.call(load_profile(sweep.product), plans).time_us
        why = f"{_and(own)}: by rules of our own, beside the best that the search finds"
        return PlanRisk(why, searched_us)
    searched = [name for name, plan in found.items() if plan.chosen_by == "search"]
    if searched:
        return PlanRisk(f"{_and(searched)}: found by the search, as no rule is public", usual.time_us)
    if any(not plan.by_rule for plan in found.values()):
        return PlanRisk("as given", usual.time_us)
    return PlanRisk("by public rules", usual.time_us)


def _and(names: Sequence[str]) -> str:
    return " and ".join(names)


def draws(moved: Sequence[Variable], count: int = DRAWS, seed: str = "") -> list[dict[str, Any]]:
    """Return points of a Latin hypercube: figures by path, all of them at random places of their ranges.

    A variable's places hang on what is `shared` of it alone, so that two products that share a figure have it
    at the same place in each draw.
    """
    points: list[dict[str, Any]] = [{} for _ in range(count)]
    for one in moved:
        random = Random(f"{seed}{one.shared}")
        order = list(range(count))
        random.shuffle(order)
        for point, part in zip(points, order, strict=True):
            place = (part + random.random()) / count
            point.update({path: _at(figure, place) for path, figure in one.figures.items()})
    return points


def _at(figure: Figure, place: float) -> Any:
    """Return the value of a figure at a place of its range, from 0 to 1."""
    assert figure.range is not None
    if isinstance(figure.value, bool | list):
        return figure.range[int(place * len(figure.range))]
    low, high = ends(figure)
    if low > 0 and high >= LARGE * low:
        value = exp(log(low) + place * log(high / low))
    else:
        value = low + place * (high - low)
    # A rule may want whole numbers: a figure that is written whole stays so.
    whole = all(isinstance(number, int) for number in (low, high, figure.value))
    return round(value) if whole else min(max(round(value, 4), low), high)


class OwnError(NamedTuple):
    """How far measured kernels of one kind lie from their estimates, beyond what figures allow.

    family   architecture of the products that they ran on
    kind     what kernels they are
    rows     measurements that it was taken from, on none of which a figure was fitted; 0: too few there are,
             and the error is that of the nearest kind that has some
    error    logarithm of a ratio: four in five of them lie within figures and this error, squares added
    others   further such measurements, from which nothing was taken; `inside` those that lie within both
    """

    family: str
    kind: str
    rows: int
    error: float
    others: int
    inside: int


# Whose measurements speak for an architecture, the nearest first; and what products are called.
NEAREST = {
    "1001": ("1001", "2002", "2201", "3510"),
    "2002": ("2002", "1001", "2201", "3510"),
    "2201": ("2201", "1001", "3510", "2002"),
    "3510": ("3510", "2201", "1001", "2002"),
}
FAMILIES = {"1001": "910", "2002": "310P", "2201": "910B", "3510": "950"}
OTHERS = "others"  # kernels that cast, clear or sum, or copy without TransData: nobody judged them
# What else products of these architectures are called; the 910_93 shares the 910B's, and has no rows itself.
MEASURED = {"1001": "910", "2201": "910B", "3510": "910_95"}


@cache
def own_errors() -> Mapping[tuple[str, str], OwnError]:
    """Return the own errors that are known, by family and kind; `tools/model_error.py` makes the file."""
    text = (files("ascendsim.studies") / "model_error.csv").read_text()
    lines = [line.split(",") for line in text.splitlines()[1:]]
    found = (OwnError(f, k, int(n), float(e), int(o), int(i)) for f, k, n, e, o, i in lines)
    return {(one.family, one.kind): one for one in found}


def nearest(known: Mapping[tuple[str, str], OwnError], arch: str, kind: str) -> OwnError:
    """Return the own error of a kind of kernels, from the nearest architecture that has some.

    Of a kind that none has, such as matrix products, the widest of all stands in.
    """
    # Of volumes there are few measurements, and of casts and sums none: the next best stand in.
    asked = dict.fromkeys((kind, kind.replace("3-D", "2-D"), *(["layouts"] if kind == OTHERS else ())))
    near = NEAREST.get(arch, tuple(FAMILIES))
    found = (known[family, one] for one in asked for family in near if (family, one) in known)
    widest = max(known.values(), key=lambda one: (one.rows > 0, one.error))
    return next((one for one in found if one.rows), widest)


def model_error(profile: Profile, usual: Estimate, dimensions: int = 2) -> ModelError:
    """Return the model's own error of a call, each kernel with the error of its kind.

    dimensions   of the images: volumes have errors of their own

    Kernels err alike, not one up and one down: their errors are weighed by their times, and do not cancel.
    """
    spent: dict[tuple[str, OwnError], float] = {}
    for kernel in usual.kernels:
        moves = "layouts" if kernel.kernel.op_type == "TransData" else OTHERS
        named = kernel.name if kernel.macs else moves
        kind = f"{named} {3 if dimensions > 2 else 2}-D" if named in GRADIENTS else named
        found = kind, nearest(own_errors(), profile.npu_arch, kind)
        spent[found] = spent.get(found, 0.0) + kernel.time_us
    whole = sum(spent.values())
    if not whole:
        return ModelError(1.0, 1.0, 0, "nothing to do")
    shares = tuple(
        ErrorShare(
            *(kind, us / whole, one.error, FAMILIES[one.family], _is_own(one, profile, kind)),
            *((near.others, near.inside) if (near := own_errors().get((profile.npu_arch, kind))) else (0, 0)),
        )
        for (kind, one), us in spent.items()
    )
    return ModelError(
        sum(one.share * exp(-one.error) for one in shares),
        sum(one.share * exp(one.error) for one in shares),
        sum(one.rows for one in dict.fromkeys(one for _, one in spent)),
        "; ".join(
            _ground(one, profile.product, own=share.own)
            for (_, one), share in zip(spent, shares, strict=True)
        ),
        profile.npu_arch,
        shares,
    )


def _is_own(one: OwnError, profile: Profile, kind: str) -> bool:
    """Say whether an error was measured on the product itself, in kernels of this kind."""
    return one.kind == kind and one.family == profile.npu_arch and MEASURED[one.family] == profile.product


def _ground(one: OwnError, product: str, *, own: bool) -> str:
    """Name the measurements behind an own error, and how many others lie inside it."""
    other = "" if own else f", as there are too few of the {product}"
    where = f"{one.kind} on the {FAMILIES[one.family]}{other}"
    return f"{one.rows} of {where} ({one.inside} of {one.others} more lie inside)"
