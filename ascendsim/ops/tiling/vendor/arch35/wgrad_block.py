"""A base block of grad_weight on 910_95: its sides, the depth of its tiles in L1, and what gives way there.

Source   host code of the public operator (ops-nn), as read
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ascendsim.ops.tiling.vendor.layer import FRACTAL, Layer, Machine, align, ceil_div, floor_to
from ascendsim.ops.tiling.vendor.shrinking import Base, Room, shrunk, whole_rows
from ascendsim.ops.tiling.vendor.windows import rows_touched

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
class Block:
    """A base block of grad_weight with its tiles in L1.

    step        slices of base_k in a tile of either operand
    copies      of both tiles in L1
    strip       columns of grad_output in one pass; 0: whole rows
    split_taps  whether a load3d reads one tap, and not all of the kernel's
    """

    layer: Layer
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
        """Tell whether L1 holds the tiles."""
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

    def refitted(self) -> Block:
        """Return the block with the longest base_k of both halves of L0, at most all pixels."""
        longest, pixels = self.longest_k, align(self.layer.out_pixels)
        return replace(self, base_k=pixels if pixels < longest else whole_rows(longest, self.width))

    @property
    def longest_k(self) -> int:
        """The longest base_k that half of L0A and half of L0B hold."""
        halves = (self.machine.l0a // (2 * self.base_m), self.machine.l0b // (2 * self.base_n))
        return max(FRACTAL, floor_to(min(halves) // self.layer.itemsize, FRACTAL))

    def deepened(self) -> Block:
        """Return the block with the deepest tiles that fit; a smaller block where none do."""
        slices = ceil_div(self.layer.out_pixels, self.base_k)
        double = (replace(self, step=min(depth // 2, slices), copies=2) for depth in DEPTHS)
        single = (replace(self, step=min(depth, slices), copies=1) for depth in SINGLE_DEPTHS)
        found = next((block for each in (double, single) for block in each if block.fits), None)
        return found or self._shrunk()

    def _shrunk(self) -> Block:
        """Return the block made smaller until one slice of it fits in L1: the reduction first, then sides."""
        block = replace(self, step=1, copies=1)
        m, n, k = shrunk(Base(self.base_m, self.base_n, self.base_k), block._room)
        return replace(block, base_m=m, base_n=n, base_k=max(FRACTAL, k))

    @property
    def _room(self) -> Room:
        """What blocks of this one's cut take in L1."""
        layer, size = self.layer, self.layer.itemsize
        # Rows of dilated kernels are counted whole even where taps are loaded one by one.
        beyond = (layer.kernel[1] - 1) * layer.dilation[1] if self.split_taps else 0

        def of(base: Base) -> Block:
            return replace(self, base_m=base.m, base_n=base.n, base_k=base.k)

        return Room(
            *(layer, self.machine),
            a_bytes=lambda base: of(base).left * size,
            b_bytes=lambda base: of(base).right * size,
            b_rows=lambda base: max(map(of(base)._rows_of, self._widths)) + beyond,
            width=self.width,
            line=self._line(self.width),
            beside="n",
        )


def base_block(layer: Layer, machine: Machine) -> Block | None:
    """Return the base block with its tiles in L1; None where no block fits.

    Rows that are too wide are cut into strips. What still does not fit is tried in ever narrower ones, each
    time after the block has shrunk as far as it may, and at last with one tap at a time.
    """
    return next((block for cut in _cuts(layer, machine) if (block := _deep(cut)).fits), None)


def _deep(cut: Block) -> Block:
    """Return the base block of a cut with its tiles."""
    base_n = cut.machine.beside(cut.base_m, _even(cut.columns))
    # Whole windows, where one is not longer than a block.
    base_n = min(base_n, max(base_n // cut.window, 1) * cut.window)
    return replace(cut, base_n=base_n).refitted().deepened()


def _even(side: int) -> int:
    """Return the largest equal part of a side, in whole fractals, that is at most as long as a block."""
    return align(side) if side <= LONGEST else align(side // ceil_div(side, LONGEST))


def _cuts(layer: Layer, machine: Machine) -> Iterator[Block]:
    """Yield what is tried in turn: the rows as they are, or in strips; narrower strips; single taps."""
    most = MOST_COLUMNS if max(layer.pads[2]) <= MOST_BYTE else MOST_COLUMNS // 2
    beyond = beyond_load3d(layer)
    whole = Block(layer, machine, _even(align(layer.co)), FRACTAL, FRACTAL, split_taps=beyond)
    if layer.output[2] <= most:
        yield whole
    strip = STRIP
    while strip >= layer.c0:
        # Also ones that are as wide as a row, and cut nothing: their tiles are counted otherwise.
        yield replace(whole, strip=strip)
        strip //= 2
    if not beyond:
        yield replace(whole, strip=layer.c0, split_taps=True)


def beyond_load3d(layer: Layer) -> bool:
    """Tell whether a kernel passes what one load3d can say, so that its taps are loaded one by one."""
    sizes = (*layer.kernel[1:], *layer.dilation[1:], *layer.pads[1], *layer.pads[2])
    window = layer.taps * layer.c0
    return max(sizes) > MOST_BYTE or max(layer.stride[1:]) > MOST_STRIDE or window > MOST_WINDOW
