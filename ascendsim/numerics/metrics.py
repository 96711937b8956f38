"""Distance of a result from the float64 reference, by the measures of the field.

a is an element of the result, g of the reference, R(g) the reference rounded once into the format (nearest
even; hifloat8: half away).  An element is compared when a and R(g) are finite; where one of them is not, they
must be equal.  ulp(g) is the format's step at g: of the binade that holds |g|, never below the smallest
subnormal nor above the last binade.  A measure over no compared element is 0.

Sums that cancel leave elements far below the others, whose own step says nothing about a sum's error. So
means in steps take a step no finer than that of the tensor's root mean square.

HF32 names a way to compute, not a way to store: its tensors are float32, R rounds to float32, bits are
compared in float32, and ulp is HF32's own step, since that is the accuracy of the operands.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from operator import add, attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from ascendsim.errors import ShapeError, UnsupportedError
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.numerics import dtypes
from ascendsim.numerics.casts import decode
from ascendsim.numerics.dtypes import DType
from ascendsim.numerics.format_rounding import Float32Array
from ascendsim.numerics.hifloat8 import HiFloat8Array
from ascendsim.numerics.metric_chunks import (
    MIXED_MISS_SHARE,
    MIXED_ULPS,
    ChunkTotals,
    Float64Array,
    Standards,
    Verdict,
    chunk_totals,
    root_mean_square,
    standards,
)

_CHUNK = 1 << 16  # elements at a time: the temporaries stay in the cache, and large tensors in memory


@dataclass(frozen=True)
class ErrorMetrics:
    """Hold every measure of one result; `METRIC_COLUMNS` defines each in words.

    None stands for a measure that has no value: rel_l2, sqnr_db and cosine where a norm is zero,
    max_of_terms and mean_of_terms without magnitudes, others where the format has no limit
    """

    dtype: str
    count: int
    compared: int
    special_expected: int
    special_got: int
    mere: float
    mare: float
    rmse: float
    rel_l2: float | None
    sqnr_db: float | None
    cosine: float | None
    max_abs: float
    mean_of_terms: float | None
    max_of_terms: float | None
    underflow_share: float
    overflow_share: float
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


@dataclass(frozen=True, slots=True)
class Specials:
    """Count the elements of a tensor that say something by themselves, without a reference.

    largest   finite, of the largest size that the format has: a conversion that saturates leaves these
    """

    elements: int = 0
    infinite: int = 0
    nan: int = 0
    largest: int = 0
    zero: int = 0
    subnormal: int = 0

    def __add__(self, other: "Specials") -> "Specials":
        """Return the counts of both tensors."""
        counts = attrgetter(*self.__slots__)
        return Specials(*map(add, counts(self), counts(other)))

    def __str__(self) -> str:
        """Return the shares that are not nothing: 97% Inf, 0.1% zero."""
        named = {"infinite": "Inf", "nan": "NaN", "largest": "at the largest value"}
        shares = [(name, getattr(self, name) / max(self.elements, 1)) for name in self.__slots__[1:]]
        # Two digits, but all of 100.
        told = [(name, f"{100 * share:.{2 + (share > 0.99)}g}") for name, share in shares if share]
        return ", ".join(f"{share}% {named.get(name, name)}" for name, share in told)


@lru_cache(maxsize=16)
def _codes_of(given: np.dtype[Any]) -> tuple[np.dtype[Any], Any, int, int, bool]:
    """Return type, bits but the sign, largest and first normal code of a format; whether it has Inf."""
    fmt, kind = dtypes.dtype(given), np.dtype(f"u{given.itemsize}")
    ends = np.array([fmt.max_finite, 2.0**fmt.min_exponent], np.float32).astype(given)
    largest, normal = (int(code) for code in ends.view(kind))
    return kind, kind.type((1 << 8 * kind.itemsize - 1) - 1), largest, normal, fmt.has_infinity


def specials_of(stored: npt.NDArray[Any]) -> Specials:
    """Count Inf, NaN, largest values, zeros and subnormals of a tensor as it is stored, hifloat8 aside."""
    from ascendsim.numerics.compiled.turned import look_at_codes

    kind, magnitude, largest, normal, has_infinity = _codes_of(stored.dtype)
    codes = stored.view(kind)
    if not codes.size:
        return Specials()
    # Codes without their sign are in the order of the values; Inf and NaN come last.
    zero, small, top = look_at_codes(codes, int(magnitude), normal)
    if top < largest:
        return Specials(codes.size, zero=zero, subnormal=small - zero)
    count, most = np.count_nonzero, codes & magnitude
    infinite = int(count(most == largest + 1)) if has_infinity else 0
    return Specials(
        elements=codes.size,
        infinite=infinite,
        nan=int(count(most > largest)) - infinite,
        largest=int(count(most == largest)),
        zero=zero,
        subnormal=small - zero,
    )


@default_arithmetic
def error_metrics(
    actual: "npt.NDArray[Any] | HiFloat8Array",
    reference: npt.NDArray[Any],
    dtype: "str | DType",
    magnitudes: npt.NDArray[Any] | None = None,
) -> ErrorMetrics:
    """Measure a result against the float64 reference.

    actual      the result: a float32 carrier, or as stored in `dtype`
    reference   float64, the same shape
    dtype       the format of the result; hf32_11 or hf32_10: a float32 tensor computed in HF32
    magnitudes  float64, the same shape: the sum of |a b| over the terms of each element's reduction
    Raises      ShapeError, UnsupportedError (types)
    """
    fmt = dtypes.dtype(dtype)
    # A float32 array is taken as a carrier, whatever the format: results of HF32 and carriers look alike.
    values = _carrier(actual, fmt).reshape(-1)
    exact = _float64("reference", reference, actual.shape)
    sizes = None if magnitudes is None else _float64("sum of magnitudes", magnitudes, actual.shape)
    # Chunk by chunk, since each measure makes several arrays of the size of its input.
    parts = [slice(at, at + _CHUNK) for at in range(0, values.size, _CHUNK)]
    limits, scale = standards(fmt), root_mean_square((exact[p] for p in parts), fmt)
    chunks = [
        chunk_totals(values[p], exact[p], None if sizes is None else sizes[p], fmt, limits, scale)
        for p in parts
    ]
    return _combine(chunks, fmt, limits, values.size, with_sizes=sizes is not None)


def _float64(what: str, given: npt.NDArray[Any], shape: tuple[int, ...]) -> Float64Array:
    try:
        array = np.asarray(given)
    except (MemoryError, ValueError):
        got = type(given).__name__
        raise UnsupportedError(f"error_metrics: the {what} is a {got}; it must be an array") from None
    if array.dtype != np.float64:
        raise UnsupportedError(f"error_metrics: the {what} must be float64, got {array.dtype.name}")
    if array.shape != shape:
        raise ShapeError(f"error_metrics: the result has shape {shape}, the {what} {array.shape}")
    return array.reshape(-1)


def _carrier(actual: "npt.NDArray[Any] | HiFloat8Array", fmt: DType) -> Float32Array:
    if isinstance(actual, np.ndarray) and actual.dtype == np.float32:
        return actual
    if not isinstance(actual, np.ndarray | HiFloat8Array):
        got = type(actual).__name__
        raise UnsupportedError(f"error_metrics: the result is a {got}; it must be an array")
    return decode(actual, fmt)


def _combine(
    chunks: list[ChunkTotals], fmt: DType, limits: Standards, count: int, *, with_sizes: bool
) -> ErrorMetrics:
    # fsum rounds once: over many chunks nothing is lost beyond what numpy's sum loses inside each.
    def sums(name: str) -> float:
        return math.fsum(chunk.sums.get(name, 0.0) for chunk in chunks)

    def most(name: str) -> float:
        return max((chunk.maxima.get(name, 0.0) for chunk in chunks), default=0.0)

    def total(name: str) -> int:
        return sum(chunk.counts.get(name, 0) for chunk in chunks)

    compared, mismatches = total("compared"), total("mismatches")
    # A share or mean of no element is 0, not NaN, which would spoil every comparison in a table.
    among = max(compared, 1)
    has_small = limits.small_below is not None
    mere, mare = sums("relative") / among, most("relative")
    return ErrorMetrics(
        dtype=fmt.name,
        count=count,
        compared=compared,
        special_expected=total("due"),
        special_got=total("got"),
        mere=mere,
        mare=mare,
        rmse=math.sqrt(sums("squared") / among),
        **_norms(sums),
        max_abs=most("absolute"),
        mean_of_terms=sums("of_terms") / among if with_sizes else None,
        max_of_terms=most("of_terms") if with_sizes else None,
        underflow_share=total("underflow") / max(count, 1),
        overflow_share=total("overflow") / max(count, 1),
        share_above_1e3=total("above_1e3") / among,
        share_above_1e4=total("above_1e4") / among,
        share_above_1e3_rounded=total("rounded_above_1e3") / among,
        max_ulp=most("ulp"),
        mean_signed_ulp=sums("signed") / among,
        mean_outward_ulp=sums("outward") / among,
        max_rank_ulp=int(most("rank")) if fmt.tapered else None,
        equal_bits_share=total("equal") / max(count, 1),
        small_count=total("small") if has_small else None,
        small_above_bound=total("small_off") if has_small else None,
        special_mismatches=mismatches,
        # Where nothing is finite and every NaN and Inf is due, no rule has anything to say.
        verdicts=_verdicts(limits, mismatches == 0, among, total, mere, mare)
        if compared or mismatches
        else (),
    )


def _norms(sums: Callable[[str], float]) -> dict[str, float | None]:
    """Return the measures of a whole tensor as one vector; None where a norm is zero."""
    error, reference, result = sums("squared"), sums("reference_squared"), sums("result_squared")
    return {
        "rel_l2": math.sqrt(error / reference) if reference else None,
        "sqnr_db": 10 * math.log10(reference / error) if reference and error else None,
        "cosine": sums("product") / math.sqrt(reference) / math.sqrt(result)
        if reference and result
        else None,
    }


def _verdicts(
    limits: Standards,
    specials_match: bool,
    among: int,
    total: Callable[[str], int],
    mere: float,
    mare: float,
) -> tuple[Verdict, ...]:
    verdicts = []
    if limits.st_rtol is not None:
        rule = f"|a-R(g)| <= 1e-8 + {limits.st_rtol:g} |R(g)| on all but {limits.st_rtol:g} of the elements"
        verdicts.append(Verdict("st", specials_match and total("st_misses") <= limits.st_rtol * among, rule))
    if limits.mixed_rtol is not None:
        rule = (
            f"|a-g| <= {limits.mixed_atol:g} + {limits.mixed_rtol:g} |g| on 99 %, "
            f"everywhere <= max({limits.mixed_limit:g}, {MIXED_ULPS} ulp)"
        )
        passed = total("mixed_misses") <= MIXED_MISS_SHARE * among and total("far") == 0
        verdicts.append(Verdict("mixed", specials_match and passed, rule))
    if limits.stat_limit is not None:
        rule = f"MERE < {limits.stat_limit:g} and MARE < {10 * limits.stat_limit:g}"
        passed = mere < limits.stat_limit and mare < 10 * limits.stat_limit
        verdicts.append(Verdict("stat", specials_match and passed, rule))
    return tuple(verdicts)
