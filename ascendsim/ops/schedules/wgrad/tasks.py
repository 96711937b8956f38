"""The base blocks of a wgrad, and how its reduction over the pixels of all images is cut.

One task is a base block of small-side channels x (big-side channel group, tap) columns over a part of the
reduction, which walks the pixels of all images. The left operand is the small side transposed on its way to
L0A, the right one is im2col of the big side (load3d into L0B). Parts of the reduction on different cores are
added atomically in GM, or kept apart in a workspace and added in order by vector cores.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from ascendsim.cube.views import FRACTAL_ROWS, round_up
from ascendsim.errors import ConfigError
from ascendsim.ops.plan import Tiling, require_whole_units
from ascendsim.ops.problems.sliding import ImageTile
from ascendsim.ops.problems.taps import Taps
from ascendsim.ops.problems.wgrad import WgradGemm
from ascendsim.ops.schedules.wgrad.columns import Columns, column_blocks, piece_in_row

if TYPE_CHECKING:
    from ascendsim.profile import Profile


class PixelRange(NamedTuple):
    """A piece of the reduction that one pair of L1 tiles serves."""

    image: int
    first_pixel: int
    pixels: int


class Task(NamedTuple):
    """One base block over one part of the reduction."""

    group: int
    depth: int
    part: int
    first_row: int
    rows: int
    columns: Columns


@dataclass(frozen=True)
class WgradTasks:
    """How a wgrad is cut under one tiling on one product: base blocks, parts of the reduction, L1 tiles.

    Raises   ConfigError if the plan cuts through a group of C0 channels or a fractal of pixels, or if the two
             operands are cut differently: their tiles in L1 hold the same pixels
    """

    spec: WgradGemm
    tiling: Tiling
    profile: Profile

    def __post_init__(self) -> None:
        """Refuse a plan that no program can follow."""
        c0, plan = self.spec.sliding.c0, self.tiling
        units = {"base_m": c0, "base_n": c0, "base_k": FRACTAL_ROWS}
        require_whole_units("grad_weight", plan, units, self.profile.cores.cube)
        if plan.step_ka != plan.step_kb:
            raise ConfigError(
                f"tiling of grad_weight: step_ka is {plan.step_ka} and step_kb is {plan.step_kb}; they must "
                "be equal, as one tile of each operand serves the same pixels"
            )

    @cached_property
    def l1_budget(self) -> int:
        """Bytes of L1 for one tile of the right operand."""
        t, s = self.tiling, self.spec.sliding
        rows = round_up(min(t.base_m, self.spec.rows), self.profile.cube.m0)
        left = t.al1_buffers * rows * t.step_ka * t.base_k * s.itemsize
        return (self.profile.buffers["L1"].capacity_bytes - left) // t.bl1_buffers

    @cached_property
    def pieces(self) -> list[PixelRange]:
        """The whole reduction at one kernel depth, in order; `image` counts (image, depth pair)."""
        return [
            PixelRange(image, first, pixels)
            for image in range(self.spec.batch)
            for first, pixels in self._ranges
        ]

    @cached_property
    def _ranges(self) -> list[tuple[int, int]]:
        """The pixels of each piece in one image."""
        t = self.tiling
        in_row = piece_in_row(self.spec, t, self.l1_budget)
        return self.spec.sliding.pixel_tiles(t.step_kb * t.base_k, in_row=in_row)

    def reduction(self, depth: int, part: int) -> list[tuple[int, int, PixelRange]]:
        """Return (small depth, big depth, piece) of one part at one kernel depth."""
        pairs = self.spec.depths[depth]
        steps = [(small, big, piece) for small, big in pairs for piece in self.pieces]
        count = len(steps)
        return steps[count * part // self.tiling.k_split : count * (part + 1) // self.tiling.k_split]

    @cached_property
    def column_blocks(self) -> list[Columns]:
        """Column blocks at one kernel depth."""
        return column_blocks(self.spec, self.tiling, self.l1_budget)

    @cached_property
    def tasks(self) -> list[Task]:
        """All tasks that reduce anything, column blocks fastest."""
        spec, t = self.spec, self.tiling
        return [
            Task(group, depth, part, row, min(t.base_m, spec.rows - row), columns)
            for part in range(t.k_split)
            for group in range(spec.groups)
            for depth in range(len(spec.depths))
            if self._parts[depth][part]
            for row in range(0, spec.rows, t.base_m)
            for columns in self.column_blocks
        ]

    @cached_property
    def _parts(self) -> list[list[list[tuple[int, int, PixelRange]]]]:
        return [
            [self.reduction(depth, part) for part in range(self.tiling.k_split)]
            for depth in range(len(self.spec.depths))
        ]

    @cached_property
    def tiles(self) -> dict[tuple[int, int, Taps], ImageTile]:
        """Image tile for each (pixel range, box)."""
        ranges = {(piece.first_pixel, piece.pixels) for piece in self.pieces}
        boxes = {columns.box._replace(channel=0) for columns in self.column_blocks}
        return {
            (first, pixels, box): self.spec.sliding.tile(first, pixels, box)
            for first, pixels in ranges
            for box in boxes
        }

    def tile(self, piece: PixelRange, box: Taps) -> ImageTile:
        """Return the image tile of a piece under a box of taps; its shape does not depend on the channel."""
        return self.tiles[piece.first_pixel, piece.pixels, box._replace(channel=0)]

    def tile_shape(self, piece: PixelRange, box: Taps) -> int:
        """Return the number of the shape of an image tile; equal ones differ in their place in the image."""
        return self._tile_shapes[piece.first_pixel, piece.pixels, box._replace(channel=0)]

    @cached_property
    def _tile_shapes(self) -> dict[tuple[int, int, Taps], int]:
        numbers: dict[Hashable, int] = {}
        return {
            key: numbers.setdefault((tile._replace(rows=None, cols=None), key[1]), len(numbers))
            for key, tile in self.tiles.items()
        }

    def kinds_of_pieces(self, task: Task) -> list[PixelRange]:
        """Return a task's pieces, but only one for each range of pixels."""
        return self._kinds[task.depth, task.part]

    @cached_property
    def _kinds(self) -> dict[tuple[int, int], list[PixelRange]]:
        return {
            (depth, part): list({piece[1:]: piece for _, _, piece in steps}.values())
            for depth, parts in enumerate(self._parts)
            for part, steps in enumerate(parts)
        }

    def signature(self, tasks: list[Task]) -> Hashable:
        """Describe what decides the cost of a core's program: tile shapes, and which tiles are met again.

        With one kernel depth a task's tiles are known by its part and its rows or columns. With several,
        kernel depths share tiles, so that the tiles of every step are numbered by what they hold.
        """
        numbers: dict[Hashable, int] = {}

        def number(*holds: Hashable) -> int:
            return numbers.setdefault(holds, len(numbers))

        met: list[Hashable] = []
        for task in tasks:
            columns, steps = task.columns, self._parts[task.depth][task.part]
            shape = (task.rows, columns.box._replace(channel=0), columns.first_group, columns.groups)
            tiles: tuple[Hashable, ...] = (
                number("left", task.group, task.part, task.first_row),
                number("right", task.group, task.part, columns.box),
            )
            if len(self.spec.depths) > 1:
                tiles = tuple(
                    (
                        number("left", task.group, small, task.first_row, piece),
                        number("right", task.group, big, columns.box, piece),
                    )
                    for small, big, piece in steps
                )
            met.append((shape, self._part_shapes[task.depth, task.part], tiles))
        return tuple(met)

    @cached_property
    def _part_shapes(self) -> dict[tuple[int, int], int]:
        """Number the parts by the pixel ranges of their pieces, from which the tiles follow."""
        numbers: dict[Hashable, int] = {}
        return {
            (depth, part): numbers.setdefault(
                tuple((piece.first_pixel, piece.pixels) for _, _, piece in steps), len(numbers)
            )
            for depth, parts in enumerate(self._parts)
            for part, steps in enumerate(parts)
        }

    @property
    def has_gaps(self) -> bool:
        """Whether some part of some kernel depth reduces nothing, so that no tile is written there."""
        pieces = self.spec.batch * len(self._ranges)
        return any(len(pairs) * pieces < self.tiling.k_split for pairs in self.spec.depths)

    def steps(self, task: Task) -> list[tuple[int, int, PixelRange]]:
        """Return the reduction of one task."""
        return self._parts[task.depth][task.part]
