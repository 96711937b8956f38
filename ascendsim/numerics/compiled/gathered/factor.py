"""One matrix of a product, by the places of its elements: an im2col that is never written out."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Places = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Factor:
    """A matrix of `lines` x `steps`: the rows of a left one, the columns of a right one, each along k.

    Shapes   values (any number,), lines (m or n,), steps (k,); element (i, t) is values[lines[i] + steps[t]]
    """

    values: Floats
    lines: Places
    steps: Places

    def along(self, steps: Places) -> "Factor":
        """Return the same lines along other steps."""
        return Factor(self.values, self.lines, steps)

    def part(self, lines: slice) -> "Factor":
        """Return some of the lines."""
        return Factor(self.values, self.lines[lines], self.steps)

    def matrix(self, first: int, last: int) -> Floats:
        """Return the elements of some steps, written out: (lines, last - first)."""
        elements: Floats = self.values[self.lines[:, None] + self.steps[first:last]]
        return elements

    def turned(self, first: int, last: int) -> Floats:
        """Return the same the other way round: (last - first, lines)."""
        elements: Floats = self.values[self.steps[first:last, None] + self.lines]
        return elements
