"""The base blocks of a dgrad, and what decides the cost of those of a core.

One task is a base block of pixels x channels of one image. Its reduction goes through (kernel depth, channel
group, tap, c0): the left operand is im2col of the source image (load3d), the right one the weights. Tasks go
to cores in contiguous ranges; tiles that the next task needs again stay in L1.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from ascendsim.cube.loads import round_up, row_spans
from ascendsim.errors import ConfigError
from ascendsim.frozen import cached_property
from ascendsim.ops.plan import Tiling, chunks, require_whole_units, shares
from ascendsim.ops.problems.products import DgradGemm
from ascendsim.ops.problems.sliding import ImageTile, Segment, Taps, cut_taps, even_slices, segments_of
from ascendsim.ops.schedules.blocks import ACCUMULATOR_BYTES, Sizes
from ascendsim.ops.schedules.dgrad.even import EvenCut, require_even
from ascendsim.ops.schedules.ranges import Cells, Rotation, TaskRange, cut, enumerated, numbers_within
from ascendsim.ops.schedules.zero_insertion import LEAST_BYTES
from ascendsim.profile import Profile
from ascendsim.program.walk import alike

if TYPE_CHECKING:
    from ascendsim.ops.schedules.ranges import Rows


class Task(NamedTuple):
    """One base block; of a kernel that the stride splits, of one phase, in which its pixels are counted."""

    group: int
    image: int
    depth: int
    first_pixel: int
    pixels: int
    first_column: int
    columns: int
    phase: int = 0


# Depth, first pixel, pixels, first column and columns of a base block of an image.
Block = tuple[int, int, int, int, int]


def task_of(group: int, image: int, block: Block) -> Task:
    """Return a base block of an image."""
    return Task(group, image, *block)


@dataclass(frozen=True)
class DgradTasks:
    """The base blocks of a dgrad under one tiling on one product, and the tiles in L1 that they need.

    Raises   ConfigError if there are more parts than channel groups, or if the tiling cuts through a group
    """

    gemm: DgradGemm
    tiling: Tiling
    profile: Profile

    # Whether the loops are those of the operators' kernels for 3-D: what follows from it is said there.
    operator: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Refuse a tiling that no program can follow."""
        c0 = self.gemm.sliding.c0
        # Both end where groups of channels end. base_m need not: load3d takes any number of pixels.
        units = {"base_n": self.gemm.out_c0, "base_k": c0}
        # Tasks of more columns than there are cut nothing.
        if self.tiling.single_core_n < self.gemm.columns:
            units["single_core_n"] = self.gemm.out_c0
        require_whole_units("grad_input", self.tiling, units, self.profile)
        if self.tiling.k_split > self.gemm.channel_groups:
            raise ConfigError(
                f"tiling of grad_input: k_split is {self.tiling.k_split}, but the reduction has "
                f"{self.gemm.channel_groups} groups of {c0} channels; take no more parts"
            )
        require_even(self.tiling, self.gemm)

    @property
    def loads_ahead(self) -> bool:
        """Whether the next tiles of a reduction are called for before those at hand are read."""
        return self.operator and self.profile.generation.loads_ahead

    @property
    def counted(self) -> bool:
        """Whether tiles have counted places in L1 (`CountedPlaces`); else they go in turn."""
        return self.operator and not self.loads_ahead

    @property
    def pixel_numbers(self) -> list[int]:
        """The number of each pixel tile in its task."""
        return numbers_within(enumerated(self.pixel_tiles), self.tiling.block_m)

    @property
    def column_numbers(self) -> list[int]:
        """The number of each column tile in its task."""
        return numbers_within(enumerated(self.column_tiles), self.tiling.block_n)

    @cached_property
    def in_row(self) -> bool:
        """Whether pixel tiles must stay inside one row, because whole rows do not fit in L1."""
        # Even parts of all pixels end anywhere, so their tiles cross rows.
        if self.tiling.pixel_dim:
            return False
        # A tile that crosses rows needs whole rows of the image, one inside a row only its own columns.
        whole = self.gemm.sliding.tile_bytes(self.tiling.base_m, self.left_boxes[0], in_row=False)
        right = self.tiling.bl1_buffers * self._right_bytes(min(self.tiling.base_n, self.gemm.columns))
        return self.tiling.al1_buffers * whole + right > self.profile.buffers["L1"].capacity_bytes

    @cached_property
    def _boxes(self) -> list[tuple[tuple[Taps, ...], tuple[Taps, ...]]]:
        """The boxes of left and of right tiles in L1, for each part of the reduction, longest parts first."""
        whole, t, c0 = self.gemm.all_taps, self.tiling, self.gemm.sliding.c0
        # Parts are cut between channel groups, so that all taps of a group are in one image tile.
        parts = [whole._replace(channel=first, channels=count) for first, count in self.part_channels]
        left, right = t.step_ka * t.base_k, t.step_kb * t.base_k
        return [(cut_taps(part, left, c0), cut_taps(part, right, c0)) for part in parts]

    @property
    def slices_of(self) -> Callable[[int, int], list[tuple[int, int]]]:
        """What cuts a run of the reduction into slices, each for one Mmad."""
        return even_slices

    @property
    def part_channels(self) -> list[tuple[int, int]]:
        """First channel group of each part of the reduction, and how many it has."""
        parts = shares(self.gemm.channel_groups, self.tiling.k_split)
        return [(part.start, len(part)) for part in parts]

    @cached_property
    def left_boxes(self) -> tuple[Taps, ...]:
        """The part of the reduction that each left tile in L1 holds; the first is the largest."""
        return tuple(box for boxes, _ in self._boxes for box in boxes)

    @cached_property
    def right_boxes(self) -> tuple[Taps, ...]:
        """The part of the reduction that each right tile in L1 holds; the first is the largest."""
        return tuple(box for _, boxes in self._boxes for box in boxes)

    @cached_property
    def parts(self) -> tuple[tuple[Segment, ...], ...]:
        """Each part of the reduction at one kernel depth."""
        most = max(1, self.tiling.base_k // self.gemm.sliding.c0)
        return tuple(segments_of(left, right, most, self.slices_of) for left, right in self._boxes)

    def _right_bytes(self, columns: int) -> int:
        """Return the bytes of the largest right tile in L1 with so many columns."""
        s = self.gemm.sliding
        columns = round_up(columns, self.profile.cube.n0)
        return max(box.groups for box in self.right_boxes) * s.c0 * columns * s.itemsize

    @cached_property
    def left_bytes(self) -> dict[tuple[int, int], int]:
        """The bytes of the largest left tile in L1 for each pixel range."""
        boxes, tiles = self._left_shapes.values(), self.left_tiles
        return {own: max([tiles[*own, box].l1_bytes for box in boxes]) for own in self.pixel_tiles}

    @cached_property
    def pixel_tiles(self) -> list[tuple[int, int]]:
        """Pixel ranges of one image; where images are cut differently, of all of them."""
        if self._even:
            return self._even.pixel_tiles()
        return self.gemm.sliding.pixel_tiles(self.tiling.base_m, in_row=self.in_row)

    @cached_property
    def column_tiles(self) -> list[tuple[int, int]]:
        """Column ranges."""
        return cut(self.gemm.columns, self.tiling.base_n)

    @cached_property
    def _even(self) -> EvenCut | None:
        return EvenCut(self.gemm, self.tiling, task_of) if self.tiling.pixel_dim else None

    @cached_property
    def left_tiles(self) -> dict[tuple[int, int, Taps], ImageTile]:
        """Image tile for each (pixel range, box); a box further on in the channels has an equal one."""
        tile, shapes = self.gemm.sliding.tile, [(box, box[1:]) for box in self.left_boxes]
        found: dict[tuple[int, int, Taps], ImageTile] = {}
        for run in self.pixel_tiles:
            made = {shape: tile(*run, box) for shape, box in self._left_shapes.items()}
            found |= {(*run, box): made[shape] for box, shape in shapes}
        return found

    @cached_property
    def windows(self) -> list[Hashable]:
        """Which rows and columns of the image left tiles hold: by pixel range, and by shape of the box."""
        boxes = [*self._left_shapes.values()]
        tiles = [self.left_tiles[*run, box] for run in self.pixel_tiles for box in boxes]
        return [
            own.rows and own.cols and (own.rows.start, own.rows.stop, own.cols.start, own.cols.stop)
            for own in tiles
        ]

    @cached_property
    def _left_shapes(self) -> dict[Hashable, Taps]:
        """One left box of those that differ in their first channel alone, by the other fields."""
        return {box[1:]: box for box in self.left_boxes}

    @cached_property
    def kernel_slices(self) -> dict[Taps, tuple[slice, slice, slice]]:
        """The channels, rows and columns of the kernel that each right tile holds."""
        backwards, kernel = self.gemm.backwards, self.gemm.sliding.kernel
        return {
            box: (
                slice(box.channel, box.channel + box.channels),
                _kernel_slice(box.row, box.rows, kernel[0], backwards),
                _kernel_slice(box.col, box.cols, kernel[1], backwards),
            )
            for box in self.right_boxes
        }

    @cached_property
    def pixel_shapes(self) -> dict[tuple[int, int], int]:
        """Number the pixel ranges by the shape of their tiles."""
        # Where a tile lies in the image costs nothing; how much of its window is padding shows in its sizes.
        return self._numbered(lambda tile, _: tile._replace(rows=None, cols=None))

    @cached_property
    def pixel_costs(self) -> dict[tuple[int, int], int]:
        """Number the pixel ranges by what their tiles cost, which several shapes of tiles have in common."""
        return self._numbered(_cost_of)

    def _numbered(self, told: Callable[[ImageTile, int], Hashable]) -> dict[tuple[int, int], int]:
        """Return a number for each pixel range: by its pixels, and by what is told of its tiles."""
        tiles, boxes = self.left_tiles, self._left_shapes.values()
        kinds = [(run[1], *[told(tiles[*run, box], run[1]) for box in boxes]) for run in self.pixel_tiles]
        return dict(zip(self.pixel_tiles, alike(kinds), strict=True))

    def sizes(self, tasks: Sequence[Task]) -> Sizes:
        """Return what a core with these tasks reserves."""
        if isinstance(tasks, Cells | TaskRange):
            cells = tasks.ranges if isinstance(tasks, Cells) else (tasks,)
            blocks = [block for cell in cells for block in cell.different()]
            ranges = {(first, pixels) for _, first, pixels, _, _ in blocks}
            columns = max([own for _, _, _, _, own in blocks])
        else:
            ranges = {(task.first_pixel, task.pixels) for task in tasks}
            columns = max(task.columns for task in tasks)
        cube = self.profile.cube
        return Sizes(
            round_up(max(pixels for _, pixels in ranges), cube.m0),
            round_up(columns, cube.n0),
            self.tiling.base_k,
            max(map(self.left_bytes.__getitem__, ranges)),
            self._right_bytes(columns),
        )

    @cached_property
    def blocks(self) -> list[Block]:
        """The base blocks of an image, channels fastest."""
        return self._blocks_of(self.pixel_tiles, self.column_tiles)

    def _blocks_of(self, rows: Sequence[tuple[int, int]], columns: Sequence[tuple[int, int]]) -> list[Block]:
        """Return the base blocks of some pixel tiles and column tiles."""
        # Channels fastest: the next block needs the same image tile, which so stays in L1.
        depths = [depth for depth, pairs in enumerate(self.gemm.depths) if pairs]
        return [(depth, *pixels, *own) for depth in depths for pixels in rows for own in columns]

    @cached_property
    def tasks(self) -> TaskRange | Cells:
        """All base blocks that anything contributes to: groups, images, blocks of an image."""
        if self._even:
            return self.together(self.cells)
        return TaskRange(range(self.gemm.groups), self.gemm.batch, self.blocks, task_of)

    @property
    def cells(self) -> Sequence[TaskRange | Cells]:
        """The cells of the grid: of images, then of column blocks, then of pixel tiles the fastest."""
        t = self.tiling
        if self._even:
            parts = chunks(len(self.column_tiles), t.n_dim)
            return self._even.cells([[self.column_tiles[at] for at in part] for part in parts])
        found = []
        for images in chunks(self.gemm.batch, t.batch_dim):
            for part in chunks(len(self.column_tiles), t.n_dim):
                for tiles in chunks(len(self.pixel_tiles), t.m_dim):
                    own = self._blocks_of(
                        self.pixel_tiles[tiles.start : tiles.stop], self.column_tiles[part.start : part.stop]
                    )
                    whole = range(self.gemm.groups), len(images), own, task_of
                    found.append(TaskRange(*whole, first_image=images.start))
        return [cell for cell in found if len(cell)]

    def rows(self, tasks: Sequence[Task]) -> Rows:
        """Return a row for each task: group, image, depth, the numbers of its pixel tile and column tile."""
        if isinstance(tasks, Cells):
            return np.concatenate([self.rows(cell) for cell in tasks.ranges])
        if isinstance(tasks, TaskRange):
            whole = tasks.blocks is self.blocks
            return tasks.rows(self._block_rows if whole else self._rows_of(tasks.blocks))
        if isinstance(tasks, Rotation):
            return tasks.rows(self.rows, 1)
        pixels, columns = self._numbers
        told = [(own[0], own[1], own[2], pixels[own[3:5]], columns[own[5:7]]) for own in tasks]
        return np.array(told, np.int64).reshape(-1, 5)

    def _rows_of(self, blocks: Sequence[Block]) -> Rows:
        pixels, columns = self._numbers
        return np.array([(own[0], pixels[own[1:3]], columns[own[3:]]) for own in blocks], np.int64).reshape(
            -1, 3
        )

    @cached_property
    def _block_rows(self) -> Rows:
        return self._rows_of(self.blocks)

    @cached_property
    def _numbers(self) -> tuple[dict[tuple[int, int], int], dict[tuple[int, int], int]]:
        """The numbers of pixel tiles and of column tiles."""
        return (
            {run: at for at, run in enumerate(self.pixel_tiles)},
            {wide: at for at, wide in enumerate(self.column_tiles)},
        )

    @staticmethod
    def together(cells: Sequence[TaskRange | Cells]) -> Cells:
        """Return the tasks of several cells."""
        return Cells([own for cell in cells for own in (cell.ranges if isinstance(cell, Cells) else (cell,))])

    def signature(self, tasks: Sequence[Task]) -> Hashable:
        """Describe what decides the cost of a core's program: tile shapes, and which tiles are met again.

        Tiles are numbered by what they hold, as the rings in L1 know them, so that two cores that load the
        same pattern of tiles are told from two that only do as many.
        """
        if isinstance(tasks, Cells):
            # The images of a cell are alike, so one of each tells all but how many there are.
            kinds = [task for cell in tasks.ranges for task in cell.of_first_image()]
            return tuple(len(cell) for cell in tasks.ranges), self._spelled(kinds)
        if isinstance(tasks, TaskRange) and len(self.gemm.depths) == self.gemm.groups == 1:
            # Contiguous blocks share an image tile until their columns begin anew, and meet weights again
            # from then on: where that is tells all.
            columns = len(self.column_tiles)
            column = tasks.begin % columns
            return tasks.spelled(self._symbols), column if column + len(tasks) > columns else -1
        return self._spelled(tasks)

    def _spelled(self, tasks: Sequence[Task]) -> Hashable:
        """Return the shapes of tasks and the numbers of their tiles, in the order in which they are met."""
        lefts: dict[Hashable, int] = defaultdict(count().__next__)
        rights: dict[Hashable, int] = defaultdict(count().__next__)
        shapes, depths, spelled = self.pixel_shapes, self.gemm.depths, []
        for group, image, depth, first, pixels, column, columns, _ in tasks:
            tiles = [
                (lefts[group, image, source, first], rights[group, kernel, column])
                for kernel, source in depths[depth]
            ]
            spelled.append((shapes[first, pixels], columns, tuple(tiles)))
        return tuple(spelled)

    @cached_property
    def _symbols(self) -> list[int]:
        """Number the blocks of an image by the shapes of their tiles."""
        shapes = self.pixel_shapes
        return alike([(shapes[first, pixels], columns) for _, first, pixels, _, columns in self.blocks])


def _cost_of(tile: ImageTile, pixels: int) -> Hashable:
    """Return all that the cost of a tile of so many pixels depends on: to load it, and to read it."""
    # Gaps between pixels are cleared, and filled piece by piece; so all of such a tile counts.
    if tile.clear:
        return tile._replace(rows=None, cols=None)
    return tile.gm_bytes, tile.window.stride, spans_of(tile, pixels)


def spans_of(tile: ImageTile, pixels: int) -> frozenset[tuple[int, int]]:
    """Return how many fractals of so many pixels of a tile span how many rows; reading it depends on that."""
    width = tile.window.out_width
    return _spans(tile.first_pixel % width, pixels, width)


# Blocks begin at few places of a row, and each asks for every one of its tiles.
@lru_cache(maxsize=4096)
def _spans(offset: int, pixels: int, width: int) -> frozenset[tuple[int, int]]:
    return frozenset(row_spans(offset, pixels, width).items())


def _kernel_slice(first: int, taps: int, extent: int, backwards: bool) -> slice:
    """Return where a range of taps, counted in the order of the reduction, lies in the kernel."""
    start = extent - first - taps if backwards else first
    return slice(start, start + taps)


def inserts_in_ub(gemm: DgradGemm, profile: Profile) -> bool:
    """Tell whether zeros come between pixels in UB: unified cores have no strided copy into L1."""
    return profile.core_structure == "unified" and gemm.sliding.insert != (1, 1)


def taken_bytes(gemm: DgradGemm, profile: Profile) -> int:
    """Return the least bytes of UB that the way into L1 takes."""
    return LEAST_BYTES if inserts_in_ub(gemm, profile) else 0


def most_rows(gemm: DgradGemm, profile: Profile) -> int:
    """Return the most rows of a tile that leaves through UB in two pieces of one channel group."""
    left = profile.buffers["UB"].capacity_bytes - taken_bytes(gemm, profile)
    # In float32, in which parts of a reduction leave.
    return left // 2 // (gemm.sliding.c0 * ACCUMULATOR_BYTES)
