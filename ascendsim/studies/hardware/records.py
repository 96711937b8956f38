"""What changes of the hardware buy, and which designs are worth their cost: questions and answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ascendsim.frozen import FrozenMap
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.ops.plan import Plan
from ascendsim.ops.problems.layers import LayerProblem
from ascendsim.profile import Change, CostFormula
from ascendsim.studies.records import StudyAnswer
from ascendsim.studies.verdicts import Condition

Mask = tuple[bool, bool, bool]
ENERGY = "result.energy_uj"  # in a formula of cost
CORES = ("cores.cube", "cores.vector")  # figures of which kernels may leave a part idle


@dataclass(frozen=True, slots=True)
class StudiedLayer:
    """One layer of the study: its name, its count, and its gradients."""

    name: str
    problem: LayerProblem
    gradients: Mask
    count: int = 1


@dataclass(frozen=True, slots=True)
class Question:
    """Changes, and the calls whose gains by them are asked for.

    title    what the layers are, for people
    product  name of a product or variant, or path of its file
    starts   of L2: those of a call, or "network": what the layers behind have left, the last layer first
    tilings  plans that are tried for each gradient, before and after a change; 0: no gradient is tuned
    doubt    whether figures with a range are moved through their ranges
    margin   part of a time by which estimated ratios of two plans are off: less says little
    """

    title: str
    product: str | Path
    layers: tuple[StudiedLayer, ...]
    changes: tuple[Change, ...]
    starts: tuple[str, ...] = ("warm", "step")
    dtype: str = "float16"
    cube_math_type: int = 0
    doubt: bool = True
    tilings: int = 0
    margin: float = 0.0


class NewPlan(NamedTuple):
    """A plan of a gradient in the better time that is another than before the change.

    found_for  the change whose product chooses it by default; this one, if it does; "": none does
    alone      whether the unchanged product is fastest under it, too
    """

    gradient: str
    before: Plan
    better: Plan
    found_for: str
    alone: bool


@dataclass(frozen=True, slots=True)
class LayerGain:
    """One layer under one change and start: microseconds of one call.

    same_us    the changed product under the plans of the unchanged one; None where they do not fit
    anew_us    planned anew on the changed product
    better_us  each gradient under the best plan: of these two, and of those of designs inside the changed
               product, with what they do not use left unused where that is faster
    tuned_us   microseconds before and after the change, each with every gradient under the best plan that the
               tuner finds for it; None where it was not asked for
    new_plan   whether the better time is that of a plan which the unchanged product does not have
    plan_us    the unchanged product under the best plan of all changes that fits it, and leaving unused what
               one takes away; None where none is faster
    misfit     why the plans of the unchanged product do not fit the changed one; "" where they do
    parts_us   of the time before and of the better time: each of `records.PARTS`
    speed_us   the better time before parts that are faster for the change are held back to the speed they had
    new_plans  the plans of the better time that are others than before
    """

    layer: str
    count: int
    base_us: float
    same_us: float | None
    anew_us: float
    better_us: float
    tuned_us: tuple[float, float] | None = None
    new_plan: bool = False
    plan_us: float | None = None
    misfit: str = ""
    parts_us: tuple[tuple[float, ...], tuple[float, ...]] = ((), ())
    speed_us: float = 0.0
    new_plans: tuple[NewPlan, ...] = ()

    @property
    @default_arithmetic
    def unchanged_us(self) -> float:
        """The best time of the unchanged product, under its own plans or as in `plan_us`."""
        return self.base_us if self.plan_us is None else min(self.base_us, self.plan_us)

    @property
    @default_arithmetic
    def share(self) -> float:
        """The part of the time that change and plans save; below 0 where they cost."""
        return 1 - self.better_us / self.base_us


@dataclass(frozen=True, slots=True)
class Doubt:
    """Between what a gain lies if figures lie anywhere in their ranges.

    low, high   parts of the time, as `Gain.own_share`
    figures     number of figures that move the gain
    conditions  of figures, each moved alone, on which it hangs that more than the margin is saved, or lost
    most        the figure that moves it most
    """

    low: float
    high: float
    figures: int
    conditions: tuple[Condition, ...] = ()
    most: str = ""


@dataclass(frozen=True, slots=True)
class Gain:
    """One change under one start of L2, over all layers with their counts.

    figures  dotted path -> (value of the product, value of the change)
    doubt    None where it was not asked for
    without  layers that the change cannot run, which no time counts, before it neither: name -> why
    """

    change: str
    figures: Mapping[str, tuple[Any, Any]]
    start: str
    layers: tuple[LayerGain, ...]
    doubt: Doubt | None = None
    without: Mapping[str, str] = FrozenMap()

    @property
    @default_arithmetic
    def base_us(self) -> float:
        """Microseconds on the unchanged product."""
        return sum(layer.count * layer.base_us for layer in self.layers)

    @property
    @default_arithmetic
    def same_us(self) -> float | None:
        """Microseconds under the plans of the unchanged product; None where one does not fit."""
        times = [layer.same_us for layer in self.layers]
        if None in times:
            return None
        return sum(layer.count * (layer.same_us or 0.0) for layer in self.layers)

    @property
    @default_arithmetic
    def anew_us(self) -> float:
        """Microseconds planned anew."""
        return sum(layer.count * layer.anew_us for layer in self.layers)

    @property
    @default_arithmetic
    def better_us(self) -> float:
        """Microseconds with each gradient of each layer under the better of its two plans."""
        return sum(layer.count * layer.better_us for layer in self.layers)

    @property
    @default_arithmetic
    def parts_us(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Microseconds of each of `records.PARTS`, before and in the better time."""
        before, after = (
            tuple(
                sum(layer.count * us for layer, us in zip(self.layers, part, strict=True))
                for part in zip(*(layer.parts_us[side] for layer in self.layers), strict=True)
            )
            for side in (0, 1)
        )
        return before, after

    @property
    @default_arithmetic
    def tuned_us(self) -> tuple[float, float] | None:
        """Microseconds before and after the change with tuned plans; None where they were not asked for."""
        each = [(layer.count, *layer.tuned_us) for layer in self.layers if layer.tuned_us]
        if len(each) < len(self.layers):
            return None
        return sum(count * us for count, us, _ in each), sum(count * us for count, _, us in each)

    @property
    @default_arithmetic
    def unchanged_us(self) -> float:
        """Microseconds on the unchanged product, which may follow the plans of the better time as well."""
        return sum(layer.count * layer.unchanged_us for layer in self.layers)

    @property
    @default_arithmetic
    def share(self) -> float:
        """The part of the time that change and plans save; below 0 where they cost."""
        return self.plan_share + self.own_share

    @property
    @default_arithmetic
    def plan_share(self) -> float:
        """The part that is saved by plans alone: the unchanged product saves it if it follows them."""
        return (self.base_us - self.unchanged_us) / self.base_us

    @property
    @default_arithmetic
    def own_share(self) -> float:
        """The part that the change itself saves, below 0 where it costs: the rest, which needs the change."""
        return (self.unchanged_us - self.better_us) / self.base_us

    @property
    @default_arithmetic
    def needing_share(self) -> float | None:
        """The part of it that also needs new plans: under the old ones the change saves so much less.

        None where old plans do not fit the changed product.
        """
        new = [layer for layer in self.layers if layer.new_plan]
        if any(layer.same_us is None for layer in new):
            return None
        by_plans = sum(layer.count * ((layer.same_us or 0.0) - layer.better_us) for layer in new)
        without = sum(layer.count * (layer.base_us - layer.unchanged_us) for layer in new)
        return (by_plans - without) / self.base_us

    @property
    def distinguishable(self) -> bool:
        """Whether what the change itself saves is on one side of 0 wherever figures with a range lie."""
        if self.doubt is None:
            return self.own_share != 0
        return self.doubt.low > 0 or self.doubt.high < 0


