"""The definition of every cast, on exact rationals, one number at a time.

The array casts equal these bit for bit: where the two disagree, these are right.  Read this file to know what
a cast does.  A value is a Python float
that float32 can hold (so Inf, NaN and the sign of zero are at hand); arithmetic is on `Fraction`.
"""

import math
from fractions import Fraction

from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.numerics.formats.dtypes import DType
from ascendsim.numerics.formats.hifloat8_codes import positive_values


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
    """Return what stands for a finite value whose rounding lies beyond the largest finite value."""
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
