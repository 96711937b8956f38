"""The contribution of one piece of a tensor to each measure of `metrics`."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ascendsim.numerics.casts import round_to
from ascendsim.numerics.dtypes import DType, ulps
from ascendsim.numerics.format_rounding import Float32Array, encode_codes, narrow_to_odd
from ascendsim.numerics.hifloat8 import value_ranks

ST_ATOL = 1e-8
MIXED_MISS_SHARE = 0.01
MIXED_ULPS = 32


@dataclass(frozen=True)
class Standards:
    """Hold one format's limits; None where the field gives none."""

    st_rtol: float | None
    mixed_rtol: float | None
    mixed_atol: float | None
    mixed_limit: float | None
    stat_limit: float | None
    small_below: float | None
    small_bound: float | None


@dataclass(frozen=True)
class Verdict:
    """Say whether a result passes one standard, and what that standard asks."""

    standard: str
    passed: bool
    rule: str


_HF32 = Standards(1e-3, 2**-9, 2**-10, 1e-1, 2**-11, 2**-12, 2**-28)
_BY_FORMAT = {
    "float16": Standards(1e-3, 2**-9, 2**-9, 1e-1, 2**-10, 2**-11, 2**-16),
    "bfloat16": Standards(1e-3, 2**-6, 2**-6, 1.0, 2**-7, 2**-8, 2**-16),
    "float32": Standards(1e-4, 2**-10, 2**-16, 1e-2, 2**-13, 2**-14, 2**-30),
    "hf32_11": _HF32,
    "hf32_10": _HF32,
    "float8_e4m3fn": Standards(None, 2**-2, 2**-4, 1.0, 2**-3, 2**-4, 2**-6),
    "float8_e5m2": Standards(None, 2**-1, 2**-3, 1e-1, 2**-2, 2**-3, 2**-5),
    "hifloat8": Standards(1e-3, None, None, None, None, None, None),
}


def standards(fmt: DType) -> Standards:
    """Return the limits of a format (HF32: of a float32 tensor computed in HF32)."""
    return _BY_FORMAT[fmt.name]


Float64Array = npt.NDArray[np.float64]


class ChunkTotals(NamedTuple):
    """Hold what one chunk of elements contributes, by the name of the measure.

    sums, counts   added over chunks
    maxima         the largest counts
    """

    sums: dict[str, float]
    maxima: dict[str, float]
    counts: dict[str, int]


def root_mean_square(chunks: Iterable[Float64Array], fmt: DType) -> float:
    """Return the root mean square of the reference over what the format can hold; 0 of nothing."""
    total, count = 0.0, 0
    for exact in chunks:
        held = exact[np.abs(exact) <= fmt.max_finite]  # neither NaN nor Inf is
        total, count = total + float(np.square(held).sum()), count + held.size
    return math.sqrt(total / max(count, 1))


def round_reference(reference: Float64Array, fmt: DType) -> Float32Array:
    """Round float64 values once into a format (R in the formulas)."""
    if fmt.bits == 32:
        with np.errstate(over="ignore", under="ignore"):
            return reference.astype(np.float32)
    # With two roundings to nearest, a value just off a tie of the format could go the wrong way.
    return round_to(narrow_to_odd(reference), fmt)


def chunk_totals(
    values: Float32Array,
    exact: Float64Array,
    sizes: Float64Array | None,
    fmt: DType,
    limits: Standards,
    scale: float,
) -> ChunkTotals:
    """Measure one chunk.

    sizes   sums of the magnitudes of the terms, if they are known
    scale   no step is taken finer than that of the format at this value, in means of steps
    """
    rounded = round_reference(exact, fmt)
    # NaN equals NaN here, whatever the payloads: those are promised nowhere.
    both_nan = np.isnan(values) & np.isnan(rounded)
    got, due = ~np.isfinite(values), ~np.isfinite(rounded)
    finite = ~(got | due)
    counts = {
        "equal": _count((values.view(np.uint32) == rounded.view(np.uint32)) | both_nan),
        "mismatches": _count(~finite & ~((values == rounded) | both_nan)),
        "due": _count(due),
        "got": _count(got),
        "underflow": _count((values == 0) & (exact != 0) & ~np.isnan(exact)),
        "overflow": _count(np.isfinite(exact) & (got | (due & (np.abs(values) == fmt.max_finite)))),
    }
    # From here on differences only: Inf - Inf would make every sum NaN.
    if not finite.all():
        values, exact, rounded = values[finite], exact[finite], rounded[finite]
        sizes = None if sizes is None else sizes[finite]
    if values.size == 0:
        return ChunkTotals({}, {}, counts)
    sums, maxima, more = _differences(values, exact, rounded, fmt, limits, scale)
    if sizes is not None:
        # A sum without terms is exact, whatever is divided by.
        of_terms = np.abs(values.astype(np.float64) - exact) / np.where(sizes == 0, 1.0, sizes)
        sums["of_terms"], maxima["of_terms"] = float(of_terms.sum()), float(of_terms.max())
    return ChunkTotals(sums, maxima, counts | more)


