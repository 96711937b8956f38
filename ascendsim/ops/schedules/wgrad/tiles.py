"""The tiles of a wgrad: axes with classes of costs, tables over them, and the makers of instructions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ascendsim.cube.im2col import Im2col
from ascendsim.cube.mmad import Mmad, PipeBarrier, is_small, spacing_needed
from ascendsim.cube.movers import CopyGmToL1, FillL1, LoadL0A, LoadL0B
from ascendsim.cube.tile_reads import Transposed
from ascendsim.ops.problems.taps import Taps
from ascendsim.ops.schedules.tiles import Index
from ascendsim.ops.schedules.wgrad.columns import Columns
from ascendsim.program.indices import Axis, Number, Span, Table, alike
from ascendsim.program.nest import Nest
from ascendsim.program.places import Gm, Slot

if TYPE_CHECKING:
    from ascendsim.ops.problems.strips import Numbers
    from ascendsim.ops.schedules.wgrad.tasks import WgradTasks


class WgradTiles:
    """The axes of the tiles of a wgrad, cut as `WgradTasks` says, and their tables.

    Axes     rows, columns: of base blocks; lefts, rights: pixels of tiles in L1; slices: pixels of products,
             range after range
    Tables   runs: of a reduction, by number of (kernel depth, part); small_of, big_of: depths of a run;
             left_of, right_of, slices_of: tiles and slices of a range; depth_of: how many pixels a slice has

    Which taps of the big side a tile in L1 has, and which columns of it a base block, lists of numbers tell:
    here a box and a block of columns, one number each; others in a nest that takes taps apart.
    """

    def __init__(self, nest: Nest, cut: WgradTasks) -> None:
        self.cut, self.gemm, self.sliding, self.profile = cut, cut.gemm, cut.gemm.sliding, cut.profile
        pixels = cut.pixels
        self.row_tiles, self.blocks = cut.row_tiles, cut.column_blocks
        self.heights = [count for _, count in self.row_tiles]
        self.widths = [groups * self.sliding.c0 for groups in self.groups()]
        self.left_runs, self.right_runs = pixels.left.tolist(), pixels.right.tolist()
        self.products = pixels.slices.tolist()
        self.rows, self.columns = Axis(len(self.heights), self.heights), Axis(len(self.blocks), self.widths)
        self.lefts, self.rights = Axis(len(pixels.left), pixels.left[:, 1].tolist()), Axis(len(pixels.right))
        self.slices = Axis(len(self.products), pixels.kinds.tolist())
        self.left_of = nest.table(pixels.left_of, self.lefts, "left tile of")
        self.right_of = nest.table(pixels.right_of, self.rights, "right tile of")
        self.slices_of = nest.spans(pixels.counts.tolist(), self.slices, "slices")
        self.depth_of, self.depths = distinct(nest, pixels.slices[:, 3], "pixels of")
        self.see(nest)
        self._reductions(nest)

    def _reductions(self, nest: Nest) -> None:
        """Make the tables of what the parts of the reduction go through, by number of (depth, part)."""
        gemm, (found, counts) = self.gemm, self.cut.reductions
        self.runs = nest.spans(counts.tolist(), name="runs")
        images, ranges = gemm.batch + 1, len(self.cut.runs) + 1
        self.small_of = nest.table(found[:, 0], gemm.small.shape[2], "small depth of")
        self.big_of = nest.table(found[:, 1], gemm.big.shape[2], "big depth of")
        self._images = [nest.table(found[:, at], images) for at in (2, 3)]
        self._ranges = [nest.table(found[:, at], ranges) for at in (4, 5)]

    def images_of(self, run: Number) -> Span:
        """Return the images of a run of the reduction."""
        first, count = (table[run] for table in self._images)
        return Span(first, count, Axis(self.gemm.batch), f"images of {run.text}")

    def ranges_of(self, run: Number) -> Span:
        """Return the ranges of pixels of a run of the reduction, by number."""
        first, count = (table[run] for table in self._ranges)
        return Span(first, count, Axis(len(self.cut.runs)), f"ranges of {run.text}")

    def groups(self) -> list[int]:
        """Return how many groups of C0 columns a base block has, by block of columns."""
        return [block.groups for block in self.blocks]

    def see(self, nest: Nest) -> None:
        """Make the tables of what tiles have of the big side."""
        self.boxes = list(dict.fromkeys([block.box for block in self.blocks]))
        numbers = {box: number for number, box in enumerate(self.boxes)}
        shapes = {box[1:]: box for box in self.boxes}
        number_of = {shape: number for number, shape in enumerate(shapes)}
        axis = Axis(len(self.boxes), [box.channels for box in self.boxes])
        self.box_of = nest.table([numbers[block.box] for block in self.blocks], axis, "box of")
        self.shape_of = nest.table([number_of[box[1:]] for box in self.boxes], name="shape of")
        self.channels_of = nest.table(alike([box[:2] for box in self.boxes]), name="channels of")
        # What tiles have of an image; several may have the same of it, which is one slice in GM.
        pixels = np.stack([self.cut.pixels.image_pixels(box) for box in shapes.values()], 1)
        windows = np.stack([self.cut.pixels.windows(box) for box in shapes.values()], 1)
        self.count_of, self.counts = distinct(nest, pixels, "image pixels of")
        self.window_of, _ = distinct(nest, windows, "window of")

    def strip_of(self, row: Number) -> Number:
        """Return what tells the rows of the small side that a tile has: those of one base block."""
        return row

    def sees(self, column: Number) -> list[Number]:
        """Return what tells the box of taps that a tile has."""
        return [self.box_of[column]]

    def sizes_of(self, right: Number, box: Number) -> list[Number]:
        """Return what tells how much of an image a tile has."""
        return [self.count_of[right, self.shape_of[box]]]

    def slice_of(self, right: Number, box: Number) -> list[Number]:
        """Return what tells what a tile has of an image from what others have of it."""
        return [self.channels_of[box], self.window_of[right, self.shape_of[box]]]

    def seen(self, *told: int) -> tuple[Taps, int, int]:
        """Return the box of taps of a tile, its pixels of the image, and the runs of bytes that these are."""
        box, count = told
        return self.boxes[box], self.counts[count], 1

    def block(self, *reads: int) -> Columns:
        """Return the columns of a base block."""
        return self.blocks[reads[0]]

    # ---- instructions

    def copy_small(self, slot: Slot, group: int, image: int, depth: int, row: int, left: int) -> CopyGmToL1:
        """Bring into L1 pixels of the small side, all channels of a base block's rows."""
        (first, rows), (_, pixels), s = self.row_tiles[row], self.left_runs[left], self.sliding
        channels = slice(first // s.c0, (first + rows) // s.c0)
        index = group, image, depth, channels, *self.cut.left_place(self.left_runs[left])
        size, shape = rows * pixels * s.itemsize, (rows // s.c0, pixels, s.c0)
        return CopyGmToL1(slot, Gm(self.gemm.small, index), size, shape)

    def clear(self, slot: Slot, right: int, *told: int) -> FillL1 | None:
        """Clear a tile that lies in the padding as a whole."""
        (box, pixels, _), s = self.seen(*told), self.sliding
        if pixels:
            return None
        # It has room for a pixel all the same.
        shape = self.cut.tile(self.right_runs[right], box).window.tile_shape
        return FillL1(slot, box.channels * s.c0 * s.itemsize, shape)

    def copy_big(
        self, slot: Slot, group: int, image: int, depth: int, right: int, *told: int
    ) -> CopyGmToL1 | None:
        """Bring into L1 what some pixels see of the big side under a box of taps, unless it is padding."""
        (box, pixels, runs), s = self.seen(*told), self.sliding
        if not pixels:
            return None
        tile = self.cut.tile(self.right_runs[right], box)
        channels = slice(box.channel, box.channel + box.channels)
        source = Gm(self.gemm.big, (group, image, depth, channels, tile.rows, tile.cols))
        size = pixels * box.channels * s.c0 * s.itemsize
        return CopyGmToL1(slot, source, size, (), tile.window, tile.placement, runs)

    def load_small(self, slot: Slot, source: Slot, row: int, at: int) -> LoadL0A:
        """Bring a slice of the small side into L0A."""
        # In GM and L1 a pixel lies beside its channels, while an Mmad adds along the rows of its left matrix:
        # the rows must be channels, so pixels and channels change places on the way to L0A.
        (_, first, place, pixels, width), s = self.products[at], self.sliding
        channels = self.heights[row] // s.c0
        return LoadL0A(
            slot, source, Transposed(channels, first, pixels, s.c0, s.itemsize, place % width, width)
        )

    def load_big(self, slot: Slot, source: Slot, at: int, *reads: int) -> LoadL0B:
        """Bring a slice of the big side into L0B: the patches of some pixels under the taps of a block."""
        right, _, first, pixels, _ = self.products[at]
        box, first_group, groups, _ = self.block(*reads)
        window, size = self.cut.tile(self.right_runs[right], box).window, self.sliding.itemsize
        return LoadL0B(slot, source, Im2col(window, first, pixels, first_group, groups, size))

    def barrier(self, begun: int, row: int, column: int) -> PipeBarrier | None:
        """Let the accumulator come back: a product of few fractals would want it sooner."""
        spaced = begun and spacing_needed(self.profile, self.heights[row], self.widths[column])
        return PipeBarrier("M") if spaced else None

    def drain(self, row: int, column: int) -> PipeBarrier | None:
        """Let the cube come to rest after a small product."""
        small = is_small(self.profile, self.heights[row], self.widths[column])
        return PipeBarrier("M") if small else None

    def mmad(self, c: Slot, a: Slot, b: Slot, begun: int, row: int, column: int, depth: int) -> Mmad:
        """Add the product over one slice of the reduction."""
        sizes = self.heights[row], self.depths[depth], self.widths[column]
        return Mmad(c, a, b, *sizes, self.gemm.compute_dtype, not begun)

    def size(self, *place: int) -> tuple[int, int]:
        """Return the rows and columns of a base block."""
        return self.heights[place[-2]], self.widths[place[-1]]

    def output(self, *place: int) -> Index:
        """Return the slice of the output for a range, first and count, of the columns of a base block."""
        *outer, row, column, first, count = place
        (top, rows), begin = self.row_tiles[row], self.blocks[column].first_column + first
        return *outer, slice(top, top + rows), slice(begin, begin + count)


def distinct(nest: Nest, values: Numbers, name: str) -> tuple[Table, list[int]]:
    """Return a table of what values are by number, each a class of costs of its own, and these values."""
    found, of = np.unique(values, return_inverse=True)
    return nest.table(of.reshape(values.shape), Axis(len(found), range(len(found))), name), found.tolist()
