"""The call of a point with each gradient under the best plan that the tuner finds for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ascendsim.errors import ConfigError
from ascendsim.frozen import FrozenMap
from ascendsim.ops.plan import Plan
from ascendsim.profile import load_profile
from ascendsim.studies.engine.point import Point
from ascendsim.studies.engine.run import Budget, Engine, require_answer
from ascendsim.studies.hardware.doubt import Pair
from ascendsim.studies.hardware.plans import without_added_cores
from ascendsim.studies.hardware.records import Gain, Question
from ascendsim.studies.tuning.records import TilingQuestion
from ascendsim.studies.tuning.search import tune
from ascendsim.studies.tuning.tune import Tuner, compute_dtype_of

GRADIENTS = ("grad_input", "grad_weight")


def tuned_point(point: Point, tilings: int, engine: Engine, budget: Budget) -> Point:
    """Return the point with tuned plans, of at most so many that are tried for each gradient.

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
    question: Question, gains: Sequence[Gain], pairs: Sequence[Pair], engine: Engine, budget: Budget
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


def _tuned_us(point: Point, tilings: int, engine: Engine, budget: Budget) -> float:
    tuned = tuned_point(point, tilings, engine, budget)
    ((_, answer),) = engine.answer([tuned], budget)
    return require_answer(tuned, answer).time_us
