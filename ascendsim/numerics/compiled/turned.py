"""Convert whole tensors between binary16 and binary32, and turn images over, many elements an instruction.

Images are turned from channels before pixels to pixels before channels, and back: squares of elements, whole
ones and parts, transposed in registers. What is converted while it is moved needs no pass of its own.
"""

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from llvmlite import ir

from ascendsim.numerics.compiled.jit import kernel
from ascendsim.numerics.compiled.panel_rounding import at, make_array, put, store, tile
from ascendsim.numerics.compiled.panels import (
    HALF_CONVERSIONS,
    LANES,
    PANELS,
    ROWS,
    Value,
    any_lane,
    as_bits,
    cgutils,
    differs,
    half_to_single,
    intrinsic,
    pack,
    splat,
    to_half,
    types,
    unpack,
    vector,
)
from ascendsim.numerics.factor import ALONE, Threads

Array = Any
Halves = npt.NDArray[np.float16]
Floats = npt.NDArray[np.float32]

_PANEL = ROWS * LANES


def _rows(context: Value, builder: Value, array_type: Value, array: Value, offset: Value) -> list[Value]:
    """Return where the rows of a panel of binary16 values lie, one after the other."""
    data = make_array(array_type)(context, builder, array).data
    first = builder.bitcast(builder.gep(data, [offset]), vector("f2").as_pointer())
    return [builder.gep(first, [ir.Constant(ir.IntType(64), row)]) for row in range(ROWS)]


def _read(_typing: Value, array: Value, _offset: Value) -> Value:
    def codegen(context: Value, builder: Value, sig: Value, args: Value) -> Value:
        # Codes may begin anywhere: a vector's own alignment, assumed otherwise, would fault.
        places = _rows(context, builder, sig.args[0], *args)
        return pack(builder, [builder.fpext(builder.load(p, align=2), vector("f4")) for p in places])

    return PANELS["f4"](array, types.intp), codegen


def _write(_typing: Value, panel: Value, array: Value, _offset: Value) -> Value:
    def codegen(context: Value, builder: Value, sig: Value, args: Value) -> Value:
        places = _rows(context, builder, sig.args[1], *args[1:])
        for row, place in zip(unpack(builder, args[0]), places, strict=True):
            builder.store(builder.fptrunc(row, vector("f2")), place, align=2)
        return context.get_dummy_value()

    return types.void(panel, array, types.intp), codegen


_read_halves = intrinsic(_read)  # (codes, offset) -> panel of singles
_write_halves = intrinsic(_write)  # (panel of singles, codes, offset)


@kernel
def _widen(codes: Array, singles: Array, count: int) -> None:
    for place in range(0, count, _PANEL):
        store(_read_halves(codes, place), singles, place, LANES)


@kernel
def _narrow(singles: Array, codes: Array, count: int) -> bool:
    exact = True
    for place in range(0, count, _PANEL):
        values = tile(singles, place, LANES)
        _write_halves(values, codes, place)
        exact = exact and not any_lane(differs(as_bits(values), as_bits(half_to_single(to_half(values)))))
    return exact


@kernel
def _round_off(singles: Array, codes: Array, count: int) -> None:
    for place in range(0, count, _PANEL):
        _write_halves(tile(singles, place, LANES), codes, place)


@kernel
def _round(singles: Array, target: Array, count: int) -> None:
    for place in range(0, count, _PANEL):
        store(half_to_single(to_half(tile(singles, place, LANES))), target, place, LANES)


def widened(halves: Halves, threads: Threads = ALONE) -> Floats:
    """Return binary16 values as binary32, exactly; any shape, kept."""
    if not HALF_CONVERSIONS:
        return halves.astype(np.float32)
    codes = _flat(halves).view(np.uint16)
    singles = np.empty(codes.size, np.float32)
    _in_panels(_widen, codes, singles, threads)
    return singles.reshape(halves.shape)


def narrowed(singles: Floats, threads: Threads = ALONE) -> Halves | None:
    """Return binary32 values as binary16 if all are on its grid, bit for bit; any shape, kept.

    Special  a NaN whose payload would be lost is off the grid
    """
    flat = _flat(singles)
    if HALF_CONVERSIONS:
        codes = np.empty(flat.size, np.uint16)
        exact = all(_in_panels(_narrow, flat, codes, threads))
    else:
        codes = _as_halves(flat).view(np.uint16)
        exact = np.array_equal(codes.view(np.float16).astype(np.float32).view(np.int32), flat.view(np.int32))
    return codes.view(np.float16).reshape(singles.shape) if exact else None


