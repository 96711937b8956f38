"""The base block of grad_input on 910_95, and its tasks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ascendsim.ops.tiling.vendor.arch35.dgrad_parts import PIXELS_OF_ONE_TAP, Part
from ascendsim.ops.tiling.vendor.image_l1 import ONE_SLICE, Steps
from ascendsim.ops.tiling.vendor.layer import FRACTAL, align, ceil_div, floor_to, is_whole

LONGEST, LONGEST_NARROW = 1024, 512
# (m, n) of a kernel of several taps, and of one.
MANY_TAPS, ONE_TAP = (512, 128), (256, 256)
# And the bytes of k that go with the first.
FIRST_K_BYTES = 64
# Where 3 x 3 kernels make so many tasks for each core, smaller blocks end more evenly.
SMALLER_M, FEWEST_TASKS, MOST_TASKS, LEAST_PIXELS = 256, 10, 45, 512


@dataclass(frozen=True)
class Block:
    """A base block of one pass, with its tiles in L1.

    single_m   pixels of a task; 0: base_m
    widened    whether base_n grew as there are fewer pixels than the block would take
    """

    part: Part
    base_m: int
    base_n: int
    base_k: int
    single_m: int = 0
    widened: bool = False
    steps: Steps = ONE_SLICE

    @property
    def slices(self) -> int:
        """Slices of base_k in a reduction."""
        return ceil_div(self.part.reduction, self.base_k)

    @property
    def column_bytes(self) -> int:
        """Bytes of one window of the weights."""
        return self.base_n * self.part.window * self.part.layer.itemsize

    @property
    def columns(self) -> int:
        """Blocks along n."""
        return ceil_div(self.part.layer.ci, self.base_n)

    @property
    def tasks(self) -> int:
        """Tasks: pixels, channels, images and phases."""
        rows = ceil_div(self.part.layer.in_pixels, self.single_m or self.base_m)
        return rows * self.columns * self.part.images * self.part.passes

    @property
    def l0c_copies(self) -> int:
        """Copies of the tile in L0C: two if they fit."""
        return 2 if 2 * self.base_m * self.base_n <= self.part.machine.l0c_floats else 1

    def a_bytes(self, steps: Steps) -> int:
        """Return the bytes of all copies of grad_output's tile."""
        windows = ceil_div(steps.a * self.base_k, self.part.window)
        return steps.a_buffers * windows * self.part.channel_bytes(self.base_m)

    def b_bytes(self, steps: Steps) -> int:
        """Return the bytes of all copies of the weights' tile."""
        return steps.b_buffers * ceil_div(steps.b * self.base_k, self.part.window) * self.column_bytes

    def fits(self, steps: Steps) -> bool:
        """Tell whether L1 holds these tiles, and each is made of whole windows, or is all there is."""
        lengths = (steps.a * self.base_k, steps.b * self.base_k)
        whole = all(n % self.part.window == 0 or n >= self.part.reduction for n in lengths)
        # What is left is for bias and weights' scales: the last byte is never taken.
        return whole and self.a_bytes(steps) + self.b_bytes(steps) < self.part.machine.l1

    def holding(self, steps: Steps | None) -> Block | None:
        """Return the block with tiles in L1; None without any."""
        return replace(self, steps=steps) if steps is not None else None


