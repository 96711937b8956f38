"""The fastest way to run calls on every design of a family: its own plans, and those of designs inside it.

A design that has all that another has is never slower: it may follow that one's plans, leave unused what it
has more, and hold back what is faster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any

from ascendsim.errors import AscendSimError
from ascendsim.frozen import FrozenMap, cached_property
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.ops.convolution_backward import plans_of_call
from ascendsim.ops.plan import Plan
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.profile import Change, Profile, load_profile
from ascendsim.studies.engine.measure import PointAnswer
from ascendsim.studies.engine.point import NOTHING, StudyPoint
from ascendsim.studies.hardware.figures import fits_inside, held_to
from ascendsim.studies.hardware.records import CORES

Place = Any  # hashable: of a call in a study, such as a layer and a start of L2
Values = FrozenMap[str, Any]  # of a design: dotted path -> value that replaces the product's
Plans = FrozenMap[str, Plan]  # by gradient
Ask = Callable[[Mapping[Any, StudyPoint]], dict[Any, PointAnswer]]
GRADIENTS = ("grad_input", "grad_weight")


AS_IT_IS = Change("as it is", FrozenMap())


def under(point: StudyPoint, plans: Mapping[str, Plan]) -> StudyPoint:
    """Return a point under given plans."""
    return replace(point, tiling=FrozenMap(plans))


def keeps(point: StudyPoint, plans: Mapping[str, Plan]) -> bool:
    """Return whether a call chooses just these plans."""
    if not isinstance(point.problem, ConvProblem):
        return False  # the plans of its products are chosen as it is timed
    call = point.problem, point.dtype, point.cube_math_type
    try:
        return dict(plans_of_call(*call, output_mask=point.gradients, product=point.profile)) == plans
    except AscendSimError:
        return False  # timing it will say why


@dataclass(frozen=True, slots=True)
class Way:
    """One way to run a call on a design.

    design  its number in the family
    unused  sizes that it keeps to: dotted path -> value, less than it has
    """

    design: int
    plans: Plans
    unused: Values = NOTHING


@dataclass(frozen=True, slots=True)
class Best:
    """The fastest way of a design to run a call.

    way        may be that of a design inside, whose speeds it then keeps to
    time_us    of `answers`, one for each of the calls that count together
    speed_us   the least time with no part held back in speed
    whole      the fastest way that leaves nothing unused; `way` where there is none
    """

    way: Way
    time_us: float
    answers: tuple[PointAnswer, ...]
    speed_us: float
    whole: Way


@dataclass(frozen=True)
class Family:
    """Designs of one product.

    product  its name or variant, or the path of its file
    changes  one for each design; the first is the product as it is, without any
    calls    by place: what is run on each design, such as one convolution under several starts of L2; the
             time of a place is that of its slowest call
    us       the time of an answer that counts
    moved    figures at another value before any change: dotted path -> value
    """

    product: str | Path
    changes: tuple[Change, ...]
    calls: Mapping[Place, tuple[StudyPoint, ...]]
    us: Callable[[PointAnswer], float] = attrgetter("time_us")
    moved: Values = NOTHING

    @cached_property
    def profile(self) -> Profile:
        """The product with the moved figures; ConfigError where they contradict each other."""
        return load_profile(self.product, overrides=dict(self.moved) or None)

    @cached_property
    def designs(self) -> tuple[Values, ...]:
        """The values of each design."""
        return tuple(map(self.values, range(len(self.changes))))

    def values(self, design: int) -> Values:
        """Return the values of a design; a factor is of the figure as it is moved."""
        return FrozenMap({**self.moved, **self.changes[design].on(self.profile)})

    @cached_property
    def at(self) -> Callable[[Values], Family]:
        """Gives the family with figures moved, made once for each move."""
        return cache(lambda moved: replace(self, moved=moved))

    @cached_property
    def inside(self) -> tuple[tuple[int, ...], ...]:
        """For each design those that fit inside it, of equal ones those before it."""
        each = range(len(self.designs))
        fits = [[fits_inside(one, other, self.profile) for other in self.designs] for one in self.designs]
        return tuple(
            tuple(one for one in each if fits[one][at] and (one < at or not fits[at][one]) and one != at)
            for at in each
        )

    @property
    def _levels(self) -> list[list[int]]:
        """The designs in steps: those inside a design come in steps before its own."""
        left, steps = set(range(len(self.designs))), list[list[int]]()
        while left:
            steps.append([design for design in sorted(left) if not left & set(self.inside[design])])
            left -= set(steps[-1])
        return steps

    def points(self, way: Way, place: Place) -> list[StudyPoint]:
        """Return the calls of a place run in a way."""
        values, own, usual = self.values(way.design), self.profile.figures, load_profile(self.product).figures
        less = {p: size for p, size in way.unused.items() if size <= values.get(p, own[p].value)}
        changes = {**values, **less}
        same = {path for path, value in changes.items() if value == usual[path].value}
        # The number of the other cores would follow that of one kind alone.
        same -= set() if same.issuperset(changes.keys() & set(CORES)) else set(CORES)
        kept = Values({path: value for path, value in changes.items() if path not in same})
        return [under(replace(call, changes=kept), way.plans) for call in self.calls[place]]

    @default_arithmetic
    def best(self, own: Mapping[tuple[int, Place], Sequence[Plans]], asking: Ask) -> dict[Any, Best]:
        """Return the fastest way of each design and place, by both; none where no plan fits.

        own  the plans that are a design's own, the first one of equal ones is taken. The product as it is,
             where it is in the family, tries those of all others too: what they save needs no change
        """
        found: dict[Any, Best] = {}
        for level in self._levels:
            tried = {
                (design, place): self._ways(design, place, own, found)
                for design in level
                for place in self.calls
            }
            timed = self._timed(tried, asking)
            more = {at: _parted(ways, timed[at]) for at, ways in tried.items()}
            timed = _joined(timed, self._timed(more, asking))
            mixes = {at: _mixed(ways) for at, ways in timed.items()}
            timed = _joined(timed, self._timed(mixes, asking))
            for (design, place), ways in timed.items():
                inside = [found[one, place] for one in self.inside[design] if (one, place) in found]
                if ways:
                    found[design, place] = self._fastest(ways, inside)
        return found

    def _ways(
        self, design: int, place: Place, own: Mapping[tuple[int, Place], Sequence[Plans]], found: Any
    ) -> list[Way]:
        """Return the plans to try on a design: its own, and those of others, with parts left idle or not."""
        ways = [Way(design, plans) for plans in own.get((design, place), ())]
        # With own plans, too, what the product as it is has not may be left unused.
        others = [Way(0, way.plans) for way in ways]
        others += [found[one, place].way for one in self.inside[design] if (one, place) in found]
        # All try the plans of the product as it is, and that those of all.
        others += [
            Way(other, plans)
            for (other, where), every in own.items()
            if where == place and 0 in (design, other) and (0, place) in own
            for plans in every
        ]
        for way in others:
            sizes = {**self.designs[way.design], **way.unused}
            held = held_to(self.designs[design], sizes, self.profile)
            ways += [Way(design, way.plans, unused) for unused in (NOTHING, *held)]
        return list(dict.fromkeys(ways))

    def _timed(self, tried: Mapping[Any, Sequence[Way]], asking: Ask) -> dict[Any, _Timed]:
        """Time ways by design and place; those that do not fit are left out."""
        calls = {
            (at, number, call): point
            for at, ways in tried.items()
            for number, way in enumerate(ways)
            for call, point in enumerate(self.points(way, at[1]))
        }
        answers = asking(calls)
        timed: dict[Any, _Timed] = {}
        for at, ways in tried.items():
            timed[at] = []
            for number, way in enumerate(ways):
                each = tuple(answers[at, number, call] for call in range(len(self.calls[at[1]])))
                if not any(answer.reason for answer in each):
                    timed[at].append((max(map(self.us, each)), way, each))
        return timed

    def _fastest(self, ways: _Timed, inside: Iterable[Best]) -> Best:
        # Of equal ones the first: plans stay unless others are faster, and no part is held back in vain.
        time_us, way, answers = min(ways, key=itemgetter(0))
        whole = min(
            (timed for timed in ways if not timed[1].unused), key=lambda timed: timed[0], default=None
        )
        best = Best(way, time_us, answers, time_us, whole[1] if whole else way)
        held = min(inside, key=lambda one: one.time_us, default=best)
        if held.time_us < time_us:
            return replace(best, way=held.way, time_us=held.time_us, answers=held.answers)
        return best


_Timed = list[tuple[float, Way, tuple[PointAnswer, ...]]]


def _joined(timed: Mapping[Any, _Timed], more: Mapping[Any, _Timed]) -> dict[Any, _Timed]:
    return {at: [*ways, *more[at]] for at, ways in timed.items()}


def _parted(ways: Sequence[Way], timed: _Timed) -> list[Way]:
    """Return plans that do not fit together, each beside the others of the first way that fits."""
    fits = [way for _, way, _ in timed if not way.unused]
    if not fits:
        return []
    refused = [way for way in ways if way not in fits and not way.unused]
    parts = (
        replace(fits[0], plans=FrozenMap({**fits[0].plans, name: plan}))
        for way in refused
        for name, plan in way.plans.items()
        if len(way.plans) > 1
    )
    return [way for way in dict.fromkeys(parts) if way not in (*refused, *fits)]


@default_arithmetic
def _mixed(timed: _Timed) -> list[Way]:
    """Return the way with the fastest plan of each gradient, where no single one has them all."""
    whole = [(way, answers) for _, way, answers in timed if not way.unused]
    if not whole:
        return []
    plans = {}
    for name in whole[0][0].plans:
        way, _ = min(whole, key=lambda pair: max(gradient_us(answer, name) for answer in pair[1]))
        plans[name] = way.plans[name]
    mixed = replace(whole[0][0], plans=FrozenMap(plans))
    return [] if any(way == mixed for way, _ in whole) else [mixed]


@default_arithmetic
def gradient_us(answer: PointAnswer, gradient: str) -> float:
    """Return the microseconds of the kernels that make a gradient, casts of it included."""
    return float(sum(row["time_us"] for row in answer.records if str(row["kernel"]).endswith(gradient)))
