"""The base blocks of a dgrad, and what decides the cost of those of a core.

One task is a base block of pixels x channels of one image. Its reduction goes through (kernel depth, channel
group, tap, c0): the left operand is im2col of the source image (load3d), the right one the weights. Tasks go
to cores in contiguous ranges; tiles that the next task needs again stay in L1.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ascendsim.errors import ConfigError
from ascendsim.frozen import cached_property
from ascendsim.instructions.cube import FRACTAL_ROWS, round_up
from ascendsim.ops.plan import Tiling, chunks, require_whole_units, shares
from ascendsim.ops.problems.products import DgradGemm
from ascendsim.ops.problems.sliding import (
    ImageTile,
    Pair,
    Sliding,
    SlidingSegment,
    Taps,
    cut_taps,
    even_slices,
    first_box,
    first_boxes,
    segments_of,
)
from ascendsim.ops.schedules.blocks import ACCUMULATOR_BYTES, TileSizes
from ascendsim.ops.schedules.dgrad.image_tiles import cost_of, spans_of, tile_kinds, window_of
from ascendsim.ops.schedules.ranges import (
    as_met,
    chunks_of,
    cut,
    enumerated,
    joined,
    mixed,
    numbered,
    numbers_within,
    spread,
    tasks_of,
)
from ascendsim.ops.schedules.vector.dilation import LEAST_BYTES
from ascendsim.profile import Profile
from ascendsim.program.walk import alike

if TYPE_CHECKING:
    from ascendsim.ops.schedules.ranges import Numbers, Tasks

    Depths = tuple[tuple[tuple[int, int], ...], ...]


# Image tiles that are kept: a product asks for the same few again and again.
REMEMBERED = 1 << 16
# A base block, by the numbers of its pixel tile and column tile.
BLOCK = "group image depth pixels columns"


def require_even(tiling: Tiling, gemm: DgradGemm) -> None:
    """Refuse a tiling that cuts pixels evenly and otherwise, too, or into more parts than there can be.

    Raises   ConfigError naming the fields
    """
    t = tiling
    if t.pixel_dim and (t.batch_dim or t.m_dim):
        raise ConfigError(
            f"tiling of grad_input: pixel_dim is {t.pixel_dim}, and {_named(t)}; pixel_dim cuts images and "
            "their pixels together, so leave batch_dim and m_dim out"
        )
    if t.pixel_dim and t.base_m % FRACTAL_ROWS:
        raise ConfigError(
            f"tiling of grad_input: base_m is {t.base_m}; parts of pixel_dim are cut by fractals of "
            f"{FRACTAL_ROWS} pixels: take {-(-t.base_m // FRACTAL_ROWS) * FRACTAL_ROWS}"
        )
    total = gemm.groups * gemm.batch * sum(map(bool, gemm.depths)) * -(-gemm.sliding.pixels // FRACTAL_ROWS)
    if 0 < total < t.pixel_dim:
        raise ConfigError(
            f"tiling of grad_input: pixel_dim is {t.pixel_dim}, but all pixels are {total} fractals of "
            f"{FRACTAL_ROWS}, of which a part has one at least; take no more parts"
        )


def _named(tiling: Tiling) -> str:
    both = (("batch_dim", tiling.batch_dim), ("m_dim", tiling.m_dim))
    return ", ".join(f"{name} is {value}" for name, value in both if value)


def ends_of_parts(total: int, parts: int, each: int, most: int) -> list[int]:
    """Return where the parts begin and end: near even ends, where no image takes a block more for the cut.

    total   fractals of all images, `each` of them of one image (at one depth); `most` fractals of a block

    49 fractals in blocks of at most 32 may be cut at 17 to 32, each side of which is one block. With blocks
    of 25, which two of them fill nearly, they are cut at 24 or 25.
    """
    blocks = -(-each // most)
    found = [0]
    for part in range(1, parts):
        # The even end is total * part / parts, so `rest` / `parts` fractals behind the image's first one.
        image, rest = divmod(total * part, parts * each)
        even, before = rest // parts, -(-rest // (parts * most))
        near = set()
        # So many blocks lie before the cut, or one less: those before it may be full, or those behind it.
        for count in {max(0, before - 1), before}:
            low, high = max(0, each - (blocks - count) * most), min(each, count * most)
            near |= {min(max(at, low), high) for at in (even, even + 1)}
        found.append(image * each + min(near, key=lambda at: (abs(at * parts - rest), at)))
    return [*found, total]


def tiles_of(first: int, last: int, most: int, pixels: int) -> list[tuple[int, int]]:
    """Return (first pixel, pixels) of the blocks of some fractals: as few as can be, of nearly equal length.

    most     fractals of a block; `pixels`: those of a whole depth, in which its last fractal may be cut off
    """
    ends = [
        (FRACTAL_ROWS * (first + block.start), min(pixels, FRACTAL_ROWS * (first + block.stop)))
        for block in shares(last - first, -(-(last - first) // most))
    ]
    return [(start, stop - start) for start, stop in ends]


class EvenCut:
    """The cut of a dgrad into even parts of its pixels, times parts of its column blocks.

    parts         of each the group, image, depth and (first pixel, pixels) of its tiles
    pixel_tiles   all (first pixel, pixels) that occur in any image
    """

    def __init__(self, gemm: DgradGemm, tiling: Tiling) -> None:
        self._gemm, self._most = gemm, tiling.base_m // FRACTAL_ROWS
        self._depths = [depth for depth, pairs in enumerate(gemm.depths) if pairs]
        # Counted on through groups, images and depths: a fractal has one number.
        self._each = -(-gemm.sliding.pixels // FRACTAL_ROWS)
        total = gemm.groups * gemm.batch * len(self._depths) * self._each
        ends = ends_of_parts(total, tiling.pixel_dim, self._each, self._most) if total else []
        self.parts = [self._tiles(range(*part)) for part in pairwise(ends) if part[0] < part[1]]
        self.pixel_tiles = sorted({tile for part in self.parts for *_, tile in part})

    def _tiles(self, part: range) -> list[tuple[int, int, int, tuple[int, int]]]:
        """Return the tiles of some fractals."""
        gemm, each, found = self._gemm, self._each, []
        for number in range(part.start // each, -(-part.stop // each)):
            image, depth = divmod(number, len(self._depths))
            place = *divmod(image, gemm.batch), self._depths[depth]
            first, last = max(part.start - number * each, 0), min(part.stop - number * each, each)
            found += [(*place, tile) for tile in tiles_of(first, last, self._most, gemm.sliding.pixels)]
        return found

    def tasks(self, columns: Sequence[range]) -> Tasks:
        """Return the base blocks, cell after cell: parts of the columns, then of the pixels the fastest."""
        number = {tile: at for at, tile in enumerate(self.pixel_tiles)}
        parts = [[(*place, number[tile]) for *place, tile in part] for part in self.parts]
        return joined([tasks_of(BLOCK, part, own) for own in columns for part in parts])

    def cells(self, columns: Sequence[range]) -> Numbers:
        """Return the cell of each of them."""
        counts = [len(part) * len(own) for own in columns for part in self.parts]
        return np.repeat(np.arange(len(counts)), counts)


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

    @cached_property
    def pixel_numbers(self) -> Numbers:
        """The number of each pixel tile in its task."""
        return np.array(numbers_within(enumerated(self.pixel_tiles), self.tiling.block_m))

    @cached_property
    def column_numbers(self) -> Numbers:
        """The number of each column tile in its task."""
        return np.array(numbers_within(enumerated(self.column_tiles), self.tiling.block_n))

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
    def canonical(self) -> Tiling:
        """The tiling of the same cut whose blocks and tiles are as long as those that it makes."""
        t, s, c0 = self.tiling, self.gemm.sliding, self.gemm.sliding.c0
        part = self.gemm.all_taps._replace(channels=self.part_channels[0][1])
        k = min(t.base_k, part.groups * c0)
        least = {box: step for step, box in first_boxes(part, k, c0).items()}
        ka, kb = (least[first_box(part, step * t.base_k, c0)] for step in (t.step_ka, t.step_kb))
        shorter = replace(t, base_n=min(t.base_n, self.gemm.columns), base_k=k, step_ka=ka, step_kb=kb)
        if not self.in_row or t.base_m <= s.out_size[1]:
            return replace(shorter, base_m=min(t.base_m, round_up(s.pixels, FRACTAL_ROWS)))
        row = replace(shorter, base_m=round_up(s.out_size[1], FRACTAL_ROWS))
        # Blocks of so many pixels might go on in the next row, which those of a row's own pixels need not.
        stays = replace(self, tiling=row).in_row
        return row if stays else replace(row, base_m=s.out_size[1])

    @property
    def slices_of(self) -> Callable[[int, int], list[tuple[int, int]]]:
        """The function that cuts a run of the reduction into slices, each for one Mmad."""
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
    def parts(self) -> tuple[tuple[SlidingSegment, ...], ...]:
        """Each part of the reduction at one kernel depth."""
        most = max(1, self.tiling.base_k // self.gemm.sliding.c0)
        return tuple(segments_of(left, right, most, self.slices_of) for left, right in self._boxes)

    def _right_bytes(self, columns: int) -> int:
        """Return the bytes of the largest right tile in L1 with so many columns."""
        s = self.gemm.sliding
        columns = round_up(columns, self.profile.cube.n0)
        return max(box.groups for box in self.right_boxes) * s.c0 * columns * s.itemsize

    @cached_property
    def left_bytes(self) -> Numbers:
        """The bytes of the largest left tile in L1 for each pixel range."""
        (firsts, of), boxes = self.kinds, self._left_shapes.values()
        runs = [self.pixel_tiles[at] for at in firsts.tolist()]
        return np.array([max([self.tile(run, box).l1_bytes for box in boxes]) for run in runs], np.int64)[of]

    @cached_property
    def pixel_tiles(self) -> list[tuple[int, int]]:
        """Pixel ranges of one image; where images are cut differently, of all of them."""
        if self._even:
            return self._even.pixel_tiles
        return self.gemm.sliding.pixel_tiles(self.tiling.base_m, in_row=self.in_row)

    @cached_property
    def column_tiles(self) -> list[tuple[int, int]]:
        """Column ranges."""
        return cut(self.gemm.columns, self.tiling.base_n)

    @cached_property
    def _even(self) -> EvenCut | None:
        return EvenCut(self.gemm, self.tiling) if self.tiling.pixel_dim else None

    def tile(self, run: Pair, box: Taps) -> ImageTile:
        """Return the image tile of a pixel range under a box of left taps."""
        made: ImageTile = self._tiles(*run, box)
        return made

    @cached_property
    def _tiles(self) -> Any:
        return lru_cache(REMEMBERED)(self._tile)

    def _tile(self, first: int, pixels: int, box: Taps) -> ImageTile:
        return self.gemm.sliding.tile(first, pixels, box)

    @property
    def reads(self) -> tuple[Sliding, Taps]:
        """The sliding whose pixels image tiles have, and a box of all taps of any of them."""
        return self.gemm.sliding, self.gemm.all_taps

    @cached_property
    def kinds(self) -> tuple[Numbers, Numbers]:
        """The first of each kind of pixel ranges, and the kind of each (`tile_kinds`)."""
        return tile_kinds(*self.reads, self.pixel_tiles)

    @cached_property
    def windows(self) -> Numbers:
        """What left tiles have of the image (`window_of`), by pixel range and by shape of the box."""
        (firsts, of), runs, boxes = self.kinds, self.pixel_tiles, self._left_shapes.values()
        windows = [[window_of(self.tile(runs[at], box)) for box in boxes] for at in firsts.tolist()]
        s, found = self.reads[0], np.array(windows, np.int64)[of]
        # A place within the image moves with its pixels.
        for axis, at in enumerate(np.divmod(np.array(runs)[:, 0], s.out_size[1])):
            found[..., 2 * axis] += ((at - at[firsts][of]) * s.stride[axis] // s.insert[axis])[:, None]
        found[found[..., 1] == 0] = 0
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
    def pixel_shapes(self) -> Numbers:
        """Numbers of the pixel tiles by the shape of what they need of the image."""
        # Where a tile lies in the image costs nothing; how much of its window is padding shows in its sizes.
        return self._numbered(lambda tile, _: tile._replace(rows=None, cols=None))

    @cached_property
    def pixel_costs(self) -> Numbers:
        """Numbers of the pixel tiles by what they cost, which several shapes have in common."""
        return self._numbered(cost_of)

    @property
    def pixel_spans(self) -> Numbers:
        """Numbers of the pixel tiles by their pixels, and by how these lie in rows."""
        box = self.left_boxes[0]
        return self._told(lambda run: (run[1], spans_of(self.tile(run, box), run[1])))

    def _numbered(self, key_of: Callable[[ImageTile, int], Hashable]) -> Numbers:
        """Return a number for each pixel tile: one for all of equal pixels and keys of image tiles."""
        boxes = self._left_shapes.values()
        return self._told(lambda run: (run[1], *[key_of(self.tile(run, box), run[1]) for box in boxes]))

    def _told(self, key_of: Callable[[Pair], Hashable]) -> Numbers:
        """Return a number for each pixel tile, equal ones for equal keys, which those of one kind have."""
        firsts, of = self.kinds
        return np.array(alike([key_of(self.pixel_tiles[at]) for at in firsts.tolist()]), np.int64)[of]

    def sizes(self, tasks: Tasks) -> TileSizes:
        """Return the room that a core with these tasks reserves."""
        met = np.unique(tasks["pixels"])
        columns = int(self.widths[tasks["columns"]].max())
        cube = self.profile.cube
        return TileSizes(
            round_up(int(self.heights[met].max()), cube.m0),
            round_up(columns, cube.n0),
            round_up(self.tiling.base_k, cube.rates[self.gemm.compute_dtype].k0),
            int(self.left_bytes[met].max()),
            self._right_bytes(columns),
        )

    @cached_property
    def tasks(self) -> Tasks:
        """All base blocks that anything contributes to: groups, images, blocks of an image."""
        if self._even:
            return self._even.tasks(self._column_chunks)
        # Channels fastest: the next block needs the same image tile, which so stays in L1.
        gemm, tiles = self.gemm, (range(len(self.pixel_tiles)), range(len(self.column_tiles)))
        depths = [depth for depth, pairs in enumerate(gemm.depths) if pairs]
        return tasks_of(BLOCK, range(gemm.groups), range(gemm.batch), depths, *tiles)

    @property
    def _column_chunks(self) -> list[range]:
        return chunks(len(self.column_tiles), self.tiling.n_dim)

    @property
    def cells(self) -> Numbers:
        """The cell of the grid that each task is in: of images, column blocks, pixel tiles the fastest."""
        t, tasks = self.tiling, self.tasks
        if self._even:
            return self._even.cells(self._column_chunks)
        axes = {
            "batch": chunks_of(tasks["image"], self.gemm.batch, t.batch_dim),
            "n": chunks_of(tasks["columns"], len(self.column_tiles), t.n_dim),
            "m": chunks_of(tasks["pixels"], len(self.pixel_tiles), t.m_dim),
        }
        return numbered("grad_input", "batch n m", axes)[0]

    @cached_property
    def heights(self) -> Numbers:
        """The pixels of each pixel tile."""
        return np.array(self.pixel_tiles, np.int64)[:, 1]

    @cached_property
    def widths(self) -> Numbers:
        """The columns of each column tile."""
        return np.array([count for _, count in self.column_tiles])

    def signature(self, tasks: Tasks) -> Hashable:
        """Describe what decides the cost of a core's program: tile shapes, and which tiles are met again."""
        pixels, columns = tasks["pixels"], tasks["columns"]
        kinds = self.pixel_shapes[pixels], self.widths[columns]
        met = signature_of(self.gemm, tasks, kinds, pixels, columns)
        if not self._even:
            return met
        # Cores differ where their parts end differently: count neighbouring images that are cut alike.
        edges = np.flatnonzero(np.diff(mixed(tasks["group"], tasks["image"]))) + 1
        of_images = [own.tobytes() for own in np.split(tasks[["depth", "pixels", "columns"]], edges)]
        return met, tuple([sum(map(len, same)) for _, same in groupby(of_images)])


