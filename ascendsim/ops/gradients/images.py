"""grad_input without instructions: weights meet the pixels of grad_output that each pixel of the input meets.

By rows of taps, or by single taps, each tile of pixels has steps of its own in each pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ascendsim.numerics.accumulation import AccumulationModel
from ascendsim.numerics.compiled.accumulate import NOTHING, PlannedProducts, cuts_of_products
from ascendsim.numerics.compiled.turned import turned, turned_to_halves
from ascendsim.numerics.factor import ALONE, Factor, Threads, Values
from ascendsim.ops.gradients.layouts import KEPT_ELEMENTS, PixelPlanes, Planes, packed_kernels, plane_places
from ascendsim.ops.problems.orders import DgradOrder
from ascendsim.ops.problems.sliding import Sliding, StridePhase, Taps, phases_of
from ascendsim.ops.reference.ordered import add_in_order

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.ops.problems.convolution import ConvProblem
    from ascendsim.ops.problems.products import DgradGemm

    Floats = NDArray[np.float32]
    Elements = NDArray[Any]
    Places = NDArray[np.int64]


class PassSteps(NamedTuple):
    """Some steps of a reduction at one kernel depth, in order: their numbers, and the lengths of Mmads.

    Numbers are those in (channel group, tap, channel), the order without passes.
    """

    numbers: Places
    mmads: Places


def steps_of_tile(
    sliding: Sliding, order: DgradOrder, channel_groups: int, tile: tuple[int, int]
) -> list[PassSteps]:
    """Return the steps of each part of the reduction for a tile (first pixel, pixels); [] if it has none."""
    rows, cols = sliding.kernel
    whole = np.arange(channel_groups * rows * cols * order.c0).reshape(channel_groups, rows * cols, order.c0)
    passes = list(_passes(order.tap_loop, rows, cols))
    met = [sliding.tile(*tile, taps).rows is not None for taps in passes]
    found, channel = [], 0
    for slices in order.runs() if any(met) else []:
        last = channel + sum(slices) // (rows * cols)
        numbers, mmads = [], []
        for taps, own, taken in zip(passes, _cut(slices, len(passes)), met, strict=True):
            if taken:
                first = taps.row * cols + taps.col
                numbers.append(whole[channel:last, first : first + taps.cols].reshape(-1))
                mmads.append(np.array(own) * order.c0)
        found.append(PassSteps(np.concatenate(numbers), np.concatenate(mmads)))
        channel = last
    return found


def _passes(tap_loop: str, rows: int, cols: int) -> Iterator[Taps]:
    """Yield the taps of each pass, of one channel group."""
    for row, col in product(range(rows), range(cols) if tap_loop == "khkw" else (0,)):
        yield Taps(0, 1, row, 1, col, 1 if tap_loop == "khkw" else cols)


def _cut(slices: Sequence[int], passes: int) -> list[list[int]]:
    """Return the slices of each pass: all passes of a part are equally long."""
    each = sum(slices) // passes
    found: list[list[int]] = [[]]
    for length in slices:
        if sum(found[-1]) == each:
            found.append([])
        found[-1].append(length)
    return found


def image_gradient(
    problem: ConvProblem,
    gemm: DgradGemm,
    order: DgradOrder,
    model: AccumulationModel,
    grad_output: Elements,
    weight: Elements,
    threads: Threads = ALONE,
    *,
    to_halves: bool = False,
) -> tuple[Elements, dict[int, PixelPlanes]]:
    """Return the accumulators of grad_input, and by group the pixels of grad_output where all are laid out.

    Shapes   grad_output and weight as `problem` says, on the grid that the cube multiplies -> as input,
             before the conversion to its format
    halves   `to_halves`: the accumulators may be rounded to binary16 to nearest, where that costs no pass
    """
    made = gemm.sliding.out_size
    phases = _phases(gemm.sliding, order)
    columns = problem.small_channels if problem.transposed else problem.big_channels
    # Pixels of a phase that meets no tap are zero. A product that makes every pixel is the result itself.
    alone = problem.groups * len(gemm.depths) * len(phases) == 1 and phases[0][0].sliding.out_size == made
    shape = problem.batch, problem.groups, columns, len(gemm.depths), *made
    result = np.zeros((0,) if alone else shape, np.float32)
    size = gemm.source.shape[2], *gemm.sliding.image_size
    source = grad_output.reshape(problem.batch, problem.groups, -1, *size)
    laid_out: dict[int, PixelPlanes] = {}
    kernels = packed_kernels(weight, problem, order.c0, threads)
    for group, (phase, own) in product(range(problem.groups), phases):
        sliding, (top, left), (down, right) = phase.sliding, phase.first, phase.step
        images = source[:, group]
        planes = Planes.of(images, sliding, gemm.channel_groups * order.c0, threads)
        # Planes that are mostly zeros would be kept for little.
        if planes.values.size < 2 * images.size and (pixels := planes.inner()) is not None:
            laid_out[group] = pixels
        taken = np.ascontiguousarray(kernels[group, :, :, phase.rows, phase.cols])
        asked = ImagePlaces(planes.values.shape, sliding, taken.shape, own, model, gemm.backwards)
        made_of = _ImageProduct(asked, planes.read.values, Values(taken), threads)
        for depth, pairs in enumerate(gemm.depths):
            sums = made_of.sums(tuple(pairs)).reshape(problem.batch, -1, columns)
            if alone:
                turn = turned_to_halves if to_halves else turned
                return turn(sums, threads).reshape(problem.input), laid_out
            made_here = turned(sums, threads).reshape(problem.batch, columns, *sliding.out_size)
            result[:, group, :, depth, top::down, left::right] = made_here
    return result.reshape(problem.input), laid_out


def _phases(sliding: Sliding, order: DgradOrder) -> list[tuple[StridePhase, DgradOrder]]:
    """Return the phases that meet taps, each with its order; without a split all pixels are one."""
    if not order.axes:
        rows, cols = (slice(0, taps) for taps in sliding.kernel)
        return [(StridePhase((0, 0), (1, 1), sliding, rows, cols), order)]
    each = enumerate(phases_of(sliding, order.axes))
    return [(phase, order.of_phase(number)) for number, phase in each if order.phases[number]]


Pairs = tuple[tuple[int, int], ...]  # of (kernel, source) depths


class ImagePlaces(NamedTuple):
    """Where the product of one group finds its factors.

    planes      shape of the planes of the source; kernels: (KD, C1, KH, KW, C0, columns)
    backwards   the taps are taken from the last to the first
    """

    planes: tuple[int, ...]
    sliding: Sliding
    kernels: tuple[int, ...]
    order: DgradOrder
    model: AccumulationModel
    backwards: bool

    @property
    def taps(self) -> Places:
        """How far from the first tap's place each tap lies."""
        return plane_places(self.planes, self.sliding).taps

    @property
    def pixels(self) -> Places:
        """Where every output pixel begins to read, image after image."""
        first = np.arange(self.planes[0]) * prod(self.planes[1:])
        return (first[:, None] + plane_places(self.planes, self.sliding).read).reshape(-1)

    def part(self, pairs: Pairs, number: int) -> PlannedProducts:
        """Return a part of the reduction, at every pair of depths one after the other."""
        c0, runs = self.order.c0, self.order.runs()
        first, length = (sum(map(sum, some)) * c0 for some in (runs[:number], runs[number : number + 1]))
        return self.steps(pairs, slice(first, first + length), np.array(runs[number]) * c0, self.pixels)

    def steps(self, pairs: Pairs, steps: slice | Places, mmads: Places, pixels: Places) -> PlannedProducts:
        """Return some steps of the reduction, in Mmads of these lengths, by pair of depths."""
        c0, columns = self.order.c0, np.arange(self.kernels[-1])
        # The reduction at one kernel depth: channel groups, taps, channels of the group.
        channels = np.arange(self.kernels[1])[:, None, None] * c0 + np.arange(c0)
        own = (channels + self.taps[:, None]).reshape(-1)
        theirs = np.arange(own.size).reshape(self.kernels[1:-1]) * columns.size
        theirs = (theirs[:, ::-1, ::-1] if self.backwards else theirs).reshape(-1)
        left = [source * prod(self.planes[2:]) + own[steps] for _, source in pairs]
        right = [kernel * prod(self.kernels[1:]) + theirs[steps] for kernel, _ in pairs]
        ends = np.cumsum(np.tile(mmads, len(pairs)))
        a = Factor(NOTHING, pixels, np.concatenate(left), c0)
        b = Factor(NOTHING, columns, np.concatenate(right))
        return PlannedProducts.of(self.model, a, b, cuts_of_products(self.model, ends, [len(ends)]))


