"""Round float32 values into a format with fixed fields, by integer arithmetic on their bit patterns.

Everything here takes and returns float32 carriers.  The definition is `casts.py`, on exact fractions;
this is the fast form, and equals it bit for bit.

Modes       RINT nearest, ties to even · ROUND nearest, ties away from zero · FLOOR · CEIL · TRUNC toward
            zero · ODD truncate, and if that lost something and left an even last bit, take the next value
            away from zero (the names of AscendC's RoundMode)
Overflow    ieee: Inf, or NaN where the format has no Inf; a directed mode that points inwards stops at the
            largest finite value · saturate: the largest finite value for finite and infinite inputs, NaN
            becomes +0 · saturate_keep_nan: the same but NaN stays (fp8 on 910_95 with CTRL[50] = 1)
Kept        the sign of zero and of results that round to zero; NaN (its payload is not promised); subnormals
Source      AscendC precision_conversion page (modes), SetCtrlSpr page (saturation)
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ascendsim.errors import UnsupportedError
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.numerics.dtypes import DType, value_of_code

Float32Array = npt.NDArray[np.float32]
Uint32Array = npt.NDArray[np.uint32]
Mask = npt.NDArray[np.bool_]

ROUNDINGS = ("RINT", "ROUND", "FLOOR", "CEIL", "TRUNC", "ODD")
OVERFLOWS = ("ieee", "saturate", "saturate_keep_nan")

SIGN = np.uint32(0x80000000)
MAGNITUDE = np.uint32(0x7FFFFFFF)
INFINITY = np.uint32(0x7F800000)
QUIET = np.uint32(0x00400000)  # the bit that makes a NaN a quiet one
_CHUNK = 1 << 16  # elements per pass: the temporaries of one chunk stay in the cache


class _Binades(NamedTuple):
    """By float32 exponent field: the number of dropped significand bits, and the value of a unit left."""

    drop: Uint32Array
    unit: Float32Array


def require_float32(values: npt.ArrayLike, where: str) -> Float32Array:
    """Return `values` as an array, or raise when they are not float32.

    A float64 value cannot be narrowed through float32: rounding twice is not rounding once.
    """
    array = np.asarray(values)
    if array.dtype != np.float32:
        raise UnsupportedError(
            f"{where}: got {array.dtype.name} values, but carriers are float32; float64 would be rounded "
            "twice on the way: narrow it with format_rounding.narrow_to_odd first, or start from float32"
        )
    return array


def require_choice(value: str, choices: tuple[str, ...], where: str) -> None:
    """Raise UnsupportedError unless `value` is one of `choices`."""
    if value not in choices:
        raise UnsupportedError(f"{where}: '{value}' is not one of {', '.join(choices)}")


@default_arithmetic
def round_fields(values: Float32Array, fmt: DType, rounding: str, overflow: str) -> Float32Array:
    """Round to a format with fixed fields, any mode, any overflow rule.

    Shapes  any, kept
    Raises  UnsupportedError for an unknown mode or overflow rule
    """
    require_choice(rounding, ROUNDINGS, f"rounding to {fmt.name}")
    require_choice(overflow, OVERFLOWS, f"rounding to {fmt.name}")
    # Bits can only be viewed in memory without gaps.
    flat = np.ascontiguousarray(values).reshape(-1)
    result = np.empty_like(flat)
    for start in range(0, flat.size, _CHUNK):
        part = slice(start, start + _CHUNK)
        result[part] = _round_chunk(flat[part], fmt, rounding, overflow)
    return result.reshape(values.shape)


def _round_chunk(values: Float32Array, fmt: DType, rounding: str, overflow: str) -> Float32Array:
    bits = values.view(np.uint32)
    negative = bits >= SIGN
    magnitude = bits & MAGNITUDE
    exponent = magnitude >> np.uint32(23)
    binades = _binades(fmt)
    drop = binades.drop[exponent]
    # The hidden one of a normal number; a subnormal has none, and the unit of exponent field 1.
    significand = magnitude & np.uint32(0x7FFFFF) | (exponent > 0).astype(np.uint32) << np.uint32(23)
    kept = significand >> drop
    rest = significand - (kept << drop)
    kept += _increments(rounding, kept, rest, drop, negative)
    # Both factors and the product are exact: `kept` has 24 bits at most, and a carry to the next power of two
    # only makes fewer.  Beyond float32's own range it is Inf, which is replaced just below.
    with np.errstate(over="ignore"):
        rounded: Float32Array = kept.astype(np.float32) * binades.unit[exponent]
    # With an exponent field of 255 there is no product: Inf and NaN bypass it.
    finite_input = magnitude < INFINITY
    np.copyto(rounded, np.abs(values), where=~finite_input)
    # After rounding: what only rounding takes beyond the largest value overflows too.
    over = rounded > np.float32(fmt.max_finite)
    if over.any():
        limits = _limits(fmt, rounding, overflow, negative, finite_input)
        np.copyto(rounded, limits, where=over)
    np.copysign(rounded, values, out=rounded)
    # After the sign, so that a NaN becomes +0 whatever its own was.
    if overflow == "saturate":
        rounded[np.isnan(values)] = 0.0
    return rounded


def _increments(
    rounding: str,
    kept: Uint32Array,
    rest: Uint32Array,
    drop: Uint32Array,
    negative: Mask,
) -> Mask:
    """Return where the magnitude goes up by one unit; `rest` is what was cut off, in units of 2**-drop."""
    # Where nothing is cut off, half is 0 and so is the rest: `inexact` keeps every mode from counting that.
    half: Uint32Array = np.uint32(1) << drop >> np.uint32(1)
    odd: Mask = (kept & np.uint32(1)).astype(np.bool_)
    inexact: Mask = rest > 0
    match rounding:
        case "RINT":
            return inexact & (rest + odd > half)  # a tie goes up only from an odd unit
        case "ROUND":
            return inexact & (rest >= half)
        case "FLOOR":
            return inexact & negative
        case "CEIL":
            return inexact & ~negative
        case "ODD":
            return inexact & ~odd
        case _:  # TRUNC
            return np.zeros_like(inexact)


def _limits(
    fmt: DType,
    rounding: str,
    overflow: str,
    negative: Mask,
    finite_input: Mask,
) -> Float32Array:
    """Return the magnitude that stands for a result beyond the largest finite value."""
    beyond = np.float32(np.inf if fmt.has_infinity else np.nan)
    largest = np.float32(fmt.max_finite)
    if overflow != "ieee":
        return np.full(negative.shape, largest)
    match rounding:
        case "TRUNC":
            inwards = np.ones_like(negative)
        case "FLOOR":
            inwards = ~negative
        case "CEIL":
            inwards = negative
        case "ODD":  # truncation stops at the largest value; from there only an even one moves on
            inwards = np.full(negative.shape, _last_bit_is_odd(fmt))
        case _:
            inwards = np.zeros_like(negative)
    return np.where(inwards & finite_input, largest, beyond)


def _last_bit_is_odd(fmt: DType) -> bool:
    pattern = int(np.float32(fmt.max_finite).view(np.uint32))
    return bool(pattern >> (23 - fmt.mantissa_bits) & 1)


@lru_cache
def _binades(fmt: DType) -> _Binades:
    field = np.arange(256)
    exponent = np.maximum(field, 1) - 127
    below = np.maximum(fmt.min_exponent - exponent, 0)  # a subnormal result keeps one bit less per step down
    # 26 zero bits are as good as more: the 24-bit significand is then below a quarter of the unit.
    drop = np.minimum(23 - fmt.mantissa_bits + below, 26)
    unit = np.ldexp(np.float32(1), np.maximum(exponent, fmt.min_exponent) - fmt.mantissa_bits)
    return _Binades(drop.astype(np.uint32), unit.astype(np.float32))


@default_arithmetic
def narrow_to_odd(values: npt.NDArray[np.float64]) -> Float32Array:
    """Narrow float64 to float32 so that one more rounding to 22 bits or fewer is as good as a single one.

    Rounding to odd: a value between two float32 values goes to the one with the odd last bit, so it can
    neither sit on nor cross a midpoint of a narrower format.  Beyond float32's range: the largest finite
    value (Inf stays Inf); every narrower format overflows from there as it would from the exact value.
    """
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        nearest = np.asarray(values, dtype=np.float64).astype(np.float32)
    wide = nearest.astype(np.float64)
    bits = nearest.view(np.uint32).copy()
    outwards = np.abs(wide) > np.abs(values)
    inexact = (wide != values) & ~np.isnan(wide)
    # Toward zero first, the truncated value, which is never infinite; then odd, where something was lost.
    bits[outwards & inexact] -= np.uint32(1)
    bits[inexact] |= np.uint32(1)
    return bits.view(np.float32)


class CodeTable(NamedTuple):
    """Hold both directions of one eight-bit format."""

    values: Float32Array  # 256, by code
    codes: npt.NDArray[np.uint8]  # by the top bits of the carrier; 0 where no code has the value
    below: np.uint32  # float32 bits below those


def field_value(code: int, fmt: DType) -> float:
    """Return the value of a code of a format with fixed fields, straight from its definition.

    Special  the top exponent holds Inf and NaN; float8_e4m3fn has no Inf and one NaN code per sign there
    Source   IEEE 754 interchange formats; OCP 8-bit floating point specification
    """
    fraction = code & ((1 << fmt.mantissa_bits) - 1)
    field = code >> fmt.mantissa_bits & ((1 << fmt.exponent_bits) - 1)
    sign = -1.0 if code >> (fmt.bits - 1) else 1.0
    top = (1 << fmt.exponent_bits) - 1
    if field == top and fmt.has_infinity:
        return math.copysign(math.inf if fraction == 0 else math.nan, sign)
    if field == top and fraction == (1 << fmt.mantissa_bits) - 1:
        return math.copysign(math.nan, sign)
    # Field 0 has no hidden one, and the exponent of field 1: gradual underflow.
    significand = fraction + (int(field > 0) << fmt.mantissa_bits)
    exponent: int = max(field, 1) - fmt.bias - fmt.mantissa_bits
    return sign * significand * 2.0**exponent


@lru_cache
@default_arithmetic
def code_table(fmt: DType) -> CodeTable:
    """Return the tables of an eight-bit format, made from its definition.

    NaN  encodes as the quiet code of its sign (float8_e5m2 0x7E, float8_e4m3fn 0x7F, hifloat8 0x80)
    """
    # Top bits without a code, -0 of hifloat8 among them, keep the zero that the table is filled with.
    definition = [value_of_code(c) if fmt.tapered else field_value(c, fmt) for c in range(256)]
    values = np.array(definition, np.float32)
    below = np.uint32(23 - fmt.mantissa_bits)
    infinity, negative = int(INFINITY >> below), int(SIGN >> below)
    codes = np.zeros(2 * negative, np.uint8)
    number = np.flatnonzero(~np.isnan(values))
    codes[values[number].view(np.uint32) >> below] = number
    if fmt.tapered:  # hifloat8 has one zero (-0.0 stays 0x00) and one NaN
        quiet, minus = 0x80, 0
    else:
        # Beside an infinity the exponent and the first fraction bit, else all bits but the sign.
        quiet, minus = 0x7F, 0x80
        if fmt.has_infinity:
            quiet &= -1 << (fmt.mantissa_bits - 1)
    codes[infinity + 1 : negative] = quiet
    codes[negative + infinity + 1 :] = quiet | minus
    return CodeTable(values, codes, below)


def decode_codes(codes: npt.NDArray[np.uint8], fmt: DType) -> Float32Array:
    """Return the carrier of eight-bit codes."""
    return code_table(fmt).values[codes]


def encode_codes(carrier: Float32Array, fmt: DType) -> npt.NDArray[np.uint8]:
    """Return the codes of a carrier whose values lie on the grid (the caller checks by decoding)."""
    table = code_table(fmt)
    bits = carrier.view(np.uint32)
    top = bits >> table.below
    # A NaN whose payload lies below the bits that count would read as Inf.
    top |= np.where(bits & MAGNITUDE > INFINITY, QUIET >> table.below, np.uint32(0))
    codes: npt.NDArray[np.uint8] = table.codes[top]
    return codes
