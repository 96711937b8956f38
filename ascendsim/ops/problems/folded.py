"""Gradients of many lines (1-D), as the interface of 910_95 makes them: the lines become rows of one image.

A Transpose brings channels in front of the batch. What follows is a convolution of one image whose rows are
the lines, under a kernel of one row, so that no line meets another:

    input, grad_output (N, C, L) ──Transpose──> (1, C, N, L)
    grad_input (1, Ci, N, L)     ──Transpose──> (N, Ci, L)
    grad_weight (Co, Ci, 1, K)                  as it lies
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ascendsim.ops.problems.as_product import NEWEST
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.patched import Patches

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.profile import Profile

    # Carriers, or binary16 as it is stored.
    Values = NDArray[Any]

# Batches of lines that are folded, both ends included.
LEAST_BATCH, LARGEST_BATCH = 1500, 4096
# (N, C, L) to (C, N, L) and back.
AXES = (1, 0, 2)


class Folded(NamedTuple):
    """How a gradient of many lines is made: `problem` is the convolution of one image of so many rows."""

    problem: ConvProblem

    @classmethod
    def of(cls, p: ConvProblem, gradient: str, profile: Profile) -> Folded | None:
        """Return how the interface makes a gradient with the batch folded into rows; None where it does not.

        That both gradients are folded, whatever their groups and formats, that either end of the range is
        part of it, and that each gradient has its own Transposes, is our reading.

        Source   public ops-nn at e5c3fa932, as read: the operator's interface code
        """
        if p.rank > 1 or p.transposed or profile.npu_arch != NEWEST:
            return None
        if not LEAST_BATCH <= p.batch <= LARGEST_BATCH:
            return None
        # Kernels that lie side by side become channels instead.
        if gradient == "grad_weight" and Patches.of(p, profile):
            return None
        (*_, stride), (*_, (left, _)), (*_, gap), (*_, taps) = p.strides, p.pads, p.dilations, p.kernel
        one = ConvProblem(
            (1, p.input[1], p.batch, p.input[2]),
            (*p.weight[:2], 1, taps),
            (1, stride),
            (0, left),
            (1, gap),
            groups=p.groups,
        )
        return cls(one)

    def rows_of(self, values: Values) -> Values:
        """Return (N, C, L) as (1, C, N, L)."""
        return values.transpose(AXES)[None]

    def lines_of(self, values: Values) -> Values:
        """Return (1, C, N, L) as (N, C, L)."""
        rows: Values = values[0]
        return rows.transpose(AXES)