# One for each part of a layer of a large network that differs from others.
_known_part = lru_cache(maxsize=64)(ImagePlaces.part)


class _ImageProduct:
    """The product of one group: planes of the source against kernels."""

    def __init__(self, asked: ImagePlaces, planes: Values, kernels: Values, threads: Threads) -> None:
        self._asked, self._given = asked, (planes, kernels, threads)
        self._part = _known_part if prod(asked.planes) <= KEPT_ELEMENTS else ImagePlaces.part

    def sums(self, pairs: Pairs) -> Floats:
        """Return the accumulators of all pixels at a depth that these (kernel, source) depths reach."""
        asked, order = self._asked, self._asked.order
        parts = len(order.parts) or 1
        # A reduction in one piece begins in L0C, several are added to the zero in global memory.
        if pairs and parts == 1 and not order.tap_loop:
            return self._made(self._part(asked, pairs, 0))
        pixels = asked.planes[0] * prod(asked.sliding.out_size)
        total = np.zeros((pixels, asked.kernels[-1]), np.float32)
        if not pairs:
            return total
        if order.tap_loop:
            return self._in_passes(pairs, total)
        for number in range(parts):
            total += self._made(self._part(asked, pairs, number))
        return total

    def _made(self, planned: PlannedProducts) -> Floats:
        made: Floats = planned.made(*self._given)[0]
        return made

    def _in_passes(self, pairs: Pairs, total: Floats) -> Floats:
        """Add what every tile of pixels has of each pass, in all images."""
        asked, order, places = self._asked, self._asked.order, self._asked.pixels
        of_image = np.arange(asked.planes[0])[:, None] * prod(asked.sliding.out_size)
        for tile in order.tiles:
            pixels = (of_image + np.arange(tile[0], sum(tile))).reshape(-1)
            parts = steps_of_tile(asked.sliding, order, asked.kernels[1], tile)
            made = [self._made(asked.steps(pairs, *steps, places[pixels])) for steps in parts]
            if made:
                # A reduction in one piece begins in L0C, several are added to the zero in global memory.
                total[pixels] = made[0] if len(made) == 1 else add_in_order([total[pixels], *made])
        return total
