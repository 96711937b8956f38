"""Move panels and scalars between registers and memory, inside kernels.

Arrays are C-contiguous memory of one element type; a place in them is an offset in elements from the first,
whatever their shape. Nothing is checked: an offset is right because the caller has computed it.
"""

from collections.abc import Callable
from typing import Any

import numba.np.arrayobj
from llvmlite import ir

from ascendsim.numerics.compiled.panels import (
    PANELS,
    ROWS,
    SCALARS,
    Value,
    intrinsic,
    pack,
    splat,
    types,
    unpack,
    vector,
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