def base_block(part: Part) -> Block:
    """Return the base block, which fills L0C as far as pixels and channels go."""
    layer, machine = part.layer, part.machine
    pixels, channels = align(layer.in_pixels), align(layer.ci)
    start_m, start_n = MANY_TAPS if many_taps(part) else ONE_TAP
    start_n = machine.beside(start_m, start_n)
    if layer.kernel[1:] == (3, 3) and layer.in_pixels >= LEAST_PIXELS:
        tasks = part.images * ceil_div(layer.in_pixels, start_m) * ceil_div(layer.ci, start_n)
        if FEWEST_TASKS * machine.cores <= tasks <= MOST_TASKS * machine.cores:
            start_m = SMALLER_M
    base_m = min(start_m, machine.l0a // (layer.c0 * 2 * layer.itemsize), pixels)
    base_n = min(start_n, channels)
    widened = False
    if base_n < start_n:
        most = LONGEST_NARROW if base_n <= FRACTAL or part.far else LONGEST
        base_m = min(most, floor_to(machine.l0c_floats // base_n, FRACTAL), pixels)
    if base_m < start_m:
        base_n = min(LONGEST, floor_to(machine.l0c_floats // base_m, FRACTAL), channels)
        widened = base_n > start_n
    return Block(part, base_m, base_n, longest_k(part, base_m, base_n), widened=widened)


def longest_k(part: Part, base_m: int, base_n: int) -> int:
    """Return the longest base_k of a half of L0 that takes whole rows of taps, or cuts windows evenly.

    One C0 group is no such cut: where nothing longer is, the block keeps the base_k that it began with, as
    far as L0 holds that.
    """
    unit = part.layer.c0
    limit = min(part.machine.l0_half // part.layer.itemsize // max(base_m, base_n), part.reduction)
    most = max(unit, floor_to(limit, unit))
    even = (base_k for base_k in range(most, unit, -unit) if _cuts_evenly(part, base_k))
    # The phases of an odd kernel that the stride splits have other windows, and one base_k must serve all.
    least = unit if _odd_phases(part) else min(most, _first_k(part))
    return next(even, least)


def shorter_ks(block: Block) -> Iterator[int]:
    """Yield each shorter base_k that takes whole rows of taps or cuts windows evenly, the longest first."""
    unit = block.part.layer.c0
    for base_k in range(block.base_k - unit, 0, -unit):
        if base_k == unit or _cuts_evenly(block.part, base_k):
            yield base_k


def _cuts_evenly(part: Part, base_k: int) -> bool:
    """Tell whether a base_k takes whole rows of taps, or cuts windows evenly."""
    layer, (_, kh, kw) = part.layer, part.layer.kernel
    if _odd_phases(part):
        return is_whole(base_k, part.window) and is_whole(base_k, part.smallest * layer.c0)
    if part.taps == "c04":
        return base_k % FRACTAL == 0
    row = kw if kw > 1 else kh
    by_rows = row > 1 and base_k % (row * layer.c0) == 0
    return by_rows or is_whole(base_k, part.window)


def _odd_phases(part: Part) -> bool:
    """Tell whether the kernels that the stride makes of one differ in their taps."""
    return part.smallest not in (0, part.layer.taps)


def _first_k(part: Part) -> int:
    """Return the base_k of a block before it is fitted: 64 bytes under several taps, 128 under one."""
    return (FIRST_K_BYTES if many_taps(part) else 2 * FIRST_K_BYTES) // part.layer.itemsize


def many_taps(part: Part) -> bool:
    """Tell whether one pass adds the products of several taps, in H and W or in depth."""
    return part.layer.kernel[0] * part.layer.taps > 1 and part.taps in ("all", "c04")


def balanced(block: Block) -> Block:
    """Return the block with even columns, and its tasks in rows of pixels where that costs nothing."""
    part, cores = block.part, block.part.machine.cores
    layer, tasks = part.layer, block.tasks
    if tasks <= cores or tasks % cores == 0 or cores % tasks == 0 or block.widened:
        block = replace(block, base_n=align(ceil_div(layer.ci, block.columns)))
    height, width = layer.input[1:]
    single_m = block.base_m
    if part.taps == "khkw":
        single_m = width
    elif tasks <= cores:
        rows = ceil_div(height, ceil_div(layer.in_pixels, block.base_m))
        single_m = rows * width
    elif block.base_m >= (MANY_TAPS[0] if layer.taps > 1 else ONE_TAP[0]) and width <= block.base_m:
        rows_m = block.base_m // width * width
        if ceil_div(part.pixels, rows_m) <= ceil_div(part.pixels, block.base_m):
            single_m = rows_m
    if single_m > block.base_m and part.taps != "khkw":
        single_m = block.base_m
    most = PIXELS_OF_ONE_TAP if part.taps in ("kh", "khkw") else block.base_m
    return replace(block, single_m=single_m, base_m=min(block.base_m, align(single_m), most))
