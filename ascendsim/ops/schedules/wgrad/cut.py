"""The cut of a wgrad: rows and columns into base blocks, and the reduction over the pixels of all images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate, chain, pairwise, product
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from ascendsim.errors import ConfigError
from ascendsim.frozen import cached_property
from ascendsim.instructions.cube import FRACTAL_ROWS, Gathering, round_up, row_spans
from ascendsim.ops.plan import Tiling, chunks, require_whole_units
from ascendsim.ops.problems.products import WgradGemm
from ascendsim.ops.problems.sliding import ImageTile, Pair, Taps, cut_taps, first_box
from ascendsim.ops.problems.strips import Strips
from ascendsim.ops.schedules.ranges import cut, cut_within, enumerated, numbers_within, runs_of
from ascendsim.profile import Profile
from ascendsim.program.walk import alike

if TYPE_CHECKING:
    from ascendsim.ops.problems.strips import Numbers


class Columns(NamedTuple):
    """A block of columns: the box of taps that its L1 tile serves, and the groups of it that are columns."""

    box: Taps
    first_group: int
    groups: int
    first_column: int


def column_blocks(gemm: WgradGemm, tiling: Tiling, l1_budget: int) -> list[Columns]:
    """Cut the columns at one kernel depth into blocks of base_n.

    A block's L1 tile holds all taps of the channel groups it touches; where that does not fit in `l1_budget`
    bytes, only whole kernel rows of one channel group, or single taps.
    """
    sliding, c0 = gemm.sliding, gemm.sliding.c0
    most = max(1, tiling.base_n // c0)
    whole = gemm.all_taps
    taps = whole.rows * whole.cols
    # A run of `most` columns that begins at the last tap of a group touches one group more.
    touched = min(whole.channels, -(-(most + taps - 1) // taps))
    pixels, in_row = tiling.step_kb * tiling.base_k, range_in_row(gemm, tiling, l1_budget)

    def fits(box: Taps) -> bool:
        return sliding.tile_bytes(pixels, box, in_row=in_row) <= l1_budget

    if fits(whole._replace(channels=touched)):
        return whole_taps(gemm, tiling)
    # Fewer columns than base_n have a smaller tile; one tap is taken even where it does not fit, so that the
    # builder refuses it with the sizes that L1 would need.
    fitting = next((n for n in range(most, 1, -1) if fits(first_box(whole, n * c0, c0))), 1)
    boxes = cut_taps(whole, fitting * c0, c0)
    columns = accumulate((box.groups * c0 for box in boxes), initial=0)
    return [Columns(box, 0, box.groups, first) for box, first in zip(boxes, columns, strict=False)]


def narrowed_to(gemm: WgradGemm, tiling: Tiling, blocks: Sequence[Columns]) -> int:
    """Return the columns of the widest block, if L1 had no room for blocks of base_n; else 0.

    Operators refuse these plans: beside the other operand the tile of a base block does not fit.
    """
    if tiling.tap_loop:
        return 0  # single taps are what was asked for
    c0, widest = gemm.sliding.c0, max(block.groups for block in blocks)
    # A box of taps is whole along its inner axes, so it may have fewer columns than base_n in any case.
    return widest * c0 if widest < first_box(gemm.all_taps, tiling.base_n, c0).groups else 0


def whole_taps(gemm: WgradGemm, tiling: Tiling) -> list[Columns]:
    """Cut the columns at one kernel depth into blocks of base_n, each with all taps of what it touches.

    Where the tiling cuts kernel depths, those of each task by themselves.
    """
    whole, c0 = gemm.all_taps, gemm.sliding.c0
    task = max(1, tiling.block_n // c0) if tiling.depth_dim else whole.groups
    blocks = cut_within(cut(whole.groups, task), max(1, tiling.base_n // c0))
    return [_touched_box(whole, first, groups, c0) for first, groups in blocks]


def _touched_box(whole: Taps, first: int, groups: int, c0: int) -> Columns:
    taps = whole.rows * whole.cols
    channel, last = first // taps, (first + groups - 1) // taps
    box = whole._replace(channel=channel, channels=last - channel + 1)
    return Columns(box, first - channel * taps, groups, first * c0)


def range_in_row(gemm: WgradGemm, tiling: Tiling, l1_budget: int) -> bool:
    """Return whether ranges of pixels must stay in one row, as whole rows do not fit."""
    one_tap, pixels = Taps(0, 1, 0, 1, 0, 1), tiling.step_kb * tiling.base_k
    whole = gemm.all_taps._replace(channels=1)

    def fits(box: Taps, *, in_row: bool) -> bool:
        return gemm.sliding.tile_bytes(pixels, box, in_row=in_row) <= l1_budget

    # Ranges inside a row end with every row, so they are shorter, and their Mmads with them. They are taken
    # only where single taps of whole rows do not fit either, or where they let all taps stay together.
    if fits(whole, in_row=False):
        return False
    return not fits(one_tap, in_row=False) or fits(whole, in_row=True)


def ranges_by_rows(gemm: WgradGemm, tiling: Tiling, l1_budget: int) -> list[list[tuple[int, int]]]:
    """Return the runs (first pixel, pixels) of one image that L1 tiles hold, for each part of its rows.

    A run ends with its image, as a load3d window lies in one image, and with its part of the rows.
    """
    sliding, most = gemm.sliding, tiling.step_kb * tiling.base_k
    in_row = range_in_row(gemm, tiling, l1_budget)
    if in_row or not tiling.k_dim:
        runs = sliding.pixel_tiles(most, in_row=in_row)
        return [[runs[at] for at in part] for part in chunks(len(runs), tiling.k_dim)]
    height, width = sliding.out_size
    return [
        [
            (first, min(most, rows.stop * width - first))
            for first in range(rows.start * width, rows.stop * width, most)
        ]
        for rows in chunks(height, tiling.k_dim)
    ]


def grid_parts(batch: int, batch_dim: int, ranges: list[list[tuple[int, int]]]) -> list[tuple[range, range]]:
    """Return the images, and the runs of each of them by number, of every part of a grid's reduction."""
    ends = list(accumulate((len(runs) for runs in ranges), initial=0))
    return [(images, range(*own)) for images in chunks(batch, batch_dim) for own in pairwise(ends)]


