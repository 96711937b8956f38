"""grad_weight: the pixels of the small side against the pixels of the big side that each tap meets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ascendsim.numerics.compiled.gathered.factor import Factor
from ascendsim.numerics.compiled.gathered.product import products_of
from ascendsim.ops.gradients.planes import Pixels, Planes
from ascendsim.ops.gradients.streams import in_parts, part_of
from ascendsim.ops.reference.sums import add_as_tree, add_in_order

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.numerics.accumulation.models import AccumulationModel
    from ascendsim.ops.problems.convolution import ConvProblem
    from ascendsim.ops.problems.wgrad import WgradGemm
    from ascendsim.ops.schedules.order import WgradOrder

    Floats = NDArray[np.float32]
    Places = NDArray[np.int64]


# Of parts that are made in one go: their places take 1 MiB.
_STEPS = 1 << 16


def filter_gradient(
    problem: ConvProblem,
    gemm: WgradGemm,
    order: WgradOrder,
    model: AccumulationModel,
    grad_output: Floats,
    input: Floats,
    *,
    atomic: bool,
    threads: int = 1,
    laid_out: Mapping[int, Pixels] | None = None,
) -> Floats:
    """Return grad_weight in float32, before the conversion to its format.

    Shapes   grad_output and input as `problem` says, on the grid that the cube multiplies -> as weight
    atomic   the parts are added to a zero in global memory, part 0 first
    laid_out grad_output by group, where grad_input has laid it out already
    """
    small, big = (input, grad_output) if problem.transposed else (grad_output, input)
    rows, columns, kernel = problem.small_channels, problem.big_channels, problem.kernel
    small = small.reshape(problem.batch, problem.groups, rows, *problem.small_size)
    big = big.reshape(problem.batch, problem.groups, columns, *problem.big_size)
    result = np.empty((problem.groups, rows, columns, *kernel), np.float32)
    for group in range(problem.groups):
        # A transposed convolution slides over grad_output, and reads it as it has padded it.
        known = None if problem.transposed or laid_out is None else laid_out.get(group)
        sides = known or Pixels.of(small[:, group]), big[:, group], gemm
        product = _Product(problem, *sides, order, model, threads)
        whole = None
        if order.stream is not None:
            whole = _Product(problem, *sides, replace(order, k_split=1, stream=None), model, threads)
        for tap, pairs in enumerate(gemm.depths):
            total = product.total(pairs, atomic=atomic)
            if whole is not None and order.stream is not None:
                chosen = in_parts(order.stream, group, tap, rows, prod(kernel[1:]), columns)
                if not chosen.all():
                    total = np.where(chosen, total, whole.total(pairs, atomic=False))
            made = total.reshape(rows, *kernel[1:], columns)
            result[group, :, :, tap] = made.transpose(0, 3, 1, 2)
    return result.reshape(problem.weight)


def _together(parts: list[Floats], *, atomic: bool, tree: bool) -> Floats:
    """Return the sum of the parts of a reduction."""
    # One part is written as it is. Parts that are kept apart begin with part 0, atomic additions with +0.
    if len(parts) == 1:
        return parts[0]
    if atomic:
        return add_in_order([np.zeros_like(parts[0]), *parts])
    return add_as_tree(np.stack(parts)) if tree else add_in_order(parts)


class _Part(NamedTuple):
    """A part of a reduction: where each step lies on the small and on the big side, and lengths of Mmads."""

    left: Places
    right: Places
    mmads: Places

    @classmethod
    def empty(cls) -> _Part:
        """Return a part that reduces nothing."""
        return cls(*[np.zeros(0, np.int64)] * 3)


class _Product:
    """The product of one group: the small side, and the big side (N, C, D, H, W)."""

    def __init__(
        self,
        problem: ConvProblem,
        small: Pixels,
        big: Floats,
        gemm: WgradGemm,
        order: WgradOrder,
        model: AccumulationModel,
        threads: int,
    ) -> None:
        self._order, self._model, self._threads = order, model, threads
        self._batch, self._rows, self._width = problem.batch, problem.small_channels, problem.small_size[2]
        self._small = small
        self._planes = Planes.of(big, gemm.sliding, big.shape[1])
        # Columns: taps of the kernel, and for each of them the channels of the big side.
        self._columns = (self._planes.taps()[:, None] + np.arange(big.shape[1])).reshape(-1)
        self._pixels = self._planes.pixels()
        # One image: its pixels in the order of the ranges, the Mmads, and where each range begins in both.
        ranges = order.ranges if order.stream is None else order.stream.ranges
        runs = [np.arange(first, first + pixels) for first, pixels in ranges]
        mmads = [np.diff([*range(0, run.size, order.base_k), run.size]) for run in runs]
        self._image, self._mmads = np.concatenate(runs), np.concatenate(mmads)
        self._first_pixels = np.cumsum([0, *map(len, runs)])
        self._first_mmads = np.cumsum([0, *map(len, mmads)])

    def total(self, pairs: Sequence[tuple[int, int]], *, atomic: bool) -> Floats:
        """Return the sum of all parts of the reduction, (rows, columns)."""
        parts = [self._part(pairs, part) for part in range(self._order.k_split)]
        made: list[Floats] = []
        # Some parts in one go: what they have in common is found once.
        for some in _runs(parts):
            made.extend(self._sums(some))
        return _together(made, atomic=atomic, tree=self._order.tree)

    def _part(self, pairs: Sequence[tuple[int, int]], part: int) -> _Part:
        """Return the places of one part of the reduction."""
        if self._order.grid:
            of_cell, numbers = self._order.grid[part]
            return self._cell([(*pair, image) for pair in pairs for image in of_cell], numbers)
        if self._order.stream is not None:
            return self._cell(*part_of(self._order.stream, pairs, self._batch, self._width, part))
        batch, ranges, split = self._batch, len(self._order.ranges), self._order.k_split
        # Segments in their order: pairs of depths, images, ranges. Parts are equally long up to one.
        count = len(pairs) * batch * ranges
        begin, end = count * part // split, count * (part + 1) // split
        if begin == end:
            return _Part.empty()
        (first, skipped), (last, taken) = divmod(begin, ranges), divmod(end, ranges)
        # Whole images, of the last one as much as is needed, and of the first one less what is skipped.
        images = [(*pairs[at // batch], at % batch) for at in range(first, last + (taken > 0))]
        pixels, mmads = (
            slice(firsts[skipped], (last - first) * firsts[-1] + firsts[taken])
            for firsts in (self._first_pixels, self._first_mmads)
        )
        return self._places(images, self._image, pixels, np.tile(self._mmads, len(images))[mmads])

    def _cell(self, places: list[tuple[int, int, int]], ranges: range) -> _Part:
        """Return what some (small depth, big depth, image) make, with some ranges of each of them."""
        if not places or not ranges:
            return _Part.empty()
        pixels, mmads = (
            own[firsts[ranges.start] : firsts[ranges.stop]]
            for own, firsts in ((self._image, self._first_pixels), (self._mmads, self._first_mmads))
        )
        return self._places(places, pixels, slice(None), np.tile(mmads, len(places)))

    def _places(
        self, images: Sequence[tuple[int, int, int]], of_each: Places, taken: slice, mmads: Places
    ) -> _Part:
        """Return the part that some pixels of some images make, each (small depth, big depth, image).

        Of all pixels, image after image, those are `taken`; `mmads` are the lengths of their Mmads.
        """
        small = np.array([self._small.image(image, depth) for depth, _, image in images])
        big = np.array([self._planes.image(image, depth) for _, depth, image in images])
        left = (small[:, None] + self._small.pixels[of_each]).reshape(-1)[taken]
        right = (big[:, None] + self._pixels[of_each]).reshape(-1)[taken]
        return _Part(left, right, mmads)

    def _sums(self, parts: Sequence[_Part]) -> Floats:
        """Return what some parts of the reduction make, (parts, rows, columns); +0 where one is empty."""
        left, right, mmads = (np.concatenate(places) for places in zip(*parts, strict=True))
        a = Factor(self._small.values, np.arange(self._rows), left)
        b = Factor(self._planes.flat, self._columns, right)
        counts = [len(part.mmads) for part in parts]
        return products_of(self._model, a, b, np.cumsum(mmads), counts, self._threads)


def _runs(parts: Sequence[_Part]) -> Iterator[list[_Part]]:
    """Yield the parts in their order, as many at a time as have so many steps; one at least."""
    run: list[_Part] = []
    steps = 0
    for part in parts:
        if run and steps + len(part.left) > _STEPS:
            yield run
            run, steps = [], 0
        run.append(part)
        steps += len(part.left)
    if run:
        yield run
