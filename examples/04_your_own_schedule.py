"""A loop nest of your own for grad_input, beside the simulator's: same bits, other cycles.

The usual nest walks the column blocks of one pixel tile before it goes on to the next one, so that the image
stays in L1. This one walks all pixel tiles of one column block: its weights come into L1 once and stay, and
every image tile comes again for every column block.

Run it with `python examples/04_your_own_schedule.py`.
"""

from typing import ClassVar

import numpy as np

from ascendsim import ConvProblem, check_schedule, convolution_backward
from ascendsim.ops.schedules import Dgrad, DgradTiles, ProgramBuilder, Writeback, shares


class WeightsStay(Dgrad):
    """For each column block: load its weights; for each pixel tile: for each slice of base_k: multiply."""

    name: ClassVar[str] = "weights_stay"

    def dealt(self):
        """Return the tasks of each core: those of one column block together."""
        walk = sorted(self.tasks.tasks, key=lambda task: (task.group, task.first_column))
        return [walk[share.start : share.stop] for share in shares(len(walk), self.tiling.used_cores)]

    def program(self, tasks):
        """Return the program of one core."""
        cut, tiling, gemm = self.tasks, self.tiling, self.gemm
        c0, size = gemm.sliding.c0, gemm.sliding.itemsize
        m, n = tiling.base_m, tiling.base_n
        builder = ProgramBuilder(self.profile, self.hazards)
        # The builder derives every wait from the slots that instructions touch.
        image_bytes = max(tile.l1_bytes for tile in cut.left_tiles.values())
        images = builder.ring("L1", image_bytes, "image", tiling.al1_buffers)
        most = max(len(pairs) for pairs in gemm.depths)
        weights = {
            (pair, box): builder.slots("L1", box.groups * c0 * n * size, f"weights {pair} {box}")[0]
            for pair in range(most)
            for box in cut.right_boxes
        }
        l0a = builder.ring("L0A", m * tiling.base_k * size, "A", tiling.al0_buffers)
        l0b = builder.ring("L0B", tiling.base_k * n * size, "B", tiling.bl0_buffers)
        l0c = builder.ring("L0C", m * n * 4, "C", tiling.cl0_buffers)
        out = Writeback(builder, self.profile, self.target, m, n, c0)
        tiles = DgradTiles(builder, cut)

        here = None
        for task in tasks:
            pairs = gemm.depths[task.depth]
            block = task.group, task.first_column, tuple(kernel for kernel, _ in pairs)
            if block != here:
                for (pair, box), slot in weights.items():
                    if pair < len(pairs):
                        tiles.load_weights(slot, task, pair, box)
                here = block
            for part in cut.parts:
                accumulator, first = l0c.next(), True
                for pair in range(len(pairs)):
                    loaded = None
                    for segment in part:
                        if segment.left != loaded:
                            image = images.next()
                            tiles.load_image(image, task, pair, segment.left)
                            loaded = segment.left
                        for slice_ in segment.slices:
                            slots = l0a.next(), l0b.next()
                            right = weights[pair, segment.right]
                            place = task, segment, slice_
                            tiles.multiply(accumulator, image, right, slots, *place, first=first)
                            first = False
                atomic = len(cut.parts) > 1
                out.write(accumulator, task.pixels, task.columns, tiles.output, task, atomic=atomic)
        return builder.build()


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
