"""What L2 makes of a transfer: parts of its bytes, worked out exactly, once for each class of transfers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Share = Fraction | int


class Outcome(NamedTuple):
    """The outcome of a transfer in L2, as parts of its bytes.

    `fetched` of them cross the link from main memory for this core, which waits for `readers` times as many:
    the others cross for those that wait for the same. `pushed_out` as many dirty bytes leave on the way.
    The part `together` is read by several cores in one round.

    An example: in a cold L2 four equal cores read the same slice of 4000 bytes in one round, then all of them
    read it again, then each reads 1000 bytes of its own while 2000 bytes that were written before have to go.
    The first read is Outcome(fetched=1/4, readers=4, together=1): the 4000 bytes come once, 1000 on behalf of
    each core, and each waits for all of them. The second is Outcome(together=1): a hit in company. The third
    is Outcome(fetched=1). All of them also have pushed_out=1/18: the 2000 dirty bytes leave beside the
    4 * (4000 + 4000 + 1000) bytes that are read, wherever in the phase the room was needed.
    """

    fetched: Share = 0
    pushed_out: Share = 0
    readers: Share = 1
    together: Share = 0

    @property
    def uses_memory(self) -> bool:
        """Whether any byte crosses the link to main memory."""
        return bool(self.fetched or self.pushed_out)


HIT = Outcome()
# Instruction -> what L2 makes of its traffic, where that is not a plain hit.
Outcomes = Mapping[int, Outcome]


class PhaseOutcomes(NamedTuple):
    """What L2 makes of all transfers of a phase: for each lane the number of every transfer's outcome.

    Types    `numbers` int32, each naming one of `outcomes`, which are distinct; number 0 is a plain hit
    """

    numbers: tuple[NDArray[np.int32], ...]
    outcomes: tuple[Outcome, ...]

    def of_lane(self, lane: int, instructions: Sequence[int]) -> Outcomes:
        """Return the outcomes of a lane that are no plain hits, by the numbers of their instructions."""
        numbers = self.numbers[lane]
        return {instructions[at]: self.outcomes[numbers[at]] for at in np.flatnonzero(numbers).tolist()}


class Met(NamedTuple):
    """What the outcome of a class of transfers follows from: the columns of `classes` (`columns.py`)."""

    company: int
    carries: int
    cores: int
    tensor: int
    bytes: int
    fetched: int
    sharers: int
    readers: int
    own: int

    def outcome(self, apart: int, parts: int, pushed: Share) -> Outcome:
        """Return the outcome, the mean over the cores of the group; `pushed` is what a byte carries.

        Of the slices of the tensor that are not known, `apart` of `parts` are no known ones.
        """
        # The program is one for all cores of a group, so each of its transfers has the mean of their
        # outcomes. So many of them access the known slice, in parts of a core; the others one of their own.
        accessing = parts + (self.cores - 1) * (parts - apart)
        together = _share(accessing, self.cores * parts) if self.company else 0
        carried = pushed if self.carries else 0
        if not self.fetched and not self.own:
            return Outcome(0, carried, 1, together)
        # In parts of a byte, so many that all are whole: bytes that come for the known slice, and for others.
        known, own, moved = self.fetched * accessing, self.own, self.cores * self.bytes
        if known:
            own, moved = own * self.sharers, moved * self.sharers
        # A core waits for all that those wait for who came with it; nobody comes with it for its own.
        waited = known * self.readers + own * parts
        return Outcome(_share(known + own, moved), carried, _share(waited, (known + own) * parts), together)


def _share(part: int, of: int) -> Share:
    """Return a part as a fraction, or as an int where it is one; ints are faster."""
    return part // of if part % of == 0 else Fraction(part, of)
