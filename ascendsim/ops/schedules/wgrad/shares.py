"""The loop nests of grad_weight whose tasks are shares of all three sides, as the products deal them.

In a 2-D grad_weight of the 910B parts are whole fractals, and a tile serves several blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, ClassVar, TypeVar

import numpy as np

from ascendsim.errors import CapacityError, ConfigError
from ascendsim.frozen import cached_property
from ascendsim.instructions.cube import FRACTAL_ROWS, Transposed
from ascendsim.instructions.movers import LoadL0A
from ascendsim.ops.plan import GRID, chunks
from ascendsim.ops.problems.orders import WgradOrder
from ascendsim.ops.problems.products import WgradGemm
from ascendsim.ops.schedules.base import TILES
from ascendsim.ops.schedules.blocks import TileSizes
from ascendsim.ops.schedules.ranges import (
    Ranges,
    chunks_of,
    cut,
    cut_within,
    deal,
    numbered,
    numbers_within,
    parts_of,
    tasks_of,
)
from ascendsim.ops.schedules.wgrad.cut import Columns, Reduced, column_blocks, range_in_row, whole_taps
from ascendsim.ops.schedules.wgrad.nest import Wgrad, WgradNest
from ascendsim.ops.schedules.wgrad.tasks import WgradTasks, WgradTiles
from ascendsim.program.nest import Nest
from ascendsim.program.places import Slot
from ascendsim.program.walk import Axis, Number, alike

if TYPE_CHECKING:
    from ascendsim.ops.schedules.ranges import Numbers, Tasks


@dataclass(frozen=True)
class PixelShares(WgradTasks):
    """The cut of a wgrad whose reduction is dealt in shares of so many pixels of an image."""

    one_length: ClassVar[bool] = False
    # What says how long a share is.
    cut_by: ClassVar[str] = "single_core_k"

    def __post_init__(self) -> None:
        """Refuse a tiling that no program can follow."""
        super().__post_init__()
        t = self.tiling
        if max(t.step_ka, t.step_kb) % min(t.step_ka, t.step_kb):
            raise ConfigError(
                f"tiling of grad_weight: step_ka is {t.step_ka} and step_kb is {t.step_kb}; one must divide "
                "the other, so that a tile of one operand serves whole tiles of the other"
            )
        if range_in_row(self.gemm, t, self.l1_budget):
            raise ConfigError(
                "tiling of grad_weight: whole rows of the image do not fit in L1, so that its pixels cannot "
                f"be cut by {self.cut_by}; make base_n or step_kb smaller"
            )

    @property
    def share(self) -> int:
        """Pixels of a share but the last."""
        pixels: int = self.gemm.sliding.pixels
        return min(self.tiling.single_core_k or pixels, pixels)

    @cached_property
    def pixel_shares(self) -> Ranges:
        """Pixel ranges of the shares of one image."""
        return cut(self.gemm.sliding.pixels, self.share)

    @cached_property
    def ranges_of_image(self) -> list[tuple[int, int]]:
        """The pixels of each range in one image: those of the shares, cut for the shorter tiles in L1."""
        t = self.tiling
        return cut_within(self.pixel_shares, min(t.step_ka, t.step_kb) * t.base_k)

    @cached_property
    def column_blocks(self) -> list[Columns]:
        """Column blocks at one kernel depth, with all taps of what they touch if L1 holds these."""
        blocks = whole_taps(self.gemm, self.tiling)
        pixels, tile_bytes = self.tiling.step_kb * self.tiling.base_k, self.gemm.sliding.tile_bytes
        # Blocks are counted as they are: where windows and blocks divide each other, they touch less than a
        # block that may begin anywhere.
        need = max(tile_bytes(pixels, block.box, in_row=False) for block in blocks)
        return blocks if need <= self.l1_budget else column_blocks(self.gemm, self.tiling, self.l1_budget)

    def left_tiles(self, runs: Numbers) -> Numbers:
        """Return the pixels of the left tiles in L1 that serve some runs."""
        return self._tiles_of(runs, self.tiling.step_ka)

    def right_tiles(self, runs: Numbers) -> Numbers:
        """Return the pixels of the right tiles in L1 that serve some runs."""
        return self._tiles_of(runs, self.tiling.step_kb)

    def _tiles_of(self, runs: Numbers, step: int) -> Numbers:
        """Return the tiles of so many slices, counted from where a share begins, that some runs lie in."""
        share, length = self.share, step * self.tiling.base_k
        begin = runs[:, 0] // share * share
        first = begin + (runs[:, 0] - begin) // length * length
        end = np.minimum(begin + share, self.gemm.sliding.pixels)
        return np.column_stack([first, np.minimum(length, end - first)])

    @cached_property
    def ranges_of_share(self) -> list[slice]:
        """The ranges of each share, by number."""
        step = min(self.tiling.step_ka, self.tiling.step_kb) * self.tiling.base_k
        counts = [-(-pixels // step) for _, pixels in self.pixel_shares]
        return [slice(*ends) for ends in pairwise(accumulate(counts, initial=0))]


Block = TypeVar("Block")


@dataclass(frozen=True)
class FractalTasks(PixelShares):
    """The cut of a wgrad on a grid whose parts of an image are whole fractals of 16 pixels.

    A strip is what one tile in L1 has: the rows of `step_m` base blocks, or the columns of `step_n`. Strips
    end with the cells of the grid.
    """

    cut_by: ClassVar[str] = "k_dim"

    @property
    def share(self) -> int:
        """Pixels of a part but the last."""
        fractals = chunks(-(-self.gemm.sliding.pixels // FRACTAL_ROWS), self.tiling.k_dim)
        return len(fractals[0]) * FRACTAL_ROWS

    @property
    def by_grid(self) -> bool:
        """Whether the parts are cells of a grid: always, as one cell is a grid too."""
        return True

    @cached_property
    def _ranges_by_rows(self) -> list[list[tuple[int, int]]]:
        """The ranges of each part of an image."""
        return [self.ranges_of_image[own] for own in self.ranges_of_share]

    @cached_property
    def l1_budget(self) -> int:
        """Bytes of L1 for one tile of the right operand, beside the left ones."""
        # No tile goes beyond a part, and a left one has the rows of several blocks.
        t = self.tiling
        pixels, rows = min(t.step_ka * t.base_k, self.share), max(count for _, count in self.row_strips)
        left = t.al1_buffers * rows * pixels * self.gemm.sliding.itemsize
        return (self.profile.buffers["L1"].capacity_bytes - left) // t.bl1_buffers

    @cached_property
    def column_blocks(self) -> list[Columns]:
        """Blocks at one kernel depth; those of a strip have its box of taps, which their tile serves."""
        taps, blocks = self.gemm.all_taps, whole_taps(self.gemm, self.tiling)
        made = []
        for strip in _strips(blocks, self.tiling.n_dim, self.tiling.step_n):
            first, last = strip[0].box, strip[-1].box
            box = first._replace(channels=last.channel + last.channels - first.channel)
            for block in strip:
                before = (block.box.channel - box.channel) * taps.rows * taps.cols
                made.append(block._replace(box=box, first_group=before + block.first_group))
        # Tiles are counted as they are: they need less than a tile of as many pixels that may begin anywhere.
        if max(int(self.right_bytes(box).max()) for box in {block.box for block in made}) <= self.l1_budget:
            return made
        if self.tiling.step_n > 1:
            raise CapacityError(
                f"tiling of grad_weight: L1 does not hold {self.tiling.step_n} base blocks of columns "
                f"(step_n) with {self.tiling.step_kb} slices (step_kb) beside the left tiles; make one of "
                "them smaller",
                "L1",
            )
        return column_blocks(self.gemm, self.tiling, self.l1_budget)

    @cached_property
    def row_strips(self) -> list[tuple[int, int]]:
        """The first row of each strip, and its rows."""
        strips = _strips(self.row_tiles, self.tiling.m_dim, self.tiling.step_m)
        return [(strip[0][0], sum(count for _, count in strip)) for strip in strips]

    @cached_property
    def strip_of(self) -> Numbers:
        """The number of the strip of each row tile."""
        firsts = [first for first, _ in self.row_strips]
        return np.searchsorted(firsts, [first for first, _ in self.row_tiles], side="right") - 1

    @cached_property
    def begins_rows(self) -> list[list[bool]]:
        """Whether each row tile is the first of its strip, and of its cell."""
        firsts = {first for first, _ in self.row_strips}
        cells = {cell.start for cell in chunks(len(self.row_tiles), self.tiling.m_dim)}
        of_cell = [number in cells for number in range(len(self.row_tiles))]
        return [[first in firsts for first, _ in self.row_tiles], of_cell]

    @cached_property
    def begins_column_strip(self) -> list[bool]:
        """Whether each block of columns is the first of its strip."""
        strips = _strips(self.column_blocks, self.tiling.n_dim, self.tiling.step_n)
        return [block is strip[0] for strip in strips for block in strip]

    @cached_property
    def tasks(self) -> Tasks:
        """Base blocks: a strip of columns under all strips of rows, then the next; rows fastest."""
        t, rows, columns = self.tiling, range(len(self.row_tiles)), range(len(self.column_blocks))
        tiles = [
            (column, row)
            for wide in _strips(columns, t.n_dim, t.step_n)
            for high in _strips(rows, t.m_dim, t.step_m)
            for column in wide
            for row in high
        ]
        return self.reducing_of(tasks_of("part group depth column row", *self._outer, tiles))

    def sizes(self, tasks: Tasks) -> TileSizes:
        """Return the room that a core with these tasks reserves; a left tile has the rows of its strip."""
        own = super().sizes(tasks)
        rows = max(self.row_strips[strip][1] for strip in {*self.strip_of[tasks["row"]].tolist()})
        return own._replace(left_bytes=own.left_bytes // own.m * rows)

    @cached_property
    def _told_rows(self) -> tuple[Numbers, Numbers]:
        """The number of each row tile's strip, and of the tile's kind in the strip."""
        told = [
            (count, first - self.row_strips[strip][0], self.row_strips[strip][1])
            for (first, count), strip in zip(self.row_tiles, self.strip_of.tolist(), strict=True)
        ]
        return self.strip_of, np.array(alike(told))

    @cached_property
    def _told_columns(self) -> tuple[Numbers, Numbers]:
        """The number of each column block's box, and that of the sizes that follow from the box."""
        boxes, sizes = super()._told_columns
        return boxes, np.array(alike([*zip(sizes.tolist(), self.begins_column_strip, strict=True)]))


