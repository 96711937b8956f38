"""grad_weight: the pixels of the small side against the pixels of the big side that each tap meets.

A reduction may be cut into parts, at images and runs of pixels, on a grid, or by stream-K, which adds some
elements in parts and the rest as a whole. By Winograd all tiles are brought to points, and there is one
product over them at each point. A training run makes the same calls in every step: where the parts of a
reduction lie is worked out once, unless it is a large one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ascendsim.instructions.winograd import PIXELS, POINTS, WINDOW, big_line, in_plane, small_line, taps_line
from ascendsim.numerics.compiled.accumulate import NOTHING, PlannedProducts, cuts_of_products, product_of
from ascendsim.numerics.compiled.turned import turn_to
from ascendsim.numerics.factor import ALONE, Factor, Threads, Values
from ascendsim.ops.gradients.layouts import PixelPlanes, Planes
from ascendsim.ops.problems.orders import CLUSTER, Clusters
from ascendsim.ops.reference.call import blocks_in_parts
from ascendsim.ops.reference.ordered import add_as_tree, add_in_order, numbered_pixels, streamed_elements

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.numerics.accumulation import AccumulationModel
    from ascendsim.ops.problems.convolution import ConvProblem
    from ascendsim.ops.problems.orders import StreamOrder, WgradOrder, WinogradOrder
    from ascendsim.ops.problems.products import WgradGemm

    Places = NDArray[np.int64]
    Floats = NDArray[np.float32]
    # Carriers, or binary16 as it is stored.
    Elements = NDArray[Any]


def part_of(
    stream: StreamOrder, pairs: Sequence[tuple[int, int]], batch: int, rows: Places, part: int
) -> tuple[list[tuple[int, int, int]], Sequence[int]]:
    """Return the (small depth, big depth, image) of a part, and its ranges of each of them, by number.

    pairs   (small depth, big depth) that meet at a kernel depth; rows: that of each pixel of the small side
    """
    places = [(*pair, image) for pair in pairs for image in range(batch)]
    taken = range(part * stream.length, (part + 1) * stream.length)
    if stream.axis == "height":
        return places, [at for at, (first, _) in enumerate(stream.ranges) if rows[first] in taken]
    # All images at the first small depth, then all at the second.
    mine = [(small, big, image) for small, big, image in places if small * batch + image in taken]
    return mine, range(len(stream.ranges))


# Of parts that are made in one go: their places take 1 MiB.
_STEPS = 1 << 16
# Of a reduction that is remembered: its places take a MiB.
_KEPT_STEPS = 1 << 15


class PixelSide(NamedTuple):
    """Places of the pixels of one side.

    depths   of an image; size: elements from one image at one depth to the next
    places   (pixels,) int64: where in its image each pixel lies that takes part, by its number, as bytes
    """

    depths: int
    size: int
    places: bytes

    def image(self, number: int, depth: int) -> int:
        """Return where an image begins at a depth."""
        return (number * self.depths + depth) * self.size

    @property
    def pixels(self) -> Places:
        """The places as an array."""
        return np.frombuffer(self.places, np.int64)


class ReductionSides(NamedTuple):
    """Inputs of the parts of a reduction, besides the order of additions.

    batch   images; width: pixels of a row of the small side
    pairs   (small depth, big depth) that meet at a kernel depth
    lines   channels of the small and of the big side
    taps    (taps,) int64: how far from the first one each tap of the big side lies, as bytes
    """

    small: PixelSide
    big: PixelSide
    batch: int
    width: int
    pairs: tuple[tuple[int, int], ...]
    lines: tuple[int, int]
    taps: bytes

    @property
    def steps(self) -> int:
        """The length of the whole reduction."""
        return len(self.pairs) * self.batch * len(self.small.places) // np.dtype(np.int64).itemsize


def reductions(
    sides: ReductionSides, order: WgradOrder, model: AccumulationModel
) -> Iterable[PlannedProducts]:
    """Return the parts of a reduction in their order, some in one go; nobody may change the arrays."""
    # An order of arrivals is an array, which has no hash.
    if sides.steps > _KEPT_STEPS or order.arrivals is not None:
        return _reductions(sides, order, model)
    return _remembered(sides, order, model)


def _reductions(
    sides: ReductionSides, order: WgradOrder, model: AccumulationModel
) -> Iterator[PlannedProducts]:
    parts = _ReductionParts(sides, order)
    # Columns: taps of the kernel, and for each of them the channels of the big side.
    rows, columns = (np.arange(lines) for lines in sides.lines)
    lines = rows, (np.frombuffer(sides.taps, np.int64)[:, None] + columns).reshape(-1)
    for some in _runs(parts.part(at) for at in range(order.k_split)):
        yield _joined(some, lines, model)


# Some for each layer of a large network.
@lru_cache(maxsize=64)
def _remembered(
    sides: ReductionSides, order: WgradOrder, model: AccumulationModel
) -> tuple[PlannedProducts, ...]:
    return tuple(_reductions(sides, order, model))


class _Part(NamedTuple):
    """A part of a reduction: where each step lies on the small and on the big side, and lengths of Mmads."""

    left: Places
    right: Places
    mmads: Places

    @classmethod
    def empty(cls) -> _Part:
        """Return a part that reduces nothing."""
        return cls(*[np.zeros(0, np.int64)] * 3)


def _joined(
    parts: Sequence[_Part], lines: tuple[Places, Places], model: AccumulationModel
) -> PlannedProducts:
    left, right, mmads = (np.concatenate(places) for places in zip(*parts, strict=True))
    a, b = (Factor(NOTHING, own, steps) for own, steps in zip(lines, (left, right), strict=True))
    cuts = cuts_of_products(model, np.cumsum(mmads), [len(part.mmads) for part in parts])
    return PlannedProducts.of(model, a, b, cuts)


def _runs(parts: Iterable[_Part]) -> Iterator[list[_Part]]:
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


class _ReductionParts:
    """The parts of one reduction, by number."""

    def __init__(self, sides: ReductionSides, order: WgradOrder) -> None:
        self._sides, self._order = sides, order
        self._small, self._big = sides.small.pixels, sides.big.pixels
        # One image: its pixels in the order of the ranges, the Mmads, and where each range begins in both.
        ranges = order.ranges if order.stream is None else order.stream.ranges
        runs = [np.arange(first, first + pixels) for first, pixels in ranges]
        mmads = [np.diff([*range(0, run.size, order.base_k), run.size]) for run in runs]
        self._image, self._mmads = np.concatenate(runs), np.concatenate(mmads)
        self._first_pixels = np.cumsum([0, *map(len, runs)])
        self._first_mmads = np.cumsum([0, *map(len, mmads)])
        height, width = self._small.size // sides.width, sides.width
        self._rows = numbered_pixels(height, width, order.strip_w) // width

    def part(self, part: int) -> _Part:
        """Return the places of one part of the reduction."""
        pairs, batch = self._sides.pairs, self._sides.batch
        if self._order.grid:
            of_cell, numbers = self._order.grid[part]
            return self._cell([(*pair, image) for pair in pairs for image in of_cell], numbers)
        if self._order.stream is not None:
            return self._cell(*part_of(self._order.stream, pairs, batch, self._rows, part))
        ranges, split = len(self._order.ranges), self._order.k_split
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

    def _cell(self, places: list[tuple[int, int, int]], ranges: Sequence[int]) -> _Part:
        """Return the part of some (small depth, big depth, image), with some ranges of each."""
        if not places or not ranges:
            return _Part.empty()
        pixels, mmads = (
            np.concatenate([own[firsts[number] : firsts[number + 1]] for number in ranges])
            for own, firsts in ((self._image, self._first_pixels), (self._mmads, self._first_mmads))
        )
        return self._places(places, pixels, slice(None), np.tile(mmads, len(places)))

    def _places(
        self, images: Sequence[tuple[int, int, int]], of_each: Places, taken: slice, mmads: Places
    ) -> _Part:
        """Return the part that some pixels of some images make, each (small depth, big depth, image).

        Of all pixels, image after image, those are `taken`; `mmads` are the lengths of their Mmads.
        """
        small = np.array([self._sides.small.image(image, depth) for depth, _, image in images])
        big = np.array([self._sides.big.image(image, depth) for _, depth, image in images])
        left = (small[:, None] + self._small[of_each]).reshape(-1)[taken]
        right = (big[:, None] + self._big[of_each]).reshape(-1)[taken]
        return _Part(left, right, mmads)


def winograd_gradient(
    problem: ConvProblem,
    order: WinogradOrder,
    model: AccumulationModel,
    grad_output: Floats,
    input: Floats,
    threads: Threads = ALONE,
) -> Floats:
    """Return grad_weight in float32; the points of both sides are held, four times their pixels.

    Shapes   grad_output and input as `problem` says -> as weight
    """
    small, big = (input, grad_output) if problem.transposed else (grad_output, input)
    pads = problem.pads[1][0], problem.pads[2][0]
    small = small.reshape(problem.batch, -1, *problem.small_size[1:])
    big = big.reshape(problem.batch, -1, *problem.big_size[1:])
    sides = [_points(small, order.clusters, None), _points(big, order.clusters, pads)]
    chosen = blocks_in_parts((small.shape[1], big.shape[1], 1, 1), order)
    found = []
    if not chosen.all():
        found.append(_taps(sides, range(len(order.clusters)), model, threads))
    if chosen.any():
        parts = [order.clusters.part(part, order.parts) for part in range(order.parts)]
        found.append(add_in_order([_taps(sides, own, model, threads) for own in parts]))
    made = found[0] if len(found) == 1 else np.where(chosen, found[1], found[0])
    return made.reshape(problem.weight)


def _points(images: Floats, clusters: Clusters, pads: tuple[int, int] | None) -> list[Floats]:
    """Return all tiles of one side at each point, (channels, tiles), cluster after cluster.

    images   (N, C, H, W); pads: of the big side, whose tiles are 4 x 4 and begin so far outside
    """
    size, line = (PIXELS, small_line) if pads is None else (WINDOW, big_line)
    down, right = pads or (0, 0)
    batch, channels, height, width = images.shape
    counts = clusters.down * clusters.rows, clusters.across * clusters.columns
    extents = [count * PIXELS + size - PIXELS for count in counts]
    framed = np.zeros((batch, channels, *extents), np.float32)
    framed[:, :, down : down + height, right : right + width] = images
    ends = [PIXELS * (count - 1) + 1 for count in counts]
    tile = [
        [framed[:, :, i : i + ends[0] : PIXELS, j : j + ends[1] : PIXELS] for j in range(size)]
        for i in range(size)
    ]
    # Clusters are blocks of tiles: images, clusters down and across, and tiles of each, down and across.
    blocks = batch, channels, clusters.down, clusters.rows, clusters.across, clusters.columns
    points = (values for row in in_plane(line, tile) for values in row)
    return [one.reshape(blocks).transpose(1, 0, 2, 4, 3, 5).reshape(channels, -1) for one in points]


def _taps(sides: list[list[Floats]], taken: range, model: AccumulationModel, threads: Threads) -> Floats:
    """Return the sum of some clusters: (small channels, big channels, 3, 3)."""
    sums = list(_sums(sides, taken, model, threads))
    rows = in_plane(taps_line, [sums[at : at + POINTS] for at in range(0, len(sums), POINTS)])
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)


def _sums(
    sides: list[list[Floats]], taken: range, model: AccumulationModel, threads: Threads
) -> Iterator[Floats]:
    """Yield the sums at each point, an Mmad a cluster."""
    steps = np.arange(taken.start * CLUSTER, taken.stop * CLUSTER)
    ends = np.arange(CLUSTER, CLUSTER * len(taken) + 1, CLUSTER)
    for pair in zip(*sides, strict=True):
        a, b = (Factor(Values(one), np.arange(len(one)) * one.shape[1], steps, CLUSTER) for one in pair)
        yield product_of(model, a, b, ends, threads)


def filter_gradient(
    problem: ConvProblem,
    gemm: WgradGemm,
    order: WgradOrder,
    model: AccumulationModel,
    grad_output: Elements,
    input: Elements,
    *,
    atomic: bool,
    threads: Threads = ALONE,
    laid_out: Mapping[int, PixelPlanes] | None = None,
    to_halves: bool = False,
) -> Elements:
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
    chosen = None if order.stream is None else streamed_elements(problem, order.stream)
    for group in range(problem.groups):
        # A transposed convolution slides over grad_output, and reads it as it has padded it.
        known = None if problem.transposed or laid_out is None else laid_out.get(group)
        sides = known or PixelPlanes.of(small[:, group], threads), big[:, group], gemm
        product = _FilterProduct(problem, *sides, order, model, threads)
        if order.stream is not None:
            whole = _FilterProduct(problem, *sides, replace(order, k_split=1, stream=None), model, threads)
        for tap, pairs in enumerate(gemm.depths):
            total = product.total(pairs, atomic=atomic)
            if chosen is not None:
                taken = chosen[group, :, :, tap].swapaxes(1, 2).reshape(rows, -1)
                if not taken.all():
                    total = np.where(taken, total, whole.total(pairs, atomic=False))
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


class _FilterProduct:
    """The product of one group: the small side, and the big side (N, C, D, H, W)."""

    def __init__(
        self,
        problem: ConvProblem,
        small: PixelPlanes,
        big: Elements,
        gemm: WgradGemm,
        order: WgradOrder,
        model: AccumulationModel,
        threads: Threads,
    ) -> None:
        self._order, self._model, self._threads = order, model, threads
        self._small = small.values
        planes = Planes.of(big, gemm.sliding, big.shape[1], threads)
        self._big = planes.read.values
        numbered = numbered_pixels(*gemm.sliding.out_size, order.strip_w)
        small_side, big_side = (
            PixelSide(one.depths, one.size, one.pixels[numbered].tobytes()) for one in (small, planes.read)
        )
        lines, taps = (problem.small_channels, big.shape[1]), planes.places.taps.tobytes()
        size = problem.batch, problem.small_size[2]
        self._sides = ReductionSides(small_side, big_side, *size, (), lines, taps)

    def total(self, pairs: Sequence[tuple[int, int]], *, atomic: bool) -> Floats:
        """Return the sum of all parts of the reduction, (rows, columns)."""
        made: list[Floats] = []
        # Some parts in one go: what they have in common is found once.
        for some in reductions(self._sides._replace(pairs=tuple(pairs)), self._order, self._model):
            made.extend(some.made(self._small, self._big, self._threads))
        return _together(made, atomic=atomic, tree=self._order.tree)
