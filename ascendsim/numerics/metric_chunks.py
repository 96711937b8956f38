"""What one piece of a tensor contributes to each measure of `metrics`."""

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ascendsim.numerics.formats.casts import round_to
from ascendsim.numerics.formats.dtypes import DType
from ascendsim.numerics.formats.format_rounding import Float32Array, narrow_to_odd
from ascendsim.numerics.formats.hifloat8 import value_ranks
from ascendsim.numerics.formats.tables import encode_codes
from ascendsim.numerics.formats.ulp import ulps
from ascendsim.numerics.standards import MIXED_ULPS, ST_ATOL, Standards

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
    # Where a sum cancels, its own step may be any number of times finer than that of what was added.
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
    """Count the elements outside a tolerance; none when the format has no such tolerance."""
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
