"""Reduce a panel to one scalar: the extents of accumulators, while these are in registers."""

from typing import Any, Final

import numba.core.cgutils
import numpy as np
from llvmlite import ir

from ascendsim.numerics.compiled.jit import inlined
from ascendsim.numerics.compiled.panel_memory import scalar_float, tile
from ascendsim.numerics.compiled.panels import (
    LANES,
    ROWS,
    Emit,
    Value,
    absolute,
    any_lane,
    as_bits,
    as_float,
    equal,
    intrinsic,
    select,
    spread,
    types,
    unpack,
)

Panel = Any

cgutils: Any = numba.core.cgutils

_MINUS_ZERO: Final = np.int32(-0x80000000)
_ONE: Final = np.int32(1)
_NOTHING: Final = np.int32(0)
_EXPONENT: Final = np.int32(0x7F800000)
_FRACTION: Final = np.int32(0x007FFFFF)
_MAGNITUDE: Final = np.int32(0x7FFFFFFF)
_LAST_BIT: Final = 2.0**-23
_SMALLEST: Final = 2.0**-149


def _reduced(name: str, comparison: str) -> Any:
    """Make an operation (panel of 32-bit integers) -> integer: the largest or smallest, read as unsigned."""

    def emit(builder: Value, x: Value, y: Value) -> Value:
        return builder.select(builder.icmp_unsigned(comparison, x, y), x, y)

    combine: Emit = emit

    def operation(_typing: Value, panel: Value) -> Value:
        def codegen(_context: Value, builder: Value, _sig: Value, args: Value) -> Value:
            first, *others = unpack(builder, args[0])
            for row in others:
                first = combine(builder, first, row)
            kind = ir.FunctionType(ir.IntType(32), [first.type])
            full_name = f"llvm.vector.reduce.{name}.v{LANES}i32"
            return builder.call(cgutils.get_or_insert_function(builder.module, kind, full_name), [first])

        return types.int32(panel), codegen

    return intrinsic(operation)


_most = _reduced("umax", ">")
_least = _reduced("umin", "<")


def _folded(builder: Any, row: Any, stop: int, combine: Emit, lanes: int = LANES) -> Any:
    """Combine one half of a vector with the other, until so many lanes are left."""
    while lanes > stop:
        lanes //= 2
        halves = [
            builder.shuffle_vector(
                row, row, ir.Constant(ir.VectorType(ir.IntType(32), lanes), list(range(at, at + lanes)))
            )
            for at in (0, lanes)
        ]
        row = combine(builder, *halves)
    return row


def _every_fourth(_typing: Any, panel: Any) -> Any:
    def codegen(_context: Any, builder: Any, _sig: Any, args: Any) -> Any:
        four = _folded(builder, unpack(builder, args[0])[0], ROWS, lambda b, x, y: b.fadd(x, y))
        largest = _folded(builder, four, 1, lambda b, x, y: b.select(b.fcmp_ordered(">", x, y), x, y), ROWS)
        total = _folded(builder, four, 1, lambda b, x, y: b.fadd(x, y), ROWS)
        # A NaN would be lost among others, but not in their sum.
        infinity = ir.Constant(total.type, float("inf"))
        found = builder.select(builder.fcmp_ordered("<", total, infinity), largest, infinity)
        return builder.extract_element(found, ir.Constant(ir.IntType(32), 0))

    return types.float64(panel), codegen


# Panel of doubles, none below zero, whose rows are all the same -> the largest of the sums of every fourth
# lane, from the first to the fourth on; infinity unless all are finite.
largest_sum = intrinsic(_every_fourth)


@inlined
def larger(x: Panel, y: Panel) -> Panel:
    """Return the larger ones of integers."""
    return select(x < y, y, x)


@inlined
def smaller(x: Panel, y: Panel) -> Panel:
    """Return the smaller ones of integers."""
    return select(x < y, x, y)


@inlined
def lowest_bits(magnitudes: Panel) -> Panel:
    """Return the lowest set bit of each single as integers that are ordered as these bits are.

    The bits of that power of two, less one; of zero the largest integer. `lowest_of` gives the smallest.
    """
    # As `extents.extent` does it: x & (x - 1) clears the lowest bit, unless that is the hidden one.
    bits = as_bits(magnitudes)
    cleared = bits & (bits - spread(_ONE))
    rest = select(equal(bits & spread(_FRACTION), spread(_NOTHING)), spread(_NOTHING), cleared)
    return (as_bits(magnitudes - as_float(rest)) - spread(_ONE)) & spread(_MAGNITUDE)


@inlined
def largest_of(bits: Panel) -> float:
    """Return the largest of magnitudes of singles; not finite if any of them is not."""
    return np.float64(scalar_float(_most(bits)))


@inlined
def lowest_of(bits: Panel) -> float:
    """Return the smallest of what `lowest_bits` has found; infinity if all are zero."""
    smallest = _least(bits)
    return np.inf if smallest == _MAGNITUDE else np.float64(scalar_float(np.int32(smallest + _ONE)))


@inlined
def has_minus_zero(values: Panel) -> bool:
    """Tell whether any of the singles is -0."""
    found: bool = any_lane(equal(as_bits(values), spread(_MINUS_ZERO)))
    return found


@inlined
def reach_and_unit(accumulators: Panel) -> tuple[float, float]:
    """Return the largest magnitude of singles, and a power of two of which all are whole multiples.

    Zeros    are multiples of anything: without another value the unit is infinite
    Special  Inf and NaN give a magnitude that no finite bound admits
    """
    bits = as_bits(absolute(accumulators))
    return _reach_and_unit(bits, bits - spread(_ONE))


@inlined
def stripe_reach_and_unit(values: Any, first: int, count: int, stride: int) -> tuple[float, float]:
    """Return the same of a number of panels that lie below each other: lines `stride` apart."""
    bits = as_bits(absolute(tile(values, first, stride)))
    most, least = bits, (bits - spread(_ONE)) & spread(_MAGNITUDE)
    for panel in range(1, count):
        bits = as_bits(absolute(tile(values, first + panel * ROWS * stride, stride)))
        most, least = larger(most, bits), smaller(least, (bits - spread(_ONE)) & spread(_MAGNITUDE))
    return _reach_and_unit(most, least)


@inlined
def _reach_and_unit(most: Panel, least: Panel) -> tuple[float, float]:
    """Return both from bits of magnitudes, of which any is the largest, and the smallest less one."""
    # Bits of positive floats are ordered as the floats are. One less makes the largest number of all of zero.
    largest, smallest = _most(most), _least(least)
    if (smallest & _MAGNITUDE) == _MAGNITUDE:
        return 0.0, np.inf
    power = np.float64(scalar_float(np.int32((smallest + _ONE) & _EXPONENT)))
    return np.float64(scalar_float(largest)), max(power * _LAST_BIT, _SMALLEST)
