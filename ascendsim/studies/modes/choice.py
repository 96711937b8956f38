"""The most accurate of the fastest modes that pass: cases summed up mode by mode."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import log2
from typing import TYPE_CHECKING, Any

import numpy as np

from ascendsim.frozen import FrozenMap, cached_property
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.profile import Profile
from ascendsim.studies.modes.records import (
    LOST,
    NORM,
    CaseErrors,
    FormatShare,
    GradientError,
    ModeError,
    PassLimits,
)
from ascendsim.studies.records import StudyAnswer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Tensors = Mapping[str, NDArray[np.float64]]


RULES = ("st", "mixed", "stat")  # of the field, in the order in which they are printed


@dataclass(frozen=True, slots=True)
class Worst:
    """The largest error of a mode over cases, models and gradients, and where it is."""

    case: str
    accumulation: str
    error: GradientError


@dataclass(frozen=True, slots=True)
class ModeSummary:
    """One format, cubeMathType and loss scale over all cases.

    cube_math_types  those under which all cases have equal results
    compute_dtypes   formats that the cube reads
    time_us          of all cases, each as often as it counts
    least, most      the largest error of a gradient under the best and the worst accumulation model: largest
                     beside its limit
    different        largest share of elements whose bits another model changes
    failed           rules of the field that some gradient fails, with the reason of the first
    limit            of the error of the worst gradient
    emptiest         the gradient that loses the largest share of its elements
    missed           by what gradients fail: norm, lost elements
    refused          the first case that the interface refuses, with its reason; "" where it accepts all
    """

    dtype: str
    cube_math_types: tuple[int, ...]
    compute_dtypes: tuple[str, ...]
    loss_scale: float
    time_us: float
    least: float
    most: float
    different: float
    worst: Worst | None
    failed: tuple[tuple[str, str], ...]
    limit: float = 0.0
    emptiest: Worst | None = None
    missed: tuple[str, ...] = ()
    refused: str = ""

    @property
    def passes(self) -> bool:
        """Whether every gradient of every case is within its limits under every model."""
        return self.worst is not None and not self.missed

    @property
    def lost(self) -> float:
        """The largest share of a gradient's elements that range takes."""
        return self.emptiest.error.lost if self.emptiest else 0.0


def summaries(cases: Sequence[CaseErrors], limits: PassLimits) -> tuple[ModeSummary, ...]:
    """Sum up cases that were measured on the same axes, in the order of the axes."""
    found: dict[tuple[str, float], dict[int, list[tuple[CaseErrors, list[ModeError]]]]] = {}
    for case in cases:
        for key, by_number in _by_number(case).items():
            own = found.setdefault(key, {})
            for number, modes in by_number.items():
                own.setdefault(number, []).append((case, modes))
    made = list[ModeSummary]()
    for (dtype, scale), by_number_of_all in found.items():
        # Numbers that are one mode in every case are one row.
        alike: dict[tuple[tuple[str, str], ...], list[int]] = {}
        for number, held in by_number_of_all.items():
            alike.setdefault(tuple((m[0].compute_dtype, m[0].refused) for _, m in held), []).append(number)
        made += [_summary(dtype, tuple(n), scale, by_number_of_all[n[0]], limits) for n in alike.values()]
    return tuple(made)


def passing(rows: Sequence[ModeSummary]) -> tuple[ModeSummary, ...]:
    """Return the modes that pass, the fastest first; of a mode's loss scales that which is nearest to 1."""
    least: dict[tuple[str, tuple[int, ...]], ModeSummary] = {}
    for row in sorted(rows, key=lambda row: abs(log2(row.loss_scale))):
        if row.passes:
            least.setdefault((row.dtype, row.cube_math_types), row)
    return tuple(sorted(least.values(), key=lambda row: (row.time_us, row.most)))


def tied(rows: Sequence[ModeSummary], margin: float) -> tuple[ModeSummary, ...]:
    """Return the modes that pass and take the time of the fastest, within a margin; the most accurate first.

    margin   part of the fastest one's time within which times count as equal: the model's own error
    """
    fastest, *others = passing(rows) or (None,)
    if fastest is None:
        return ()
    same = [row for row in others if row.time_us <= (1 + margin) * fastest.time_us]
    # Errors that are printed alike are alike: then the faster is first.
    return tuple(sorted((fastest, *same), key=lambda row: (float(f"{row.most:.1e}"), row.time_us)))


