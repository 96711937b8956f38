"""Move tensors between their stored form and the float32 carrier, and round carriers into a format.

decode      stored elements -> carrier, exact
encode      carrier on the format's grid -> stored elements, exact
round_to    any carrier -> carrier on the grid, one rounding
hf32        what the cube makes of float32 operands when HF32 is on

`decoded`, `stored` and `rounded` are the same three for tensors of any size: numpy converts binary16 element
by element, which for a whole call takes as long as a tenth of its products. So the compiler is loaded at the
first array that is long enough for it to pay; threads share long ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ascendsim.errors import UnsupportedError
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.numerics import dtypes
from ascendsim.numerics.dtypes import DType, dtype, positive_values
from ascendsim.numerics.factor import ALONE, Threads
from ascendsim.numerics.format_rounding import (
    QUIET,
    Float32Array,
    decode_codes,
    encode_codes,
    require_choice,
    require_float32,
    round_fields,
)
from ascendsim.numerics.hifloat8 import HiFloat8Array, round_hifloat8

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Elements = NDArray[Any] | HiFloat8Array
    Convert = Callable[[NDArray[Any], Threads], NDArray[Any]]


HF32_TIES = ("RNE", "RNA", "RZ")


@default_arithmetic
def round_to(
    values: npt.ArrayLike, dtype: str | DType, rounding: str | None = None, overflow: str = "ieee"
) -> Float32Array:
    """Round float32 values into a format, once.

    Shapes    any, kept; the result is a carrier (float32) and may be the input itself for float32
    rounding  RINT, ROUND, FLOOR, CEIL, TRUNC or ODD; hifloat8 has ROUND, HYBRID:doc-literal and
              HYBRID:strict; left out: RINT, for hifloat8 ROUND, which is what Fixpipe and Cast kernels use
    overflow  ieee, saturate or saturate_keep_nan (see `format_rounding.py`)
    Raises    UnsupportedError for values that are not float32, unknown modes and formats
    """
    fmt = dtypes.dtype(dtype)
    array = require_float32(values, f"round_to {fmt.name}")
    if fmt.tapered:
        return round_hifloat8(array, rounding or "ROUND", overflow)
    rounding = rounding or "RINT"
    # The usual case has short cuts, since every Fixpipe and Cast takes it; the general form gives the same
    # values.
    if rounding == "RINT" and overflow == "ieee":
        if fmt is dtypes.FLOAT32:
            return array
        # numpy's own conversion is correctly rounded, and faster on ordinary data.
        if fmt is dtypes.FLOAT16:
            with np.errstate(over="ignore", under="ignore"):
                return array.astype(np.float16).astype(np.float32)
        if fmt in (dtypes.BFLOAT16, dtypes.HF32_11, dtypes.HF32_10):
            return _cut_mantissa(array, 23 - fmt.mantissa_bits, "RNE")
    return round_fields(array, fmt, rounding, overflow)


@default_arithmetic
def hf32(values: npt.ArrayLike, mantissa_bits: int, ties: str = "RNE") -> Float32Array:
    """Round float32 operands to HF32 as the cube does on the way in from L0A and L0B.

    mantissa_bits  11 on 910B and 910_93, 10 on 910_95
    ties           RNE (CTRL[47] = 0) and RNA (CTRL[47] = 1) go to the nearest value, RZ toward zero
    Special        NaN and Inf stay; subnormals are kept; the largest values round to Inf under RNE and RNA
    Source         AscendC HF32 and SetHF32TransMode pages; RNA for bit 47 is what the shipped kernels mean
    """
    require_choice(ties, HF32_TIES, "hf32: ties")
    if not 0 < mantissa_bits < 23:
        raise UnsupportedError(
            f"hf32: {mantissa_bits} mantissa bits; HF32 has 11 (910B, 910_93) or 10 (910_95)"
        )
    return _cut_mantissa(require_float32(values, "hf32"), 23 - mantissa_bits, ties)


def _cut_mantissa(values: Float32Array, drop: int, ties: str) -> Float32Array:
    """Round away the low `drop` bits of every pattern; a carry runs into the exponent and on to Inf."""
    if values.size >= LEAST:
        more = {"RNE": (1 << drop - 1) - 1, "RNA": 1 << drop - 1}.get(ties, 0)
        return _conversions().cut_mantissa(values, drop, more, int(ties == "RNE"))
    bits = values.view(np.uint32)
    low, half, kept = np.uint32(drop), np.uint32(1 << (drop - 1)), ~np.uint32((1 << drop) - 1)
    match ties:
        case "RNE":
            # Just below half, plus the last kept bit: a tie carries only from an odd one.
            rounded = np.asarray(bits >> low)
            rounded &= np.uint32(1)
            rounded += bits
            rounded += half - np.uint32(1)
        case "RNA":
            rounded = np.asarray(bits + half)
        case _:
            rounded = np.array(bits)
    rounded &= kept
    # A NaN could carry into the sign, or lose all its fraction and read as Inf: it is cut and made quiet.
    nan = np.isnan(values)
    if nan.any():
        np.copyto(rounded, (bits | QUIET) & kept, where=nan)
    return rounded.view(np.float32)


@default_arithmetic
def decode(array: npt.NDArray[Any] | HiFloat8Array, dtype: str | DType) -> Float32Array:
    """Return the carrier of stored elements: the same values as float32.

    Types   the storage of the format (hifloat8: HiFloat8Array; HF32: float32 already on its grid)
    Raises  UnsupportedError when the array's type is not the format's storage
    """
    fmt = dtypes.dtype(dtype)
    if isinstance(array, HiFloat8Array) or fmt.storage_name is None:
        if not (isinstance(array, HiFloat8Array) and fmt.tapered):
            raise UnsupportedError(f"decode: {fmt.name} is stored as {_storage_name(fmt)}, got {array.dtype}")
        return array.to_float32()
    if array.dtype != _storage(fmt):
        raise UnsupportedError(f"decode: {fmt.name} is stored as {_storage_name(fmt)}, got {array.dtype}")
    # HF32 has no storage of its own, so a buffer cannot say whether its float32 values are HF32 values.
    if fmt.bits == 32:
        return _require_on_grid(array, fmt, "decode")
    if fmt is dtypes.FLOAT16:
        return array.astype(np.float32)
    if fmt.bits == 8:
        return decode_codes(array.view(np.uint8), fmt)
    # bfloat16 is the upper half of a float32.
    if array.size >= LEAST:
        return _conversions().filled_up(array.view(np.uint16))
    return (array.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)


@default_arithmetic
def encode(carrier: npt.NDArray[np.float32], dtype: str | DType) -> npt.NDArray[Any] | HiFloat8Array:
    """Return the stored elements of a carrier; exact, so the values must lie on the format's grid.

    Types   the storage of the format; hifloat8: a HiFloat8Array
    Raises  UnsupportedError for values off the grid: round_to comes first
    """
    fmt = dtypes.dtype(dtype)
    array = _require_on_grid(require_float32(carrier, f"encode {fmt.name}"), fmt, "encode")
    if fmt.bits == 32:
        return array
    if fmt is dtypes.FLOAT16:
        return array.astype(np.float16)
    if fmt.tapered:
        return HiFloat8Array(encode_codes(array, fmt))
    if fmt.bits == 8:
        return encode_codes(array, fmt).view(_storage(fmt))
    bits = array.view(np.uint32)
    bits = np.where(np.isnan(array), bits | QUIET, bits)  # a NaN whose payload is all cut off is no Inf
    return (bits >> np.uint32(16)).astype(np.uint16).view(_storage(fmt))


@default_arithmetic
def is_on_grid(carrier: npt.NDArray[np.float32], dtype: str | DType) -> bool:
    """Say whether every value is one of the format's (NaN counts)."""
    fmt = dtypes.dtype(dtype)
    # Eight bits by table: a value without a code decodes to another value, cheaper than rounding it.
    rounded = decode_codes(encode_codes(carrier, fmt), fmt) if fmt.bits == 8 else round_to(carrier, fmt)
    return bool(np.all((rounded == carrier) | np.isnan(carrier)))


