"""Sum any finite terms exactly, by integers: the last resort of the block kernels.

The sum is a long integer of 32-bit limbs that counts 2^-LOWEST_BIT. Every product of two finite binary32
values, and every such value, is a whole number of it, so nothing is ever lost. Limbs are 64-bit integers,
carried once at the end; as bit patterns they lie in the same memory of doubles as everything else.

Special  terms are finite; a sum of zero is +0, as the definition says of a sum with a term that is not -0
"""

from typing import Any, Final

from ascendsim.numerics.compiled.jit import called, inlined
from ascendsim.numerics.compiled.panel_memory import at, put, scalar_bits, scalar_float

Array = Any

# 704 bits from 2^-384 up. A double that holds 2^-298 has its last bit at 2^-350, in limb 1. A term of 2^256
# reaches limb 20, where 2^30 of them still end (below 2^287); the limb above takes the sign.
LIMBS: Final = 22
_LOWEST_BIT: Final = 384
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


@inlined
def add_term(doubles: Array, limbs: int, term: float) -> int:
    """Add one finite double, zero or of magnitude 2^-298 to 2^256, to the long integer.

    Returns   the index of the lowest limb that may have changed, of three; for zero one in the middle
    """
    bits = scalar_bits(term)
    exponent = (bits >> 52) & 0x7FF
    significand = (bits & _FRACTION) | _HIDDEN if exponent else 0  # no term is subnormal in double
    position = exponent - 1075 + _LOWEST_BIT if exponent else 16 * LIMBS
    index, shift = position >> 5, position & 31
    # The shifted significand has up to 84 bits, which three limbs take. None takes 2^33 or more, so that 2^30
    # terms stay below 2^63 and nothing needs to be carried before the end.
    low, high = (significand & _LIMB_MASK) << shift, (significand >> 32) << shift
    sign, place = 1 if bits >= 0 else -1, limbs + index
    _set(doubles, place, _get(doubles, place) + sign * (low & _LIMB_MASK))
    _set(doubles, place + 1, _get(doubles, place + 1) + sign * ((low >> 32) + (high & _LIMB_MASK)))
    _set(doubles, place + 2, _get(doubles, place + 2) + sign * (high >> 32))
    return index


@called
def sticky_value(doubles: Array, limbs: int, lowest: int, highest: int) -> float:
    """Return the long integer as a sticky double (see `panel_rounding`), and clear it; zero gives +0.

    lowest, highest   of what `add_term` returned for its terms: other limbs are zero
    """
    first, last = limbs + lowest, limbs + highest + 3  # the last one takes the final carry, and so the sign
    # Carries go from the lowest limb to one above the highest; a negative sum leaves its sign there, and is
    # carried anew as its magnitude.
    _carry(doubles, first, last)
    negative = _get(doubles, last) < 0
    if negative:
        for place in range(first, last + 1):
            _set(doubles, place, -_get(doubles, place))
        _carry(doubles, first, last)
    top = last
    while top > limbs + 2 and _get(doubles, top) == 0:
        top -= 1
    # No term is below 2^-298, so the top limb is never one of the two lowest. It and the two below it hold at
    # least 65 bits, more than a double keeps; what is further down only decides whether anything is.
    below = False
    for place in range(first, top - 2):
        below |= _get(doubles, place) != 0
    value = _odd(_get(doubles, top), _get(doubles, top - 1), _get(doubles, top - 2), below)
    value *= scalar_float((32 * (top - limbs - 2) - _LOWEST_BIT + 1023) << 52)
    for place in range(first, last + 1):
        _set(doubles, place, 0)
    return float(-value if negative else value)


@called
def _odd(top: int, middle: int, low: int, below: bool) -> float:
    """Round top * 2^64 + middle * 2^32 + low, and a little more if `below`, to odd."""
    # `first` may round, by what `rest` takes back exactly; `total` rounds again, by `error`. The half stands
    # for what lies below: with top at least 1 a double's last bit is worth 2^12 or more, so the half only
    # says that something is there.
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
def _carry(doubles: Array, first: int, last: int) -> None:
    # Shifting right and masking both round down, so negative limbs borrow as they should.
    carry = 0
    for place in range(first, last):
        whole = _get(doubles, place) + carry
        _set(doubles, place, whole & _LIMB_MASK)
        carry = whole >> 32
    _set(doubles, last, _get(doubles, last) + carry)