def nearest(rows: Sequence[ModeSummary]) -> ModeSummary | None:
    """Return the mode with the smallest error; None where the interface refuses all, or all overflow."""
    compared = [row for row in rows if row.worst is not None and row.most < float("inf")]
    return min(compared, key=lambda row: row.most, default=None)


def _by_number(case: CaseErrors) -> dict[tuple[str, float], dict[int, list[ModeError]]]:
    """Return the modes of a case by format and scale, then by cubeMathType; one for each model."""
    found: dict[tuple[str, float], dict[int, list[ModeError]]] = {}
    for mode in case.modes:
        for number in mode.cube_math_types:
            found.setdefault((mode.dtype, mode.loss_scale), {}).setdefault(number, []).append(mode)
    return {key: dict(sorted(own.items())) for key, own in found.items()}


def _summary(
    dtype: str,
    numbers: tuple[int, ...],
    scale: float,
    held: Sequence[tuple[CaseErrors, Sequence[ModeError]]],
    limits: PassLimits,
) -> ModeSummary:
    refused = [f"{case.name}: {modes[0].refused}" for case, modes in held if modes[0].refused]
    computes = tuple(dict.fromkeys(m.compute_dtype for _, modes in held for m in modes if m.compute_dtype))
    if refused:
        return ModeSummary(dtype, numbers, computes, scale, 0.0, 0.0, 0.0, 0.0, None, (), refused=refused[0])
    # The worst of each model by its place: cases may name the models differently, by the k of their format.
    by_model = [
        [Worst(c.name, m[at].accumulation, e) for c, m in held for e in m[at].gradients]
        for at in range(len(held[0][1]))
    ]
    every = [one for of_model in by_model for one in of_model]

    def size(worst: Worst) -> tuple[bool, float, float]:
        """Order errors beside their limits, NaN as the largest."""
        total, limit = worst.error.total, limits.of(worst.error)
        return total != total, total / limit if limit else total, total

    worst = [max(of_model, key=size) for of_model in by_model]
    errors = [one.error.total for one in worst]
    failed, missed = dict[str, str](), set[str]()
    for one in every:
        for rule, reason in one.error.failed:
            failed.setdefault(rule, f"{one.error.name}: {reason}")
        missed |= set(limits.missed(one.error))
    whole = max(worst, key=size)
    return ModeSummary(
        dtype,
        numbers,
        computes,
        scale,
        sum(case.count * modes[0].time_us for case, modes in held),
        min(errors),
        max(errors, key=lambda error: (error != error, error)),
        max(one.error.different for one in every),
        whole,
        tuple((rule, failed[rule]) for rule in RULES if rule in failed),
        limits.of(whole.error),
        max(every, key=lambda one: one.error.lost),
        tuple(one for one in (NORM, LOST) if one in missed),
    )


TENSORS = ("grad_output", "input", "weight")
DATA = ("normal", "long-tailed")
# Of long-tailed: neural gradients are near log-normal (B. Chmiel and others 2020, arXiv:2006.08173). The two
# numbers are choices of ours: a mean over some hundred images, and tails that reach 24 binades to each side.
MEDIAN_EXPONENT, BINADES = -16, 4


@dataclass(frozen=True)
class ConvCase:
    """A convolution with its tensors.

    problem  whose time is asked for
    mask     which gradients are asked for
    count    how many convolutions it stands for
    data     which values: equal words mean equal values
    load     makes grad_output, input and weight of `sample` in float64; a function of a module, to be sent to
             processes
    part     of the problem, whose gradients are computed; None: all of it
    """

    name: str
    problem: ConvProblem
    mask: tuple[bool, bool, bool]
    count: int
    data: str
    load: Callable[[], Tensors]
    part: ConvProblem | None = None

    @property
    def batch(self) -> int:
        """The images of the call that is timed."""
        return self.problem.input[0]

    @property
    def sample(self) -> ConvProblem:
        """The convolution whose gradients are computed."""
        return self.part or self.problem