def on_half_grid(singles: Floats, threads: Threads = ALONE) -> Floats:
    """Return binary32 values rounded to binary16, to nearest, ties to even; any shape, kept.

    Special  beyond the largest value Inf; subnormals and the sign of zero are kept, the payload of a NaN not
             always
    """
    if not HALF_CONVERSIONS:
        return widened(_as_halves(singles))
    flat = _flat(singles)
    made = np.empty(flat.size, np.float32)
    _in_panels(_round, flat, made, threads)
    return made.reshape(singles.shape)


def rounded_halves(singles: Floats, threads: Threads = ALONE) -> Halves:
    """Return singles rounded to binary16 and stored as such: `on_half_grid` and `narrowed` in one pass."""
    if not HALF_CONVERSIONS:
        return _as_halves(singles)
    flat = _flat(singles)
    codes = np.empty(flat.size, np.uint16)
    _in_panels(_round_off, flat, codes, threads)
    return codes.view(np.float16).reshape(singles.shape)


def _flat(values: Array) -> Array:
    """Return the elements in a row, as kernels take them."""
    # An array that is read-only or not aligned is another type, for which a kernel would be compiled anew.
    return (values if values.flags.carray else np.array(values, order="C")).reshape(-1)


def _as_halves(singles: Floats) -> Halves:
    with np.errstate(over="ignore", under="ignore"):
        return singles.astype(np.float16)


def _in_panels(
    convert: Callable[[Array, Array, int], Any], source: Array, target: Array, threads: Threads
) -> list[Any]:
    """Convert all elements: whole panels as they lie, and what is over in a panel of its own.

    Returns  what `convert` has returned of each part
    """
    whole = source.size // _PANEL * _PANEL

    def convert_part(own: slice) -> Any:
        return convert(source[own], target[own], own.stop - own.start)

    told = threads.for_moving(whole).share(convert_part, whole, _PANEL)
    if whole < source.size:
        last, made = np.zeros(_PANEL, source.dtype), np.empty(_PANEL, target.dtype)
        last[: source.size - whole] = source[whole:]
        told.append(convert(last, made, _PANEL))
        target[whole:] = made[: source.size - whole]
    return told


@kernel
def _cut(bits: Array, made: Array, drop: int, more: int, odd: int) -> None:
    kept, infinity = 0xFFFFFFFF >> drop << drop, 0x7F800000
    for index in range(bits.size):
        code = at(bits, index)
        # A NaN could carry into the sign, or lose all its fraction and read as Inf: it is cut and made quiet.
        found = code | 0x400000 if code & 0x7FFFFFFF > infinity else code + more + (code >> drop & odd)
        put(made, index, np.uint32(found & kept))


def cut_mantissa(singles: Floats, drop: int, more: int, odd: int) -> Floats:
    """Return singles without the low `drop` bits of their patterns; any shape, kept.

    more, odd   what is added before: `more`, and where the last bit that is kept is set, `odd`
    """
    bits = _flat(singles).view(np.uint32)
    made = np.empty(bits.size, np.uint32)
    _cut(bits, made, drop, more, odd)
    return made.view(np.float32).reshape(singles.shape)


@kernel
def _fill_up(codes: Array, bits: Array) -> None:
    for index in range(codes.size):
        put(bits, index, at(codes, index) << 16)


@kernel
def _upper(bits: Array, codes: Array) -> Any:
    lost = np.uint32(0)
    for index in range(bits.size):
        one = at(bits, index)
        # A NaN without its quiet bit would keep its code, and gets another.
        signals = (one & 0x7FC00000 == 0x7F800000) & (one & 0x3FFFFF != 0)
        lost = np.uint32(lost | one & 0xFFFF | np.uint32(signals))
        put(codes, index, one >> 16)
    return lost


def filled_up(codes: npt.NDArray[np.uint16]) -> Floats:
    """Return singles of which codes of bfloat16 are the upper halves; any shape, kept."""
    flat = _flat(codes)
    bits = np.empty(flat.size, np.uint32)
    _fill_up(flat, bits)
    return bits.view(np.float32).reshape(codes.shape)


def upper_halves(singles: Floats) -> npt.NDArray[np.uint16] | None:
    """Return the codes of bfloat16 if all singles are on its grid, bit for bit; any shape, kept."""
    bits = _flat(singles).view(np.uint32)
    codes = np.empty(bits.size, np.uint16)
    return None if _upper(bits, codes) else codes.reshape(singles.shape)


