"""How a dgrad is cut: its pixels and columns into base blocks, its reduction for L1 and for Mmads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import lru_cache
from itertools import count

from ascendsim.cube.load3d import row_spans
from ascendsim.cube.tile_reads import round_up
from ascendsim.errors import ConfigError
from ascendsim.frozen import cached_property
from ascendsim.ops.plan import Tiling, shares
from ascendsim.ops.plan_checks import require_whole_units
from ascendsim.ops.problems.dgrad import DgradGemm
from ascendsim.ops.problems.sliding import ImageTile
from ascendsim.ops.problems.taps import Segment, Taps, cut_taps, even_slices, segments_of
from ascendsim.ops.schedules.dgrad.even import EvenCut, require_even
from ascendsim.ops.schedules.dgrad.pieces import task_of
from ascendsim.ops.schedules.numbering import cut
from ascendsim.profile import Profile


@dataclass(frozen=True)
class DgradCut:
    """The sides of a dgrad under one tiling on one product, and the tiles in L1 that base blocks need.

    Raises   ConfigError if there are more parts than channel groups, or if the tiling cuts through a group
    """

    gemm: DgradGemm
    tiling: Tiling
    profile: Profile

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
    def _left_bytes(self) -> dict[tuple[int, int], int]:
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
        numbers: dict[Hashable, int] = defaultdict(count().__next__)
        tiles, boxes = self.left_tiles, self._left_shapes.values()
        return {
            (first, pixels): numbers[
                pixels, *(tiles[first, pixels, box]._replace(rows=None, cols=None) for box in boxes)
            ]
            for first, pixels in self.pixel_tiles
        }

    @cached_property
    def pixel_costs(self) -> dict[tuple[int, int], int]:
        """Number the pixel ranges by what their tiles cost, which several shapes of tiles have in common."""
        numbers: dict[Hashable, int] = defaultdict(count().__next__)
        tiles, boxes = self.left_tiles, self._left_shapes.values()
        return {
            (first, pixels): numbers[pixels, *(_cost_of(tiles[first, pixels, box], pixels) for box in boxes)]
            for first, pixels in self.pixel_tiles
        }


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
