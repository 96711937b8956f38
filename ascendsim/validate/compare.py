"""Comparisons of measured and estimated, one by one and in groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.validate.schema import CLASSES, MeasuredRow

# Two pipes whose busy times are within this share of each other both count as the bound.
CLOSE = 0.07


class CaseEstimate(NamedTuple):
    """The estimate of a measured case, in the unit of the measurement.

    busy    pipe -> busy microseconds, of a whole kernel
    note    what had to be inferred to run it, such as the plan
    """

    value: float
    busy: Mapping[str, float] = {}
    note: str = ""


@dataclass(frozen=True)
class MeasuredCase:
    """One measured number beside its estimate.

    kind, group    the class (primitives, matmul, convolution) and its group in reports
    unit           of both numbers, "cycles" or "us"
    role, quote    as in the table of cases
    bounds         pipes that the measurement, and the estimate, call the bound (empty: not known)
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
    row: MeasuredRow | None = field(default=None, repr=False)

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
        """Whether both name a common pipe; None if either names none."""
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
    cases: tuple[MeasuredCase, ...]
    summary: Summary


@default_arithmetic
def grouped(cases: Sequence[MeasuredCase]) -> list[Group]:
    """Return the cases by class and group, groups in the order in which they came."""
    found: dict[tuple[str, str], list[MeasuredCase]] = {}
    for case in sorted(cases, key=lambda case: CLASSES.index(case.kind)):
        found.setdefault((case.kind, case.group), []).append(case)
    return [Group(kind, name, tuple(own), summarise(own)) for (kind, name), own in found.items()]


@default_arithmetic
def summarise(cases: Sequence[MeasuredCase]) -> Summary:
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


# A side with fewer channels fills no more than two fractals of them.
FEW = 32
KINDS = ("few channels", "stride 2", "1x1", "3x3", "other kernels")


class KernelIdentity(NamedTuple):
    """Properties that two measurements of one kernel have in common."""

    variant: str
    gradient: str
    compute_dtype: str
    input_shape: tuple[int, ...]
    weight_shape: tuple[int, ...]
    window: Hashable


class Slice(NamedTuple):
    """The kernels of one network, gradient and kind of layer; of a total the kind is "all".

    bounds      estimated bound -> kernels
    """

    network: str
    gradient: str
    layers: str
    cases: tuple[MeasuredCase, ...]
    summary: Summary
    bounds: Mapping[str, int]


class PipeErrors(NamedTuple):
    """The errors of one pipe's busy time over kernels that have its counter; medians, one with signs."""

    network: str
    gradient: str
    pipe: str
    kernels: int
    median: float
    signed: float


def layer_kind(row: MeasuredRow) -> str:
    """Return the one of `KINDS` that a layer is: the first that it fits."""
    kernel = row.weight_shape[2:]
    if min(row.input_shape[1], row.weight_shape[0]) // row.groups <= FEW:
        return "few channels"
    if max(row.stride, default=1) > 1:
        return "stride 2"
    named = {(1,) * len(kernel): "1x1", (3,) * len(kernel): "3x3"}
    return named.get(kernel, "other kernels")


def kernel_key(row: MeasuredRow) -> KernelIdentity:
    """Return the gradient, the problem and the chip of a measurement."""
    window = row.stride, row.padding, row.dilation, row.groups
    return KernelIdentity(
        row.variant, row.kernel, row.compute_dtype, row.input_shape, row.weight_shape, window
    )


def distinct(cases: Sequence[MeasuredCase]) -> list[MeasuredCase]:
    """Return one case for each gradient kernel: the measurement in the middle of its repeats.

    Its counters are the medians of theirs. Cases without a row, or of other classes, are left out.
    """
    found: dict[Hashable, list[MeasuredCase]] = {}
    for case in cases:
        if case.kind == "convolution" and case.row is not None:
            found.setdefault((kernel_key(case.row), case.group), []).append(case)
    return [_middle(own) for own in found.values()]


def _middle(repeats: Sequence[MeasuredCase]) -> MeasuredCase:
    """Return the case of one kernel that was measured several times."""
    first = repeats[0]
    if len(repeats) == 1:
        return first
    measured = {pipe: _median([case.counters[pipe][0] for case in repeats]) for pipe in first.counters}
    counters = {pipe: (us, first.counters[pipe][1]) for pipe, us in measured.items()}
    bounds = busiest(measured) if first.bounds[0] else frozenset[str](), first.bounds[1]
    middle = _median([case.measured for case in repeats])
    return replace(first, measured=middle, counters=counters, bounds=bounds)


def _median(values: Sequence[float]) -> float:
    return quantile(sorted(values), 0.5)


