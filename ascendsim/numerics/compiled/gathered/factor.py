"""One matrix of a product, by the places of its elements: an im2col that is never written out."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Places = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


class Span(NamedTuple):
    """A range of rows or columns."""

    start: int
    stop: int


class Factor(NamedTuple):
    """A matrix of `lines` x `steps`: the rows of a left one, the columns of a right one, each along k.

    Shapes   values (any number,), lines (m or n,), steps (k,); element (i, t) is values[lines[i] + steps[t]]
    run      steps so many at a time follow each other in `values`, from a whole multiple of `run` on
    Types    values float32, writeable: a read-only array is another type, for which kernels compile anew
    """

    values: Floats
    lines: Places
    steps: Places
    run: int = 1

    def part(self, lines: slice) -> "Factor":
        """Return some of the lines."""
        return self._replace(lines=self.lines[lines])

    def filled(self, unit: int) -> "Factor":
        """Return the same with the last line repeated until there is a whole multiple of `unit` lines."""
        missing = -len(self.lines) % unit
        if not missing:
            return self
        return self._replace(lines=np.concatenate([self.lines, self.lines[-1:].repeat(missing)]))