# A base block over one part of the reduction, by the numbers of its row tile and its block of columns.
BLOCK = "part group depth row column"


class Reduced(NamedTuple):
    """What a part of the reduction has: a pair of depths, images, and ranges of pixels of each of them."""

    small: int
    big: int
    image: int
    images: int
    first: int
    ranges: int


def spelled(reduced: Sequence[Reduced], symbols: tuple[int, ...]) -> tuple[int, ...]:
    """Return the symbols of all ranges that are reduced, one after the other; `symbols` has those of all."""
    return tuple(
        chain.from_iterable(symbols[own.first : own.first + own.ranges] * own.images for own in reduced)
    )


class PixelRanges:
    """Ranges of pixels; each range lies in one tile of either side in L1.

    runs, lefts, rights   a row (first pixel, pixels) for each range, and of the tiles that serve it
    strips                the strips of columns of an image; without any all columns are one
    base_k                pixels of a slice, counted from where the range begins

    left, right           the different tiles, a row (first pixel, pixels) each
    left_of, right_of     by range the number of its tile
    slices                a row for each slice, range after range: its right tile, where it begins in the left
                          tile and in the window of the right one, its pixels, those of a row of the window
    counts                slices of each range
    """

    def __init__(
        self, runs: Numbers, lefts: Numbers, rights: Numbers, strips: Strips, base_k: int, profile: Profile
    ) -> None:
        self.runs, self._strips = runs, strips
        size = strips.sliding.itemsize
        self._steps = {Gathering.of(profile, buffer, size).step for buffer in ("L0A", "L0B")}
        self._image_pixels: dict[Taps, Numbers] = {}
        self.left, self.left_of = different(lefts)
        self.right, self.right_of = different(rights)
        self.spans = strips.spans(self.right)
        first, pixels = runs.T
        self.counts = -(-pixels // base_k)
        of = np.repeat(np.arange(len(runs)), self.counts)
        at = base_k * (np.arange(len(of)) - np.repeat(np.cumsum(self.counts) - self.counts, self.counts))
        right = self.right_of[of]
        width = self.spans.right - self.spans.left + 1
        self.slices = np.column_stack(
            [
                right,
                (first - lefts[:, 0])[of] + at,
                (first - rights[:, 0])[of] + self.spans.first_pixel[right] + at,
                np.minimum(base_k, pixels[of] - at),
                width[right],
            ]
        )

    @property
    def kinds(self) -> Numbers:
        """A number for each slice, equal for equal load costs: its pixels, and their places in rows."""
        _, _, at, pixels, width = self.slices.T
        most = int(width.max()) + 1
        told = (pixels * most + at % width) * most + width
        _, first, of = np.unique(told, return_index=True, return_inverse=True)
        # Of either side, as they are gathered in steps of their own.
        kinds = [
            (pixels, *[frozenset(row_spans(at % width, pixels, width, deep).items()) for deep in self._steps])
            for _, _, at, pixels, width in self.slices[first].tolist()
        ]
        found: Numbers = np.array(alike(kinds))[of]
        return found

    def image_pixels(self, box: Taps) -> Numbers:
        """Return by right tile how many pixels of the image it has under a box of taps."""
        known = self._image_pixels.get(box)
        if known is None:
            rows, cols = self._strips.reads(self.spans, box)
            known = self._image_pixels[box] = rows.pixels * cols.pixels
        return known

    def windows(self, box: Taps) -> Numbers:
        """Return by right tile a number for what it reads of the image: rows and columns."""
        rows, cols = self._strips.reads(self.spans, box)
        height, width = self._strips.sliding.image_size
        return ((rows.first * (height + 1) + rows.pixels) * width + cols.first) * (width + 1) + cols.pixels


def different(pairs: Numbers) -> tuple[Numbers, Numbers]:
    """Return the different ones of some pairs, and which of them each is."""
    told = pairs[:, 0] * (pairs[:, 1].max() + 1) + pairs[:, 1]
    _, first, of = np.unique(told, return_index=True, return_inverse=True)
    return pairs[first], of


# Tiles that are kept: a run of pixels is asked for several times under one box of taps.
KEPT = 4096


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
    # Whether the loops are those of the operators' kernels for 3-D: what follows from it is said there.
    operator: ClassVar[bool] = False

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
    def canonical(self) -> Tiling:
        """The tiling of the same cut whose blocks and tiles are as long as those that it makes.

        A run may have to be said longer than a row of the image to stay inside rows.
        """
        t, gemm, blocks = self.tiling, self.gemm, self.column_blocks
        longest = max(pixels for _, pixels in self.ranges_of_image)
        k = min(t.base_k, round_up(longest, FRACTAL_ROWS))
        columns = min(t.base_n, gemm.all_taps.groups * gemm.sliding.c0)
        widths = dict.fromkeys((max(block.groups for block in blocks) * gemm.sliding.c0, columns))
        slices = (k, min(t.step_ka, -(-longest // k))), (t.base_k, t.step_ka)
        for base_n, (base_k, step) in product(widths, slices):
            sizes = {"base_m": min(t.base_m, gemm.rows), "base_n": base_n, "base_k": base_k}
            found = replace(t, **sizes, step_ka=step, step_kb=step)
            other = replace(self, tiling=found)
            if other._ranges_by_rows == self._ranges_by_rows and other.column_blocks == blocks:
                return found
        return t

    @property
    def splits(self) -> int:
        """Parts of the reduction."""
        return len(self.grid_parts) if self.by_grid else self.tiling.k_split

    @property
    def by_grid(self) -> bool:
        """Whether parts of the reduction are cells of the tiling's grid."""
        return self.tiling.has_grid

    @property
    def loads_ahead(self) -> bool:
        """Whether the next tiles of a reduction are called for before those at hand are read."""
        return self.operator and self.profile.generation.loads_ahead

    @property
    def begins(self) -> Numbers:
        """Whether an image, or a strip of it, begins with a range: there the places of tiles in L1 do."""
        raise NotImplementedError(f"{type(self).__name__} takes the slots of L1 in turn")

    @property
    def row_numbers(self) -> Numbers:
        """The number of each row tile in its task."""
        return np.array(numbers_within(enumerated(self.row_tiles), self.tiling.block_m))

    @property
    def column_numbers(self) -> Numbers:
        """The number in its task of the tile in L1 of each block of columns, by kernel depth."""
        blocks = [(block.first_column, block.box) for block in self.column_blocks]
        return np.array([numbers_within(blocks, self.tiling.block_n)] * len(self.gemm.depths))

    def left_tiles(self, runs: Numbers) -> Numbers:
        """Return the pixels of the left tiles in L1 that serve some runs, (first pixel, pixels) each."""
        return runs

    def left_place(self, run: Pair) -> tuple[slice, ...]:
        """Return where the pixels of a left tile lie in an image of the small side."""
        return (slice(run[0], run[0] + run[1]),)

    def right_tiles(self, runs: Numbers) -> Numbers:
        """Return the pixels of the right tiles in L1 that serve some runs."""
        return runs

    @property
    def runs(self) -> Sequence[Pair]:
        """The ranges of pixels of all parts; those of a part follow each other."""
        return self.ranges_of_image

    @cached_property
    def pixels(self) -> PixelRanges:
        """The tables of these ranges."""
        runs = np.array(self.runs)
        lefts, rights = self.left_tiles(runs), self.right_tiles(runs)
        return PixelRanges(runs, lefts, rights, self.strips, self.tiling.base_k, self.profile)

    @cached_property
    def strips(self) -> Strips:
        """The strips of columns of an image; without any all columns are one."""
        return Strips.of(self.gemm.sliding, 0)

    @cached_property
    def ranges_of_image(self) -> list[tuple[int, int]]:
        """The pixels of each range in one image."""
        return [run for runs in self._ranges_by_rows for run in runs]

    @cached_property
    def _ranges_by_rows(self) -> list[list[tuple[int, int]]]:
        """The ranges for each part of the rows; without a grid there is one part."""
        return ranges_by_rows(self.gemm, self.tiling, self.l1_budget)

    @cached_property
    def grid_parts(self) -> list[tuple[range, range]]:
        """The images, and the ranges of each of them by number, of every part of the reduction of a grid."""
        return grid_parts(self.gemm.batch, self.tiling.batch_dim, self._ranges_by_rows)

    def part(self, depth: int, part: int) -> list[Reduced]:
        """Return images and ranges of one part of the reduction at a kernel depth; ranges index `runs`."""
        pairs = self.gemm.depths[depth]
        if self.by_grid:
            images, ranges = self.grid_parts[part]
            own = images.start, len(images), ranges.start, len(ranges)
            return [Reduced(*pair, *own) for pair in pairs if images and ranges]
        # Where there are fewer segments than parts, some parts get none.
        whole, split = len(pairs) * self.gemm.batch * len(self.ranges_of_image), self.splits
        return self._reduced_by(pairs, range(whole * part // split, whole * (part + 1) // split))

    def _reduced_by(self, pairs: Sequence[Pair], numbers: range) -> list[Reduced]:
        """Return which ranges some numbers are, that count through pairs of depths, images and ranges."""
        runs = runs_of(numbers, self.gemm.batch, len(self.ranges_of_image))
        return [
            Reduced(*pairs[outer], images.start, len(images), first, last - first)
            for outer, images, first, last in runs
        ]

    @property
    def has_gaps(self) -> bool:
        """Whether some part of some kernel depth reduces nothing, so that no tile is written there."""
        if self.by_grid:
            return not all(self.gemm.depths)
        # Counted and not listed: a call that is only lowered may have thousands of millions of images.
        count = self.gemm.batch * len(self.ranges_of_image)
        return any(len(pairs) * count < self.splits for pairs in self.gemm.depths)

    @cached_property
    def row_tiles(self) -> list[tuple[int, int]]:
        """The rows of all base blocks: those of each task by themselves."""
        return cut_within(cut(self.gemm.rows, self.tiling.block_m), self.tiling.base_m)

    @cached_property
    def column_blocks(self) -> list[Columns]:
        """Column blocks at one kernel depth."""
        return column_blocks(self.gemm, self.tiling, self.l1_budget)

    def right_bytes(self, box: Taps) -> Numbers:
        """Return by right tile its bytes in L1; one in the padding as a whole has room for a pixel."""
        s, pixels = self.gemm.sliding, self.pixels.image_pixels(box)
        found: Numbers = np.maximum(1, pixels) * (box.channels * s.c0 * s.itemsize)
        return found

    def tile(self, run: Pair, box: Taps) -> ImageTile:
        """Return the image tile of a right tile's pixels under a box of taps, but for its channels' place."""
        made: ImageTile = self._tiles(*run, box._replace(channel=0))
        return made

    @cached_property
    def _tiles(self) -> Any:
        return lru_cache(KEPT)(self.strips.tile)
