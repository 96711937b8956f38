"""The image tiles of a grad_input by kind: what they cost, and what they have of the image.

A large image has millions of them and few kinds, so that what is asked of a tile is asked once for its kind.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from ascendsim.instructions.cube import row_spans
from ascendsim.ops.problems.sliding import ImageTile, Pair, Sliding, Taps
from ascendsim.ops.schedules.ranges import mixed

if TYPE_CHECKING:
    from ascendsim.ops.schedules.ranges import Numbers


def tile_kinds(sliding: Sliding, taps: Taps, runs: Sequence[Pair]) -> tuple[Numbers, Numbers]:
    """Return the first pixel range of each kind, by number, and the kind of each range.

    Image tiles of one kind differ at most in the place of what they have of the image: where all taps lie
    within it, one is read as another.
    """
    width, (first, pixels) = sliding.out_size[1], np.array(runs, np.int64).reshape(-1, 2).T
    (top, left), (bottom, right) = (np.divmod(at, width) for at in (first, first + pixels - 1))
    row, col = _places(sliding, taps, 0, top, bottom), _places(sliding, taps, 1, left, right)
    # A range of several rows has all columns, and begins somewhere in the first row.
    told = mixed(pixels, np.where(top == bottom, col, left), row)
    _, firsts, of = np.unique(told, return_index=True, return_inverse=True)
    order = firsts.argsort()
    return firsts[order], order.argsort()[of]


def _places(s: Sliding, taps: Taps, axis: int, first: Numbers, last: Numbers) -> Numbers:
    """Return where some outputs lie along an axis, as far as it decides what they read."""
    begin, count = (taps.row, taps.rows) if axis == 0 else (taps.col, taps.cols)
    low = first * s.stride[axis] + begin * s.dilation[axis] - s.pad[axis]
    high = last * s.stride[axis] + (begin + count - 1) * s.dilation[axis] - s.pad[axis]
    within = (low >= 0) & (high <= (s.image_size[axis] - 1) * s.insert[axis])
    return np.where(within, s.out_size[axis] + low % s.insert[axis], first)


def window_of(tile: ImageTile) -> tuple[int, int, int, int]:
    """Return a tile's first row of the image, their number, its first column, their number; else zeros."""
    rows, cols = tile.rows, tile.cols
    if rows is None or cols is None:
        return 0, 0, 0, 0
    return rows.start, rows.stop - rows.start, cols.start, cols.stop - cols.start


def numbered_windows(windows: Numbers) -> Numbers:
    """Return a number for each of some windows (`DgradTasks.windows`), equal ones for equal windows."""
    found: Numbers = np.unique(mixed(*np.moveaxis(windows, -1, 0)), return_inverse=True)[1]
    return found.reshape(windows.shape[:-1])


def cost_of(tile: ImageTile, pixels: int) -> Hashable:
    """Return a key of the costs of loading and reading a tile of `pixels` pixels."""
    # Gaps between pixels are cleared, and filled piece by piece; so the whole tile counts.
    if tile.clear:
        return tile._replace(rows=None, cols=None)
    return tile.gm_bytes, tile.window.stride, spans_of(tile, pixels)


def spans_of(tile: ImageTile, pixels: int) -> frozenset[tuple[int, int]]:
    """Return the numbers of fractals by the rows that they span, which decide the cost of reading a tile."""
    width = tile.window.out_width
    return _spans(tile.first_pixel % width, pixels, width)


# Blocks begin at few places of a row, and each asks for every one of its tiles.
@lru_cache(maxsize=4096)
def _spans(offset: int, pixels: int, width: int) -> frozenset[tuple[int, int]]:
    return frozenset(row_spans(offset, pixels, width).items())
