"""A loop nest of your own for grad_input, beside the simulator's: same bits, other cycles.

The usual nest walks the column blocks of one pixel tile before it goes on to the next one, so that the image
stays in L1. This one walks all pixel tiles of one column block: its weights come into L1 once and stay, and
every image tile comes again for every column block.

Run it with `python examples/04_your_own_schedule.py`.
"""

from functools import cached_property
from typing import ClassVar

import numpy as np

from ascendsim import ConvProblem, check_schedule, convolution_backward
from ascendsim.ops.schedules import Axis, Dgrad, DgradTiles, Nest, NestProgram, Writeback, alike, shares


class WeightsStay(Dgrad):
    """For each column block: load its weights; for each pixel tile: for each slice of base_k: multiply."""

    name: ClassVar[str] = "weights_stay"

    def dealt(self):
        """Return the tasks of each core: those of one column block together."""
        walk = sorted(self.tasks.tasks, key=lambda task: (task.group, task.columns))
        return [walk[share.start : share.stop] for share in shares(len(walk), self.tiling.used_cores)]

    @cached_property
    def loops(self):
        """The loop nest, which all cores go through, each for its own tasks."""
        return Loops(self)

    def program(self, tasks):
        """Return the program of one core."""
        return NestProgram(self.loops, tasks, self.hazards)


class Loops(Nest):
    """What a core does for each of its tasks; `print(nest)` shows it."""

    def __init__(self, schedule):
        super().__init__(schedule.profile, schedule.name)
        cut, tiling, gemm = schedule.tasks, schedule.tiling, schedule.gemm
        m, n, size = tiling.base_m, tiling.base_n, gemm.sliding.itemsize
        # The axes of tiles, tables over them, and what makes the instructions on them.
        tiles = DgradTiles(self, cut)

        # Every wait follows from the slots that instructions touch. The weights of a column block are one
        # tile: a slot for each kernel depth that a pixel meets, and for each box of taps.
        image_bytes = int(cut.left_bytes.max())
        images = self.ring("L1", image_bytes, "image", tiling.al1_buffers)
        boxes, most = len(cut.right_boxes), max(len(pairs) for pairs in gemm.depths)
        box_bytes = max(box.groups for box in cut.right_boxes) * gemm.sliding.c0 * n * size
        weights = self.ring("L1", box_bytes, "weights", width=most * boxes)
        l0a = self.ring("L0A", m * tiling.base_k * size, "A", tiling.al0_buffers)
        l0b = self.ring("L0B", tiling.base_k * n * size, "B", tiling.bl0_buffers)
        l0c = self.ring("L0C", m * n * 4, "C", tiling.cl0_buffers)
        out = Writeback(self, schedule.target, m, n, gemm.sliding.c0)

        # Which depths of the output meet the same kernel depths, and where the weights of a pair lie.
        met = self.table(alike([tuple(kernel for kernel, _ in own) for own in gemm.depths]), name="met")
        place = self.table([at * boxes for own in gemm.depths for at in range(len(own))], name="place")
        group, image, depth, pixels, columns = task = tiles.task()
        with (
            self.hold(weights, group, met[depth], columns) as b1,
            self.loop(tiles.pairs[depth], "pair") as pair,
            self.loop(tiles.rights, "box") as box,
        ):
            kernel = tiles.kernel_of[pair]
            self.emit(tiles.copy_right, [b1 + place[pair] + box], [group, kernel, columns, box])
        with self.loop(len(cut.parts), "part") as part:
            c, begun = self.next(l0c), self.let(0, "begun", Axis(2, [0, 1]))
            with self.loop(tiles.pairs[depth], "pair") as pair:
                # Every image tile comes again.
                self.forget(images)
                with self.loop(tiles.segments_of[part], "segment") as segment:
                    source, left = [group, image, tiles.source_of[pair]], tiles.left_of[segment]
                    with self.hold(images, left) as a1:
                        self.emit(tiles.clear, [a1], [pixels, left])
                        read = [*source, tiles.read_of[pixels, left]]
                        self.emit(tiles.copy_left, [a1], [*source, pixels, left], slice_at=read)
                    right = b1 + place[pair] + tiles.right_of[segment]
                    with self.loop(tiles.slices_of[segment], "slice") as at:
                        a, b = self.next(l0a), self.next(l0b)
                        self.emit(tiles.load_left, [a, a1], [pixels, at])
                        self.emit(tiles.load_right, [b, right], [columns, at])
                        self.emit(tiles.barrier, (), [begun, pixels, columns])
                        self.emit(tiles.mmad, [c, a, b], [begun, pixels, at, columns])
                        self.set(begun, 1)
            atomic = len(cut.parts) > 1
            out.write(c, task, tiles.size, tiles.output, (columns, tiles.widths), atomic=atomic)


if __name__ == "__main__":
    # A small layer first: the bits of the definition in every order of execution, or an error that says why.
    checked = check_schedule(WeightsStay, ConvProblem((2, 40, 9, 10), (20, 40, 3, 3), 1, 1))
    print(f"right in {len(checked.orders)} orders of {checked.instructions} instructions")
    random = np.random.default_rng(0)
    shapes = [(4, 64, 28, 28), (4, 256, 28, 28), (64, 256, 3, 3)]  # grad_output, input, weight
    dy, x, w = (random.standard_normal(shape).astype(np.float16) for shape in shapes)
    call = (dy, x, w, None, 1, 1, 1, False, 0, 1, (True, False, False), 0)
    usual = convolution_backward(*call)
    (kernel,) = (kernel for kernel in usual.kernels if kernel.plan)  # the others change layouts
    own = convolution_backward(*call, tiling=kernel.plan.tiling, schedule=WeightsStay)
    for result in (usual, own):
        (kernel,) = (kernel for kernel in result.kernels if kernel.plan)
        name = getattr(kernel.plan.schedule, "name", kernel.plan.schedule)
        print(f"{name}: {kernel.cycles} cycles, {kernel.bytes['l2_read']} bytes read")
    print("equal bits:", np.array_equal(usual.grad_input.view(np.uint16), own.grad_input.view(np.uint16)))
