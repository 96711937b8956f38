"""The base blocks of a dgrad, and how its reduction is cut for L1 and for Mmads.

One task is a base block of pixels x channels of one image. Its reduction walks (kernel depth, channel group,
tap, c0): the left operand is im2col of the source image (load3d), the right one the weights. Tasks go to
cores in contiguous ranges; tiles that the next task needs again stay in L1.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from ascendsim.cube.views import round_up
from ascendsim.errors import ConfigError
from ascendsim.ops.plan import Tiling, require_whole_units, shares
from ascendsim.ops.problems.dgrad import DgradGemm
from ascendsim.ops.problems.sliding import ImageTile
from ascendsim.ops.problems.taps import Segment, Taps, cut_taps, segments_of

if TYPE_CHECKING:
    from ascendsim.profile import Profile


class Task(NamedTuple):
    """One base block."""

    group: int
    image: int
    depth: int
    first_pixel: int
    pixels: int
    first_column: int
    columns: int


@dataclass(frozen=True)
class DgradTasks:
    """How a dgrad is cut under one tiling on one product: its base blocks, and what L1 holds for them.

    Raises   ConfigError if there are more parts than channel groups, or if the plan cuts through such a group
    """

    spec: DgradGemm
    tiling: Tiling
    profile: Profile

    def __post_init__(self) -> None:
        """Refuse a plan that no program can follow."""
        c0, cores = self.spec.sliding.c0, self.profile.cores.cube
        require_whole_units("grad_input", self.tiling, {"base_n": c0, "base_k": c0}, cores)
        if self.tiling.k_split > self.spec.channel_groups:
            raise ConfigError(
                f"tiling of grad_input: k_split is {self.tiling.k_split}, but the reduction has "
                f"{self.spec.channel_groups} groups of {self.spec.sliding.c0} channels; take no more parts"
            )

    @cached_property
    def in_row(self) -> bool:
        """Whether pixel tiles must stay inside one row, because whole rows do not fit in L1."""
        whole = self.spec.sliding.tile_bytes(self.tiling.base_m, self.left_boxes[0], in_row=False)
        return self.tiling.al1_buffers * whole + self._right_bytes > self.profile.buffers["L1"].capacity_bytes

    @cached_property
    def _ranges(self) -> tuple[Taps, ...]:
        """The channel groups of each part of the reduction, the longest parts first."""
        whole = self.spec.all_taps
        return tuple(
            whole._replace(channel=part.start, channels=len(part))
            for part in shares(whole.channels, self.tiling.k_split)
        )

    def _boxes(self, step: int) -> list[tuple[Taps, ...]]:
        elements = step * self.tiling.base_k
        return [cut_taps(part, elements, self.spec.sliding.c0) for part in self._ranges]

    @cached_property
    def left_boxes(self) -> tuple[Taps, ...]:
        """What each left tile in L1 holds of the reduction; the first is the largest."""
        return tuple(box for boxes in self._boxes(self.tiling.step_ka) for box in boxes)

    @cached_property
    def right_boxes(self) -> tuple[Taps, ...]:
        """What each right tile in L1 holds of the reduction; the first is the largest."""
        return tuple(box for boxes in self._boxes(self.tiling.step_kb) for box in boxes)

    @cached_property
    def parts(self) -> tuple[tuple[Segment, ...], ...]:
        """Each part of the reduction at one kernel depth."""
        most = max(1, self.tiling.base_k // self.spec.sliding.c0)
        boxes = zip(self._boxes(self.tiling.step_ka), self._boxes(self.tiling.step_kb), strict=True)
        return tuple(segments_of(left, right, most) for left, right in boxes)

    @cached_property
    def _right_bytes(self) -> int:
        t, s = self.tiling, self.spec.sliding
        columns = round_up(min(t.base_n, self.spec.columns), self.profile.cube.n0)
        return t.bl1_buffers * self.right_boxes[0].groups * s.c0 * columns * s.itemsize

    @cached_property
    def pixel_tiles(self) -> list[tuple[int, int]]:
        """Pixel ranges of one image."""
        return self.spec.sliding.pixel_tiles(self.tiling.base_m, in_row=self.in_row)

    @cached_property
    def tasks(self) -> list[Task]:
        """All base blocks that anything contributes to, channels fastest."""
        spec, t = self.spec, self.tiling
        return [
            Task(group, image, depth, first, pixels, column, min(t.base_n, spec.columns - column))
            for group in range(spec.groups)
            for image in range(spec.batch)
            for depth, pairs in enumerate(spec.depths)
            if pairs
            for first, pixels in self.pixel_tiles
            for column in range(0, spec.columns, t.base_n)
        ]

    @cached_property
    def left_tiles(self) -> dict[tuple[int, int, Taps], ImageTile]:
        """Image tile for each (pixel range, box)."""
        return {
            (first, pixels, box): self.spec.sliding.tile(first, pixels, box)
            for first, pixels in self.pixel_tiles
            for box in self.left_boxes
        }

    @cached_property
    def walked(self) -> dict[Taps, tuple[slice, slice, slice]]:
        """The channels, rows and columns of the kernel that each right tile holds."""
        backwards, kernel = self.spec.backwards, self.spec.sliding.kernel
        return {
            box: (
                slice(box.channel, box.channel + box.channels),
                _walked(box.row, box.rows, kernel[0], backwards),
                _walked(box.col, box.cols, kernel[1], backwards),
            )
            for box in self.right_boxes
        }

    def signature(self, tasks: list[Task]) -> Hashable:
        """Describe what decides the cost of a core's program: tile shapes, and which tiles are met again.

        Tiles are numbered by what they hold, as the rings in L1 know them, so that two cores that load the
        same pattern of tiles are told from two that only do as many.
        """
        numbers: dict[Hashable, int] = {}

        def number(*holds: Hashable) -> int:
            return numbers.setdefault(holds, len(numbers))

        return tuple(
            (
                self.pixel_shapes[task.first_pixel],
                task.columns,
                tuple(
                    (
                        number("left", task.group, task.image, source, task.first_pixel),
                        number("right", task.group, kernel, task.first_column),
                    )
                    for kernel, source in self.spec.depths[task.depth]
                ),
            )
            for task in tasks
        )

    @cached_property
    def pixel_shapes(self) -> dict[int, int]:
        """Number the pixel ranges by the shape of their tiles."""
        numbers: dict[Hashable, int] = {}
        shapes = {}
        for first, pixels in self.pixel_tiles:
            tiles = tuple(
                (self.left_tiles[first, pixels, box]._replace(rows=None, cols=None), pixels)
                for box in self.left_boxes
            )
            shapes[first] = numbers.setdefault(tiles, len(numbers))
        return shapes


def _walked(first: int, count: int, extent: int, backwards: bool) -> slice:
    """Return which taps a range of the walk touches."""
    start = extent - first - count if backwards else first
    return slice(start, start + count)