def _require_on_grid(array: Float32Array, fmt: DType, where: str) -> Float32Array:
    if fmt is not dtypes.FLOAT32 and not is_on_grid(array, fmt):
        raise UnsupportedError(
            f"{where}: some values are not {fmt.name} values; apply round_to(values, '{fmt.name}') first"
        )
    return array


@lru_cache
def _storage(fmt: DType) -> np.dtype[Any]:
    storage = fmt.storage
    # A format without numpy storage is hifloat8, which its callers take out before.
    assert storage is not None
    return storage


def _storage_name(fmt: DType) -> str:
    return "HiFloat8Array" if fmt.tapered else str(fmt.storage_name)


@default_arithmetic
def cast_twin(value: float, fmt: DType, rounding: str = "RINT", overflow: str = "ieee") -> float:
    """Round one value into a format; modes and overflow rules as in `casts.round_to`.

    Special  NaN stays NaN (saturate: +0); Inf counts as beyond every finite value; the sign is kept, except
             that hifloat8 has no negative zero
    """
    if math.isnan(value):
        return 0.0 if overflow == "saturate" else value
    negative = math.copysign(1.0, value) < 0
    if math.isinf(value):
        magnitude = fmt.max_finite if overflow != "ieee" else _beyond(fmt)
    elif fmt.tapered:
        magnitude = _to_hifloat8(abs(Fraction(value)), rounding, overflow)
    else:
        magnitude = _to_fields(abs(Fraction(value)), negative, fmt, rounding, overflow)
    if fmt.tapered and magnitude == 0:
        return 0.0
    return -magnitude if negative else magnitude


