"""Even parts of the pixels of all images: base blocks differ in length, so that no core has a round more.

An example: 32 images of 784 pixels, which are 49 fractals of 16, on 24 cores, base_m 512. An image takes two
base blocks. Dealt as blocks of 25 and 24 fractals the busiest core makes 3 of 64: 75 fractals. In even parts,
of 65.3 fractals, it makes 66: an image, and 17 fractals of the next one, whose other 32 another core makes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from ascendsim.cube.loads import FRACTAL_ROWS
from ascendsim.errors import ConfigError
from ascendsim.ops.plan import Tiling, shares
from ascendsim.ops.problems.products import DgradGemm
from ascendsim.ops.schedules.ranges import Cells, TaskRange

# A depth, its first fractal of pixels, and the one after its last.
Run = tuple[int, int, int]


class Images(NamedTuple):
    """Some images of one group, and the runs of fractals that a part has of each of them."""

    group: int
    images: range
    runs: tuple[Run, ...]


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


def even_parts_of(
    groups: int, images: int, depths: Sequence[int], each: int, parts: int, most: int
) -> list[list[Images]]:
    """Cut all fractals of pixels into parts that are as even as ends between whole blocks allow.

    depths   those that anything contributes to; `each`: fractals of one of them, `most` those of a block
    """
    # Counted on through groups, images and depths: a fractal has one number.
    whole = len(depths) * each
    ends = ends_of_parts(groups * images * whole, parts, each, most) if whole else []
    return [list(_images(range(*part), images, depths, each)) for part in pairwise(ends) if part[0] < part[1]]


def _images(part: range, images: int, depths: Sequence[int], each: int) -> Iterator[Images]:
    """Yield the images of a part: the end of one, whole ones, the beginning of one; of each group anew."""
    at, whole = part.start, len(depths) * each
    while at < part.stop:
        number, begin = divmod(at, whole)
        group, image = divmod(number, images)
        count = 0 if begin else min((part.stop - at) // whole, images - image)
        end = whole if count else min(whole, begin + part.stop - at)
        count = max(1, count)
        yield Images(group, range(image, image + count), tuple(_runs(depths, each, begin, end)))
        at += count * (end - begin)


def _runs(depths: Sequence[int], each: int, begin: int, end: int) -> Iterator[Run]:
    for place, depth in enumerate(depths):
        first, last = max(begin - place * each, 0), min(end - place * each, each)
        if first < last:
            yield depth, first, last


def tiles_of(run: Run, most: int, pixels: int) -> list[tuple[int, int]]:
    """Return (first pixel, pixels) of the blocks of a run: as few as can be, of nearly equal length.

    most     fractals of a block; `pixels`: those of a whole depth, in which its last fractal may be cut off
    """
    _, first, last = run
    ends = [
        (FRACTAL_ROWS * (first + block.start), min(pixels, FRACTAL_ROWS * (first + block.stop)))
        for block in shares(last - first, -(-(last - first) // most))
    ]
    return [(start, stop - start) for start, stop in ends]


class EvenCut:
    """The cut of a dgrad into even parts of its pixels, times parts of its column blocks.

    make   returns the task of a group, an image and a block
    """

    def __init__(self, gemm: DgradGemm, tiling: Tiling, make: Callable[[int, int, Any], Any]) -> None:
        self._make, self._pixels, self._most = make, gemm.sliding.pixels, tiling.base_m // FRACTAL_ROWS
        depths = [depth for depth, pairs in enumerate(gemm.depths) if pairs]
        each = -(-self._pixels // FRACTAL_ROWS)
        self._parts = even_parts_of(gemm.groups, gemm.batch, depths, each, tiling.pixel_dim, self._most)

    def pixel_tiles(self) -> list[tuple[int, int]]:
        """Return all (first pixel, pixels) that occur in any image."""
        runs = {run for part in self._parts for images in part for run in images.runs}
        return sorted({tile for run in runs for tile in self._tiles(run)})

    def cells(self, columns: Sequence[Sequence[tuple[int, int]]]) -> list[Cells]:
        """Return the cells: parts of the columns, then of the pixels the fastest."""
        return [
            Cells([self._range(images, own) for images in part]) for own in columns for part in self._parts
        ]

    def _range(self, images: Images, columns: Sequence[tuple[int, int]]) -> TaskRange:
        blocks = [
            (run[0], *tile, *wide) for run in images.runs for tile in self._tiles(run) for wide in columns
        ]
        count, first = len(images.images), images.images.start
        return TaskRange([images.group], count, blocks, self._make, first_image=first)

    def _tiles(self, run: Run) -> list[tuple[int, int]]:
        return tiles_of(run, self._most, self._pixels)
