"""What one tap of a kernel reads of an image, brought together by the copy: a pixel for each output pixel.

load3d steps at most 63 pixels from one output pixel to the next, and pads at most 255. A copy from global
memory with a stride has no such limits: it takes the pixels that a tap reads alone, and puts them side by
side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ascendsim.cube.im2col import Window
from ascendsim.cube.movers import PLAIN
from ascendsim.ops.problems.sliding import ImageTile, Sliding
from ascendsim.ops.problems.strips import Strips
from ascendsim.ops.problems.taps import Taps

if TYPE_CHECKING:
    from ascendsim.ops.problems.strips import Numbers


class Line(NamedTuple):
    """What outputs `first` to `last` along one axis read under one tap.

    pad      outputs before the first that reads a pixel
    length   outputs that read one
    source   these pixels in the image; None: there are none
    """

    pad: int
    length: int
    source: slice | None


class Lines(NamedTuple):
    """The same for some runs, a row each, under all taps of an axis, a column each.

    `source` is the first of the pixels in the image; of no pixels any.
    """

    pad: Numbers
    length: Numbers
    source: Numbers


def line_read(sliding: Sliding, axis: int, first: int, last: int, tap: int) -> Line:
    """Return what a run of outputs along one axis reads under a tap."""
    run = np.array([[first]]), np.array([[last]])
    pad, length, source = (int(found[0, 0]) for found in _reads(sliding, axis, *run, np.array([tap])))
    step = sliding.stride[axis]
    return Line(pad, length, slice(source, source + (length - 1) * step + 1, step) if length else None)


def lines_read(sliding: Sliding, axis: int, first: Numbers, last: Numbers) -> Lines:
    """Return what some runs of outputs along one axis read under each of its taps."""
    return _reads(sliding, axis, first[:, None], last[:, None], np.arange(sliding.kernel[axis]))


def _reads(sliding: Sliding, axis: int, first: Numbers, last: Numbers, tap: Numbers) -> Lines:
    step, at = sliding.stride[axis], tap * sliding.dilation[axis] - sliding.pad[axis]
    # Output i reads pixel i * step + at, if there is one.
    low = np.maximum(first, -(at // step))
    length = np.minimum(last, (sliding.image_size[axis] - 1 - at) // step) - low + 1
    return Lines(np.where(length > 0, low - first, 0), np.maximum(length, 0), low * step + at)


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
