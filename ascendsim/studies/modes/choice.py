"""The cheapest mode that passes: cases summed up mode by mode."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ascendsim.frozen import cached_property
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.profile import Profile
from ascendsim.studies.modes.records import CaseErrors, FormatShare, GradientError, ModeError
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
    least, most      the largest error of a gradient under the best and the worst accumulation model
    different        largest share of elements whose bits another model changes
    failed           rules of the field that some gradient fails, with the reason of the first
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
    refused: str = ""

    def passes(self, limit: float) -> bool:
        """Return whether every gradient of every case is within a limit under every model."""
        return self.worst is not None and self.most <= limit


def summaries(cases: Sequence[CaseErrors]) -> tuple[ModeSummary, ...]:
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
        made += [_summary(dtype, tuple(n), scale, by_number_of_all[n[0]]) for n in alike.values()]
    return tuple(made)


def passing(rows: Sequence[ModeSummary], limit: float) -> tuple[ModeSummary, ...]:
    """Return the modes that pass, the fastest first; of a mode under several loss scales the least one."""
    least: dict[tuple[str, tuple[int, ...]], ModeSummary] = {}
    for row in sorted(rows, key=lambda row: row.loss_scale):
        if row.passes(limit):
            least.setdefault((row.dtype, row.cube_math_types), row)
    return tuple(sorted(least.values(), key=lambda row: (row.time_us, row.most)))


def cheapest(rows: Sequence[ModeSummary], limit: float) -> ModeSummary | None:
    """Return the fastest mode that passes, of equally fast ones the most exact."""
    return next(iter(passing(rows, limit)), None)


def more_exact(rows: Sequence[ModeSummary], limit: float, margin: float) -> tuple[ModeSummary, ...]:
    """Return the modes that are more exact than the cheapest at a cost within the model's error of its own.

    margin   part of the cheapest one's time within which times count as equal: the model's own error
    """
    best, *others = passing(rows, limit) or (None,)
    if best is None:
        return ()
    near = [row for row in others if row.time_us <= (1 + margin) * best.time_us and row.most < best.most]
    return tuple(sorted(near, key=lambda row: (row.most, row.time_us)))


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
    dtype: str, numbers: tuple[int, ...], scale: float, held: Sequence[tuple[CaseErrors, Sequence[ModeError]]]
) -> ModeSummary:
    refused = [f"{case.name}: {modes[0].refused}" for case, modes in held if modes[0].refused]
    computes = tuple(dict.fromkeys(m.compute_dtype for _, modes in held for m in modes if m.compute_dtype))
    if refused:
        return ModeSummary(dtype, numbers, computes, scale, 0.0, 0.0, 0.0, 0.0, None, (), refused[0])
    # The worst of each model by its place: cases may name the models differently, by the k of their format.
    by_model = [[(case, modes[at]) for case, modes in held] for at in range(len(held[0][1]))]
    worst = [max((Worst(c.name, m.accumulation, m.worst) for c, m in of), key=_size) for of in by_model]
    errors = [one.error.total for one in worst]
    every = [gradient for _, modes in held for mode in modes for gradient in mode.gradients]
    failed = dict[str, str]()
    for gradient in every:
        for rule, reason in gradient.failed:
            failed.setdefault(rule, f"{gradient.name}: {reason}")
    return ModeSummary(
        dtype,
        numbers,
        computes,
        scale,
        sum(case.count * modes[0].time_us for case, modes in held),
        min(errors),
        max(errors, key=lambda error: (error != error, error)),
        max(gradient.different for gradient in every),
        max(worst, key=_size),
        tuple((rule, failed[rule]) for rule in RULES if rule in failed),
    )


def _size(worst: Worst) -> tuple[bool, float]:
    """Order errors, NaN as the largest."""
    total = worst.error.total
    return total != total, total


TENSORS = ("grad_output", "input", "weight")
DATA = ("normal", "long-tailed")
# Of long-tailed: neural gradients are near log-normal (B. Chmiel and others 2020, arXiv:2006.08173). The two
# numbers are choices of ours: a mean over some hundred images, and tails that reach 24 binades to each side.
MEDIAN_EXPONENT, BINADES = -16, 4


@dataclass(frozen=True)
class ConvCase:
    """A convolution with its tensors.

    mask   which gradients are asked for
    count  how many convolutions it stands for
    data   which values: equal words mean equal values
    load   makes grad_output, input and weight in float64; a function of a module, to be sent to processes
    """

    name: str
    problem: ConvProblem
    mask: tuple[bool, bool, bool]
    count: int
    data: str
    load: Callable[[], Tensors]


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
    """

    profile: Profile
    dtypes: Sequence[str]
    cube_math_types: Sequence[int] = (0, 1, 2, 3)
    models: Sequence[str | None] = (None,)
    loss_scales: Sequence[float] = (1.0,)
    rules: str = "documented"


@dataclass(frozen=True)
class PrecisionQuestion:
    """Cases, and the modes of which it is asked which one to take.

    title    what the cases are, for people
    limit    largest error of a gradient with which a mode passes: L2, relative to float64
    margin   part of a time within which modes are not told apart: the model's own error
    """

    title: str
    axes: Axes
    cases: tuple[ConvCase, ...]
    limit: float
    margin: float = 0.0

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
        return summaries(self.cases)

    @property
    def cheapest(self) -> ModeSummary | None:
        """The cheapest mode that passes."""
        return cheapest(self.rows, self.question.limit)

    @property
    def more_exact(self) -> tuple[ModeSummary, ...]:
        """The modes more exact than the cheapest, and within the margin of its time; the most exact first."""
        return more_exact(self.rows, self.question.limit, self.question.margin)

    @property
    def nearest(self) -> ModeSummary | None:
        """The mode with the smallest error."""
        return nearest(self.rows)

    def verdict_flips(self) -> tuple[tuple[ModeSummary, ModeSummary], ...]:
        """Return (failing, passing) modes that differ in the loss scale alone: a pair for each mode."""
        found: dict[tuple[str, tuple[int, ...]], tuple[ModeSummary, ModeSummary]] = {}
        for bad in self.rows:
            for good in self.rows:
                alike = (bad.dtype, bad.cube_math_types) == (good.dtype, good.cube_math_types)
                judged = (
                    bad.worst is not None
                    and not bad.passes(self.question.limit)
                    and good.passes(self.question.limit)
                )
                if alike and judged:
                    found.setdefault((bad.dtype, bad.cube_math_types), (bad, good))
        return tuple(found.values())

    def share(self, case: str, tensor: str, dtype: str, loss_scale: float) -> FormatShare | None:
        """Return the losses by a format on a tensor of a case."""
        for one in self.cases:
            for share in one.shares if one.name == case else ():
                if (share.tensor, share.format, share.loss_scale) == (tensor, dtype, loss_scale):
                    return share
        return None
