"""Time changes on each layer: under the same plan, planned anew, and each gradient under the better plan."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from ascendsim.errors import ConfigError
from ascendsim.frozen import FrozenMap
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.ops.plan import Plan
from ascendsim.profile import Change, Profile, contradiction, load_profile
from ascendsim.studies.engine.measure import Answer
from ascendsim.studies.engine.point import NETWORK, Before, Point
from ascendsim.studies.engine.run import Budget, Engine, Outcome, require_answer
from ascendsim.studies.hardware.doubt import Pair, doubts
from ascendsim.studies.hardware.plans import (
    Place,
    keeps,
    left_unused,
    mixed,
    under,
    without_added_cores,
    without_change,
)
from ascendsim.studies.hardware.records import Gain, HardwareAnswer, LayerGain, Question
from ascendsim.studies.hardware.tuned import with_tuned
from ascendsim.studies.sweep import ranged_figures

Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Asking:
    """An engine and what it may still compute."""

    engine: Engine
    budget: Budget

    def __call__(self, points: Mapping[Name, Point]) -> dict[Name, Answer]:
        """Answer points by name.

        Raises   ConfigError where time or trials are used up; what was computed is kept
        """
        outcome = self.engine.answer(list(points.values()), self.budget)
        if outcome.left:
            raise ConfigError(
                f"time or trials are used up with {outcome.left} of {len(points)} calls of this round left; "
                "what was computed is kept: run the same command again to go on"
            )
        return dict(zip(points, _answers(outcome), strict=True))


def _answers(outcome: Outcome) -> list[Answer]:
    return [answer for _, answer in outcome if answer is not None]


@default_arithmetic
def study_hardware(question: Question, engine: Engine, budget: Budget) -> tuple[HardwareAnswer, list[Point]]:
    """Answer what changes buy, and return the points that were timed for it, for a table.

    Raises   ConfigError for a change of no figure, and where time or trials are used up; AscendSimError where
             a layer cannot be timed on the unchanged product
    """
    profile = load_profile(question.product)
    # All changes are read before the first call is timed: a mistyped one is told at once.
    figures = {change.name: _figures(change, profile) for change in question.changes}
    asking = Asking(engine, budget)
    points = base_points(question)
    base = {place: require_answer(points[place], answer) for place, answer in asking(points).items()}
    timed = list(points.values())
    gains, pairs, refused = list[Gain](), list[Pair](), dict[str, str]()
    for change in question.changes:
        outcome = _change(question, change.on(profile), points, base, asking)
        if isinstance(outcome, str):
            refused[change.name] = outcome
            continue
        for start in question.starts:
            rows = tuple(outcome.gains[layer, start] for layer in question.layers)
            gains.append(Gain(change.name, FrozenMap(figures[change.name]), start, rows))
            places = {layer: (layer, start) for layer in question.layers}
            pairs.append(
                Pair(
                    change,
                    start,
                    {layer: under(points[at], base[at].plans) for layer, at in places.items()},
                    {layer: outcome.unchanged[at] for layer, at in places.items()},
                    {layer: outcome.better[at] for layer, at in places.items()},
                )
            )
        timed += outcome.points
    if question.tilings:
        gains = with_tuned(question, gains, pairs, engine, budget)
    if question.doubt:
        found = doubts(question.product, pairs, [gain.own_share for gain in gains], asking)
        gains = [replace(gain, doubt=doubt) for gain, doubt in zip(gains, found, strict=True)]
    assumed = len(ranged_figures(profile))
    digest = profile.content.hex()
    return HardwareAnswer(question, profile.variant, digest, assumed, tuple(gains), FrozenMap(refused)), timed


def base_points(question: Question) -> dict[Place, Point]:
    """Return the calls on the unchanged product, by layer and start."""
    return {
        (layer, start): Point(
            layer.problem,
            question.product,
            dtype=question.dtype,
            cube_math_type=question.cube_math_type,
            gradients=layer.gradients,
            l2_start=start,
            before=_run_before(question, at) if start == NETWORK else (),
            label=layer.name,
        )
        for start in question.starts
        for at, layer in enumerate(question.layers)
    }


def _run_before(question: Question, at: int) -> tuple[Before, ...]:
    """Return the calls that a backward pass makes before that of a layer: those behind it, the last first."""
    return tuple((layer.problem, layer.gradients) for layer in reversed(question.layers[at + 1 :]))


@dataclass(frozen=True, slots=True)
class _Changed:
    """A change on all layers and starts.

    better     the points under the better plans; `unchanged` those on the unchanged product under the better
               of its own plans and these
    points     all that were timed
    """

    gains: Mapping[Place, LayerGain]
    better: Mapping[Place, Point]
    unchanged: Mapping[Place, Point]
    points: list[Point]


def _change(
    question: Question,
    values: FrozenMap[str, Any],
    points: Mapping[Place, Point],
    base: Mapping[Place, Answer],
    asking: Asking,
) -> _Changed | str:
    """Time one change; a text says why it cannot be timed at all.

    points  on the unchanged product, with their answers `base`
    """
    impossible = contradiction(question.product, values)
    if impossible:
        return impossible
    changed = {place: replace(point, changes=values) for place, point in points.items()}
    same = {place: under(point, base[place].plans) for place, point in changed.items()}
    # Few figures have a say in plans: where none changes, planning anew is the same call.
    moved = {place: p for place, p in changed.items() if not keeps(p, base[place].plans)}
    tried = asking(
        {("same", place): point for place, point in same.items()}
        | {("anew", place): point for place, point in moved.items()}
    )
    tried |= {("anew", place): tried["same", place] for place in changed if place not in moved}
    fewer = _with_cores_idle(same, values, load_profile(question.product))
    idle = asking(fewer)
    for place, point in changed.items():
        if tried["anew", place].reason:
            return f"{point.label}: {tried['anew', place].reason}"
    both = mixed(changed, tried)
    mixes = asking(both)
    gains, better, new = dict[Place, LayerGain](), dict[Place, Point](), dict[Place, Mapping[str, Plan]]()
    for place, point in changed.items():
        options = [(tried["same", place], same[place]), (tried["anew", place], point)]
        if place in both:
            options.append((mixes[place], both[place]))
        if place in fewer:
            options.append((idle[place], fewer[place]))
        # Of equal ones the first: plans stay unless new ones are faster.
        best, at = min(((a, p) for a, p in options if not a.reason), key=lambda pair: pair[0].time_us)
        layer, _ = place
        old = tried["same", place]
        gains[place] = LayerGain(
            layer.name,
            layer.count,
            base[place].time_us,
            None if old.reason else old.time_us,
            tried["anew", place].time_us,
            best.time_us,
            new_plan=at is not same[place] and at is not fewer.get(place),
            misfit=old.reason,
        )
        better[place] = under(at, best.plans)
        if gains[place].new_plan:
            new[place] = best.plans
    timed = [*same.values(), *moved.values(), *both.values(), *fewer.values()]
    less = left_unused(values, load_profile(question.product))
    spared = {place: replace(point, changes=less) for place, point in better.items()} if less else {}
    there, more = without_change(new, spared, points, base, asking)
    return _told_apart(_Changed(gains, better, {}, [*timed, *more]), there, points, base)


def _told_apart(
    changed: _Changed,
    there: Mapping[Place, tuple[Point, float]],
    points: Mapping[Place, Point],
    base: Mapping[Place, Answer],
) -> _Changed:
    """Add what the unchanged product makes of the new plans: `there` has the points and their times."""
    gains = dict(changed.gains)
    unchanged = {place: under(point, base[place].plans) for place, point in points.items()}
    for place, (point, time_us) in there.items():
        gains[place] = replace(gains[place], plan_us=time_us)
        if time_us < base[place].time_us:
            unchanged[place] = point
    return replace(changed, gains=gains, unchanged=unchanged)


def _with_cores_idle(
    same: Mapping[Place, Point], values: Mapping[str, Any], profile: Profile
) -> dict[Place, Point]:
    """Return the calls on a product with more cores that leave those idle; none where it has no more.

    The kernels beside the products run on all vector cores, whatever their number: what more of them take to
    be launched may be more than they save.
    """
    others = without_added_cores(values, profile)
    if others is None:
        return {}
    if not others:  # the product as it is, which has been timed
        return {place: replace(point, changes=others, tiling="product") for place, point in same.items()}
    return {place: replace(point, changes=others) for place, point in same.items()}


def _figures(change: Change, profile: Profile) -> dict[str, tuple[object, object]]:
    return {path: (profile.figures[path].value, new) for path, new in change.on(profile).items()}
