"""The plans of grad_weight on 910B and 910_93 by base blocks: three ways of 16 bits, and a deterministic one.

Most 2-D gradients have the plans of `library.py` instead.

basic_mk, basic_nk   tasks are rows of pixels; one operand's tiles stay in L1 for a task
basic_mn             tasks are tiles of the result with whole images for their reduction
basic_det            tasks are tiles of the result with all images; those of the last round are cut (stream-K)

Source   host code of the public operator (ops-nn at e5c3fa932), as read
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from math import gcd

from ascendsim.instructions.cube import round_up
from ascendsim.ops.problems.products import takes_blocks
from ascendsim.ops.tiling.vendor.layer import (
    FRACTAL,
    L1Need,
    LayerSizes,
    Machine,
    VendorPlan,
    WgradBase,
    align,
    ceil_div,
    floor_to,
    shrunk,
    wgrad_rows,
    whole_rows,
    window_lines,
)

LONG, SHORT = 256, 128
# Bytes of base_k beside these sides: of tasks with whole images, and of tasks of some rows.
WHOLE_K_BYTES, ROWS_K_BYTES = 128, 256
# Slices in all copies of either operand's tile. Tasks of rows: that of the resident operand first.
WHOLE_DEPTHS = tuple((depth, depth) for depth in (16, 14, 12, 10, 8, 6, 4, 2, 1))
ROWS_DEPTHS = ((8, 8), (8, 4), (4, 4), (4, 2), (2, 2), (2, 1), (1, 1))
STREAMS = {"": 0, "batch_depth": 1, "height": 2}


@dataclass(frozen=True)
class Wgrad22Block:
    """A base block of grad_weight with its tiles in L1, and how tasks are cut.

    layer              of merged groups
    columns            of the product, whole C0 groups of channels: (kernel depth, channel, tap)
    split              the axes that are cut into tasks beside images and depths: "mk", "nk" or "mn"
    depth_a, depth_b   slices of base_k in all copies of a tile: 1 in one copy, or half of them in each of two
    wide_n             columns of a task, where these are more than follow from the block; 0: they are not
    """

    layer: LayerSizes
    machine: Machine
    columns: int
    split: str
    base: WgradBase
    depth_a: int = 1
    depth_b: int = 1
    wide_n: int = 0

    @property
    def rows(self) -> int:
        """Rows of the product."""
        return align(self.layer.co)

    @property
    def window(self) -> int:
        """Columns of one C0 group of channels."""
        return self.layer.taps * self.layer.c0

    @property
    def pixels(self) -> int:
        """The reduction in one image, in whole C0 groups."""
        return round_up(self.layer.out_pixels, self.layer.c0)

    @property
    def copies(self) -> tuple[int, int]:
        """Copies of either tile."""
        return min(2, self.depth_a), min(2, self.depth_b)

    @property
    def steps(self) -> tuple[int, int, int, int]:
        """Slices in one tile of either operand, then base blocks along m and n in it.

        What a resident operand's depth leaves beyond the image goes to more blocks.
        """
        slices = ceil_div(self.pixels, self.base.k)
        room_a, room_b = (
            depth // copies for depth, copies in zip((self.depth_a, self.depth_b), self.copies, strict=True)
        )
        a, b = min(room_a, slices), min(room_b, slices)
        if self.split == "mk":
            return floor_to(a, b), b, min(room_a // a, ceil_div(self.rows, self.base.m)), 1
        if self.split == "nk":
            return a, floor_to(b, a), 1, min(room_b // b, ceil_div(self.columns, self.base.n))
        return a, b, 1, 1

    @property
    def single_m(self) -> int:
        """Rows of a task."""
        return self.rows if self.split == "nk" else self.steps[2] * self.base.m

    @property
    def single_n(self) -> int:
        """Columns of a task: whole windows, perhaps more than there are."""
        if self.split == "mk":
            return self.columns
        return self.wide_n or max(self.steps[3] * self.base.n // self.window, 1) * self.window

    @property
    def single_k(self) -> int:
        """Pixels of a task: whole rows, or a whole image."""
        if self.split == "mn":
            return self.pixels
        width = self.layer.output[2]
        return max(max(self.steps[:2]) * self.base.k // width, 1) * width

    @property
    def strips(self) -> int:
        """Tasks along the columns."""
        return ceil_div(self.columns, self.single_n)

    @property
    def image_tasks(self) -> int:
        """Tasks of one image."""
        return ceil_div(self.rows, self.single_m) * self.strips * ceil_div(self.pixels, self.single_k)

    def b_rows(self, slices: int) -> int:
        """Return the rows of input that a tile of so many slices needs."""
        return wgrad_rows(self.layer, slices * self.base.k)

    @property
    def b_elements(self) -> int:
        """Elements of one copy of input's tile."""
        _, step, _, step_n = self.steps
        channels = window_lines(step_n * self.base.n, self.layer) * self.layer.c0
        return self.b_rows(step) * self.layer.input[2] * channels

    @property
    def l1_bytes(self) -> int:
        """Bytes of all tiles in L1."""
        step, _, step_m, _ = self.steps
        a = self.copies[0] * step * self.base.k * step_m * self.base.m
        return (a + self.copies[1] * self.b_elements) * self.layer.itemsize

    @property
    def fits(self) -> bool:
        """Return whether L1 holds the tiles."""
        return self.l1_bytes <= self.machine.l1

    @property
    def legal(self) -> bool:
        """Return whether all buffers hold what the block needs; operators do not ask for it at the end."""
        m, n, k = self.base
        half = self.machine.l0_half // self.layer.itemsize
        return self.fits and k * max(m, n) <= half and m * n <= self.machine.l0c_floats

    def shrunk(self) -> Wgrad22Block | None:
        """Return the block, one slice and one copy of each operand, made smaller for L1; None: no block."""
        shallow = replace(self, depth_a=1, depth_b=1)
        base = shrunk(self.base, shallow.room)
        return replace(shallow, base=base) if base.k else None

    @property
    def room(self) -> L1Need:
        """Room that blocks of this layer take in L1."""
        size, line = self.layer.itemsize, self.layer.input[2]
        return L1Need(
            self.layer,
            self.machine,
            lambda base: base.m * base.k * size,
            lambda base: replace(self, base=base).b_elements * size,
            lambda base: wgrad_rows(self.layer, base.k),
            self.layer.output[2],
            line,
        )


