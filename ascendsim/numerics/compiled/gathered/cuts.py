"""Where a reduction that was made by many Mmads may be cut into pieces, fewer or more, with the same bits."""

from collections.abc import Sequence
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np

from ascendsim.numerics.accumulation.models import AccumulationModel
from ascendsim.numerics.compiled.gathered.factor import Places

# The kinds whose accumulators know of earlier products nothing but their values, and the one whose Mmads are
# its blocks. Another kind is unknown here until somebody has thought about it.
CHAINS = ("seq", "seq-muladd")
BLOCKS = ("block", "block-add", "tree", "align")
MMADS = ("exact-mmad",)


class Cuts(NamedTuple):
    """Where the reductions of some products are cut, which follow each other along k.

    places   the cuts of all of them, rising; those of each begin with its start and end with its end
    firsts   (products + 1,): the number of the first cut of each, and of all
    """

    places: Places
    firsts: Places

    @classmethod
    def of(cls, cuts: Sequence[Places]) -> "Cuts":
        """Put the cuts of some products together."""
        return cls(np.concatenate(cuts), np.cumsum([0, *map(len, cuts)]))

    def longest(self) -> int:
        """Return how many steps the longest piece has."""
        # From the end of one product to the start of the next there is nothing.
        return int(np.diff(self.places).max(initial=0))

    def each(self) -> list[Places]:
        """Return the cuts of each product."""
        return np.split(self.places, self.firsts[1:-1])


def is_known(model: AccumulationModel) -> bool:
    """Tell whether `cuts_of` knows how the model goes on from one Mmad to the next."""
    return model.kind in CHAINS + BLOCKS + MMADS and isinstance(model.block, int)


def cuts_of(model: AccumulationModel, ends: Places, most: int) -> Places:
    """Return a first 0 and then the ends of pieces that give the bits of the Mmads with these ends.

    ends   (Mmads,) rising; the last one is the length of the reduction
    most   steps of a piece, where nothing asks for a longer one
    """
    # Saturation looks at the accumulators whenever an Mmad ends, and only then.
    if model.overflow == "saturate" or model.kind in MMADS:
        return np.concatenate([[0], ends])
    # Inside an Mmad a block begins where the one before is full, and with every Mmad one begins. So where an
    # Mmad ends with a full block it makes no difference that it ends; and a piece may end with any block.
    block = 1 if model.kind in CHAINS else int(model.block)
    lengths = ends.copy()
    lengths[1:] -= ends[:-1]
    needed = ends[:-1][lengths[:-1] % block != 0].tolist()
    step = max(block, most // block * block)
    pieces = [range(first, last, step) for first, last in pairwise([0, *needed, int(ends[-1])])]
    return np.array([*chain(*pieces), ends[-1]])
