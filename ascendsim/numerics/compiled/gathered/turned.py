"""Turn images over, many at a time: channels before pixels to pixels before channels, and back."""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ascendsim.numerics.compiled.jit import kernel
from ascendsim.numerics.compiled.panel_memory import at, put

Array = Any
Floats = npt.NDArray[np.float32]
Places = npt.NDArray[np.int64]

_SIDE: Final = 16  # elements along both sides of a square whose rows, as singles, are whole cache lines


def turned(matrices: Floats) -> Floats:
    """Return every matrix transposed, in new memory: (any number, rows, columns) -> (..., columns, rows)."""
    count, rows, columns = matrices.shape
    result = np.empty((count, columns, rows), np.float32)
    turn_to(matrices, np.arange(columns) * rows, result)
    return result


def turn_to(matrices: Floats, places: Places, target: Floats) -> None:
    """Put the columns of every matrix where they belong, each of them one element after the other.

    Shapes   matrices (N, rows, columns); places (columns,): where in a part of `target` a column begins;
             target (N, any size), C-contiguous
    """
    count, rows, columns = matrices.shape
    # A read-only array is another type, for which the kernel would be compiled anew.
    source = matrices if matrices.flags.carray else np.array(matrices, order="C")
    _turn(source, places, target, (count, rows, columns), target[:1].size)


@kernel
def _turn(source: Array, places: Array, target: Array, shape: tuple[int, int, int], part: int) -> None:
    count, rows, columns = shape
    for number in range(count):
        first = number * rows * columns
        # Square by square: along one side or the other, every element lies in a cache line of its own.
        for j in range(0, columns, _SIDE):
            for i in range(0, rows, _SIDE):
                for column in range(j, min(j + _SIDE, columns)):
                    goal = number * part + at(places, column)
                    for row in range(i, min(i + _SIDE, rows)):
                        put(target, goal + row, at(source, first + row * columns + column))
