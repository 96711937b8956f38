"""Distance of a result from the float64 reference, by the measures of the field.

a is an element of the result, g of the reference, R(g) the reference rounded once into the format (nearest
even; hifloat8: half away).  An element is compared when a and R(g) are finite; where one of them is not, they
must be the same.  ulp(g) is the format's step at g: of the binade that holds |g|, never below the smallest
subnormal nor above the last binade.  A measure over no compared element is 0.

HF32 names a way to compute, not a way to store: its tensors are float32, R rounds to float32, bits are
compared in float32, and ulp is HF32's own step, since that is the accuracy of the operands.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ascendsim.errors import ShapeError, UnsupportedError
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.numerics.formats import dtypes
from ascendsim.numerics.formats.casts import decode, round_to
from ascendsim.numerics.formats.dtypes import DType
from ascendsim.numerics.formats.format_rounding import Float32Array, narrow_to_odd
from ascendsim.numerics.formats.hifloat8 import HiFloat8Array, value_ranks
from ascendsim.numerics.formats.tables import encode_codes
from ascendsim.numerics.formats.ulp import ulps
from ascendsim.numerics.standards import MIXED_MISS_SHARE, MIXED_ULPS, ST_ATOL, Standards, Verdict, standards

Float64Array = npt.NDArray[np.float64]

_CHUNK = 1 << 16  # elements at a time: the temporaries stay in the cache, and large tensors in memory


@dataclass(frozen=True)
class ErrorMetrics:
    """Hold every measure of one result; `METRIC_COLUMNS` defines each in words."""

    dtype: str
    count: int
    compared: int
    special_expected: int
    special_got: int
    mere: float
    mare: float
    rmse: float
    max_abs: float
    share_above_1e3: float
    share_above_1e4: float
    share_above_1e3_rounded: float
    max_ulp: float
    mean_signed_ulp: float
    mean_outward_ulp: float
    max_rank_ulp: int | None
    equal_bits_share: float
    small_count: int | None
    small_above_bound: int | None
    special_mismatches: int
    verdicts: tuple[Verdict, ...]

    @property
    def specials_match(self) -> bool:
        """Say whether NaN and Inf are where the rounded reference has them."""
        return self.special_mismatches == 0

    @property
    def double_thousandth(self) -> bool:
        """Say whether at most one element in a thousand is off R(g) by more than a thousandth."""
        return self.share_above_1e3_rounded <= 1e-3


class _ChunkTotals(NamedTuple):
    """Hold what one chunk of elements contributes.

    sums     of relative error, squared error, signed ulp, outward ulp; added over chunks
    maxima   of relative error, absolute error, ulp, rank; the largest counts
    counts   compared, equal bits, special mismatches, special due, special got; outside 1e-3, 1e-4, 1e-3 of
             R(g); misses of `st` and `mixed`, beyond the limit of `mixed`; small values, those off; added
    """

    sums: tuple[float, ...]
    maxima: tuple[float, ...]
    counts: tuple[int, ...]


@default_arithmetic
def error_metrics(
    actual: "npt.NDArray[Any] | HiFloat8Array", reference: npt.NDArray[Any], dtype: "str | DType"
) -> ErrorMetrics:
    """Measure a result against the float64 reference.

    actual     the result: a float32 carrier, or as stored in `dtype`
    reference  float64, the same shape
    dtype      the format of the result; hf32_11 or hf32_10: a float32 tensor computed in HF32
    Raises     ShapeError, UnsupportedError (types)
    """
    fmt = dtypes.dtype(dtype)
    # A float32 array is taken as a carrier, whatever the format: results of HF32 and carriers look alike.
    values = _carrier(actual, fmt).reshape(-1)
    exact = np.asarray(reference)
    if exact.dtype != np.float64:
        raise UnsupportedError(f"error_metrics: the reference must be float64, got {exact.dtype.name}")
    if exact.shape != actual.shape:
        raise ShapeError(f"error_metrics: the result has shape {actual.shape}, the reference {exact.shape}")
    exact = exact.reshape(-1)
    limits = standards(fmt)
    # Chunk by chunk, since each measure makes several arrays of the size of what it is given.
    starts = range(0, values.size, _CHUNK)
    chunks = [_chunk_totals(values[at : at + _CHUNK], exact[at : at + _CHUNK], fmt, limits) for at in starts]
    return _combine(chunks, fmt, limits, values.size)


def _carrier(actual: "npt.NDArray[Any] | HiFloat8Array", fmt: DType) -> Float32Array:
    if isinstance(actual, np.ndarray) and actual.dtype == np.float32:
        return actual
    return decode(actual, fmt)


def round_reference(reference: Float64Array, fmt: DType) -> Float32Array:
    """Round float64 values once into a format (R in the formulas)."""
    if fmt.bits == 32:
        with np.errstate(over="ignore", under="ignore"):
            return reference.astype(np.float32)
    # With two roundings to nearest, a value just off a tie of the format could go the wrong way.
    return round_to(narrow_to_odd(reference), fmt)


def _chunk_totals(values: Float32Array, exact: Float64Array, fmt: DType, limits: Standards) -> _ChunkTotals:
    rounded = round_reference(exact, fmt)
    # NaN equals NaN here, whatever the payloads: those are promised nowhere.
    both_nan = np.isnan(values) & np.isnan(rounded)
    got, due = ~np.isfinite(values), ~np.isfinite(rounded)
    special = (int(np.count_nonzero(due)), int(np.count_nonzero(got)))
    finite = ~(got | due)
    equal = int(np.count_nonzero((values.view(np.uint32) == rounded.view(np.uint32)) | both_nan))
    mismatches = int(np.count_nonzero(~finite & ~((values == rounded) | both_nan)))
    # From here on differences only: Inf - Inf would make every sum NaN.
    if not finite.all():
        values, exact, rounded = values[finite], exact[finite], rounded[finite]
    if values.size == 0:
        return _ChunkTotals((0.0,) * 4, (0.0,) * 4, (0, equal, mismatches, *special, *(0,) * 8))
    # In double: where the two are within a factor of two their difference is exact.
    difference = values.astype(np.float64) - exact
    error, size = np.abs(difference), np.abs(exact)
    # The test kit's formula: the 1e-7 keeps a reference of zero from dividing by it.
    relative = error / (size + 1e-7)
    steps = ulps(exact, fmt)
    in_ulps = difference / steps
    outward = (np.abs(values) - size) / steps
    sums = (relative.sum(), np.square(error).sum(), in_ulps.sum(), outward.sum())
    rank = _rank_distance(values, rounded, fmt) if fmt.tapered else 0
    maxima = (relative.max(), error.max(), np.abs(in_ulps).max(), float(rank))
    nearest = rounded.astype(np.float64)
    off_rounded = np.abs(values - nearest), np.abs(nearest)
    above = (
        _beyond(error, size, 1e-3, ST_ATOL),
        _beyond(error, size, 1e-4, ST_ATOL),
        _beyond(*off_rounded, 1e-3, ST_ATOL),
        _beyond(*off_rounded, limits.st_rtol, ST_ATOL),
        _beyond(error, size, limits.mixed_rtol, limits.mixed_atol),
    )
    rest = _limit_counts(error, size, in_ulps, limits)
    return _ChunkTotals(
        tuple(map(float, sums)),
        tuple(map(float, maxima)),
        (values.size, equal, mismatches, *special, *above, *rest),
    )


def _beyond(error: Float64Array, size: Float64Array, rtol: float | None, atol: float | None) -> int:
    """Count the elements outside a tolerance; none when the format has no such tolerance."""
    if rtol is None or atol is None:
        return 0
    return int(np.count_nonzero(error > atol + rtol * size))


def _limit_counts(
    error: Float64Array, size: Float64Array, in_ulps: Float64Array, limits: Standards
) -> tuple[int, int, int]:
    """Count: beyond the mixed standard's limit, in the small-value domain, of those beyond its bound."""
    far = 0
    if limits.mixed_limit is not None:
        far = int(np.count_nonzero((error > limits.mixed_limit) & (np.abs(in_ulps) > MIXED_ULPS)))
    if limits.small_below is None or limits.small_bound is None:
        return far, 0, 0
    small = size < limits.small_below
    return far, int(np.count_nonzero(small)), int(np.count_nonzero(small & (error > limits.small_bound)))