@kernel
def _look(codes: Array, seen: Array, signless: int, normal: int) -> None:
    # Numbers of 32 bits, as the longest codes are, go many an instruction.
    magnitude, least = np.uint32(signless), np.uint32(normal)
    zero = small = top = np.uint32(0)
    for index in range(codes.size):
        code = np.uint32(at(codes, index) & magnitude)
        zero, small, top = np.uint32(zero + (code == 0)), np.uint32(small + (code < least)), max(top, code)
    for place, number in enumerate((zero, small, top)):
        put(seen, place, number)


def look_at_codes(codes: Array, signless: int, normal: int) -> list[int]:
    """Return how many codes are 0 and below `normal`, and the largest, each without its sign."""
    seen = np.empty(3, np.int64)
    _look(_flat(codes), seen, signless, normal)
    return seen.tolist()


@kernel
def _add_lanes(
    images: Array, lanes: Array, part: tuple[int, int], shape: tuple[int, int], width: int
) -> None:
    (first, last), (channels, elements) = part, shape
    for image in range(first, last):
        for channel in range(channels):
            row, begin = channel * width, (image * channels + channel) * elements
            for start in range(0, elements, width):
                for lane in range(min(width, elements - start)):
                    put(lanes, row + lane, at(lanes, row + lane) + at(images, begin + start + lane))
    while width > 1:
        width //= 2
        for channel in range(channels):
            row = channel * lanes.size // channels
            for lane in range(width):
                put(lanes, row + lane, at(lanes, row + lane) + at(lanes, row + lane + width))


def lane_sums(images: Floats, part: range, width: int) -> Floats:
    """Return the sum of each channel of some images (any number, channels, elements).

    Order   element e is added to lane e % width, image after image; then lanes by halves
    """
    lanes = np.zeros((images.shape[1], width), np.float32)
    flat = _flat(images)
    _add_lanes(flat, lanes.reshape(-1), (part.start, part.stop), images.shape[1:], width)
    return lanes[:, 0]


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
        memory = _SquareMemory(builder, *args[7:])
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


class _SquareMemory:
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
# (..., rows, columns): turns a part of that many rows and columns; nothing else is read or written
turn_part = intrinsic(_part)


Elements = npt.NDArray[Any]  # binary32 or binary16
Places = npt.NDArray[np.int64]


def turned(matrices: Elements, threads: Threads = ALONE) -> Floats:
    """Return every matrix transposed, in new memory: (any number, rows, columns) -> (..., columns, rows)."""
    count, rows, columns = matrices.shape
    result = np.empty((count, columns, rows), np.float32)
    turn_to(matrices, np.arange(columns) * rows, result, threads)
    return result


def turned_to_halves(matrices: Floats, threads: Threads = ALONE) -> Halves:
    """Return the turned matrices, rounded to binary16 as by `rounded_halves`."""
    count, rows, columns = matrices.shape
    result = np.empty((count, columns, rows), np.float16)
    turn_to(matrices, np.arange(columns) * rows, result, threads)
    return result


def turn_to(
    matrices: Elements,
    places: Places,
    target: Elements,
    threads: Threads = ALONE,
    goals: Places | None = None,
) -> None:
    """Put the columns of every matrix where they belong, each of them one element after the other.

    Shapes   matrices (N, rows, columns); goals (N,): where in `target` the part of a matrix begins; places
             (columns,): where in that part a column begins; target of any shape, C-contiguous; without
             goals (N, size of a part)
    Types    from one of the two formats to the other as `widened` and `rounded_halves` convert
    """
    count, rows, columns = matrices.shape
    if matrices.dtype != target.dtype and not HALF_CONVERSIONS:
        matrices = (widened if matrices.dtype == np.float16 else rounded_halves)(matrices)
    source, made = _codes(_flat(matrices)), _codes(target)
    begins = np.arange(count) * target[:1].size if goals is None else goals

    def turn(own: slice) -> None:
        _turn(source, places, made, begins, (rows, columns), own.start, own.stop)

    threads.for_moving(source.size).share(turn, count)


def _codes(values: Array) -> Array:
    """Return the elements as kernels take them, who know binary16 by its codes alone."""
    return values.view(np.uint16) if values.dtype == np.float16 else values


@kernel
def _turn(
    source: Array, places: Array, target: Array, goals: Array, shape: tuple[int, int], first: int, last: int
) -> None:
    rows, columns = shape
    for number in range(first, last):
        begin, goal = number * rows * columns, at(goals, number)
        # Square by square: along one side or the other, every element lies in a cache line of its own.
        for j in range(0, columns, SIDE):
            for i in range(0, rows, SIDE):
                corner = begin + i * columns + j
                if i + SIDE <= rows and j + SIDE <= columns:
                    turn_square(source, corner, columns, target, goal + i, places, j)
                else:
                    turn_part(source, corner, columns, target, goal + i, places, j, rows - i, columns - j)
