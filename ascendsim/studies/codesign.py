"""Hardware outside, tuned plans inside: which designs nothing beats at their cost.

records   the question and the answer
designs   every combination of changes, timed under tuned plans
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from ascendsim.errors import AscendSimError, ConfigError
from ascendsim.frozen import FrozenMap
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.profile import Change, Cost, Profile, contradiction, load_profile
from ascendsim.studies.engine.run import Budget, Engine
from ascendsim.studies.hardware.records import StudiedLayer
from ascendsim.studies.sweep import ranged_figures
from ascendsim.studies.tuning.records import TilingQuestion
from ascendsim.studies.tuning.search import tune
from ascendsim.studies.tuning.tune import Tuner, compute_dtype_of

OVER_BUDGET = "over the budget"


@dataclass(frozen=True, slots=True)
class DesignQuestion:
    """Designs: every combination of one change of each group, the product as it is among them.

    groups   changes that exclude each other, such as the values of one figure
    cost     in the user's unit
    budget   the most that a design may cost; None: whatever
    tilings  plans that are tried for each gradient of each layer on each design
    margin   part of a time by which estimated ratios of two plans are off: less is no difference
    """

    title: str
    product: str | Path
    layers: tuple[StudiedLayer, ...]
    groups: tuple[tuple[Change, ...], ...]
    cost: Cost
    budget: float | None = None
    starts: tuple[str, ...] = ("warm", "handed")
    tilings: int = 20
    dtype: str = "float16"
    cube_math_type: int = 0
    margin: float = 0.0


@dataclass(frozen=True, slots=True)
class Design:
    """One combination of changes.

    figures   dotted path -> value; empty for the product as it is
    cost      None where figures contradict each other, so that there is no product to cost anything
    usual_us  microseconds of all layers with their counts under the plans that its operators choose, without
              changes of layout
    tuned_us  the same under the best plan of each gradient that was found
    reason    why it could not be timed, or was not; "" where it was
    """

    name: str
    figures: Mapping[str, Any]
    cost: float | None
    usual_us: float = 0.0
    tuned_us: float = 0.0
    reason: str = ""

    @property
    def refused(self) -> bool:
        """Whether it cannot be timed; what costs too much could be, and is not asked about."""
        return self.reason not in ("", OVER_BUDGET)

    @property
    def over_budget(self) -> bool:
        """Whether it costs too much."""
        return self.reason == OVER_BUDGET


@dataclass(frozen=True, slots=True)
class DesignAnswer:
    """All designs, the product as it is first; and their front: none costs less and is as fast."""

    question: DesignQuestion
    variant: str
    digest: str
    assumed: int
    designs: tuple[Design, ...]

    @property
    def front(self) -> tuple[Design, ...]:
        """The designs that no other beats in time at no more cost, the cheapest first."""
        timed = [
            (design.cost, design.tuned_us, design)
            for design in self.designs
            if design.cost is not None and not design.reason
        ]
        found: list[Design] = []
        for _, _, design in sorted(timed, key=lambda row: row[:2]):
            if not found or design.tuned_us < found[-1].tuned_us:
                found.append(design)
        return tuple(found)


GRADIENTS = ("grad_input", "grad_weight")
NO_CHANGE = "as it is"


@default_arithmetic
def study_codesign(question: DesignQuestion, engine: Engine, budget: Budget) -> DesignAnswer:
    """Answer which designs are worth their cost.

    Raises   ConfigError for a change or a cost of no figure, or figures that two groups change
    """
    profile = load_profile(question.product)
    # All are read before the first call is timed: a mistyped one is told at once.
    combinations = tuple(_combinations(question))
    designs = tuple(_design(question, name, values, engine, budget) for name, values in combinations)
    assumed = len(ranged_figures(profile))
    return DesignAnswer(question, profile.variant, profile.content.hex(), assumed, designs)


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
        # The product as it is comes first, so that a formula of no figure is told at once.
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
    # A design of which fewer plans were tried would lose against the others for that alone.
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
