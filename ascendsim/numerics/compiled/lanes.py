"""Reduce a panel to one scalar: the extents of accumulators, while these are in registers."""

from typing import Any, Final

import numba.core.cgutils
import numpy as np
from llvmlite import ir

from ascendsim.numerics.compiled.jit import inlined
from ascendsim.numerics.compiled.panel_memory import scalar_float
from ascendsim.numerics.compiled.panels import (
    LANES,
    Emit,
    Value,
    absolute,
    any_lane,
    as_bits,
    equal,
    intrinsic,
    spread,
    types,
    unpack,
)

Panel = Any

cgutils: Any = numba.core.cgutils

_MINUS_ZERO: Final = np.int32(-0x80000000)
_ONE: Final = np.int32(1)
_EXPONENT: Final = np.int32(0x7F800000)
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
    # Bits of positive floats are ordered as the floats are. One less makes the largest number of all of zero.
    bits = as_bits(absolute(accumulators))
    largest, smallest = _most(bits), _least(bits - spread(_ONE))
    if smallest == np.int32(-1):
        return 0.0, np.inf
    power = np.float64(scalar_float(np.int32((smallest + _ONE) & _EXPONENT)))
    return np.float64(scalar_float(largest)), max(power * _LAST_BIT, _SMALLEST)