def _count(mask: npt.NDArray[np.bool_]) -> int:
    return int(np.count_nonzero(mask))


def _differences(
    values: Float32Array,
    exact: Float64Array,
    rounded: Float32Array,
    fmt: DType,
    limits: Standards,
    scale: float,
) -> tuple[dict[str, float], dict[str, float], dict[str, int]]:
    """Return the sums, maxima and counts over finite elements."""
    # In double: where the two are within a factor of two their difference is exact.
    wide = values.astype(np.float64)
    difference = wide - exact
    error, size = np.abs(difference), np.abs(exact)
    # The test kit's formula: the 1e-7 keeps a reference of zero from dividing by it.
    relative = error / (size + 1e-7)
    in_ulps = error / ulps(exact, fmt)
    # Where a sum cancels, its own step may be any number of times finer than that of its terms.
    steps = ulps(np.maximum(size, scale), fmt)
    sums = {
        "relative": relative.sum(),
        "squared": np.square(error).sum(),
        "reference_squared": np.square(size).sum(),
        "result_squared": np.square(wide).sum(),
        "product": (wide * exact).sum(),
        "signed": (difference / steps).sum(),
        "outward": ((np.abs(wide) - size) / steps).sum(),
    }
    maxima = {
        "relative": relative.max(),
        "absolute": error.max(),
        "ulp": in_ulps.max(),
        "rank": float(_rank_distance(values, rounded, fmt)) if fmt.tapered else 0.0,
    }
    nearest = rounded.astype(np.float64)
    off_rounded = np.abs(wide - nearest), np.abs(nearest)
    counts = {
        "compared": values.size,
        "above_1e3": _beyond(error, size, 1e-3, ST_ATOL),
        "above_1e4": _beyond(error, size, 1e-4, ST_ATOL),
        "rounded_above_1e3": _beyond(*off_rounded, 1e-3, ST_ATOL),
        "st_misses": _beyond(*off_rounded, limits.st_rtol, ST_ATOL),
        "mixed_misses": _beyond(error, size, limits.mixed_rtol, limits.mixed_atol),
        **_limit_counts(error, size, in_ulps, limits),
    }
    return (
        {name: float(value) for name, value in sums.items()},
        {name: float(value) for name, value in maxima.items()},
        counts,
    )


def _beyond(error: Float64Array, size: Float64Array, rtol: float | None, atol: float | None) -> int:
    """Count the elements outside a tolerance; none when the format has no tolerance."""
    if rtol is None or atol is None:
        return 0
    return _count(error > atol + rtol * size)


def _limit_counts(
    error: Float64Array, size: Float64Array, in_ulps: Float64Array, limits: Standards
) -> dict[str, int]:
    """Count: beyond the mixed standard's limit, in the small-value domain, of those beyond its bound."""
    counts = {}
    if limits.mixed_limit is not None:
        counts["far"] = _count((error > limits.mixed_limit) & (in_ulps > MIXED_ULPS))
    if limits.small_below is not None and limits.small_bound is not None:
        small = size < limits.small_below
        counts["small"], counts["small_off"] = _count(small), _count(small & (error > limits.small_bound))
    return counts


def _rank_distance(values: Float32Array, rounded: Float32Array, fmt: DType) -> int:
    # Codes are not in value order, so their difference would be no distance.
    ranks = [value_ranks(encode_codes(x, fmt)) for x in (values, rounded)]
    return int(np.abs(ranks[0] - ranks[1]).max())


class Column(NamedTuple):
    """Define one named value of a record: its heading in tables, its unit, and what it is in words.

    show     how a table prints it; left: on the left of its column, as texts are
    absent   what stands where there is no value
    """

    name: str
    heading: str
    unit: str
    definition: str
    show: Callable[[Any], str] = str
    left: bool = False
    absent: str = ""


