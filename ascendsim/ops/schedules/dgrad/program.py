"""The program of a core of `Dgrad`: the loops of one base block."""

from __future__ import annotations

from collections.abc import Hashable

from ascendsim.ops.problems.taps import Segment
from ascendsim.ops.schedules.blocks import BlockProgram
from ascendsim.ops.schedules.dgrad.pieces import Task
from ascendsim.ops.schedules.dgrad.room import inserts_in_ub
from ascendsim.ops.schedules.dgrad.tasks import DgradTasks
from ascendsim.ops.schedules.dgrad.tiles import DgradTiles
from ascendsim.ops.schedules.tiles import Sizes, held
from ascendsim.program.places import GmTensor


class DgradBlocks(BlockProgram):
    """Emits base blocks whose reduction is in one piece: what `Dgrad` and a split kernel do alike."""

    def reduce(
        self,
        task: Task,
        parts: tuple[tuple[Segment, ...], ...],
        tiles: DgradTiles,
        lefts: tuple[Hashable, ...],
        rights: tuple[Hashable, ...],
    ) -> None:
        """Append one base block: for each part, kernel depth, box of taps in L1, base_k: multiply.

        lefts, rights   what tells the tiles of each pair of depths from those of other tasks
        """
        for part in parts:
            accumulator = self.l0c.next()
            for pair, (left, right) in enumerate(zip(lefts, rights, strict=True)):
                for segment in part:
                    place = left, self.image_of(segment)
                    image = held(self.left, place, tiles.load_image, task, pair, segment.left)
                    place = right, segment.right
                    weights = held(self.right, place, tiles.load_weights, task, pair, segment.right)
                    for slice_ in segment.slices:
                        l0, first = (self.l0a.next(), self.l0b.next()), self.l0c.begins()
                        tiles.multiply(accumulator, image, weights, l0, task, segment, slice_, first=first)
            # L0C begins anew with every part, so several of them meet in GM.
            atomic = len(parts) > 1
            self.out.write(accumulator, task.pixels, task.columns, tiles.output, task, atomic=atomic)

    def image_of(self, segment: Segment) -> Hashable:
        """Return what tells the image tiles of one task from each other."""
        return segment.left


class DgradProgram(DgradBlocks):
    """Emits the programs of grad_input; base blocks that are alike share their code."""

    def __init__(self, cut: DgradTasks, sizes: Sizes, target: GmTensor, hazards: frozenset[str]) -> None:
        spread = inserts_in_ub(cut.gemm, cut.profile)
        super().__init__(cut, sizes, target, hazards, cut.gemm.out_c0, spread=spread)
        self.tiles = DgradTiles(self.b, cut, self.insertion)
        # All blocks of a column have the same: one object is named, and told from others, once.
        self._rights: dict[Hashable, tuple[Hashable, ...]] = {}

    def append(self, task: Task) -> None:
        """Append one base block."""
        pairs = self.cut.gemm.depths[task.depth]
        # Tasks are alike if their tiles have equal shapes; which of them are still in L1 the rings know.
        shape = self.cut.pixel_shapes[task.first_pixel, task.pixels], task.columns, len(pairs)
        places = {
            self.left: tuple([left_place(task, source) for _, source in pairs]),
            self.right: self._right_places(task),
        }
        for _ in self.b.once(task, shape, places):
            self.reduce(task, self.cut.parts, self.tiles, *places.values())

    def _right_places(self, task: Task) -> tuple[Hashable, ...]:
        key = task.group, task.depth, task.first_column
        known = self._rights.get(key)
        if known is None:
            pairs = self.cut.gemm.depths[task.depth]
            known = self._rights[key] = tuple([right_place(task, kernel) for kernel, _ in pairs])
        return known


def left_place(task: Task, depth: int) -> Hashable:
    """Return what tells the image tiles of one task from those of another."""
    return task.group, task.image, depth, task.first_pixel


def right_place(task: Task, depth: int) -> Hashable:
    """Return what tells the weights of one task from those of another."""
    return task.group, depth, task.first_column
