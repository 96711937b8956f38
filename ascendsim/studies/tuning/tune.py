"""Look for a plan that beats the product's: steps from where it stands, then Optuna where they end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from ascendsim.errors import ConfigError
from ascendsim.frozen import FrozenMap
from ascendsim.ops.convolution_backward import estimate
from ascendsim.ops.plan import Plan
from ascendsim.ops.tiling.legal.space import Base
from ascendsim.profile import Profile, load_profile
from ascendsim.studies.engine.point import Point
from ascendsim.studies.engine.run import Budget, Engine, require_answer
from ascendsim.studies.tuning.moves import neighbours, nests_of
from ascendsim.studies.tuning.records import SCORES, TilingQuestion, Trial
from ascendsim.studies.tuning.space import Tilings, Wish

# Plans that are asked for at once: the same for any number of processes, so that these change nothing.
BATCH = 8


@dataclass
class Tuner:
    """Scores plans of one gradient; remembers all, so that each is timed once."""

    question: TilingQuestion
    engine: Engine
    budget: Budget
    compute_dtype: str
    trials: dict[Plan, Trial] = field(default_factory=dict)
    pruned: int = 0

    def __post_init__(self) -> None:
        if self.question.score not in SCORES:
            raise ConfigError(f"score is {self.question.score!r}; it must be one of {', '.join(SCORES)}")
        changes = dict(self.question.changes)
        self.profile: Profile = load_profile(self.question.product, overrides=changes or None)

    @property
    def left(self) -> int:
        """How many tilings may still be tried."""
        return self.question.trials - len(self.trials)

    def point(self, start: str, tiling: Any, changes: Mapping[str, Any] | None = None) -> Point:
        """Return the call of the gradient alone."""
        asked = self.question
        return Point(
            asked.problem,
            asked.product,
            FrozenMap({**asked.changes, **(changes or {})}),
            asked.dtype,
            asked.cube_math_type,
            asked.gradients,
            start,
            tiling if isinstance(tiling, str) else FrozenMap({asked.gradient: tiling}),
            asked.before,
            label=asked.gradient,
        )

    def chosen(self, strategy: str) -> Trial:
        """Time the plan that a strategy chooses."""
        points = [self.point(start, strategy) for start in self.question.starts]
        times, plan = {}, None
        for point, answer in self.engine.answer(points, self.budget):
            sure = require_answer(point, answer)
            times[point.l2_start], plan = sure.planned_us, sure.plans[self.question.gradient]
        assert plan is not None
        return self.trials.setdefault(plan, Trial(plan, strategy, FrozenMap(times)))

    def try_all(self, plans: Sequence[Plan], found_by: str, best: float) -> None:
        """Time plans that are new, under one start after the other; what cannot beat `best` stops."""
        new = [plan for plan in dict.fromkeys(plans) if plan not in self.trials]
        alive: dict[Plan, dict[str, float]] = {}
        for plan in new[: max(0, self.left)]:
            # The bound needs no timing, and holds for every start.
            if self.least_us(plan) >= best:
                self.trials[plan] = Trial(plan, found_by, FrozenMap(), "")
                self.pruned += 1
            else:
                alive[plan] = {}
        for start in self.question.starts:
            points = {plan: self.point(start, plan) for plan in alive}
            outcome = self.engine.answer(list(points.values()), self.budget)
            for plan, (_, answer) in zip(points, outcome, strict=True):
                if answer is None:
                    alive.pop(plan)
                elif answer.reason:
                    self.trials[plan] = Trial(plan, found_by, FrozenMap(), answer.reason)
                    alive.pop(plan)
                else:
                    alive[plan][start] = answer.planned_us
                    self.trials[plan] = Trial(plan, found_by, FrozenMap(alive[plan]))
                    if self.question.score == "worst" and answer.planned_us >= best:
                        alive.pop(plan)

    def least_us(self, plan: Plan) -> float:
        """Return a time below which no plan with so many cores comes: its multiply-adds at full rate."""
        rate = self.profile.cube.rate(self.compute_dtype).macs_per_cycle
        cycles = self.question.problem.macs / (rate * plan.tiling.used_cores)
        return float(cycles) / self.profile.clock.cube_mhz

    def score(self, trial: Trial) -> float:
        """Return the microseconds that count; infinite where they are not all known."""
        times = [trial.times_us.get(start, float("inf")) for start in self.question.starts]
        return max(times) if self.question.score == "worst" else sum(times) / len(times)

    @property
    def best(self) -> Trial:
        """The best of all trials, of equal ones the first."""
        return min(self.trials.values(), key=self.score)


def compute_dtype_of(question: TilingQuestion) -> str:
    """Return what the cube multiplies for a gradient.

    Raises   AscendSimError where the call is refused
    """
    changes = dict(question.changes)
    call = question.problem, question.dtype, question.cube_math_type
    profile = load_profile(question.product, overrides=changes or None)
    found = estimate(*call, output_mask=question.gradients, product=profile)
    return next(kernel.kernel.compute_dtype for kernel in found.kernels if kernel.plan is not None)


def tune(tuner: Tuner) -> tuple[Trial, Trial]:
    """Return the product's plan and the best one that was found within the trials.

    Raises   AscendSimError where the product's own plan cannot be timed
    """
    asked = tuner.question
    usual = tuner.chosen("product")
    tilings = Tilings(asked.problem, asked.gradient, tuner.compute_dtype, tuner.profile)
    starts = [usual, tuner.chosen("search")]
    for trial in starts:
        # A nest of the product's own has fields that the usual one does not know.
        if trial.plan.schedule in nests_of(tilings.space.schedule):
            _climb(tuner, tilings, trial)
    _draw(tuner, tilings)
    best = tuner.best
    return usual, best if tuner.score(best) < tuner.score(usual) else usual


def _climb(tuner: Tuner, tilings: Tilings, trial: Trial) -> None:
    """Go to the best neighbour until none is better."""
    here = trial
    while tuner.left > 0:
        near = neighbours(here.plan, tilings)
        tuner.try_all(near, "steps", tuner.score(here))
        known = [tuner.trials[plan] for plan in near if plan in tuner.trials]
        best = min(known, key=tuner.score, default=here)
        if tuner.score(best) >= tuner.score(here):
            return
        here = best


def _draw(tuner: Tuner, tilings: Tilings) -> None:
    """Let Optuna draw plans by what it was told, and climb from each new best; without it, that is all."""
    try:
        import optuna
    except ImportError:
        return
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=tuner.question.seed))
    idle = 0
    # What is drawn may be known already, or no plan; many such draws in a row mean that little is left.
    while tuner.left > 0 and idle < 10:
        before, best = len(tuner.trials), tuner.best
        drawn = [study.ask() for _ in range(min(BATCH, tuner.left))]
        plans = [_drawn(trial, tilings) for trial in drawn]
        tuner.try_all([plan for plan in plans if plan], "optuna", tuner.score(best))
        for trial, plan in zip(drawn, plans, strict=True):
            time_us = _told(tuner, plan)
            if time_us is None:
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
            else:
                study.tell(trial, time_us)
        if tuner.best is not best:
            _climb(tuner, tilings, tuner.best)
        idle = idle + 1 if len(tuner.trials) == before else 0


def _drawn(trial: Any, tilings: Tilings) -> Plan | None:
    base = Base(*(sizes[trial.suggest_int(axis, 0, len(sizes) - 1)] for axis, sizes in _axes(tilings)))
    split = trial.suggest_int("k_split", 1, tilings.space.splits[-1], log=tilings.space.splits[-1] > 1)
    lengths = [base.k * 2 ** trial.suggest_int(f"reduction_{side}", 0, 8) for side in ("a", "b")]
    names = ("al1", "bl1", "al0", "bl0", "cl0")
    copies = tuple(trial.suggest_int(name, 1, 2) for name in names)
    return tilings.plan(Wish(base, split, lengths[0], lengths[1], copies))


def _axes(tilings: Tilings) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield from zip(("m", "n", "k"), tilings.sizes, strict=True)


def _told(tuner: Tuner, plan: Plan | None) -> float | None:
    """Return what Optuna is told of a plan: its score, or the worst time where only some are known."""
    trial = tuner.trials.get(plan) if plan else None
    if trial is None or not trial.times_us:
        return None
    score = tuner.score(trial)
    return score if isfinite(score) else max(trial.times_us.values())