@dataclass(frozen=True, slots=True)
class HardwareAnswer(StudyAnswer):
    """What changes buy; `refused`: change -> why it could not be timed."""

    question: Question
    gains: tuple[Gain, ...]
    refused: Mapping[str, str]


OVER_BUDGET = "over the budget"


@dataclass(frozen=True, slots=True)
class DesignQuestion:
    """Designs: every combination of one change of each group, the product as it is among them.

    groups   changes that exclude each other, such as the values of one figure
    cost     in the user's unit
    budget   the most that a design may cost; None: whatever
    tilings  plans that are tried for each gradient of each layer on each design
    margin   part of a time by which estimated ratios of two plans are off: less is no difference
    doubt    whether figures are moved through their ranges, to tell designs from the fastest one
    """

    title: str
    product: str | Path
    layers: tuple[StudiedLayer, ...]
    groups: tuple[tuple[Change, ...], ...]
    cost: CostFormula
    budget: float | None = None
    starts: tuple[str, ...] = ("warm", "step")
    tilings: int = 20
    dtype: str = "float16"
    cube_math_type: int = 0
    margin: float = 0.0
    doubt: bool = True


@dataclass(frozen=True, slots=True)
class Design:
    """One combination of changes.

    figures   dotted path -> value; empty for the product as it is
    cost      None where figures contradict each other, so that there is no product to cost anything
    usual_us  microseconds of all layers with their counts under the plans that its operators choose, without
              changes of layout
    tuned_us  the same under the best plan of each gradient that was found for it, or for a design inside it
    behind    between what parts of its time the fastest design saves; None: not asked, or no other
    reason    why it could not be timed, or was not; "" where it was
    without   gradients of layers that it cannot run, which no time of it counts: name -> why
    cost_ends the cost with all figures of the energy at lower, and at upper ends of ranges; None: equal
    """

    name: str
    figures: Mapping[str, Any]
    cost: float | None
    usual_us: float = 0.0
    tuned_us: float = 0.0
    reason: str = ""
    behind: Doubt | None = None
    without: Mapping[str, str] = FrozenMap()
    cost_ends: tuple[float, float] | None = None

    @property
    def whole(self) -> bool:
        """Whether it was timed on all layers, so that its times compare with those of others."""
        return not self.reason and not self.without

    @property
    def refused(self) -> bool:
        """Whether it cannot be timed; what costs too much could be, and is not asked about."""
        return self.reason not in ("", OVER_BUDGET)

    @property
    def over_budget(self) -> bool:
        """Whether it costs too much."""
        return self.reason == OVER_BUDGET