@default_arithmetic
def slices(cases: Sequence[MeasuredCase]) -> list[Slice]:
    """Return the statistics of all kernels by network, gradient and kind of layer, with totals.

    A network's gradient comes as a whole first ("all"), then by kind where it has several.
    """
    found: dict[tuple[str, str], list[MeasuredCase]] = {}
    for case in distinct(cases):
        assert case.row is not None
        found.setdefault((case.group, case.row.kernel), []).append(case)
    # A chip with several networks has a total of its own.
    networks: dict[str, set[str]] = {}
    for case in distinct(cases):
        if case.row:
            networks.setdefault(case.variant, set()).add(case.group)
            found.setdefault((f"all of {case.variant}", case.row.kernel), []).append(case)
    made = []
    for (network, gradient), own in found.items():
        if network == f"all of {own[0].variant}" and len(networks[own[0].variant]) == 1:
            continue
        made.append(_slice(network, gradient, "all", own))
        kinds = {kind: [case for case in own if case.row and layer_kind(case.row) == kind] for kind in KINDS}
        parts = [(kind, some) for kind, some in kinds.items() if some]
        if len(parts) > 1:
            made += [_slice(network, gradient, kind, some) for kind, some in parts]
    return made


def _slice(network: str, gradient: str, layers: str, cases: Sequence[MeasuredCase]) -> Slice:
    bounds = Counter("+".join(sorted(case.bounds[1])) for case in cases)
    return Slice(network, gradient, layers, tuple(cases), summarise(cases), dict(bounds.most_common()))


@default_arithmetic
def pipe_errors(cases: Sequence[MeasuredCase]) -> list[PipeErrors]:
    """Return the errors of the busy times of the pipes, by network and gradient, where they were counted."""
    found: dict[tuple[str, str, str], list[float]] = {}
    for case in distinct(cases):
        for pipe, (measured, estimated) in case.counters.items():
            # A pipe that had nothing to do says nothing.
            if measured > 0 and case.row is not None:
                key = case.group, case.row.kernel, pipe
                found.setdefault(key, []).append(estimated / measured - 1)
    return [
        PipeErrors(*key, len(errors), _median([abs(error) for error in errors]), _median(errors))
        for key, errors in found.items()
    ]


REPORTED = "report"  # the role of rows that no aim counts


@dataclass(frozen=True)
class Target:
    """A limit for the errors of the rows of some groups of a class; of all groups if none is named.

    groups      what the names of the groups begin with: networks are named with their batch
    statistic   "median", "p90", "p95" or "worst" of the absolute errors, or "bounds": the wrong ones' share
    """

    name: str
    kind: str
    groups: tuple[str, ...]
    statistic: str
    limit: float


@dataclass(frozen=True)
class Reached:
    """The result of an aim over its rows."""

    target: Target
    count: int
    value: float

    @property
    def kept(self) -> bool:
        """Whether the limit is kept."""
        return self.value <= self.target.limit


PUBLISHED, INFERRED = "published tilings", "inferred tilings"
SPLIT, FIRST = "other, A2 generation", "other, first generation"
SPLIT_LAYOUTS, FIRST_LAYOUTS = "TransData, A2 generation", "TransData, first generation"
CALLS = "3-D grad_weight calls, 910B2"
ALEXNET, NETWORKS = "AlexNet, HF32", ("ResNet-50", "YOLOv5s", "InceptionV3")
TARGETS = (
    Target("primitives", "primitives", (), "median", 0.03),
    Target("primitives", "primitives", (), "p95", 0.15),
    Target("matrix products, published tilings", "matmul", (PUBLISHED,), "worst", 0.15),
    Target("pipes of one core, runs r1, r2, r4", "matmul", ("pipes of one core",), "worst", 0.10),
    Target("matrix products, inferred tilings", "matmul", (INFERRED,), "worst", 0.20),
    Target("other matrix products", "matmul", (SPLIT, FIRST), "median", 0.15),
    Target("those of the A2 generation", "matmul", (SPLIT,), "median", 0.15),
    Target("those of the first generation", "matmul", (FIRST,), "median", 0.15),
    Target("gradients of AlexNet in HF32", "convolution", (ALEXNET,), "median", 0.08),
    Target("gradients of AlexNet in HF32", "convolution", (ALEXNET,), "worst", 0.20),
    Target("gradients, first generation", "convolution", NETWORKS, "median", 0.14),
    Target("gradients, first generation", "convolution", NETWORKS, "p90", 0.45),
    Target("changes of layout, A2 generation", "layouts", (SPLIT_LAYOUTS,), "median", 0.20),
    Target("changes of layout, first generation", "layouts", (FIRST_LAYOUTS,), "median", 0.20),
    Target("3-D grad_weight calls, 910B2", "calls", (CALLS,), "worst", 0.35),
    Target("matrix products of this table", "matmul", (PUBLISHED, INFERRED, SPLIT), "bounds", 0.0),
)


@default_arithmetic
def reached(cases: Sequence[MeasuredCase]) -> list[Reached]:
    """Return whether each target that has a row among the cases is reached."""
    found = []
    for target in TARGETS:
        own = [case for case in cases if case.kind == target.kind and case.role != REPORTED]
        if target.groups:
            own = [case for case in own if case.group.startswith(target.groups)]
        if target.statistic == "bounds":
            own = [case for case in own if case.bound_right is not None]
        if not own:
            continue
        summary = summarise(own)
        # Only cases with a bound were kept above, so that none is passed over here.
        wrong = 1 - summary.bounds_right / len(own)
        value = wrong if target.statistic == "bounds" else getattr(summary, target.statistic)
        found.append(Reached(target, len(own), value))
    return found
