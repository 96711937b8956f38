"""The base blocks of a grad_input by rows of taps, or by single taps, and which of them read anything."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import chain, count, product

from ascendsim.errors import ConfigError
from ascendsim.frozen import cached_property
from ascendsim.ops.problems.sliding import ImageTile
from ascendsim.ops.problems.taps import Segment, Taps, cut_taps
from ascendsim.ops.schedules.dgrad.pieces import Task
from ascendsim.ops.schedules.dgrad.shares import ShareTasks


@dataclass(frozen=True)
class PassTasks(ShareTasks):
    """The cut of a dgrad whose tiles in L1 never serve more taps than a pass takes."""

    def __post_init__(self) -> None:
        """Refuse a tiling that no program can follow."""
        if not (self.tiling.tap_loop and self.gemm.backwards):
            raise ConfigError(
                f"tiling of grad_input: tap_loop is {self.tiling.tap_loop!r}; dgrad_passes takes kh or khkw, "
                "of a convolution that is not transposed; or take dgrad_shares"
            )
        super().__post_init__()

    @property
    def passes(self) -> list[Taps]:
        """The taps of each pass, in the order of the reduction."""
        whole = self.gemm.all_taps
        rows = [whole._replace(row=row, rows=1) for row in range(whole.rows)]
        if self.tiling.tap_loop == "kh":
            return rows
        return [row._replace(col=col, cols=1) for row, col in product(rows, range(whole.cols))]

    @cached_property
    def _boxes(self) -> list[tuple[tuple[Taps, ...], tuple[Taps, ...]]]:
        """The boxes of left and of right tiles in L1 by part: pass after pass."""
        c0, t = self.gemm.sliding.c0, self.tiling
        left, right = t.step_ka * t.base_k, t.step_kb * t.base_k
        found = []
        for channel, channels in self.part_channels:
            own = [taps._replace(channel=channel, channels=channels) for taps in self.passes]
            boxes = [(cut_taps(taps, left, c0), cut_taps(taps, right, c0)) for taps in own]
            lefts, rights = (tuple(chain.from_iterable(side)) for side in zip(*boxes, strict=True))
            found.append((lefts, rights))
        return found

    @cached_property
    def in_row(self) -> bool:
        """Whether pixel tiles must stay inside one row: under one tap a row alone tells what is read."""
        return self.tiling.tap_loop == "khkw" or super().in_row

    def number_of(self, tile: ImageTile) -> int:
        """Return the number of the shape of an image tile."""
        return self._numbers[tile]

    @cached_property
    def _numbers(self) -> dict[ImageTile, int]:
        return defaultdict(count().__next__)

    def met(self, task: Task, part: tuple[Segment, ...]) -> list[Segment]:
        """Return the runs of a part of the reduction whose passes read any pixel of grad_output."""
        passes = self._met[task.first_pixel, task.pixels]
        return [own for own in part if self._pass_of(own.left) in passes]

    @cached_property
    def _met(self) -> dict[tuple[int, int], frozenset[tuple[int, int]]]:
        """The passes that read any pixel, for each pixel range."""
        tile, passes = self.gemm.sliding.tile, self.passes
        return {
            run: frozenset(self._pass_of(taps) for taps in passes if tile(*run, taps).rows is not None)
            for run in self.pixel_tiles
        }

    def _pass_of(self, box: Taps) -> tuple[int, int]:
        """Return the row, and the column if there is one, of the pass of which a box is a part."""
        return box.row, box.col if self.tiling.tap_loop == "khkw" else 0
