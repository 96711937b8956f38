"""Which elements of grad_weight stream-K adds in parts, and which pixels a part takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ascendsim.cube.loads import round_up

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.ops.schedules.base import StreamOrder

    Places = list[tuple[int, int, int]]
    Pixels = NDArray[np.int_]


def numbered_pixels(height: int, width: int, strip_w: int) -> Pixels:
    """Return the pixels of an image in the order in which strips of columns number them; 0: row after row."""
    rows = np.arange(height * width).reshape(height, width)
    step = strip_w or width
    return np.concatenate([rows[:, left : left + step].reshape(-1) for left in range(0, width, step)])


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
    stream: StreamOrder, pairs: Sequence[tuple[int, int]], batch: int, rows: Pixels, part: int
) -> tuple[Places, Sequence[int]]:
    """Return the (small depth, big depth, image) of a part, and its ranges of each of them, by number.

    pairs   (small depth, big depth) that meet at a kernel depth; rows: that of each pixel of the small side
    """
    places = [(*pair, image) for pair in pairs for image in range(batch)]
    taken = range(part * stream.length, (part + 1) * stream.length)
    if stream.axis == "height":
        return places, [at for at, (first, _) in enumerate(stream.ranges) if rows[first] in taken]
    # All images at the first small depth, then all at the second.
    mine = [(small, big, image) for small, big, image in places if small * batch + image in taken]
    return mine, range(len(stream.ranges))
