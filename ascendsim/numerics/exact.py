"""Sum any finite terms exactly, by integers: the last resort of the block kernels.

The sum is a long integer of 32-bit limbs that counts 2^-LOWEST_BIT. Every product of two finite binary32
values, and every such value, is a whole number of it, so nothing is ever lost. Limbs are 64-bit integers,
carried once at the end; as bit patterns they lie in the same memory of doubles as everything else.
"""

from typing import Any, Final

from ascendsim.numerics.jit import called, inlined
from ascendsim.numerics.panel_memory import at, put, scalar_bits, scalar_float

Array = Any

LIMBS: Final = 24
_LOWEST_BIT: Final = 384  # a double holding 2^-298 has its last bit at 2^-350
_LIMB_MASK: Final = (1 << 32) - 1
_FRACTION: Final = (1 << 52) - 1
_HIDDEN: Final = 1 << 52


@inlined
def _get(doubles: Array, place: int) -> Any:
    return scalar_bits(at(doubles, place))


@inlined
def _set(doubles: Array, place: int, limb: int) -> None:
    put(doubles, place, scalar_float(limb))


@called
def clear(doubles: Array, limbs: int) -> None:
    """Set the long integer at an offset to zero."""
    for index in range(LIMBS):
        _set(doubles, limbs + index, 0)


@called
def add_term(doubles: Array, limbs: int, term: float) -> None:
    """Add one finite double, zero or of magnitude 2^-298 to 2^256, to the long integer."""
    bits = scalar_bits(term)
    exponent = (bits >> 52) & 0x7FF
    if exponent == 0:  # no term is subnormal in double: zero
        return
    significand = (bits & _FRACTION) | _HIDDEN
    position = exponent - 1075 + _LOWEST_BIT
    place, shift = limbs + (position >> 5), position & 31
    low, high = (significand & _LIMB_MASK) << shift, (significand >> 32) << shift
    sign = 1 if bits >= 0 else -1
    _set(doubles, place, _get(doubles, place) + sign * (low & _LIMB_MASK))
    _set(doubles, place + 1, _get(doubles, place + 1) + sign * ((low >> 32) + (high & _LIMB_MASK)))
    _set(doubles, place + 2, _get(doubles, place + 2) + sign * (high >> 32))


@called
def sticky_value(doubles: Array, limbs: int) -> float:
    """Return the long integer as a sticky double (see `panel_rounding`), and clear it; zero gives +0."""
    _carry(doubles, limbs)
    negative = _get(doubles, limbs + LIMBS - 1) < 0
    if negative:
        for index in range(LIMBS):
            _set(doubles, limbs + index, -_get(doubles, limbs + index))
        _carry(doubles, limbs)
    top = LIMBS - 1
    while top > 2 and _get(doubles, limbs + top) == 0:
        top -= 1
    # No term is below 2^-298, so the top limb is never one of the two lowest. It and the two below it hold at
    # least 65 bits, more than a double keeps; what is further down only decides whether anything is.
    below = False
    for index in range(top - 2):
        below |= _get(doubles, limbs + index) != 0
    place = limbs + top
    value = _odd(_get(doubles, place), _get(doubles, place - 1), _get(doubles, place - 2), below)
    value *= scalar_float((32 * (top - 2) - _LOWEST_BIT + 1023) << 52)
    clear(doubles, limbs)
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
def _carry(doubles: Array, limbs: int) -> None:
    carry = 0
    for place in range(limbs, limbs + LIMBS - 1):
        whole = _get(doubles, place) + carry
        _set(doubles, place, whole & _LIMB_MASK)
        carry = whole >> 32
    _set(doubles, limbs + LIMBS - 1, _get(doubles, limbs + LIMBS - 1) + carry)
