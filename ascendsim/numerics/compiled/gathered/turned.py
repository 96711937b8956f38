"""Turn images over, many at a time: channels before pixels to pixels before channels, and back.

Elements are binary32 or binary16, before and after: what is converted while it is moved needs no pass of its
own.
"""

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from llvmlite import ir

from ascendsim.numerics.compiled.gathered.halves import rounded_halves, widened
from ascendsim.numerics.compiled.gathered.threads import ALONE, Threads
from ascendsim.numerics.compiled.jit import kernel
from ascendsim.numerics.compiled.panel_memory import at, make_array
from ascendsim.numerics.compiled.panels import HALF_CONVERSIONS, Value, intrinsic, types

Array = Any
Floats = npt.NDArray[np.float32]
Halves = npt.NDArray[np.float16]
Elements = npt.NDArray[Any]  # binary32 or binary16
Places = npt.NDArray[np.int64]

_SIDE: Final = 16  # elements along both sides of a square whose rows, as singles, are whole cache lines
_ELEMENTS: Final = {types.uint16: ir.HalfType(), types.float32: ir.FloatType()}


def turned(matrices: Elements, threads: Threads = ALONE) -> Floats:
    """Return every matrix transposed, in new memory: (any number, rows, columns) -> (..., columns, rows)."""
    count, rows, columns = matrices.shape
    result = np.empty((count, columns, rows), np.float32)
    turn_to(matrices, np.arange(columns) * rows, result, threads)
    return result


def turned_to_halves(matrices: Floats, threads: Threads = ALONE) -> Halves:
    """Return the same, rounded to binary16 as `rounded_halves` does."""
    if not HALF_CONVERSIONS:
        return rounded_halves(turned(matrices, threads))
    count, rows, columns = matrices.shape
    result = np.empty((count, columns, rows), np.float16)
    turn_to(matrices, np.arange(columns) * rows, result, threads)
    return result


def turn_to(matrices: Elements, places: Places, target: Elements, threads: Threads = ALONE) -> None:
    """Put the columns of every matrix where they belong, each of them one element after the other.

    Shapes   matrices (N, rows, columns); places (columns,): where in a part of `target` a column begins;
             target (N, any size), C-contiguous
    Types    a target of binary16 only where the processor converts it
    """
    count, rows, columns = matrices.shape
    if matrices.dtype == np.float16 and not HALF_CONVERSIONS:
        matrices = widened(matrices)
    # A read-only array is another type, for which the kernel would be compiled anew.
    source = _codes(matrices if matrices.flags.carray else np.array(matrices, order="C"))
    made, size = _codes(target), target[:1].size

    def turn(own: slice) -> None:
        _turn(source[own], places, made[own], (own.stop - own.start, rows, columns), size)

    threads.for_moving(source.size).share(turn, count)


def _codes(values: Array) -> Array:
    """Return the elements as kernels take them, who know binary16 by its codes alone."""
    return values.view(np.uint16) if values.dtype == np.float16 else values


def _exchanged(builder: Value, rows: list[Value]) -> list[Value]:
    """Return the rows of a square transposed, each a vector."""
    # Quarter by quarter: the upper right one and the lower left one change places, then likewise in each of
    # the four, until these are single elements.
    half = _SIDE // 2
    while half:
        upper = [lane if not lane & half else _SIDE + lane - half for lane in range(_SIDE)]
        lower = [lane + half if not lane & half else _SIDE + lane for lane in range(_SIDE)]
        made = list(rows)
        for first in (row for row in range(_SIDE) if not row & half):
            for row, lanes in ((first, upper), (first + half, lower)):
                chosen = ir.Constant(ir.VectorType(ir.IntType(32), _SIDE), lanes)
                made[row] = builder.shuffle_vector(rows[first], rows[first + half], chosen)
        rows, half = made, half // 2
    return rows


def _moved(
    builder: Value, source: Value, target: Value, lanes: int
) -> tuple[Value, Callable[[Value], Value]]:
    """Return a vector of elements of one array, and what makes of one what the other array holds."""
    given, made = (ir.VectorType(_ELEMENTS[one.dtype], lanes) for one in (source, target))
    if given == made:
        return given, lambda row: row
    if given.element == ir.HalfType():
        return given, lambda row: builder.fpext(row, made)
    return given, lambda row: builder.fptrunc(row, made)


def _square(
    _typing: Value,
    source: Value,
    _first: Value,
    _width: Value,
    target: Value,
    _goal: Value,
    places: Value,
    _j: Value,
) -> Value:
    def codegen(context: Value, builder: Value, sig: Value, args: Value) -> Value:
        given, made, where = (make_array(sig.args[n])(context, builder, args[n]).data for n in (0, 3, 5))
        kind, converted = _moved(builder, source, target, _SIDE)
        place, rows = args[1], []
        for _ in range(_SIDE):
            rows.append(_load(builder, given, place, kind))
            place = builder.add(place, args[2])
        for column, row in enumerate(_exchanged(builder, rows)):
            number = builder.add(args[6], ir.Constant(ir.IntType(64), column))
            goal = builder.add(args[4], builder.load(builder.gep(where, [number])))
            _store(builder, converted(row), made, goal)
        return context.get_dummy_value()

    whole = types.intp
    return types.void(source, whole, whole, target, whole, places, whole), codegen


def _one(_typing: Value, source: Value, _first: Value, target: Value, _goal: Value) -> Value:
    def codegen(context: Value, builder: Value, sig: Value, args: Value) -> Value:
        given, made = (make_array(sig.args[n])(context, builder, args[n]).data for n in (0, 2))
        kind, converted = _moved(builder, source, target, 1)
        _store(builder, converted(_load(builder, given, args[1], kind)), made, args[3])
        return context.get_dummy_value()

    return types.void(source, types.intp, target, types.intp), codegen


# Elements may begin anywhere: a vector's own alignment, which the compiler assumes otherwise, would fault.
def _load(builder: Value, data: Value, place: Value, kind: Value) -> Value:
    return builder.load(builder.bitcast(builder.gep(data, [place]), kind.as_pointer()), align=2)


def _store(builder: Value, row: Value, data: Value, place: Value) -> None:
    builder.store(row, builder.bitcast(builder.gep(data, [place]), row.type.as_pointer()), align=2)


# (source, first, width, target, goal, places, j): turn the square whose rows begin at `first`, `width` apart;
# its column number c goes to goal + places[j + c]
_turn_square = intrinsic(_square)
_move_one = intrinsic(_one)  # (source, first, target, goal)


@kernel
def _turn(source: Array, places: Array, target: Array, shape: tuple[int, int, int], part: int) -> None:
    count, rows, columns = shape
    for number in range(count):
        first, goal = number * rows * columns, number * part
        # Square by square: along one side or the other, every element lies in a cache line of its own.
        for j in range(0, columns, _SIDE):
            for i in range(0, rows, _SIDE):
                if i + _SIDE <= rows and j + _SIDE <= columns:
                    _turn_square(source, first + i * columns + j, columns, target, goal + i, places, j)
                else:
                    for column in range(j, min(j + _SIDE, columns)):
                        for row in range(i, min(i + _SIDE, rows)):
                            place = goal + at(places, column) + row
                            _move_one(source, first + row * columns + column, target, place)
