"""The answers of the studies: frozen records of plain values, which pickle and which reports only render."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import exp, hypot, log
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from ascendsim.native.default_arithmetic import default_arithmetic

if TYPE_CHECKING:
    from ascendsim.numerics.metrics import ErrorMetrics


# Of a call's time, in terms that all products have.
PARTS = ("launch", "entry", "core", "layout", "others")
# Kernels that move elements and compute nothing.
LAYOUT_TYPES = ("TransData", "Transpose", "Contiguous", "ViewCopy", "Dilation")


class Spent(NamedTuple):
    """Microseconds of a kernel, which add up to its time; `multiplies`: whether the cube works."""

    op_type: str
    multiplies: bool
    launch_us: float
    entry_us: float
    core_us: float


@default_arithmetic
def parts_us(kernels: Iterable[Spent]) -> dict[str, float]:
    """Return the microseconds of `PARTS`, which add up to the time of all kernels.

    launch, entry and core are those of the kernels that multiply; layout is the whole time of those that
    change layouts, others that of all other ones: they cast, clear or sum
    """
    found = dict.fromkeys(PARTS, 0.0)
    for kernel in kernels:
        own = kernel.launch_us, kernel.entry_us, kernel.core_us
        if kernel.multiplies:
            for part, us in zip(PARTS, own, strict=False):
                found[part] += us
        else:
            found["layout" if kernel.op_type in LAYOUT_TYPES else "others"] += sum(own)
    return found


@dataclass(frozen=True, slots=True)
class StudyAnswer:
    """What every study answers: its question, and the product that it was asked about.

    variant   the product's variant; `digest` of its figures
    ranged    number of its figures that have a range of numbers
    """

    question: Any
    variant: str
    digest: str
    ranged: int


@dataclass(frozen=True, slots=True)
class FigureEffect:
    """The time of one call with one figure at either end of its range, all else as it is.

    figure     dotted path in the product file, whose last word has the unit
    value      of the figure as the product has it
    low, high  ends of its range
    usual_us   microseconds of the call with the figure as it is
    low_us     microseconds with the figure at its low end; None where other figures contradict that end
    high_us    microseconds with the figure at its high end
    together   figures of the same source, each of which goes to the same end of its own range with it
    shared     what the figure has in common with that of another product: name, source and range; two effects
               of the same text are of one figure. "": of this product alone
    """

    figure: str
    value: Any
    low: Any
    high: Any
    usual_us: float
    low_us: float | None
    high_us: float | None
    together: tuple[str, ...] = ()
    shared: str = ""

    @property
    def shortest(self) -> tuple[float, Any]:
        """The least microseconds, and the end that gives them; no end (None) where none is shorter."""
        return min(self._times, key=itemgetter(0))

    @property
    def longest(self) -> tuple[float, Any]:
        """The most microseconds, and the end that gives them; no end (None) where none is longer."""
        return max(self._times, key=itemgetter(0))

    @property
    @default_arithmetic
    def span_us(self) -> float:
        """Microseconds between the shortest and the longest call; 0 for a figure that moves nothing."""
        return self.longest[0] - self.shortest[0]

    @property
    @default_arithmetic
    def changes(self) -> tuple[float | None, float | None]:
        """Relative changes of the time at the low and at the high end; None as for the times."""
        low, high = (None if us is None else us / self.usual_us - 1 for us in (self.low_us, self.high_us))
        return low, high

    @property
    @default_arithmetic
    def largest_change(self) -> float:
        """The larger of the two changes without its sign."""
        return max(abs(change or 0.0) for change in self.changes)

    @property
    def _times(self) -> list[tuple[float, Any]]:
        # The usual time comes first: min and max keep the first of equals, and so name no end in vain.
        ends = ((self.low_us, self.low), (self.high_us, self.high))
        return [(self.usual_us, None), *((us, end) for us, end in ends if us is not None)]


@dataclass(frozen=True, slots=True)
class PlanRisk:
    """What a call may gain or lose because its plans are not known to be those that the product takes.

    why        in words: whose plans they are, and what was tried beside them
    search_us  microseconds with the best plans that this simulator's search finds in their place; those of
               the call as it is where the plans are of public rules, given, or found by the search
    """

    why: str
    search_us: float


@dataclass(frozen=True, slots=True)
class ErrorShare:
    """The model's own error of the kernels of one kind.

    kind   what kernels they are
    share  part of the call's time that they take
    error  logarithm of a ratio (`OwnError`)
    of     architecture's name whose measurements it was taken from
    own    whether any of them is of the product itself: else it stands in for an error that nobody knows
    tried  other measurements of this kind on the call's own architecture; `inside` those that lie within
    """

    kind: str
    share: float
    error: float
    of: str
    own: bool
    tried: int = 0
    inside: int = 0


@dataclass(frozen=True, slots=True)
class ModelError:
    """How far measured times lie from estimated ones that nothing was fitted on, figures and plan apart.

    low, high  what the estimate is multiplied with: widths that, joined with those of the figures, hold four
               in five of such measurements
    rows       measurements that this was taken from
    grounds    in words: which kernels they are of, and of which product where the call's own has none
    family     architecture of the call's product: two products of one err alike in kernels of a kind
    shares     the own error of each kind of kernels
    """

    low: float
    high: float
    rows: int
    grounds: str
    family: str = ""
    shares: tuple[ErrorShare, ...] = ()


PLAN, MODEL = "the plan", "the model's own error"


@dataclass(frozen=True, slots=True)
class Interval:
    """The times between which a call lies: by the ranges of its product's figures, its plans, and the model.

    figures       number of figures with a range of numbers, whatever their confidence
    usual_us      microseconds of the call as it is
    shortest_us   the least microseconds that any figure at an end of its range gives, or any draw of all of
                  them; `longest_us` the most. It holds nine of ten draws or more, and not every corner
    least_cycles  the least cube-clock cycles of all these calls, `most_cycles` the most: launches have none
    effects       of the figures that move the call at all, the widest span first
    left_out      ends at which the call cannot be timed, as `figure=value`: the interval says nothing of them
    draws_us      microseconds of each draw; None where its figures contradict each other. Draw i puts a
                  figure that two products share at the same place in both, so that ratios may be taken
    plan          what hangs on the plan; None where nobody looked
    model         the model's own error; None where nobody looked
    """

    figures: int
    usual_us: float
    shortest_us: float
    longest_us: float
    least_cycles: int
    most_cycles: int
    effects: tuple[FigureEffect, ...]
    left_out: tuple[str, ...] = ()
    draws_us: tuple[float | None, ...] = ()
    plan: PlanRisk | None = None
    model: ModelError | None = None

    @property
    @default_arithmetic
    def low_us(self) -> float:
        """The lower end of the 80 % interval: figures, plan and model together."""
        return self.usual_us * exp(-hypot(*self.widths(0)))

    @property
    @default_arithmetic
    def high_us(self) -> float:
        """The upper end of the 80 % interval."""
        return self.usual_us * exp(hypot(*self.widths(1)))

    @property
    @default_arithmetic
    def dominant(self) -> tuple[str, ...]:
        """What makes the interval wide: one or two figures by their paths, `PLAN`, or `MODEL`.

        Nothing (empty) for an interval of no width.
        """
        low, high = self.widths(0), self.widths(1)
        figures, plan, model = (one + other for one, other in zip(low, high, strict=True))
        if not figures + plan + model:
            return ()
        if max(plan, model) > figures or not self.effects:
            return (PLAN,) if plan > model else (MODEL,)
        first, *more = self.effects
        # A second one only where it does half as much: else the first is what to measure.
        return first.figure, *(one.figure for one in more[:1] if 2 * one.span_us >= first.span_us)

    def widths(self, side: int) -> tuple[float, float, float]:
        """Half widths in log time below (0) or above (1), of the figures, the plan and the model.

        The three have nothing to do with each other, so that their squares add.
        """
        if not self.usual_us:
            return 0.0, 0.0, 0.0
        figures = (self.usual_us / self.shortest_us, self.longest_us / self.usual_us)[side]
        # The product's own plan is taken to lie between the two that are known.
        plan = (self.plan.search_us if self.plan else self.usual_us) / self.usual_us
        plan = (1 / plan, plan)[side]
        model = (1 / self.model.low, self.model.high)[side] if self.model else 1.0
        return log(max(figures, 1.0)), log(max(plan, 1.0)), log(max(model, 1.0))


@dataclass(frozen=True, slots=True)
class Ratio:
    """Between what the ratio of two times lies: that of the second call over that of the first.

    usual      ratio of the times as they are
    low, high  ends of its 80 % interval: 1 lies outside where it is sure which call takes longer
    dominant   the figure by its path, `PLAN` or `MODEL` whose knowledge would narrow it most; "": nothing
    of         which of the two calls that is of: 0, 1, or both of them
    """

    usual: float
    low: float
    high: float
    dominant: str
    of: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class JudgedGradient:
    """One gradient held against the float64 one of the same stored tensors.

    name    grad_input, grad_weight or grad_bias
    shape   in the framework's order of dimensions
    stored  name of the format in which it is returned
    sha256  digest of its bytes: equal digests mean equal bits
    errors  every measure of its errors
    cancels whether its sums are no larger than the roundings of their terms, as those of a bias before a
            BatchNorm; None where nobody looked
    """

    name: str
    shape: tuple[int, ...]
    stored: str
    sha256: str
    errors: ErrorMetrics
    cancels: bool | None = None
