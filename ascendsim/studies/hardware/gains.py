"""Time changes on each layer: under the same plan, planned anew, and each gradient under the better plan."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from ascendsim.errors import ConfigError
from ascendsim.frozen import FrozenMap
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.ops.plan import Plan
from ascendsim.profile import Change, Profile, contradiction, load_profile
from ascendsim.studies.engine.measure import PointAnswer
from ascendsim.studies.engine.point import NETWORK, Before, StudyPoint
from ascendsim.studies.engine.run import Budget, Engine, StudyOutcome, require_answer
from ascendsim.studies.hardware.plans import (
    Ask,
    Place,
    keeps,
    left_unused,
    mixed,
    under,
    without_added_cores,
    without_change,
)
from ascendsim.studies.hardware.records import Doubt, Gain, HardwareAnswer, LayerGain, Question, StudiedLayer
from ascendsim.studies.sweep import ends, hashable, ranged_figures, studied
from ascendsim.studies.tuning.records import TilingQuestion
from ascendsim.studies.tuning.search import tune
from ascendsim.studies.tuning.tune import Tuner, compute_dtype_of

WHEN = ("before", "unchanged", "after")
Move = tuple[str, Any]  # path of an assumed figure, and an end of its range


@dataclass(frozen=True, slots=True)
class CallPair:
    """One change under one start: the calls before and after it, whose plans are kept; points by layer.

    before     on the unchanged product under its own plans
    unchanged  on it under the better of these and those of `after` where these fit, or with a part unused
    after      on the changed product under the better plans
    """

    change: Change
    start: str
    before: Mapping[StudiedLayer, StudyPoint]
    unchanged: Mapping[StudiedLayer, StudyPoint]
    after: Mapping[StudiedLayer, StudyPoint]


def doubts(
    product: str | Path, pairs: Sequence[CallPair], shares: Sequence[float], asking: Ask
) -> list[Doubt]:
    """Return the doubt in the saving of each change itself.

    Each figure is moved alone to both ends of its range, before and after the change alike; then all that
    lower the gain together, and all that raise it. As in `interval`, the two are no bounds that hold whatever
    happens, but what the figures' own effects add up to. Plans are kept: an operator does not plan anew
    because this simulator assumes another figure.
    """
    figures = ranged_figures(load_profile(product))
    moves: list[Move] = [
        (path, end)
        for path, figure in figures.items()
        for end in dict.fromkeys(map(hashable, ends(figure)))
        if end != hashable(figure.value)
    ]
    alone = _shares(product, pairs, [[(move,) for move in moves]] * len(pairs), asking)
    together = []
    for share, found in zip(shares, alone, strict=True):
        lower = _ends(share, found, lower=True)
        higher = _ends(share, found, lower=False)
        together.append([lower, higher])
    both = _shares(product, pairs, together, asking)
    made = []
    for share, found, ended in zip(shares, alone, both, strict=True):
        known = [share, *(s for s in (*found.values(), *ended.values()) if s is not None)]
        moving = {move[0][0] for move, moved in found.items() if moved is not None and moved != share}
        made.append(Doubt(min(known), max(known), len(moving)))
    return made


Moves = tuple[Move, ...]


def _ends(share: float, found: Mapping[Moves, float | None], *, lower: bool) -> Moves:
    """Return the end of each figure that lowers, or raises, the gain most."""
    best: dict[str, tuple[float, Any]] = {}
    for ((path, end),), moved in found.items():
        if moved is None or moved == share or (moved < share) != lower:
            continue
        distance = abs(moved - share)
        if path not in best or distance > best[path][0]:
            best[path] = distance, end
    return tuple((path, end) for path, (_, end) in best.items())


def _shares(
    product: str | Path, pairs: Sequence[CallPair], moves: Sequence[Iterable[Moves]], asking: Ask
) -> list[dict[Moves, float | None]]:
    """Return the gain of each pair under each of its moves; None where figures contradict each other."""
    points: dict[Any, StudyPoint] = {}
    for at, (pair, own) in enumerate(zip(pairs, moves, strict=True)):
        for move in own:
            values = _moved(product, pair.change, dict(move))
            if values is None or not move:
                continue
            for layer, point in pair.before.items():
                for when, unchanged in (("before", point), ("unchanged", pair.unchanged[layer])):
                    # What the unchanged product leaves unused stays so.
                    moved = FrozenMap[str, Any](dict(move) | dict(unchanged.changes))
                    points[at, move, when, layer] = replace(unchanged, changes=moved)
                points[at, move, "after", layer] = _after(pair.after[layer], values, dict(move))
    answers = asking(points)
    found = []
    for at, (pair, own) in enumerate(zip(pairs, moves, strict=True)):
        row: dict[Moves, float | None] = {}
        for move in own:
            times = [us for when in WHEN if (us := _total_us(answers, pair, (at, move, when))) is not None]
            row[move] = (times[1] - times[2]) / times[0] if len(times) == len(WHEN) else None
        found.append(row)
    return found


def _after(point: StudyPoint, values: Mapping[str, Any], move: Mapping[str, Any]) -> StudyPoint:
    """Return a changed call with moved figures; cores that it leaves idle are no change of it."""
    own = {path: value for path, value in values.items() if path in move or path in point.changes}
    return replace(point, changes=FrozenMap(own))


def _moved(product: str | Path, change: Change, move: dict[str, Any]) -> FrozenMap[str, Any] | None:
    """Return the figures of a move with a change on top of it: a factor is of the figure as it is moved."""
    try:
        return FrozenMap(move | change.on(load_profile(product, overrides=move)))
    except ConfigError:
        return None  # that end contradicts another figure


def _total_us(answers: Mapping[Any, PointAnswer], pair: CallPair, name: tuple[Any, ...]) -> float | None:
    total = 0.0
    for layer in pair.before:
        answer = answers.get((*name, layer))
        if answer is None or answer.reason:
            return None
        total += layer.count * answer.time_us
    return total


GRADIENTS = ("grad_input", "grad_weight")


def tuned_point(point: StudyPoint, tilings: int, engine: Engine, budget: Budget) -> StudyPoint:
    """Return the point with tuned plans; at most `tilings` plans are tried for each gradient.

    Raises   AscendSimError where the product's own plan cannot be timed; ConfigError where time or trials are
             used up
    """
    plans: dict[str, Plan] = {}
    for gradient, wanted in zip(GRADIENTS, point.gradients, strict=False):
        if wanted:
            asked = TilingQuestion(
                point.label,
                point.product,
                point.problem,
                gradient,
                point.dtype,
                point.cube_math_type,
                (point.l2_start,),
                trials=tilings,
                changes=point.changes,
                before=point.before,
            )
            _, best = tune(Tuner(asked, engine, budget, compute_dtype_of(asked)))
            # With fewer plans tried after a change than before it, it would seem to buy less.
            if budget.cut:
                raise ConfigError(
                    f"time or trials are used up as plans of {point.label} were tried; what was computed is "
                    "kept: run the same command again to go on"
                )
            plans[gradient] = best.plan
    return replace(point, tiling=FrozenMap(plans))


def with_tuned(
    question: Question, gains: Sequence[Gain], pairs: Sequence[CallPair], engine: Engine, budget: Budget
) -> list[Gain]:
    """Return gains with the times under tuned plans, before and after; no slower one is taken."""
    profile = load_profile(question.product)
    found = []
    for gain, pair in zip(gains, pairs, strict=True):
        values, rows = pair.change.on(profile), []
        for row, (_, point) in zip(gain.layers, pair.before.items(), strict=True):
            changed = [replace(point, changes=values)]
            # Added cores may stay idle under tuned plans, too.
            idle = without_added_cores(values, profile)
            if idle is not None:
                changed.append(replace(point, changes=idle))
            ends = [
                min(usual, *(_tuned_us(one, question.tilings, engine, budget) for one in asked))
                for usual, asked in ((row.base_us, [point]), (row.better_us, changed))
            ]
            rows.append(replace(row, tuned_us=(ends[0], ends[1])))
        found.append(replace(gain, layers=tuple(rows)))
    return found


def _tuned_us(point: StudyPoint, tilings: int, engine: Engine, budget: Budget) -> float:
    tuned = tuned_point(point, tilings, engine, budget)
    ((_, answer),) = engine.answer([tuned], budget)
    return require_answer(tuned, answer).time_us


Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Asking:
    """An engine and its remaining budget."""

    engine: Engine
    budget: Budget

    def __call__(self, points: Mapping[Name, StudyPoint]) -> dict[Name, PointAnswer]:
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


def _answers(outcome: StudyOutcome) -> list[PointAnswer]:
    return [answer for _, answer in outcome if answer is not None]


@default_arithmetic
def study_hardware(
    question: Question, engine: Engine, budget: Budget
) -> tuple[HardwareAnswer, list[StudyPoint]]:
    """Answer what changes buy, and return the points that were timed for it, for a table.

    Raises   ConfigError for a change of no figure, and where time or trials are used up; AscendSimError where
             a layer cannot be timed on the unchanged product
    """
    profile = load_profile(question.product)
    # All changes are read before the first call is timed: a mistyped one is refused at once.
    figures = {change.name: _figures(change, profile) for change in question.changes}
    asking = Asking(engine, budget)
    points = base_points(question)
    base = {place: require_answer(points[place], answer) for place, answer in asking(points).items()}
    timed = list(points.values())
    gains, pairs, refused = list[Gain](), list[CallPair](), dict[str, str]()
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
                CallPair(
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
    return HardwareAnswer(question, *studied(profile), tuple(gains), FrozenMap(refused)), timed


def base_points(question: Question) -> dict[Place, StudyPoint]:
    """Return the calls on the unchanged product, by layer and start."""
    return {
        (layer, start): StudyPoint(
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
class _ChangeGains:
    """A change on all layers and starts.

    better     the points under the better plans; `unchanged` those on the unchanged product under the better
               of its own plans and these
    points     all that were timed
    """

    gains: Mapping[Place, LayerGain]
    better: Mapping[Place, StudyPoint]
    unchanged: Mapping[Place, StudyPoint]
    points: list[StudyPoint]


def _change(
    question: Question,
    values: FrozenMap[str, Any],
    points: Mapping[Place, StudyPoint],
    base: Mapping[Place, PointAnswer],
    asking: Asking,
) -> _ChangeGains | str:
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
    gains, better, new = (
        dict[Place, LayerGain](),
        dict[Place, StudyPoint](),
        dict[Place, Mapping[str, Plan]](),
    )
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
    return _told_apart(_ChangeGains(gains, better, {}, [*timed, *more]), there, points, base)


def _told_apart(
    changed: _ChangeGains,
    there: Mapping[Place, tuple[StudyPoint, float]],
    points: Mapping[Place, StudyPoint],
    base: Mapping[Place, PointAnswer],
) -> _ChangeGains:
    """Add what the unchanged product makes of the new plans: `there` has the points and their times."""
    gains = dict(changed.gains)
    unchanged = {place: under(point, base[place].plans) for place, point in points.items()}
    for place, (point, time_us) in there.items():
        gains[place] = replace(gains[place], plan_us=time_us)
        if time_us < base[place].time_us:
            unchanged[place] = point
    return replace(changed, gains=gains, unchanged=unchanged)


def _with_cores_idle(
    same: Mapping[Place, StudyPoint], values: Mapping[str, Any], profile: Profile
) -> dict[Place, StudyPoint]:
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
