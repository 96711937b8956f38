"""Go from one block to the next with a panel whose partial sums doubles hold, its sums in registers."""

from typing import Final

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


def _next_block(
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
        steps = [first, builder.add(first, step)]

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
            some = [_as_single(builder, one) for one in add(some, 0, lane)]
            parts.append(add(some, 1, lane))
        return pack(builder, [_joined(builder, list(row)) for row in zip(*parts, strict=True)])

    whole = types.intp
    return totals(totals, left, *[whole] * (2 + ROWS), right, whole), codegen


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


def _as_single(builder: Value, x: Value) -> Value:
    """Round doubles to singles, and leave them doubles."""
    return builder.fpext(builder.fptrunc(x, ir.VectorType(ir.FloatType(), _PART)), x.type)


# (totals, left, first, step, w, x, y, z, right, place): sums in double, with the products of the last step
# of a block added, then rounded to singles, then with the products of the first step of the next block added.
# Rows lie in `left` from w, x, y, z on: the first of both steps is `first` further, the other `step` more.
# The columns of both lie in `right` from `place` on, one after the other. The processor can round some lanes
# while it multiplies others, but looks only so far ahead: so both steps are taken part by part.
next_block = intrinsic(_next_block)
