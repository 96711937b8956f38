"""The meaning of the 256 codes of HiFloat8.

A code is a sign and seven bits: a prefix-coded dot field that says how wide the exponent is, the exponent in
sign and magnitude with its leading one left out, and the fraction in what remains.

    dot   exponent bits  fraction bits  exponents
    11          4              1        8..15 and -15..-8
    10          3              2        4..7 and -7..-4
    01          2              3        2, 3 and -3, -2
    001         1              3        1 and -1
    0001        0              3        0
    0000        -              3        powers of two 2**(fraction - 23), fraction 1..7

Special codes: 0x00 zero (there is no negative zero), 0x80 NaN, 0x6F and 0xEF the infinities.
Source: AscendC built-in data types page; arXiv 2409.16626.
"""

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

NAN_CODE = 0x80
INFINITY_CODE = 0x6F
# (dot field, its width, exponent width), in the order in which the prefix is read
_DOTS = ((0b11, 2, 4), (0b10, 2, 3), (0b01, 2, 2), (0b001, 3, 1), (0b0001, 4, 0))


def value_of_code(code: int) -> float:
    """Return the value of one code (0..255); every finite value is exact in float32."""
    if code == NAN_CODE:
        return float("nan")
    sign = -1.0 if code & 0x80 else 1.0
    body = code & 0x7F
    if body == 0:
        return 0.0
    if body == INFINITY_CODE:
        return sign * float("inf")
    for dot, dot_width, exponent_width in _DOTS:
        if body >> (7 - dot_width) == dot:
            return sign * _normal(body, exponent_width, 7 - dot_width - exponent_width)
    return sign * 2.0 ** (body - 23)  # dot 0000: what is left is the three fraction bits


def _normal(body: int, exponent_width: int, fraction_width: int) -> float:
    """Return 2**E (1 + M / 2**fraction_width) of the seven bits after the sign."""
    fraction = body & ((1 << fraction_width) - 1)
    field = body >> fraction_width & ((1 << exponent_width) - 1)
    if exponent_width == 0:
        exponent = 0
    else:
        # In the code this bit is the exponent's sign: its own 1 is implied.
        leading = 1 << (exponent_width - 1)
        exponent = leading + (field & (leading - 1))
        if field & leading:
            exponent = -exponent
    return float((1.0 + fraction / (1 << fraction_width)) * 2.0**exponent)


def fraction_bits(exponent: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return how many fraction bits values of these exponents have: the wider the exponent, the fewer."""
    size = np.abs(exponent)
    return np.select([size <= 3, size <= 7, size <= 15], [3, 2, 1], 0)


@lru_cache
def positive_values() -> tuple[float, ...]:
    """Return the 126 positive finite values in rising order; rank r is element r - 1."""
    return tuple(sorted(value_of_code(code) for code in range(1, 128) if code != INFINITY_CODE))
