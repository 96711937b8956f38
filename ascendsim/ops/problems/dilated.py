"""Strided grad_input as the older operators make it: by a kernel of stride 1, with a Dilation beside it.

A Dilation kernel spreads the pixels of an image over zeros. It stands behind the kernel where the convolution
has one tap, whose grad_input is a plain product of pixels and channels:

    grad_output ──stride 1──> small image ──Dilation──> grad_input       1 x 1, any stride above 1

and before it where a stride is too large for the zeros that the kernel itself inserts:

    grad_output ──Dilation──> large image ──stride 1──> grad_input       larger kernels, a stride of 3 or more
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ascendsim.ops.problems.convolution import ConvProblem, Pair
from ascendsim.ops.problems.folded import Folded
from ascendsim.ops.problems.patched import Patches

if TYPE_CHECKING:
    from ascendsim.profile import Profile

# The kernel of grad_input inserts zeros for strides up to this one.
LARGEST_INNER_STRIDE = 2


class Dilated(NamedTuple):
    """How a grad_input with a Dilation kernel is made.

    spreads   the tensor whose pixels are spread: "grad_output" before the kernel, "grad_input" behind it
    problem   the convolution of stride 1 whose grad_input the kernel makes
    step      how far two pixels come to lie apart, along H and W
    first     row and column of the first pixel; below 0 where the first ones meet padding, and are dropped
    size      H and W of the result
    """

    spreads: str
    problem: ConvProblem
    step: Pair
    first: Pair
    size: Pair

    @classmethod
    def of(cls, p: ConvProblem, compute_dtype: str, profile: Profile) -> Dilated | None:
        """Return how the product's operator makes a grad_input with a Dilation kernel; None where without.

        Source   public ops-nn at e5c3fa932, as read: the operator's interface code
        """
        if not profile.generation.changes_layouts or p.transposed or p.rank == 3:
            return None
        (_, *steps), largest = p.strides, max(p.strides)
        step = steps[0], steps[1]
        if set(p.kernel) == {1} and largest > 1:
            inner = replace(p, input=(*p.input[:2], *p.grad_output[2:]), stride=1, padding=0)
            _, (top, _), (left, _) = p.pads
            return cls("grad_input", inner, step, (-top, -left), p.big_size[1:])
        if largest > LARGEST_INNER_STRIDE and compute_dtype != "bfloat16":
            inner = replace(p, stride=1)
            return cls("grad_output", inner, step, (0, 0), inner.small_size[1:])
        return None


def kernel_problem(p: ConvProblem, gradient: str, compute_dtype: str, profile: Profile) -> ConvProblem:
    """Return the convolution whose gradient a kernel makes; Dilation or Transpose does the rest."""
    found: Dilated | Patches | Folded | None
    found = Dilated.of(p, compute_dtype, profile) if gradient == "grad_input" else Patches.of(p, profile)
    found = found or Folded.of(p, gradient, profile)
    return found.problem if found else p
