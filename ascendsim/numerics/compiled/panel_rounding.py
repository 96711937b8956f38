"""Round panels of accumulators: one correct rounding per call, in any of the modes, into either format.

A double that stands for an exact value is *sticky*: it is the value itself, or the neighbour with an odd last
bit (round to odd). With 53 bits against at most 24 + 2 it then rounds into binary32 and binary16, in every
mode, exactly as the value itself would: values of the narrow format and midpoints between them are doubles
that end in zeros, so an odd double lies strictly on the same side of each as the value does.

Special  Inf, NaN and the sign of zero pass through every function here; underflow is gradual unless flushed
"""

from typing import Any, Final, NamedTuple

import numpy as np

from ascendsim.numerics.compiled.jit import called, inlined
from ascendsim.numerics.compiled.panel_memory import store, tile
from ascendsim.numerics.compiled.panels import (
    HALF_CONVERSIONS,
    LANES,
    absolute,
    as_bits,
    as_float,
    as_ones,
    differs,
    equal,
    half_to_single,
    negative,
    nonzero,
    out_of_line,
    select,
    spread,
    to_half,
    to_single,
    widen,
)

Array = Any
Panel = Any  # a panel of the compiler, see `panels`

RNE: Final = 0
RNA: Final = 1
RZ: Final = 2
MODES: Final = {"RNE": RNE, "RNA": RNA, "RZ": RZ}

_SIGN: Final = np.int32(-(1 << 31))
_EXPONENT: Final = np.int32(0xFF << 23)
_THIRTEEN_BINADES: Final = np.int32(13 << 23)
_SINGLE_ULP: Final = np.float32(2.0**-23)
_SMALLEST_HALF: Final = np.float32(2.0**-14)
_LARGEST_HALF: Final = np.float32(65504.0)
_HALF_OVERFLOW: Final = np.float32(65520.0)  # the tie above the largest value, which goes up to infinity
_INFINITY: Final = np.float32(np.inf)


@inlined
def exact_sum(x: Panel, y: Panel) -> Panel:
    """Return x + y as a sticky double; special values as in IEEE 754."""
    total, error = two_sum(x, y)
    return sticky(total, error)


@inlined
def two_sum(x: Panel, y: Panel) -> tuple[Panel, Panel]:
    """Return the rounded sum and its exact error (NaN when the sum is not finite)."""
    # Knuth's sum: with `back` for what total holds of y, the two differences are exact and so is their sum,
    # whichever operand is larger. Dekker's shorter form would need |x| >= |y|.
    total = x + y
    back = total - x
    return total, (x - (total - back)) + (y - back)


@inlined
def sticky(total: Panel, error: Panel) -> Panel:
    """Return the odd neighbour of total + error: cut toward zero, then set the last bit if inexact."""
    # An error of the other sign says that the sum went away from zero; bits of floats are ordered by
    # magnitude, so one less is one step back, into the next binade too. An even result then takes the odd
    # neighbour, which encloses the value from the other side; an odd one is it already. A NaN counts as no
    # error (comparisons are ordered), so that an infinite sum stays infinite.
    inexact = nonzero(error)
    overshot = negative(as_bits(total) ^ as_bits(error)) & inexact
    bits = as_bits(total)
    return as_float((bits - as_ones(overshot, bits)) | as_ones(inexact, bits))


class Rounding(NamedTuple):
    """How sums are rounded.

    mode          RNE, RNA or RZ
    half          into binary16, not binary32
    flush_below   magnitude below which results become zero (0.0: none)
    cuts          the processor itself rounds toward zero while the kernel runs; with RZ only
    """

    mode: int
    half: bool
    flush_below: float
    cuts: bool = False


@inlined
def is_plain(how: Rounding) -> bool:
    """Tell whether this is the machine's own conversion of doubles into singles."""
    return how.cuts or (how.mode == RNE and not how.half and how.flush_below == 0.0)


@inlined
def sum_for(how: Rounding, x: Panel, y: Panel) -> Panel:
    """Return x + y as a double that `rounded` makes the right result of."""
    # Cut here and cut again there is cut once; any other rounding needs a sticky double.
    return x + y if how.cuts else exact_sum(x, y)