def part_of(problem: ConvProblem, budget: int, images: int | None = None) -> ConvProblem:
    """Return as much of a convolution as a budget holds, in multiply-adds of one gradient.

    That is fewer images of the batch; where one alone is beyond four budgets, the longest of its sides is
    halved, again and again, as long as four kernels fit. `images` asks for whole images, whatever they cost.
    """
    batch = problem.input[0]
    count = max(1, budget * batch // max(1, problem.macs)) if images is None else images
    found = replace(problem, input=(min(batch, count), *problem.input[1:]))
    while images is None and found.macs > 4 * budget:
        channels, sides = found.input[:2], list(found.input[2:])
        at = max(range(len(sides)), key=lambda axis: sides[axis])
        sides[at] = -(-sides[at] // 2)
        if sides[at] < 4 * problem.weight[2 + at]:
            break
        found = replace(found, input=(*channels, *sides))
    return found


@dataclass(frozen=True)
class SyntheticTensors:
    """Synthetic tensors: the same seed gives the same values.

    kind   "normal": all three standard normal. "long-tailed": grad_output has magnitudes whose logarithms to
           base 2 are normal, about MEDIAN_EXPONENT with a deviation of BINADES, and the sign of a coin
    """

    problem: ConvProblem
    kind: str
    seed: int

    @default_arithmetic
    def __call__(self) -> Tensors:
        """Draw grad_output, input and weight."""
        random = np.random.default_rng(self.seed)
        # float32 draws in this order are those of `ascendsim run --seed`.
        drawn = {
            name: random.standard_normal(getattr(self.problem, name), dtype=np.float32).astype(np.float64)
            for name in TENSORS
        }
        if self.kind == "long-tailed":
            signs = np.where(random.random(self.problem.grad_output) < 0.5, -1.0, 1.0)
            drawn["grad_output"] = signs * 2.0 ** (MEDIAN_EXPONENT + BINADES * drawn["grad_output"])
        return drawn


@dataclass(frozen=True)
class Axes:
    """What is varied, on one product.

    dtypes           in which tensors are stored
    cube_math_types  of the interface
    models           accumulation models; None: the product's default. The first is what others are held to
    loss_scales      by which grad_output is multiplied before it is stored
    limits           what a call may have at most, as the keywords of `estimate`; no answer depends on them
    """

    profile: Profile
    dtypes: Sequence[str]
    cube_math_types: Sequence[int] = (0, 1, 2, 3)
    models: Sequence[str | None] = (None,)
    loss_scales: Sequence[float] = (1.0,)
    rules: str = "documented"
    limits: Mapping[str, Any] = FrozenMap()


@dataclass(frozen=True)
class PrecisionQuestion:
    """Cases, and the modes of which it is asked which one to take.

    title    what the cases are, for people
    limits   with which a mode passes
    margin   part of a time within which modes are not distinguishable: the model's own error
    about    what else a reader must know of the cases, such as where the batch comes from
    """

    title: str
    axes: Axes
    cases: tuple[ConvCase, ...]
    limits: PassLimits = field(default_factory=PassLimits)
    margin: float = 0.0
    about: str = ""

    @property
    def data(self) -> tuple[str, ...]:
        """The data of the cases, by their words."""
        return tuple(dict.fromkeys(case.data for case in self.cases))


@dataclass(frozen=True)
class PrecisionStudy(StudyAnswer):
    """All cases of a study on one product, measured."""

    question: PrecisionQuestion
    cases: tuple[CaseErrors, ...]

    @cached_property
    @default_arithmetic
    def rows(self) -> tuple[ModeSummary, ...]:
        """The modes over all cases."""
        return summaries(self.cases, self.question.limits)

    @property
    def tied(self) -> tuple[ModeSummary, ...]:
        """The modes that pass in the time of the fastest, within the margin; the most accurate first."""
        return tied(self.rows, self.question.margin)

    @property
    def best(self) -> ModeSummary | None:
        """The most accurate of the fastest modes that pass."""
        return next(iter(self.tied), None)

    @property
    def nearest(self) -> ModeSummary | None:
        """The mode with the smallest error."""
        return nearest(self.rows)

    def failing(self) -> tuple[tuple[ModeSummary, ModeSummary | None], ...]:
        """Return the modes that fail, each with itself under a loss scale with which it passes.

        Of a mode that passes under no loss scale the first that was asked for stands for all.
        """
        good = {(row.dtype, row.cube_math_types): row for row in passing(self.rows)}
        found: dict[tuple[str, tuple[int, ...]], tuple[ModeSummary, ModeSummary | None]] = {}
        for row in self.rows:
            key = row.dtype, row.cube_math_types
            if row.worst is not None and not row.passes:
                found.setdefault(key, (row, good.get(key)))
        return tuple(found.values())

    def share(self, case: str, tensor: str, dtype: str, loss_scale: float) -> FormatShare | None:
        """Return the losses by a format on a tensor of a case."""
        for one in self.cases:
            for share in one.shares if one.name == case else ():
                if (share.tensor, share.format, share.loss_scale) == (tensor, dtype, loss_scale):
                    return share
        return None