@dataclass(frozen=True, slots=True)
class DesignAnswer(StudyAnswer):
    """All designs, the product as it is first; and their front: none costs less and is as fast.

    Those that the fastest does not beat by more than the margin, wherever figures lie, are one class with it.
    """

    question: DesignQuestion
    designs: tuple[Design, ...]

    @property
    def front(self) -> tuple[Design, ...]:
        """The designs that no other beats in time at no more cost, the cheapest first."""
        timed = [
            (design.cost, design.tuned_us, design)
            for design in self.designs
            if design.cost is not None and design.whole
        ]
        found: list[Design] = []
        for _, _, design in sorted(timed, key=lambda row: row[:2]):
            if not found or design.tuned_us < found[-1].tuned_us:
                found.append(design)
        return tuple(found)

    @default_arithmetic
    def bar(self, design: Design) -> tuple[float, float]:
        """Return between what microseconds a timed design lies if the fastest takes what it takes here.

        As wide as the margin at least; where figures were moved, from what the fastest saves at their ends.
        """
        margin, fastest = self.question.margin, self.front[-1].tuned_us
        ends = [design.tuned_us * (1 - margin), design.tuned_us, design.tuned_us * (1 + margin)]
        if design.behind is not None:
            ends += [fastest / (1 - saved) for saved in (design.behind.low, design.behind.high) if saved < 1]
        return min(ends), max(ends)

    @property
    def classes(self) -> tuple[tuple[Design, ...], ...]:
        """The front in classes, the fastest first: each design lies in the bar of all others of its class."""
        found: list[list[Design]] = []
        for design in reversed(self.front):
            if found and all(self._alike(design, other) for other in found[-1]):
                found[-1].append(design)
            else:
                found.append([design])
        return tuple(map(tuple, found))

    def _alike(self, one: Design, other: Design) -> bool:
        (low, high), (least, most) = self.bar(one), self.bar(other)
        return low <= other.tuned_us <= high and least <= one.tuned_us <= most

    @property
    def untold(self) -> tuple[Design, ...]:
        """The designs that are not distinguishable from the fastest of all, without that one."""
        if not self.front:
            return ()
        fastest = self.front[-1]
        return tuple(
            design
            for design in self.designs
            if design.whole and design is not fastest and not self._beaten(design, fastest)
        )

    @default_arithmetic
    def _beaten(self, design: Design, fastest: Design) -> bool:
        """Return whether the fastest design surely saves more than the margin of another's time."""
        doubt = design.behind
        sure = doubt is None or (doubt.low > 0 and not doubt.conditions)
        return 1 - fastest.tuned_us / design.tuned_us > self.question.margin and sure
