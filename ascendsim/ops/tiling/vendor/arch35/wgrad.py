"""The grad_weight of 910_95: tiles of the result dealt to all cores, the last round cut by stream-K.

Source   host code of the public operator (ops-nn), as read
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final, NamedTuple

from ascendsim.ops.problems.orders import CLUSTER, Clusters
from ascendsim.ops.tiling.vendor.layer import (
    FRACTAL,
    PLAIN,
    L1Need,
    LayerSizes,
    Machine,
    VendorPlan,
    WgradBase,
    align,
    ceil_div,
    floor_to,
    rows_touched,
    shrunk,
    wgrad_rows,
    whole_rows,
)


class Tail(NamedTuple):
    """The cut of the last round's tasks: parts of each task, their axis, and their length.

    axis     "" (they are not), "batch_depth" (images and depths), or "height" (rows of grad_output)
    length   of a part along that axis
    """

    ways: int = 1
    axis: str = ""
    length: int = 0


def tail_along(extents: Mapping[str, int], tasks: int, cores: int) -> Tail:
    """Return the cut of the last round along the axis that gives most parts; the first of equal ones."""
    tail = tasks % cores
    if not tail or tail > cores // 2:
        return Tail()
    ways = cores // tail
    cuts = []
    for axis, extent in extents.items():
        length = ceil_div(extent, min(ways, extent))
        cuts.append(Tail(ceil_div(extent, length), axis, length))
    # Of equal ones the first, as max keeps it.
    most = max(cuts, key=lambda cut: cut.ways)
    return most if most.ways > 1 else Tail()


LONGEST = 256
# Slices of base_k of both operands together where tiles have two copies, of either where they have one.
DEPTHS = range(16, 2, -2)
SINGLE_DEPTHS = (*range(16, 0, -2), 1)
# Wider rows are worked on in strips of columns; half as wide ones where padding of columns is beyond a byte.
MOST_COLUMNS = 512
STRIP = 128
# What one load3d can say of a kernel: a byte each for extent, gap and padding, six bits for the stride.
MOST_BYTE, MOST_STRIDE, MOST_WINDOW = 255, 63, 65536


@dataclass(frozen=True)
class Wgrad35Block:
    """A base block of grad_weight with its tiles in L1.

    step        slices of base_k in a tile of either operand
    copies      of both tiles in L1
    strip       columns of grad_output in one pass; 0: whole rows
    split_taps  whether a load3d reads one tap, and not all of the kernel's
    """

    layer: LayerSizes
    machine: Machine
    base_m: int
    base_n: int
    base_k: int
    step: int = 1
    copies: int = 1
    strip: int = 0
    split_taps: bool = False

    @property
    def rows(self) -> int:
        """Rows of the product: channels of grad_output in whole fractals."""
        return align(self.layer.co)

    @property
    def columns(self) -> int:
        """Columns of the product at one kernel depth, channels of input in whole fractals."""
        return self.layer.taps * align(self.layer.ci)

    @property
    def window(self) -> int:
        """Columns of a fractal of channels under all taps."""
        return FRACTAL * self.layer.taps

    @property
    def single_n(self) -> int:
        """Columns of a task: whole windows; one where taps are loaded one by one."""
        return self.window if self.split_taps else max(self.base_n // self.window, 1) * self.window

    @property
    def tasks(self) -> int:
        """Tiles of the result, at each kernel depth of each group."""
        tiles = ceil_div(self.rows, self.base_m) * ceil_div(self.columns, self.single_n)
        return tiles * self.layer.kernel[0] * self.layer.groups

    @property
    def width(self) -> int:
        """Columns of grad_output in one pass."""
        return self.strip or self.layer.output[2]

    @property
    def left(self) -> int:
        """Elements of one copy of grad_output in L1: of a strip the whole rows that its pixels touch."""
        pixels = self.step * self.base_k
        if self.strip:
            pixels = max(align(rows_touched(pixels, width) * width) for width in self._widths)
        return pixels * self.base_m

    @property
    def right(self) -> int:
        """Elements of one copy of input in L1."""
        channels = max(self.base_n // self.window, 1) * FRACTAL
        return channels * max(self._rows_of(width) * self._line(width) for width in self._widths)

    @property
    def excess(self) -> int:
        """Bytes that the tiles need beyond L1; below zero: bytes that are free."""
        return self.copies * (self.left + self.right) * self.layer.itemsize - self.machine.l1

    @property
    def fits(self) -> bool:
        """Return whether L1 holds the tiles."""
        return self.excess <= 0

    @property
    def _widths(self) -> tuple[int, ...]:
        """Columns of a whole strip and of the last one; without strips those of a row."""
        last = self.layer.output[2] % self.strip if self.strip else 0
        return (self.width, last) if last else (self.width,)

    def _rows_of(self, width: int) -> int:
        """Return the rows of input in a tile; a single tap has one for each of grad_output."""
        rows = rows_touched(self.step * self.base_k, width)
        return rows if self.split_taps else (rows - 1) * self.layer.stride[1] + self.layer.spans[1]

    def _line(self, width: int) -> int:
        """Return the columns of input in a tile."""
        if self.split_taps:
            return width
        layer = self.layer
        return (width - 1) * layer.stride[2] + layer.spans[2] if self.strip else layer.input[2]

    def refitted(self) -> Wgrad35Block:
        """Return the block with the longest base_k of both halves of L0, at most all pixels."""
        longest, pixels = self.longest_k, align(self.layer.out_pixels)
        return replace(self, base_k=pixels if pixels < longest else whole_rows(longest, self.width))

    @property
    def longest_k(self) -> int:
        """The longest base_k that half of L0A and half of L0B hold."""
        halves = (self.machine.l0a // (2 * self.base_m), self.machine.l0b // (2 * self.base_n))
        return max(FRACTAL, floor_to(min(halves) // self.layer.itemsize, FRACTAL))

    def deepened(self) -> Wgrad35Block:
        """Return the block with the deepest tiles that fit; a smaller block where none do."""
        slices = ceil_div(self.layer.out_pixels, self.base_k)
        double = (replace(self, step=min(depth // 2, slices), copies=2) for depth in DEPTHS)
        single = (replace(self, step=min(depth, slices), copies=1) for depth in SINGLE_DEPTHS)
        found = next((block for each in (double, single) for block in each if block.fits), None)
        return found or self._shrunk()

    def _shrunk(self) -> Wgrad35Block:
        """Return the block made smaller until one slice of it fits in L1: the reduction first, then sides."""
        block = replace(self, step=1, copies=1)
        m, n, k = shrunk(WgradBase(self.base_m, self.base_n, self.base_k), block._room)
        return replace(block, base_m=m, base_n=n, base_k=max(FRACTAL, k))

    @property
    def _room(self) -> L1Need:
        """Room that blocks of this cut take in L1."""
        layer, size = self.layer, self.layer.itemsize
        # Rows of dilated kernels are counted whole even where taps are loaded one by one.
        beyond = (layer.kernel[1] - 1) * layer.dilation[1] if self.split_taps else 0

        def of(base: WgradBase) -> Wgrad35Block:
            return replace(self, base_m=base.m, base_n=base.n, base_k=base.k)

        return L1Need(
            *(layer, self.machine),
            a_bytes=lambda base: of(base).left * size,
            b_bytes=lambda base: of(base).right * size,
            b_rows=lambda base: max(map(of(base)._rows_of, self._widths)) + beyond,
            width=self.width,
            line=self._line(self.width),
            beside="n",
        )


def base_block(layer: LayerSizes, machine: Machine) -> Wgrad35Block | None:
    """Return the base block with its tiles in L1; None where no block fits.

    Rows that are too wide are cut into strips. What still does not fit is tried in ever narrower ones, each
    time after the block has shrunk as far as it may, and at last with one tap at a time.
    """
    return next((block for cut in _cuts(layer, machine) if (block := _deep(cut)).fits), None)


def _deep(cut: Wgrad35Block) -> Wgrad35Block:
    """Return the base block of a cut with its tiles."""
    base_n = cut.machine.beside(cut.base_m, _even(cut.columns))
    # Whole windows, where one is not longer than a block.
    base_n = min(base_n, max(base_n // cut.window, 1) * cut.window)
    return replace(cut, base_n=base_n).refitted().deepened()


def _even(side: int) -> int:
    """Return the largest equal part of a side, in whole fractals, that is at most as long as a block."""
    return align(side) if side <= LONGEST else align(side // ceil_div(side, LONGEST))


def _cuts(layer: LayerSizes, machine: Machine) -> Iterator[Wgrad35Block]:
    """Yield the cuts to try in turn: the rows as they are, or in strips; narrower strips; single taps."""
    most = MOST_COLUMNS if max(layer.pads[2]) <= MOST_BYTE else MOST_COLUMNS // 2
    beyond = beyond_load3d(layer)
    whole = Wgrad35Block(layer, machine, _even(align(layer.co)), FRACTAL, FRACTAL, split_taps=beyond)
    if layer.output[2] <= most:
        yield whole
    strip = STRIP
    while strip >= layer.c0:
        # Also ones that are as wide as a row, and cut nothing: their tiles are counted otherwise.
        yield replace(whole, strip=strip)
        strip //= 2
    if not beyond:
        yield replace(whole, strip=layer.c0, split_taps=True)


def beyond_load3d(layer: LayerSizes) -> bool:
    """Return whether a kernel passes what one load3d can say, so that its taps are loaded one by one."""
    sizes = (*layer.kernel[1:], *layer.dilation[1:], *layer.pads[1], *layer.pads[2])
    window = layer.taps * layer.c0
    return max(sizes) > MOST_BYTE or max(layer.stride[1:]) > MOST_STRIDE or window > MOST_WINDOW


# The kinds of stream-K by the vendor's number.
KINDS = ("", "batch_depth", "height")


def stream_k(given: LayerSizes, machine: Machine) -> VendorPlan | None:
    """Return the plan of grad_weight; None where no tile fits in L1."""
    factor = merge_factor(given, machine)
    block = base_block(given.merged(factor), machine)
    if block is None:
        return None
    if factor == 1:
        block = _wider(_higher(block))
    tail = _tail(block)
    if tail.axis != "height":
        return _plan(block, tail, factor)
    cut = _of_rows(block, tail)
    return _plan(cut, tail, factor) if cut else _plan(block, Tail(), factor)


def merge_factor(layer: LayerSizes, machine: Machine) -> int:
    """Return how many groups are merged: those that fill fractals, if the buffers hold their block."""
    factor = layer.merge_factor(FRACTAL)
    if factor == 1 or layer.layouts.weight != PLAIN:
        return 1
    whole = layer.merged(factor)
    rows, columns = align(whole.co), align(whole.ci) * layer.taps
    if max(rows, columns) > LONGEST or 4 * rows * columns > machine.l0c:
        return 1
    # Vector cores pick the diagonal blocks out of the merged one, in float32. The taps of a channel begin at
    # multiples of 32 bytes in their own copy, unless those of a group, which lie in one piece, do.
    ragged = layer.kernel[0] != 1 or layer.ci * layer.taps % 8
    taps = ceil_div(layer.taps, 8) * 8 if ragged else layer.taps
    in_ub = (columns + factor * layer.ci * taps) * rows * 4 + LONGEST
    slice_bytes = _slice_bytes(whole, machine, rows, columns)
    return factor if in_ub <= machine.ub and slice_bytes <= machine.l1 else 1


def _slice_bytes(whole: LayerSizes, machine: Machine, rows: int, columns: int) -> int:
    """Return the bytes in L1 of one slice of both operands of a block; base_k is not cut to whole rows."""
    block = Wgrad35Block(whole, machine, rows, columns, FRACTAL)
    base_k = min(block.longest_k, ceil_div(whole.out_pixels, whole.c0) * whole.c0)
    image = wgrad_rows(whole, base_k) * whole.input[2] * align(whole.ci)
    return (base_k * rows + image) * whole.itemsize


def _higher(block: Wgrad35Block) -> Wgrad35Block:
    """Return the block with fewer rows, if tasks are few and equal numbers of cores can then share each."""
    layer, cores, width = block.layer, block.machine.cores, block.layer.output[2]
    images, depths = layer.batch * layer.output[0], layer.kernel[0] * layer.groups
    shared = cores % block.tasks == 0 and max(images, layer.output[1]) >= cores // block.tasks
    if block.tasks >= cores or shared:
        return block
    others = ceil_div(block.columns, block.single_n) * depths
    for parts in range(min(ceil_div(block.rows, FRACTAL), cores) // others, 0, -1):
        cut = replace(block, base_m=align(ceil_div(block.rows, parts))).refitted()
        if cut.tasks > cores or cores % cut.tasks:
            continue
        ways = cores // cut.tasks
        if images < ways and cut.base_k < ways * width:
            continue
        if cut.base_m * cut.base_n > block.machine.l0c_floats:
            break
        block = cut.deepened()
        if block.fits:
            break
    return block


def _wider(block: Wgrad35Block) -> Wgrad35Block:
    """Return the block with fewer columns, where more than half of the cores have a task, and not all."""
    layer, cores = block.layer, block.machine.cores
    if not (cores // 2 < block.tasks < cores and block.base_n >= block.base_m):
        return block
    windows, count = ceil_div(block.columns, block.window), ceil_div(block.columns, block.single_n)
    others = ceil_div(block.rows, block.base_m) * layer.kernel[0] * layer.groups
    for parts in range(min(windows, cores // others), count, -1):
        cut = replace(block, base_n=ceil_div(windows, parts) * block.window).refitted()
        if cut.tasks > cores or cut.base_m * cut.base_n > block.machine.l0c_floats:
            continue
        block = cut.deepened()
        if block.fits:
            break
    return block


def _tail(block: Wgrad35Block) -> Tail:
    """Return the cut of the last round: along images and depths, or along rows where these give more parts.

    Rows are also taken where the last part of images is shorter, by its share, than the last part of rows.
    The length of a part of images is given even where only one part results.
    """
    cores, layer = block.machine.cores, block.layer
    last = block.tasks % cores
    if not 0 < last <= cores // 2:
        return Tail()
    ways = cores // last
    images, height = layer.batch * layer.output[0], layer.output[1]
    of_images, of_rows = ceil_div(images, ways), ceil_div(height, ways)
    rest = Fraction(images % of_images, of_images), Fraction(height % of_rows, of_rows)
    parts = ceil_div(images, of_images), ceil_div(height, of_rows)
    if parts[0] < parts[1] or 0 < rest[0] < rest[1]:
        return Tail(parts[1], "height", of_rows)
    return Tail(parts[0], "batch_depth" if parts[0] > 1 else "", of_images)


def _of_rows(block: Wgrad35Block, tail: Tail) -> Wgrad35Block | None:
    """Return the block of a reduction in parts of rows; None where L1 holds no tile of one."""
    pixels = tail.length * block.layer.output[2]
    base_k = align(min(block.base_k, pixels))
    cut = replace(block, base_k=base_k, step=min(block.step, ceil_div(pixels, base_k)))
    # A shorter base_k may straddle more rows.
    while not cut.fits and cut.step > 1:
        cut = replace(cut, step=cut.step - 1)
    return cut if cut.fits else None


def _plan(block: Wgrad35Block, tail: Tail, factor: int) -> VendorPlan:
    """Return the plan of a block."""
    layer, machine = block.layer, block.machine
    height = tail.length if tail.axis == "height" else layer.output[1]
    images = layer.batch * layer.output[0]
    images = tail.length if tail.length and tail.axis != "height" else images
    host = {
        "singleCoreBatchDout": images,
        "singleCoreHo": height,
        "singleCoreCout": block.base_m,
        "singleCoreCin": block.single_n // layer.taps,
        "streamkType": KINDS.index(tail.axis),
        "splitWo": block.width,
        "iterateOrder": int(block.rows > block.columns),
        "realGroup": layer.groups,
        "al1Bound": block.left,
        "bl1Bound": block.right,
    }
    return VendorPlan(
        *("stream_k", block.base_m, block.base_n, block.base_k, block.step, block.step),
        single_core_m=block.base_m,
        single_core_n=block.single_n,
        single_core_k=height * layer.output[2],
        al1_buffers=block.copies,
        bl1_buffers=block.copies,
        cl0_buffers=2 if 2 * block.base_m * block.base_n <= machine.l0c_floats else 1,
        used_cores=machine.cores,
        tasks=block.tasks,
        mapping="interleaved",
        order=("m", "n", "kd", "group"),
        split="mn",
        group_merge=factor,
        stream_ways=tail.ways,
        stream_axis=tail.axis,
        strip_w=block.strip if block.strip < layer.output[2] else 0,
        taps="khkw" if block.split_taps else "all",
        host=tuple(host.items()),
    )


# Channels of either side in a block, and how many whole blocks there must be.
SIDE: Final = 64
LEAST_BLOCKS: Final = 16
MOST_PAD: Final = 8
# Tiles of 2 x 2 pixels in all images, and the share of them that must not be all padding.
MOST_TILES: Final = 512_000
LEAST_SHARE: Final = 0.5
POINTS: Final = 16
FLOAT32: Final = 4
# Bytes of one operand of a cluster at all points, and of all sums.
OPERAND: Final = POINTS * CLUSTER * SIDE * FLOAT32
SUMS: Final = POINTS * SIDE * SIDE * FLOAT32


def takes_winograd(layer: LayerSizes) -> bool:
    """Return whether the operator computes a grad_weight by Winograd."""
    flat = layer.kernel == (1, 3, 3) and layer.input[0] == layer.output[0] == 1
    plain = layer.groups == 1 and max(*layer.stride, *layer.dilation) == 1 and layer.layouts.plain
    small = all(before == after <= MOST_PAD for before, after in layer.pads)
    blocks = (layer.co // SIDE) * (layer.ci // SIDE)
    if not (layer.true_fp32 and flat and plain and small and blocks >= LEAST_BLOCKS):
        return False
    tiles = ceil_div(layer.output[1], 2) * ceil_div(layer.output[2], 2)
    inside = ceil_div(layer.input[1] - 2, 2) * ceil_div(layer.input[2] - 2, 2)
    return tiles * layer.batch <= MOST_TILES and inside >= LEAST_SHARE * tiles


def winograd(layer: LayerSizes, machine: Machine) -> VendorPlan | None:
    """Return the plan of a grad_weight by Winograd; None where L0C or L1 does not hold its blocks."""
    if machine.l0c < SUMS or machine.l1 < 2 * OPERAND:
        return None
    rows, columns = ceil_div(layer.co, SIDE), ceil_div(layer.ci, SIDE)
    clusters = len(Clusters.of(layer.batch, (layer.output[1], layer.output[2])))
    tail = tail_along({"clusters": clusters}, rows * columns, machine.cores)
    copies = 2 if machine.l1 >= 4 * OPERAND else 1
    return VendorPlan(
        *("winograd", SIDE, SIDE, CLUSTER),
        al1_buffers=copies,
        bl1_buffers=copies,
        used_cores=machine.cores,
        tasks=rows * columns,
        mapping="interleaved",
        order=("m", "n"),
        split="mn",
        stream_ways=tail.ways,
        stream_axis=tail.axis,
    )
