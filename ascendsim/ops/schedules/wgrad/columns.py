"""The cut of the columns and pixels of a filter product, so that its tiles fit into L1."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from ascendsim.ops.plan import Tiling, chunks
from ascendsim.ops.problems.taps import Taps, cut_taps, first_box
from ascendsim.ops.problems.wgrad import WgradGemm


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

    Operators refuse such a plan: beside the other operand the tile of a base block does not fit.
    """
    if tiling.tap_loop:
        return 0  # single taps are what was asked for
    c0, widest = gemm.sliding.c0, max(block.groups for block in blocks)
    # A box of taps is whole along its inner axes, so it may have fewer columns than base_n in any case.
    return widest * c0 if widest < first_box(gemm.all_taps, tiling.base_n, c0).groups else 0


def whole_taps(gemm: WgradGemm, tiling: Tiling) -> list[Columns]:
    """Cut the columns at one kernel depth into blocks of base_n, each with all taps of what it touches."""
    whole, c0 = gemm.all_taps, gemm.sliding.c0
    most = max(1, tiling.base_n // c0)
    firsts = range(0, whole.groups, most)
    return [_touched_box(whole, first, min(most, whole.groups - first), c0) for first in firsts]


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
