"""What a gradient loses element by element: by which cause, in which decade, in which channel.

Causes, in the order in which they are asked about; the first that holds is an element's:

    overflow      the result is Inf or NaN where the reference is neither
    saturation    it stays at the largest value of its format where the exact one lies beyond; or range takes
                  some of it, most by an operand that did
    underflow     half of the error or more is gone in formats without an end of their range
    cancellation  the error is large beside the element, and no more than roundings of its terms may cost
    accumulation  half of the error or more came after the exact sum was rounded: the sums
    rounding      the rest: formats' own fraction bits
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ascendsim.numerics.dtypes import DType, dtype
from ascendsim.numerics.metric_chunks import Verdict
from ascendsim.numerics.metrics import ErrorMetrics
from ascendsim.studies.arithmetic.formats import format_of, quantise
from ascendsim.studies.modes.records import FACTOR, Decade, FormatShare, Histogram

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Float64 = NDArray[np.float64]

CAUSES = ("overflow", "saturation", "underflow", "cancellation", "accumulation", "rounding")
UNDERFLOW = CAUSES.index("underflow")  # and those before it: what range takes
OFFSET = 1e-7  # which MERE and MARE add to |g|
SUM_STEP = 2.0**-24  # one rounding of a sum in float32
LEAST_DECADE = -300  # of float64, whose powers of ten have all their bits there


def histogram(tensor: str, values: Float64) -> Histogram:
    """Count the values of a tensor by binade."""
    finite = np.isfinite(values)
    sizes = np.abs(values[finite & (values != 0)])
    special, zeros = int((~finite).sum()), int((values == 0).sum())
    if not sizes.size:
        return Histogram(tensor, 0, (), zeros, special)
    # frexp gives 0.5 <= m < 1: the binade of |x| begins one exponent lower.
    exponents = np.frexp(sizes)[1] - 1
    first = int(exponents.min())
    return Histogram(tensor, first, tuple(np.bincount(exponents - first).tolist()), zeros, special)


def share(tensor: str, values: Float64, name: str, loss_scale: float = 1.0) -> FormatShare:
    """Count what rounding to a format does to the elements of a tensor times a loss scale."""
    fmt = dtype(name)
    finite = values[np.isfinite(values) & (values != 0)] * loss_scale
    if not finite.size:
        return FormatShare(tensor, name, loss_scale, None if fmt.tapered else 0.0, 0.0, 0.0)
    with np.errstate(over="ignore"):
        stored = quantise(finite, format_of(name))
    below = None if fmt.tapered else float(np.mean(np.abs(finite) < 2.0**fmt.min_exponent))
    lost, beyond = np.mean(stored == 0), np.mean(~np.isfinite(stored))
    return FormatShare(tensor, name, loss_scale, below, float(lost), float(beyond))


def without_range(values: Float64, bits: int) -> Float64:
    """Round to so many bits of a significand, ties to even, with exponents that have no end."""
    fractions, exponents = np.frexp(values)
    rounded: Float64 = np.ldexp(np.rint(np.ldexp(fractions, bits)), exponents - bits)
    return rounded


def unbounded(values: Float64, stored: NDArray[np.floating], fmt: DType) -> Float64:
    """Round values to a format as if its range had no end.

    stored   what it makes of them. hifloat8 has fewer bits step by step: of it zeros alone count as lost
    """
    free = without_range(values, fmt.mantissa_bits + 1)
    return np.where(stored == 0, free, stored) if fmt.tapered else free


@dataclass(frozen=True)
class RangeEnd:
    """A gradient of formats whose range has no end, but for one end of one tensor's range.

    tensor   an operand, or the gradient itself on its way out
    top      the end: its values beyond the largest one; else those below the smallest normal one
    """

    tensor: str
    top: bool
    values: Float64


def range_ends(bounded: NDArray[np.floating], free: Float64, most: float) -> Iterator[tuple[bool, Float64]]:
    """Yield each end of a range that takes some of a tensor: whether it is the top, and what it leaves.

    bounded   the tensor in its format; `free`: in the same without an end of its range
    most      its largest value
    """
    lost, beyond = (bounded != free) & ~np.isnan(free), np.abs(free) > most
    for top in (False, True):
        taken = lost & (beyond == top)
        if taken.any():
            yield top, np.where(taken, bounded, free)


@dataclass(frozen=True)
class LossSteps:
    """One gradient between its exact value and the result, all arrays of its shape, times the loss scale.

    result       as the call returns it
    rounded      the exact gradient of what the cube reads, rounded to the formats in which it leaves
    free         the same of formats whose range has no end
    ends         `free` but for one end of the range of one tensor, for each that takes some of it
    magnitudes   sums of |a b| of its terms
    formats      all that operands and gradient are rounded to
    leaving      those of the gradient, of which the narrowest range counts
    roundings    the share of `magnitudes` that roundings to formats may cost, with storage and one sum
    """

    result: Float64
    rounded: Float64
    free: Float64
    ends: Sequence[RangeEnd]
    magnitudes: Float64
    formats: Sequence[str]
    leaving: Sequence[str]
    roundings: float

    @property
    def coarsest(self) -> DType:
        """The format with the fewest fraction bits."""
        return min((dtype(name) for name in self.formats), key=lambda fmt: fmt.mantissa_bits)

    @property
    def top(self) -> float:
        """The largest value of the formats in which the gradient leaves."""
        return min(dtype(name).max_finite for name in self.leaving)

    def kept_at_top(self) -> NDArray[np.bool_]:
        """Say which elements stay at the largest value where the exact ones lie beyond."""
        kept: NDArray[np.bool_] = (np.abs(self.result) == self.top) & (np.abs(self.free) > self.top)
        return kept

    def large(self, reference: Float64) -> NDArray[np.bool_]:
        """Say which elements are off by more than some roundings to the coarsest format."""
        step = 2.0 ** -(self.coarsest.mantissa_bits + 1)
        with np.errstate(invalid="ignore"):
            off: NDArray[np.bool_] = np.abs(self.result - reference) > FACTOR * step * np.abs(reference)
        return off

    def deciding(self) -> NDArray[np.int64]:
        """Return for each element the place in `ends` of the one that moves it most, of equals the first."""
        moved = np.zeros((max(1, len(self.ends)), *self.free.shape))
        for at, end in enumerate(self.ends):
            with np.errstate(invalid="ignore"):
                moved[at] = np.nan_to_num(np.abs(end.values - self.free), nan=np.inf)
        places: NDArray[np.int64] = moved.argmax(axis=0)
        return places

    def labels(self, reference: Float64) -> NDArray[np.int64]:
        """Return the cause of each element's error against a reference, by its place in CAUSES."""
        with np.errstate(invalid="ignore"):
            error = np.abs(self.result - reference)
            range_part, sum_part = np.abs(self.rounded - self.free), np.abs(self.result - self.rounded)
        ranged = (2 * range_part >= error) & (range_part > 0)
        by_top = np.array([end.top for end in self.ends] or [False])[self.deciding()]
        conditions = [
            ~np.isfinite(self.result) & np.isfinite(reference),
            self.kept_at_top() | (ranged & by_top),
            ranged,
            self.large(reference) & (error <= self.roundings * self.magnitudes),
            (2 * sum_part >= error) & (sum_part > 0),
        ]
        return np.select(conditions, range(len(conditions)), len(conditions))

    def taken(self, truth: Float64, labels: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Say which elements range takes: beyond it, or below it and off by more than some roundings."""
        large = (labels == UNDERFLOW) & self.large(truth)
        taken: NDArray[np.bool_] = np.isfinite(truth) & (truth != 0) & ((labels < UNDERFLOW) | large)
        return taken

    def takers(self, truth: Float64, labels: NDArray[np.int64]) -> tuple[tuple[str, str, float], ...]:
        """Return (cause, tensor, share of all elements) of what range takes, by what decides, largest first.

        tensor   an operand, or the gradient itself
        """
        taken = self.taken(truth, labels)
        # Under a limit below its formats' roundings a gradient may fail by less.
        taken = taken if taken.any() else labels <= UNDERFLOW
        found = Counter[tuple[str, str]]()
        places = (labels * len(self.ends) + self.deciding())[taken] if self.ends else ()
        for place, count in zip(*(x.tolist() for x in np.unique(places, return_counts=True)), strict=True):
            cause, end = divmod(int(place), len(self.ends))
            found[CAUSES[cause], self.ends[end].tensor] += count
        return tuple((*key, count / truth.size) for key, count in found.most_common())

    def causes(self, truth: Float64, labels: NDArray[np.int64]) -> tuple[tuple[str, float], ...]:
        """Return the share of the squared error that each cause has, the largest first.

        Where elements overflow, overflow is all of it: their error has no size.
        """
        error = np.abs(self.result - truth)
        if (labels == 0).any():
            return ((CAUSES[0], 1.0),)
        largest = error.max(initial=0.0)
        if not largest or not np.isfinite(largest):
            return ()
        shares = np.bincount(labels.reshape(-1), np.square(error / largest).reshape(-1), len(CAUSES))
        named = sorted(zip(CAUSES, (shares / shares.sum()).tolist(), strict=True), key=lambda one: -one[1])
        return tuple((name, share) for name, share in named if share)


def decades(
    steps: LossSteps, truth: Float64, labels: NDArray[np.int64], loss_scale: float
) -> tuple[Decade, ...]:
    """Count by decades of the reference's magnitude what range takes of a gradient; zeros are left out.

    truth    in float64, times the loss scale as the steps are; the decades are of the gradient itself
    labels   of the steps against it
    """
    counted = np.isfinite(truth) & (truth != 0)
    sizes = np.abs(truth[counted]) / loss_scale
    if not sizes.size:
        return ()
    places = np.maximum(np.floor(np.log10(sizes)).astype(int), LEAST_DECADE)
    first = int(places.min())
    result = steps.result[counted]
    taken, below = steps.taken(truth, labels)[counted], labels[counted] == UNDERFLOW
    under, beyond = taken & below, taken & ~below
    zero = under & (result == 0)
    # In parts of the decade, since squares of small values are 0.
    units = 10.0**places
    with np.errstate(invalid="ignore"):
        errors = np.where(np.isfinite(result), np.abs(result - truth[counted]) / loss_scale / units, 0.0)

    def summed(values: NDArray[np.generic]) -> list[float]:
        return [float(one) for one in np.bincount(places - first, values)]

    columns = map(summed, (np.ones_like(sizes), zero, under & ~zero, beyond, errors**2, (sizes / units) ** 2))
    return tuple(
        Decade(first + at, int(n), float(np.sqrt(e / s)), int(z), int(b), int(o))
        for at, (n, z, b, o, e, s) in enumerate(zip(*columns, strict=True))
        if n
    )


def worst_channel(result: Float64, truth: Float64, axis: int) -> tuple[int, float]:
    """Return the channel with the largest error and that error: L2, relative to the channel's own norm.

    Channels whose reference is 0 have no such error; (-1, 0) where all are.
    """
    exact = np.moveaxis(truth, axis, 0).reshape(truth.shape[axis], -1)
    made = np.moveaxis(result, axis, 0).reshape(exact.shape)
    largest = np.abs(exact).max(axis=1, initial=0.0)
    kept = np.flatnonzero(largest)
    if not kept.size:
        return -1, 0.0
    units = largest[kept, None]
    with np.errstate(invalid="ignore", over="ignore"):
        off = np.linalg.norm((made[kept] - exact[kept]) / units, axis=1)
    sizes = np.linalg.norm(exact[kept] / units, axis=1)
    errors = np.where(np.isfinite(off), off / sizes, np.inf)
    at = int(errors.argmax())
    return int(kept[at]), float(errors[at])


def reasons(
    errors: ErrorMetrics, steps: LossSteps, reference: Float64, allowed: float
) -> tuple[tuple[str, str], ...]:
    """Return (rule, reason) for each rule of the field that a gradient fails against a reference.

    allowed     share of the sums of |a b| that rounding operands and gradient to their formats may cost
    """
    failed = [verdict for verdict in errors.verdicts if not verdict.passed]
    if not failed:
        return ()
    if not errors.specials_match:
        kept = int(steps.kept_at_top().sum())
        why = f", {kept} stay at the largest value, {steps.top:g}, where the exact one lies beyond" * (
            kept > 0
        )
        said = f"{errors.special_mismatches} values are NaN or Inf in one of them{why}"
        return tuple((one.standard, said) for one in failed)
    return tuple((one.standard, _reason(one, errors, steps, reference, allowed)) for one in failed)


def _reason(
    verdict: Verdict, errors: ErrorMetrics, steps: LossSteps, reference: Float64, allowed: float
) -> str:
    error = np.abs(steps.result - reference)
    measure = error if verdict.standard == "mixed" else error / (np.abs(reference) + OFFSET)
    at = int(np.nanargmax(measure))
    place = tuple(int(i) for i in np.unravel_index(at, measure.shape))
    size, off, terms = (float(x.reshape(-1)[at]) for x in (np.abs(reference), error, steps.magnitudes))
    of_terms = off / terms if terms else 0.0
    if of_terms <= allowed:
        why = f"within the {allowed:.1e} that its formats' roundings cost: terms cancel, no more is lost"
    else:
        cause = CAUSES[int(steps.labels(reference).reshape(-1)[at])]
        # Formats' roundings do not explain it: where range does not either, the sums do.
        cause = "accumulation" if cause == "cancellation" else cause
        why = f"more than the {allowed:.1e} that its formats' roundings cost: lost by {cause}"
    shown = {
        "stat": f"MERE is {errors.mere:.1e}, MARE {errors.mare:.1e}",
        "st": f"the largest relative error is {errors.mare:.1e}",
        "mixed": f"the largest error is {errors.max_abs:.1e}",
    }[verdict.standard]
    return (
        f"it asks for {verdict.rule}; {shown}; at {place} |g| is {size:.1e}, its terms' magnitudes sum to "
        f"{terms:.1e}, the error {off:.1e} is {of_terms:.1e} of that sum, {why}"
    )
