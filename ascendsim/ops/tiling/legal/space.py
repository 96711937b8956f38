"""What a loop nest accepts: the legal values of each field, and the room that a cut of the product takes.

A tiling is legal if every buffer holds the largest tiles of all operands at once, whichever core gets them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from typing import Any, NamedTuple

from ascendsim.cube.tile_reads import round_up
from ascendsim.ops.schedules.tiles import ACCUMULATOR_BYTES
from ascendsim.profile import Profile

# One tile, or two for ping-pong.
COPIES = (1, 2)
# L1 is filled in blocks of so many bytes: C0 channels of a pixel.
BLOCK_BYTES = 32


class Base(NamedTuple):
    """The sizes of a base block."""

    m: int
    n: int
    k: int


class Grid(NamedTuple):
    """The cells that cores make: even parts of all pixels, and parts of the columns; 0: none."""

    pixel_dim: int = 0
    n_dim: int = 0

    @property
    def cells(self) -> int:
        """How many there are."""
        return self.pixel_dim * max(1, self.n_dim)


NO_GRID = Grid()


class Cut(NamedTuple):
    """The fields that decide which tiles lie in L1."""

    base: Base
    k_split: int
    steps: tuple[int, int]
    copies: tuple[int, int]
    grid: Grid = NO_GRID


class Footprint(NamedTuple):
    """The largest tiles in L0 in whole fractals, bytes of an element that is written, tasks to be dealt."""

    m: int
    k: int
    n: int
    itemsize: int
    tasks: int


class Space(ABC):
    """The legal cuts of one product.

    sizes    the legal values of base_m, base_n and base_k, each for itself
    splits   those of k_split
    c0       channels that leave L0C together; 0: rows of a plain matrix
    ub_taken bytes of UB that something else than results takes
    group_merge  groups of the convolution that the product has as one
    """

    schedule: str
    sizes: tuple[range, range, range]
    splits: range
    c0: int
    ub_taken: int = 0
    group_merge: int = 1

    def __init__(self, gemm: Any, profile: Profile) -> None:
        self.gemm, self.profile = gemm, profile

    @abstractmethod
    def steps(self, base_k: int, k_split: int) -> Sequence[tuple[int, int]]:
        """Return the (step_ka, step_kb) that cut the reduction into different tiles."""

    @abstractmethod
    def least(self, base: Base) -> Footprint:
        """Return the least that any cut with this base block takes."""

    @abstractmethod
    def footprint(self, cut: Cut) -> Footprint | None:
        """Return what a cut takes; None where L1 does not hold it, or where a smaller cut means the same."""

    @abstractmethod
    def count(self) -> int:
        """Return the number of legal tilings, without making each of them."""

    def bases(self) -> Iterator[Base]:
        """Yield the base blocks that L0 may hold."""
        for sizes in product(*self.sizes):
            base = Base(*sizes)
            if self.ways(self.least(base)):
                yield base

    def grids(self, base: Base) -> Sequence[Grid]:
        """Return the cells that a base block may be dealt by; none, which stands beside them, is left out."""
        del base
        return ()

    def cuts(self, base: Base) -> Iterator[tuple[Cut, Footprint]]:
        """Yield the legal cuts with a base block, and what they take."""
        for k_split in self.splits:
            for steps, *copies in product(self.steps(base.k, k_split), COPIES, COPIES):
                for grid in (NO_GRID, *self.grids(base)):
                    cut = Cut(base, k_split, steps, (copies[0], copies[1]), grid)
                    footprint = self.footprint(cut)
                    if footprint is not None:
                        yield cut, footprint

    def ways(self, footprint: Footprint) -> tuple[int, int, int] | None:
        """Return the most copies of the tiles in L0A, L0B and L0C; None if any does not fit."""
        m, k, n, itemsize, _ = footprint
        size = self.gemm.sliding.itemsize
        most = (
            self.copies_held("L0A", m * k * size),
            self.copies_held("L0B", k * n * size),
            self.copies_held("L0C", m * n * ACCUMULATOR_BYTES),
        )
        return most if all(most) and self._leaves(m, itemsize) else None

    def completions(self, footprint: Footprint) -> int:
        """Return in how many ways copies in L0 complete a cut, on one number of cores."""
        return prod(self.ways(footprint) or (0,))

    def most_cores(self, tasks: int) -> int:
        """Return how many cores get work of so many tasks."""
        # Of a gradient to which nothing contributes one core does nothing.
        return max(1, min(self.profile.cores.cube, tasks))

    def copies_held(self, buffer: str, size_bytes: int) -> int:
        """Return how many tiles of so many bytes a buffer holds; two at most are asked for."""
        figures = self.profile.buffers[buffer]
        return min(COPIES[-1], figures.capacity_bytes // round_up(size_bytes, figures.alignment_bytes))

    def l1_room(self, copies: tuple[int, int]) -> int:
        """Return the bytes of L1 for so many tiles of both operands."""
        # Where slots begin farther apart than blocks, each of them may lose what lies between.
        figures = self.profile.buffers["L1"]
        return figures.capacity_bytes - sum(copies) * max(0, figures.alignment_bytes - BLOCK_BYTES)

    def _leaves(self, m: int, itemsize: int) -> bool:
        """Return whether tiles of so many rows can leave: without Fixpipe two pieces of them lie in UB."""
        if self.profile.has_path("L0C", "GM"):
            return True
        ub, piece = self.profile.buffers["UB"], m * (self.c0 or self.profile.cube.n0) * itemsize
        return self.ub_taken + 2 * round_up(piece, ub.alignment_bytes) <= ub.capacity_bytes
