"""The program of a core of `Dgrad`: the loops of one base block."""

from __future__ import annotations

from collections.abc import Hashable

from ascendsim.frozen import cached_property
from ascendsim.ops.problems.taps import Taps
from ascendsim.ops.schedules.blocks import BlockProgram
from ascendsim.ops.schedules.dgrad.part_tiles import Part, PartTiles, Products
from ascendsim.ops.schedules.dgrad.pieces import Task
from ascendsim.ops.schedules.dgrad.room import inserts_in_ub
from ascendsim.ops.schedules.dgrad.tasks import DgradTasks
from ascendsim.ops.schedules.tiles import Sizes, held
from ascendsim.program.places import GmTensor

# Where segments have so many products, these are tasks of their own: they recur from block to block. To look
# fewer of them up takes longer than writing them down.
MANY_PRODUCTS = 16


class DgradProgram(BlockProgram):
    """Emits the programs of grad_input; base blocks that are alike, and parts of them, share their code.

    So do the products of segments that have many, whichever blocks they belong to.
    """

    def __init__(self, cut: DgradTasks, sizes: Sizes, target: GmTensor, hazards: frozenset[str]) -> None:
        spread = inserts_in_ub(cut.gemm, cut.profile)
        super().__init__(cut, sizes, target, hazards, cut.gemm.out_c0, spread=spread)
        self.tiles = PartTiles(self.b, cut, self.insertion)
        # All blocks of a column have the same: one object is named, and told from others, once.
        self._rights: dict[Hashable, tuple[Hashable, ...]] = {}

    def append(self, task: Task) -> None:
        """Append one base block: for each part, kernel depth, box of taps in L1, base_k: multiply."""
        pairs = self.cut.gemm.depths[task.depth]
        # Tasks are alike if their tiles cost the same; which of them are still in L1 the rings know.
        shape = self.cut.pixel_costs[task.first_pixel, task.pixels], task.columns, len(pairs)
        lefts = tuple([left_place(task, source) for _, source in pairs])
        rights = self._right_places(task)
        if len(self.cut.parts) == 1:
            self._part(Part(task, 0), shape, lefts, rights)
            return
        for _ in self.b.once(task, shape, {self.left: lefts, self.right: rights}):
            for number in range(len(self.cut.parts)):
                own = [tuple([(place, number) for place in places]) for places in (lefts, rights)]
                self._part(Part(task, number), shape, *own)

    def _part(
        self, part: Part, shape: Hashable, lefts: tuple[Hashable, ...], rights: tuple[Hashable, ...]
    ) -> None:
        """Append one part of the reduction of a base block; it has these places in L1, pair by pair."""
        (task, number), tiles = part, self.tiles
        pattern, boxes = self._patterns[number]
        for _ in self.b.once(part, (shape, pattern), {self.left: lefts, self.right: rights}):
            accumulator = self.l0c.next()
            for pair, (left, right) in enumerate(zip(lefts, rights, strict=True)):
                for at, segment in enumerate(self.cut.parts[number]):
                    of_left, of_right = boxes[at]
                    if self._products_apart:
                        self._products(Products(part, at), pair, (left, of_left), (right, of_right))
                        continue
                    image = held(self.left, (left, of_left), tiles.left, part, pair, at)
                    weights = held(self.right, (right, of_right), tiles.right, part, pair, at)
                    for slice_ in segment.slices:
                        l0, first = (self.l0a.next(), self.l0b.next()), self.l0c.begins()
                        tiles.multiply_part(accumulator, image, weights, l0, part, at, slice_, first=first)
            # L0C begins anew with every part, so several of them meet in GM.
            atomic = len(self.cut.parts) > 1
            self.out.write(accumulator, task.pixels, task.columns, tiles.written, part, atomic=atomic)

    def _products(self, products: Products, pair: int, left: Hashable, right: Hashable) -> None:
        """Append the tiles of a segment, and its products as a task of their own; the tiles are places."""
        (part, at), tiles = products, self.tiles
        image = held(self.left, (left, None), tiles.left, part, pair, at)
        weights = held(self.right, (right, None), tiles.right, part, pair, at)
        for _ in self.b.once(products, tiles.costs(products), {self.left: (left,), self.right: (right,)}):
            for number in range(len(self.cut.parts[part.number][at].slices)):
                l0, first = (self.l0a.next(), self.l0b.next()), self.l0c.begins()
                tiles.multiply_one(self.l0c.last, image, weights, l0, products, number, first=first)

    @cached_property
    def _products_apart(self) -> bool:
        """Whether the products of a segment are a task of their own.

        Those of all segments or of none, so that a tile has one name in all segments that share it. Of none
        where the reduction has parts: these are tasks themselves, whose places would have to be told two
        levels deep, and tiles that wait in L1 would be loaded again.
        """
        counts = [len(segment.slices) for part in self.cut.parts for segment in part]
        return len(self.cut.parts) == 1 and sum(counts) >= MANY_PRODUCTS * len(counts)

    @cached_property
    def _patterns(self) -> list[tuple[int, list[tuple[Taps, Taps]]]]:
        """For each part a number that is that of all parts cut like it, and the boxes of its segments.

        Channels of boxes are counted from the first one of the part.
        """
        numbers: dict[Hashable, int] = {}
        found = []
        for (first, _), segments in zip(self.cut.part_channels, self.cut.parts, strict=True):
            boxes = [(_from(first, segment.left), _from(first, segment.right)) for segment in segments]
            pattern = tuple(boxes), tuple([segment.slices for segment in segments])
            found.append((numbers.setdefault(pattern, len(numbers)), boxes))
        return found

    def _right_places(self, task: Task) -> tuple[Hashable, ...]:
        key = task.group, task.depth, task.first_column
        known = self._rights.get(key)
        if known is None:
            pairs = self.cut.gemm.depths[task.depth]
            known = self._rights[key] = tuple([right_place(task, kernel) for kernel, _ in pairs])
        return known


def _from(channel: int, box: Taps) -> Taps:
    return box._replace(channel=box.channel - channel)


def left_place(task: Task, depth: int) -> Hashable:
    """Return what tells the image tiles of one task from those of another."""
    return task.group, task.image, depth, task.first_pixel


def right_place(task: Task, depth: int) -> Hashable:
    """Return what tells the weights of one task from those of another."""
    return task.group, depth, task.first_column
