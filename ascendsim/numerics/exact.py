"""Sum any finite terms exactly, by integers: the last resort of the block kernels.

The sum is a long integer of 32-bit limbs that counts 2^-LOWEST_BIT. Every product of two finite binary32
values, and every such value, is a whole number of it, so nothing is ever lost. Limbs are held in 64 bits and
carried once at the end.
"""

from typing import Any, Final

from ascendsim.numerics.jit import called
from ascendsim.numerics.panels import scalar_bits, scalar_float

Array = Any

LIMBS: Final = 24
_LOWEST_BIT: Final = 384  # a double holding 2^-298 has its last bit at 2^-350
_LIMB_MASK: Final = (1 << 32) - 1
_FRACTION: Final = (1 << 52) - 1
_HIDDEN: Final = 1 << 52


@called
def add_term(limbs: Array, term: float) -> None:
    """Add one finite double, zero or of magnitude 2^-298 to 2^256, to the long integer."""
    bits = scalar_bits(term)
    exponent = (bits >> 52) & 0x7FF
    if exponent == 0:  # no term is subnormal in double: zero
        return
    significand = (bits & _FRACTION) | _HIDDEN
    position = exponent - 1075 + _LOWEST_BIT
    limb, shift = position >> 5, position & 31
    low, high = (significand & _LIMB_MASK) << shift, (significand >> 32) << shift
    sign = 1 if bits >= 0 else -1
    limbs[limb] += sign * (low & _LIMB_MASK)
    limbs[limb + 1] += sign * ((low >> 32) + (high & _LIMB_MASK))
    limbs[limb + 2] += sign * (high >> 32)


@called
def sticky_value(limbs: Array) -> float:
    """Return the long integer as a double rounded to odd (see `rounding`), and clear it; zero gives +0."""
    _carry(limbs)
    negative = limbs[LIMBS - 1] < 0
    if negative:
        for index in range(LIMBS):
            limbs[index] = -limbs[index]
        _carry(limbs)
    top = LIMBS - 1
    while top > 2 and limbs[top] == 0:
        top -= 1
    # No term is below 2^-298, so the top limb is never one of the two lowest. It and the two below it hold at
    # least 65 bits, more than a double keeps; what is further down only decides whether anything is.
    below = False
    for index in range(top - 2):
        below |= limbs[index] != 0
    value = _odd(limbs[top], limbs[top - 1], limbs[top - 2], below)
    value *= scalar_float((32 * (top - 2) - _LOWEST_BIT + 1023) << 52)
    for index in range(LIMBS):
        limbs[index] = 0
    return float(-value if negative else value)


@called
def _odd(top: int, middle: int, low: int, below: bool) -> float:
    """Round top * 2^64 + middle * 2^32 + low, and a little more if `below`, to odd."""
    high = top * 2.0**64
    first = high + middle * 2.0**32
    rest = (middle * 2.0**32 - (first - high)) + (low + 0.5 * below)  # both parts are exact: under 53 bits
    total = first + rest
    error = rest - (total - first)
    if error == 0.0:
        return total
    bits = scalar_bits(total)
    return float(scalar_float((bits - 1 if error < 0.0 else bits) | 1))


@called
def _carry(limbs: Array) -> None:
    carry = 0
    for index in range(LIMBS - 1):
        whole = limbs[index] + carry
        limbs[index] = whole & _LIMB_MASK
        carry = whole >> 32
    limbs[LIMBS - 1] += carry
