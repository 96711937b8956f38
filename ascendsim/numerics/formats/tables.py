"""The eight-bit formats by table: every code's value, and every value's code.

An eight-bit format keeps at most three fraction bits, so the top twelve bits of a float32 pattern (sign,
exponent, three fraction bits) say which code a carrier is.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ascendsim.numerics.formats.dtypes import DType
from ascendsim.numerics.formats.format_rounding import INFINITY, MAGNITUDE, Float32Array
from ascendsim.numerics.formats.hifloat8_codes import value_of_code

_TOP = np.uint32(20)  # float32 bits below the twelve that count
_QUIET_TOP = np.uint32(0x004)  # the quiet bit of a NaN, seen in the twelve


class CodeTable(NamedTuple):
    """Hold both directions of one eight-bit format."""

    values: Float32Array  # 256, by code
    codes: npt.NDArray[np.uint8]  # 4096, by the top twelve bits of the carrier; 0 where no code has the value


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
def code_table(fmt: DType) -> CodeTable:
    """Return the tables of an eight-bit format, made from its definition.

    NaN  encodes as the quiet code of its sign (float8_e5m2 0x7E, float8_e4m3fn 0x7F, hifloat8 0x80)
    """
    # Twelve bits without a code, -0 of hifloat8 among them, keep the zero that the table is filled with.
    definition = [value_of_code(c) if fmt.tapered else field_value(c, fmt) for c in range(256)]
    values = np.array(definition, np.float32)
    codes = np.zeros(4096, np.uint8)
    number = np.flatnonzero(~np.isnan(values))
    codes[values[number].view(np.uint32) >> _TOP] = number
    if fmt.tapered:  # hifloat8 has one zero (0x800, -0.0, stays 0x00) and one NaN
        codes[0xFF8 + 1 :] = codes[0x7F8 + 1 : 0x800] = 0x80
    else:
        quiet = 0x7E if fmt.has_infinity else 0x7F
        codes[0x7F8 + 1 : 0x800] = quiet
        codes[0xFF8 + 1 :] = 0x80 | quiet
    return CodeTable(values, codes)


def decode_codes(codes: npt.NDArray[np.uint8], fmt: DType) -> Float32Array:
    """Return the carrier of eight-bit codes."""
    return code_table(fmt).values[codes]


def encode_codes(carrier: Float32Array, fmt: DType) -> npt.NDArray[np.uint8]:
    """Return the codes of a carrier whose values lie on the grid (the caller checks by decoding)."""
    bits = carrier.view(np.uint32)
    top = bits >> _TOP
    # A NaN whose payload lies below the twelve would read as Inf.
    top |= np.where(bits & MAGNITUDE > INFINITY, _QUIET_TOP, np.uint32(0))
    codes: npt.NDArray[np.uint8] = code_table(fmt).codes[top]
    return codes
