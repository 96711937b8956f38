"""What a plan fixes of the order in which products are added: all that the bits depend on."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class DgradOrder:
    """What the plan of grad_input contributes: C0, and the (channel group, tap) pairs of each Mmad in turn.

    The slices cover the reduction at one kernel depth; every kernel depth repeats them. Where the reduction
    is cut into parts, `parts` holds the number of slices of each; a part runs through all kernel depths, and
    the parts are added to a zero in global memory, one after the other.
    """

    c0: int
    slices: tuple[int, ...]
    parts: tuple[int, ...] = ()

    def runs(self) -> list[tuple[int, ...]]:
        """Return the slices of each part."""
        ends = list(accumulate(self.parts)) or [len(self.slices)]
        return [self.slices[first:last] for first, last in pairwise([0, *ends])]


@dataclass(frozen=True)
class WgradOrder:
    """What the plan of grad_weight contributes.

    pieces    (first pixel, pixels) of the runs into which the pixels of one image are cut, in order
    base_k    pixels of one Mmad, counted from the beginning of each piece
    k_split   parts of the reduction; part p takes steps count * p // k_split ... of all (pair of depths,
              image, piece) at a kernel depth
    tree      the parts are added as a binary tree: neighbours first, then sums of two, of four, ...
    arrivals  None: the parts are added as 0, 1, 2, ..., beginning with part 0;
              (k_split, *weight): for each element the number of the part that is added first, second, ... to
              a zero in global memory
    """

    pieces: tuple[tuple[int, int], ...]
    base_k: int
    k_split: int = 1
    arrivals: NDArray[np.int_] | None = None
    tree: bool = False


@dataclass(frozen=True)
class MatmulOrder:
    """What the plan of a matrix product contributes: the reduction goes through Mmads of so many elements."""

    base_k: int
