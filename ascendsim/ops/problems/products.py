"""Dgrad as one matrix product: the grad_input of a convolution.

The left operand is im2col of grad_output, the right one the weights; an image comes out. A transposed
convolution's forward is a dgrad, and so the other way round: its grad_input is the forward of a plain
convolution. A dgrad slides over grad_output with zeros between its pixels, a forward over it as it is; the
same loop nest makes both, and both are called dgrad here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Final, NamedTuple

from ascendsim.errors import ConfigError, ShapeError, shown, truth, whole
from ascendsim.frozen import cached_property
from ascendsim.instructions.cube import round_up
from ascendsim.instructions.movers import CopyGmToL1
from ascendsim.instructions.winograd import PIXELS, WINDOW
from ascendsim.numerics.dtypes import dtype
from ascendsim.ops.problems.convolution import (
    FRACTAL,
    ConvProblem,
    activation,
    groups_of,
    pairs_by_depth,
    stored_name,
)
from ascendsim.ops.problems.sliding import Sliding, SlidingGemm, Taps
from ascendsim.program.places import Gm, GmTensor, Slot

# Channels a tap where there are so few, and the bytes of an element for which load3d knows that.
FOUR, FOUR_BYTES = 4, 2


@dataclass(frozen=True)
class DgradGemm(SlidingGemm):
    """The matrix product of dgrad, free of product and plan.

    Tensors  source (groups, N, D, C1, H, W, C0), weights (groups, KD, C1, KH, KW, C0, columns),
             output (groups, N, D, C1 of the columns, H * W, C0)
    Depth    `depths[d]` lists for each output depth the (kernel depth, source depth) pairs that reach it
    Channels `channels` of one group are added up; the groups of C0 hold them
    """

    source: GmTensor
    weights: GmTensor
    output: GmTensor
    sliding: Sliding
    depths: tuple[tuple[tuple[int, int], ...], ...]
    backwards: bool
    compute_dtype: str
    channels: int

    @classmethod
    def of(cls, p: ConvProblem, compute_dtype: str, result: str | None = None) -> DgradGemm:
        """Describe the grad_input of a convolution whose operands the cube multiplies as `compute_dtype`.

        result   format in which it leaves the cube, in groups of as many channels as the operands have; None:
                 that of the operands
        """
        storage = dtype(stored_name(compute_dtype))
        sliding = Sliding.of(p, storage.itemsize, backwards=not p.transposed)
        c0, (height, width) = sliding.c0, sliding.out_size
        if p.transposed:
            reduced, columns, source_size, made_depths = (
                p.big_channels,
                p.small_channels,
                p.big_size,
                p.small_size[0],
            )
            met = [(small, (tap, big)) for tap, small, big in p.depths_met]
        else:
            reduced, columns, source_size, made_depths = (
                p.small_channels,
                p.big_channels,
                p.small_size,
                p.big_size[0],
            )
            met = [(big, (tap, small)) for tap, small, big in p.depths_met]
        n1 = groups_of(columns, c0)
        weights = (p.groups, p.kernel[0], groups_of(reduced, c0), *p.kernel[1:], c0, n1 * c0)
        made = (p.groups, p.batch, made_depths, n1, height * width, c0)
        return cls(
            activation("grad_output", p, source_size, reduced, storage),
            GmTensor.of("weight DC1HWC0N", weights, storage.name, "input", "DC1HWC0N"),
            GmTensor.of("grad_input NDC1HWC0", made, result or storage.name, "output", "NDC1HWC0"),
            sliding,
            # In rising order of the kernel depth: the order of their additions, which the bits depend on.
            pairs_by_depth(made_depths, met),
            not p.transposed,
            compute_dtype,
            reduced,
        )

    def in_fours(self) -> DgradGemm:
        """Return the product with source and weights in groups of four channels; the output stays.

        Raises   ConfigError if there are more channels, or they do not have 16 bits
        """
        if self.channels > FOUR or self.sliding.itemsize != FOUR_BYTES:
            raise ConfigError(
                f"grad_input of {self.channels} channels of {self.source.dtype}: four channels a tap are for "
                "at most 4 channels of 16 bits; take another schedule"
            )
        source, weights = self.source, self.weights
        shape = *weights.shape[:5], FOUR, weights.shape[6]
        return replace(
            self,
            source=replace(source, name="grad_output NDC1HWC04", shape=(*source.shape[:6], FOUR)),
            weights=replace(weights, name="weight DC1HWC04N", shape=shape),
            sliding=self.sliding._replace(c0=FOUR),
        )

    @property
    def out_c0(self) -> int:
        """Channels in a group of the output."""
        return self.output.shape[5]

    @property
    def groups(self) -> int:
        """Groups of the convolution."""
        return self.source.shape[0]

    @property
    def batch(self) -> int:
        """Images."""
        return self.source.shape[1]

    @property
    def channel_groups(self) -> int:
        """Groups of C0 channels in the reduction."""
        return self.source.shape[3]

    @property
    def columns(self) -> int:
        """Output channels of one group, padded to C0."""
        return self.weights.shape[6]

    @property
    def taps(self) -> int:
        """Taps of the kernel in H and W."""
        return self.sliding.kernel[0] * self.sliding.kernel[1]

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The sides m, n and k of one product."""
        return self.sliding.pixels, self.columns, self.all_taps.groups * self.sliding.c0

    @cached_property
    def all_taps(self) -> Taps:
        """The whole reduction at one kernel depth."""
        return Taps(0, self.channel_groups, 0, self.sliding.kernel[0], 0, self.sliding.kernel[1])