def basic_block(given: LayerSizes, machine: Machine) -> VendorPlan | None:
    """Return the plan of basic blocks; None where the operator takes another one, or no tile fits in L1.

    Blocks of different tasks are added atomically, so this is not for calls that must be deterministic.
    """
    layer = given.merged(given.merge_factor(FRACTAL))
    if not takes_basic_blocks(layer):
        return None
    images, block = layer.batch * layer.output[0], None
    strided = layer.stride[1] * layer.stride[2] > 1
    if strided and (layer.taps % FRACTAL == 0 or FRACTAL % layer.taps == 0):
        block = _whole_images(layer, machine, _columns(layer, layer.kernel[0]))
    if block is None or images * block.image_tasks < machine.cores:
        block = _rows_of_images(layer, machine)
    if block is None or not block.legal:
        return None
    tasks = images * block.image_tasks
    slow, fast = {"mk": ("k", "m"), "nk": ("k", "n"), "mn": ("m", "n")}[block.split]
    return replace(
        _plan(block),
        strategy=f"basic_{block.split}",
        # The operator leaves the way out of blocks with whole images in the open.
        cl0_buffers=1 if block.split == "mn" else _l0c_copies(block),
        used_cores=min(tasks, machine.cores),
        tasks=tasks,
        order=(slow, "batch", "d", fast),
        group_merge=given.merge_factor(FRACTAL),
        zero_first=True,
    )


def takes_basic_blocks(layer: LayerSizes) -> bool:
    """Return whether the operator computes a layer by basic blocks."""
    if layer.itemsize != 2 or layer.groups > 1 or (layer.dilation[0] > 1 and layer.kernel[0] > 1):
        return False
    return takes_blocks(layer.kernel, layer.co, layer.ci)


def _columns(layer: LayerSizes, depths: int) -> int:
    """Return the columns of the product, of so many kernel depths together."""
    return layer.taps * layer.ci1 * layer.c0 * depths


def _l0c_copies(block: Wgrad22Block) -> int:
    """Return the copies of a tile in L0C: two if they fit."""
    return 2 if 2 * block.base.m * block.base.n <= block.machine.l0c_floats else 1


