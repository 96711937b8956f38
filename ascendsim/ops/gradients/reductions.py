"""Which pixels of both sides each part of a grad_weight multiplies, in which order, and where it is cut.

A training run makes the same calls in every step: what follows from such a call is worked out once, unless it
is a large one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ascendsim.numerics.compiled.gathered.product import cuts_of_products
from ascendsim.ops.gradients.streams import numbered_pixels, part_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.numerics.accumulation.models import AccumulationModel
    from ascendsim.numerics.compiled.gathered.cuts import Cuts
    from ascendsim.ops.schedules.base import WgradOrder

    Places = NDArray[np.int64]

# Of parts that are made in one go: their places take 1 MiB.
_STEPS = 1 << 16
# Of a reduction that is remembered: its places take half a MiB.
_KEPT_STEPS = 1 << 15


class Side(NamedTuple):
    """Where the pixels of one side lie.

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


class Reduction(NamedTuple):
    """Parts that are made in one go: where each step lies on the small and the big side, and their cuts."""

    left: Places
    right: Places
    cuts: Cuts


class Sides(NamedTuple):
    """All that the parts of a reduction follow from, besides the order of additions.

    batch   images; width: pixels of a row of the small side
    pairs   (small depth, big depth) that meet at a kernel depth
    """

    small: Side
    big: Side
    batch: int
    width: int
    pairs: tuple[tuple[int, int], ...]

    @property
    def steps(self) -> int:
        """The length of the whole reduction."""
        return len(self.pairs) * self.batch * len(self.small.places) // np.dtype(np.int64).itemsize


def reductions(sides: Sides, order: WgradOrder, model: AccumulationModel) -> Sequence[Reduction]:
    """Return the parts of a reduction in their order, some in one go; nobody may change the arrays."""
    # An order of arrivals is an array, which has no hash.
    if sides.steps > _KEPT_STEPS or order.arrivals is not None:
        return _reductions(sides, order, model)
    return _remembered(sides, order, model)


def _reductions(sides: Sides, order: WgradOrder, model: AccumulationModel) -> tuple[Reduction, ...]:
    parts = _Parts(sides, order)
    return tuple([_joined(some, model) for some in _runs([parts.part(at) for at in range(order.k_split)])])


# Some for each layer of a large network.
_remembered = lru_cache(maxsize=64)(_reductions)


class _Part(NamedTuple):
    """A part of a reduction: where each step lies on the small and on the big side, and lengths of Mmads."""

    left: Places
    right: Places
    mmads: Places

    @classmethod
    def empty(cls) -> _Part:
        """Return a part that reduces nothing."""
        return cls(*[np.zeros(0, np.int64)] * 3)


def _joined(parts: Sequence[_Part], model: AccumulationModel) -> Reduction:
    left, right, mmads = (np.concatenate(places) for places in zip(*parts, strict=True))
    counts = [len(part.mmads) for part in parts]
    # Calls to come share them.
    left.flags.writeable = right.flags.writeable = False
    return Reduction(left, right, cuts_of_products(model, np.cumsum(mmads), counts))


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


class _Parts:
    """The parts of one reduction, by number."""

    def __init__(self, sides: Sides, order: WgradOrder) -> None:
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
        """Return what some (small depth, big depth, image) make, with some ranges of each of them."""
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