METRIC_SYMBOLS = (
    "a: an element of the gradient. g: the same of the reference, which is the stored tensors convolved in "
    "float64. R(g): g rounded once into the gradient's format. ulp(g): the step of that format at g. Where "
    "a or R(g) is NaN or Inf, an element counts in the three columns about these, in equal bits and in the "
    "standards, and in no other measure."
)
METRIC_COLUMNS = (
    Column("dtype", "format", "", "The format whose steps and limits are meant."),
    Column("count", "elements", "", "Elements of the tensor."),
    Column("compared", "compared", "", "Elements where the result and R(g) are both finite."),
    Column("special_expected", "NaN/Inf due", "", "Elements where R(g) is NaN or Inf."),
    Column("special_got", "NaN/Inf got", "", "Elements where a is NaN or Inf."),
    Column("mere", "MERE", "", "Mean of |a - g| / (|g| + 1e-7)."),
    Column("mare", "MARE", "", "Maximum of |a - g| / (|g| + 1e-7)."),
    Column("rmse", "RMSE", "", "Square root of the mean of (a - g)^2."),
    Column(
        "rel_l2",
        "rel L2",
        "",
        "The root of the sum of (a - g)^2 over that of g^2; none where every g is 0.",
    ),
    Column(
        "sqnr_db",
        "SQNR",
        "dB",
        "10 log10 of the sum of g^2 over that of (a - g)^2; none where one of them is 0.",
    ),
    Column(
        "cosine",
        "cosine",
        "",
        "The sum of a g over the roots of the sums of a^2 and of g^2; none where one of them is 0.",
    ),
    Column("max_abs", "max abs", "", "Maximum of |a - g|."),
    Column(
        "mean_of_terms",
        "mean of terms",
        "",
        "Mean of |a - g| / S, where S is the sum of the magnitudes of the terms of g: the error of the sum, "
        "whatever of it cancels; none where S is not known.",
    ),
    Column("max_of_terms", "max of terms", "", "Maximum of |a - g| / S."),
    Column(
        "underflow_share", "underflow", "share of 1", "Share of all elements with a = 0 where g is not 0."
    ),
    Column(
        "overflow_share",
        "overflow",
        "share of 1",
        "Share of all elements with a finite g where a is NaN, Inf, or the largest value in place of an Inf "
        "or NaN of R(g).",
    ),
    Column(
        "share_above_1e3",
        "> 1e-3",
        "share of 1",
        "Share of the compared elements with |a - g| > 1e-8 + 1e-3 |g|: against the float64 value itself, so "
        "the rounding into a coarse format counts as well.",
    ),
    Column("share_above_1e4", "> 1e-4", "share of 1", "Share with |a - g| > 1e-8 + 1e-4 |g|."),
    Column(
        "share_above_1e3_rounded",
        "> 1e-3 of R",
        "share of 1",
        "Share with |a - R(g)| > 1e-8 + 1e-3 |R(g)|; the double-thousandth rule allows 0.001.",
    ),
    Column(
        "max_ulp",
        "max ulp",
        "ulp(g)",
        "Maximum of |a - g| / ulp(g).",
    ),
    Column(
        "mean_signed_ulp",
        "mean ulp",
        "ulp(s)",
        "Mean of (a - g) / ulp(s), s the larger of |g| and the root mean square of all g: a drift up or "
        "down.",
    ),
    Column(
        "mean_outward_ulp",
        "outward ulp",
        "ulp(s)",
        "Mean of (|a| - |g|) / ulp(s): below zero the results shrink, as truncation makes them.",
    ),
    Column(
        "max_rank_ulp",
        "max rank",
        "values",
        "hifloat8: most representable values between a and R(g); its codes are not in value order.",
    ),
    Column(
        "equal_bits_share",
        "equal bits",
        "share of 1",
        "Share of all elements that have exactly the bits of R(g), NaN for NaN: those that are as right as "
        "the format can be.",
    ),
    Column("small_count", "small", "", "Elements with |g| below the format's small-value limit."),
    Column(
        "small_above_bound", "small off", "", "Those of them with |a - g| above the format's small bound."
    ),
    Column(
        "special_mismatches",
        "NaN/Inf off",
        "",
        "Elements where a or R(g) is NaN or Inf and the other differs.",
    ),
    Column(
        "verdicts",
        "standards",
        "",
        "Acceptance rules of the field for the format (st: the operator library's tests of convolution "
        "backward; mixed, stat: the operator test kit): which of them the gradient fails; none where "
        "nothing is finite and every NaN and Inf is due.",
    ),
)
