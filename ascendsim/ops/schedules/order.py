"""The order of additions that a plan fixes: all of the plan that the bits depend on."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class DgradOrder:
    """The order of grad_input: C0, and how many (channel group, tap) pairs each Mmad in turn takes.

    The slices cover the reduction at one kernel depth; every kernel depth repeats them. Where the reduction
    is cut into parts, `parts` holds the number of slices of each; a part runs through all kernel depths, and
    the parts are added to a zero in global memory, one after the other.
    """

    # The blocks of an accumulation model start anew with every Mmad, so where each one ends matters to the
    # bits. Which core makes it, when, and from which slot, does not.
    c0: int
    slices: tuple[int, ...]
    parts: tuple[int, ...] = ()

    def runs(self) -> list[tuple[int, ...]]:
        """Return the slices of each part."""
        # Without parts the whole reduction is one, which is not added to anything.
        ends = list(accumulate(self.parts)) or [len(self.slices)]
        return [self.slices[first:last] for first, last in pairwise([0, *ends])]


@dataclass(frozen=True)
class WgradOrder:
    """The order of grad_weight.

    ranges    (first pixel, pixels) of the runs into which the pixels of one image are cut, in order
    base_k    pixels of one Mmad, counted from the beginning of each range
    k_split   parts of the reduction; part p takes segments count * p // k_split ... of all (pair of depths,
              image, range) at a kernel depth
    shares    if any: how many of the ranges each share of an image has; part (image * small depths + depth) *
              len(shares) + s takes share s of one image at one small depth, whatever depth of the big side
    tree      the parts are added as a binary tree: neighbours first, then sums of two, of four, ...
    arrivals  None: the parts are added as 0, 1, 2, ..., beginning with part 0;
              (k_split, *weight): for each element the number of the part that is added first, second, ... to
              a zero in global memory
    """

    ranges: tuple[tuple[int, int], ...]
    base_k: int
    k_split: int = 1
    arrivals: NDArray[np.int_] | None = None
    tree: bool = False
    shares: tuple[int, ...] = ()


@dataclass(frozen=True)
class MatmulOrder:
    """The order of a matrix product: its reduction goes through Mmads of so many elements."""

    base_k: int
