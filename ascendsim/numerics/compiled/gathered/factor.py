"""One matrix of a product, by the places of its elements: an im2col that is never written out."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Places = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]


class Span(NamedTuple):
    """A range of rows or columns."""

    start: int
    stop: int


class Values:
    """The elements of a factor, and what kernels want to know of them: found once for all products.

    singles   the elements as float32, flat
    extents   length of a run -> largest magnitude and lowest set bit of each run of that length (`measured`)
    sums      the same, with the sum of magnitudes in place of the largest
    """

    def __init__(self, values: Floats) -> None:
        # A read-only array is another type, for which kernels would be compiled anew.
        self.singles = values.reshape(-1) if values.flags.carray else np.array(values).reshape(-1)
        self.extents: dict[int, Doubles] = {}
        self.sums: dict[int, Doubles] = {}


class Elements(NamedTuple):
    """A factor as kernels take it: element (i, t) is values[lines[i] + steps[t]]."""

    values: Floats
    lines: Places
    steps: Places


class Factor(NamedTuple):
    """A matrix of `lines` x `steps`: the rows of a left one, the columns of a right one, each along k.

    Shapes   values (any number,), lines (m or n,), steps (k,); element (i, t) is values[lines[i] + steps[t]]
    run      steps so many at a time follow each other in `values`, from a whole multiple of `run` on
    """

    values: Values
    lines: Places
    steps: Places
    run: int = 1

    @property
    def elements(self) -> Elements:
        """The factor as kernels take it."""
        return Elements(self.values.singles, self.lines, self.steps)

    def part(self, lines: slice) -> "Factor":
        """Return some of the lines."""
        return self._replace(lines=self.lines[lines])

    def filled(self, unit: int) -> "Factor":
        """Return the same with the last line repeated until there is a whole multiple of `unit` lines."""
        missing = -len(self.lines) % unit
        if not missing:
            return self
        return self._replace(lines=np.concatenate([self.lines, self.lines[-1:].repeat(missing)]))

    def unlocked(self) -> "Factor":
        """Return the same with places that may be written: copies of those that may not."""
        # A read-only array is another type, for which kernels would be compiled anew.
        lines, steps = (one if one.flags.writeable else one.copy() for one in (self.lines, self.steps))
        return self._replace(lines=lines, steps=steps)
