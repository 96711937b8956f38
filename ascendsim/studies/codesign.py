"""Hardware outside, tuned plans inside: every combination of changes, timed under tuned plans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from operator import attrgetter
from typing import Any, cast

from ascendsim.errors import AscendSimError, ConfigError
from ascendsim.frozen import FrozenMap
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.traffic import kernel_traffic
from ascendsim.profile import Change, Profile, contradiction, load_profile
from ascendsim.profile.records import RESULTS
from ascendsim.profile.schema import LEVELS
from ascendsim.profile.voltage import supply_of
from ascendsim.studies.accounts import EnergyEvent, energy_between, energy_pj, lacking
from ascendsim.studies.engine.measure import estimate_point, planned
from ascendsim.studies.engine.point import NOTHING
from ascendsim.studies.engine.run import Budget, Engine
from ascendsim.studies.hardware.doubt import Saving, doubt_of
from ascendsim.studies.hardware.gains import Asking
from ascendsim.studies.hardware.plans import GRADIENTS, Best, Family, Plans
from ascendsim.studies.hardware.records import (
    ENERGY,
    OVER_BUDGET,
    Design,
    DesignAnswer,
    DesignQuestion,
    StudiedLayer,
)
from ascendsim.studies.sweep import studied
from ascendsim.studies.traffic import energy_events
from ascendsim.studies.tuning.records import TilingQuestion
from ascendsim.studies.tuning.search import tune
from ascendsim.studies.tuning.tune import Tuner, compute_dtype_of, point_of

Place = tuple[StudiedLayer, str]  # a layer, and one of its gradients
NO_CHANGE = "as it is"


@default_arithmetic
def study_codesign(question: DesignQuestion, engine: Engine, budget: Budget) -> DesignAnswer:
    """Answer which designs are worth their cost.

    Raises   ConfigError for a change or a cost of no figure, or figures that two groups change
    """
    profile = load_profile(question.product)
    # All are read before the first call is timed: a mistyped one is refused at once.
    changes = tuple(_combinations(question))
    found = [_design(question, change, engine, budget) for change in changes]
    designs = _best_of_all(question, changes, found, Asking(engine, budget))
    return DesignAnswer(question, *studied(profile), designs)


def _best_of_all(
    question: DesignQuestion,
    changes: Sequence[Change],
    found: Sequence[tuple[Design, Mapping[Place, list[Plans]]]],
    asking: Asking,
) -> tuple[Design, ...]:
    """Return the designs, each with the fastest plans of itself and of the designs that fit inside it."""
    # The first is the product as it is: not timed, it may be over the budget, it has no plans either.
    timed = [at for at, (design, _) in enumerate(found) if not design.reason or not at]
    family = Family(
        question.product,
        tuple(changes[at] for at in timed),
        {
            (layer, gradient): tuple(
                point_of(_asked(question, layer, gradient, NOTHING), start, "product")
                for start in question.starts
            )
            for layer, gradient in _places(question)
        },
        attrgetter("planned_us"),
    )
    own = {(number, place): plans for number, at in enumerate(timed) for place, plans in found[at][1].items()}
    best = family.best(own, asking)
    designs = [design for design, _ in found]
    counts = {place: place[0].count for place in _places(question)}
    us = {
        number: sum(
            count * best[number, place].time_us for place, count in counts.items() if (number, place) in own
        )
        for number, at in enumerate(timed)
        if not designs[at].reason
    }
    whole = [number for number in us if designs[timed[number]].whole]
    fastest = min(whole, key=lambda number: us[number], default=0)
    for number, tuned_us in us.items():
        behind, share = None, 1 - us[fastest] / tuned_us
        # Designs within the margin are not distinguishable, whatever values the figures have.
        if question.doubt and number in whole and share > question.margin:
            saving = Saving(family, best, counts, number, fastest, {}, asking)
            behind = doubt_of(saving, share, question.margin)
        design = replace(designs[timed[number]], tuned_us=tuned_us, behind=behind)
        # Results of a part of the layers cost nothing that compares.
        costed = number in whole and question.cost.results
        designs[timed[number]] = _costed(question, design, number, family, best, asking) if costed else design
    return tuple(designs)


def _costed(
    question: DesignQuestion,
    design: Design,
    number: int,
    family: Family,
    best: Mapping[tuple[int, Place], Best],
    asking: Asking,
) -> Design:
    """Return a design that was timed on all layers with its cost, which hangs on results."""
    results = _results(question, design.tuned_us, number, family, best, asking)
    profile = load_profile(question.product, overrides=dict(design.figures))
    cost, low, high = (question.cost.of(profile, each) for each in results)
    over = question.budget is not None and cost > question.budget
    ends = (low, high) if low != high else None
    return replace(design, cost=cost, cost_ends=ends, reason=OVER_BUDGET if over else "")


def _results(
    question: DesignQuestion,
    tuned_us: float,
    number: int,
    family: Family,
    best: Mapping[tuple[int, Place], Best],
    asking: Asking,
) -> list[dict[str, float]]:
    """Return the results that a cost formula may name: time, bytes and energy, without changes of layout.

    Returns  them three times: with the figures of energy as they are, at their lower and at their upper ends

    Raises   ConfigError where the product lacks a figure of the energy
    """
    sizes, events = Counter[str](), list[EnergyEvent]()
    for place in _places(question) if question.cost.results != {"result.time_us"} else ():
        way = best[number, place].way
        # The call whose time counts: that of the slowest start.
        calls = list(zip(family.points(way, place), best[number, place].answers, strict=True))
        point, _ = max(calls, key=lambda call: family.us(call[1]))
        for kernel in planned(estimate_point(point, asking.engine.limits)):
            traffic = kernel_traffic(kernel, point.profile)
            sizes.update(
                {f"result.bytes.{level}": place[0].count * sum(traffic.at(level)) for level in LEVELS}
            )
            own = energy_events(traffic, kernel, point.profile)
            events += [event._replace(count=place[0].count * event.count) for event in own]
    results: dict[str, float] = {**dict.fromkeys(RESULTS, 0.0), **sizes, "result.time_us": tuned_us}
    if ENERGY in question.cost.results and (lacks := lacking(events)):
        raise ConfigError(
            f"cost {question.cost.text!r}: the energy is not known, as {question.product} lacks "
            f"{', '.join(lacks)}; give these figures in a product file"
        )
    energies = energy_pj(events) or 0, *(energy_between(events) or (0, 0))
    return [{**results, ENERGY: float(each / 1_000_000)} for each in energies]


def _places(question: DesignQuestion) -> list[Place]:
    return [
        (layer, gradient)
        for layer in question.layers
        for gradient, wanted in zip(GRADIENTS, layer.gradients, strict=False)
        if wanted
    ]


def _combinations(question: DesignQuestion) -> Iterator[Change]:
    """Yield every combination as one change, none of its changes first."""
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
        change = Change(name, figures)
        change.on(profile)
        yield change


def _require_another_product(change: Change, profile: Profile) -> None:
    """Refuse a change to what the product has already, which would stand there as a design of its own."""
    if all(profile.figures[path].value == value for path, value in change.on(profile).items()):
        raise ConfigError(
            f"{change.name} is what {profile.variant} has: leave it out; the design without a change is "
            "always among them"
        )


def _design(
    question: DesignQuestion, change: Change, engine: Engine, budget: Budget
) -> tuple[Design, dict[Place, list[Plans]]]:
    """Return a design under the usual plans, and its usual plan and the tuned one of each place."""
    name, values = change.name, change.on(load_profile(question.product))
    # Figures that contradict each other are a design that cannot be.
    impossible = contradiction(question.product, values)
    if impossible:
        return Design(name, values, None, reason=impossible), {}
    try:
        profile = load_profile(question.product, overrides=dict(values))
        cost: float | None = question.cost.of(profile)
        if ENERGY in question.cost.results:
            supply_of(profile)  # refuses a clock without a voltage before the calls are timed
    except ConfigError as error:
        # The unchanged product comes first, so that a formula of an unknown figure is refused at once.
        if not values:
            raise
        return Design(name, values, None, reason=str(error)), {}
    if question.cost.results:
        cost = None  # known once it has been timed
    elif question.budget is not None and cost is not None and cost > question.budget:
        return Design(name, values, cost, reason=OVER_BUDGET), {}
    usual_us, plans, without = 0.0, dict[Place, list[Plans]](), dict[str, str]()
    for layer, gradient in _places(question):
        asked = _asked(question, layer, gradient, values)
        try:
            tuner = Tuner(asked, engine, budget, compute_dtype_of(asked, engine.limits))
            usual, best = tune(tuner)
        except AscendSimError as error:
            without[f"{gradient} of {layer.name}"] = str(error)
            continue
        usual_us += layer.count * tuner.score(usual)
        plans[layer, gradient] = [Plans({gradient: trial.plan}) for trial in (usual, best)]
    # A design with fewer tried plans would lose against the others for this alone.
    if budget.cut:
        raise ConfigError(
            f"time or trials are used up in design {name}; what was computed is kept: run the same command "
            "again to go on"
        )
    if not plans:
        return Design(name, values, cost, reason=next(iter(without.values()), "")), {}
    return Design(name, values, cost, usual_us, without=FrozenMap(without)), plans


def _asked(
    question: DesignQuestion, layer: StudiedLayer, gradient: str, values: FrozenMap[str, Any]
) -> TilingQuestion:
    return TilingQuestion(
        layer.name,
        question.product,
        cast("ConvProblem", layer.problem),  # the command refuses others
        gradient,
        question.dtype,
        question.cube_math_type,
        question.starts,
        trials=question.tilings,
        changes=values,
    )
