"""How a wgrad is cut: its rows and columns into base blocks, its reduction over the pixels of all images."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, ClassVar

from ascendsim.cube.load3d import FRACTAL_ROWS
from ascendsim.cube.tile_reads import round_up
from ascendsim.errors import ConfigError
from ascendsim.frozen import cached_property
from ascendsim.ops.plan import Tiling
from ascendsim.ops.plan_checks import require_whole_units
from ascendsim.ops.problems.sliding import ImageTile, Sliding
from ascendsim.ops.problems.taps import Taps
from ascendsim.ops.problems.wgrad import WgradGemm
from ascendsim.ops.schedules.ranges import TaskRange
from ascendsim.ops.schedules.wgrad.columns import Columns, column_blocks
from ascendsim.ops.schedules.wgrad.parts import grid_parts, ranges_by_rows
from ascendsim.ops.schedules.wgrad.pieces import PixelRange, segment_of
from ascendsim.profile import Profile

if TYPE_CHECKING:
    from ascendsim.ops.problems.strips import Strips

# The fields of a box of taps behind its first channel.
BoxShape = tuple[int, ...]


@dataclass(frozen=True)
class WgradCut:
    """The sides of a wgrad under one tiling on one product, the parts of its reduction, its tiles in L1.

    Raises   ConfigError if the tiling cuts through a group of C0 channels or a fractal of pixels, or if the
             two operands are cut differently: their tiles in L1 hold the same pixels
    """

    gemm: WgradGemm
    tiling: Tiling
    profile: Profile

    # Whether a tile of each operand serves the same pixels.
    one_length: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse a tiling that no program can follow."""
        c0, t = self.gemm.sliding.c0, self.tiling
        units = {"base_m": c0, "base_n": c0, "base_k": FRACTAL_ROWS}
        # Tasks of more rows than there are cut nothing.
        if t.single_core_m < self.gemm.rows:
            units["single_core_m"] = c0
        require_whole_units("grad_weight", t, units, self.profile)
        if self.one_length and t.step_ka != t.step_kb:
            raise ConfigError(
                f"tiling of grad_weight: step_ka is {t.step_ka} and step_kb is {t.step_kb}; they must "
                "be equal, as one tile of each operand serves the same pixels"
            )

    @cached_property
    def l1_budget(self) -> int:
        """Bytes of L1 for one tile of the right operand."""
        # The left operand has no choice, it is rows x pixels; the image tile gets what that leaves. No run is
        # longer than an image.
        return self.beside(min(self.tiling.step_ka * self.tiling.base_k, self.gemm.sliding.pixels))

    def beside(self, pixels: int) -> int:
        """Return the bytes of L1 for one tile of the right operand, beside left ones of so many pixels."""
        t, s = self.tiling, self.gemm.sliding
        rows = round_up(min(t.base_m, self.gemm.rows), self.profile.cube.m0)
        left = t.al1_buffers * rows * pixels * s.itemsize
        return (self.profile.buffers["L1"].capacity_bytes - left) // t.bl1_buffers

    @property
    def splits(self) -> int:
        """Parts of the reduction."""
        return len(self.grid_parts) if self.by_grid else self.tiling.k_split

    @property
    def by_grid(self) -> bool:
        """Whether parts of the reduction are cells of the tiling's grid."""
        return self.tiling.has_grid

    def left_run(self, run: PixelRange) -> PixelRange:
        """Return the pixels of the left tile in L1 that serves a run of the reduction."""
        return run

    def left_place(self, run: PixelRange) -> tuple[slice, ...]:
        """Return where the pixels of a left tile lie in an image of the small side."""
        return (slice(run.first_pixel, run.first_pixel + run.pixels),)

    def right_run(self, run: PixelRange) -> PixelRange:
        """Return the pixels of the right tile in L1 that serves a run of the reduction."""
        return run

    def within(self, run: PixelRange) -> tuple[int, ...]:
        """Return the pixels of a run and of the tiles that serve it, and where the run begins in these."""
        left, right = self.left_run(run), self.right_run(run)
        first = run.first_pixel
        return run.pixels, left.pixels, first - left.first_pixel, first - right.first_pixel

    @property
    def right_ranges(self) -> list[tuple[int, int]]:
        """The pixels of each right tile in one image."""
        return self.ranges_of_image

    @cached_property
    def ranges_of_image(self) -> list[tuple[int, int]]:
        """The pixels of each range in one image."""
        return [run for runs in self._ranges_by_rows for run in runs]

    @cached_property
    def _ranges_by_rows(self) -> list[list[tuple[int, int]]]:
        """The same for each part of the rows; without a grid they are one part."""
        return ranges_by_rows(self.gemm, self.tiling, self.l1_budget)

    @cached_property
    def grid_parts(self) -> list[tuple[range, range]]:
        """The images, and the ranges of each of them by number, of every part of the reduction of a grid."""
        return grid_parts(self.gemm.batch, self.tiling.batch_dim, self._ranges_by_rows)

    @cached_property
    def _reductions(self) -> list[TaskRange]:
        """The segments of the whole reduction for each kernel depth: pairs of depths, images, ranges."""
        return [
            TaskRange(pairs, self.gemm.batch, self.ranges_of_image, segment_of) for pairs in self.gemm.depths
        ]

    def part(self, depth: int, part: int) -> TaskRange:
        """Return the segments of one part of the reduction.

        Parts of one kernel depth that have one pattern differ by their images alone.
        """
        if self.by_grid:
            images, ranges = self.grid_parts[part]
            runs = self.ranges_of_image[ranges.start : ranges.stop]
            whole_part = self.gemm.depths[depth], len(images), runs, segment_of
            return TaskRange(*whole_part, first_image=images.start, mark=ranges)
        # Where there are fewer segments than parts, some parts get none.
        whole, split = self._reductions[depth], self.splits
        made: TaskRange = whole[len(whole) * part // split : len(whole) * (part + 1) // split]
        return made

    @property
    def has_gaps(self) -> bool:
        """Whether some part of some kernel depth reduces nothing, so that no tile is written there."""
        if self.by_grid:
            return not all(self.gemm.depths)
        # Counted and not listed: a call that is only lowered may have thousands of millions of images.
        count = self.gemm.batch * len(self.ranges_of_image)
        return any(len(pairs) * count < self.splits for pairs in self.gemm.depths)

    @cached_property
    def column_blocks(self) -> list[Columns]:
        """Column blocks at one kernel depth."""
        return column_blocks(self.gemm, self.tiling, self.l1_budget)

    @property
    def _geometry(self) -> Sliding | Strips:
        """What tells the image tile of a run of pixels."""
        return self.gemm.sliding

    @cached_property
    def _tiles(self) -> dict[tuple[int, int, BoxShape], ImageTile]:
        """Image tile for each (pixel range, box); a box further on in the channels has an equal one."""
        boxes = {columns.box[1:]: columns.box._replace(channel=0) for columns in self.column_blocks}
        tile = self._geometry.tile
        return {(*run, shape): tile(*run, box) for run in self.right_ranges for shape, box in boxes.items()}

    def tile(self, run: PixelRange, box: Taps) -> ImageTile:
        """Return the image tile of a range under a box of taps; its shape does not depend on the channel."""
        return self._tiles[*self.right_run(run)[1:], box[1:]]

    def tile_shape(self, run: PixelRange, box: Taps) -> int:
        """Return the number of the shape of an image tile; equal ones differ in their place in the image."""
        return self._tile_shapes[*self.right_run(run)[1:], box[1:]]

    @cached_property
    def _tile_shapes(self) -> dict[tuple[int, int, BoxShape], int]:
        numbers: dict[Hashable, int] = defaultdict(count().__next__)
        return {
            key: numbers[tile._replace(rows=None, cols=None), key[1]] for key, tile in self._tiles.items()
        }
