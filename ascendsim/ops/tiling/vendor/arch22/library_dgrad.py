"""The grid and the tiles of a 2-D grad_input on 910B and 910_93, as the library of their operators cuts it.

Source   measured kernels of AlexNet in HF32 on 910B2, whose counters show grid and tiles; the older, public
         version of the library for what they do not show: which operand stays in L1, and the reduction of
         one Mmad of 16-bit operands, where no kernel was measured
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ascendsim.ops.plan import Tiling
from ascendsim.ops.problems.products import DgradGemm
from ascendsim.ops.tiling.search.costs import Rates, SearchCosts
from ascendsim.ops.tiling.vendor.arch22.library_tiles import FRACTAL_BYTES, RESULT_BYTES, divisors_up_to
from ascendsim.ops.tiling.vendor.layer import FRACTAL
from ascendsim.profile import Profile

if TYPE_CHECKING:
    from numpy.typing import NDArray


WIDE_BYTES = 4
# A grid that does not divide the batch, or leaves cores idle, must be so much better than the best that does.
PREFERENCE = 1.25


class FractalLimits(NamedTuple):
    """Fractals that a base block may have: 128 and 64 on a 910B.

    results   of L0C, in one copy
    operand   of 512 bytes in one of two copies, in L0A and in L0B
    """

    results: int
    operand: int

    @classmethod
    def of(cls, profile: Profile) -> FractalLimits:
        """Return the limits that the buffers of a product set."""
        l0a, l0b, l0c = (profile.buffers[name].capacity_bytes for name in ("L0A", "L0B", "L0C"))
        return cls(l0c // RESULT_BYTES, min(l0a, l0b) // 2 // FRACTAL_BYTES)


class LibraryCells(NamedTuple):
    """A grid, with the images of one cell and its fractals along m and n."""

    batch_dim: int
    m_dim: int
    n_dim: int
    images: int
    m: int
    n: int

    @property
    def cells(self) -> int:
        """All cells of the grid, one for each core."""
        return self.batch_dim * self.m_dim * self.n_dim


class FractalBlock(NamedTuple):
    """Fractals of a base block, the base blocks of one image in a cell, and the cycles of all their Mmads.

    k   the (channel group, tap) pairs of one Mmad
    """

    m: int
    n: int
    k: int
    blocks: int
    cycles: int


def library_dgrad(gemm: DgradGemm, profile: Profile, blocks: int = 0) -> Tiling | None:
    """Return the tiling of grad_input, None where whole rows of a few channel groups do not fit into L1.

    Grid     the least images x tiles x steps x max(MTE1, M) of a cell, over all grids whose parts along n
             divide the blocks of 16 columns; one that divides the batch and uses all cores is taken unless it
             is 25 % worse
    Tiles    at most 128 fractals of L0C in one copy; a Mmad of 4-byte operands takes one group of C0 channels
             under one tap, one of 2 bytes as many as divide the reduction and fit in half of L0A and L0B
    L1       of 4-byte operands all channels of an image tile, and two groups of the weights; else the least
             bytes over MTE2. An operand that is whole has one copy, the other one two
    blocks   cells of the grid, None returned where none has so many; 0: at most one for each core
    """
    costs = SearchCosts(Rates(profile, gemm.compute_dtype, profile.cores.cube), gemm.sliding, "L0A")
    grids = [parts for parts in _dgrad_grids(gemm, profile.cores.cube) if not blocks or parts.cells == blocks]
    chosen = _chosen(gemm, costs, grids, profile.cores.cube)
    if chosen is None:
        return None
    parts, tiles = chosen
    s = gemm.sliding
    for k in (pairs for pairs in range(tiles.k, 0, -1) if tiles.k % pairs == 0):
        base = min(tiles.m * FRACTAL, s.pixels), min(tiles.n * FRACTAL, gemm.columns), k * s.c0
        steps = _l1_steps(gemm, profile, parts, tiles, base)
        if steps is not None:
            break
    else:
        return None
    whole = gemm.all_taps.groups // k
    return Tiling(
        *base,
        *steps,
        al1_buffers=1 if steps[0] == whole else 2,
        bl1_buffers=1 if steps[1] == whole and tiles.n * FRACTAL >= parts.n * FRACTAL else 2,
        used_cores=parts.cells,
        batch_dim=parts.batch_dim,
        m_dim=parts.m_dim,
        n_dim=parts.n_dim,
    )


def _chosen(
    gemm: DgradGemm, costs: SearchCosts, grids: Sequence[LibraryCells], cores: int
) -> tuple[LibraryCells, FractalBlock] | None:
    """Return the grid that is taken, and the tiles of a cell; None if there is no grid or no tile."""
    ranked = []
    # Many grids have cells alike, but for their images.
    known = _best_tiles(gemm, costs, sorted({(parts.m, parts.n) for parts in grids}))
    for parts in grids:
        tiles = known.get((parts.m, parts.n))
        if tiles is not None:
            uneven = gemm.batch % parts.batch_dim > 0
            ranked.append((parts.images * tiles.cycles, uneven or parts.cells < cores, parts, tiles))
    if not ranked:
        return None
    # Of equal ones the first: the batch is cut before the image.
    best = min(ranked, key=lambda found: found[0])
    preferred = min(ranked, key=lambda found: (found[1], found[0]))
    taken = preferred if not preferred[1] and preferred[0] <= PREFERENCE * best[0] else best
    return taken[2], taken[3]


def _dgrad_grids(gemm: DgradGemm, cores: int) -> Iterator[LibraryCells]:
    """Yield the grids of at most so many cells, those with most parts of the batch first.

    Parts along n divide the blocks of 16 columns; of images and rows those that would get nothing are none.
    """
    m, n = -(-gemm.sliding.pixels // FRACTAL), -(-gemm.columns // FRACTAL)
    for batch_dim in range(min(gemm.batch, cores), 0, -1):
        for m_dim in range(1, min(m, cores // batch_dim) + 1):
            images, rows = -(-gemm.batch // batch_dim), -(-m // m_dim)
            # Fewer parts of the same length would do: then those are the grid.
            if (-(-gemm.batch // images), -(-m // rows)) != (batch_dim, m_dim):
                continue
            for n_dim in divisors_up_to(n, cores // (batch_dim * m_dim)):
                yield LibraryCells(batch_dim, m_dim, n_dim, images, rows, n // n_dim)


def _best_tiles(
    gemm: DgradGemm, costs: SearchCosts, cells: Sequence[tuple[int, int]]
) -> dict[tuple[int, int], FractalBlock]:
    """Return for fractals of a cell along m and n the base block of the fewest cycles; of equals the largest.

    Cells of which no block fits in L0 are left out.
    """
    c0, room = gemm.sliding.c0, FractalLimits.of(costs.rates.profile)
    cuts = [(cell, *cut) for cell in cells for cut in _cuts(room, *cell)]
    if not cuts:
        return {}
    # One array for all blocks of all cells: numpy takes as long for a few numbers as for a few hundred.
    m, n, blocks = np.array([cut[1:] for cut in cuts]).T
    k = _pairs(gemm, room.operand // np.maximum(m, n))
    pixels, width = np.minimum(m * FRACTAL, gemm.sliding.pixels), n * FRACTAL
    load = costs.load_image(pixels, k)
    load += costs.load_weights(k * c0, width, backwards=gemm.backwards, taps=gemm.taps)
    steps = blocks * (gemm.all_taps.groups // k)
    cycles = steps * np.maximum(load, costs.mmad(pixels, k * c0, width))
    best: dict[tuple[int, int], int] = {}
    pairs, taken = k.tolist(), cycles.tolist()
    for number, cut in enumerate(cuts):
        before = best.get(cut[0])
        if before is None or taken[number] < taken[before]:
            best[cut[0]] = number
    return {
        cell: FractalBlock(cuts[number][1], cuts[number][2], pairs[number], cuts[number][3], taken[number])
        for cell, number in best.items()
    }


# Layers of a network have cells alike.
@lru_cache(maxsize=1024)
def _cuts(room: FractalLimits, m_all: int, n_all: int) -> tuple[tuple[int, int, int], ...]:
    """Return the ways to cut one image's share of a cell: fractals of a block, blocks; largest first."""
    found, before = [], 0
    for columns in range(1, n_all + 1):
        n = -(-n_all // columns)
        # The fewest rows of blocks that L0A and L0C allow; more would only load the weights more often.
        most = min(room.operand, room.results // n) if n <= room.operand else 0
        if most and n != before:
            rows = -(-m_all // most)
            found.append((-(-m_all // rows), n, rows * columns))
        before = n
    return tuple(found)


def _pairs(gemm: DgradGemm, most: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the (channel group, tap) pairs that one Mmad adds, of as many as L0A and L0B hold."""
    # Weights of 4 bytes are turned over in blocks of 16 x 16: counters show 8 channels in each Mmad.
    if gemm.sliding.itemsize == WIDE_BYTES:
        return np.ones_like(most)
    whole = gemm.all_taps.groups
    fitting = [pairs for pairs in range(1, int(most.max()) + 1) if whole % pairs == 0]
    return np.array(fitting)[np.searchsorted(fitting, most, side="right") - 1]


def _l1_steps(
    gemm: DgradGemm, profile: Profile, parts: LibraryCells, tiles: FractalBlock, base: tuple[int, int, int]
) -> tuple[int, int] | None:
    """Return step_ka and step_kb, None if L1 holds no tiles of whole rows, and of whole Mmads.

    Of 4-byte operands the image tile has all channels if it fits, and weights come in pairs of groups. Else
    least bytes are brought; of equal ways the shortest tiles of what is not whole, since the first of them is
    what a block waits for.
    """
    s, room = gemm.sliding, profile.buffers["L1"].capacity_bytes
    taps, channels, k = gemm.taps, gemm.channel_groups, base[2] // s.c0
    column_tiles = -(-parts.n // tiles.n)
    row_tiles = tiles.blocks // column_tiles
    # Weights of 4 bytes are turned over in blocks of 16 x 16: two groups of 8 channels together.
    pairs = FRACTAL // s.c0
    lengths = [n for n in range(1, channels + 1) if channels % n == 0 and n * taps % k == 0]
    ways = []
    for a in lengths:
        left = s.tile_bytes(base[0], gemm.all_taps._replace(channels=a), in_row=False)
        for b in lengths:
            right = b * taps * s.c0 * tiles.n * FRACTAL * s.itemsize
            # Whole weights stay for all images of a cell if there is one column of blocks.
            stays = b == channels and column_tiles == 1
            if (1 if a == channels else 2) * left + (1 if stays else 2) * right > room:
                continue
            # A whole image tile serves all columns of blocks.
            brought = parts.images * row_tiles * left * (channels // a) * (
                1 if a == channels else column_tiles
            ) + right * (channels // b) * (1 if stays else parts.images * row_tiles * column_tiles)
            alone = (a % pairs and a < channels) + (b % pairs and b < channels)
            # Counters of 4-byte kernels show image tiles with all channels, and weights pair by pair.
            counted = (a < channels, b) if s.itemsize == WIDE_BYTES else (False, 0)
            ways.append((alone, *counted, brought, a + b, a * taps // k, b * taps // k))
    # Single groups only where no pairs fit.
    return min(ways)[-2:] if ways else None
