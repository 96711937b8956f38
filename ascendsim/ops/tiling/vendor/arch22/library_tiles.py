"""The tiles by which the library of 910B and 910_93 makes grad_weight, and the cycles it takes them to cost.

The library minimises cycles that its own constants give, which are not those of the machine. So they stand
here and not in a profile: a machine with other rates does not change what the library believes.

Units    blocks of 16 rows (m) and of 16 columns (n) of the product; k counts groups of C0 pixels
Source   host code of the public library of convolutions: its patterns of tiles and its cost model
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from math import isqrt
from typing import NamedTuple

from ascendsim.ops.tiling.vendor.layer import FRACTAL, LayerSizes, Machine, ceil_div, rows_touched

# Of an operand, and of float32 results.
FRACTAL_BYTES, RESULT_BYTES = 512, 1024
# Blocks along one side of a tile; more where L1 holds its operand whole.
LONGEST, LONGEST_WHOLE = 16, 32
# The most columns that one load3d counts.
MOST_COLUMNS = 65535
# What the library takes an instruction to cost: cycles for each command, bytes a cycle of one core.
MMAD_HEAD, LOAD2D_HEAD, LOAD3D_HEAD, COPY_HEAD = 20, 20, 42, 300
COPY_BYTES, L0A_BYTES, L0B_BYTES = 96, 256, 128
# A fractal of results, read and then written.
FIX_CYCLES = RESULT_BYTES // 256 + RESULT_BYTES // 128
# Bytes a cycle into L0B at strides that load3d does not hurry over.
FAST_STRIDES, SLOW_BYTES = (2, 4, 8), 28
# Commands of MTE1 in the queue from which on a copy behind them is no longer hidden.
FULL_QUEUE = 60


class LibraryTile(NamedTuple):
    """A base block (m, n, k), and what one copy in L1 holds of either operand.

    tiles_m, tiles_n   base blocks along m of the left operand, along n of the right one
    left_k, right_k    groups of pixels
    copies_a, copies_b 1 or 2
    """

    m: int
    n: int
    k: int
    tiles_m: int
    tiles_n: int
    left_k: int
    right_k: int
    copies_a: int = 1
    copies_b: int = 1


class LibraryShare(NamedTuple):
    """The work of one core.

    images, groups   of the small side, one after the other
    m, n, k          its blocks, as the tiles divide them
    depth_n          columns that a tile of L1 may not go beyond: those of one kernel depth, or all
    paid_m, paid_n   blocks that are charged for
    """

    images: int
    groups: int
    m: int
    n: int
    k: int
    depth_n: int
    paid_m: int
    paid_n: int


class LibrarySizes(NamedTuple):
    """A layer as the library counts it.

    operand, results   fractals of one of two copies in L0A and in L0B, and of one in L0C: 64 and 128
    unit, least        pixels of a group; groups that one Mmad takes at least
    m, channels, k     blocks of rows, blocks of channels, groups of pixels, of the whole layer
    paid_channels      blocks of channels that are charged for
    height, stride, span
                       rows of the image that are read, from one window to the next, and under one
    plain              whether the right operand comes by load2d
    line               lines of 512 bytes in which one row of 16 channels is copied
    rate               bytes a cycle of load3d into L0B
    left_whole, right_whole
                       whether L1 may hold an operand whole
    """

    layer: LayerSizes
    l1: int
    operand: int
    results: int
    cores: int
    unit: int
    least: int
    m: int
    channels: int
    paid_channels: int
    k: int
    height: int
    stride: int
    span: int
    plain: bool
    line: int
    rate: int
    left_whole: bool = False
    right_whole: bool = False

    @classmethod
    def of(cls, layer: LayerSizes, machine: Machine, *, images: int, flat: bool) -> LibrarySizes:
        """Return the sizes of a layer whose groups are merged.

        images   of all groups of the call, before they are merged
        flat     whether the 2-D operator asks: what it knows of kernels of one tap or row
        """
        unit = min(FRACTAL, layer.c0)
        height, stride = layer.input[1], layer.stride[1]
        padded = any(map(sum, layer.pads[1:]))
        if flat and layer.kernel[1] == 1 and stride > 1 and not padded:
            # Rows that no window touches are left out.
            height, stride = (height - 1) // stride + 1, 1
        strides = stride, layer.stride[2]
        plain = flat and layer.taps == 1 and strides == (1, 1) and not padded and layer.itemsize == 2
        sizes = cls(
            layer,
            machine.l1,
            machine.l0_half // FRACTAL_BYTES,
            machine.l0c // RESULT_BYTES,
            machine.cores,
            unit,
            FRACTAL // unit,
            ceil_div(layer.co, FRACTAL),
            ceil_div(layer.ci, FRACTAL),
            ceil_div(layer.ci, FRACTAL) * (FRACTAL // unit),
            ceil_div(layer.out_pixels, FRACTAL) * (FRACTAL // unit),
            height,
            stride,
            layer.spans[1],
            plain,
            _packets(min((layer.output[2] - 1) * layer.stride[2] + layer.spans[2], layer.input[2])),
            _load3d_rate(layer.input[2], layer.output[2], layer.stride[2]),
        )
        return sizes._with_whole(images)

    def _with_whole(self, images: int) -> LibrarySizes:
        """Return the sizes with what L1 may hold whole: never where cores have several images each."""
        if images > self.cores:
            return self
        parts = self.cores // images
        rows = ceil_div(self.m, parts)
        columns = ceil_div(self.channels * self.layer.kernel[0] * self.layer.taps, parts)
        return self._replace(
            left_whole=self.left_bytes(rows, self.k) + self.right_bytes(self.least, 1) <= self.l1,
            right_whole=self.right_bytes(self.k, columns) + self.left_bytes(1, self.least) <= self.l1,
        )

    def left_bytes(self, m: int, k: int) -> int:
        """Return the bytes of a tile of grad_output."""
        return FRACTAL_BYTES * m * k

    def rows(self, k: int) -> int:
        """Return the rows of input under so many groups of pixels."""
        touched = rows_touched(k * self.unit, self.layer.output[2])
        return min((touched - 1) * self.stride + self.span, self.height)

    def row_bytes(self, n: int) -> int:
        """Return the bytes of one row of input for so many columns."""
        return self.layer.input[2] * lines(n, self.layer.taps) * FRACTAL * self.layer.itemsize

    def right_bytes(self, k: int, n: int) -> int:
        """Return the bytes of a tile of input."""
        if self.plain:
            elements = self.rows(k) * self.layer.input[2] * FRACTAL
            return ceil_div(elements, 256) * 256 * lines(n, 1) * self.layer.itemsize
        return self.rows(k) * self.row_bytes(n)


@lru_cache(maxsize=4096)
def divisors(number: int) -> tuple[int, ...]:
    """Return all divisors, rising."""
    low = [part for part in range(1, isqrt(number) + 1) if number % part == 0]
    return (*low, *(number // part for part in reversed(low) if part * part < number))


@lru_cache(maxsize=1024)
def divisors_up_to(number: int, most: int) -> tuple[int, ...]:
    """Return the divisors of a number up to a limit."""
    return tuple([part for part in divisors(number) if part <= most])


@lru_cache(maxsize=4096)
def lines(n: int, taps: int) -> int:
    """Return the channels' lines in L1 that a run of columns touches at most, windows cut at either end."""
    if taps > n:
        return 1 + (taps % n > 0)
    cut = 0 if n % taps == 0 else 1 if 2 * n % taps == 0 else 2
    return ceil_div(n, taps) + cut


