"""A convolution and a core as the operators' planning code sees them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ascendsim.instructions.cube import round_up
from ascendsim.numerics.dtypes import dtype as dtype_named
from ascendsim.ops.plan import Tiling
from ascendsim.ops.problems.convolution import (
    C0_BYTES,
    ConvProblem,
    Pair,
    Triple,
    filling_groups,
    stored_name,
)
from ascendsim.profile import Profile
from ascendsim.profile.schema import CUBE_BYTES

FRACTAL = 16
PLAIN = "NCDHW"


class Layouts(NamedTuple):
    """Layouts of the user's tensors, by axis letters; 1-D and 2-D tensors are given as their 3-D forms."""

    input: str = PLAIN
    weight: str = PLAIN
    grad_output: str = PLAIN

    @property
    def plain(self) -> bool:
        """Whether all of them are channels-first."""
        return self == PLAIN_LAYOUTS


PLAIN_LAYOUTS = Layouts()


class LayerSizes(NamedTuple):
    """One convolution, as plain sizes; spatial ones are (D, H, W).

    input, output       the big and the small side (of a transposed one: grad_output and input)
    ci, co              channels of one group, on the big and on the small side
    pads                before and after, along each axis
    itemsize            bytes of an element in memory; `true_fp32`: float32 that the cube does not round
    transposed_forward  grad_input stands for the forward pass of a transposed convolution
    merges              whether groups may be merged; not so where the caller has merged them
    """

    batch: int
    groups: int
    ci: int
    co: int
    input: Triple
    output: Triple
    kernel: Triple
    stride: Triple
    dilation: Triple
    pads: tuple[Pair, Pair, Pair]
    itemsize: int
    true_fp32: bool = False
    transposed_forward: bool = False
    layouts: Layouts = PLAIN_LAYOUTS
    merges: bool = True

    @classmethod
    def of(
        cls,
        problem: ConvProblem,
        compute_dtype: str,
        *,
        transposed_forward: bool = False,
        layouts: Layouts = PLAIN_LAYOUTS,
    ) -> LayerSizes:
        """Return the layer of a problem whose operands the cube multiplies as `compute_dtype`."""
        return cls(
            problem.batch,
            problem.groups,
            problem.big_channels,
            problem.small_channels,
            problem.big_size,
            problem.small_size,
            problem.kernel,
            problem.strides,
            problem.dilations,
            problem.pads,
            dtype_named(stored_name(compute_dtype)).itemsize,
            compute_dtype == "float32",
            transposed_forward,
            layouts,
        )

    @property
    def c0(self) -> int:
        """Channels of 32 bytes."""
        return C0_BYTES // self.itemsize

    @property
    def taps(self) -> int:
        """Taps in H and W."""
        return self.kernel[1] * self.kernel[2]

    @property
    def ci1(self) -> int:
        """Groups of C0 channels on the big side."""
        return -(-self.ci // self.c0)

    @property
    def co1(self) -> int:
        """Groups of C0 channels on the small side."""
        return -(-self.co // self.c0)

    @property
    def spans(self) -> Triple:
        """Extent of the dilated kernel."""
        d, h, w = ((k - 1) * gap + 1 for k, gap in zip(self.kernel, self.dilation, strict=True))
        return d, h, w

    @property
    def in_pixels(self) -> int:
        """Pixels of one image of the big side: m of grad_input."""
        return self.input[1] * self.input[2]

    @property
    def out_pixels(self) -> int:
        """Pixels of one image of the small side: k of grad_weight."""
        return self.output[1] * self.output[2]

    def merge_factor(self, unit: int) -> int:
        """Return how many groups fill fractals together, with the big side's channels in steps of `unit`."""
        return filling_groups(self.groups, self.ci, self.co, unit) if self.merges else 1

    def merged(self, factor: int) -> LayerSizes:
        """Return the layer whose groups are so many of this one's, with zeros off the diagonal."""
        groups = ceil_div(self.groups, factor)
        return self._replace(groups=groups, ci=self.ci * factor, co=self.co * factor)


class Machine(NamedTuple):
    """Figures of a product for planning: bytes of the buffers of one core, and cube cores."""

    l1: int
    l0a: int
    l0b: int
    l0c: int
    ub: int
    cores: int

    @classmethod
    def of(cls, profile: Profile) -> Machine:
        """Return the figures of a profile."""
        size = {name: buffer.capacity_bytes for name, buffer in profile.buffers.items()}
        return cls(size["L1"], size["L0A"], size["L0B"], size["L0C"], size["UB"], profile.cores.cube)

    @property
    def l0_half(self) -> int:
        """Bytes of one of two copies in the smaller of L0A and L0B."""
        return min(self.l0a, self.l0b) // 2

    @property
    def l0c_floats(self) -> int:
        """Elements of float32 in L0C."""
        return self.l0c // 4

    def beside(self, side: int, most: int) -> int:
        """Return the other side of a tile in L0C, at most so long, in whole fractals."""
        return min(most, max(FRACTAL, floor_to(self.l0c_floats // side, FRACTAL)))


def other_cube(profile: Profile, compute_dtype: str) -> str:
    """Return why the operators' rules say nothing of a product's cube; "" where they are for it."""
    cube, k0 = profile.cube, profile.cube.rate(compute_dtype).k0
    usual = C0_BYTES // CUBE_BYTES[compute_dtype]
    if (cube.m0, cube.n0, k0) == (FRACTAL, FRACTAL, usual):
        return ""
    own = f"{cube.m0} x {cube.n0} x {k0}"
    return f"its rules are for a cube of {FRACTAL} x {FRACTAL} x {usual}, and this one is {own}"


def ceil_div(total: int, part: int) -> int:
    """Divide, rounding up."""
    return -(-total // part)


def floor_to(value: int, unit: int) -> int:
    """Round down to a multiple."""
    return value // unit * unit


def align(value: int) -> int:
    """Round up to whole fractals."""
    return round_up(value, FRACTAL)


def largest_whole(limit: int, window: int) -> int | None:
    """Return the largest multiple of a fractal up to `limit` that divides a window or is made of whole ones.

    A window is the reduction that one C0 group of channels adds: all of its taps. None: there is none.
    """
    for size in range(floor_to(limit, FRACTAL), 0, -FRACTAL):
        if is_whole(size, window):
            return size
    return None


def is_whole(size: int, window: int) -> bool:
    """Return whether windows of the reduction are cut into equal pieces, or not at all."""
    return size % window == 0 or window % size == 0


# Fields that mean the same in an operator's plan and in a tiling of any nest.
SHARED = (
    *("base_m", "base_n", "base_k", "step_ka", "step_kb", "used_cores", "single_core_m", "single_core_n"),
    *("al1_buffers", "bl1_buffers", "al0_buffers", "bl0_buffers", "cl0_buffers", "group_merge"),
)


@dataclass(frozen=True)
class VendorPlan:
    """The plan that an operator's host code hands to its kernel.

    Sizes are elements of the product: grad_input m = pixels, n = channels of input, k = (channel, tap) of
    grad_output; grad_weight m = channels of grad_output, n = (channel, tap) of input, k = pixels.

    strategy       the rule it comes from: "basic_block", "core_grid", "basic_mk", "basic_det", "library",
                   "stream_k", "winograd", ...
    base_m, base_n, base_k
                   one L0C tile, and the reduction of one Mmad; by Winograd channels of either side and tiles,
                   at each of 16 points
    step_ka, step_kb, step_m, step_n
                   slices of base_k, and base blocks along m and n, that one tile of L1 holds
    single_core_m, single_core_n, single_core_k
                   the share of one task; 0: all of it
    *_buffers      copies of a tile: 1, or 2 for ping-pong
    used_cores     cores that the kernel is launched on; without a task they turn weights, or add parts
    tasks          shares, dealt to the cores as `mapping` says
    mapping        "contiguous" ranges, "interleaved" (task t on core t mod cores), or a "grid" of cores
    order          axes of the task's index, slowest first
    split          of grad_weight: the axes that are cut into tasks beside images and depths
    grid           parts along the axes of a core grid: "batch", "d", "m", "n", "k", "group", "dk"
    taps           "all" in one Mmad's reduction, "c04" (4 channels a tap), "kh" or "khkw" looped over outside
    kernel_split   "" or the axes along which the stride splits the kernel: "h", "hw"
    group_merge    groups that are computed as one
    k_segment      channels of the reduction that are added before a partial result leaves L0C; 0: all
    stream_ways, stream_axis
                   parts of the tasks of the last round, and what they are cut along: "batch_depth", "height",
                   or "clusters" of tiles
    strip_w        columns of grad_output that one pass takes; 0: whole rows
    transpose_first  whether vector cores turn the weights in a phase of their own
    through_gm     whether the results of a split kernel are interleaved through a workspace
    zero_first     whether the operator clears the result before, as taps are skipped or cores add to it
    host           what else the operator hands to its kernel, by its own names; a nest reads only how many
                   images and depths a part of a grid has
    """

    strategy: str
    base_m: int
    base_n: int
    base_k: int
    step_ka: int = 1
    step_kb: int = 1
    step_n: int = 1
    single_core_m: int = 0
    single_core_n: int = 0
    single_core_k: int = 0
    single_core_d: int = 1
    al1_buffers: int = 2
    bl1_buffers: int = 2
    al0_buffers: int = 2
    bl0_buffers: int = 2
    cl0_buffers: int = 1
    used_cores: int = 1
    tasks: int = 1
    mapping: str = "contiguous"
    order: tuple[str, ...] = ()
    split: str = ""
    grid: tuple[tuple[str, int], ...] = field(default=())
    taps: str = "all"
    kernel_split: str = ""
    group_merge: int = 1
    k_segment: int = 0
    stream_ways: int = 1
    stream_axis: str = ""
    strip_w: int = 0
    transpose_first: bool = False
    through_gm: bool = False
    zero_first: bool = False
    host: tuple[tuple[str, int], ...] = ()
    step_m: int = 1

    def tiling(self, **others: Any) -> Tiling:
        """Return the plan's tiling, as loop nests read it; `others` are more fields, or other values."""
        return Tiling(**{name: getattr(self, name) for name in SHARED} | others)


def rows_touched(pixels: int, width: int) -> int:
    """Return the most rows of so many pixels that a run of consecutive ones touches, cut at its multiples."""
    if pixels % width == 0 or width % pixels == 0:
        return ceil_div(pixels, width)
    return pixels // width + 2 if pixels > width else 2


def dgrad_rows(layer: LayerSizes, pixels: int) -> int:
    """Return the rows of grad_output, zeros inserted, that so many pixels of grad_input need."""
    expanded = (layer.output[1] - 1) * layer.stride[1] + 1
    return min(rows_touched(pixels, layer.input[2]) - 1 + layer.spans[1], expanded)


def wgrad_rows(layer: LayerSizes, pixels: int) -> int:
    """Return the rows of input that so many pixels of grad_output need under the kernel."""
    rows = rows_touched(pixels, layer.output[2])
    return (rows - 1) * layer.stride[1] + layer.spans[1]


def wgrad_channels(columns: int, taps: int, c0: int) -> int:
    """Return the channels of input that so many columns of im2col need.

    Columns are (channel group, tap, channel): a run of them that begins inside a window ends in another one.
    """
    groups = ceil_div(columns, c0)
    lines = ceil_div(groups, taps)
    cut = taps % groups if taps > groups else 2 * groups % taps
    return (lines + (cut != 0)) * c0


class WgradBase(NamedTuple):
    """A base block: channels of grad_output, columns of input, and pixels."""

    m: int
    n: int
    k: int


def window_lines(columns: int, layer: LayerSizes) -> int:
    """Return the C0 groups of channels that so many columns of im2col touch, wherever the run begins."""
    groups = ceil_div(columns, layer.c0)
    return ceil_div(groups, layer.taps) + (2 * groups % layer.taps != 0)


@dataclass(frozen=True)
class L1Need:
    """Room of a block in L1 with one copy and one slice of each operand.

    layer, machine     the merged layer, and the core
    a_bytes, b_bytes   bytes of each operand's tile of a block
    b_rows             rows of input that a block has in L1
    width, line        pixels of a row of grad_output, or of a strip, and of the line of input that it needs
    beside             the side by which the growth of base_m is bounded in L0C: 910B "m", 910_95 "n"
    """

    layer: LayerSizes
    machine: Machine
    a_bytes: Callable[[WgradBase], int]
    b_bytes: Callable[[WgradBase], int]
    b_rows: Callable[[WgradBase], int]
    width: int
    line: int
    beside: str = "m"

    def excess(self, base: WgradBase) -> int:
        """Return the bytes that L1 lacks for a block; negative where some are left."""
        return self.a_bytes(base) + self.b_bytes(base) - self.machine.l1

    def lines(self, columns: int) -> int:
        """Return the channel groups of so many columns."""
        return window_lines(columns, self.layer)


def shrunk(base: WgradBase, room: L1Need) -> WgradBase:
    """Return the block made smaller, first along k, then along both sides, and grown again.

    Nothing is checked at the end: the block may still not fit in L1, and its base_k is 0 where it has grown
    so many rows that L0 does not hold a fractal of them.
    """
    base, done = _shorter_k(base, room)
    return base if done else _grown(_shorter_sides(base, room), room)


def _shorter_k(base: WgradBase, room: L1Need) -> tuple[WgradBase, bool]:
    """Return the block with a shorter base_k, and whether it fits so.

    Once base_k lies within a row its tile of input gets no smaller: the search stops at a divisor of the
    row, or at once where a row is no whole fractals.
    """
    layer, size = room.layer, room.layer.itemsize
    of_input = room.lines(base.n) * layer.c0 * room.line * layer.stride[1] * FRACTAL * size
    each = FRACTAL * base.m * size + ceil_div(of_input, room.width)
    k = base.k - FRACTAL * ceil_div(max(0, room.excess(base)), each)
    if k < FRACTAL:
        return base._replace(k=FRACTAL), False
    while room.excess(base._replace(k=k)) > 0 and k > FRACTAL:
        k -= FRACTAL
        if k <= room.width and (room.width % FRACTAL or room.width % k == 0):
            break
    base = base._replace(k=k)
    return base, room.excess(base) <= 0


def _shorter_sides(base: WgradBase, room: L1Need) -> WgradBase:
    """Return the block with the longer side shortened to the other one, then both, until it fits."""
    m, n, k = base
    while room.excess(WgradBase(m, n, k)) > 0 and m != n:
        if m > n:
            m = max(n, m - FRACTAL)
        else:
            n = max(m, n - FRACTAL)
    excess = room.excess(WgradBase(m, n, k))
    if excess <= 0:
        return WgradBase(m, n, k)
    size = room.layer.itemsize
    of_input = ceil_div(room.b_rows(WgradBase(m, n, k)) * room.line * FRACTAL * size, room.layer.taps)
    fractals = ceil_div(excess, FRACTAL * k * size + of_input)
    if m < FRACTAL * (fractals + 1):
        return WgradBase(FRACTAL, FRACTAL, k)
    m = n = m - FRACTAL * fractals
    while room.excess(WgradBase(m, n, k)) > 0 and m > FRACTAL:
        m -= FRACTAL
        if room.lines(m) < room.lines(n):
            n = m
    return WgradBase(m, n, k)


def _grown(base: WgradBase, room: L1Need) -> WgradBase:
    """Return the block with as many rows, then as long a base_k, as L1 and L0 hold.

    Whether the operator of 910B keeps to L0 where base_k reaches the end of the image is not settled; here
    it does.
    """
    layer, machine, (m, n, k) = room.layer, room.machine, base
    rows, reduction = align(layer.co), align(layer.out_pixels)
    bound = machine.l0c // layer.itemsize // 2 // {"m": m, "n": n}[room.beside] // FRACTAL
    free = -room.excess(base)
    longer = m + FRACTAL * (free // (FRACTAL * k * layer.itemsize)) if free >= 0 else rows
    m = min(max(bound, 1) * FRACTAL, longer, rows)
    while room.excess(WgradBase(m, n, k + FRACTAL)) <= 0:
        k += FRACTAL
    halves = (size // 2 // layer.itemsize for size in (machine.l0a, machine.l0b))
    most = [floor_to(half // side, FRACTAL) for half, side in zip(halves, (m, n), strict=True)]
    return WgradBase(m, n, whole_rows(min(k, *most, reduction), room.width))


def whole_rows(pixels: int, width: int) -> int:
    """Return the pixels as whole rows where these are whole fractals and shorter."""
    return floor_to(pixels, width) if width % FRACTAL == 0 and width < pixels else pixels
