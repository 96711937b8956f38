"""The loop nest of a 2-D grad_weight of the 910B: parts are whole fractals, a tile serves several blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, ClassVar, TypeVar

import numpy as np

from ascendsim.errors import CapacityError, ConfigError
from ascendsim.frozen import cached_property
from ascendsim.instructions.cube import FRACTAL_ROWS, Transposed
from ascendsim.instructions.movers import CopyGmToL1, LoadL0A
from ascendsim.ops.plan import GRID, chunks
from ascendsim.ops.problems.products import WgradGemm
from ascendsim.ops.schedules.base import TILES
from ascendsim.ops.schedules.blocks import TileSizes
from ascendsim.ops.schedules.ranges import Ranges, cut, cut_within, tasks_of
from ascendsim.ops.schedules.wgrad.cut import Columns, column_blocks, range_in_row, whole_taps
from ascendsim.ops.schedules.wgrad.nest import Wgrad, WgradNest
from ascendsim.ops.schedules.wgrad.tasks import WgradTasks, WgradTiles
from ascendsim.program.nest import Nest
from ascendsim.program.places import Gm, Slot
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
        """Always; a grid of one cell is one, too."""
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
        self.strips = self.cut.row_strips
        axis = Axis(len(self.strips), [rows for _, rows in self.strips])
        self._strip = nest.table(self.cut.strip_of, axis, "strip of")
        # The base blocks with which a strip of columns begins for a strip of rows, and for all of them.
        columns = self.cut.begins_column_strip
        self.begins = [nest.table(np.outer(rows, columns), 2) for rows in self.cut.begins_rows]

    def strip_of(self, row: Number) -> Number:
        """Return the number that identifies the small side's rows of a tile."""
        return self._strip[row]

    def copy_small(self, slot: Slot, group: int, image: int, depth: int, strip: int, left: int) -> CopyGmToL1:
        """Bring into L1 pixels of the small side, all channels of a strip."""
        (first, rows), (_, pixels), s = self.strips[strip], self.left_runs[left], self.sliding
        channels = slice(first // s.c0, (first + rows) // s.c0)
        index = group, image, depth, channels, *self.cut.left_place(self.left_runs[left])
        return CopyGmToL1(
            slot, Gm(self.gemm.small, index), rows * pixels * s.itemsize, (rows // s.c0, pixels, s.c0)
        )

    def load_small(self, slot: Slot, source: Slot, row: int, at: int) -> LoadL0A:
        """Bring a slice of the small side into L0A: the rows of a base block out of those of its strip."""
        load = super().load_small(slot, source, row, at)
        before = self.row_tiles[row][0] - self.strips[self.cut.strip_of[row]][0]
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
