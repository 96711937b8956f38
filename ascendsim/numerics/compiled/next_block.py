"""Take a panel through blocks whose partial sums doubles hold, its sums in registers from block to block."""

from typing import Any, Final, NamedTuple

from llvmlite import ir

from ascendsim.numerics.compiled.jit import inlined
from ascendsim.numerics.compiled.panel_memory import columns, make_array, rows_from
from ascendsim.numerics.compiled.panels import (
    LANES,
    ROWS,
    Value,
    cgutils,
    fma,
    intrinsic,
    pack,
    splat,
    to_single,
    types,
    unpack,
    widen,
)

Array = Any
Panel = Any

# Lanes that are taken over at a time: a register of doubles with AVX-512, two or more without.
_PART: Final = 8


def _next_block(
    _typing: Value,
    totals: Value,
    left: Value,
    _last: Value,
    _first: Value,
    _w: Value,
    _x: Value,
    _y: Value,
    _z: Value,
    right: Value,
    _place: Value,
) -> Value:
    def codegen(context: Value, builder: Value, sig: Value, args: Value) -> Value:
        panel, _, last, first, *lines, _, place = args
        data, columns = (make_array(sig.args[n])(context, builder, args[n]).data for n in (1, 8))
        kind, narrow = ir.VectorType(ir.DoubleType(), _PART), ir.VectorType(ir.FloatType(), _PART)
        multiply_add = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(kind, [kind] * 3), f"llvm.fma.v{_PART}f64"
        )
        rows = [builder.gep(data, [line]) for line in lines]

        def add(sums: list[Value], step: Value, number: int, lane: int) -> list[Value]:
            where = builder.add(place, ir.Constant(ir.IntType(64), number * LANES + lane))
            right = builder.load(builder.bitcast(builder.gep(columns, [where]), kind.as_pointer()), align=4)
            factors = [splat(builder, builder.load(builder.gep(row, [step])), _PART) for row in rows]
            pairs = zip(factors, sums, strict=True)
            return [builder.call(multiply_add, [factor, right, one]) for factor, one in pairs]

        parts: list[list[Value]] = []
        for lane in range(0, LANES, _PART):
            some = [_lanes(builder, row, range(lane, lane + _PART)) for row in unpack(builder, panel)]
            some = add(some, last, 0, lane)
            some = [builder.fpext(builder.fptrunc(one, narrow), kind) for one in some]
            parts.append(add(some, first, 1, lane))
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


# (totals, left, last, first, w, x, y, z, right, place): sums in double, with the products of the last step of
# a block added, then rounded to singles, then with the products of the first step of the next block added.
# Rows lie in `left` from w, x, y, z on, the two steps `last` and `first` further; the columns of both steps
# lie in `right` from `place` on, one after the other. The processor can round some lanes while it multiplies
# others, but looks only so far ahead: so all three steps are taken part by part.
next_block = intrinsic(_next_block)


class Packed(NamedTuple):
    """The rows of a panel: row r begins at first + r * row, and goes on `step` by step.

    values   memory that holds them
    """

    values: Array
    first: int
    row: int
    step: int


@inlined
def left_of(panel: Packed, t: int) -> Panel:
    """Return the element of each row at a step, in all lanes of the row."""
    first, row = panel.first, panel.row
    return rows_from(panel.values, t * panel.step, first, first + row, first + 2 * row, first + 3 * row)


@inlined
def add_blocks(left: Packed, right: Array, place: int, length: int, size: int, acc: Panel) -> Panel:
    """Return accumulators after so many steps in blocks of a size, each sum rounded once to a single.

    right, place   doubles, LANES for each step from there on
    """
    full = length // size
    if full > 0:
        total = add_steps(left, right, place, 0, size - 1, widen(acc))
        for number in range(1, full):
            first = number * size
            total = _next(left, right, place, first, total)
            total = add_steps(left, right, place, first + 1, first + size - 1, total)
        acc = to_single(add_steps(left, right, place, full * size - 1, full * size, total))
    if full * size < length:
        acc = to_single(add_steps(left, right, place, full * size, length, widen(acc)))
    return acc


@inlined
def add_steps(left: Packed, right: Array, place: int, first: int, stop: int, total: Panel) -> Panel:
    """Return sums with the products of some steps, added in double."""
    for t in range(first, stop):
        total = fma(left_of(left, t), columns(right, place + t * LANES), total)
    return total


@inlined
def _next(left: Packed, right: Array, place: int, t: int, total: Panel) -> Panel:
    """Add the last products of a block to sums, round these, and add the first products of the next, at t."""
    first, row = left.first, left.row
    w, x, y, z = first, first + row, first + 2 * row, first + 3 * row
    last = (t - 1) * left.step
    return next_block(total, left.values, last, last + left.step, w, x, y, z, right, place + (t - 1) * LANES)
