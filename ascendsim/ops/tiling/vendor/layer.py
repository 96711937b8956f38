"""A convolution and a core as the operators' planning code sees them."""

from __future__ import annotations

from typing import NamedTuple

from ascendsim.cube.tile_reads import round_up
from ascendsim.numerics.formats.dtypes import dtype as dtype_named
from ascendsim.ops.problems.convolution import ConvProblem, Pair, Triple
from ascendsim.ops.problems.hf32 import stored_name
from ascendsim.ops.problems.merged import filling_groups
from ascendsim.ops.problems.packed import C0_BYTES
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