def _strips(blocks: Sequence[Block], parts: int, step: int) -> list[Sequence[Block]]:
    """Cut the blocks of each part of a grid into strips of so many; the last of a part may have fewer."""
    return [
        blocks[first : min(first + step, cell.stop)]
        for cell in chunks(len(blocks), parts)
        for first in range(cell.start, cell.stop, step)
    ]


class FractalTiles(WgradTiles):
    """As `WgradTiles`, but a left tile has the rows of a strip."""

    cut: FractalTasks

    def see(self, nest: Nest) -> None:
        """Make the tables of what tiles have of both sides."""
        super().see(nest)
        self.left_rows = self.cut.row_strips
        axis = Axis(len(self.left_rows), [rows for _, rows in self.left_rows])
        self._strip = nest.table(self.cut.strip_of, axis, "strip of")
        # The base blocks with which a strip of columns begins for a strip of rows, and for all of them.
        columns = self.cut.begins_column_strip
        self.begins = [nest.table(np.outer(rows, columns), 2) for rows in self.cut.begins_rows]

    def strip_of(self, row: Number) -> Number:
        """Return the number that identifies the small side's rows of a tile."""
        return self._strip[row]

    def load_small(self, slot: Slot, source: Slot, row: int, at: int) -> LoadL0A:
        """Bring a slice of the small side into L0A: the rows of a base block out of those of its strip."""
        load = super().load_small(slot, source, row, at)
        before = self.row_tiles[row][0] - self.left_rows[self.cut.strip_of[row]][0]
        assert isinstance(load.tile_read, Transposed)
        return load._replace(tile_read=load.tile_read._replace(first_channel=before // self.sliding.c0))


class FractalNest(WgradNest):
    """As `WgradNest`, but of an operand with several copies nothing stays for the next strip of columns."""

    tiles: FractalTiles

    def tiles_of(self) -> FractalTiles:
        """Return the maker of the instructions on tiles."""
        return FractalTiles(self, self.cut)

    def blocks(self, group: Number, depth: Number, part: Number, row: Number, column: Number) -> None:
        """Make the base blocks of a task."""
        # The kernel goes on with the next strip as with the next image. An operand of one copy lies in L1 as
        # a whole, if anything of it is met again.
        for ring, begins in zip((self.left, self.right), self.tiles.begins, strict=True):
            if ring.count > 1:
                with self.when(begins[row, column]):
                    self.forget(ring)
        super().blocks(group, depth, part, row, column)


@dataclass(frozen=True)
class WgradFractals(Wgrad):
    """For each strip of columns, strip of rows, base block, image, run of pixels in L1, base_k: multiply.

    As `Wgrad` on a grid, but parts of an image are whole fractals of its pixels and not whole rows, and tiles
    in L1 are of two lengths and serve several base blocks. With two copies the left operand is loaded again
    for every strip of columns, slots in turn.
    """

    name: ClassVar[str] = "wgrad_fractals"
    reads: ClassVar[frozenset[str]] = TILES | {"step_m", "step_n", "group_dim", *GRID}

    @staticmethod
    def image_units(gemm: WgradGemm) -> int:
        """Return the fractals of an image."""
        return -(-gemm.sliding.pixels // FRACTAL_ROWS)

    @cached_property
    def tasks(self) -> FractalTasks:
        """The base blocks, and the cut of their reduction."""
        return FractalTasks(self.gemm, self.tiling, self.profile)

    def nest(self, sizes: TileSizes) -> FractalNest:
        """Return the loop nest of all cores that reserve so much."""
        return FractalNest(self.tasks, sizes, self.gemm.output, self.target, atomic=self.atomic)


@dataclass(frozen=True)
class WgradShareTasks(PixelShares):
    """The cut of a wgrad whose parts are shares of single_core_k pixels of one image at one small depth."""

    operator: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse a tiling that no program can follow."""
        super().__post_init__()
        t, images = self.tiling, self.gemm.batch * self.gemm.small.shape[2]
        if (t.depth_dim or t.single_core_batch) and not t.batch_dim:
            raise ConfigError(
                "tiling of grad_weight: depth_dim and single_core_batch are of a grid of cores, but "
                "batch_dim is 0; give the parts of the images and depths, 1 for all of them"
            )
        if t.single_core_batch and -(-images // t.single_core_batch) != t.batch_dim:
            raise ConfigError(
                f"tiling of grad_weight: single_core_batch is {t.single_core_batch}, so that {images} images "
                f"and depths make {-(-images // t.single_core_batch)} parts, but batch_dim is {t.batch_dim}; "
                "make them agree, or leave single_core_batch out for even parts"
            )

    @property
    def begins(self) -> Numbers:
        """Whether a task of an image begins with a range."""
        firsts = {first for first, _ in self.pixel_shares}
        return np.array([first in firsts for first, _ in self.ranges_of_image])

    @property
    def column_numbers(self) -> Numbers:
        """The number in its task of the tile in L1 of each block of columns; kernel depths begin anew."""
        if self.tiling.depth_dim:
            return super().column_numbers
        depths, width = range(len(self.gemm.depths)), self.gemm.output.shape[3]
        firsts = [[(at * width + own.first_column, own.box) for own in self.column_blocks] for at in depths]
        return np.array([numbers_within(own, self.tiling.block_n) for own in firsts])

    @property
    def by_grid(self) -> bool:
        """Shares say themselves what a part is."""
        return False

    @property
    def splits(self) -> int:
        """Parts of the reduction: shares of all images at all depths of the small side."""
        return self.gemm.batch * self.gemm.small.shape[2] * len(self.pixel_shares)

    def place(self, part: int) -> tuple[int, int, slice]:
        """Return the image, the small depth and the ranges of a part."""
        place, share = divmod(part, len(self.pixel_shares))
        return *divmod(place, self.gemm.small.shape[2]), self.ranges_of_share[share]

    def part(self, depth: int, part: int) -> list[Reduced]:
        """Return the pixels of one part of the reduction at a kernel depth; none where it meets padding."""
        image, small, ranges = self.place(part)
        big = self._bigs[depth].get(small)
        count = ranges.stop - ranges.start
        return [] if big is None else [Reduced(small, big, image, 1, ranges.start, count)]

    @cached_property
    def _bigs(self) -> list[dict[int, int]]:
        """For each kernel depth the depth of the big side that meets one of the small side."""
        return [dict(pairs) for pairs in self.gemm.depths]

    @cached_property
    def _reducing(self) -> Numbers:
        """The depth of the big side for each kernel depth and part; -1 where nothing is reduced."""
        small = self.gemm.small.shape[2]
        bigs = np.array([[own.get(depth, -1) for depth in range(small)] for own in self._bigs])
        return np.tile(np.repeat(bigs, len(self.pixel_shares), axis=1), self.gemm.batch)

    @cached_property
    def _part_shapes(self) -> Numbers:
        """Numbers of the parts by their share of the pixels, from which the tiles follow."""
        shares = np.arange(self.splits) % len(self.pixel_shares)
        return np.where(self._reducing >= 0, shares, -1)

    @cached_property
    def reductions(self) -> tuple[Numbers, Numbers]:
        """The work of each (kernel depth, part): a share of one image at one depth."""
        depth, part = np.nonzero(self._reducing >= 0)
        place, share = np.divmod(part, len(self.pixel_shares))
        image, small = np.divmod(place, self.gemm.small.shape[2])
        ranges = np.array([(own.start, own.stop - own.start) for own in self.ranges_of_share])[share]
        found = np.column_stack([small, self._reducing[depth, part], image, np.ones_like(image), ranges])
        return found, (self._reducing >= 0).reshape(-1).astype(np.int64)

    @cached_property
    def tasks(self) -> Tasks:
        """All base blocks that reduce anything: images, rows, kernel depths, columns."""
        parts, groups, depths = self._outer
        rows, columns = range(len(self.row_tiles)), range(len(self.column_blocks))
        return self.reducing_of(tasks_of("group part row depth column", groups, parts, rows, depths, columns))

    @property
    def has_gaps(self) -> bool:
        """Whether some part of some kernel depth reduces nothing, so that no tile is written there."""
        return any(len(pairs) < self.gemm.small.shape[2] for pairs in self.gemm.depths)

    @property
    def order_shares(self) -> tuple[int, ...]:
        """The number of ranges of each share."""
        return tuple(ranges.stop - ranges.start for ranges in self.ranges_of_share)


@dataclass(frozen=True)
class WgradShares(Wgrad):
    """As `Wgrad`, but dealt in tasks of single_core_m rows x single_core_n columns x single_core_k pixels.

    A task has the pixels of one image at one depth of the small side; its columns may be of several kernel
    depths. Each of its base blocks is added to the result, or kept apart, when its pixels are through. Tasks
    are numbered along their axes as `task_order` says and go to the cores as `mapping` says. With `batch_dim`
    a task has one of so many shares of all images and depths, as on a grid of cores; with `depth_dim` besides
    its columns are those of a part of the kernel depths, cut alike at each of them.
    """

    name: ClassVar[str] = "wgrad_shares"
    reads: ClassVar[frozenset[str]] = (
        Wgrad.reads - {"k_split"}
        | {"single_core_m", "single_core_n", "single_core_k", "single_core_batch", "batch_dim", "depth_dim"}
        | {"mapping", "task_order"}
    )

    @cached_property
    def tasks(self) -> WgradShareTasks:
        """The base blocks, and the cut of their reduction."""
        return WgradShareTasks(self.gemm, self.tiling, self.profile)

    @property
    def cleared_apart(self) -> bool:
        """Whether a MemSet comes before: measured calls of the 910B2 have one before each such kernel."""
        return self.needs_zeros and self.target is self.gemm.output

    def order(self) -> WgradOrder:
        """Return the runs of pixels, and which of them make a part."""
        runs, shares = tuple(self.tasks.ranges_of_image), self.tasks.order_shares
        return WgradOrder(runs, self.tiling.base_k, self.parts, tree=self.sums == "tree", shares=shares)

    @cached_property
    def units(self) -> Numbers:
        """The number of the task that each base block belongs to; one that meets padding alone is none."""
        gemm, t, cut_, tasks = self.gemm, self.tiling, self.tasks, self.tasks.tasks
        depths, kernel, width = gemm.small.shape[2], len(gemm.depths), gemm.output.shape[3]
        images, count, parts = gemm.batch * depths, len(cut_.pixel_shares), t.batch_dim
        # Parts count images, depths and shares of pixels. On a grid a task has many images, each with all of
        # its depths, added one after the other.
        place, share = np.divmod(tasks["part"], count)
        each = (t.single_core_batch or -(-images // parts)) if parts else depths
        row, rows = parts_of(cut_.row_tiles, t.block_m)
        first = np.array([block.first_column for block in cut_.column_blocks])[tasks["column"]]
        if not t.depth_dim:
            # Columns go through all kernel depths, one after the other.
            first, width = first + tasks["depth"] * width, kernel * width
        axes = {
            "group": (tasks["group"], gemm.groups),
            "batch": (place // each, -(-images // each)),
            "d": chunks_of(tasks["depth"], kernel, t.depth_dim) if parts else (place % depths, depths),
            "k": (share, count),
            "m": (row[tasks["row"]], rows),
            "n": (first // t.block_n, -(-width // t.block_n)),
        }
        number, _ = numbered("grad_weight", t.task_order, axes)
        found: Numbers = np.unique(number, return_inverse=True)[1]
        return found

    def dealt(self) -> list[Tasks]:
        """Return the base blocks of each core, task after task."""
        t, units = self.tiling, self.units
        count = int(units.max(initial=-1)) + 1
        return deal(self.tasks.tasks, units, count, t.used_cores, in_turn=t.mapping == "interleaved")
