"""Comparisons of measured and estimated, one by one and in groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.validate.schema import CLASSES, Row

# Two pipes whose busy times are within this share of each other both count as the bound.
CLOSE = 0.07


class Estimate(NamedTuple):
    """The estimate of a measured case, in the unit of the measurement.

    busy    pipe -> busy microseconds, of a whole kernel
    note    what had to be inferred to run it, such as the plan
    """

    value: float
    busy: Mapping[str, float] = {}
    note: str = ""


@dataclass(frozen=True)
class Case:
    """One measured number beside the estimate of the same.

    kind, group    the class (primitives, matmul, convolution) and what it is reported among
    unit           of both numbers, "cycles" or "us"
    role, quote    as in the table of cases
    bounds         pipes that the measurement, and the estimate, call the bound (empty: not told)
    counters       pipe -> (measured, estimated) busy microseconds
    row            the measurement itself, where it is at hand
    """

    id: str
    kind: str
    group: str
    variant: str
    unit: str
    measured: float
    estimated: float
    source: str
    role: str = "judge"
    quote: bool = False
    bounds: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset())
    counters: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    note: str = ""
    row: Row | None = field(default=None, repr=False)

    @property
    @default_arithmetic
    def error(self) -> float:
        """Relative error of the estimate."""
        return self.estimated / self.measured - 1

    @property
    def used_for(self) -> str:
        """Whether a constant was fitted on it: "calibration", else "validation"."""
        return "calibration" if self.role == "fit" else "validation"

    @property
    def bound_right(self) -> bool | None:
        """Whether both name a common pipe; None if either does not tell."""
        measured, estimated = self.bounds
        return bool(measured & estimated) if measured and estimated else None


@dataclass(frozen=True)
class Summary:
    """Statistics of the absolute errors of some cases.

    signed   the median of the errors with their signs
    rank     Spearman's correlation of measured and estimated, nan below 3 cases
    """

    count: int
    median: float
    signed: float
    mean: float
    p90: float
    p95: float
    worst: float
    worst_id: str
    rank: float
    bounds_told: int
    bounds_right: int


class Group(NamedTuple):
    """The cases of one group, with their statistics."""

    kind: str
    name: str
    cases: tuple[Case, ...]
    summary: Summary


@default_arithmetic
def grouped(cases: Sequence[Case]) -> list[Group]:
    """Return the cases by class and group, groups in the order in which they came."""
    found: dict[tuple[str, str], list[Case]] = {}
    for case in sorted(cases, key=lambda case: CLASSES.index(case.kind)):
        found.setdefault((case.kind, case.group), []).append(case)
    return [Group(kind, name, tuple(own), summarise(own)) for (kind, name), own in found.items()]


@default_arithmetic
def summarise(cases: Sequence[Case]) -> Summary:
    """Return the statistics of at least one case."""
    errors = sorted(abs(case.error) for case in cases)
    worst = max(cases, key=lambda case: abs(case.error))
    told = [case.bound_right for case in cases if case.bound_right is not None]
    return Summary(
        len(cases),
        quantile(errors, 0.5),
        quantile(sorted(case.error for case in cases), 0.5),
        sum(errors) / len(errors),
        quantile(errors, 0.9),
        quantile(errors, 0.95),
        abs(worst.error),
        worst.id,
        rank_correlation([case.measured for case in cases], [case.estimated for case in cases]),
        len(told),
        sum(told),
    )


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return a quantile of sorted numbers, straight between neighbours."""
    place = (len(ordered) - 1) * share
    # Between two neighbours the share decides how far; of a single number there is no neighbour.
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """Return Spearman's rank correlation; equal numbers share their mean rank."""
    if len(one) < 3:
        return float("nan")
    a, b = _ranks(one), _ranks(other)
    mean = (len(one) + 1) / 2
    cross = sum((x - mean) * (y - mean) for x, y in zip(a, b, strict=True))
    spread = sum((x - mean) ** 2 for x in a) * sum((y - mean) ** 2 for y in b)
    # Where all of one side are equal there is no order to agree with.
    return cross / spread**0.5 if spread else float("nan")


def _ranks(values: Sequence[float]) -> list[float]:
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    first = 0
    while first < len(order):
        last = first
        while last + 1 < len(order) and values[order[last + 1]] == values[order[first]]:
            last += 1
        # Places first..last hold one number: each gets the mean of their ranks, which count from 1.
        for place in order[first : last + 1]:
            ranks[place] = (first + last) / 2 + 1
        first = last + 1
    return ranks


def bounds_of(
    measured: Mapping[str, float], estimated: Mapping[str, float]
) -> tuple[frozenset[str], frozenset[str]]:
    """Return the busiest pipes that were measured, and those estimated among the same pipes.

    Where no pipe was measured the estimate's are taken among all but S, which no source calls a bound.
    """
    among = measured.keys() if measured else estimated.keys() - {"S"}
    return busiest(measured), busiest({pipe: time for pipe, time in estimated.items() if pipe in among})


def busiest(times: Mapping[str, float]) -> frozenset[str]:
    """Return the pipes whose busy time is within 7 % of the largest."""
    if not times:
        return frozenset()
    most = max(times.values())
    return frozenset(pipe for pipe, time in times.items() if time >= most * (1 - CLOSE))
