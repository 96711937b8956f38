"""One pass of grad_input on 910_95, and the base block, shares and tiles in L1 that it is worked on in.

A pass reduces all taps, a row of them or one, or what the taps of one phase of the stride add. Sizes are
those of the product: m = pixels of one image, n = channels of input, k = (channel group, tap, channel).

Source   how the host code of the public operator chooses, held against its unit tests and against plans that
         were computed from its rules
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from math import gcd
from typing import NamedTuple

from ascendsim.frozen import cached_property
from ascendsim.ops.tiling.vendor.layer import (
    FRACTAL,
    LayerSizes,
    Machine,
    align,
    ceil_div,
    floor_to,
    is_whole,
    rows_touched,
)

# What one load3d can say of a padding or of a gap between taps.
MOST_BYTE = 255
# Without a window around a run of pixels, a tile in L1 has so many of them.
PIXELS_OF_ONE_TAP = 256
C04_CHANNELS = 4
LONGEST, LONGEST_NARROW = 1024, 512
# Columns and pixels that the shares of a task are asked about: of one tap, and of several.
WIDE, TALL = {False: 256, True: 128}, {False: 256, True: 512}
# Where 3 x 3 kernels make so many tasks for each core, smaller blocks end more evenly.
SMALLER_M, FEWEST_TASKS, MOST_TASKS = 256, 10, 45
# Below this balance of multiply-adds against loads, loads bound a product; so do writes of a short reduction.
LOADS_BOUND, SHORT = 512, 128
# Weights stay in L1 for rows of so many pixels at most.
WIDEST_LOADED = 512
# The kernel gets the length of a tile of grad_output in 16 bits.
MOST_LENGTH = 65535
# Copies of both operands' tiles in L1, in the order in which they are tried.
PINGPONG = ((2, 2), (2, 1), (1, 2), (1, 1))


class Start(NamedTuple):
    """The block that fitting begins with."""

    m: int
    n: int
    k: int


@dataclass(frozen=True)
class Dgrad35Part:
    """The work of one pass.

    layer    with its groups merged
    taps     "all", "c04", "kh" or "khkw": see VendorPlan
    split    "", "h" or "hw": the axes along which the stride splits the kernel
    """

    layer: LayerSizes
    machine: Machine
    taps: str = "all"
    split: str = ""

    @cached_property
    def kernel(self) -> tuple[int, int]:
        """Taps along H and W; of phases of the stride those of the largest."""
        (_, kh, kw), (_, sh, sw) = self.layer.kernel, self.layer.stride
        if self.split:
            return ceil_div(kh, sh), ceil_div(kw, sw) if self.split == "hw" else kw
        return 1 if self.taps in ("kh", "khkw") else kh, 1 if self.taps == "khkw" else kw

    @cached_property
    def count(self) -> int:
        """Taps in H and W."""
        return self.kernel[0] * self.kernel[1]

    @property
    def several(self) -> bool:
        """Whether more than one tap is added in all, depth among them."""
        kernel = self.kernel if self.split else self.layer.kernel[1:]
        return self.layer.kernel[0] * kernel[0] * kernel[1] > 1

    @cached_property
    def window(self) -> int:
        """Reduction that one C0 group of channels adds; with 4 channels a tap, the whole."""
        return align(C04_CHANNELS * self.count) if self.taps == "c04" else self.count * self.layer.c0

    @cached_property
    def smallest_window(self) -> int:
        """The window of the smallest kernel that a split makes: 0 where a phase meets no tap."""
        (_, kh, kw), (_, sh, sw) = self.layer.kernel, self.layer.stride
        return kh // sh * (kw // sw if self.split == "hw" else kw) * self.layer.c0

    @cached_property
    def channel_groups(self) -> int:
        """C0 groups of channels in a reduction."""
        return 1 if self.taps == "c04" else self.layer.co1

    @cached_property
    def reduction(self) -> int:
        """Length of a reduction at one kernel depth."""
        return self.channel_groups * self.window

    @cached_property
    def width(self) -> int:
        """Pixels in a row of the result, or of one phase of it."""
        width, stride = self.layer.input[2], self.layer.stride[2]
        return ceil_div(width, stride) if self.split == "hw" else width

    @cached_property
    def pixels(self) -> int:
        """Pixels of one image, or of one phase of it."""
        height, stride = self.layer.input[1], self.layer.stride[1]
        return (ceil_div(height, stride) if self.split else height) * self.width

    @property
    def m(self) -> int:
        """Pixels in whole fractals."""
        return align(self.pixels)

    @property
    def n(self) -> int:
        """Channels of input in whole fractals."""
        return align(self.layer.ci)

    @property
    def images(self) -> int:
        """Independent products of the same size: images, depths and groups."""
        return self.layer.batch * self.layer.input[0] * self.layer.groups

    @property
    def passes(self) -> int:
        """Tasks for each tile of pixels: along H alone each phase is a task, along both they are one."""
        return self.layer.stride[1] if self.split == "h" else 1

    @cached_property
    def line(self) -> int:
        """Pixels of one row of grad_output in L1: with the zeros that stand between its columns."""
        return self.layer.output[2] * (1 if self.split == "hw" else self.layer.stride[2])

    @cached_property
    def unwindowed(self) -> bool:
        """Whether pixels lie in L1 without a window around them."""
        return self.taps == "khkw" or (self.taps == "kh" and self.layer.input[2] == 1)

    def rows(self, pixels: int) -> int:
        """Return the rows of grad_output, zeros inserted, that so many pixels need."""
        if self.split:
            beyond = pixels // self.width + 2 if pixels > self.width else 2
            touched = beyond if pixels % self.width else pixels // self.width
            return min(touched - 1 + self.kernel[0], self.layer.output[1])
        reach = self.layer.spans[1] - 1 if self.taps in ("all", "c04") else 0
        expanded = (self.layer.output[1] - 1) * self.layer.stride[1] + 1
        return min(rows_touched(pixels, self.width) + reach, expanded)

    def pixels_in_l1(self, pixels: int) -> int:
        """Return the pixels of grad_output in L1 for so many of the result."""
        return PIXELS_OF_ONE_TAP if self.unwindowed else self.rows(pixels) * self.line

    def column_bytes(self, base_n: int) -> int:
        """Return the bytes of one window of the weights."""
        return base_n * self.window * self.layer.itemsize


@dataclass(frozen=True)
class Dgrad35Block:
    """A base block of one pass, its shares of a task, and its tiles in L1.

    single_m, single_d   pixels and depths of a task
    steps, copies        slices of base_k in a tile, and copies of it: of grad_output, and of the weights
    cl0                  copies in L0C
    """

    part: Dgrad35Part
    base_m: int
    base_n: int
    base_k: int
    single_m: int
    single_d: int = 1
    steps: tuple[int, int] = (1, 1)
    copies: tuple[int, int] = (2, 2)
    cl0: int = 1

    @property
    def slices(self) -> int:
        """Slices of base_k in a reduction."""
        return ceil_div(self.part.reduction, self.base_k)

    @property
    def columns(self) -> int:
        """Blocks along n."""
        return ceil_div(self.part.n, self.base_n)

    @property
    def tasks(self) -> int:
        """Tasks: pixels, channels, images and phases."""
        layer = self.part.layer
        depths = ceil_div(layer.input[0], self.single_d)
        images = layer.batch * depths * layer.groups * self.part.passes
        return images * ceil_div(self.part.pixels, self.single_m) * self.columns

    @property
    def l0c_copies(self) -> int:
        """Copies of the tile in L0C that fit: two, or one."""
        return 2 if 8 * self.base_m * self.base_n <= self.part.machine.l0c else 1

    @property
    def legal(self) -> bool:
        """Whether L1 holds the tiles, and each is made of whole windows or all there is."""
        return self.allows(*self.steps)

    def allows(self, step_ka: int, step_kb: int) -> bool:
        """Return whether tiles of so many slices would be legal."""
        part, (al1, bl1) = self.part, self.copies
        lengths = (step_ka * self.base_k, step_kb * self.base_k)
        if any(length % part.window and length < part.reduction for length in lengths):
            return False
        channels = max(lengths[0] // part.count, 1)
        size = part.layer.itemsize
        need = al1 * size * part.pixels_in_l1(self.base_m) * channels
        need += bl1 * part.column_bytes(self.base_n) * _lines(lengths[1], part.window)
        # Blocks of a kernel that is not split never take the last byte.
        return need <= part.machine.l1 if part.split else need < part.machine.l1


def _lines(length: int, window: int) -> int:
    """Return the most windows that a run of the reduction touches."""
    if is_whole(length, window):
        return ceil_div(length, window)
    return length // window + 2 if length > window else 2


def memory_bound(m: int, n: int, k: int) -> bool:
    """Return whether loads of a product, or its writes, take longer than its multiply-adds."""
    return m * n < LOADS_BOUND * (m + n) or k <= SHORT


def l0_length(part: Dgrad35Part, base_m: int, base_n: int) -> int:
    """Return the longest base_k that half of L0 holds, in whole C0 groups and within the reduction."""
    c0 = part.layer.c0
    held = floor_to(part.machine.l0_half // part.layer.itemsize // max(base_m, base_n), c0)
    return min(max(held, c0), part.reduction)


def fitted_k(part: Dgrad35Part, base_m: int, base_n: int, start_k: int) -> int:
    """Return the longest base_k that takes whole rows or columns of taps, or cuts windows evenly.

    One C0 group always does, and is not tried: then what the block began with stays, as far as L0 holds it.
    """
    c0, top = part.layer.c0, l0_length(part, base_m, base_n)
    lines = [taps * c0 for taps in part.kernel if taps > 1]
    for base_k in range(top, c0, -c0):
        if any(base_k % line == 0 for line in lines) or is_whole(base_k, part.window):
            return base_k
    return min(top, start_k)


def grown(part: Dgrad35Part, start: Start, copies: int = 1) -> Dgrad35Block:
    """Return the block that fills L0C from a start, as far as pixels and channels go.

    copies   of the block that L0C is to hold
    """
    machine, room = part.machine, part.machine.l0c_floats // copies
    base_m = min(start.m, machine.l0a // (2 * part.layer.c0 * part.layer.itemsize), part.m)
    # An L0C smaller than the product's own may not hold what fitting begins with.
    base_n = min(start.n, part.n, max(FRACTAL, floor_to(room // base_m, FRACTAL)))
    if base_n < start.n:
        far = max(max(backward_pads(part.layer, axis)) for axis in (1, 2)) > MOST_BYTE
        most = LONGEST_NARROW if base_n <= FRACTAL or far else LONGEST
        base_m = min(most, floor_to(room // base_n, FRACTAL), part.m)
    if base_m < start.m:
        base_n = min(LONGEST, floor_to(room // base_m, FRACTAL), part.n)
    block = Dgrad35Block(part, base_m, base_n, fitted_k(part, base_m, base_n, start.k), base_m)
    return replace(block, cl0=block.l0c_copies)


def backward_pads(layer: LayerSizes, axis: int) -> tuple[int, int]:
    """Return the padding along one axis, before and after, of the convolution that grad_input is."""
    before = layer.spans[axis] - 1 - layer.pads[axis][0]
    expanded = (layer.output[axis] - 1) * layer.stride[axis] + 1
    return before, layer.input[axis] - expanded + layer.spans[axis] - 1 - before


def base_block(part: Dgrad35Part) -> Dgrad35Block:
    """Return the block of inner products, small shapes and split kernels."""
    wide_kernel = part.several and (
        bool(part.split) or part.taps in ("all", "c04") or (part.taps == "kh" and part.layer.input[2] > 1)
    )
    size = part.layer.itemsize
    start = Start(512, 128, 64 // size) if wide_kernel else Start(256, 256, 128 // size)
    return grown(part, start._replace(m=SMALLER_M) if _ends_evenly(part, start) else start)


def _ends_evenly(part: Dgrad35Part, start: Start) -> bool:
    """Return whether blocks of half as many pixels are taken: for 3 x 3 kernels of 4 bytes, of many tasks."""
    layer, cores, width = part.layer, part.machine.cores, part.width
    if part.split or layer.transposed_forward or layer.kernel[1:] != (3, 3) or start.m != 512 or start.k > 16:
        return False
    blocks = ceil_div(part.pixels, 512)
    tasks = part.images * blocks * ceil_div(part.n, 128)
    rows = max(512 // width, 1) * width
    many = FEWEST_TASKS * cores <= tasks <= MOST_TASKS * cores
    return many and part.pixels >= 512 and (rows * blocks < part.m or rows >= 512)


def shared(block: Dgrad35Block) -> Dgrad35Block:
    """Return the block with even columns, and a task's pixels in whole rows where that costs nothing."""
    part, cores = block.part, block.part.machine.cores
    rows, columns = ceil_div(part.pixels, block.base_m), block.columns
    tasks = part.images * rows * columns * part.passes
    few = tasks <= cores
    base_n = block.base_n
    if few or columns % cores == 0 or cores % columns == 0 or base_n > WIDE[part.several]:
        base_n = align(part.n // columns)
    base_m = single_m = block.base_m
    whole_rows = max(base_m // part.width, 1) * part.width
    if part.taps == "khkw":
        single_m = part.width
    elif few:
        single_m = ceil_div(part.pixels // rows, part.width) * part.width
    elif part.split == "hw" or (base_m >= TALL[part.several] and whole_rows * rows >= part.m):
        single_m = whole_rows
    if part.unwindowed:
        base_m = min(base_m, PIXELS_OF_ONE_TAP)
    return replace(block, base_m=min(base_m, align(single_m)), base_n=base_n, single_m=single_m)


def with_steps(block: Dgrad35Block) -> Dgrad35Block:
    """Return the block with the longer of two kinds of tiles in L1: even shares of it, or equal slices."""
    ladder = _ladder(block)
    equal = _equal(block)
    if sum(equal) > 2 * ladder and block.allows(*equal):
        return replace(block, steps=equal)
    return replace(block, steps=(ladder, ladder))


def _equal(block: Dgrad35Block) -> tuple[int, int]:
    """Return the slices of tiles that share L1 evenly, in counts of channel groups.

    Of the counts one divides the other. One of grad_output takes room for 16 channels whatever C0 is.
    """
    part, base_k, half = block.part, block.base_k, block.part.machine.l1 // 2
    pixels = part.pixels_in_l1(block.base_m) * (1 if part.unwindowed else FRACTAL)
    units = (part.layer.itemsize * pixels, part.column_bytes(block.base_n))
    groups = part.channel_groups
    counts = []
    for copies, unit in zip(block.copies, units, strict=True):
        count = min(max(1, half // copies // unit), groups)
        # All copies together hold the reduction, and no more.
        counts.append(ceil_div(groups, copies) if count * copies >= groups else count)
    if _by_thirds(part) and counts[0] > base_k // part.layer.c0:
        counts[0] = floor_to(counts[0], base_k // part.layer.c0)
    a, b = (ceil_div(count * part.window, base_k) for count in dividing(*counts))
    a = min(a, MOST_LENGTH // base_k)
    return (floor_to(a, b), b) if a >= b else (a, floor_to(b, a))


def dividing(first: int, second: int) -> tuple[int, int]:
    """Return two counts with the smaller one lowered to a divisor of the larger one."""
    large, small = max(first, second), min(first, second)
    small = next(count for count in range(small, 0, -1) if large % count == 0)
    return (large, small) if first >= second else (small, large)


def _ladder(block: Dgrad35Block) -> int:
    """Return the most slices that both tiles can have alike, up to what one copy has of the reduction."""
    part, base_k, (al1, _) = block.part, block.base_k, block.copies
    share = ceil_div(part.channel_groups, al1) * part.window
    held = ceil_div(part.machine.l1 // part.layer.itemsize, block.base_n * al1)
    most = ceil_div(min(share, held), base_k)
    # Others than these end inside a window.
    unit = part.window // gcd(part.window, base_k)
    whole = [most] if most * base_k >= part.reduction else []
    for step in chain(whole, range(floor_to(most, unit), 0, -unit)):
        if block.allows(step, step):
            break
    else:
        return 1
    groups, unit = step * base_k // part.window, base_k // part.layer.c0
    if _by_thirds(part) and groups > unit:
        return part.window * floor_to(groups, unit) // base_k
    return step


def _by_thirds(part: Dgrad35Part) -> bool:
    """Return whether channel groups are counted in slices: for 3 x 3 kernels split along both axes."""
    return part.split == "hw" and part.layer.kernel[1] == 3


def _with_any_steps(block: Dgrad35Block) -> Dgrad35Block:
    """Return the block with equal slices in L1 if they are legal, else with even shares of it."""
    ladder = _ladder(block)
    found = replace(block, steps=(ladder, ladder))
    return found if found.legal else replace(block, steps=_equal(block))


def legalised(block: Dgrad35Block) -> Dgrad35Block:
    """Return a block that fits in L1: with a shorter base_k, with shorter sides, then with fewer copies.

    Once the copies that it has are not enough all others are gone through in turn, so that a plan ends with
    one copy of each. The result may be illegal still.
    """
    first = PINGPONG.index(block.copies)
    for copies in PINGPONG[first:]:
        block = _shortened(replace(block, copies=copies))
        if block.legal and copies == PINGPONG[first]:
            return block
    return block


def _shortened(block: Dgrad35Block) -> Dgrad35Block:
    """Return the block with less in L1 until it is legal; steps are the last ones tried where nothing is."""
    if block.legal:
        return block
    c0, tried = block.part.layer.c0, block
    for base_k in range(block.base_k - c0, 0, -c0):
        tried = _with_any_steps(replace(block, base_k=base_k))
        if tried.legal:
            return tried
    for smaller in _smaller(replace(block, base_k=c0)):
        tried = _with_any_steps(smaller)
        if tried.legal:
            return _lengthened(tried)
    return replace(block, steps=tried.steps)


def _smaller(block: Dgrad35Block) -> Iterator[Dgrad35Block]:
    """Yield the block with ever shorter sides: pixels down to a row or to the columns, else columns."""
    m, n, least = block.base_m, block.base_n, max(block.part.layer.input[2], FRACTAL)
    while True:
        if m > least and m > n:
            m -= FRACTAL
        elif n > FRACTAL:
            n -= FRACTAL
        else:
            return
        yield replace(block, base_m=m, base_n=n)


def _lengthened(block: Dgrad35Block) -> Dgrad35Block:
    """Return a block of one C0 group with the longest base_k below what L0 holds that is legal."""
    c0 = block.part.layer.c0
    for base_k in range(l0_length(block.part, block.base_m, block.base_n) - c0, 0, -c0):
        longer = _with_any_steps(replace(block, base_k=base_k))
        if longer.legal:
            return longer
    return block
