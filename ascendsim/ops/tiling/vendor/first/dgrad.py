"""grad_input of the first generation: whole images in a block, what fits of weights and image in L1."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import ceil, isqrt, prod
from typing import NamedTuple

from ascendsim.instructions.cube import FRACTAL_ROWS, round_up
from ascendsim.ops.plan import Tiling
from ascendsim.ops.problems.products import DgradGemm
from ascendsim.ops.schedules.dgrad.tasks import most_rows
from ascendsim.profile import Profile

# L0C adds in float32.
SUM_BYTES = 4


class FirstTile(NamedTuple):
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
    """Limits by L0A, L0B and L0C of a product; L0A and L0B hold two copies of a tile."""

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
        # A tile takes the room of whole fractals, even where it does not fill them.
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


def least_traffic(m: int, n: int, tiles: Iterator[FirstTile]) -> FirstTile | None:
    """Return the tile of a product of m x n units that loads L0 the least; of equal ones the largest."""
    # The left operand is loaded once for each column of tiles, the right one for each row of them.
    return min(tiles, key=lambda t: (ceil(m / t.m) * n + ceil(n / t.n) * m, -t.m * t.n * t.k), default=None)


class _FirstDgradGrid(NamedTuple):
    """Blocks along images, columns and rows."""

    batch: int
    n: int
    m: int

    @property
    def blocks(self) -> int:
        """The number of all blocks."""
        return self.batch * self.n * self.m


def first_dgrad(gemm: DgradGemm, profile: Profile, blocks: int) -> Tiling | None:
    """Return the tiling of a grad_input; None if L1 holds no tile of whole image rows.

    blocks   how many blocks the grid has; 0: as the rules choose

    Source   the operators' search of the first generation; block counts of measured kernels
    """
    best: tuple[tuple[int, ...], Tiling] | None = None
    for grid in _grids_of(gemm, blocks) if blocks else _grids(gemm, profile):
        found = _dealt(gemm, profile, grid)
        if found is None:
            continue
        # Every part of batch and rows loads all weights, every part of the columns the whole of grad_output:
        # the tensors as they lie in memory, not the sides of the product, which hold its pixels once a tap.
        weights, image = prod(gemm.weights.shape), prod(gemm.source.shape)
        traffic = grid.batch * grid.m * weights + grid.n * image
        key = found[0], -grid.blocks, traffic
        if best is None or key < best[0]:
            best = key, found[1]
    return best and best[1]


def all_dgrads(gemm: DgradGemm, profile: Profile, blocks: int) -> Iterator[tuple[int, Tiling]]:
    """Yield the tilings under all grids that cut the images evenly, and what their largest block multiplies.

    In cycles of the cube. The grids have at most as many blocks as there are cores; not 0: so many.
    """
    most = profile.cores.cube
    rows, columns = ceil(gemm.sliding.pixels / FRACTAL_ROWS), gemm.columns // gemm.sliding.c0
    grids = [
        _FirstDgradGrid(batch, n, m)
        for batch in divisors(gemm.batch)
        for n in divisors(columns)
        for m in range(1, min(gemm.sliding.out_size[0], most // (batch * n)) + 1)
        if not blocks or batch * n * m == blocks
    ]

    def work(grid: _FirstDgradGrid) -> int:
        each = ceil(rows / grid.m) * (columns // grid.n)
        return gemm.batch // grid.batch * each * gemm.channel_groups * gemm.taps

    for grid in sorted(grids, key=work):
        found = _dealt(gemm, profile, grid)
        if found is not None:
            yield work(grid), found[1]


def _dealt(gemm: DgradGemm, profile: Profile, grid: _FirstDgradGrid) -> tuple[int, Tiling] | None:
    """Return the passes over L0C of an image and the tiling under a grid; None if L1 holds no tile."""
    # In fractals of 16 pixels, groups of C0 channels, and (channel group, tap) pairs.
    m = ceil(ceil(gemm.sliding.pixels / FRACTAL_ROWS) / grid.m)
    n = gemm.columns // gemm.sliding.c0 // grid.n
    tile = least_traffic(m, n, _tiles(gemm, profile, m, n))
    tiling = tile and _in_l1(gemm, profile, tile, n // tile.n)
    if tile is None or tiling is None:
        return None
    used = min(profile.cores.cube, grid.blocks)
    dealt = replace(tiling, batch_dim=grid.batch, n_dim=grid.n, m_dim=grid.m, used_cores=used)
    # Of one image: all grids of a kernel cut the batch alike.
    return ceil(m / tile.m) * (n // tile.n), dealt


def _grids(gemm: DgradGemm, profile: Profile) -> Iterator[_FirstDgradGrid]:
    """Yield the grids that come into question: images first, whatever is left to columns and rows."""
    # Images are dealt to as many blocks as there are cores, even where they do not divide: 32 images on 30
    # cores take as long as two images each.
    batch = min(gemm.batch, profile.cores.cube)
    left = profile.cores.cube // batch
    rows = ceil(gemm.sliding.pixels / FRACTAL_ROWS)
    for n in divisors(gemm.columns // gemm.sliding.c0):
        if n <= left:
            yield _FirstDgradGrid(batch, n, min(rows, left // n))


def _grids_of(gemm: DgradGemm, blocks: int) -> Iterator[_FirstDgradGrid]:
    """Yield the grids of so many blocks: as many parts of the batch as there can be, columns by divisors."""
    rows = ceil(gemm.sliding.pixels / FRACTAL_ROWS)
    columns = gemm.columns // gemm.sliding.c0
    batch = max(part for part in divisors(blocks) if part <= gemm.batch)
    for n in divisors(blocks // batch):
        m = blocks // (batch * n)
        if columns % n == 0 and m <= rows:
            yield _FirstDgradGrid(batch, n, m)


def _tiles(gemm: DgradGemm, profile: Profile, m: int, n: int) -> Iterator[FirstTile]:
    """Yield the tiles that L0 holds: n and k divide the whole, m fills what they leave."""
    c0 = gemm.sliding.c0
    l0 = L0(profile, Units(FRACTAL_ROWS, c0, c0, gemm.sliding.itemsize))
    m = min(m, most_rows(gemm, profile) // FRACTAL_ROWS)
    for n0 in divisors(n):
        for k0 in divisors(gemm.channel_groups * gemm.taps):
            # Two copies in L0C: a tile leaves while the next one is added up.
            m0 = last_of(m, lambda rows: l0.longest(rows, n0) >= k0 and l0.sums(rows, n0) == 2)  # noqa: B023
            if m0:
                yield FirstTile(m0, n0, k0)


def _in_l1(gemm: DgradGemm, profile: Profile, tile: FirstTile, columns: int) -> Tiling | None:
    """Return the tiling that L1 holds with the least traffic from GM; `columns` are the tiles along n.

    In this order: all weights of the block beside two image tiles or one; the whole reduction of two or one
    image tiles and of two tiles of weights; an image tile with its whole reduction, weights in parts; both in
    parts.
    """
    s, taps, whole = gemm.sliding, gemm.taps, gemm.all_taps
    l1 = profile.buffers["L1"].capacity_bytes
    m, c0 = tile.m * FRACTAL_ROWS, s.c0

    def image(channels: int) -> int:
        return s.tile_bytes(m, whole._replace(channels=channels), in_row=False)

    def weights(channels: int) -> int:
        return channels * taps * c0 * round_up(tile.n * c0, profile.cube.n0) * s.itemsize

    def steps(channels: int) -> int:
        return ceil(channels * taps / tile.k)

    def tiling(left: int, right: int, al1: int, bl1: int) -> Tiling:
        step_ka, step_kb = steps(left), steps(right)
        return Tiling(m, tile.n * c0, tile.k * c0, step_ka, step_kb, al1, bl1, cl0_buffers=2)

    c1 = whole.channels
    for bl1 in (columns, 2):
        for al1 in (2, 1):
            if al1 * image(c1) + bl1 * weights(c1) <= l1:
                return tiling(c1, c1, al1, bl1)
    # A part is a divisor of the channel groups, so that tiles of both operands end together; slices that hold
    # it must not reach a group further, which the tile would hold as well.
    parts = [part for part in reversed(divisors(c1)) if steps(part) * tile.k // taps == part]
    for part in parts:
        if image(c1) + 2 * weights(part) <= l1:
            return tiling(c1, part, 1, 2)
    for part in parts:
        if 2 * (image(part) + weights(part)) <= l1:
            return tiling(part, part, 2, 2)
    return None