def _packets(width: int) -> int:
    """Return the lines of 512 bytes of a row of 32-byte pixels, which copies cut into 16, 8, 4, 3, 2, 1."""
    whole, rest = divmod(width, 16)
    return whole + (rest >= 8) + (rest % 8 >= 4) + (rest % 4 > 0)


def _load3d_rate(width: int, out_width: int, stride: int) -> int:
    """Return the bytes a cycle of load3d into L0B, by the rows that 16 pixels lie in."""
    switches = (15 if 16 % out_width == 0 else 16) // width
    if stride == 1:
        return FRACTAL_BYTES // (switches + 4)
    if stride in FAST_STRIDES:
        return FRACTAL_BYTES // (switches + 2 + 2 * stride)
    return SLOW_BYTES


def _largest(number: int, most: int, fits: Callable[[int], bool]) -> int:
    """Return the largest divisor up to a limit that fits; 0 if there is none."""
    for part in reversed(divisors(number)):
        if part <= most and fits(part):
            return part
    return 0


def _always(_: int) -> bool:
    return True


def tiles(s: LibrarySizes, share: LibraryShare, found: bool) -> Iterator[LibraryTile]:
    """Yield the tiles of the library's patterns: the left operand whole in L1, the right one, neither.

    found   whether an earlier grid has a tile
    """
    for pattern in (_left_whole, _right_whole):
        tile = pattern(s, share)
        if tile is not None:
            found = True
            yield _with_copies(s, share, tile)
    tile = _neither(s, share, found)
    if tile is not None:
        yield _with_copies(s, share, tile)


