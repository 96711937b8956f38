"""Tune one gradient, and say why the best plan is faster and how sure that is."""

from __future__ import annotations

from dataclasses import replace

from ascendsim.frozen import FrozenMap
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.ops.convolution_backward import estimate
from ascendsim.ops.plan import Plan
from ascendsim.ops.results import Estimate
from ascendsim.profile import Profile, load_profile
from ascendsim.studies.engine.run import Budget, Engine
from ascendsim.studies.sweep import ends, hashable, ranged_figures
from ascendsim.studies.tuning.courses import course_of
from ascendsim.studies.tuning.records import TilingAnswer, TilingQuestion
from ascendsim.studies.tuning.search import tune
from ascendsim.studies.tuning.tune import Tuner, compute_dtype_of
from ascendsim.studies.tuning.waits import waits_of


@default_arithmetic
def study_tiling(question: TilingQuestion, engine: Engine, budget: Budget) -> tuple[TilingAnswer, Tuner]:
    """Answer what beats the product's plan; the tuner holds every plan that was tried.

    Raises   AscendSimError where the product's own plan cannot be timed
    """
    changes = dict(question.changes)
    profile = load_profile(question.product, overrides=changes or None)
    tuner = Tuner(question, engine, budget, compute_dtype_of(question))
    usual, best = tune(tuner)
    found = list(tuner.trials.values())
    full = sum(len(trial.times_us) == len(question.starts) for trial in found)
    refused = sum(bool(trial.reason) for trial in found)
    tried = {"timed": full, "pruned": len(found) - full - refused, "refused": refused}
    mhz, name = profile.clock.cube_mhz, question.gradient
    waits, courses = [], []
    for start in question.starts:
        before, after = (_estimate(question, profile, trial.plan, start) for trial in (usual, best))
        waits.append(waits_of(start, name, before, after, mhz))
        courses.append(course_of(start, name, before, after, profile))
    answer = TilingAnswer(
        question,
        profile.variant,
        profile.content.hex(),
        len(ranged_figures(profile)),
        usual,
        best,
        tuple(waits),
        tuple(courses),
        FrozenMap(tried),
        cut=budget.cut,
    )
    if question.doubt and best.plan != usual.plan:
        answer = _doubted(answer, tuner)
    return answer, tuner


def _estimate(question: TilingQuestion, profile: Profile, plan: Plan, start: str) -> Estimate:
    return estimate(
        question.problem,
        question.dtype,
        question.cube_math_type,
        output_mask=question.gradients,
        product=profile,
        tiling={question.gradient: plan},
        l2_start=start,
    )


def _doubted(answer: TilingAnswer, tuner: Tuner) -> TilingAnswer:
    """Time both plans at both ends of each assumed figure, and name those at which the best is slower."""
    points = {}
    for path, figure in ranged_figures(tuner.profile).items():
        for end in dict.fromkeys(map(hashable, ends(figure))):
            if end == hashable(figure.value):
                continue
            for start in answer.question.starts:
                for trial in (answer.usual, answer.best):
                    points[path, end, start, trial.plan] = tuner.point(start, trial.plan, {path: end})
    outcome = tuner.engine.answer(list(points.values()), tuner.budget)
    times: dict[tuple[str, object, str], dict[Plan, float]] = {}
    untried = set()
    for (path, end, start, plan), (_, found) in zip(points, outcome, strict=True):
        if found is None:
            untried.add((path, end, start))
        elif not found.reason:
            times.setdefault((path, end, start), {})[plan] = found.planned_us
    both = {place: row for place, row in times.items() if len(row) == 2}
    lost = [
        f"{path}={end}, L2 {start}"
        for (path, end, start), row in both.items()
        if row[answer.best.plan] >= row[answer.usual.plan]
    ]
    return replace(answer, ends=len(both), lost=tuple(lost), untried=len(untried))
