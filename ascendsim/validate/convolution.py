"""Measured gradients as distinct kernels, by network, gradient and kind of layer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.validate.compare import Case, Summary, busiest, quantile, summarise
from ascendsim.validate.schema import Row

# A side with fewer channels fills no more than two fractals of them.
FEW = 32
KINDS = ("few channels", "stride 2", "1x1", "3x3", "other kernels")


class Kernel(NamedTuple):
    """What two measurements of one kernel have in common."""

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
    cases: tuple[Case, ...]
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


def layer_kind(row: Row) -> str:
    """Return the one of `KINDS` that a layer is: the first that it fits."""
    kernel = row.weight_shape[2:]
    if min(row.input_shape[1], row.weight_shape[0]) // row.groups <= FEW:
        return "few channels"
    if max(row.stride, default=1) > 1:
        return "stride 2"
    named = {(1,) * len(kernel): "1x1", (3,) * len(kernel): "3x3"}
    return named.get(kernel, "other kernels")


def kernel_key(row: Row) -> Kernel:
    """Return which gradient of what problem was measured, and on which chip."""
    window = row.stride, row.padding, row.dilation, row.groups
    return Kernel(row.variant, row.kernel, row.compute_dtype, row.input_shape, row.weight_shape, window)


def distinct(cases: Sequence[Case]) -> list[Case]:
    """Return one case for each gradient kernel: the measurement in the middle of its repeats.

    Its counters are the medians of theirs. Cases without a row, or of other classes, are left out.
    """
    found: dict[Hashable, list[Case]] = {}
    for case in cases:
        if case.kind == "convolution" and case.row is not None:
            found.setdefault((kernel_key(case.row), case.group), []).append(case)
    return [_middle(own) for own in found.values()]


def _middle(repeats: Sequence[Case]) -> Case:
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
def slices(cases: Sequence[Case]) -> list[Slice]:
    """Return the statistics of all kernels by network, gradient and kind of layer, with totals.

    A network's gradient comes as a whole first ("all"), then by kind where it has several.
    """
    found: dict[tuple[str, str], list[Case]] = {}
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


def _slice(network: str, gradient: str, layers: str, cases: Sequence[Case]) -> Slice:
    bounds = Counter("+".join(sorted(case.bounds[1])) for case in cases)
    return Slice(network, gradient, layers, tuple(cases), summarise(cases), dict(bounds.most_common()))


@default_arithmetic
def pipe_errors(cases: Sequence[Case]) -> list[PipeErrors]:
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
