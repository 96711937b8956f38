"""Round panels of accumulators: one correct rounding per call, in any of the modes, into either format.

A double that stands for an exact value is *sticky*: it is the value itself, or the neighbour with an odd last
bit (round to odd). With 53 bits against at most 24 + 2 it then rounds into binary32 and binary16, in every
mode, exactly as the value itself would.
"""

from typing import Any, Final, NamedTuple

import numpy as np

from ascendsim.numerics.jit import called, inlined
from ascendsim.numerics.panels import (
    LANES,
    absolute,
    as_bits,
    as_float,
    as_i2,
    as_i4,
    as_i8,
    differs,
    equal,
    half_to_single,
    out_of_line,
    select,
    spread,
    store,
    tile,
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


@inlined
def exact_sum(x: Panel, y: Panel) -> Panel:
    """Return x + y as a sticky double; special values as in IEEE 754."""
    total, error = two_sum(x, y)
    return sticky(total, error)


@inlined
def two_sum(x: Panel, y: Panel) -> tuple[Panel, Panel]:
    """Return the rounded sum and its exact error (NaN when the sum is not finite)."""
    total = x + y
    back = total - x
    return total, (x - (total - back)) + (y - back)


@inlined
def sticky(total: Panel, error: Panel) -> Panel:
    """Return the odd neighbour of total + error: cut toward zero, then set the last bit if inexact."""
    overshot = as_i8(total * error < spread(0.0))
    return as_float((as_bits(total) - overshot) | as_i8(differs(error, spread(0.0))))


class Rounding(NamedTuple):
    """How sums are rounded: mode, into binary16 or not, and below which magnitude to zero (0.0: never)."""

    mode: int
    half: bool
    flush_below: float


@inlined
def is_plain(how: Rounding) -> bool:
    """Tell whether this is the machine's own conversion of doubles into singles."""
    return how.mode == RNE and not how.half and how.flush_below == 0.0


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
    result = _into_half(x, how.mode) if how.half else _into_single(x, how.mode)
    if how.flush_below > 0.0:
        tiny = absolute(result) < spread(np.float32(how.flush_below))
        result = select(tiny, result * spread(np.float32(0.0)), result)
    store(widen(result), scratch, offset, LANES)


@inlined
def _into_single(x: Panel, mode: int) -> Panel:
    nearest = to_single(x)
    bits = as_bits(nearest)
    if mode == RZ:
        bits = bits - as_i4(absolute(x) < absolute(widen(nearest)))
    if mode == RNA:
        above = widen(as_float(bits + spread(np.int32(1))))
        bits = bits + as_i4(_tie_cut(absolute(x), absolute(widen(nearest)), absolute(above)))
    return as_float(bits)


@inlined
def _into_half(x: Panel, mode: int) -> Panel:
    """Go through binary32, kept sticky, because no machine converts doubles to binary16 directly."""
    nearest = to_single(x)
    bits = as_bits(nearest) - as_i4(absolute(x) < absolute(widen(nearest)))
    between = as_float(bits | as_i4(differs(widen(nearest), x)))
    return single_into_half(between, mode)


@inlined
def single_into_half(x: Panel, mode: int) -> Panel:
    """Round sticky singles into binary16, returned as singles."""
    nearest = to_half(x)
    bits = as_bits(nearest)
    if mode == RZ:
        bits = bits - as_i2(absolute(x) < absolute(half_to_single(nearest)))
    if mode == RNA:
        above = half_to_single(as_float(bits + as_i2(equal(bits, bits))))
        bits = bits + as_i2(_tie_cut(absolute(x), absolute(half_to_single(nearest)), absolute(above)))
    return half_to_single(as_float(bits))


@inlined
def _tie_cut(x: Panel, below: Panel, above: Panel) -> Panel:
    """Tell where the nearest value was chosen below a tie, which RNA resolves the other way."""
    return (below < x) & equal(x - below, above - x)
