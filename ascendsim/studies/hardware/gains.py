"""Time changes on each layer: under the same plan, planned anew, and under the best plans of all."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar, cast

from ascendsim.errors import ConfigError
from ascendsim.frozen import FrozenMap
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.ops.plan import Plan
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.profile import contradiction, load_profile
from ascendsim.studies.engine.measure import PointAnswer
from ascendsim.studies.engine.point import NETWORK, Before, StudyPoint
from ascendsim.studies.engine.run import Budget, Engine, require_answer
from ascendsim.studies.hardware.doubt import Saving, doubt_of
from ascendsim.studies.hardware.plans import AS_IT_IS, GRADIENTS, Best, Family, Plans, Way, keeps, under
from ascendsim.studies.hardware.records import (
    Gain,
    HardwareAnswer,
    LayerGain,
    NewPlan,
    Question,
    StudiedLayer,
)
from ascendsim.studies.sweep import studied
from ascendsim.studies.tuning.records import TilingQuestion
from ascendsim.studies.tuning.search import tune
from ascendsim.studies.tuning.tune import Tuner, compute_dtype_of

Place = tuple[StudiedLayer, str]  # a layer, and a start of L2


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
                cast("ConvProblem", point.problem),  # the command refuses others
                gradient,
                point.dtype,
                point.cube_math_type,
                (point.l2_start,),
                trials=tilings,
                changes=point.changes,
                before=point.before,
            )
            _, best = tune(Tuner(asked, engine, budget, compute_dtype_of(asked, engine.limits)))
            # With fewer plans tried after a change than before it, it would seem to buy less.
            if budget.cut:
                raise ConfigError(
                    f"time or trials are used up as plans of {point.label} were tried; what was computed is "
                    "kept: run the same command again to go on"
                )
            plans[gradient] = best.plan
    return replace(point, tiling=FrozenMap(plans))


Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Asking:
    """An engine and its remaining budget.

    asked   the calls that were asked for, by key, each once
    chosen  keys of calls under the plans that a call has chosen, which are the same calls once more
    """

    engine: Engine
    budget: Budget
    asked: dict[str, StudyPoint] = field(default_factory=dict)
    chosen: set[str] = field(default_factory=set)

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
        answers = [answer for _, answer in outcome if answer is not None]
        for key, point, answer in zip(outcome.keys, points.values(), answers, strict=True):
            if isinstance(point.tiling, str) and not answer.reason:
                self.chosen.add(under(point, answer.plans).key)
                self.engine.store.put(under(point, answer.plans).key, answer)
            if key not in self.chosen:
                self.asked.setdefault(key, point)
        return dict(zip(points, answers, strict=True))


@default_arithmetic
def study_hardware(
    question: Question, engine: Engine, budget: Budget
) -> tuple[HardwareAnswer, list[StudyPoint]]:
    """Answer what changes buy, and return the points that were timed for it, for a table.

    Raises   ConfigError for a change of no figure, and where time or trials are used up; AscendSimError where
             a layer cannot be timed on the unchanged product
    """
    asking = Asking(engine, budget)
    tried = _Tried.of(question, asking)
    best = tried.family.best(tried.own, asking)
    timed = list(asking.asked.values())
    tuned = (
        tried.family.best(_with_tuned(question, tried, engine, budget), asking) if question.tilings else {}
    )
    profile = tried.family.profile
    gains = list[Gain]()
    for design, change in enumerate(tried.family.changes[1:], start=1):
        figures = {path: (profile.figures[path].value, new) for path, new in change.on(profile).items()}
        for start in question.starts:
            without = tried.without[design]
            places = [(layer, start) for layer in question.layers if layer.name not in without]
            rows = tuple(tried.gain(place, design, best, tuned) for place in places)
            gain = Gain(change.name, FrozenMap(figures), start, rows, without=without)
            if question.doubt:
                usual = {place: Way(0, tried.own[0, place][0]) for place in places}
                counts = {place: place[0].count for place in places}
                saving = Saving(tried.family, best, counts, 0, design, usual, asking)
                doubt = doubt_of(saving, gain.own_share, question.margin)
                gain = replace(gain, doubt=doubt)
            gains.append(gain)
    return HardwareAnswer(question, *studied(profile), tuple(gains), FrozenMap(tried.refused)), timed


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
class _Tried:
    """The calls on each design under the plans of the unchanged product, and planned anew.

    family     the unchanged product and the changes that can be timed; the others are `refused` with reasons
    own        plans of each design and place: those of the unchanged product, then its own
    same,anew  answers by design and place
    without    layers that a design cannot run, by design: name -> why
    """

    family: Family
    own: dict[tuple[int, Place], list[Plans]]
    same: dict[tuple[int, Place], PointAnswer]
    anew: dict[tuple[int, Place], PointAnswer]
    refused: dict[str, str]
    without: dict[int, FrozenMap[str, str]]

    @classmethod
    def of(cls, question: Question, asking: Asking) -> _Tried:
        """Time each call under both kinds of plans."""
        profile, refused = load_profile(question.product), dict[str, str]()
        # All changes are read before the first call is timed: a mistyped one is refused at once.
        values = {change.name: change.on(profile) for change in question.changes}
        points = base_points(question)
        base = {place: require_answer(points[place], answer) for place, answer in asking(points).items()}
        changes, same, anew = [AS_IT_IS], {}, {}
        without = dict[int, FrozenMap[str, str]]()
        for change in question.changes:
            found = contradiction(question.product, values[change.name]) or _timed(
                {place: replace(point, changes=values[change.name]) for place, point in points.items()},
                base,
                asking,
            )
            if isinstance(found, str):
                refused[change.name] = found
                continue
            without[len(changes)] = found[2]
            for place in found[1]:
                same[len(changes), place], anew[len(changes), place] = found[0][place], found[1][place]
            changes.append(change)
        calls = {place: (point,) for place, point in points.items()}
        family = Family(question.product, tuple(changes), calls)
        plans = {(0, place): [Plans(answer.plans)] for place, answer in base.items()}
        own = plans | {at: [*plans[0, at[1]], Plans(answer.plans)] for at, answer in anew.items()}
        same |= {(0, place): answer for place, answer in base.items()}
        return cls(family, own, same, anew, refused, without)

    def gain(
        self,
        place: Place,
        design: int,
        best: Mapping[tuple[int, Place], Best],
        tuned: Mapping[tuple[int, Place], Best],
    ) -> LayerGain:
        """Return the gain of a change for a layer under a start."""
        layer, _ = place
        base, same, ways = self.same[0, place], self.same[design, place], best[design, place]
        there = best[0, place].time_us
        return LayerGain(
            layer.name,
            layer.count,
            base.time_us,
            None if same.reason else same.time_us,
            self.anew[design, place].time_us,
            ways.time_us,
            (tuned[0, place].time_us, tuned[design, place].time_us) if tuned else None,
            ways.way.plans != self.own[0, place][0],
            there if there < base.time_us else None,
            same.reason,
            (base.parts_us, ways.answers[0].parts_us),
            ways.speed_us,
            self._new_plans(place, design, ways.way.plans, best[0, place].way.plans),
        )

    def _new_plans(self, place: Place, design: int, better: Plans, alone: Plans) -> tuple[NewPlan, ...]:
        """Return the plans of the better time that are others than before, by gradient."""
        before, others = self.own[0, place][0], (design, *range(1, len(self.family.changes)))

        def found_for(name: str) -> str:
            found = (
                at for at in others if any(own.get(name) == better[name] for own in self.own[at, place][1:])
            )
            return self.family.changes[next(found, 0)].name

        return tuple(
            NewPlan(name, before[name], plan, found_for(name), alone.get(name) == plan)
            for name, plan in better.items()
            if plan != before.get(name, plan)
        )


def _timed(
    changed: Mapping[Place, StudyPoint], base: Mapping[Place, PointAnswer], asking: Asking
) -> tuple[dict[Place, PointAnswer], dict[Place, PointAnswer], FrozenMap[str, str]] | str:
    """Return the calls of a change under old plans and new ones, and the layers that it refuses.

    A text says why it refuses all.
    """
    # Few figures have a say in plans: where none changes, planning anew is the same call.
    moved = {place: point for place, point in changed.items() if not keeps(point, base[place].plans)}
    same = asking({place: under(point, base[place].plans) for place, point in changed.items()})
    anew = same | asking(moved)
    reasons = {place[0].name: answer.reason for place, answer in anew.items() if answer.reason}
    kept = {place: answer for place, answer in anew.items() if place[0].name not in reasons}
    first = next(iter(reasons), "")
    return (same, kept, FrozenMap(reasons)) if kept else f"{first}: {reasons[first]}"


def _with_tuned(
    question: Question, tried: _Tried, engine: Engine, budget: Budget
) -> dict[tuple[int, Place], list[Plans]]:
    """Return the plans of each design and place with those that the tuner finds."""
    found = {}
    for (design, place), own in tried.own.items():
        (call,) = tried.family.calls[place]
        point = replace(call, changes=tried.family.designs[design])
        tuned = tuned_point(point, question.tilings, engine, budget).tiling
        assert not isinstance(tuned, str)
        found[design, place] = [*own, FrozenMap(tuned)]
    return found