def _clipped(layer: LayerSizes, columns: int, sides: tuple[int, int], k: int) -> WgradBase:
    """Return the base block cut to the sides of the matrix product; base_k grows by what they lose."""
    (m0, n0), pixels = sides, align(layer.out_pixels)
    m, n = min(m0, align(layer.co)), min(n0, align(columns))
    k = min(floor_to(k * m0 // m, FRACTAL), floor_to(k * n0 // n, FRACTAL), pixels)
    return WgradBase(m, n, whole_rows(k, layer.output[2]))


def _whole_images(layer: LayerSizes, machine: Machine, columns: int) -> Wgrad22Block | None:
    """Return the block of tasks with whole images, with tiles as deep as L1 holds."""
    shorter = machine.beside(LONG, SHORT)
    sides = (LONG, shorter) if align(layer.co) > SHORT else (shorter, LONG)
    base = _clipped(layer, columns, sides, WHOLE_K_BYTES // layer.itemsize)
    block = Wgrad22Block(layer, machine, columns, "mn", base)
    for depth_a, depth_b in WHOLE_DEPTHS:
        deep = replace(block, depth_a=depth_a, depth_b=depth_b)
        if deep.fits:
            return deep
    return block.shrunk()


def _rows_of_images(layer: LayerSizes, machine: Machine) -> Wgrad22Block | None:
    """Return the block of tasks with some rows, with the deepest tiles that leave each core a task."""
    columns = _columns(layer, layer.kernel[0])
    split = "nk" if align(layer.co) > columns else "mk"
    sides = SHORT, machine.beside(SHORT, SHORT)
    base = _clipped(layer, columns, sides, ROWS_K_BYTES // layer.itemsize)
    block = Wgrad22Block(layer, machine, columns, split, base)
    for stays, comes in ROWS_DEPTHS:
        depth_a, depth_b = (stays, comes) if split == "mk" else (comes, stays)
        block = replace(block, depth_a=depth_a, depth_b=depth_b)
        enough = layer.batch * layer.output[0] * block.image_tasks >= machine.cores
        if enough and block.fits:
            return block
    return block if block.fits else block.shrunk()


def _plan(block: Wgrad22Block) -> VendorPlan:
    """Return the plan with the fields that all blocks share."""
    step_ka, step_kb, step_m, step_n = block.steps
    host = {"stepM": step_m, "iterateOrder": int(block.rows > block.columns), "bl1Bound": block.b_elements}
    return VendorPlan(
        *("", *block.base, step_ka, step_kb, step_n),
        single_core_m=block.single_m,
        single_core_n=block.single_n,
        single_core_k=block.single_k,
        al1_buffers=block.copies[0],
        bl1_buffers=block.copies[1],
        split=block.split,
        host=(*host.items(), ("streamKType", 0), ("coreStreamK", 0)),
    )


# --- deterministic


def stream_k(given: LayerSizes, machine: Machine) -> VendorPlan | None:
    """Return the plan in which every element of the result is added by one core, in one order.

    Only the tasks of the last round are cut further; vector cores add their parts in a fixed order. None: no
    tile fits in L1. The operator takes it where input lies in groups of channels, as it does in all calls
    here; its library plans calls with a plain layout.
    """
    # A task reduces all images and depths for one kernel depth: the kernel's depths are tasks of their own.
    layer = given.merged(given.merge_factor(FRACTAL))
    whole = _whole_images(layer, machine, _columns(layer, 1))
    block = whole and _retiled(_widened(whole))
    if block is None or not block.legal:
        return None
    tasks = _tasks(block)
    used = tasks if machine.cores // 2 < tasks < machine.cores else machine.cores
    ways, axis = _tail(block, tasks % used, used)
    if tasks <= used // 2:
        used = min(tasks * ways, machine.cores)
    plan = _plan(block)
    return replace(
        plan,
        strategy="basic_det",
        cl0_buffers=_l0c_copies(block),
        used_cores=used,
        tasks=tasks,
        order=("group", "kd", "m", "n"),
        group_merge=given.merge_factor(FRACTAL),
        stream_ways=ways,
        stream_axis=axis,
        host=tuple((dict(plan.host) | _streams(ways, axis)).items()),
    )


def _streams(ways: int, axis: str) -> dict[str, int]:
    """Return the operator's fields of the last round."""
    return {"streamKType": STREAMS[axis], "coreStreamK": ways if axis else 0}


def _tasks(block: Wgrad22Block) -> int:
    """Return the tasks of tiles of the result."""
    return _tasks_of_a_strip(block) * block.strips


def _tasks_of_a_strip(block: Wgrad22Block) -> int:
    """Return the tasks of one strip of columns."""
    return ceil_div(block.rows, block.single_m) * block.layer.groups * block.layer.kernel[0]


def _widened(block: Wgrad22Block) -> Wgrad22Block:
    """Return the block with wider strips, where the tasks then keep all cores busy to the end.

    Strips so wide that the tasks fill whole rounds come first, then those whose last round does if it is cut
    in as many ways as the reduction has parts.
    """
    cores, layer = block.machine.cores, block.layer
    tasks, others = _tasks(block), _tasks_of_a_strip(block)
    if tasks % cores == 0 and block.single_n >= block.columns:
        return block
    wide = _strip(block, others, cores)
    if ceil_div(block.columns, wide) * others % cores == 0:
        return replace(block, wide_n=wide)
    parts = max(block.pixels // block.base.k, layer.batch * layer.output[0])
    if tasks % cores + 2 < cores:
        for ways in range(2, min(parts, cores) + 1):
            wide = _strip(block, others, cores // ways)
            tail = ceil_div(block.columns, wide) * others % cores
            if tail * ways == cores or tail + 2 >= cores:
                return replace(block, wide_n=wide)
    return block


def _strip(block: Wgrad22Block, others: int, tasks: int) -> int:
    """Return the columns of a strip with which so many tasks come out evenly: at least a block's."""
    wide = ceil_div(block.layer.ci1, tasks // gcd(others, tasks)) * block.window
    return max(block.single_n, min(wide, block.columns))


def _retiled(block: Wgrad22Block) -> Wgrad22Block:
    """Return the block with whole windows for columns, where its strips would end in a thin tile."""
    strip, layer, machine = align(block.single_n), block.layer, block.machine
    block = replace(block, wide_n=block.single_n, base=block.base._replace(n=min(block.base.n, strip)))
    m, n, k = block.base
    fractals = n // FRACTAL
    tail = strip // FRACTAL % fractals
    if not 0 < tail <= 2 or 2 * tail >= fractals:
        return block
    most, windows = max(fractals, FRACTAL), ceil_div(fractals, layer.taps)
    if windows * layer.taps > most:
        windows = max(1, windows - 1)
    if windows * layer.taps > most:
        return block
    n = windows * layer.taps * FRACTAL
    beside = min(machine.l0c_floats // n, m)
    halved = m // 2 if m > SHORT and beside < m else beside
    m = max(FRACTAL, floor_to(min(halved, beside), FRACTAL))
    longest = floor_to(machine.l0b // layer.itemsize // 2 // max(m, n), FRACTAL)
    k = next(_shorter(replace(block, base=WgradBase(m, n, longest)), block.steps), 0)
    # Steps are those of the depth found for the block before.
    return replace(block, base=WgradBase(m, n, k), wide_n=0) if k else block


def _shorter(block: Wgrad22Block, steps: tuple[int, int, int, int]) -> Iterator[int]:
    """Yield, longest first, the lengths of base_k with `steps` slices in L1."""
    layer, (m, n, longest) = block.layer, block.base
    copies_a, copies_b = block.copies
    line = layer.input[2] * window_lines(n, layer) * layer.c0
    for k in range(longest, 0, -FRACTAL):
        a, b = steps[0] * k * m, wgrad_rows(layer, steps[1] * k) * line
        if (copies_a * a + copies_b * b) * layer.itemsize <= block.machine.l1:
            yield k


def _tail(block: Wgrad22Block, tail: int, used: int) -> tuple[int, str]:
    """Return in how many parts each task of the last round is cut, and along which axis."""
    if not 0 < tail <= used // 2:
        return 1, ""
    layer, most = block.layer, used // tail
    width, pixels, images = layer.output[2], layer.out_pixels, layer.batch * layer.output[0]
    each = ceil_div(images, most)
    of_rows = max(min(most, ceil_div(pixels, max(width, block.base.k))), 1)
    share = ceil_div(layer.output[1], of_rows) * width
    by_images, by_rows = ceil_div(images, each), ceil_div(pixels, share)
    # With a remainder, images lose to rows whose last part is fuller.
    thin = images % each and Fraction(images % each, each) < Fraction(pixels % share, share)
    ways, axis = (by_rows, "height") if by_images < by_rows or thin else (by_images, "batch_depth")
    return (ways, axis) if ways > 1 else (1, "")
