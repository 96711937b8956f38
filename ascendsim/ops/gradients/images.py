"""grad_input: the weights against the pixels of grad_output that each pixel of the input meets."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ascendsim.numerics.compiled.gathered.factor import Factor, Values
from ascendsim.numerics.compiled.gathered.product import product_of
from ascendsim.numerics.compiled.gathered.threads import ALONE, Threads
from ascendsim.numerics.compiled.gathered.turned import turned, turned_to_halves
from ascendsim.ops.gradients.kernels import packed_kernels
from ascendsim.ops.gradients.passes import steps_of_tile
from ascendsim.ops.gradients.planes import Pixels, Planes
from ascendsim.ops.problems.sliding import Phase, Sliding, phases_of
from ascendsim.ops.reference.ordered import add_in_order
from ascendsim.ops.schedules.base import DgradOrder

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.numerics.accumulation.models import AccumulationModel
    from ascendsim.ops.problems.convolution import ConvProblem
    from ascendsim.ops.problems.products import DgradGemm

    Floats = NDArray[np.float32]
    # Carriers, or binary16 as it is stored.
    Images = NDArray[Any]
    Places = NDArray[np.int64]


def image_gradient(
    problem: ConvProblem,
    gemm: DgradGemm,
    order: DgradOrder,
    model: AccumulationModel,
    grad_output: Images,
    weight: Images,
    threads: Threads = ALONE,
    *,
    to_halves: bool = False,
) -> tuple[Images, dict[int, Pixels]]:
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
    laid_out: dict[int, Pixels] = {}
    kernels = packed_kernels(weight, problem, order.c0, threads)
    for group, (phase, own) in itertools.product(range(problem.groups), phases):
        sliding, (top, left), (down, right) = phase.sliding, phase.first, phase.step
        images = source[:, group]
        planes = Planes.of(images, sliding, gemm.channel_groups * order.c0, threads)
        # Planes that are mostly zeros would be kept for little.
        if planes.values.size < 2 * images.size and (pixels := planes.inner()) is not None:
            laid_out[group] = pixels
        taken = np.ascontiguousarray(kernels[group, :, :, phase.rows, phase.cols])
        product = _Product(planes, taken, own, model, threads, backwards=gemm.backwards)
        for depth, pairs in enumerate(gemm.depths):
            sums = product.sums(pairs).reshape(problem.batch, -1, columns)
            if alone:
                turn = turned_to_halves if to_halves else turned
                return turn(sums, threads).reshape(problem.input), laid_out
            made_here = turned(sums, threads).reshape(problem.batch, columns, *sliding.out_size)
            result[:, group, :, depth, top::down, left::right] = made_here
    return result.reshape(problem.input), laid_out


def _phases(sliding: Sliding, order: DgradOrder) -> list[tuple[Phase, DgradOrder]]:
    """Return the phases that meet taps, each with its order; without a split all pixels are one."""
    if not order.axes:
        rows, cols = (slice(0, taps) for taps in sliding.kernel)
        return [(Phase((0, 0), (1, 1), sliding, rows, cols), order)]
    each = enumerate(phases_of(sliding, order.axes))
    return [(phase, order.of_phase(number)) for number, phase in each if order.phases[number]]


class _Product:
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
        self._planes, self._order = planes, order
        self._kernels, self._columns, self._depth = Values(kernels), kernels.shape[-1], kernels[0].size
        self._model, self._threads = model, threads
        first = np.array([planes.image(number, 0) for number in range(len(planes.values))])
        self._pixels = (first[:, None] + planes.pixels()).reshape(-1)
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
        of_image = np.arange(len(planes.values))[:, None] * planes.pixels().size
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
        """Return what some steps of the reduction, in Mmads of these lengths, add at every pair of depths."""
        planes = self._planes
        left = [planes.image(0, source) + self._left[steps] for _, source in pairs]
        right = [kernel * self._depth + self._right[steps] for kernel, _ in pairs]
        ends = np.cumsum(np.tile(mmads, len(pairs)))
        a = Factor(planes.flat, pixels, np.concatenate(left), self._order.c0)
        b = Factor(self._kernels, np.arange(self._columns), np.concatenate(right))
        return product_of(self._model, a, b, ends, self._threads)
