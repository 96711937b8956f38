"""The program of a core of `Dgrad`: the loops of one task, repeated as templates where tasks are alike."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from ascendsim.cube.views import round_up
from ascendsim.ops.problems.taps import Taps
from ascendsim.ops.schedules.dgrad.tasks import DgradTasks, Task
from ascendsim.ops.schedules.dgrad.tiles import DgradTiles
from ascendsim.ops.schedules.writeback import Writeback
from ascendsim.program.builder import ProgramBuilder
from ascendsim.program.places import GmTensor, Slot
from ascendsim.program.program import Program
from ascendsim.program.recurring import Places, Recurring
from ascendsim.program.rings import Ring


class Sizes(NamedTuple):
    """What a core reserves: rows and columns of its largest tile, bytes of its largest image and weights."""

    m: int
    n: int
    left_bytes: int
    right_bytes: int


def sizes_of(cut: DgradTasks, tasks: list[Task]) -> Sizes:
    """Return what the tasks of a core need."""
    cube, sliding = cut.profile.cube, cut.spec.sliding
    n = round_up(max(task.columns for task in tasks), cube.n0)
    return Sizes(
        round_up(max(task.pixels for task in tasks), cube.m0),
        n,
        max(
            cut.left_tiles[first, pixels, box].l1_bytes
            for first, pixels in {(task.first_pixel, task.pixels) for task in tasks}
            for box in cut.left_boxes
        ),
        max(box.groups for box in cut.right_boxes) * sliding.c0 * n * sliding.itemsize,
    )


class DgradProgram:
    """Emits the instructions of cores with equal needs, one after another, task after task."""

    def __init__(self, cut: DgradTasks, sizes: Sizes, target: GmTensor, hazards: frozenset[str]) -> None:
        self.cut = cut
        t, size = cut.tiling, cut.spec.sliding.itemsize
        b = self.b = ProgramBuilder(cut.profile, hazards)
        m, n = sizes.m, sizes.n
        self.left = Ring(b.slots("L1", sizes.left_bytes, "A1", t.al1_buffers))
        self.right = Ring(b.slots("L1", sizes.right_bytes, "B1", t.bl1_buffers))
        self.l0a = Ring(b.slots("L0A", m * t.base_k * size, "A0", t.al0_buffers))
        self.l0b = Ring(b.slots("L0B", t.base_k * n * size, "B0", t.bl0_buffers))
        self.l0c = Ring(b.slots("L0C", m * n * 4, "C0", t.cl0_buffers))
        self.out = Writeback(b, cut.profile, target, m, n, cut.spec.sliding.c0)
        plain = (self.l0a, self.l0b, self.l0c, *self.out.rings)
        self.recurring = Recurring(cut, b, (self.left, self.right, *plain))
        self.tiles = DgradTiles(b, cut, self.recurring.aim)
        self.plain_places: Places = ((),) * len(plain)

    def emit(self, tasks: list[Task]) -> Program:
        """Return the program of a core."""
        self.recurring.restart()
        shapes, depths = self.cut.pixel_shapes, self.cut.spec.depths
        for task in tasks:
            pairs = depths[task.depth]
            # Tasks are alike if their tiles have equal shapes; which of them are still in L1 the rings know.
            shape = shapes[task.first_pixel], task.columns, len(pairs)
            left = tuple([_left_place(task, source) for _, source in pairs])
            right = tuple([_right_place(task, kernel) for kernel, _ in pairs])
            self.recurring.emit(task, shape, (left, right, *self.plain_places), self._task)
        return self.b.build()

    def _task(self, task: Task) -> None:
        """Append the loops of one base block: parts, kernel depths, boxes of taps in L1, slices of base_k."""
        for part in self.cut.parts:
            accumulator = self.l0c.next()
            first = True
            for pair in range(len(self.cut.spec.depths[task.depth])):
                for segment in part:
                    image = self._image(task, pair, segment.left)
                    weights = self._weights(task, pair, segment.right)
                    for slice_ in segment.slices:
                        l0 = self.l0a.next(), self.l0b.next()
                        self.tiles.multiply(
                            accumulator, image, weights, l0, task, segment, slice_, first=first
                        )
                        first = False
            atomic = len(self.cut.parts) > 1
            self.out.write(accumulator, task.pixels, task.columns, self.tiles.output(task), atomic=atomic)

    def _image(self, task: Task, pair: int, box: Taps) -> Slot:
        """Return the slot with the image tile, loading it unless it is still there."""
        place = _left_place(task, self.cut.spec.depths[task.depth][pair][1])
        slot = self.left.find(place, box)
        if slot is None:
            slot = self.left.next(place, box)
            self.tiles.load_image(slot, task, pair, box)
        return slot

    def _weights(self, task: Task, pair: int, box: Taps) -> Slot:
        """Return the slot with the weights of a box, loading them unless they are still there."""
        place = _right_place(task, self.cut.spec.depths[task.depth][pair][0])
        slot = self.right.find(place, box)
        if slot is None:
            slot = self.right.next(place, box)
            self.tiles.load_weights(slot, task, pair, box)
        return slot


def _left_place(task: Task, depth: int) -> Hashable:
    """Return what tells the image tiles of one task from those of another."""
    return task.group, task.image, depth, task.first_pixel


def _right_place(task: Task, depth: int) -> Hashable:
    """Return what tells the weights of one task from those of another."""
    return task.group, depth, task.first_column
