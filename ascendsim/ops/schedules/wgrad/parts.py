"""The parts of the pixels of all images that the cells of a grid reduce."""

from __future__ import annotations

from itertools import accumulate, pairwise

from ascendsim.ops.plan import Tiling, chunks
from ascendsim.ops.problems.wgrad import WgradGemm
from ascendsim.ops.schedules.wgrad.columns import range_in_row


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
