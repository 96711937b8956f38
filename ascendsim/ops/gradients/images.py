"""grad_input: the weights against the pixels of grad_output that each pixel of the input meets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ascendsim.numerics.compiled.gathered.factor import Factor, Values
from ascendsim.numerics.compiled.gathered.product import product_of
from ascendsim.numerics.compiled.gathered.turned import turned
from ascendsim.ops.gradients.planes import Planes
from ascendsim.ops.lowering.layouts import pack_weight

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.numerics.accumulation.models import AccumulationModel
    from ascendsim.ops.problems.convolution import ConvProblem
    from ascendsim.ops.problems.dgrad import DgradGemm
    from ascendsim.ops.schedules.order import DgradOrder

    Floats = NDArray[np.float32]
    Places = NDArray[np.int64]


def image_gradient(
    problem: ConvProblem,
    gemm: DgradGemm,
    order: DgradOrder,
    model: AccumulationModel,
    grad_output: Floats,
    weight: Floats,
    threads: int = 1,
) -> Floats:
    """Return the accumulators of grad_input, before the conversion to its format.

    Shapes   grad_output and weight as `problem` says, on the grid that the cube multiplies -> as input
    """
    made = gemm.sliding.out_size
    columns = problem.small_channels if problem.transposed else problem.big_channels
    result = np.empty((problem.batch, problem.groups, columns, len(gemm.depths), *made), np.float32)
    size = gemm.source.shape[2], *gemm.sliding.image_size
    source = grad_output.reshape(problem.batch, problem.groups, -1, *size)
    kernels = pack_weight(weight, problem, order.c0, reduce_small=not problem.transposed)
    if gemm.backwards:
        kernels = kernels[:, :, :, ::-1, ::-1]
    for group in range(problem.groups):
        planes = Planes.of(source[:, group], gemm.sliding, gemm.channel_groups * order.c0)
        right = np.ascontiguousarray(kernels[group, ..., :columns])
        product = _Product(planes, right, order, model, threads)
        for depth, pairs in enumerate(gemm.depths):
            sums = turned(product.sums(pairs).reshape(problem.batch, -1, columns))
            if sums.size == result.size:
                return sums.reshape(problem.input)
            result[:, group, :, depth] = sums.reshape(problem.batch, columns, *made)
    return result.reshape(problem.input)


class _Product:
    """The product of one group: planes of the source against kernels (KD, C1, KH, KW, C0, columns)."""

    def __init__(
        self, planes: Planes, kernels: Floats, order: DgradOrder, model: AccumulationModel, threads: int
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
        self._right = np.arange(self._left.size) * kernels.shape[-1]

    def sums(self, pairs: Sequence[tuple[int, int]]) -> Floats:
        """Return the accumulators of all pixels at a depth that these (kernel, source) depths reach."""
        total = np.zeros((self._pixels.size, self._columns), np.float32)
        runs = self._order.runs()
        if not pairs:
            return total
        # A reduction in one piece begins in L0C, several are added to the zero in global memory.
        if len(runs) == 1:
            return self._part(pairs, slice(0, self._left.size), runs[0])
        first = 0
        for slices in runs:
            last = first + sum(slices) * self._order.c0
            total += self._part(pairs, slice(first, last), slices)
            first = last
        return total

    def _part(self, pairs: Sequence[tuple[int, int]], part: slice, slices: tuple[int, ...]) -> Floats:
        """Return a part of the reduction, at every pair of depths one after the other."""
        planes = self._planes
        left = [planes.image(0, source) + self._left[part] for _, source in pairs]
        right = [kernel * self._depth + self._right[part] for kernel, _ in pairs]
        ends = np.cumsum(np.tile(np.array(slices) * self._order.c0, len(pairs)))
        a = Factor(planes.flat, self._pixels, np.concatenate(left), self._order.c0)
        b = Factor(self._kernels, np.arange(self._columns), np.concatenate(right))
        return product_of(self._model, a, b, ends, self._threads)
