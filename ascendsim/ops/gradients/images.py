"""grad_input: the weights against the pixels of grad_output that each pixel of the input meets.

By rows of taps, or by single taps, each tile of pixels has steps of its own in each pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ascendsim.numerics.compiled.accumulate import product_of
from ascendsim.numerics.compiled.turned import turned, turned_to_halves
from ascendsim.numerics.factor import ALONE, Factor, Threads, Values
from ascendsim.ops.gradients.layouts import PixelPlanes, Planes, packed_kernels
from ascendsim.ops.problems.sliding import Sliding, StridePhase, Taps, phases_of
from ascendsim.ops.reference.ordered import add_in_order
from ascendsim.ops.schedules.base import DgradOrder

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.numerics.accumulation import AccumulationModel
    from ascendsim.ops.problems.convolution import ConvProblem
    from ascendsim.ops.problems.products import DgradGemm

    Places = NDArray[np.int64]
    Floats = NDArray[np.float32]
    # Carriers, or binary16 as it is stored.
    Elements = NDArray[Any]


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
        made_of = _ImageProduct(planes, taken, own, model, threads, backwards=gemm.backwards)
        for depth, pairs in enumerate(gemm.depths):
            sums = made_of.sums(pairs).reshape(problem.batch, -1, columns)
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


class _ImageProduct:
    """The product of one group: planes of the source against kernels (KD, C1, KH, KW, C0, columns).

    backwards   the taps are taken from the last to the first
    """

    def __init__(
        self,
        planes: Planes,
        kernels: Floats,
        order: DgradOrder,
        model: AccumulationModel,
        threads: Threads,
        *,
        backwards: bool,
    ) -> None:
        self._planes, self._read, self._order = planes, planes.read, order
        self._kernels, self._columns, self._depth = Values(kernels), kernels.shape[-1], kernels[0].size
        self._model, self._threads = model, threads
        first = np.array([self._read.image(number, 0) for number in range(len(planes.values))])
        self._pixels = (first[:, None] + self._read.pixels).reshape(-1)
        # The reduction at one kernel depth: channel groups, taps, channels of the group.
        c0, c1 = order.c0, kernels.shape[1]
        channels = np.arange(c1)[:, None, None] * c0 + np.arange(c0)
        self._left = (channels + planes.taps()[:, None]).reshape(-1)
        right = np.arange(self._left.size).reshape(kernels.shape[1:-1]) * kernels.shape[-1]
        self._right = (right[:, ::-1, ::-1] if backwards else right).reshape(-1)

    def sums(self, pairs: Sequence[tuple[int, int]]) -> Floats:
        """Return the accumulators of all pixels at a depth that these (kernel, source) depths reach."""
        runs = self._order.runs()
        # A reduction in one piece begins in L0C, several are added to the zero in global memory.
        if pairs and len(runs) == 1 and not self._order.tap_loop:
            return self._part(pairs, slice(0, self._left.size), runs[0])
        total, first = np.zeros((self._pixels.size, self._columns), np.float32), 0
        if not pairs:
            return total
        if self._order.tap_loop:
            return self._in_passes(pairs, total)
        for slices in runs:
            last = first + sum(slices) * self._order.c0
            total += self._part(pairs, slice(first, last), slices)
            first = last
        return total

    def _part(self, pairs: Sequence[tuple[int, int]], part: slice, slices: tuple[int, ...]) -> Floats:
        """Return a part of the reduction, at every pair of depths one after the other."""
        return self._steps(pairs, part, np.array(slices) * self._order.c0, self._pixels)

    def _in_passes(self, pairs: Sequence[tuple[int, int]], total: Floats) -> Floats:
        """Add what every tile of pixels has of each pass, in all images."""
        planes, order = self._planes, self._order
        groups = self._left.size // (planes.taps().size * order.c0)
        of_image = np.arange(len(planes.values))[:, None] * self._read.pixels.size
        for tile in order.tiles:
            pixels = (of_image + np.arange(tile[0], sum(tile))).reshape(-1)
            parts = steps_of_tile(planes.sliding, order, groups, tile)
            made = [self._steps(pairs, *steps, self._pixels[pixels]) for steps in parts]
            if made:
                # A reduction in one piece begins in L0C, several are added to the zero in global memory.
                total[pixels] = made[0] if len(made) == 1 else add_in_order([total[pixels], *made])
        return total

    def _steps(
        self, pairs: Sequence[tuple[int, int]], steps: slice | Places, mmads: Places, pixels: Places
    ) -> Floats:
        """Return the sums of some steps of the reduction, in Mmads of these lengths, by pair of depths."""
        left = [self._read.image(0, source) + self._left[steps] for _, source in pairs]
        right = [kernel * self._depth + self._right[steps] for kernel, _ in pairs]
        ends = np.cumsum(np.tile(mmads, len(pairs)))
        a = Factor(self._read.values, pixels, np.concatenate(left), self._order.c0)
        b = Factor(self._kernels, np.arange(self._columns), np.concatenate(right))
        return product_of(self._model, a, b, ends, self._threads)
