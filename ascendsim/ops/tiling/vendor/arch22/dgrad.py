"""The plans of grad_input on 910B and 910_93: basic blocks of 16-bit operands, and grids of cores.

Most 2-D gradients have the plans of `library_dgrad.py` instead.

Both are for one group, which several groups of the layer may be merged into. Everything else is tiled by a
library that is not public. Ahead of the rules the operator looks into short tables of tuned shapes; these
entries follow no rule and are not here: bring one as `tiling=`.

Source   host code of the public operator (ops-nn at e5c3fa932), as read
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd, isqrt
from typing import NamedTuple

from ascendsim.instructions.cube import round_up
from ascendsim.ops.tiling.vendor.layer import (
    FRACTAL,
    LayerSizes,
    Machine,
    VendorPlan,
    align,
    ceil_div,
    dgrad_rows,
    floor_to,
    is_whole,
    largest_whole,
    rows_touched,
)

# The longer side of a block and the shorter one: with float32 they fill L0C of 128 KiB.
LONG, SHORT = 256, 128
# The longest base_k that a basic block begins with.
FIRST_K = 64
# Above this width, rows that no block divides are not cut block by block.
WIDE = 64
# What a basic block takes for the part of L2 that its kernel may rely on.
L2_SHARE_BYTES = 144 << 20
# Copies of the tiles of grad_output and of the weights in L1, in the order in which they are given up.
COPIES = ((2, 2), (2, 1), (1, 2), (1, 1))
# The grid: bytes of base_k, L1 that the kernel keeps for itself, and the least that a part has of each side.
GRID_K_BYTES, RESERVED_BYTES = 128, 128
LEAST_PIXELS, LEAST_CHANNELS = 128, 256
# The most of the reduction that one load3d addresses.
MOST_LOADED = 65535


class Dgrad22Tile(NamedTuple):
    """A base block with its tiles in L1.

    m, n, k              the base block
    a, b                 slices of base_k in one tile of grad_output and of the weights
    copies_a, copies_b   of these tiles
    """

    m: int
    n: int
    k: int
    a: int = 1
    b: int = 1
    copies_a: int = 2
    copies_b: int = 2


class Dgrad22Sizes(NamedTuple):
    """The layer and the core; the reduction is counted in windows, all taps of one C0 group of channels."""

    layer: LayerSizes
    machine: Machine

    @property
    def window(self) -> int:
        """Reduction of one C0 group."""
        return self.layer.taps * self.layer.c0

    @property
    def reduction(self) -> int:
        """Reduction at one kernel depth, with the channels padded."""
        return self.layer.co1 * self.window

    def rows_bytes(self, pixels: int) -> int:
        """Return the bytes of one channel of grad_output, zeros inserted, that so many pixels need."""
        layer = self.layer
        return layer.itemsize * dgrad_rows(layer, pixels) * layer.output[2] * layer.stride[2]

    def a_bytes(self, tile: Dgrad22Tile) -> int:
        """Return the bytes of all copies of grad_output's tile."""
        channels = max(tile.a * tile.k // self.layer.taps, 1)
        return tile.copies_a * self.rows_bytes(tile.m) * channels

    def b_bytes(self, tile: Dgrad22Tile) -> int:
        """Return the bytes of all copies of the weights' tile; float32 turns windows in pairs."""
        windows = rows_touched(tile.b * tile.k, self.window)
        if self.layer.itemsize == 4:
            windows = round_up(windows, 2)
        return tile.copies_b * self.layer.itemsize * tile.n * windows * self.window

    def fits(self, tile: Dgrad22Tile) -> bool:
        """Return whether both tiles are whole windows, one divides the other, and L1 holds their copies."""
        small, large = sorted((tile.a, tile.b))
        whole = all(step * tile.k % self.window == 0 for step in (small, large))
        return (
            bool(small and whole)
            and large % small == 0
            and self.a_bytes(tile) + self.b_bytes(tile) <= self.machine.l1
        )


def basic_block(layer: LayerSizes, machine: Machine) -> VendorPlan | None:
    """Return the plan of basic blocks; None where the operator takes another one, or no tile fits in L1."""
    if layer.itemsize != 2 or layer.groups > 1 or layer.transposed_forward:
        return None
    sizes = Dgrad22Sizes(layer, machine)
    tile = _with_steps(sizes, _base_block(sizes))
    tile = tile if sizes.fits(tile) else _shrunk(sizes, tile)
    if not sizes.fits(tile) or tile.k * max(tile.m, tile.n) * layer.itemsize > machine.l0_half:
        return None
    single_m = _pixels_of_a_task(sizes, tile)
    tasks = _tasks(sizes, tile, single_m)
    return VendorPlan(
        *("basic_block", *tile[:5]),
        single_core_m=single_m,
        single_core_n=tile.n,
        single_core_k=align(layer.co),
        al1_buffers=tile.copies_a,
        bl1_buffers=tile.copies_b,
        used_cores=min(tasks, machine.cores),
        tasks=tasks,
        order=("m", "batch", "d", "n"),
        host=_host(layer, tile.n),
    )


def _host(
    layer: LayerSizes, single_n: int, images: int = 1, dims: tuple[int, int, int, int] = (1, 1, 1, 1)
) -> tuple[tuple[str, int], ...]:
    """Return fields that no nest reads; `dims`: parts of a grid along depth, images, rows and channels."""
    channels = {
        "singleCoreCin1": ceil_div(single_n, layer.c0),
        "singleCoreCout": layer.co1 * layer.c0,
        "singleCoreCout1": layer.co1,
    }
    ones = dict.fromkeys(("stepM", "iterateOrder", "singleCoreHo", "singleCoreGroup", "groupDim", "kDim"), 1)
    parts = dict(zip(("dDim", "batchDim", "mDim", "nDim"), dims, strict=True))
    return tuple((channels | ones | parts | {"singleCoreBatch": images}).items())


def _base_block(sizes: Dgrad22Sizes) -> Dgrad22Tile:
    """Return the base block: the long side along the longer one of pixels and channels."""
    layer, machine = sizes
    half = machine.l0_half // layer.itemsize
    pixels, channels = align(layer.in_pixels), align(layer.ci)
    shorter = machine.beside(LONG, SHORT)
    long, short = (LONG, shorter) if pixels >= channels else (shorter, LONG)
    k = largest_whole(min(FIRST_K, sizes.reduction), sizes.window) or FRACTAL
    n, m = min(short, channels), min(long, pixels)
    edge = floor_to(half // k, FRACTAL)
    # A short slice leaves room in L0 for longer sides, as far as L0C has it.
    if n < LONG and k < FIRST_K:
        m = min(edge, floor_to(machine.l0c_floats // n, FRACTAL), pixels)
    if m < LONG and k < FIRST_K:
        n = min(edge, floor_to(machine.l0c_floats // m, FRACTAL), channels)
    longest = min(_longest_k(sizes, m, n), sizes.reduction)
    return Dgrad22Tile(m, n, largest_whole(longest, sizes.window) or k)


def _longest_k(sizes: Dgrad22Sizes, m: int, n: int) -> int:
    """Return the longest base_k with two copies in L0A and L0B."""
    return floor_to(sizes.machine.l0_half // sizes.layer.itemsize // max(m, n), FRACTAL)


def _with_steps(sizes: Dgrad22Sizes, tile: Dgrad22Tile) -> Dgrad22Tile:
    """Return the block with its tiles: all weights resident if that fits, else the better of two ways.

    Equal shares of L1 are taken only where they fit and hold more slices than equal steps, which else are
    taken even where they do not fit.
    """
    slices = ceil_div(sizes.reduction, tile.k)
    resident = tile._replace(a=1, b=slices, copies_b=1)
    if sizes.layer.kernel[0] == 1 and sizes.fits(resident):
        steps = (step for step in range(slices, 0, -1) if slices % step == 0)
        return next(found for found in (resident._replace(a=step) for step in steps) if sizes.fits(found))
    equal, ladder = _equal_shares(sizes, tile), _ladder(sizes, tile)
    return equal if sizes.fits(equal) and equal.a + equal.b > ladder.a + ladder.b else ladder


def _equal_shares(sizes: Dgrad22Sizes, tile: Dgrad22Tile) -> Dgrad22Tile:
    """Return steps that give each operand half of L1, in groups of channels."""
    layer, half = sizes.layer, sizes.machine.l1 // 2
    a = half // tile.copies_a // (sizes.rows_bytes(tile.m) * layer.c0)
    b = half // tile.copies_b // (layer.itemsize * sizes.window * tile.n)
    a, b = _dividing(*(min(layer.co1, max(1, groups)) for groups in (a, b)))
    return _with_groups(sizes, tile, a, b)


def _dividing(a: int, b: int) -> tuple[int, int]:
    """Return the counts with the smaller one lowered to a divisor of the larger one."""
    return (a, largest_divisor(a, b)) if a > b else (largest_divisor(b, a), b)


def largest_divisor(of: int, limit: int) -> int:
    """Return the largest divisor of a number that is at most `limit`."""
    return next(part for part in range(min(limit, of), 0, -1) if of % part == 0)


def _with_groups(sizes: Dgrad22Sizes, tile: Dgrad22Tile, a: int, b: int) -> Dgrad22Tile:
    """Return the steps that hold so many channel groups, the larger step a multiple of the smaller one."""
    a, b = (ceil_div(groups * sizes.window, tile.k) for groups in (a, b))
    return tile._replace(a=floor_to(a, min(a, b)), b=floor_to(b, min(a, b)))


def _ladder(sizes: Dgrad22Sizes, tile: Dgrad22Tile) -> Dgrad22Tile:
    """Return the largest equal steps that fit, at most one of each tap; one slice each if none fit."""
    most = min(ceil_div(sizes.reduction, tile.k), sizes.layer.taps)
    # Only these are whole windows.
    unit = sizes.window // gcd(sizes.window, tile.k)
    for step in range(floor_to(most, unit), 0, -unit):
        found = tile._replace(a=step, b=step)
        if sizes.fits(found):
            return found
    return tile._replace(a=1, b=1)


# --- blocks that do not fit in L1


def _shrunk(sizes: Dgrad22Sizes, tile: Dgrad22Tile) -> Dgrad22Tile:
    """Return a tile that fits, if any: smaller blocks first, then with fewer copies.

    Copies are given up one operand after the other, and a plan that had to give up one ends with one copy of
    both: what is found on the way is where the next try begins.
    """
    for copies in COPIES:
        tile = tile._replace(copies_a=copies[0], copies_b=copies[1])
        if not sizes.fits(tile):
            tile = _smaller(sizes, tile)
        if copies == COPIES[0] and sizes.fits(tile):
            return tile
    return tile


def _smaller(sizes: Dgrad22Sizes, given: Dgrad22Tile) -> Dgrad22Tile:
    """Return the tile with shorter sides and a shorter base_k, or the given block with the last steps tried.

    Sides lose fractals until L1 holds the tiles. In any case base_k is then looked for below the longest one
    that L0 holds of these sides.
    """
    tile = given
    while (shorter := _shorter_side(sizes, tile)) is not None:
        tile = _tried(sizes, shorter)
        if sizes.fits(tile):
            break
    longest = min(_longest_k(sizes, tile.m, tile.n), sizes.reduction)
    for k in range(longest - FRACTAL, 0, -FRACTAL):
        if is_whole(k, sizes.window):
            tile = _tried(sizes, tile._replace(k=k))
            if sizes.fits(tile):
                return tile
    return tile._replace(m=given.m, n=given.n, k=given.k)


def _shorter_side(sizes: Dgrad22Sizes, tile: Dgrad22Tile) -> Dgrad22Tile | None:
    """Return the tile with a fractal less along the longer side, of equal ones the channels; None at the end.

    Pixels stay at a row, or a fractal, at least.
    """
    if tile.m > max(sizes.layer.input[2], FRACTAL, tile.n):
        return tile._replace(m=tile.m - FRACTAL)
    return tile._replace(n=tile.n - FRACTAL) if tile.n > FRACTAL else None


def _tried(sizes: Dgrad22Sizes, tile: Dgrad22Tile) -> Dgrad22Tile:
    """Return the block with equal steps if they fit, else with equal shares of L1."""
    ladder = _ladder(sizes, tile)
    return ladder if sizes.fits(ladder) else _equal_shares(sizes, tile)


# --- the tasks of basic blocks


def _pixels_of_a_task(sizes: Dgrad22Sizes, tile: Dgrad22Tile) -> int:
    """Return the pixels of a task: whole rows of a block, or more where that keeps all cores busy."""
    layer, cores = sizes.layer, sizes.machine.cores
    height, width = layer.input[1:]
    least = max(tile.m // width, 1) * width
    if width > WIDE and tile.m % width and width % tile.m:
        for single_m in _even_rows(height, width):
            tasks = _tasks(sizes, tile, single_m)
            if (tasks % cores == 0 or tasks >= cores**2) and _in_l2(sizes, tile, single_m):
                return single_m
    elif layer.batch * layer.input[0] % cores == 0:
        # Images and depths alone keep all cores equally busy: the longest task of whole blocks will do.
        for single_m in _added_blocks(tile.m, height, width):
            if _in_l2(sizes, tile, single_m):
                return single_m
    return least


def _even_rows(height: int, width: int) -> Iterator[int]:
    """Yield the pixels of rows cut into 1, 2, ... parts, each number once."""
    rows = height
    yield rows * width
    while rows > 1:
        rows = ceil_div(height, ceil_div(height, rows - 1))
        yield rows * width


def _added_blocks(m: int, height: int, width: int) -> Iterator[int]:
    """Yield, longest first, the parts of an image that two blocks or more make, in whole rows."""
    yield height * width
    small = [part for part in range(1, isqrt(height) + 1) if height % part == 0]
    for rows in (*(height // part for part in small[1:]), *reversed(small[1:])):
        blocks = ceil_div(rows * width, m)
        if blocks > 1 and blocks * m // width == rows:
            yield rows * width


def _tasks(sizes: Dgrad22Sizes, tile: Dgrad22Tile, single_m: int) -> int:
    """Return the tasks of an operator whose tasks have so many pixels."""
    layer = sizes.layer
    images = layer.batch * layer.input[0]
    return ceil_div(layer.in_pixels, single_m) * images * ceil_div(layer.ci, tile.n)


def _in_l2(sizes: Dgrad22Sizes, tile: Dgrad22Tile, single_m: int) -> bool:
    """Return whether L2 holds what all cores touch at a time: rows, weights, results and a block."""
    layer = sizes.layer
    depths = max(layer.kernel[0] // layer.stride[0], 1)
    rows = max(dgrad_rows(layer, single_m) // layer.stride[1], 1)
    image = rows * layer.output[2] * depths * align(layer.co)
    weights = tile.n * sizes.reduction * depths
    each = image + weights + single_m * tile.n + tile.m * tile.n
    return sizes.machine.cores * layer.itemsize * each <= L2_SHARE_BYTES


# --- grids of cores


class Dgrad22Grid(NamedTuple):
    """Parts along depth, images, rows and channels, one core each."""

    d: int
    batch: int
    m: int
    n: int


def core_grid(layer: LayerSizes, machine: Machine) -> VendorPlan | None:
    """Return the plan of a core grid; None where no grid uses enough cores, or its block does not fit."""
    if layer.groups > 1 or layer.itemsize not in (2, 4):
        return None
    parts = _grid(layer, machine.cores)
    if parts is None:
        return None
    height, width = layer.input[1:]
    grid = parts._replace(m=ceil_div(height, ceil_div(height, parts.m)))
    used = grid.d * grid.batch * grid.m * grid.n
    single_m = ceil_div(height, grid.m) * width
    single_n = ceil_div(layer.ci1, grid.n) * layer.c0
    sizes = Dgrad22Sizes(layer, machine._replace(l1=machine.l1 - RESERVED_BYTES))
    tile = _quarters(sizes, _grid_block(sizes, single_m, single_n))
    # At least three of five cores get work.
    if 5 * used < 3 * machine.cores or not _accepted(sizes, tile):
        return None
    images = ceil_div(layer.batch, grid.batch)
    return VendorPlan(
        *("core_grid", *tile[:5]),
        single_core_m=single_m,
        single_core_n=single_n,
        single_core_k=layer.co1 * layer.c0,
        single_core_d=ceil_div(layer.input[0], grid.d),
        al1_buffers=tile.copies_a,
        bl1_buffers=tile.copies_b,
        used_cores=used,
        tasks=used,
        mapping="grid",
        order=("group", "d", "batch", "m", "n", "k"),
        grid=tuple(grid._asdict().items()),
        host=_host(layer, single_n, images, grid),
    )


def _grid(layer: LayerSizes, cores: int) -> Dgrad22Grid | None:
    """Return the grid of the most cores, or of one less, down to three of five.

    Depths and images take the divisors that they share with the cores. The rest goes to pixels as far as
    their number has divisors, then to channels, or the other way round; or all of it to pixels, which it
    then need not divide.
    """
    for used in range(cores, cores * 3 // 5 - 1, -1):
        d, batch = gcd(used, layer.input[0]), gcd(used, layer.batch)
        if d * batch % used == 0:
            return Dgrad22Grid(d, used // d, 1, 1)
        both = gcd(used, d * batch)
        rest = used // both
        d = gcd(d, both)
        m, n = gcd(used, layer.in_pixels), gcd(used, layer.ci1)
        if m * n % rest == 0:
            first, second = gcd(m, rest), gcd(n, rest)
            for parts in ((first, rest // first), (rest // second, second)):
                if _long_enough(layer, *parts):
                    return Dgrad22Grid(d, both // d, *parts)
        if layer.in_pixels >= LEAST_PIXELS * rest:
            return Dgrad22Grid(d, both // d, rest, 1)
    return None


def _long_enough(layer: LayerSizes, m: int, n: int) -> bool:
    """Return whether parts of both sides are long enough, where a side is cut at all."""
    channels = layer.ci1 * layer.c0
    return (n == 1 or channels >= LEAST_CHANNELS * n) and (m == 1 or layer.in_pixels >= LEAST_PIXELS * m)


def _grid_block(sizes: Dgrad22Sizes, single_m: int, single_n: int) -> Dgrad22Tile:
    """Return the base block of a share: the long side along the longer one; windows, or rows of taps."""
    layer, window = sizes.layer, sizes.window
    shorter = sizes.machine.beside(LONG, SHORT)
    m, n = (LONG, shorter) if single_m > single_n else (shorter, LONG)
    row = layer.kernel[2] * layer.c0
    k = GRID_K_BYTES // layer.itemsize
    if k % window:
        k = window if window < k else row
    if k > sizes.reduction:
        k = sizes.reduction
    elif sizes.reduction % k:
        k = row
    return Dgrad22Tile(min(m, align(single_m)), min(n, align(single_n)), k)


def _quarters(sizes: Dgrad22Sizes, tile: Dgrad22Tile) -> Dgrad22Tile:
    """Return the block with steps for which each of four copies of tiles fits a quarter of L1.

    An operand that its quarter holds as a whole has one copy.
    """
    layer, quarter = sizes.layer, sizes.machine.l1 // 4
    turned = layer.itemsize == 4
    paired = turned and layer.taps > 1
    column_bytes = layer.itemsize * sizes.window * tile.n
    b, left = max(1, quarter // column_bytes), quarter
    if paired and b == 1:
        # Weights of float32 are turned two groups at a time: the second one is taken out of A's quarter.
        b, left = 2, quarter - (2 * column_bytes - quarter)
    elif paired:
        b = floor_to(b, 2)
    a = max(1, left // (sizes.rows_bytes(tile.m) * layer.c0))
    a, copies_a = (layer.co1, 1) if a >= layer.co1 else (a, 2)
    b, copies_b = (layer.co1, 1) if b >= layer.co1 else (b, 2)
    a, b = _paired(a, b) if paired and a > b else _dividing(a, b)
    at_most = min(ceil_div(a * sizes.window, tile.k), MOST_LOADED // tile.k)
    steps_b = ceil_div(b * sizes.window, tile.k)
    small = max(1, min(at_most, steps_b))
    steps = tile._replace(
        a=floor_to(at_most, small), b=floor_to(steps_b, small), copies_a=copies_a, copies_b=copies_b
    )
    return _turned(sizes, steps) if turned else steps


def _paired(a: int, b: int) -> tuple[int, int]:
    """Return counts where b, even and smaller, divides a; a or b is lowered, whichever keeps more slices."""
    lowered = floor_to(a, b), b
    even = next((part for part in range(floor_to(b, 2), 0, -2) if a % part == 0), 0)
    return max(lowered, (a, even), key=lambda pair: pair[0] * pair[1])


def _turned(sizes: Dgrad22Sizes, tile: Dgrad22Tile) -> Dgrad22Tile:
    """Return the steps of float32, whose weights are turned in fractals of 16 channels, two windows."""
    layer, (a, b) = sizes.layer, (tile.a, tile.b)
    if tile.copies_b == 1 or layer.co1 % 2 or (layer.taps == 1 and tile.k < FRACTAL):
        b = round_up(b * tile.k, FRACTAL * layer.taps) // tile.k
    while a > 1 and a % b and b % a:
        a -= 1
    return tile._replace(a=floor_to(a * tile.k, sizes.window) // tile.k, b=b)


def _accepted(sizes: Dgrad22Sizes, tile: Dgrad22Tile) -> bool:
    """Return whether the operator takes a grid's block: two copies in L0A and L0B, and its tiles in L1.

    Turning the weights of several taps takes one C0 group more in L0B.
    """
    layer = sizes.layer
    spare = layer.c0 if layer.itemsize == 4 and layer.taps > 1 else 0
    left, right = (2 * layer.itemsize * side for side in (tile.m * tile.k, tile.n * (tile.k + spare)))
    return left <= sizes.machine.l0a and right <= sizes.machine.l0b and sizes.fits(tile)
