"""Where tiles of a reduction go in L1, and which of them comes next, in kernels that count them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ascendsim.program.indices import Number
from ascendsim.program.nest import Nest
from ascendsim.program.reserved import Ring

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]


def begins_of(counts: Iterable[int]) -> list[bool]:
    """Return by step whether a reduction begins with it, of reductions of so many steps each."""
    return [at == 0 for count in counts for at in range(count)]


class Steps:
    """The steps of all reductions, end to end, and the tiles of one operand in L1 that serve them.

    tiles    the number of the tile of each step; neighbours of one number are one tile
    begins   whether a reduction begins with a step

    chunk    which tile of its reduction a step has, from 0; chunks: how many the reduction has
    next     the first step that has the next tile of the reduction; of its last tile the first that has it
    follow   whether any tile follows another one
    """

    def __init__(self, tiles: Sequence[int], begins: Sequence[bool]) -> None:
        own, self.begins = np.asarray(tiles, np.int64), np.asarray(begins, bool)
        changes = self.begins | (np.diff(own, prepend=-1) != 0)
        number, reduction = np.cumsum(changes), np.cumsum(self.begins) - 1
        self.chunk: Numbers = number - number[self.begins][reduction]
        self.chunks: Numbers = np.bincount(reduction, changes).astype(np.int64)[reduction]
        # The first step of each tile; that of the last tile of a reduction comes after itself.
        firsts, at = np.flatnonzero(changes), number - 1
        last = self.chunk == self.chunks - 1
        self.follow = bool(len(own)) and int(self.chunks.max()) > 1
        self.next: Numbers = firsts[np.where(last, at, np.minimum(at + 1, len(firsts) - 1))]


class CountedPlaces:
    """The places of an operand's tiles in its ring, where a kernel counts instead of taking turns.

    Tile j of a reduction goes to place (b * tiles of the reduction + j) modulo the places, where b is the
    number of the base block in its task along the operand's side (blocks that are served by one tile have one
    number), and j begins at 0 with each reduction. So a reduction of one tile meets the place of the one
    before it, and so does one that follows an odd number of them, unless the block is the next one: its copy
    waits until the last one has been read.

    blocks   the number in its task of each block along the operand's side; `at` are the indices of the block
    """

    def __init__(
        self, nest: Nest, ring: Ring, steps: Steps, blocks: Sequence[int] | Numbers, at: tuple[Number, ...]
    ) -> None:
        self._nest, self._ring, places = nest, ring, ring.count
        of_block = np.arange(places)[:, None] * steps.chunks
        self._places = nest.table((of_block + steps.chunk) % places, places, f"place of {ring.name}")
        self._block = nest.table(np.asarray(blocks) % places, places, f"{ring.name} of block")[at]
        # Of more tiles than places none is there when the block is met again, though an odd number of them
        # would leave one alone.
        lost = steps.begins & (steps.chunks > places)
        self._lost = nest.table(lost, 2, f"{ring.name} is lost at") if lost.any() else None

    def __getitem__(self, step: Number) -> Number:
        return self._places[self._block, step]

    def begin(self, step: Number) -> None:
        """Forget, before a reduction, what its first tiles have been overwritten with."""
        if self._lost:
            with self._nest.when(self._lost[step]):
                self._nest.forget(self._ring)
