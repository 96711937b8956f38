"""The cut of a product for L0: divisors of the whole, the least traffic between L1 and L0."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import ceil, isqrt
from typing import NamedTuple

from ascendsim.cube.tile_reads import round_up
from ascendsim.profile import Profile

# L0C adds in float32.
SUM_BYTES = 4


class Tile(NamedTuple):
    """A base block, in units of the product (`Units`)."""

    m: int
    n: int
    k: int


class Units(NamedTuple):
    """Elements in one unit of m, n and k, and the bytes of an element: pixels of a fractal, groups of C0."""

    m: int
    n: int
    k: int
    itemsize: int


class L0(NamedTuple):
    """What fits in L0A, L0B and L0C of a product; L0A and L0B hold two copies of a tile."""

    profile: Profile
    units: Units

    def longest(self, m: int, n: int) -> int:
        """Return the most units of k that L0A and L0B hold beside m and n units."""
        rows, columns = self._elements(m, n)
        held = (
            self._bytes("L0A") // 2 // (rows * self.units.itemsize),
            self._bytes("L0B") // 2 // (columns * self.units.itemsize),
        )
        return min(held) // self.units.k

    def sums(self, m: int, n: int) -> int:
        """Return how many copies of a tile L0C holds, at most two."""
        rows, columns = self._elements(m, n)
        return min(2, self._bytes("L0C") // (rows * columns * SUM_BYTES))

    def _elements(self, m: int, n: int) -> tuple[int, int]:
        # What a tile lacks to whole fractals takes its room all the same.
        cube = self.profile.cube
        return round_up(m * self.units.m, cube.m0), round_up(n * self.units.n, cube.n0)

    def _bytes(self, buffer: str) -> int:
        return self.profile.buffers[buffer].capacity_bytes


def divisors(number: int) -> list[int]:
    """Return the divisors of a number, in rising order."""
    # They come in pairs, one of which is at most the square root: channels may be millions.
    small = [part for part in range(1, isqrt(number) + 1) if number % part == 0]
    return small + [number // part for part in reversed(small) if part * part != number]


def last_of(most: int, fits: Callable[[int], bool]) -> int:
    """Return the largest number up to `most` that fits, where with a number all smaller ones fit; 0: none."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def least_traffic(m: int, n: int, tiles: Iterator[Tile]) -> Tile | None:
    """Return the tile of a product of m x n units that loads L0 the least; of equal ones the largest."""
    # The left operand is loaded once for each column of tiles, the right one for each row of them.
    return min(tiles, key=lambda t: (ceil(m / t.m) * n + ceil(n / t.n) * m, -t.m * t.n * t.k), default=None)
