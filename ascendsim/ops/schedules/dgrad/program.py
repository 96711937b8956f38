"""The program of a core of `Dgrad`: the loops of one task, repeated as templates where tasks are alike."""

from __future__ import annotations

from collections.abc import Hashable

from ascendsim.ops.schedules.blocks import BlockProgram
from ascendsim.ops.schedules.dgrad.tasks import DgradTasks, Task
from ascendsim.ops.schedules.dgrad.tiles import DgradTiles
from ascendsim.ops.schedules.tiles import Sizes, held
from ascendsim.program.places import GmTensor


class DgradProgram(BlockProgram):
    """Emits the programs of grad_input; a template is one task."""

    def __init__(self, cut: DgradTasks, sizes: Sizes, target: GmTensor, hazards: frozenset[str]) -> None:
        super().__init__(cut, sizes, target, hazards, cut.gemm.sliding.c0)
        self.tiles = DgradTiles(self.b, cut, self.recurring.aim)

    def append(self, task: Task) -> None:
        """Append the instructions of one base block, from a template if there is one."""
        pairs = self.cut.gemm.depths[task.depth]
        # Tasks are alike if their tiles have equal shapes; which of them are still in L1 the rings know.
        shape = self.cut.pixel_shapes[task.first_pixel], task.columns, len(pairs)
        left = tuple([_left_place(task, source) for _, source in pairs])
        right = tuple([_right_place(task, kernel) for kernel, _ in pairs])
        self.recurring.emit(task, shape, (left, right, *self.plain_places), self._task)

    def _task(self, task: Task) -> None:
        """Append the loops of one base block: parts, kernel depths, boxes of taps in L1, slices of base_k."""
        tiles, parts = self.tiles, self.cut.parts
        for part in parts:
            accumulator, first = self.l0c.next(), True
            for pair, (kernel, source) in enumerate(self.cut.gemm.depths[task.depth]):
                for segment in part:
                    box = segment.left
                    place = _left_place(task, source), box
                    image = held(self.left, place, tiles.load_image, task, pair, box)
                    box = segment.right
                    place = _right_place(task, kernel), box
                    weights = held(self.right, place, tiles.load_weights, task, pair, box)
                    for slice_ in segment.slices:
                        l0 = self.l0a.next(), self.l0b.next()
                        tiles.multiply(accumulator, image, weights, l0, task, segment, slice_, first=first)
                        first = False
            # L0C begins anew with every part, so several of them meet in GM.
            atomic = len(parts) > 1
            self.out.write(accumulator, task.pixels, task.columns, tiles.output(task), atomic=atomic)


def _left_place(task: Task, depth: int) -> Hashable:
    """Return what tells the image tiles of one task from those of another."""
    return task.group, task.image, depth, task.first_pixel


def _right_place(task: Task, depth: int) -> Hashable:
    """Return what tells the weights of one task from those of another."""
    return task.group, depth, task.first_column
