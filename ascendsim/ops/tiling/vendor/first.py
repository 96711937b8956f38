"""Tilings as the operators of the first generation (910, 310P) choose them.

grad_input    whole images in a block, what fits of weights and image in L1
grad_weight   images dealt to blocks; each block adds its whole result
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import partial
from math import ceil, isqrt, prod
from typing import TYPE_CHECKING, Final, NamedTuple

from ascendsim.instructions.cube import FRACTAL_ROWS, round_up
from ascendsim.ops.plan import Tiling
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.products import DgradGemm, WgradGemm
from ascendsim.ops.schedules.dgrad.tasks import most_rows
from ascendsim.ops.tiling.vendor.layer import wgrad_channels
from ascendsim.profile import Profile

if TYPE_CHECKING:
    from ascendsim.ops.tiling.request import PlanRequest


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
        found = _dgrad_dealt(gemm, profile, grid)
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
        found = _dgrad_dealt(gemm, profile, grid)
        if found is not None:
            yield work(grid), found[1]


def _dgrad_dealt(gemm: DgradGemm, profile: Profile, grid: _FirstDgradGrid) -> tuple[int, Tiling] | None:
    """Return the passes over L0C of an image and the tiling under a grid; None if L1 holds no tile."""
    # In fractals of 16 pixels, groups of C0 channels, and (channel group, tap) pairs.
    m = ceil(ceil(gemm.sliding.pixels / FRACTAL_ROWS) / grid.m)
    n = gemm.columns // gemm.sliding.c0 // grid.n
    tile = least_traffic(m, n, _dgrad_tiles(gemm, profile, m, n))
    tiling = tile and _dgrad_in_l1(gemm, profile, tile, n // tile.n)
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


def _dgrad_tiles(gemm: DgradGemm, profile: Profile, m: int, n: int) -> Iterator[FirstTile]:
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


def _dgrad_in_l1(gemm: DgradGemm, profile: Profile, tile: FirstTile, columns: int) -> Tiling | None:
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


# Blocks along images where a batch has as many. Parts with 30 cores run 32 blocks in two rounds: so the block
# counts of measured kernels say.
BLOCKS = {"1001": 32}
# Where cores are left for fewer blocks of an image, its product is cut in at most so many parts.
MOST_PARTS = 3


class _FirstWgradGrid(NamedTuple):
    """Parts of the batch, of the rows and the columns of the product, and of the rows of an image."""

    batch: int
    m: int
    n: int
    height: int

    @property
    def blocks(self) -> int:
        """The number of all blocks."""
        return self.batch * self.m * self.n * self.height


def first_wgrad(gemm: WgradGemm, profile: Profile, blocks: int) -> Tiling | None:
    """Return the tiling of a grad_weight; None if L1 holds no tile of whole image rows.

    blocks   how many blocks the grid has, None returned where none has so many; 0: as the rules choose
    Source   the operators' search of the first generation; block counts of measured kernels
    """
    grid: _FirstWgradGrid | None = _grid(gemm, profile)
    if blocks and grid and grid.blocks != blocks:
        grid = _grid_of(gemm, blocks)
    return _dealt(gemm, profile, grid) if grid else None


def all_wgrads(gemm: WgradGemm, profile: Profile, blocks: int) -> Iterator[tuple[int, Tiling]]:
    """Yield the tilings under all grids that cut the images evenly, and what their largest block multiplies.

    In cycles of the cube. The grids have at most as many blocks as there are cores; not 0: so many.
    """
    most = profile.cores.cube
    grids = [
        grid
        for count in ((blocks,) if blocks else range(1, most + 1))
        for batch in divisors(gemm.batch)
        if count % batch == 0
        for grid in _cuts(gemm, batch, count // batch)
    ]
    for grid in sorted(grids, key=lambda grid: (_work(gemm, grid), _moved(gemm, grid))):
        tiling = _dealt(gemm, profile, grid)
        if tiling is not None:
            lines = ceil(gemm.sliding.out_size[1] / FRACTAL_ROWS)
            yield _work(gemm, grid) * lines * gemm.all_taps.rows * gemm.all_taps.cols, tiling


def _grid(gemm: WgradGemm, profile: Profile) -> _FirstWgradGrid:
    """Return the grid that the rules choose.

    Images come first. What they leave of the cores shares the sides of an image's product and its lines, so
    that a block moves the fewest bytes. Grids of measured kernels have parts of lines: 20 blocks for 32
    images and 4 x 4 groups of channels. How the operator weighs lines against sides is assumed.
    """
    cores = profile.cores.cube
    batch = min(gemm.batch, BLOCKS.get(profile.npu_arch, cores))
    left = cores // batch
    if left >= MOST_PARTS:
        grids = (grid for count in range(1, left + 1) for grid in _cuts(gemm, batch, count))
        return min(grids, key=partial(_moved, gemm))
    # At most two rounds; of a batch that keeps all cores at work a block takes whole images.
    parts = [count for count in range(2, MOST_PARTS + 1) if batch < cores and batch * count <= 2 * cores]
    sides = (grid for count in (1, *parts) for grid in _cuts(gemm, batch, count) if grid.height == 1)
    return min(sides, key=lambda grid: (_rounds(grid, cores), grid.blocks, _moved(gemm, grid)))


def _rounds(grid: _FirstWgradGrid, cores: int) -> Fraction:
    """Return the number of rounds of an image's product on the cores, one after the other."""
    return Fraction(ceil(grid.blocks / cores) * grid.batch, grid.blocks)