# Kernels whose windows and C0 groups of channels go into one another well enough for basic blocks.
BLOCK_WINDOWS = (4, 9, 16)
# The least rows, and columns of all kernel depths together, of a grad_weight in basic blocks.
LEAST_BLOCK_SIDE = 128


def takes_blocks(kernel: tuple[int, int, int], small_channels: int, big_channels: int) -> bool:
    """Return whether sizes suit the basic blocks of 910B and 910_93, of 16-bit operands in one group.

    Source   public ops-nn at e5c3fa932, as read: the tiling code and the interface code have the same
             condition
    """
    taps = kernel[1] * kernel[2]
    rows, columns = (round_up(channels, FRACTAL) for channels in (small_channels, big_channels))
    large = min(rows, columns * taps * kernel[0]) >= LEAST_BLOCK_SIDE
    return taps == 1 or (taps in BLOCK_WINDOWS and large)


@dataclass(frozen=True)
class WgradGemm(SlidingGemm):
    """The matrix product of wgrad, free of product and plan.

    Tensors  small (groups, N, D, C1, H * W, C0), big (groups, N, D, C1, H, W, C0),
             output (groups, KD, rows, columns) float32
    Depth    `depths[kd]` lists for each kernel depth the (small depth, big depth) pairs that meet
    """

    small: GmTensor
    big: GmTensor
    output: GmTensor
    sliding: Sliding
    depths: tuple[tuple[tuple[int, int], ...], ...]
    compute_dtype: str

    @classmethod
    def of(cls, p: ConvProblem, compute_dtype: str) -> WgradGemm:
        """Describe the grad_weight of a convolution whose operands the cube multiplies as `compute_dtype`."""
        storage = dtype(stored_name(compute_dtype))
        sliding = Sliding.of(p, storage.itemsize)
        c0, small, big = sliding.c0, p.small_size, p.big_size
        depths = pairs_by_depth(p.kernel[0], [(tap, (small, big)) for tap, small, big in p.depths_met])
        sides = ("input", "grad_output") if p.transposed else ("grad_output", "input")
        left = activation(sides[0], p, small, p.small_channels, storage)
        # The left operand takes runs of pixels, whatever row they are in.
        left = replace(left, shape=(*left.shape[:4], small[1] * small[2], c0))
        # Channels are filled up to whole groups; the host drops the rows and columns of zeros again.
        rows = groups_of(p.small_channels, c0) * c0
        columns = groups_of(p.big_channels, c0) * p.kernel[1] * p.kernel[2] * c0
        made = (p.groups, p.kernel[0], rows, columns)
        return cls(
            left,
            activation(sides[1], p, big, p.big_channels, storage),
            GmTensor.of("grad_weight DNC1HWC0", made, "float32", "output", "DNC1HWC0"),
            sliding,
            depths,
            compute_dtype,
        )

    @property
    def groups(self) -> int:
        """Groups of the convolution."""
        return self.small.shape[0]

    @property
    def batch(self) -> int:
        """Images."""
        return self.small.shape[1]

    @property
    def rows(self) -> int:
        """Rows of the product: small-side channels of one group, padded to C0."""
        return self.small.shape[3] * self.sliding.c0

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The sides m, n and k of one product."""
        return self.rows, self.all_taps.groups * self.sliding.c0, self.sliding.pixels

    @cached_property
    def all_taps(self) -> Taps:
        """All columns at one kernel depth."""
        return Taps(0, self.big.shape[3], 0, self.sliding.kernel[0], 0, self.sliding.kernel[1])


Pair = tuple[int, int]

LAYOUTS = ("ND", "NZ")


@dataclass(frozen=True)
class MatmulProblem:
    """c = a b, `batch` times.

    m, k, n        a is (m, k), b is (k, n), c is (m, n)
    transpose_a    a lies in memory as (k, m); transpose_b: b lies as (n, k)
    layout         how all three lie in memory: "ND" (row after row) or "NZ" (columns of fractals)
    shared_a       whether there is one a for the whole batch

    Raises         ShapeError for sizes that are not positive, flags that are no truth values, a layout that
                   is neither
    """

    m: int
    k: int
    n: int
    batch: int = 1
    transpose_a: bool = False
    transpose_b: bool = False
    layout: str = "ND"
    shared_a: bool = False

    def __post_init__(self) -> None:
        """Refuse sizes that make no matrix product."""
        for name in ("m", "k", "n", "batch"):
            value = getattr(self, name)
            number = whole(value)
            if number is None or number < 1:
                raise ShapeError(f"matmul: {name} is {shown(value)}; it must be a positive integer")
            object.__setattr__(self, name, number)
        for name in ("transpose_a", "transpose_b", "shared_a"):
            flag = truth(getattr(self, name))
            if flag is None:
                raise ShapeError(f"matmul: {name} is {shown(getattr(self, name))}; it must be true or false")
            object.__setattr__(self, name, flag)
        if not isinstance(self.layout, str) or self.layout not in LAYOUTS:
            raise ShapeError(
                f"matmul: layout is {shown(self.layout)}; it must be one of {', '.join(LAYOUTS)}"
            )

    @property
    def stored_a(self) -> tuple[int, int, int]:
        """Shape of a in memory."""
        batch = 1 if self.shared_a else self.batch
        return (batch, self.k, self.m) if self.transpose_a else (batch, self.m, self.k)

    @property
    def stored_b(self) -> tuple[int, int, int]:
        """Shape of b in memory."""
        return (self.batch, self.n, self.k) if self.transpose_b else (self.batch, self.k, self.n)

    @property
    def macs(self) -> int:
        """Multiply-adds."""
        return self.batch * self.m * self.k * self.n

    def runs(self, rows: int, columns: int, itemsize: int) -> int:
        """Return in how many runs of consecutive bytes a piece of a stored matrix lies.

        Each row is one, as the copy that relays rows into fractals takes them one by one; in NZ, each column
        of fractals is, which is 32 bytes wide.
        """
        return rows if self.layout == "ND" else -(-columns * itemsize // 32)


def problem_of(
    a: tuple[int, ...], b: tuple[int, ...], *, transpose_a: bool = False, transpose_b: bool = False
) -> MatmulProblem:
    """Return the problem of two stored matrices, (rows, columns) or (batch, rows, columns) each.

    Raises   ShapeError if they do not fit
    """
    if not len(a) == len(b) in (2, 3) or a[:-2] != b[:-2]:
        raise ShapeError(
            f"matmul: a has shape {a} and b {b}; both must be matrices, or batches of equally many"
        )
    turn_a, turn_b = truth(transpose_a), truth(transpose_b)
    for name, given, flag in (("a", transpose_a, turn_a), ("b", transpose_b, turn_b)):
        if flag is None:
            raise ShapeError(f"matmul: transpose_{name} is {shown(given)}; it must be true or false")
    (m, k), (inner, n) = a[-2:], b[-2:]
    if turn_a:
        m, k = k, m
    if turn_b:
        inner, n = n, inner
    if k != inner:
        turned = "".join(f", transpose_{name}" for name, flag in (("a", turn_a), ("b", turn_b)) if flag)
        raise ShapeError(f"matmul: a {a} has inner size {k}, but b {b} has {inner}{turned}")
    return MatmulProblem(m, k, n, a[0] if len(a) == 3 else 1, bool(turn_a), bool(turn_b))


@dataclass(frozen=True)
class MatmulGemm:
    """A matrix product with its tensors in GM: `a` and `b` as they are stored, `c` (batch, m, n)."""

    problem: MatmulProblem
    a: GmTensor
    b: GmTensor
    c: GmTensor
    compute_dtype: str

    @classmethod
    def of(cls, problem: MatmulProblem, compute_dtype: str, result: str | None = None) -> MatmulGemm:
        """Describe a product that the cube multiplies as `compute_dtype`; `result` is the format of c."""
        stored = stored_name(compute_dtype)
        made = result or ("int32" if stored == "int8" else stored)
        return cls(
            problem,
            GmTensor.of("a", problem.stored_a, stored),
            GmTensor.of("b", problem.stored_b, stored),
            GmTensor.of("c", (problem.batch, problem.m, problem.n), made, "output"),
            compute_dtype,
        )

    def mmads(self, base: tuple[int, int, int]) -> int:
        """Return the number of Mmads for base blocks of size (m, n, k)."""
        sizes = self.problem.m, self.problem.n, self.problem.k
        return self.problem.batch * prod(-(-size // length) for size, length in zip(sizes, base, strict=True))

    def copy_to_l1(self, slot: Slot, place: Gm, extent: Pair, line_bytes: int) -> CopyGmToL1:
        """Return the copy of a piece of a stored matrix, by its rows and columns, into L1."""
        tensor = place.tensor
        size = extent[0] * extent[1] * tensor.itemsize
        # The copy's cost asks whether every row begins at a line of L2: requests cross none.
        # Rows are turned into fractals on the way; a matrix in NZ lies in fractals already.
        relays = self.problem.layout == tensor.layout == "ND"
        problem = self.problem if relays else replace(self.problem, layout="NZ")
        runs = problem.runs(*extent, tensor.itemsize)
        aligned = not relays or (tensor.shape[2] * tensor.itemsize) % line_bytes == 0
        return CopyGmToL1(slot, place, size, extent, rows=runs, aligned=aligned, relays=relays)


# Rows and columns of tiles in a cluster; the reduction of one Mmad.
SHAPES: Final = ((2, 16), (4, 8))
CLUSTER: Final = 32


class Cluster(NamedTuple):
    """One cluster: its image, and its place among the image's clusters, down and across."""

    image: int
    row: int
    column: int


