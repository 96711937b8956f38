"""The base blocks of a grad_weight by single taps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass
from functools import lru_cache
from itertools import count, product
from typing import Any

from ascendsim.cube.tile_reads import round_up
from ascendsim.errors import ConfigError
from ascendsim.frozen import cached_property
from ascendsim.ops.problems.single_taps import Line, lines_of, tap_tile
from ascendsim.ops.problems.sliding import ImageTile
from ascendsim.ops.problems.taps import Taps
from ascendsim.ops.schedules.numbering import cut, cut_within
from ascendsim.ops.schedules.tiles import Sizes
from ascendsim.ops.schedules.wgrad.columns import Columns
from ascendsim.ops.schedules.wgrad.pieces import PixelRange, Task
from ascendsim.ops.schedules.wgrad.stream_tasks import StreamTasks

# Tiles that are kept: a run of pixels is asked for several times under one tap.
_KEPT = 4096


@dataclass(frozen=True)
class TapTasks(StreamTasks):
    """The cut of a wgrad whose base blocks have channels of one tap; a block of columns has all its taps."""

    def __post_init__(self) -> None:
        """Refuse a tiling that no program can follow."""
        if self.tiling.tap_loop != "khkw":
            raise ConfigError(
                f"tiling of grad_weight: tap_loop is {self.tiling.tap_loop!r}; wgrad_taps takes khkw; "
                "or take wgrad_stream"
            )
        width, window = self.gemm.output.shape[3], self._taps * self.gemm.sliding.c0
        if self.tiling.block_n < width and self.tiling.block_n % window:
            raise ConfigError(
                f"tiling of grad_weight: single_core_n is {self.tiling.block_n}; take whole windows of "
                f"{window} columns, all taps of a group of channels"
            )
        super().__post_init__()

    @property
    def _taps(self) -> int:
        """Taps of the kernel in H and W."""
        rows, cols = self.gemm.sliding.kernel
        return rows * cols

    def require_rows(self) -> None:
        """Nothing: a tile has the pixels that a tap reads, and no row of the image as a whole."""

    @cached_property
    def column_blocks(self) -> list[Columns]:
        """Column blocks at one kernel depth: some channels with all their taps."""
        whole, c0 = self.gemm.all_taps, self.gemm.sliding.c0
        # A core makes a tap of base_n channels at a time, as far as a task has so many.
        tasks = cut(whole.channels, -(-self.tiling.block_n // (self._taps * c0)))
        return [
            Columns(
                whole._replace(channel=channel, channels=own), 0, own * self._taps, channel * self._taps * c0
            )
            for channel, own in cut_within(tasks, max(1, self.tiling.base_n // c0))
        ]

    def of_taps(self, task: Task) -> list[Task]:
        """Return the base blocks of a task: each has the columns of one tap."""
        box, c0 = task.columns.box, self.gemm.sliding.c0
        return [
            task._replace(
                columns=Columns(
                    box._replace(row=row, rows=1, col=col, cols=1),
                    0,
                    box.channels,
                    task.columns.first_column + (row * box.cols + col) * c0,
                )
            )
            for row, col in product(range(box.rows), range(box.cols))
        ]

    def tile(self, run: PixelRange, box: Taps) -> ImageTile:
        """Return the image tile of a range under one tap."""
        made: ImageTile = self._made(*run[1:], box._replace(channel=0))
        return made

    @cached_property
    def _made(self) -> Any:
        strips = self.strips
        return lru_cache(_KEPT)(lambda first, pixels, box: tap_tile(strips, first, pixels, box))

    def tile_shape(self, run: PixelRange, box: Taps) -> int:
        """Return the number of the shape of an image tile."""
        return self._shapes[self.tile(run, box)._replace(rows=None, cols=None)]

    @cached_property
    def _shapes(self) -> dict[Hashable, int]:
        return defaultdict(count().__next__)

    def box_shape(self, task: Task) -> Hashable:
        """Return what of a block's box its code depends on: the shapes of its tiles, not which tap it is."""
        box = task.columns.box
        return box.channels, self._lines[task.part][0][box.row], self._lines[task.part][1][box.col]

    @cached_property
    def _lines(self) -> dict[int, tuple[list[int], list[int]]]:
        """For each part of the reduction, and each row and column of the kernel, what its runs read there."""
        rows, cols = self.gemm.sliding.kernel
        return {
            part: (
                [self._number(0, part, (row, 0)) for row in range(rows)],
                [self._number(1, part, (0, col)) for col in range(cols)],
            )
            for part in range(self.splits)
        }

    def _number(self, axis: int, part: int, tap: tuple[int, int]) -> int:
        lines: list[Line] = [lines_of(self.strips, *run, tap)[axis] for run in self._ranges_of(part)]
        return self._shapes[axis, tuple(line[:2] for line in lines)]

    @cached_property
    def _part_shapes(self) -> dict[tuple[int, int], int]:
        """Number the parts by what the runs of their segments read under every tap."""
        numbers: dict[Hashable, int] = defaultdict(count().__next__)
        found = {}
        for depth, part in self._parts:
            runs = [self._run_shape(PixelRange(0, *run)) for run in self._ranges_of(part)]
            rows, cols = self._lines[part]
            found[depth, part] = numbers[tuple(rows), tuple(cols), self.part(depth, part).spelled(runs)]
        return found

    def _run_shape(self, run: PixelRange) -> int:
        """Return the number of what a run says of its tiles but for what they read of the image."""
        strip = self.strips.strip(run.first_pixel)
        place = (run.first_pixel - strip.first) % strip.width, strip.width
        return self._shapes["run", self.within(run), place]

    def sizes(self, tasks: list[Task]) -> Sizes:
        """Return what a core with these tasks reserves: under a tap no more than all pixels of a tile."""
        gemm, cube, size = self.gemm, self.profile.cube, self.gemm.sliding.itemsize
        runs = {run for task in tasks for run in self._ranges_of(task.part)}
        pixels, held = max(own for _, own in runs), max(self.strips.rectangle(*run)[1] for run in runs)
        left = max(self.left_run(PixelRange(0, *run)).pixels for run in runs)
        channels = max(task.columns.box.channels for task in tasks) * gemm.sliding.c0
        m = round_up(max(task.rows for task in tasks), cube.m0)
        return Sizes(
            *(m, round_up(channels, cube.n0)),
            round_up(min(self.tiling.base_k, pixels), cube.rates[gemm.compute_dtype].k0),
            *(m * left * size, held * channels * size),
        )
