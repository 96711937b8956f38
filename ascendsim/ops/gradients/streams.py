"""Which elements of grad_weight stream-K adds in parts, and which pixels a part takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ascendsim.cube.tile_reads import round_up

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.ops.schedules.order import StreamOrder

    Places = list[tuple[int, int, int]]


def in_parts(
    stream: StreamOrder, group: int, depth: int, rows: int, taps: int, columns: int
) -> NDArray[np.bool_]:
    """Return which elements at a kernel depth of a group are added in parts, as (rows, taps * columns)."""
    c0 = stream.c0
    wide = round_up(columns, c0)
    chosen = np.zeros((rows, wide * taps), bool)
    for of_group, of_depth, first_row, count, first, width in stream.blocks:
        if (of_group, of_depth) == (group, depth):
            chosen[first_row : first_row + count, first : first + width] = True
    # The columns of a block go through (group of c0 channels, tap, channel).
    ordered = chosen.reshape(rows, wide // c0, taps, c0).transpose(0, 2, 1, 3)
    return ordered.reshape(rows, taps, wide)[:, :, :columns].reshape(rows, -1)


def part_of(
    stream: StreamOrder, pairs: Sequence[tuple[int, int]], batch: int, width: int, part: int
) -> tuple[Places, range]:
    """Return the (small depth, big depth, image) of a part, and its ranges of each of them, by number.

    pairs   (small depth, big depth) that meet at a kernel depth; width: pixels of a row of the small side
    """
    places = [(*pair, image) for pair in pairs for image in range(batch)]
    if stream.axis == "height":
        pixels = stream.length * width
        numbers = [at for at, (first, _) in enumerate(stream.ranges) if first // pixels == part]
        return places, range(numbers[0], numbers[-1] + 1) if numbers else range(0)
    # All images at the first small depth, then all at the second.
    taken = range(part * stream.length, (part + 1) * stream.length)
    mine = [(small, big, image) for small, big, image in places if small * batch + image in taken]
    return mine, range(len(stream.ranges))