@dataclass(frozen=True)
class Clusters:
    """The clusters of all images.

    rows, columns   tiles of a cluster, down and across
    down, across    clusters of an image
    """

    batch: int
    rows: int
    columns: int
    down: int
    across: int

    @classmethod
    def of(cls, batch: int, size: tuple[int, int]) -> Clusters:
        """Return the clusters of images by rows and columns of the small side.

        The shape is the one that needs fewer clusters, of equal ones 2 x 16.
        Source   host code of the public operator (ops-nn), as read
        """
        tiles = [-(-extent // PIXELS) for extent in size]
        found = (
            cls(batch, rows, columns, -(-tiles[0] // rows), -(-tiles[1] // columns))
            for rows, columns in SHAPES
        )
        return min(found, key=lambda one: one.of_image)

    @property
    def of_image(self) -> int:
        """Clusters of one image."""
        return self.down * self.across

    def __len__(self) -> int:
        return self.batch * self.of_image

    def part(self, part: int, parts: int) -> range:
        """Return the clusters of a part of the reduction, by number; parts are equal but for the last."""
        length = -(-len(self) // parts)
        return range(min(part * length, len(self)), min((part + 1) * length, len(self)))

    def at(self, number: int) -> Cluster:
        """Return a cluster by its number: images are the slowest, then rows."""
        image, rest = divmod(number, self.of_image)
        return Cluster(image, *divmod(rest, self.across))

    def tiles(self, cluster: Cluster) -> Iterator[tuple[int, int]]:
        """Yield the first row and column on the small side of each tile of a cluster, row by row."""
        for row in range(self.rows):
            for column in range(self.columns):
                yield (
                    (cluster.row * self.rows + row) * PIXELS,
                    (cluster.column * self.columns + column) * PIXELS,
                )

    @property
    def small_pixels(self) -> tuple[int, int]:
        """Rows and columns of the small side that a cluster covers, side by side."""
        return self.rows * PIXELS, self.columns * PIXELS

    @property
    def big_pixels(self) -> tuple[int, int]:
        """Rows and columns of the big side that a cluster covers: its tiles overlap by two pixels."""
        rows, columns = self.small_pixels
        return rows + WINDOW - PIXELS, columns + WINDOW - PIXELS