def _rank_distance(values: Float32Array, rounded: Float32Array, fmt: DType) -> int:
    # Codes are not in value order, so their difference would be no distance.
    ranks = [value_ranks(encode_codes(x, fmt)) for x in (values, rounded)]
    return int(np.abs(ranks[0] - ranks[1]).max())


def _combine(chunks: list[_ChunkTotals], fmt: DType, limits: Standards, count: int) -> ErrorMetrics:
    # fsum rounds once: over many chunks nothing is lost beyond what numpy's sum loses inside each.
    relative, squared, signed, outward = (math.fsum(chunk.sums[i] for chunk in chunks) for i in range(4))
    mare, max_abs, max_ulp, rank = (max((p.maxima[i] for p in chunks), default=0.0) for i in range(4))
    totals = [sum(chunk.counts[i] for chunk in chunks) for i in range(13)]
    compared, equal, mismatches, due, got, above_1e3, above_1e4, rounded_1e3, *misses, small, small_off = (
        totals
    )
    # A share or mean of no element is 0, not NaN, which would spoil every comparison in a table.
    among = max(compared, 1)
    has_small = limits.small_below is not None
    mere = relative / among
    return ErrorMetrics(
        dtype=fmt.name,
        count=count,
        compared=compared,
        special_expected=due,
        special_got=got,
        mere=mere,
        mare=mare,
        rmse=math.sqrt(squared / among),
        max_abs=max_abs,
        share_above_1e3=above_1e3 / among,
        share_above_1e4=above_1e4 / among,
        share_above_1e3_rounded=rounded_1e3 / among,
        max_ulp=max_ulp,
        mean_signed_ulp=signed / among,
        mean_outward_ulp=outward / among,
        max_rank_ulp=int(rank) if fmt.tapered else None,
        equal_bits_share=equal / max(count, 1),
        small_count=small if has_small else None,
        small_above_bound=small_off if has_small else None,
        special_mismatches=mismatches,
        verdicts=_verdicts(limits, mismatches == 0, among, misses, mere, mare),
    )


