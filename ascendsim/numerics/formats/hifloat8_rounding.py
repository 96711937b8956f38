"""Round float32 values into HiFloat8; the definition is `cast_twins.py`.

ROUND   nearest, ties away from zero.  Below 2**-23 everything becomes +0.  Above 32768 the grid goes on with
        one more step, 49152, which is the place of Inf: from 40960 on the result is Inf, or 32768 when
        saturating (then NaN becomes 0).
HYBRID  AscendC calls it stochastic, but its rule is a function of the input alone: 14 bits behind the kept
        ones are compared with the lowest 14 bits of the input.  As documented (`doc-literal`) it even moves
        values that need no rounding, such as 16.0 to 20.0, because 0 >= 0; `strict` leaves those alone.
        Which of the two the hardware does is not known, so there is no default.
Source  AscendC Cast page, the float-to-hifloat8 and half-to-hifloat8 rules.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ascendsim.errors import UnsupportedError
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.numerics.formats.format_rounding import (
    MAGNITUDE,
    OVERFLOWS,
    SIGN,
    Float32Array,
    Mask,
    Uint32Array,
    require_choice,
    require_float32,
)
from ascendsim.numerics.formats.hifloat8_codes import fraction_bits

HYBRIDS = ("doc-literal", "strict")
HIFLOAT8_ROUNDINGS = ("ROUND", *(f"HYBRID:{variant}" for variant in HYBRIDS))

_FRACTION = np.uint32(0x7FFFFF)
_SMALLEST = np.float32(2.0**-22)
_LARGEST = np.float32(32768.0)
_BEYOND = np.float32(2.0**17).view(np.uint32)


class _Widths(NamedTuple):
    """Tell, by float32 exponent field, how rounding to HiFloat8 treats that binade."""

    kept: Uint32Array  # fraction bits kept
    tie_only: Mask  # exponents -3..3: hybrid rounding is ROUND here


@default_arithmetic
def round_hifloat8(values: Float32Array, rounding: str, overflow: str) -> Float32Array:
    """Round float32 values to HiFloat8: ROUND, HYBRID:doc-literal or HYBRID:strict.

    Raises  UnsupportedError for another mode (no conversion to HiFloat8 has one) or overflow rule
    """
    require_choice(overflow, OVERFLOWS, "rounding to hifloat8")
    if rounding == "HYBRID":
        raise UnsupportedError(
            "rounding to hifloat8: HYBRID is documented in a way that can be read twice; "
            f"say which one is meant: {' or '.join(HIFLOAT8_ROUNDINGS[1:])}"
        )
    require_choice(rounding, HIFLOAT8_ROUNDINGS, "rounding to hifloat8")
    if rounding == "ROUND":
        return _round_away(values, overflow)
    return round_hybrid(values, rounding.removeprefix("HYBRID:"), overflow=overflow)


@default_arithmetic
def round_hybrid(
    values: npt.ArrayLike, variant: str, source: str = "float32", overflow: str = "ieee"
) -> Float32Array:
    """Round to HiFloat8 by the hybrid rule.

    values   float32 carriers; of source float16 they must be float16 values
    variant  doc-literal: away from zero when the 14 bits are >= the threshold; strict: not when both are zero
    source   which rule: float32 compares 14 bits, float16 two bits with {lowest bit, 1}
    """
    require_choice(variant, HYBRIDS, "hybrid rounding")
    require_choice(source, ("float32", "float16"), "hybrid rounding: source")
    array = require_float32(values, "hybrid rounding")
    # Everything from 2**17 on overflows alike; unlimited, an Inf would carry into the sign.
    bits = np.minimum(array.view(np.uint32) & MAGNITUDE, _BEYOND)
    widths = _widths()
    kept = widths.kept[bits >> np.uint32(23)]
    fraction, threshold = _compared(bits, kept, source)
    away = fraction >= threshold
    if variant == "strict":
        away = away & (fraction > 0)
    drop = np.uint32(23) - kept
    unit = np.uint32(1) << drop
    # A carry out of the fraction runs into the exponent field, which is the next power of two: also a value.
    hybrid = np.asarray((bits >> drop << drop) + away * unit)
    below = bits >> np.uint32(23) == 127 - 23  # exponent -23: the smallest value or nothing
    np.copyto(hybrid, away * _SMALLEST.view(np.uint32), where=below)
    np.copyto(hybrid, 0, where=bits >> np.uint32(23) < 127 - 23)
    rounded = hybrid.astype(np.uint32).view(np.float32)
    # The page exempts the binades that keep three bits: there the hybrid rounding is ROUND.
    near = np.asarray(widths.tie_only[bits >> np.uint32(23)])
    return np.where(near, _round_away(array, overflow), _finish(array, rounded, overflow))


def _compared(bits: Uint32Array, kept: Uint32Array, source: str) -> tuple[Uint32Array, Uint32Array]:
    """Return the bits behind the kept ones and the threshold they are compared with.

    At exponent -23 nothing is kept and the leading one of the significand counts as the first bit behind.
    """
    fraction = bits & _FRACTION
    below = bits >> np.uint32(23) == 127 - 23
    if source == "float32":
        width, threshold = 14, fraction & np.uint32(0x3FFF)
    else:  # a float16 value has ten fraction bits; bit 13 of the float32 pattern is the lowest of them
        width, threshold = 2, (fraction >> np.uint32(13) & np.uint32(1)) << np.uint32(1) | np.uint32(1)
    behind = fraction >> (np.uint32(23 - width) - kept) & np.uint32((1 << width) - 1)
    leading = np.uint32(1 << (width - 1)) | fraction >> np.uint32(24 - width)
    return np.where(below, leading, behind), threshold


def _round_away(values: Float32Array, overflow: str) -> Float32Array:
    """Round to nearest, ties away from zero."""
    bits = values.view(np.uint32) & MAGNITUDE
    field = bits >> np.uint32(23)
    drop = np.uint32(23) - _widths().kept[field]
    rounded = (bits + (np.uint32(1) << drop >> np.uint32(1))) >> drop << drop
    result = np.asarray(rounded.view(np.float32)).copy()
    # From 2**-23, halfway to the smallest value, it is that value; the grid above would have 2**-23 as well.
    np.copyto(result, _SMALLEST, where=field == 127 - 23)
    np.copyto(result, np.float32(0), where=field < 127 - 23)
    return _finish(values, result, overflow)


def _finish(values: Float32Array, magnitude: Float32Array, overflow: str) -> Float32Array:
    """Apply overflow, NaN and the sign; zero has none."""
    over = ~(magnitude <= _LARGEST)  # Inf and NaN inputs as well
    result = np.where(over, _LARGEST if overflow != "ieee" else np.float32(np.inf), magnitude)
    nan = np.float32(0.0 if overflow == "saturate" else np.nan)
    result = np.where(np.isnan(values), nan, result)
    negative = (values.view(np.uint32) >= SIGN) & (result != 0)
    return np.where(negative, -result, result)


@lru_cache
def _widths() -> _Widths:
    exponent = np.arange(256) - 127
    kept = fraction_bits(exponent)
    return _Widths(kept.astype(np.uint32), kept == 3)
