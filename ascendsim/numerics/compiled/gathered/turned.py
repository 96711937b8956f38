"""Turn images over, many at a time: channels before pixels to pixels before channels, and back.

Elements are binary32 or binary16, before and after: what is converted while it is moved needs no pass of its
own.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from ascendsim.numerics.compiled.gathered.halves import rounded_halves, widened
from ascendsim.numerics.compiled.gathered.squares import SIDE, turn_part, turn_square
from ascendsim.numerics.compiled.gathered.threads import ALONE, Threads
from ascendsim.numerics.compiled.jit import kernel
from ascendsim.numerics.compiled.panel_rounding import at
from ascendsim.numerics.compiled.panels import HALF_CONVERSIONS

Array = Any
Floats = npt.NDArray[np.float32]
Halves = npt.NDArray[np.float16]
Elements = npt.NDArray[Any]  # binary32 or binary16
Places = npt.NDArray[np.int64]


def turned(matrices: Elements, threads: Threads = ALONE) -> Floats:
    """Return every matrix transposed, in new memory: (any number, rows, columns) -> (..., columns, rows)."""
    count, rows, columns = matrices.shape
    result = np.empty((count, columns, rows), np.float32)
    turn_to(matrices, np.arange(columns) * rows, result, threads)
    return result


def turned_to_halves(matrices: Floats, threads: Threads = ALONE) -> Halves:
    """Return the same, rounded to binary16 as `rounded_halves` does."""
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
    # A read-only array is another type, for which the kernel would be compiled anew.
    source = _codes(matrices if matrices.flags.carray else np.array(matrices, order="C"))
    made = _codes(target)
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
