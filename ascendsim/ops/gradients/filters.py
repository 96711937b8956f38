"""grad_weight: the pixels of the small side against the pixels of the big side that each tap meets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ascendsim.numerics.compiled.gathered.factor import Factor
from ascendsim.numerics.compiled.gathered.product import products_at
from ascendsim.numerics.compiled.gathered.threads import ALONE, Threads
from ascendsim.numerics.compiled.gathered.turned import turn_to
from ascendsim.ops.gradients.planes import Pixels, Planes
from ascendsim.ops.gradients.reductions import Side, Sides, reductions
from ascendsim.ops.gradients.streams import in_parts, numbered_pixels
from ascendsim.ops.reference.ordered import add_as_tree, add_in_order

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.numerics.accumulation.models import AccumulationModel
    from ascendsim.ops.problems.convolution import ConvProblem
    from ascendsim.ops.problems.products import WgradGemm
    from ascendsim.ops.schedules.base import WgradOrder

    Floats = NDArray[np.float32]
    # Carriers, or binary16 as it is stored.
    Images = NDArray[Any]


def filter_gradient(
    problem: ConvProblem,
    gemm: WgradGemm,
    order: WgradOrder,
    model: AccumulationModel,
    grad_output: Images,
    input: Images,
    *,
    atomic: bool,
    threads: Threads = ALONE,
    laid_out: Mapping[int, Pixels] | None = None,
    to_halves: bool = False,
) -> Images:
    """Return grad_weight as it is before the conversion to its format: in float32, or rounded to binary16.

    Shapes   grad_output and input as `problem` says, on the grid that the cube multiplies -> as weight
    atomic   the parts are added to a zero in global memory, part 0 first
    laid_out grad_output by group, where grad_input has laid it out already
    halves   `to_halves`: in binary16 instead, to which it is rounded to nearest
    """
    small, big = (input, grad_output) if problem.transposed else (grad_output, input)
    rows, columns, kernel = problem.small_channels, problem.big_channels, problem.kernel
    small = small.reshape(problem.batch, problem.groups, rows, *problem.small_size)
    big = big.reshape(problem.batch, problem.groups, columns, *problem.big_size)
    made = np.float16 if to_halves else np.float32
    result = np.empty((problem.groups, rows, columns, *kernel), made)
    taps = prod(kernel[1:])
    places = np.arange(columns) * prod(kernel)
    for group in range(problem.groups):
        # A transposed convolution slides over grad_output, and reads it as it has padded it.
        known = None if problem.transposed or laid_out is None else laid_out.get(group)
        sides = known or Pixels.of(small[:, group], threads), big[:, group], gemm
        product = _Product(problem, *sides, order, model, threads)
        whole = None
        if order.stream is not None:
            whole = _Product(problem, *sides, replace(order, k_split=1, stream=None), model, threads)
        for tap, pairs in enumerate(gemm.depths):
            total = product.total(pairs, atomic=atomic)
            if whole is not None and order.stream is not None:
                chosen = in_parts(order.stream, group, tap, rows, taps, columns)
                if not chosen.all():
                    total = np.where(chosen, total, whole.total(pairs, atomic=False))
            own = result[group].reshape(rows, -1)
            turn_to(total.reshape(rows, taps, columns), places + tap * taps, own, threads)
    return result.reshape(problem.weight)


def _together(parts: list[Floats], *, atomic: bool, tree: bool) -> Floats:
    """Return the sum of the parts of a reduction."""
    # One part is written as it is. Parts that are kept apart begin with part 0, atomic additions with +0.
    if len(parts) == 1:
        return parts[0]
    if atomic:
        return add_in_order([np.zeros((1, 1), np.float32), *parts])
    return add_as_tree(np.stack(parts)) if tree else add_in_order(parts)


class _Product:
    """The product of one group: the small side, and the big side (N, C, D, H, W)."""

    def __init__(
        self,
        problem: ConvProblem,
        small: Pixels,
        big: Images,
        gemm: WgradGemm,
        order: WgradOrder,
        model: AccumulationModel,
        threads: Threads,
    ) -> None:
        self._order, self._model, self._threads = order, model, threads
        self._rows = np.arange(problem.small_channels)
        self._small = small.values
        planes = Planes.of(big, gemm.sliding, big.shape[1], threads)
        self._planes = planes.flat
        # Columns: taps of the kernel, and for each of them the channels of the big side.
        self._columns = (planes.taps()[:, None] + np.arange(big.shape[1])).reshape(-1)
        numbered = numbered_pixels(*gemm.sliding.out_size, order.strip_w)
        sides = (
            Side(small.depths, small.size, small.pixels[numbered].tobytes()),
            Side(planes.values.shape[1], planes.image(0, 1), planes.pixels()[numbered].tobytes()),
        )
        self._sides = Sides(*sides, problem.batch, problem.small_size[2], ())

    def total(self, pairs: Sequence[tuple[int, int]], *, atomic: bool) -> Floats:
        """Return the sum of all parts of the reduction, (rows, columns)."""
        made: list[Floats] = []
        # Some parts in one go: what they have in common is found once.
        for some in reductions(self._sides._replace(pairs=tuple(pairs)), self._order, self._model):
            a = Factor(self._small, self._rows, some.left)
            b = Factor(self._planes, self._columns, some.right)
            made.extend(products_at(self._model, a, b, some.cuts, self._threads))
        return _together(made, atomic=atomic, tree=self._order.tree)
