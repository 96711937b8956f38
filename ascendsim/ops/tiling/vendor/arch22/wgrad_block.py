"""The basic blocks of grad_weight on 910B and 910_93, for 16-bit operands of one group."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ascendsim.cube.tile_reads import round_up
from ascendsim.ops.problems.wgrad import takes_blocks
from ascendsim.ops.tiling.vendor.layer import FRACTAL, Layer, Machine, align, ceil_div, floor_to
from ascendsim.ops.tiling.vendor.plan import VendorPlan
from ascendsim.ops.tiling.vendor.windows import wgrad_channels, wgrad_rows

LONG, SHORT = 256, 128
# Tiles in L1 of either operand, with those that stay for a task first: both halve in turn.
LADDER = ((8, 8), (8, 4), (4, 4), (4, 2), (2, 2), (2, 1), (1, 1))
DEEPEST = 16


@dataclass(frozen=True)
class Block:
    """A base block of grad_weight with its tiles in L1, and the axes that are cut into tasks.

    rows, columns      of the product, whole fractals; columns are (kernel depth, channel, tap)
    split              "mk": grad_output stays in L1; "nk": input stays; "mn": neither
    depth_a, depth_b   base_k slices in all copies: 1 in one copy, or half of them in each of two
    """

    layer: Layer
    machine: Machine
    rows: int
    columns: int
    split: str
    base_m: int
    base_n: int
    base_k: int
    depth_a: int = 1
    depth_b: int = 1

    @property
    def slices(self) -> int:
        """Slices of base_k in one image."""
        return ceil_div(self.layer.out_pixels, self.base_k)

    @property
    def step_ka(self) -> int:
        """Slices in one tile of grad_output."""
        return min(max(1, self.depth_a // 2), self.slices)

    @property
    def step_kb(self) -> int:
        """Slices in one tile of input."""
        return min(max(1, self.depth_b // 2), self.slices)

    @property
    def single_k(self) -> int:
        """Pixels of a task: whole rows, or a whole image."""
        width = self.layer.output[2]
        if self.split == "mn":
            return align(self.layer.out_pixels)
        return max(max(self.step_ka, self.step_kb) * self.base_k // width, 1) * width

    @property
    def single_m(self) -> int:
        """Rows of a task."""
        return self.rows if self.split == "nk" else self.base_m

    @property
    def single_n(self) -> int:
        """Columns of a task: whole windows."""
        if self.split == "mk":
            return self.columns
        return min(self.columns, round_up(self.base_n, self.layer.taps * FRACTAL))

    @property
    def image_tasks(self) -> int:
        """Tasks of one image."""
        parts = ceil_div(self.rows, self.single_m) * ceil_div(self.columns, self.single_n)
        return parts * ceil_div(self.layer.out_pixels, self.single_k)

    @property
    def fits(self) -> bool:
        """Tell whether L1 holds the tiles, and half of L0 a slice."""
        layer = self.layer
        if self.base_k * max(self.base_m, self.base_n) * layer.itemsize > self.machine.l0_half:
            return False
        a = min(2, self.depth_a) * self.step_ka * self.base_k * self.base_m
        channels = wgrad_channels(self.base_n, layer.taps, layer.c0)
        rows = wgrad_rows(layer, self.step_kb * self.base_k)
        b = min(2, self.depth_b) * rows * layer.input[2] * channels
        return (a + b) * layer.itemsize <= self.machine.l1

    def with_longest_k(self) -> Block:
        """Return the block with the longest base_k of L0: whole rows where these are whole fractals.

        A fractal at least, which a small L0 may not hold beside sides as long.
        """
        longest = self.machine.l0_half // self.layer.itemsize // max(self.base_m, self.base_n)
        base_k = min(max(FRACTAL, floor_to(longest, FRACTAL)), align(self.layer.out_pixels))
        width = self.layer.output[2]
        if width % FRACTAL == 0 and base_k > width:
            base_k = floor_to(base_k, width)
        return replace(self, base_k=base_k)


def basic_block(layer: Layer, machine: Machine) -> VendorPlan | None:
    """Return the plan of basic blocks; None where the operator takes another one, or no tile fits in L1.

    Blocks of different tasks are added atomically, so this is not for calls that must be deterministic.
    """
    if not takes_basic_blocks(layer):
        return None
    taps, images = layer.taps, layer.batch * layer.output[0]
    if max(layer.stride[1:]) > 1 and (taps % FRACTAL == 0 or FRACTAL % taps == 0):
        block = whole_images(layer, machine, columns_of(layer, depths=True))
        if block is not None and images * block.image_tasks >= machine.cores:
            return block_plan(block)
    block = _split_images(layer, machine)
    return block_plan(block) if block is not None else None


def takes_basic_blocks(layer: Layer) -> bool:
    """Tell whether the operator computes a layer by basic blocks."""
    if layer.itemsize != 2 or layer.groups > 1 or (layer.dilation[0] > 1 and layer.kernel[0] > 1):
        return False
    return takes_blocks(layer.kernel, layer.co, layer.ci)


def columns_of(layer: Layer, *, depths: bool) -> int:
    """Return the columns of the product: of all kernel depths together, or of one."""
    return align(layer.ci) * layer.taps * (layer.kernel[0] if depths else 1)


def whole_images(layer: Layer, machine: Machine, columns: int) -> Block | None:
    """Return the block whose tasks are tiles of the result with whole images for their reduction."""
    rows = align(layer.co)
    shorter = machine.beside(LONG, SHORT)
    long, short = (LONG, shorter) if rows > SHORT else (shorter, LONG)
    block = Block(
        layer, machine, rows, columns, "mn", min(long, rows), min(short, columns), FRACTAL
    ).with_longest_k()
    for depth in (*range(DEEPEST, 0, -2), 1):
        deep = replace(block, depth_a=depth, depth_b=depth)
        if deep.fits:
            return deep
    return _shrunk(block)


def _split_images(layer: Layer, machine: Machine) -> Block | None:
    """Return the block whose tasks are rows of pixels; the operand with fewer tiles stays for a task."""
    rows, columns = align(layer.co), columns_of(layer, depths=True)
    split = "nk" if rows > columns else "mk"
    base = min(SHORT, rows), min(machine.beside(SHORT, SHORT), columns), FRACTAL
    block = Block(layer, machine, rows, columns, split, *base).with_longest_k()
    found = None
    for stays, comes in LADDER:
        depth_a, depth_b = (stays, comes) if split == "mk" else (comes, stays)
        deep = replace(block, depth_a=depth_a, depth_b=depth_b)
        if deep.fits:
            found = deep
            # Shallower tiles make shorter tasks, so that all cores get some.
            if layer.batch * layer.output[0] * deep.image_tasks >= machine.cores:
                break
    return found or _shrunk(block)


def _shrunk(block: Block) -> Block | None:
    """Return the block with as many columns, then rows, as L1 holds of the shortest reduction."""
    sides = [(block.base_m, base_n) for base_n in range(block.base_n, 0, -FRACTAL)]
    sides += [(base_m, FRACTAL) for base_m in range(block.base_m - FRACTAL, 0, -FRACTAL)]
    for base_m, base_n in sides:
        small = replace(block, base_m=base_m, base_n=base_n, base_k=FRACTAL, depth_a=1, depth_b=1)
        if small.fits:
            longest = small.with_longest_k()
            lengths = range(longest.base_k, FRACTAL, -FRACTAL)
            longer = (replace(small, base_k=base_k) for base_k in lengths)
            return next((block for block in longer if block.fits), small)
    return None


def block_plan(block: Block) -> VendorPlan:
    """Return the plan of a block: all of its tasks, in the order in which they are dealt."""
    layer, cores = block.layer, block.machine.cores
    tasks = layer.batch * layer.output[0] * block.image_tasks
    slow, fast = {"mk": ("k", "m"), "nk": ("k", "n"), "mn": ("m", "n")}[block.split]
    return VendorPlan(
        *("basic_block", block.base_m, block.base_n, block.base_k, block.step_ka, block.step_kb),
        single_core_m=block.single_m,
        single_core_n=block.single_n,
        single_core_k=block.single_k,
        al1_buffers=min(2, block.depth_a),
        bl1_buffers=min(2, block.depth_b),
        # Blocks of whole images are so long that the operator leaves their way out in the open.
        cl0_buffers=1 if block.split == "mn" else l0c_copies(block.base_m, block.base_n, block.machine),
        used_cores=min(tasks, cores),
        tasks=tasks,
        order=(slow, "batch", "d", fast),
        split=block.split,
        resident={"mk": "a", "nk": "b", "mn": ""}[block.split],
        zero_first=True,
    )


def l0c_copies(base_m: int, base_n: int, machine: Machine) -> int:
    """Return the copies of a tile in L0C: two if they fit."""
    return 2 if 2 * base_m * base_n <= machine.l0c_floats else 1
