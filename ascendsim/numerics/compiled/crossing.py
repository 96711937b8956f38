"""Go from one block to the next with a panel whose partial sums doubles hold, its sums in registers."""

from collections.abc import Callable
from typing import Any, Final

from llvmlite import ir

from ascendsim.numerics.compiled.panel_memory import make_array
from ascendsim.numerics.compiled.panels import (
    LANES,
    ROWS,
    Value,
    cgutils,
    intrinsic,
    pack,
    splat,
    types,
    unpack,
)

# Lanes that are taken over at a time: a register of doubles with AVX-512, two or more without.
_PART: Final = 8
# Steps before and after the rounding that `next_normal_block` takes part by part: as many as paid.
BEFORE, AFTER = 3, 4
# Of a double: its sign and exponent, and what makes 2^29 times a number of that exponent.
_POWER: Final = -(1 << 52)
_TIMES_2_29: Final = 29 << 52
# The smallest single, and a bound that leaves room to the largest.
SMALLEST: Final = 2.0**-149
LARGE: Final = 2.0**127


def _by_conversion(builder: Value, x: Value) -> Value:
    """Round doubles to singles, whatever they are."""
    kind, narrow = x.type, ir.VectorType(ir.FloatType(), _PART)
    return builder.fpext(builder.fptrunc(x, narrow), kind)


def _by_addition(builder: Value, x: Value) -> Value:
    """Round doubles to singles that are multiples of SMALLEST up to LARGE; -0 becomes +0.

    A double of the same sign and of 2^29 times the power of two below it has as its own last place that of a
    single of this power, and no fraction: so the sum of both is rounded to this place, ties to even. On some
    processors additions go beside multiply-adds; conversions hold these up.
    """
    kind, whole = x.type, ir.VectorType(ir.IntType(64), _PART)
    power = builder.and_(builder.bitcast(x, whole), ir.Constant(whole, [_POWER] * _PART))
    large = builder.bitcast(builder.add(power, ir.Constant(whole, [_TIMES_2_29] * _PART)), kind)
    return builder.fsub(builder.fadd(x, large), large)


def _crossing(before: int, after: int, rounded: Callable[[Value, Value], Value]) -> Any:
    """Make an operation that adds the last steps of a block, rounds, and adds the first ones of the next."""

    def crossing(
        _typing: Value,
        totals: Value,
        left: Value,
        _first: Value,
        _step: Value,
        _w: Value,
        _x: Value,
        _y: Value,
        _z: Value,
        right: Value,
        _place: Value,
    ) -> Value:
        def codegen(context: Value, builder: Value, sig: Value, args: Value) -> Value:
            panel, _, first, step, *lines, _, place = args
            data, columns = (make_array(sig.args[n])(context, builder, args[n]).data for n in (1, 8))
            kind = ir.VectorType(ir.DoubleType(), _PART)
            multiply_add = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(kind, [kind] * 3), f"llvm.fma.v{_PART}f64"
            )
            rows = [builder.gep(data, [line]) for line in lines]
            steps = [first]
            for _ in range(1, before + after):
                steps.append(builder.add(steps[-1], step))

            def add(sums: list[Value], number: int, lane: int) -> list[Value]:
                where = builder.add(place, ir.Constant(ir.IntType(64), number * LANES + lane))
                source = builder.bitcast(builder.gep(columns, [where]), kind.as_pointer())
                right = builder.load(source, align=4)
                singly = [builder.load(builder.gep(row, [steps[number]])) for row in rows]
                pairs = zip([splat(builder, one, _PART) for one in singly], sums, strict=True)
                return [builder.call(multiply_add, [factor, right, one]) for factor, one in pairs]

            parts: list[list[Value]] = []
            for lane in range(0, LANES, _PART):
                some = [_lanes(builder, row, range(lane, lane + _PART)) for row in unpack(builder, panel)]
                for number in range(before):
                    some = add(some, number, lane)
                some = [rounded(builder, one) for one in some]
                for number in range(before, before + after):
                    some = add(some, number, lane)
                parts.append(some)
            return pack(builder, [_joined(builder, list(row)) for row in zip(*parts, strict=True)])

        whole = types.intp
        return totals(totals, left, *[whole] * (2 + ROWS), right, whole), codegen

    return intrinsic(crossing)


def _lanes(builder: Value, vector: Value, lanes: range) -> Value:
    """Return some lanes of a vector."""
    chosen = ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), list(lanes))
    return builder.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), chosen)


def _joined(builder: Value, parts: list[Value]) -> Value:
    """Return vectors of equal length, a power of two of them, one after the other as one."""
    while len(parts) > 1:
        count = 2 * parts[0].type.count
        chosen = ir.Constant(ir.VectorType(ir.IntType(32), count), list(range(count)))
        parts = [builder.shuffle_vector(x, y, chosen) for x, y in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


# (totals, left, first, step, w, x, y, z, right, place): sums in double, with the products of the last steps
# of a block added, then rounded to singles, then with the products of the first steps of the next block
# added. Rows lie in `left` from w, x, y, z on: the first of these steps is `first` further, each other one
# `step` more. The columns of all of them lie in `right` from `place` on, one after the other. The processor
# can round some lanes while it multiplies others, but looks only so far ahead: so all steps are taken part by
# part.
next_block = _crossing(1, 1, _by_conversion)
next_normal_block = _crossing(BEFORE, AFTER, _by_addition)