def signature_of(
    gemm: DgradGemm, tasks: Tasks, kinds: Sequence[Numbers], left: Numbers, right: Numbers
) -> Hashable:
    """Return the kinds of tasks and the tiles that they meet, numbered as they are met first.

    Two cores with as many tasks differ if one meets a tile again where the other loads a new one.

    left, right   the numbers of the tiles of each task, besides groups, images and depths
    """
    group, image, depth = (tasks[name] for name in ("group", "image", "depth"))
    counts, firsts, pairs = _pairs(gemm.depths)
    of, at = spread(counts[depth])
    kernel, source = pairs[firsts[depth][of] + at].T
    lefts = mixed(group[of], image[of], source, left[of])
    rights = mixed(group[of], kernel, right[of])
    return *[own.tobytes() for own in (*kinds, counts[depth])], as_met(lefts), as_met(rights)


# Each core asks for it.
@lru_cache(maxsize=64)
def _pairs(depths: Depths) -> tuple[Numbers, Numbers, Numbers]:
    """Return of each depth how many pairs it has and which is the first; (kernel, source) of all pairs."""
    counts = np.array([len(own) for own in depths])
    return counts, np.cumsum(counts) - counts, np.array([pair for own in depths for pair in own])


def _kernel_slice(first: int, taps: int, extent: int, backwards: bool) -> slice:
    """Return where a range of taps, counted in the order of the reduction, lies in the kernel."""
    start = extent - first - taps if backwards else first
    return slice(start, start + taps)


def inserts_in_ub(gemm: DgradGemm, profile: Profile) -> bool:
    """Return whether zeros come between pixels in UB: unified cores have no strided copy into L1."""
    return profile.core_structure == "unified" and gemm.sliding.insert != (1, 1)


def taken_bytes(gemm: DgradGemm, profile: Profile) -> int:
    """Return the least bytes of UB that the way into L1 takes."""
    return LEAST_BYTES if inserts_in_ub(gemm, profile) else 0


def most_rows(gemm: DgradGemm, profile: Profile) -> int:
    """Return the most rows of a tile that leaves through UB in two pieces of one channel group."""
    left = profile.buffers["UB"].capacity_bytes - taken_bytes(gemm, profile)
    # In float32, in which parts of a reduction leave.
    return left // 2 // (gemm.sliding.c0 * ACCUMULATOR_BYTES)
