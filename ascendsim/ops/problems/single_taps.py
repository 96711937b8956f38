"""What one tap of a kernel reads of an image, brought together by the copy: a pixel for each output pixel.

load3d steps at most 63 pixels from one output pixel to the next, and pads at most 255. A copy from global
memory with a stride has no such limits: it takes the pixels that a tap reads alone, and puts them side by
side.
"""

from __future__ import annotations

from typing import NamedTuple

from ascendsim.cube.im2col import Window
from ascendsim.cube.movers import PLAIN
from ascendsim.ops.problems.sliding import ImageTile, Sliding
from ascendsim.ops.problems.strips import Strips
from ascendsim.ops.problems.taps import Taps


class Line(NamedTuple):
    """What outputs `first` to `last` along one axis read under one tap.

    pad      outputs before the first that reads a pixel
    length   outputs that read one
    source   these pixels in the image; None: there are none
    """

    pad: int
    length: int
    source: slice | None


def line_read(sliding: Sliding, axis: int, first: int, last: int, tap: int) -> Line:
    """Return what a run of outputs along one axis reads under a tap."""
    step, at = sliding.stride[axis], tap * sliding.dilation[axis] - sliding.pad[axis]
    # Output i reads pixel i * step + at, if there is one.
    low = max(first, -(at // step))
    high = min(last, (sliding.image_size[axis] - 1 - at) // step)
    if low > high:
        return Line(0, 0, None)
    return Line(low - first, high - low + 1, slice(low * step + at, high * step + at + 1, step))


def lines_of(strips: Strips, first: int, pixels: int, tap: tuple[int, int]) -> tuple[Line, Line]:
    """Return what a run of pixels of a strip reads along H and along W; of several rows all columns."""
    strip = strips.strip(first)
    sliding, (top, left) = strips.sliding_of(strip), divmod(first - strip.first, strip.width)
    bottom, right = divmod(first + pixels - 1 - strip.first, strip.width)
    if bottom > top:
        left, right = 0, strip.width - 1
    return line_read(sliding, 0, top, bottom, tap[0]), line_read(sliding, 1, left, right, tap[1])


def tap_tile(strips: Strips, first: int, pixels: int, box: Taps) -> ImageTile:
    """Return the tile of a run of pixels under a box of one tap; what it does not hold is padding."""
    strip, sliding = strips.strip(first), strips.sliding
    rows, cols = lines_of(strips, first, pixels, (box.row, box.col))
    at = (first - strip.first) % strip.width
    alone = at + pixels <= strip.width
    width = pixels if alone else strip.width
    copied = rows.source is not None and cols.source is not None
    window = Window(
        *(box.channels, rows.length, cols.length, rows.pad, cols.pad, width),
        *((1, 1), (1, 1), (1, 1), sliding.c0),
    )
    pixel_bytes = box.channels * sliding.c0 * sliding.itemsize
    return ImageTile(
        window,
        0 if alone else at,
        rows.source if copied else None,
        cols.source if copied else None,
        PLAIN,
        not copied,
        rows.length * cols.length * pixel_bytes if copied else 0,
        max(1, rows.length * cols.length) * pixel_bytes,
    )
