"""Turn images over, many at a time: channels before pixels to pixels before channels, and back."""

from typing import Any, Final

import numpy as np
import numpy.typing as npt
from llvmlite import ir

from ascendsim.numerics.compiled.gathered.threads import ALONE, Threads
from ascendsim.numerics.compiled.jit import kernel
from ascendsim.numerics.compiled.panel_memory import at, make_array, put
from ascendsim.numerics.compiled.panels import Value, intrinsic, types

Array = Any
Floats = npt.NDArray[np.float32]
Places = npt.NDArray[np.int64]

_SIDE: Final = 16  # elements along both sides of a square whose rows, as singles, are whole cache lines


def turned(matrices: Floats, threads: Threads = ALONE) -> Floats:
    """Return every matrix transposed, in new memory: (any number, rows, columns) -> (..., columns, rows)."""
    count, rows, columns = matrices.shape
    result = np.empty((count, columns, rows), np.float32)
    turn_to(matrices, np.arange(columns) * rows, result, threads)
    return result


def turn_to(matrices: Floats, places: Places, target: Floats, threads: Threads = ALONE) -> None:
    """Put the columns of every matrix where they belong, each of them one element after the other.

    Shapes   matrices (N, rows, columns); places (columns,): where in a part of `target` a column begins;
             target (N, any size), C-contiguous
    """
    count, rows, columns = matrices.shape
    # A read-only array is another type, for which the kernel would be compiled anew.
    source = matrices if matrices.flags.carray else np.array(matrices, order="C")
    size = target[:1].size

    def turn(own: slice) -> None:
        _turn(source[own], places, target[own], (own.stop - own.start, rows, columns), size)

    threads.for_moving(source.size).share(turn, count)


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
        row_type = ir.VectorType(ir.FloatType(), _SIDE)

        def vector_at(data: Value, place: Value) -> Value:
            return builder.bitcast(builder.gep(data, [place]), row_type.as_pointer())

        place, rows = args[1], []
        for _ in range(_SIDE):
            rows.append(builder.load(vector_at(given, place), align=4))
            place = builder.add(place, args[2])
        for column, row in enumerate(_exchanged(builder, rows)):
            number = builder.add(args[6], ir.Constant(ir.IntType(64), column))
            goal = builder.add(args[4], builder.load(builder.gep(where, [number])))
            builder.store(row, vector_at(made, goal), align=4)
        return context.get_dummy_value()

    whole = types.intp
    return types.void(source, whole, whole, target, whole, places, whole), codegen


# (source, first, width, target, goal, places, j): turn the square whose rows begin at `first`, `width` apart;
# its column number c goes to goal + places[j + c]
_turn_square = intrinsic(_square)


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
                            value = at(source, first + row * columns + column)
                            put(target, goal + at(places, column) + row, value)
