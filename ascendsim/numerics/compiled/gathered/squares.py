"""Turn squares of binary32 or binary16 elements over in registers, whole ones and parts, for kernels."""

from typing import Final

from llvmlite import ir

from ascendsim.numerics.compiled.panel_rounding import make_array
from ascendsim.numerics.compiled.panels import Value, cgutils, intrinsic, splat, types

SIDE: Final = 16  # elements along both sides of a square whose rows, as singles, are whole cache lines
_ELEMENTS: Final = {types.uint16: ir.HalfType(), types.float32: ir.FloatType()}
_BITS: Final = {types.uint16: ir.IntType(16), types.float32: ir.IntType(32)}
_NAMES: Final = {ir.HalfType(): "f16", ir.FloatType(): "f32", ir.IntType(16): "i16", ir.IntType(32): "i32"}


def _exchanged(builder: Value, rows: list[Value]) -> list[Value]:
    """Return the rows of a square transposed, each a vector."""
    # Quarter by quarter: the upper right one and the lower left one change places, then likewise in each of
    # the four, until these are single elements.
    half = SIDE // 2
    while half:
        upper = [lane if not lane & half else SIDE + lane - half for lane in range(SIDE)]
        lower = [lane + half if not lane & half else SIDE + lane for lane in range(SIDE)]
        made = list(rows)
        for first in (row for row in range(SIDE) if not row & half):
            for row, lanes in ((first, upper), (first + half, lower)):
                chosen = ir.Constant(ir.VectorType(ir.IntType(32), SIDE), lanes)
                made[row] = builder.shuffle_vector(rows[first], rows[first + half], chosen)
        rows, half = made, half // 2
    return rows


def _square(
    _typing: Value,
    source: Value,
    _first: Value,
    _width: Value,
    target: Value,
    _goal: Value,
    places: Value,
    _j: Value,
    *_left: Value,
) -> Value:
    def codegen(context: Value, builder: Value, sig: Value, args: Value) -> Value:
        given, made, where = (make_array(sig.args[n])(context, builder, args[n]).data for n in (0, 3, 5))
        elements = [_ELEMENTS[one.dtype] for one in (source, target)]
        # What is only moved is not looked at: a processor need not know what it is.
        read, written = elements if source.dtype != target.dtype else [_BITS[source.dtype]] * 2
        memory = _Memory(builder, *args[7:])
        place, rows = args[1], []
        for row in range(SIDE):
            rows.append(memory.read(given, place, read, row))
            place = builder.add(place, args[2])
        for column, values in enumerate(_exchanged(builder, rows)):
            goal = builder.add(args[4], builder.load(builder.gep(where, [memory.place(args[6], column)])))
            memory.write(values, made, goal, written, column)
        return context.get_dummy_value()

    whole = types.intp
    return types.void(source, whole, whole, target, whole, places, whole, *_left), codegen


class _Memory:
    """Rows of a square as they are read, and columns as they are written; of a part of one, what there is.

    rows, columns   of the part, as the compiler's values; without them the square is a whole one
    """

    def __init__(self, builder: Value, rows: Value = None, columns: Value = None) -> None:
        self._builder, self._rows, self._columns = builder, rows, columns

    def read(self, data: Value, place: Value, element: Value, row: int) -> Value:
        """Return a row as it is in memory."""
        kind = ir.VectorType(element, SIDE)
        source = self._vector_at(data, place, kind)
        # Elements may begin anywhere: a vector's own alignment, which the compiler assumes otherwise, would
        # fault.
        if self._rows is None:
            return self._builder.load(source, align=2)
        mask, nothing = self._mask(row, self._rows, self._columns), ir.Constant(kind, ir.Undefined)
        return self._call("load", kind, kind, [source, _int32(2), mask, nothing])

    def write(self, column: Value, data: Value, place: Value, element: Value, number: int) -> None:
        """Write a column, which is a row of the target, converted to its elements."""
        kind = ir.VectorType(element, SIDE)
        if column.type.element != element:
            narrows = element == ir.HalfType()
            column = self._builder.fptrunc(column, kind) if narrows else self._builder.fpext(column, kind)
        target = self._vector_at(data, place, kind)
        if self._rows is None:
            self._builder.store(column, target, align=2)
        else:
            mask = self._mask(number, self._columns, self._rows)
            self._call("store", ir.VoidType(), kind, [column, target, _int32(2), mask])

    def place(self, first: Value, column: int) -> Value:
        """Return the number of a column, or of the first one where it is beyond the last."""
        number = self._builder.add(first, ir.Constant(first.type, column))
        if self._columns is None:
            return number
        return self._builder.select(self._is_there(column, self._columns), number, first)

    def _is_there(self, number: int, count: Value) -> Value:
        return self._builder.icmp_signed(">", count, ir.Constant(count.type, number))

    def _mask(self, line: int, lines: Value, length: Value) -> Value:
        """Return which lanes of a line there are: none if the line itself is beyond the last."""
        there = self._builder.select(self._is_there(line, lines), length, ir.Constant(length.type, 0))
        count = splat(self._builder, self._builder.trunc(there, ir.IntType(32)), SIDE)
        lanes = ir.Constant(ir.VectorType(ir.IntType(32), SIDE), list(range(SIDE)))
        return self._builder.icmp_signed(">", count, lanes)

    def _vector_at(self, data: Value, place: Value, kind: Value) -> Value:
        return self._builder.bitcast(self._builder.gep(data, [place]), kind.as_pointer())

    def _call(self, what: str, made: Value, kind: Value, args: list[Value]) -> Value:
        function_type = ir.FunctionType(made, [arg.type for arg in args])
        name = f"llvm.masked.{what}.v{SIDE}{_NAMES[kind.element]}.p0"
        function = cgutils.get_or_insert_function(self._builder.module, function_type, name)
        return self._builder.call(function, args)


def _int32(value: int) -> Value:
    return ir.Constant(ir.IntType(32), value)


def _part(
    typing: Value,
    s: Value,
    f: Value,
    w: Value,
    t: Value,
    g: Value,
    p: Value,
    j: Value,
    rows: Value,
    cols: Value,
) -> Value:
    return _square(typing, s, f, w, t, g, p, j, rows, cols)


def _whole(typing: Value, s: Value, f: Value, w: Value, t: Value, g: Value, p: Value, j: Value) -> Value:
    return _square(typing, s, f, w, t, g, p, j)


# (source, first, width, target, goal, places, j): turn the square whose rows begin at `first`, `width` apart;
# its column number c goes to goal + places[j + c]
turn_square = intrinsic(_whole)
# (..., rows, columns): the same of so many rows and columns of it; nothing else is read or written
turn_part = intrinsic(_part)