def _left_whole(s: LibrarySizes, share: LibraryShare) -> LibraryTile | None:
    """Return the tile with all of grad_output's share in L1."""
    room = s.l1 - s.left_bytes(share.m, share.k)
    if not s.left_whole or share.images > 1 or share.groups > 1 or s.right_bytes(s.least, 1) > room:
        return None
    m = _largest(share.m, LONGEST_WHOLE, _always)
    k = _largest(share.k, s.operand // m, lambda k: k % s.least == 0 and s.right_bytes(k, 1) <= room)
    if not k:
        return None
    most = min(LONGEST, s.operand // k, s.results // m)
    n = _largest(share.depth_n, most, lambda n: s.right_bytes(k, n) <= room)
    if not n:
        return None
    right_k, tiles_n = _right_chunk(s, share, k, n, room), 1
    if right_k == share.k:
        most = min(room // s.right_bytes(right_k, n), MOST_COLUMNS // (FRACTAL * n))
        tiles_n = _largest(share.depth_n // n, most, _always)
    return LibraryTile(m, n, k, share.m // m, tiles_n, share.k, right_k)


def _right_whole(s: LibrarySizes, share: LibraryShare) -> LibraryTile | None:
    """Return the tile with all of the input under a share in L1."""
    if not s.right_whole or share.images > 1 or share.groups > 1:
        return None
    room = s.l1 - s.right_bytes(share.k, share.n)
    if s.left_bytes(1, s.least) > room or share.n * s.layer.taps > MOST_COLUMNS:
        return None
    n = _largest(share.n, LONGEST_WHOLE if s.least == 1 else s.operand // (s.least + 1), _always)
    k = _largest(share.k, s.operand // n, lambda k: k % s.least == 0 and s.left_bytes(1, k) <= room)
    if not k:
        return None
    m = _largest(share.m, min(LONGEST, s.operand // k, s.results // n), lambda m: s.left_bytes(m, k) <= room)
    if not m:
        return None
    left_k, tiles_m = _left_chunk(s, share, k, m, room), 1
    if left_k == share.k:
        tiles_m = _largest(share.m // m, room // s.left_bytes(m, left_k), _always)
    return LibraryTile(m, n, k, tiles_m, share.n // n, left_k, share.k)


def _neither(s: LibrarySizes, share: LibraryShare, found: bool) -> LibraryTile | None:
    """Return the tile that streams both operands."""
    block = _block(s, share)
    if block is None:
        return None
    m, n = block
    if found and divisors(share.k) == (1, share.k) and share.k * max(m, n) > s.operand:
        return None
    k = _largest(
        share.k,
        s.operand // max(m, n),
        lambda k: k % s.least == 0 and s.left_bytes(m, k) + s.right_bytes(k, n) <= s.l1,
    )
    if not k:
        return None
    right_k = _right_chunk(s, share, k, n, s.l1 - s.left_bytes(m, k))
    left_k = _left_chunk(s, share, k, m, s.l1 - s.right_bytes(right_k, n))
    parts = divisors(share.k // k)
    while max(left_k, right_k) % min(left_k, right_k):
        longer = parts[parts.index(max(left_k, right_k) // k) - 1] * k
        left_k, right_k = (longer, right_k) if left_k > right_k else (left_k, longer)
    return LibraryTile(m, n, k, 1, 1, left_k, right_k)


def _block(s: LibrarySizes, share: LibraryShare) -> tuple[int, int] | None:
    """Return m and n of a base block: the first side as long as may be, or the second, what is larger."""

    def fits(m: int, n: int) -> bool:
        return s.left_bytes(m, s.least) + s.right_bytes(s.least, n) <= s.l1

    most, found = s.operand // s.least, []
    n = _largest(share.depth_n, LONGEST, lambda n: fits(1, n))
    if n:
        m = _largest(share.m, min(s.results // n, most), lambda m: fits(m, n))
        found += [(m, n)] if m else []
    m = _largest(share.m, LONGEST, lambda m: fits(m, 1))
    if m:
        n = _largest(share.depth_n, min(s.results // m, most), lambda n: fits(m, n))
        found += [(m, n)] if n else []
    return min(found, key=lambda cut: (-cut[0] * cut[1], abs(cut[0] - cut[1]), cut[0]), default=None)


def _right_chunk(s: LibrarySizes, share: LibraryShare, k: int, n: int, room: int) -> int:
    """Return the groups of pixels whose input fits, in slices that divide the share's."""
    high = room // s.row_bytes(n)
    out_rows = (high - s.span) // s.stride + 1
    slices = share.k // k
    most = ceil_div(out_rows * s.layer.output[2], s.unit) // k if out_rows > 0 else slices
    return k * _largest(slices, max(most, 1), lambda part: s.right_bytes(part * k, n) <= room)


def _left_chunk(s: LibrarySizes, share: LibraryShare, k: int, m: int, room: int) -> int:
    """Return the groups of pixels whose grad_output fits, in slices that divide the share's."""
    return k * _largest(share.k // k, room // s.left_bytes(m, k), _always)


def whole(share: LibraryShare, tile: LibraryTile) -> tuple[bool, bool, bool, bool]:
    """Return whether L1 holds all pixels of the left and of the right operand, and all of either.

    Pixels of several images are never all there.
    """
    left, right = (share.images == 1 and k == share.k for k in (tile.left_k, tile.right_k))
    one = share.groups == 1
    all_left = left and one and tile.tiles_m * tile.m == share.m
    return left, right, all_left, right and one and tile.tiles_n * tile.n == share.n


def _with_copies(s: LibrarySizes, share: LibraryShare, tile: LibraryTile) -> LibraryTile:
    """Return the tile with a second copy of what is not whole, if it fits: of the left operand first."""
    _, _, all_left, all_right = whole(share, tile)
    left = s.left_bytes(tile.tiles_m * tile.m, tile.left_k)
    right = s.right_bytes(tile.right_k, tile.tiles_n * tile.n)
    copies_a = 1 if all_left or 2 * left + right > s.l1 else 2
    copies_b = 1 if all_right or copies_a * left + 2 * right > s.l1 else 2
    return tile._replace(copies_a=copies_a, copies_b=copies_b)


class LibraryCosts(NamedTuple):
    """Cycles of one command, or of the write-back, of a tile."""

    mmad: int
    load_a: int
    load_b: int
    copy_a: int
    copy_b: int
    fix: int

    @classmethod
    def of(cls, s: LibrarySizes, tile: LibraryTile) -> LibraryCosts:
        """Return the library's estimate of the commands of a tile."""
        m, n, k = tile[:3]
        columns = tile.tiles_n * n
        load_a = FRACTAL_BYTES * m * k // L0A_BYTES
        head_a = LOAD2D_HEAD + FRACTAL_BYTES * k // L0A_BYTES if s.least == 1 else LOAD3D_HEAD
        if s.plain:
            turn = FRACTAL_BYTES * n // L0A_BYTES
            load_b = LOAD2D_HEAD + turn + FRACTAL_BYTES * k * n // L0B_BYTES
            moved = FRACTAL_BYTES * columns * tile.right_k
        else:
            load_b = LOAD3D_HEAD + FRACTAL_BYTES * k * n // s.rate
            moved = FRACTAL_BYTES * ceil_div(columns, s.layer.taps) * s.rows(tile.right_k) * s.line
        return cls(
            m * k * n * (2 if s.layer.true_fp32 else 1) + MMAD_HEAD,
            load_a + head_a,
            load_b,
            COPY_HEAD + FRACTAL_BYTES * tile.tiles_m * m * tile.left_k // COPY_BYTES,
            COPY_HEAD + moved // COPY_BYTES,
            FIX_CYCLES * m * n,
        )

    @property
    def step(self) -> int:
        """Cycles of one Mmad and its loads, the longer of M and MTE1."""
        return max(self.mmad, self.load_a + self.load_b)


def least_cycles(s: LibrarySizes, share: LibraryShare) -> int:
    """Return the least cycles of any tile of a share: its Mmads and the write-back."""
    blocks = min(share.m, share.paid_m) * min(share.n, share.paid_n)
    fractals = share.images * share.k * (2 if s.layer.true_fp32 else 1)
    return share.groups * blocks * (fractals + FIX_CYCLES)


def cycles(s: LibrarySizes, share: LibraryShare, tile: LibraryTile) -> int:
    """Return the cycles of a share."""
    costs = LibraryCosts.of(s, tile)
    left, right, _, _ = whole(share, tile)
    rows = ceil_div(share.paid_m, tile.tiles_m * tile.m)
    columns = ceil_div(share.paid_n, tile.tiles_n * tile.n)
    if left and right:
        return _both_whole(share, tile, costs, rows, columns)
    if left or right:
        return _one_whole(share, tile, costs, rows, columns)
    return share.groups * rows * columns * _streamed(share, tile, costs)


def _over(copies: int, copy: int, work: int) -> int:
    """Return the cycles of a copy beside work, which only a second copy hides."""
    return max(copy, work) if copies > 1 else copy + work


def _both_whole(share: LibraryShare, tile: LibraryTile, costs: LibraryCosts, rows: int, columns: int) -> int:
    """Return the cycles of a share whose pixels are all in L1."""
    _, _, all_left, all_right = whole(share, tile)
    slices = share.k // tile.k
    if slices == 1:
        row = max(costs.load_a, costs.mmad) + costs.fix
        core = tile.tiles_n * (costs.load_b + tile.tiles_m * row)
    else:
        core = tile.tiles_n * tile.tiles_m * (slices * costs.step + costs.fix)
    if all_left and all_right:
        return costs.copy_a + costs.copy_b + share.groups * core
    if all_left:
        return costs.copy_a + share.groups * columns * _over(tile.copies_b, costs.copy_b, core)
    with_left = _over(tile.copies_a, costs.copy_a, core)
    if all_right:
        return costs.copy_b + share.groups * rows * with_left
    return share.groups * columns * (costs.copy_b + rows * with_left)


def _one_whole(share: LibraryShare, tile: LibraryTile, costs: LibraryCosts, rows: int, columns: int) -> int:
    """Return the cycles of a share with all pixels of one operand in L1."""
    _, right, all_left, all_right = whole(share, tile)
    ratio = max(tile.left_k, tile.right_k) // min(tile.left_k, tile.right_k)
    if right:
        chunk = _over(tile.copies_a, costs.copy_a, tile.left_k // tile.k * costs.step)
        block = tile.tiles_n * (ratio * chunk + costs.fix)
        if all_right:
            return costs.copy_b + share.groups * rows * block
        return share.groups * columns * (costs.copy_b + rows * block)
    chunk = _over(tile.copies_b, costs.copy_b, tile.right_k // tile.k * costs.step)
    block = tile.tiles_m * (ratio * chunk + costs.fix)
    if all_left:
        return costs.copy_a + share.groups * columns * block
    return share.groups * columns * rows * (costs.copy_a + block)


def _streamed(share: LibraryShare, tile: LibraryTile, costs: LibraryCosts) -> int:
    """Return the cycles of one block of a share where L1 holds no operand whole."""
    shorter, longer = sorted((tile.left_k, tile.right_k))
    slices = shorter // tile.k
    commands, work = slices * tile.m, slices * costs.step
    if shorter == longer:
        both = min(tile.copies_a, tile.copies_b) if commands < FULL_QUEUE else 1
        chunk = _over(both, costs.copy_a + costs.copy_b, work)
    else:
        sides = (tile.copies_a, costs.copy_a), (tile.copies_b, costs.copy_b)
        inner, outer = sides if tile.left_k < tile.right_k else sides[::-1]
        ratio = longer // shorter
        chunk = _over(inner[0] if commands < FULL_QUEUE else 1, inner[1], work)
        chunk = _over(outer[0] if commands * ratio < FULL_QUEUE else 1, outer[1], ratio * chunk)
    return share.images * (share.k // longer) * chunk + costs.fix