def _beyond(fmt: DType) -> float:
    return math.inf if fmt.has_infinity else math.nan


def floor_log2(x: Fraction) -> int:
    """Return the largest e with 2**e <= x, for x > 0."""
    # The quotient of numbers of n and m bits lies between 2**(n-m-1) and 2**(n-m+1): one of two binades.
    e = x.numerator.bit_length() - x.denominator.bit_length()
    return e if x >= Fraction(2) ** e else e - 1


def _to_fields(x: Fraction, negative: bool, fmt: DType, rounding: str, overflow: str) -> float:
    """Round a magnitude to a multiple of the unit in its binade, as if exponents went on for ever."""
    if x == 0:
        return 0.0
    exponent = max(floor_log2(x), fmt.min_exponent)  # below the smallest normal the unit no longer shrinks
    unit = Fraction(2) ** (exponent - fmt.mantissa_bits)
    count = _to_integer(x / unit, negative, rounding)
    # Judged after rounding, so 65519 does not overflow float16, and 65520 does.
    if count * unit <= Fraction(fmt.max_finite):
        return float(count * unit)
    return _overflow(negative, fmt, rounding, overflow)


def _to_integer(x: Fraction, negative: bool, rounding: str) -> int:
    """Round a magnitude to an integer by the mode."""
    below = math.floor(x)
    rest = x - below
    if rest == 0:
        return below
    match rounding:
        case "RINT":
            up = rest > Fraction(1, 2) or (rest == Fraction(1, 2) and below % 2 == 1)
        case "ROUND":
            up = rest >= Fraction(1, 2)
        case "FLOOR":
            up = negative
        case "CEIL":
            up = not negative
        case "TRUNC":
            up = False
        case "ODD":
            up = below % 2 == 0
        case _:
            raise AssertionError(rounding)
    return below + up


def _overflow(negative: bool, fmt: DType, rounding: str, overflow: str) -> float:
    """Return the result for a finite value that rounds beyond the largest finite value."""
    if overflow != "ieee":
        return fmt.max_finite
    unit = Fraction(2) ** (floor_log2(Fraction(fmt.max_finite)) - fmt.mantissa_bits)
    match rounding:
        case "TRUNC":
            inwards = True
        case "FLOOR":
            inwards = not negative
        case "CEIL":
            inwards = negative
        case "ODD":  # truncated, it is the largest value; odd stays, even takes the next step away
            inwards = Fraction(fmt.max_finite) / unit % 2 == 1
        case _:
            inwards = False
    return fmt.max_finite if inwards else _beyond(fmt)


def _to_hifloat8(x: Fraction, rounding: str, overflow: str) -> float:
    """Round a magnitude to the values of hifloat8, whose list goes on with 49152 in the place of Inf."""
    hybrid, _, variant = rounding.partition(":")
    result = hybrid_twin(x, variant) if hybrid == "HYBRID" else _nearest_hifloat8(x)
    if result <= 32768:
        return float(result)
    return 32768.0 if overflow != "ieee" else math.inf


def _nearest_hifloat8(x: Fraction) -> Fraction:
    """Return the nearest value, the larger one on a tie."""
    # 49152 = 1.5 x 2**15 would be the next value; its code means Inf, so from halfway, 40960, it is Inf.
    ladder = [Fraction(0), *(Fraction(v) for v in positive_values()), Fraction(49152)]
    return min(ladder, key=lambda v: (abs(x - v), -v))


@default_arithmetic
def hybrid_twin(x: Fraction, variant: str, source: str = "float32") -> Fraction:
    """Apply the hybrid rule of hifloat8 to a magnitude, by the bits of the float32 or float16 that holds it.

    x = 2**E (1 + M), w fraction bits kept.  `behind`: the 14 (float16: 2) bits of M after the kept ones.
    `threshold`: the last 14 of float32's 23 bits (float16: the last of its ten bits, followed by a 1).
    """
    if x < Fraction(2) ** -23:
        return Fraction(0)
    exponent = floor_log2(x)
    if abs(exponent) <= 3:
        return _nearest_hifloat8(x)
    kept = 2 if abs(exponent) <= 7 else 1 if abs(exponent) <= 15 else 0
    fraction = x / Fraction(2) ** exponent - 1
    width = 14 if source == "float32" else 2
    threshold = int(fraction * 2**23) % 2**14 if source == "float32" else int(fraction * 2**10) % 2 * 2 + 1
    if exponent == -23:  # the leading one stands first among the bits behind; the result is 2**-22 or nothing
        behind = 2 ** (width - 1) + math.floor(fraction * 2 ** (width - 1))
        low, high = Fraction(0), Fraction(2) ** -22
    else:
        count = math.floor(fraction * 2**kept)
        behind = math.floor((fraction * 2**kept - count) * 2**width)
        unit = Fraction(2) ** (exponent - kept)
        low = (2**kept + count) * unit
        high = low + unit
    away = behind >= threshold and not (variant == "strict" and behind == threshold == 0)
    return high if away else low


