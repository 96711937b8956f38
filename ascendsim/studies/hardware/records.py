"""The question what changes buy, and its answer: frozen records of plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.profile import Change

Mask = tuple[bool, bool, bool]


@dataclass(frozen=True, slots=True)
class StudiedLayer:
    """One convolution of what is studied: its name, how often it is there, which gradients are made."""

    name: str
    problem: ConvProblem
    gradients: Mask
    count: int = 1


@dataclass(frozen=True, slots=True)
class Question:
    """Changes, and the calls of which it is asked what they buy.

    title    what the layers are, for people
    product  name of a product or variant, or path of its file
    starts   of L2: "warm", "cold", "handed", "chained", or "network": what the layers behind have left, the
             last layer first
    tilings  plans that are tried for each gradient, before and after a change; 0: no gradient is tuned
    doubt    whether assumed figures are moved through their ranges
    margin   part of a time by which estimated ratios of two plans are off: less says little
    """

    title: str
    product: str | Path
    layers: tuple[StudiedLayer, ...]
    changes: tuple[Change, ...]
    starts: tuple[str, ...] = ("warm", "handed")
    dtype: str = "float16"
    cube_math_type: int = 0
    doubt: bool = True
    tilings: int = 0
    margin: float = 0.0


@dataclass(frozen=True, slots=True)
class LayerGain:
    """One layer under one change and start: microseconds of one call.

    same_us    the changed product under the plans of the unchanged one; None where they do not fit
    anew_us    planned anew on the changed product
    better_us  each gradient under the better of its two plans; the call with added cores left idle where that
               is faster
    tuned_us   microseconds before and after the change, each with every gradient under the best plan that the
               tuner finds for it; None where it was not asked for
    new_plan   whether the better time is that of a plan which the unchanged product does not have
    """

    layer: str
    count: int
    base_us: float
    same_us: float | None
    anew_us: float
    better_us: float
    tuned_us: tuple[float, float] | None = None
    new_plan: bool = False

    @property
    def share(self) -> float:
        """The part of the time that the change saves; below 0 where it costs."""
        return 1 - self.better_us / self.base_us


@dataclass(frozen=True, slots=True)
class Doubt:
    """Between what a gain lies if assumed figures lie anywhere in their ranges.

    low, high  parts of the time, as `Gain.share`
    figures    number of assumed figures that move the gain
    """

    low: float
    high: float
    figures: int


@dataclass(frozen=True, slots=True)
class Gain:
    """One change under one start of L2, over all layers with their counts.

    figures  dotted path -> (value of the product, value of the change)
    doubt    None where it was not asked for
    """

    change: str
    figures: Mapping[str, tuple[Any, Any]]
    start: str
    layers: tuple[LayerGain, ...]
    doubt: Doubt | None = None

    @property
    def base_us(self) -> float:
        """Microseconds on the unchanged product."""
        return sum(layer.count * layer.base_us for layer in self.layers)

    @property
    def same_us(self) -> float | None:
        """Microseconds under the plans of the unchanged product; None where one does not fit."""
        times = [layer.same_us for layer in self.layers]
        if None in times:
            return None
        return sum(layer.count * (layer.same_us or 0.0) for layer in self.layers)

    @property
    def anew_us(self) -> float:
        """Microseconds planned anew."""
        return sum(layer.count * layer.anew_us for layer in self.layers)

    @property
    def better_us(self) -> float:
        """Microseconds with each gradient of each layer under the better of its two plans."""
        return sum(layer.count * layer.better_us for layer in self.layers)

    @property
    def tuned_us(self) -> tuple[float, float] | None:
        """Microseconds before and after the change with tuned plans; None where they were not asked for."""
        each = [(layer.count, *layer.tuned_us) for layer in self.layers if layer.tuned_us]
        if len(each) < len(self.layers):
            return None
        return sum(count * us for count, us, _ in each), sum(count * us for count, _, us in each)

    @property
    def share(self) -> float:
        """The part of the time that the change saves; below 0 where it costs."""
        return 1 - self.better_us / self.base_us

    @property
    def plan_share(self) -> float | None:
        """The part of the time that new plans save beside the change; None where old ones do not fit."""
        new = [layer for layer in self.layers if layer.new_plan]
        if any(layer.same_us is None for layer in new):
            return None
        saved = sum(layer.count * ((layer.same_us or 0.0) - layer.better_us) for layer in new)
        return saved / self.base_us

    @property
    def distinguishable(self) -> bool:
        """Whether the gain is on one side of 0 wherever assumed figures lie."""
        if self.doubt is None:
            return self.share != 0
        return self.doubt.low > 0 or self.doubt.high < 0


@dataclass(frozen=True, slots=True)
class HardwareAnswer:
    """What changes buy.

    variant   the product's variant; `digest` of its figures
    assumed   number of its assumed figures that have a range
    refused   change -> why it could not be timed
    """

    question: Question
    variant: str
    digest: str
    assumed: int
    gains: tuple[Gain, ...]
    refused: Mapping[str, str]
