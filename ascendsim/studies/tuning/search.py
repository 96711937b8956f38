"""Where plans are looked for: steps from where the product's rules and the search stand, then Optuna."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import isfinite
from typing import Any

from ascendsim.ops.plan import Plan
from ascendsim.ops.tiling.legal.space import Base
from ascendsim.ops.tiling.request import PlanRequest
from ascendsim.studies.tuning.moves import neighbours, nests_of
from ascendsim.studies.tuning.operators import OperatorTilings
from ascendsim.studies.tuning.records import Trial
from ascendsim.studies.tuning.space import Tilings, Wish
from ascendsim.studies.tuning.tune import Tuner

# Plans that are asked for at once: the same for any number of processes, so that these change nothing.
BATCH = 8
# Neighbours that are tried before a step is taken.
GROUP = 12
# Returns the plans one step away.
Steps = Callable[[Plan], list[Plan]]


def tune(tuner: Tuner) -> tuple[Trial, Trial]:
    """Return the usual plan and the best one that was found within the trials.

    Raises   AscendSimError where the usual plan cannot be timed
    """
    asked = tuner.question
    request = PlanRequest(asked.problem, asked.gradient, tuner.compute_dtype, tuner.profile)
    ours, operators = Tilings(request), OperatorTilings(request)
    usual, searched = tuner.chosen("product"), tuner.chosen("search")
    tuner.allowed = lambda plan: asked.nests != "operators" or operators.has(plan)
    tuner.same = operators.spelled
    if asked.nests != "ours" and (asked.nests == "operators" or operators.has(usual.plan)):
        tuner.try_all(operators.starts(), "rules", float("inf"))
        begun = [trial for plan, trial in tuner.trials.items() if operators.has(plan) and trial.times_us]
        # The best first: trials may be used up before the others have their turn.
        for trial in sorted(begun, key=tuner.score):
            _climb(tuner, operators.neighbours, trial)
    if asked.nests != "operators":
        # The best first: trials may be used up before the other has its turn.
        for trial in sorted((usual, searched), key=tuner.score):
            # A nest of the product's own has fields that the usual one does not know.
            if trial.plan.schedule in nests_of(ours.space.schedule):
                _climb(tuner, lambda plan: neighbours(plan, ours), trial)
        _draw(tuner, ours)
    best = tuner.best
    return usual, best if tuner.score(best) < tuner.score(usual) else usual


def _climb(tuner: Tuner, steps: Steps, trial: Trial) -> None:
    """Go to better neighbours until none is better: to the best of each group, from where the next goes on.

    Neighbours come in an order of kinds of steps. A look at all of them would use up many trials for a step
    in one direction.
    """
    here, group, idle = trial, 0, 0
    while tuner.left > 0:
        near = steps(here.plan)
        groups = max(1, -(-len(near) // GROUP))
        own = near[group % groups * GROUP :][:GROUP]
        tuner.try_all(own, "steps", tuner.score(here))
        known = [tuner.trials[plan] for plan in own if plan in tuner.trials]
        best = min(known, key=tuner.score, default=here)
        better = tuner.score(best) < tuner.score(here)
        here, idle, group = (best, 0, group + 1) if better else (here, idle + 1, group + 1)
        if idle >= groups:
            return


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
            _climb(tuner, lambda plan: neighbours(plan, tilings), tuner.best)
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
    """Return what Optuna is told of a plan: its score, or else what it is known not to beat.

    Of a plan that was stopped that is the score to beat, of one that was not timed its bound, of one that is
    timed under some starts the worst of these. None where nothing is known: of no plan, or a refused one.
    """
    trial = tuner.trials.get(tuner.same(plan)) if plan else None
    if trial is None or trial.reason:
        return None
    score = tuner.score(trial)
    known = score if isfinite(score) else max((trial.above_us, *trial.times_us.values()))
    return known or None
