"""The base blocks of a wgrad, and what decides the cost of those of a core.

One task is a base block of small-side channels x (big-side channel group, tap) columns over a part of the
reduction, which goes through the pixels of all images. The left operand is the small side transposed on its
way to L0A, the right one is im2col of the big side (load3d into L0B). Parts of the reduction on different
cores are added atomically in GM, or kept apart in a workspace and added in order by vector cores.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ascendsim.frozen import cached_property
from ascendsim.instructions.cube import Im2col, Mmad, Transposed, round_up
from ascendsim.instructions.movers import CopyGmToL1, FillL1, LoadL0A, LoadL0B
from ascendsim.ops.problems.sliding import Taps
from ascendsim.ops.schedules.blocks import BlockTiles, Index, TileSizes
from ascendsim.ops.schedules.ranges import chunks_of, mixed, numbered, spread, tasks_of
from ascendsim.ops.schedules.wgrad.cut import BLOCK, Columns, WgradCut, spelled
from ascendsim.program.nest import Nest
from ascendsim.program.places import Gm, Slot
from ascendsim.program.walk import Axis, Number, Span, Table, alike

if TYPE_CHECKING:
    from ascendsim.ops.schedules.ranges import Numbers, Tasks


class WgradTasks(WgradCut):
    """The base blocks of a wgrad that is cut under one tiling on one product."""

    @cached_property
    def tasks(self) -> Tasks:
        """All tasks that reduce anything, column blocks fastest."""
        # Parts outermost: the tasks of one core then share pixels, and with them tiles in L1.
        tiles = range(len(self.row_tiles)), range(len(self.column_blocks))
        return self.reducing_of(tasks_of(BLOCK, *self._outer, *tiles))

    @property
    def _outer(self) -> tuple[range, range, range]:
        """The parts, groups and kernel depths."""
        return range(self.splits), range(self.gemm.groups), range(len(self.gemm.depths))

    def reducing_of(self, tasks: Tasks) -> Tasks:
        """Return those of some tasks that reduce anything."""
        counts = self.reductions[1].reshape(-1, self.splits)
        found: Tasks = tasks[counts[tasks["depth"], tasks["part"]] > 0]
        return found

    @property
    def cells(self) -> Numbers:
        """The cell of each task in the grid (group, part of the reduction, column, row), rows fastest."""
        t, tasks = self.tiling, self.tasks
        axes = {
            "group": chunks_of(tasks["group"], self.gemm.groups, t.group_dim),
            "k": (tasks["part"], self.splits),
            "n": chunks_of(tasks["column"], len(self.column_blocks), t.n_dim),
            "m": chunks_of(tasks["row"], len(self.row_tiles), t.m_dim),
        }
        return numbered("grad_weight", "group k n m", axes)[0]

    @cached_property
    def _parts(self) -> list[tuple[int, int]]:
        """All (kernel depth, part)."""
        return [(d, part) for d in range(len(self.gemm.depths)) for part in range(self.splits)]

    @cached_property
    def _part_shapes(self) -> Numbers:
        """Numbers of the parts by the pixel ranges of their segments, from which the tiles follow."""
        return self._spelled(range(len(self.runs)))

    def _spelled(self, symbols: Sequence[int]) -> Numbers:
        """Return a number for each kernel depth and part, by the symbols of the ranges that it reduces."""
        told = tuple(symbols)
        return self._numbered([spelled(self.part(*key), told) for key in self._parts])

    def _numbered(self, told: Sequence[Hashable]) -> Numbers:
        """Return a number for each kernel depth and part; equal keys get equal numbers."""
        return np.array(alike(told)).reshape(-1, self.splits)

    @cached_property
    def reductions(self) -> tuple[Numbers, Numbers]:
        """The work of each (kernel depth, part): rows of numbers, and the count of rows.

        A row is a pair of depths, images (the first, and how many), and ranges of pixels of each (likewise).
        """
        found = [self.part(*key) for key in self._parts]
        rows = [own for reduced in found for own in reduced]
        return np.array(rows, np.int64).reshape(-1, 6), np.array([len(reduced) for reduced in found])

    def _reduced(self, parts: Numbers) -> tuple[Numbers, Numbers]:
        """Return the rows of `reductions` of some (kernel depth, part), by number, and the place of each."""
        rows, counts = self.reductions
        place, within = spread(counts[parts])
        return rows[(np.cumsum(counts) - counts)[parts][place] + within], place

    def sizes(self, tasks: Tasks) -> TileSizes:
        """Return the room that a core with these tasks reserves."""
        cube, gemm, size = self.profile.cube, self.gemm, self.gemm.sliding.itemsize
        blocks, reduced = self.column_blocks, tasks["depth"] * self.splits + tasks["part"]
        met = {*zip(tasks["column"].tolist(), reduced.tolist(), strict=True)}
        columns = [blocks[at] for at in {column for column, _ in met}]
        m = round_up(max([self.row_tiles[at][1] for at in {*tasks["row"].tolist()}]), cube.m0)
        # Tasks are many, but their tiles of a few shapes: images repeat the same few ranges.
        parts: dict[tuple[int, ...], set[int]] = defaultdict(set)
        for column, part in met:
            parts[blocks[column].box[1:]].add(part)
        kinds = [
            (first, ranges, shape)
            for shape, own in parts.items()
            for first, ranges in np.unique(self._reduced(np.array([*own]))[0][:, 4:], axis=0).tolist()
        ]
        pixels, left, right = map(max, zip(*[self._largest(*kind) for kind in kinds], strict=True))
        return TileSizes(
            m,
            round_up(max([own.groups for own in columns]) * gemm.sliding.c0, cube.n0),
            round_up(min(self.tiling.base_k, pixels), cube.rates[gemm.compute_dtype].k0),
            m * left * size,
            right,
        )

    def _largest(self, first: int, ranges: int, shape: tuple[int, ...]) -> tuple[int, int, int]:
        """Return the most pixels of some ranges, of their left tiles, and bytes of their right tiles."""
        own, of = slice(first, first + ranges), self.pixels
        right = self.right_bytes(Taps(0, *shape))[of.right_of[own]]
        found = of.runs[own, 1], of.left[of.left_of[own], 1], right
        pixels, left, bytes_ = (int(numbers.max()) for numbers in found)
        return pixels, left, bytes_

    @property
    def shares_tiles(self) -> bool:
        """Whether tasks of different parts or kernel depths may need the same tiles."""
        return len(self.gemm.depths) > 1

    def signature(self, tasks: Tasks) -> Hashable:
        """Describe what decides the cost of a core's program: tile shapes, and which tiles are met again.

        With one kernel depth a task's tiles are known by its part and its rows or columns. With several,
        kernel depths share tiles, so that the tiles of every segment are numbered by what they hold.
        """
        part, group, depth, row, column = (tasks[name] for name in BLOCK.split())
        (strips_of, heights), (boxes, shapes) = self._told_rows, self._told_columns
        kinds = np.stack([heights[row], shapes[column], self._part_shapes[depth, part]])
        if self.operator:
            kinds = np.vstack([kinds, *self.places_of(row, depth, column)])
        # Keys of the left and the right tiles: a strip has its part, a tile its depth and pixels.
        strips = [mixed(group, part, own) for own in (strips_of[row], boxes[column])]
        if not self.shares_tiles:
            return kinds.tobytes(), *[numbered_as_met(own).tobytes() for own in strips]
        of, (small, big, image, pixels) = self._segments_of(depth * self.splits + part)
        # A strip takes its number before its tiles do: the distinction of cores depends on this order.
        at = np.arange(len(tasks)) + np.searchsorted(of, np.arange(len(tasks)))
        tiles = np.arange(len(of)) + of + 1
        met = [kinds.tobytes()]
        for strip, depths, own in zip(strips, (small, big), (strips_of[row], boxes[column]), strict=True):
            keys = np.empty(len(tasks) + len(of), np.int64)
            keys[at] = strip
            keys[tiles] = mixed(group[of], depths, own[of], image, pixels) + strip.max() + 1
            met.append(numbered_as_met(keys)[tiles].tobytes())
        return tuple(met)

    def places_of(self, row: Any, depth: Any, column: Any) -> tuple[Any, Any]:
        """Return the inputs of places in L1 besides the tiles: the numbers of blocks in their tasks."""
        t = self.tiling
        rows, columns = self._block_numbers
        return rows[row] % t.al1_buffers, columns[depth, column] % t.bl1_buffers

    @cached_property
    def _block_numbers(self) -> tuple[Numbers, Numbers]:
        return self.row_numbers, self.column_numbers

    def _segments_of(self, parts: Numbers) -> tuple[Numbers, Numbers]:
        """Return the segments of some (kernel depth, part): the place of each, and what it has.

        That is depths of both sides, an image, and the pixels, by number.
        """
        rows, place = self._reduced(parts)
        run, within = spread(rows[:, 3] * rows[:, 5])
        own = rows[run]
        image, at = np.divmod(within, own[:, 5])
        pixels = np.unique(np.array(self.runs), axis=0, return_inverse=True)[1].reshape(-1)
        return place[run], np.stack([own[:, 0], own[:, 1], own[:, 2] + image, pixels[own[:, 4] + at]])

    @cached_property
    def _told_rows(self) -> tuple[Numbers, Numbers]:
        """Of each row tile the number of the rows that a left tile has, and that of the sizes that follow."""
        return np.arange(len(self.row_tiles)), np.array([rows for _, rows in self.row_tiles])

    @cached_property
    def _told_columns(self) -> tuple[Numbers, Numbers]:
        """The number of each column block's box, and that of the sizes that follow from the box."""
        blocks = self.column_blocks
        sizes = alike([(block.box[1:], block.first_group, block.groups) for block in blocks])
        return np.array(alike([block.box for block in blocks])), np.array(sizes)