HALF: Final = "float16"
LEAST: Final = 1024  # elements from which a compiled conversion is faster than numpy's, call and all


def decoded(values: Elements, dtype: str, threads: Threads = ALONE) -> Floats:
    """Return the carrier of stored elements.

    Raises   as `decode`
    """
    if _is_long(values, dtype) and getattr(values, "dtype", None) == np.float16:
        return _conversions().widened(values, threads)  # type: ignore[arg-type]
    return decode(values, dtype)


def is_stored(values: NDArray[Any]) -> bool:
    """Return whether values are binary16 as it is stored, and not carriers."""
    return values.dtype == np.float16


def as_carrier(values: NDArray[Any], threads: Threads = ALONE) -> Floats:
    """Return the carrier of binary16 as it is stored; a carrier is one already."""
    return decoded(values, HALF, threads) if is_stored(values) else values


def rounded(
    values: Floats,
    target: str,
    overflow: str = "ieee",
    rounding: str | None = None,
    threads: Threads = ALONE,
) -> Floats:
    """Return carriers on the grid of a format, rounded once.

    Special  the payload of a NaN is not promised
    Raises   as `round_to`
    """
    to_nearest = overflow == "ieee" and rounding in (None, "RINT")
    if to_nearest and _is_long(values, target) and values.dtype == np.float32:
        return _conversions().on_half_grid(values, threads)
    return round_to(values, target, rounding=rounding, overflow=overflow)


def cuts_off(values: Floats, target: str) -> bool:
    """Return whether a conversion that saturates cuts off some value: NaN, Inf, or one that is too large."""
    fmt = dtype(target)
    # NaN is not below anything, and goes the long way as well.
    if not values.size or max(values.max(), -values.min()) <= fmt.max_finite:
        return False
    return not np.isfinite(round_to(values, target)).all()


def rounded_halves(values: Floats, overflow: str = "ieee", threads: Threads = ALONE) -> NDArray[np.float16]:
    """Return carriers as stored elements of binary16, rounded once: `stored` of `rounded`, in one pass."""
    if overflow == "ieee" and _is_long(values, HALF) and values.dtype == np.float32:
        return _conversions().rounded_halves(values, threads)
    return stored(rounded(values, HALF, overflow, threads=threads), HALF, threads)  # type: ignore[return-value]


def stored(values: Floats, target: str, threads: Threads = ALONE) -> Elements:
    """Return the stored elements of carriers on the grid of a format.

    Raises   as `encode`, for values that are off the grid
    """
    # What is off the grid, or has a payload of a NaN that would be lost, goes the long way.
    if _is_long(values, target) and values.dtype == np.float32:
        made = _conversions().narrowed(values, threads)
        if made is not None:
            return made
    if target == dtypes.BFLOAT16.name and values.size >= LEAST and values.dtype == np.float32:
        codes = _conversions().upper_halves(values)
        if codes is not None:
            return codes.view(_storage(dtypes.BFLOAT16))
    return encode(values, target)


def _is_long(values: Elements, dtype: str) -> bool:
    return dtype == HALF and values.size >= LEAST


class _Conversions(NamedTuple):
    """The compiled conversions: binary16 to binary32, back where that is exact, onto its grid, and both.

    cut_mantissa             onto grids of fewer fraction bits
    filled_up, upper_halves  of bfloat16 and back where that is exact
    """

    widened: Convert
    narrowed: Callable[[NDArray[Any], Threads], NDArray[Any] | None]
    on_half_grid: Convert
    rounded_halves: Convert
    cut_mantissa: Callable[[NDArray[Any], int, int, int], NDArray[Any]]
    filled_up: Callable[[NDArray[Any]], NDArray[Any]]
    upper_halves: Callable[[NDArray[Any]], NDArray[Any] | None]


@cache
def _conversions() -> _Conversions:
    from ascendsim.numerics.compiled import turned

    return _Conversions(*(getattr(turned, name) for name in _Conversions._fields))