def _grid_of(gemm: WgradGemm, blocks: int) -> _FirstWgradGrid | None:
    """Return the grid of so many blocks with the least work for each, then the fewest bytes moved."""
    grids = (grid for batch in divisors(blocks) for grid in _cuts(gemm, batch, blocks // batch))
    found = (grid for grid in grids if grid.batch <= gemm.batch)
    # Of grids that move as much that with the most parts of the batch, whose pixels lie in one piece.
    keyed = (((_work(gemm, grid), _moved(gemm, grid), -grid.batch), grid) for grid in found)
    return min(keyed, default=(None, None))[1]


def _cuts(gemm: WgradGemm, batch: int, count: int) -> Iterator[_FirstWgradGrid]:
    """Yield the grids that share the images of a part of the batch among so many blocks."""
    rows, channels = gemm.rows // gemm.sliding.c0, gemm.all_taps.channels
    for m in divisors(count):
        for n in divisors(count // m):
            high = count // (m * n)
            if rows % m == 0 and channels % n == 0 and high <= gemm.sliding.out_size[0]:
                yield _FirstWgradGrid(batch, m, n, high)


def _work(gemm: WgradGemm, grid: _FirstWgradGrid) -> int:
    """Return the lines of a block times its fractals of the result."""
    lines = ceil(gemm.batch / grid.batch) * ceil(gemm.sliding.out_size[0] / grid.height)
    return lines * (gemm.rows // gemm.sliding.c0 // grid.m) * (gemm.all_taps.channels // grid.n)


def _moved(gemm: WgradGemm, grid: _FirstWgradGrid) -> int:
    """Return the bytes that a block loads of both operands and adds to the result."""
    s, taps = gemm.sliding, gemm.all_taps
    box = taps._replace(channels=taps.channels // grid.n)
    rows, pixels = gemm.rows // grid.m, ceil(s.out_size[0] / grid.height) * s.out_size[1]
    loads = rows * pixels * s.itemsize + s.tile_bytes(pixels, box, in_row=False)
    result = rows * box.channels * taps.rows * taps.cols * s.c0 * SUM_BYTES
    return ceil(gemm.batch / grid.batch) * loads + result


def _dealt(gemm: WgradGemm, profile: Profile, grid: _FirstWgradGrid) -> Tiling | None:
    """Return the tiling under a grid; None if L1 holds no tile of whole image rows."""
    m, n, m_dim, n_dim = gemm.rows // gemm.sliding.c0, gemm.all_taps.groups, grid.m, grid.n
    tile = least_traffic(m // m_dim, n // n_dim, _tiles(gemm, profile, m // m_dim, n // n_dim))
    if tile is None:
        return None
    tiles = m // m_dim // tile.m, n // n_dim // tile.n
    tiling = _in_l1(gemm, profile, tile, tiles, several=gemm.batch > grid.batch)
    if tiling is None:
        return None
    used = min(profile.cores.cube, grid.blocks)
    high = 0 if grid.height == 1 else grid.height
    return replace(tiling, batch_dim=grid.batch, m_dim=m_dim, n_dim=n_dim, k_dim=high, used_cores=used)


def _l0(gemm: WgradGemm, profile: Profile) -> L0:
    c0 = gemm.sliding.c0
    return L0(profile, Units(c0, c0, FRACTAL_ROWS, gemm.sliding.itemsize))


def _tiles(gemm: WgradGemm, profile: Profile, m: int, n: int) -> Iterator[FirstTile]:
    """Yield the tiles that L0 holds: m and n divide the whole, n in whole kernel rows, k fills the rest."""
    l0, taps, k = _l0(gemm, profile), gemm.all_taps, ceil(gemm.sliding.pixels / FRACTAL_ROWS)
    for m0 in divisors(m):
        for n0 in divisors(n):
            k0 = min(l0.longest(m0, n0), k)
            if n0 % taps.cols == 0 and k0 and l0.sums(m0, n0):
                yield FirstTile(m0, n0, k0)


def _in_l1(
    gemm: WgradGemm, profile: Profile, tile: FirstTile, tiles: tuple[int, int], *, several: bool
) -> Tiling | None:
    """Return the tiling that L1 holds with the least traffic.

    A pair of L1 tiles holds as many pixels as fit, both in two copies. Where those are the whole of the only
    image, operands stay for all tiles of the block as far as they fit: both, the right one, the left one.

    tiles     of a block, down and across
    several   whether a block has more than one image: they come one at a time, and nothing stays
    """
    s, taps = gemm.sliding, gemm.all_taps
    l1, whole = profile.buffers["L1"].capacity_bytes, ceil(s.pixels / (tile.k * FRACTAL_ROWS))
    channels = wgrad_channels(tile.n * s.c0, taps.rows * taps.cols, s.c0)
    box = taps._replace(channels=min(taps.channels, channels // s.c0))
    # 8 rows of float32 take the room of whole fractals.
    held = round_up(tile.m * s.c0, profile.cube.m0)
    # More slices of the left operand alone are too many: an image may have millions.
    most = l1 // (2 * held * tile.k * FRACTAL_ROWS * s.itemsize)
    for steps in range(min(whole, most), 0, -1):
        pixels = steps * tile.k * FRACTAL_ROWS
        left = held * pixels * s.itemsize
        right = s.tile_bytes(min(pixels, s.pixels), box, in_row=False)
        if 2 * (left + right) <= l1:
            break
    else:
        return None
    copies = _l0(gemm, profile).sums(tile.m, tile.n)
    made = Tiling(tile.m * s.c0, tile.n * s.c0, tile.k * FRACTAL_ROWS, steps, steps, 2, 2, cl0_buffers=copies)
    if steps < whole or several:
        return made
    rows, columns = tiles
    resident = ((rows, columns), (2, columns), (1, columns), (rows, 2), (rows, 1))
    fitting = [(a, b) for a, b in resident if a * left + b * right <= l1]
    # Of a single tile there is nothing to keep, but the next image may come meanwhile.
    al1, bl1 = fitting[0] if fitting and rows * columns > 1 else (2, 2)
    return replace(made, al1_buffers=al1, bl1_buffers=bl1)


# The product variant that entries were tuned on, whose measured kernels show them.
SIBLING: Final = 32
TOLD_BY: Final = ("1001", 30)
# From so many images on ResNet-50 has entries; for grad_input they are known of so many alone.
LEAST_IMAGES: Final = 32
GROUP: Final = 16


def tuned_tiling(request: PlanRequest) -> Tiling | None:
    """Return the tiling under the grid that is fastest on the sibling of 32 cores; None where none fits."""
    # Imported here, as all that times kernels is: few calls do while they are planned.
    from ascendsim.ops.schedules.base import schedule_named
    from ascendsim.ops.tiling.timed import fastest_of_all

    gemm, cores = request.gemm, request.profile.cores
    sibling = replace(request.profile, cores=cores._replace(cube=max(SIBLING, request.blocks)))
    dgrad = request.gradient == "grad_input"
    tilings = (all_dgrads if dgrad else all_wgrads)(gemm, sibling, request.blocks)
    found = fastest_of_all(schedule_named("dgrad" if dgrad else "wgrad"), gemm, sibling, tilings)
    return found and replace(found, used_cores=min(found.used_cores, cores.cube))


def has_entry(request: PlanRequest) -> bool:
    """Return whether the operators are known to have an entry for a layer."""
    problem, profile = request.problem, request.profile
    assert isinstance(problem, ConvProblem)
    if (profile.npu_arch, profile.cores.cube) != TOLD_BY or problem.rank != 2:
        return False
    if request.gradient == "grad_input":
        # So many blocks of whole images are those of the rules.
        told = problem.batch == LEAST_IMAGES and request.blocks != min(problem.batch, profile.cores.cube)
    else:
        told = problem.batch >= LEAST_IMAGES
    return told and _shape(problem) in _RESNET_50


def _shape(problem: ConvProblem) -> tuple[int, ...] | None:
    """Return groups of channels on both sides, rows, taps in a row and step; None of uneven layers."""
    same = (
        (problem.big_size[1], problem.kernel[1], problem.strides[1], problem.pads[1]),
        (problem.big_size[2], problem.kernel[2], problem.strides[2], problem.pads[2]),
    )
    plain = problem.groups == 1 and not problem.transposed and max(problem.dilations) == 1
    size, taps, stride, pads = same[0]
    if same[0] != same[1] or not plain or set(pads) != {taps // 2}:
        return None
    return -(-problem.big_channels // GROUP), -(-problem.small_channels // GROUP), size, taps, stride


def _resnet_50() -> Iterator[tuple[int, ...]]:
    """Yield the shapes of ResNet-50's layers, the step of a stage in its layer of three taps."""
    yield 1, 4, 224, 7, 2
    into, size = 4, 56
    for stage in range(4):
        width = 4 << stage
        step = 1 if stage == 0 else 2
        yield into, width, size, 1, 1
        yield width, width, size, 3, step
        yield into, 4 * width, size, 1, step
        into, size = 4 * width, size // step
        yield width, into, size, 1, 1
        yield into, width, size, 1, 1
        yield width, width, size, 3, 1


_RESNET_50: Final = frozenset(_resnet_50())
