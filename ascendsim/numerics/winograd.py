"""Winograd's F(2x2, 3x3) turned round for grad_weight: nine taps of 2 x 2 pixels by 16 products, not 36.

Along one axis a tile is two pixels of the small side (grad_output) and the four of the big side (input) that
three taps bring together. Both are transformed to four points, the products at each point are summed over all
tiles, and three taps are made of the four sums. In a plane a tile is transformed down its columns first, then
along its rows: the order shows in the bits, since every sum is rounded.

The lines below take anything that adds: exact fractions, float32 numbers, or float32 arrays of many tiles.

Source   public ops-nn at e5c3fa932, as read: the Winograd kernel of grad_weight of 910_95
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from ascendsim.native.default_arithmetic import default_arithmetic

# Points along one axis, pixels of a tile on the small side, pixels of it on the big side, and taps.
POINTS: Final = 4
PIXELS: Final = 2
WINDOW: Final = 4
TAPS: Final = 3

Line = Callable[..., tuple[Any, ...]]


@default_arithmetic
def small_line(s0: Any, s1: Any) -> tuple[Any, ...]:
    """Bring two pixels of the small side to four points."""
    return s0, s0 + s1, s0 - s1, -s1


@default_arithmetic
def big_line(s0: Any, s1: Any, s2: Any, s3: Any) -> tuple[Any, ...]:
    """Bring four pixels of the big side to four points."""
    return s0 - s2, s1 + s2, s2 - s1, s1 - s3


@default_arithmetic
def taps_line(s0: Any, s1: Any, s2: Any, s3: Any) -> tuple[Any, ...]:
    """Make three taps of the sums at four points."""
    half = (s1 + s2) / 2
    return s0 + half, (s1 - s2) / 2, half + s3


@default_arithmetic
def in_plane(line: Line, tile: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Return a tile, row by row, taken through a line down its columns, then along its rows.

    Shapes   2 x 2 (`small_line`) or 4 x 4 (`big_line`) -> 4 x 4 points; 4 x 4 points (`taps_line`) -> 3 x 3
    """
    columns = [line(*column) for column in zip(*tile, strict=True)]
    return [line(*row) for row in zip(*columns, strict=True)]
