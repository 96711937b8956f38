"""The answers of the studies: frozen records of plain values, which pickle and which reports only render."""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from ascendsim.native.default_arithmetic import default_arithmetic

if TYPE_CHECKING:
    from ascendsim.numerics.metrics import ErrorMetrics


@dataclass(frozen=True, slots=True)
class StudyAnswer:
    """What every study answers: its question, and the product that it was asked about.

    variant   the product's variant; `digest` of its figures
    assumed   number of its assumed figures that have a range
    """

    question: Any
    variant: str
    digest: str
    assumed: int


@dataclass(frozen=True, slots=True)
class FigureEffect:
    """The time of one call with one assumed figure at either end of its range, all else as it is.

    figure     dotted path in the product file, whose last word has the unit
    value      of the figure as the product has it
    low, high  ends of its range
    usual_us   microseconds of the call with the figure as it is
    low_us     microseconds with the figure at its low end; None where other figures contradict that end
    high_us    microseconds with the figure at its high end
    """

    figure: str
    value: Any
    low: Any
    high: Any
    usual_us: float
    low_us: float | None
    high_us: float | None

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
class Interval:
    """The times between which a call lies if the assumed figures lie anywhere in their ranges.

    figures       number of assumed figures with a range of numbers
    shortest_us   microseconds with all figures at the ends that shorten the call
    longest_us    microseconds with all figures at the ends that stretch it
    least_cycles  cube-clock cycles of the shortest call; `most_cycles` of the longest
    effects       of the figures that move the call at all, the widest span first
    left_out      ends at which the call cannot be timed, as `figure=value`: the interval says nothing of them
    """

    figures: int
    shortest_us: float
    longest_us: float
    least_cycles: int
    most_cycles: int
    effects: tuple[FigureEffect, ...]
    left_out: tuple[str, ...] = ()


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
