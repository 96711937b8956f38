"""grad_weight of wide kernels that lie side by side, as the interface makes it: that of one tap.

Where stride = kernel every pixel of an image is met by one tap of one placement. A Transpose brings together
the pixels that a tap meets, so that taps become channels:

    input (N, Ci, pixels of kernels side by side) ──Transpose──> (N, Ci taps, placements)
    grad_weight (Co, Ci taps) of one tap          ─────────────> (Co, Ci, taps), as it lies
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from ascendsim.ops.problems.as_product import covers_image, may_be_product
from ascendsim.ops.problems.convolution import ConvProblem

if TYPE_CHECKING:
    from ascendsim.profile import Profile

LEAST_KERNEL = 8


class Patches(NamedTuple):
    """How a grad_weight of kernels side by side is made.

    problem   the convolution of one tap whose grad_weight the kernel makes
    split     shape of input with every axis as (placement, tap); `axes`: their order afterwards
    """

    problem: ConvProblem
    split: tuple[int, ...]
    axes: tuple[int, ...] = (0, 1, 3, 5, 7, 2, 4, 6)

    @classmethod
    def of(cls, p: ConvProblem, profile: Profile) -> Patches | None:
        """Return how the product's interface makes a grad_weight by one tap; None where it does not.

        That each axis along which the kernel has several taps must have 8 of them, and that no pixel may be
        left over, is our reading. A kernel as large as the image is a matrix product (`gradient_product`).

        Source   public ops-nn at e5c3fa932, as read: the operator's interface code
        """
        wide = {size for size in p.kernel if size > 1}
        if not may_be_product(p, profile) or p.kernel == p.big_size:
            return None
        if not wide or min(wide) < LEAST_KERNEL or not covers_image(p):
            return None
        channels = p.big_channels * prod(p.kernel)
        inner = replace(
            p,
            input=(p.batch, channels, *p.grad_output[2:]),
            weight=(p.small_channels, channels, *(1,) * p.rank),
            stride=1,
        )
        pairs = [size for pair in zip(p.small_size, p.kernel, strict=True) for size in pair]
        return cls(inner, (p.batch, p.big_channels, *pairs))
