"""Round panels of accumulators: one correct rounding per call, in any of the modes, into either format.

A double that stands for an exact value is *sticky*: it is the value itself, or the neighbour with an odd last
bit (round to odd). With 53 bits against at most 24 + 2 it then rounds into binary32 and binary16, in every
mode, exactly as the value itself would: values of the narrow format and midpoints between them are doubles
that end in zeros, so an odd double lies strictly on the same side of each as the value does.

Special  Inf, NaN and the sign of zero pass through every function here; underflow is gradual unless flushed
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numba.np.arrayobj
import numpy as np
from llvmlite import ir

from ascendsim.numerics.compiled.jit import called, inlined
from ascendsim.numerics.compiled.panels import (
    HALF_CONVERSIONS,
    LANES,
    PANELS,
    ROWS,
    SCALARS,
    Value,
    absolute,
    as_bits,
    as_float,
    as_ones,
    differs,
    equal,
    half_to_single,
    intrinsic,
    negative,
    nonzero,
    out_of_line,
    pack,
    select,
    splat,
    spread,
    to_half,
    to_single,
    types,
    unpack,
    vector,
    widen,
)

make_array: Any = numba.np.arrayobj.make_array


def _index(value: int) -> Value:
    return ir.Constant(ir.IntType(64), value)


def _pointer(context: Value, builder: Value, array_type: Value, array: Value, offset: Value) -> Value:
    return builder.gep(make_array(array_type)(context, builder, array).data, [offset])


def _vector_at(builder: Value, pointer: Value, vector: Value) -> Value:
    return builder.bitcast(pointer, vector.as_pointer())


def _load(builder: Value, pointer: Value, vector: Value) -> Value:
    # Singles of c may begin anywhere: a vector's own alignment, which the compiler assumes otherwise, would
    # fault on some machines.
    return builder.load(_vector_at(builder, pointer, vector), align=4)


def _down(builder: Value, pointer: Value, stride: Value) -> list[Value]:
    pointers = [pointer]
    for _ in range(ROWS - 1):
        pointers.append(builder.gep(pointers[-1], [stride]))
    return pointers


def _reader(read: Callable[..., list[Value]], strided: bool) -> Callable[..., Any]:
    """Make an operation (array, offset) or (array, offset, stride) -> panel."""

    def describe(array: Value) -> Value:
        element = SCALARS[array.dtype]

        def codegen(context: Value, builder: Value, sig: Value, args: Value) -> Value:
            pointer = _pointer(context, builder, sig.args[0], args[0], args[1])
            return pack(builder, read(builder, pointer, vector(element), *args[2:]))

        return PANELS[element](array, *[types.intp] * (2 if strided else 1)), codegen

    if strided:
        return intrinsic(lambda _typing, array, _offset, _stride: describe(array))  # type: ignore[no-any-return]
    return intrinsic(lambda _typing, array, _offset: describe(array))  # type: ignore[no-any-return]


def _read_rows(builder: Value, pointer: Value, _vector: Value) -> list[Value]:
    return [splat(builder, builder.load(builder.gep(pointer, [_index(row)]))) for row in range(ROWS)]


# One load, used by every row: rows of a panel differ in their row of a only.
def _read_columns(builder: Value, pointer: Value, vector: Value) -> list[Value]:
    return [_load(builder, pointer, vector)] * ROWS


def _read_tile(builder: Value, pointer: Value, vector: Value, stride: Value) -> list[Value]:
    return [_load(builder, place, vector) for place in _down(builder, pointer, stride)]


rows = _reader(_read_rows, strided=False)  # ROWS consecutive elements, each in all lanes of its row
columns = _reader(_read_columns, strided=False)  # LANES consecutive elements, in every row
tile = _reader(_read_tile, strided=True)  # LANES consecutive elements per row, rows `stride` apart


def _rows_from(_typing: Value, array: Value, _step: Value, *lines: Value) -> Value:
    def codegen(context: Value, builder: Value, sig: Value, args: Value) -> Value:
        # The line first, which stays the same along a reduction, so that its address stays in a register.
        data = make_array(sig.args[0])(context, builder, args[0]).data
        places = [builder.gep(builder.gep(data, [line]), [args[1]]) for line in args[2:]]
        return pack(builder, [splat(builder, builder.load(place)) for place in places])

    return PANELS[SCALARS[array.dtype]](array, *[types.intp] * (1 + len(lines))), codegen


def _four(typing: Value, array: Value, step: Value, w: Value, x: Value, y: Value, z: Value) -> Value:
    return _rows_from(typing, array, step, w, x, y, z)


# (array, step, line, line, line, line): the element of each line at a step, in all lanes of its row
rows_from = intrinsic(_four)
assert ROWS == 4, "rows_from takes four lines"


def _store(_typing: Value, panel: Value, array: Value, _offset: Value, _stride: Value) -> Value:
    def codegen(context: Value, builder: Value, sig: Value, args: Value) -> Value:
        pointer = _pointer(context, builder, sig.args[1], args[1], args[2])
        for row, place in zip(unpack(builder, args[0]), _down(builder, pointer, args[3]), strict=True):
            builder.store(row, _vector_at(builder, place, row.type), align=4)
        return context.get_dummy_value()

    return types.void(panel, array, types.intp, types.intp), codegen


def _at(_typing: Value, array: Value, _offset: Value) -> Value:
    def codegen(context: Value, builder: Value, sig: Value, args: Value) -> Value:
        return builder.load(_pointer(context, builder, sig.args[0], args[0], args[1]))

    return array.dtype(array, types.intp), codegen


def _put(_typing: Value, array: Value, _offset: Value, _value: Value) -> Value:
    def codegen(context: Value, builder: Value, sig: Value, args: Value) -> Value:
        builder.store(args[2], _pointer(context, builder, sig.args[0], args[0], args[1]))
        return context.get_dummy_value()

    return types.void(array, types.intp, array.dtype), codegen


store = intrinsic(_store)  # (panel, array, offset, stride)
at = intrinsic(_at)  # (array, offset) -> scalar
put = intrinsic(_put)  # (array, offset, scalar), converting to the array's element type


# --- bits of scalars ----------------------------------------------------------------------------------------


def _scalar_cast(results: dict[Value, Value]) -> Callable[..., Any]:
    """Make an operation that reads the bits of one scalar type as another."""

    def operation(_typing: Value, scalar: Value) -> Value:
        def codegen(context: Value, builder: Value, sig: Value, args: Value) -> Value:
            return builder.bitcast(args[0], context.get_value_type(sig.return_type))

        return results[scalar](scalar), codegen

    return intrinsic(operation)  # type: ignore[no-any-return]


# A view of the array in another type would do this as well, but kernels may not make arrays.
scalar_bits = _scalar_cast({types.float32: types.int32, types.float64: types.int64})
scalar_float = _scalar_cast({types.int32: types.float32, types.int64: types.float64})


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
    """The rounding of sums.

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
    """Return whether this is the machine's own conversion of doubles into singles."""
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
    """Mark elements whose nearest value was chosen below a tie, which RNA rounds the other way."""
    # Where the tie went up already, `below` is not below x. Both differences are exact: a few units each.
    return (below < x) & equal(x - below, above - x)


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

    lowest, highest   limbs that `add_term` returned for the terms: other limbs are zero
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