def _verdicts(
    limits: Standards, specials_match: bool, among: int, misses: list[int], mere: float, mare: float
) -> tuple[Verdict, ...]:
    st_misses, mixed_misses, far = misses
    verdicts = []
    if limits.st_rtol is not None:
        rule = f"|a-R(g)| <= 1e-8 + {limits.st_rtol:g} |R(g)| on all but {limits.st_rtol:g} of the elements"
        verdicts.append(Verdict("st", specials_match and st_misses <= limits.st_rtol * among, rule))
    if limits.mixed_rtol is not None:
        rule = (
            f"|a-g| <= {limits.mixed_atol:g} + {limits.mixed_rtol:g} |g| on 99 %, "
            f"everywhere <= max({limits.mixed_limit:g}, {MIXED_ULPS} ulp)"
        )
        passed = mixed_misses <= MIXED_MISS_SHARE * among and far == 0
        verdicts.append(Verdict("mixed", specials_match and passed, rule))
    if limits.stat_limit is not None:
        rule = f"MERE < {limits.stat_limit:g} and MARE < {10 * limits.stat_limit:g}"
        passed = mere < limits.stat_limit and mare < 10 * limits.stat_limit
        verdicts.append(Verdict("stat", specials_match and passed, rule))
    return tuple(verdicts)
