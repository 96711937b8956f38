"""A convolution and a core as the operators' planning code sees them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from ascendsim.cube.loads import round_up
from ascendsim.numerics.formats.dtypes import dtype as dtype_named
from ascendsim.ops.problems.convolution import (
    C0_BYTES,
    ConvProblem,
    Pair,
    Triple,
    filling_groups,
    stored_name,
)
from ascendsim.profile import Profile

FRACTAL = 16
PLAIN = "NCDHW"


class Layouts(NamedTuple):
    """How the user's tensors lie, by axis letters; 1-D and 2-D ones as the 3-D ones that they are made to."""

    input: str = PLAIN
    weight: str = PLAIN
    grad_output: str = PLAIN

    @property
    def plain(self) -> bool:
        """Whether all of them are channels-first."""
        return self == PLAIN_LAYOUTS


PLAIN_LAYOUTS = Layouts()


class Layer(NamedTuple):
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
    ) -> Layer:
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
        """Return how many groups together fill fractals, with the big side's channels in steps of `unit`."""
        return filling_groups(self.groups, self.ci, self.co, unit) if self.merges else 1

    def merged(self, factor: int) -> Layer:
        """Return the layer whose groups are so many of this one's, with zeros off the diagonal."""
        groups = ceil_div(self.groups, factor)
        return self._replace(groups=groups, ci=self.ci * factor, co=self.co * factor)


class Machine(NamedTuple):
    """What planning asks of a product: bytes of the buffers of one core, and cube cores."""

    l1: int
    l0a: int
    l0b: int
    l0c: int
    ub: int
    cores: int

    @classmethod
    def of(cls, profile: Profile) -> Machine:
        """Return what a profile says."""
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
    """Tell whether windows of the reduction are cut into equal pieces, or not at all."""
    return size % window == 0 or window % size == 0


@dataclass(frozen=True)
class VendorPlan:
    """What the host side of an operator hands to its kernel.

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
    host           what else the operator hands to its kernel and no loop nest here reads, by its own names
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
