"""The eight-bit formats by table: every code's value, and every value's code.

The top bits of a float32 pattern (sign, exponent, as many fraction bits as the format keeps) say which code a
carrier is.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.numerics.formats.dtypes import DType
from ascendsim.numerics.formats.format_rounding import INFINITY, MAGNITUDE, QUIET, SIGN, Float32Array
from ascendsim.numerics.formats.hifloat8_codes import value_of_code


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
