"""How the columns and pixels of a filter product are cut so that its tiles fit into L1."""

from __future__ import annotations

from typing import NamedTuple

from ascendsim.ops.plan import Tiling
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
    touched = min(whole.channels, -(-(most + taps - 1) // taps))
    pixels = tiling.step_kb * tiling.base_k
    in_row = range_in_row(gemm, tiling, l1_budget)
    if sliding.tile_bytes(pixels, whole._replace(channels=touched), in_row=in_row) <= l1_budget:
        return [
            _touched_box(whole, first, min(most, whole.groups - first), c0)
            for first in range(0, whole.groups, most)
        ]
    fitting = most
    while fitting > 1 and (
        sliding.tile_bytes(pixels, first_box(whole, fitting * c0, c0), in_row=in_row) > l1_budget
    ):
        fitting -= 1
    blocks, column = [], 0
    for box in cut_taps(whole, fitting * c0, c0):
        blocks.append(Columns(box, 0, box.groups, column))
        column += box.groups * c0
    return blocks


def _touched_box(whole: Taps, first: int, groups: int, c0: int) -> Columns:
    taps = whole.rows * whole.cols
    channel, last = first // taps, (first + groups - 1) // taps
    box = whole._replace(channel=channel, channels=last - channel + 1)
    return Columns(box, first - channel * taps, groups, first * c0)


def range_in_row(gemm: WgradGemm, tiling: Tiling, l1_budget: int) -> bool:
    """Return whether ranges of pixels must stay in one row, as whole rows do not fit."""
    one_tap = Taps(0, 1, 0, 1, 0, 1)
    pixels = tiling.step_kb * tiling.base_k
    whole = gemm.all_taps._replace(channels=1)
    if gemm.sliding.tile_bytes(pixels, whole, in_row=False) <= l1_budget:
        return False
    return gemm.sliding.tile_bytes(pixels, one_tap, in_row=False) > l1_budget or (
        gemm.sliding.tile_bytes(pixels, whole, in_row=True) <= l1_budget
    )
