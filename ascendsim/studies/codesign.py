"""Hardware outside, tuned plans inside: every combination of changes, timed under tuned plans."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from ascendsim.errors import AscendSimError, ConfigError
from ascendsim.frozen import FrozenMap
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.profile import Change, Profile, contradiction, load_profile
from ascendsim.studies.engine.run import Budget, Engine
from ascendsim.studies.hardware.records import (
    OVER_BUDGET,
    Design,
    DesignAnswer,
    DesignQuestion,
    StudiedLayer,
)
from ascendsim.studies.sweep import studied
from ascendsim.studies.tuning.records import TilingQuestion
from ascendsim.studies.tuning.search import tune
from ascendsim.studies.tuning.tune import Tuner, compute_dtype_of

GRADIENTS = ("grad_input", "grad_weight")
NO_CHANGE = "as it is"


@default_arithmetic
def study_codesign(question: DesignQuestion, engine: Engine, budget: Budget) -> DesignAnswer:
    """Answer which designs are worth their cost.

    Raises   ConfigError for a change or a cost of no figure, or figures that two groups change
    """
    profile = load_profile(question.product)
    # All are read before the first call is timed: a mistyped one is refused at once.
    combinations = tuple(_combinations(question))
    designs = tuple(_design(question, name, values, engine, budget) for name, values in combinations)
    return DesignAnswer(question, *studied(profile), designs)


def _combinations(question: DesignQuestion) -> Iterator[tuple[str, FrozenMap[str, Any]]]:
    """Yield every combination, none of its changes first."""
    profile = load_profile(question.product)
    for change in (change for group in question.groups for change in group):
        _require_another_product(change, profile)
    for chosen in product(*((None, *group) for group in question.groups)):
        changes = [change for change in chosen if change is not None]
        figures: dict[str, Any] = {}
        for change in changes:
            shared = sorted(figures.keys() & change.figures.keys())
            if shared:
                raise ConfigError(f"{shared[0]} is changed by two of {', '.join(c.name for c in changes)}")
            figures |= change.figures
        name = " ".join(change.name for change in changes) or NO_CHANGE
        # As one change: what follows one of them may be said by another.
        yield name, Change(name, figures).on(profile)


def _require_another_product(change: Change, profile: Profile) -> None:
    """Refuse a change to what the product has already, which would stand there as a design of its own."""
    if all(profile.figures[path].value == value for path, value in change.on(profile).items()):
        raise ConfigError(
            f"{change.name} is what {profile.variant} has: leave it out; the design without a change is "
            "always among them"
        )


def _design(
    question: DesignQuestion, name: str, values: FrozenMap[str, Any], engine: Engine, budget: Budget
) -> Design:
    # Figures that contradict each other are a design that cannot be.
    impossible = contradiction(question.product, values)
    if impossible:
        return Design(name, values, None, reason=impossible)
    try:
        cost = question.cost.of(load_profile(question.product, overrides=dict(values)))
    except ConfigError as error:
        # The unchanged product comes first, so that a formula of an unknown figure is refused at once.
        if not values:
            raise
        return Design(name, values, None, reason=str(error))
    if question.budget is not None and cost > question.budget:
        return Design(name, values, cost, reason=OVER_BUDGET)
    usual_us = tuned_us = 0.0
    try:
        for layer in question.layers:
            for gradient in GRADIENTS:
                if layer.gradients[GRADIENTS.index(gradient)]:
                    usual, tuned = _times(question, layer, gradient, values, engine, budget)
                    usual_us += layer.count * usual
                    tuned_us += layer.count * tuned
    except AscendSimError as error:
        if not budget.cut:
            return Design(name, values, cost, reason=str(error))
    # A design with fewer tried plans would lose against the others for this alone.
    if budget.cut:
        raise ConfigError(
            f"time or trials are used up in design {name}; what was computed is kept: run the same command "
            "again to go on"
        )
    return Design(name, values, cost, usual_us, tuned_us)


def _times(
    question: DesignQuestion,
    layer: StudiedLayer,
    gradient: str,
    values: FrozenMap[str, Any],
    engine: Engine,
    budget: Budget,
) -> tuple[float, float]:
    """Return the score of the usual and of the best plan of one gradient on a design."""
    asked = TilingQuestion(
        layer.name,
        question.product,
        layer.problem,
        gradient,
        question.dtype,
        question.cube_math_type,
        question.starts,
        trials=question.tilings,
        changes=values,
    )
    tuner = Tuner(asked, engine, budget, compute_dtype_of(asked))
    usual, best = tune(tuner)
    return tuner.score(usual), tuner.score(best)