@inlined
def rounded(x: Panel, how: Rounding, scratch: Array, offset: int) -> Panel:
    """Round sticky doubles into binary32 or binary16, returned as singles.

    scratch   memory of doubles with room for a panel at `offset`: only the usual rounding is worth a copy of
              its code at every caller, the others go through memory
    """
    if is_plain(how):
        result = to_single(x)
    else:
        store(x, scratch, offset, LANES)
        _round_in_place(scratch, offset, how)
        result = to_single(tile(scratch, offset, LANES))
    return result


@called
def _round_in_place(scratch: Array, offset: int, how: Rounding) -> None:
    out_of_line()
    x = tile(scratch, offset, LANES)
    result = _into_half(x, how.mode) if how.half else into_single(x, how.mode)
    if how.flush_below > 0.0:
        # After rounding, as the twin says: 2^-126 - 2^-151 rounds up to a normal number and stays. Times zero
        # rather than zero: the sign is kept.
        tiny = absolute(result) < spread(np.float32(how.flush_below))
        result = select(tiny, result * spread(np.float32(0.0)), result)
    store(widen(result), scratch, offset, LANES)


@inlined
def into_single(x: Panel, mode: int) -> Panel:
    """Round sticky doubles into binary32."""
    # The machine rounds to nearest even only; another mode differs from that by one step or none.
    nearest = to_single(x)
    bits = as_bits(nearest)
    if mode == RZ:
        bits = _cut_bits(x, nearest)
    if mode == RNA:
        above = widen(as_float(bits + spread(np.int32(1))))
        bits = bits + as_ones(_tie_cut(absolute(x), absolute(widen(nearest)), absolute(above)), bits)
    return as_float(bits)


@inlined
def _into_half(x: Panel, mode: int) -> Panel:
    """Go through binary32, kept sticky, because no machine converts doubles to binary16 directly."""
    # Truncated, then odd where that lost something: a double that overflows binary32 becomes its largest
    # value, which is odd and overflows binary16 just as well.
    nearest = to_single(x)
    bits = _cut_bits(x, nearest)
    between = as_float(bits | as_ones(differs(widen(nearest), x), bits))
    return single_into_half(between, mode)


@inlined
def _cut_bits(x: Panel, nearest: Panel) -> Panel:
    """Return the bits of x cut toward zero: one step back where the nearest single went away from zero.

    From infinity that step leads to the largest finite value, which is what RZ makes of an overflow.
    """
    bits = as_bits(nearest)
    return bits - as_ones(absolute(x) < absolute(widen(nearest)), bits)


@inlined
def single_into_half(x: Panel, mode: int) -> Panel:
    """Round sticky singles into binary16, returned as singles."""
    return _nearest_half(x) if mode == RNE else half_by_addition(x, mode)


@inlined
def half_by_addition(x: Panel, mode: int) -> Panel:
    """Round by adding and subtracting a power of two whose last bit is worth one unit of the result.

    Below 2^-14 that unit is the one of the subnormals; where it would be out of range, all is overflow.
    """
    # At 2^e a half has the unit 2^(e - 10), which is the last of 24 bits at 2^(e + 13): the addition rounds
    # the size there, ties to the even unit, and the subtraction is exact.
    size = absolute(x)
    above = select(size < spread(_SMALLEST_HALF), spread(_SMALLEST_HALF), size)
    power = as_float((as_bits(above) & spread(_EXPONENT)) + spread(_THIRTEEN_BINADES))
    result = (size + power) - power
    unit = power * spread(_SINGLE_ULP)
    if mode == RZ:
        result = select(size < result, result - unit, result)
        overflow = select(size < spread(_INFINITY), spread(_LARGEST_HALF), size)
    else:
        if mode == RNA:
            result = select(_tie_cut(size, result, result + unit), result + unit, result)
        overflow = size + spread(_INFINITY)
    result = select(size < spread(_HALF_OVERFLOW), result, overflow)
    return as_float(as_bits(result) | (as_bits(x) & spread(_SIGN)))


# With a conversion in hardware this is one instruction each way; without, the compiler would call a function
# for every element.
if HALF_CONVERSIONS:

    @inlined
    def _nearest_half(x: Panel) -> Panel:
        return half_to_single(to_half(x))

else:

    @inlined
    def _nearest_half(x: Panel) -> Panel:
        return half_by_addition(x, RNE)


@inlined
def _tie_cut(x: Panel, below: Panel, above: Panel) -> Panel:
    """Tell where the nearest value was chosen below a tie, which RNA resolves the other way."""
    # Where the tie went up already, `below` is not below x. Both differences are exact: a few units each.
    return (below < x) & equal(x - below, above - x)