def numbered_as_met(keys: Numbers) -> Numbers:
    """Return the number of each key, where keys take the next number as they are met first."""
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    number = np.empty(len(first), np.int64)
    number[np.argsort(first)] = np.arange(len(first))
    return number[inverse.reshape(-1)]


class WgradTiles(BlockTiles):
    """The axes of the tiles of a wgrad, cut as `WgradTasks` says, and their tables.

    Axes     rows, columns: of base blocks; lefts, rights: pixels of tiles in L1; slices: pixels of products,
             range after range
    Tables   runs: of a reduction, by number of (kernel depth, part); small_of, big_of: depths of a run;
             left_of, right_of, slices_of: tiles and slices of a range; depth_of: how many pixels a slice has

    Lists of numbers identify the taps of the big side in a tile in L1, and the columns of a base block: here
    a box and a block of columns, one number each; others in a nest that takes taps apart.
    """

    def __init__(self, nest: Nest, cut: WgradTasks) -> None:
        self.cut, self.gemm, self.sliding, self.profile = cut, cut.gemm, cut.gemm.sliding, cut.profile
        pixels = cut.pixels
        self.row_tiles, self.blocks = cut.row_tiles, cut.column_blocks
        self.left_rows = self.row_tiles  # of a tile in L1: here those of a base block
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
        # Parts of an image in tiles; tiles with equal parts share one slice in GM.
        pixels = np.stack([self.cut.pixels.image_pixels(box) for box in shapes.values()], 1)
        windows = np.stack([self.cut.pixels.windows(box) for box in shapes.values()], 1)
        self.count_of, self.counts = distinct(nest, pixels, "image pixels of")
        self.window_of, _ = distinct(nest, windows, "window of")

    def strip_of(self, row: Number) -> Number:
        """Return the number that identifies a tile's rows of the small side: those of one base block."""
        return row

    def sees(self, column: Number) -> list[Number]:
        """Return the numbers that identify the box of taps of a tile."""
        return [self.box_of[column]]

    def sizes_of(self, right: Number, box: Number) -> list[Number]:
        """Return the numbers that decide the size of a tile's part of an image."""
        return [self.count_of[right, self.shape_of[box]]]

    def slice_of(self, right: Number, box: Number) -> list[Number]:
        """Return the numbers that identify a tile's part of an image."""
        return [self.channels_of[box], self.window_of[right, self.shape_of[box]]]

    def seen(self, *told: int) -> tuple[Taps, int, int]:
        """Return the box of taps of a tile, its pixels of the image, and the runs of bytes that these are."""
        box, count = told
        return self.boxes[box], self.counts[count], 1

    def block(self, *reads: int) -> Columns:
        """Return the columns of a base block."""
        return self.blocks[reads[0]]

    # ---- instructions

    def copy_small(
        self, slot: Slot, group: int, image: int, depth: int, rows_of: int, left: int
    ) -> CopyGmToL1:
        """Bring into L1 pixels of the small side, all channels of a left tile's rows."""
        (first, rows), (_, pixels), s = self.left_rows[rows_of], self.left_runs[left], self.sliding
        channels = slice(first // s.c0, (first + rows) // s.c0)
        index = group, image, depth, channels, *self.cut.left_place(self.left_runs[left])
        size, shape = rows * pixels * s.itemsize, (rows // s.c0, pixels, s.c0)
        return CopyGmToL1(slot, Gm(self.gemm.small, index), size, shape)

    def clear(self, slot: Slot, right: int, *told: int) -> FillL1 | None:
        """Clear a tile that lies in the padding as a whole."""
        (box, pixels, _), s = self.seen(*told), self.sliding
        if pixels:
            return None
        # The tile still has room for a pixel.
        shape = self.cut.tile(self.right_runs[right], box).window.tile_shape
        return FillL1(slot, box.channels * s.c0 * s.itemsize, shape, s.itemsize)

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

    def mmad(self, c: Slot, a: Slot, b: Slot, begun: int, row: int, column: int, depth: int) -> Mmad:
        """Add the product over one slice of the reduction."""
        sizes = self.heights[row], self.depths[depth], self.widths[column]
        return Mmad(c, a, b, *sizes, self.gemm.compute_dtype, not begun)

    def output(self, *place: int) -> Index:
        """Return the slice of the output for a range, first and count, of the columns of a base block."""
        *outer, row, column, first, count = place
        (top, rows), begin = self.row_tiles[row], self.blocks[column].first_column + first
        return *outer, slice(top, top + rows), slice(begin, begin + count)


def distinct(nest: Nest, values: Numbers, name: str) -> tuple[Table, list[int]]:
    """Return a table of what values are by number, each a class of costs of its own, and these values."""
    found, of = np.unique(values, return_inverse=True)
    return nest.table(of.reshape(values.shape), Axis(len(found), range(len(found))), name), found.tolist()
