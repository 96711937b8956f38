"""What the base blocks of a wgrad and the runs of their reduction are told by."""

from __future__ import annotations

from typing import NamedTuple

from ascendsim.ops.schedules.wgrad.columns import Columns


class PixelRange(NamedTuple):
    """A run of pixels of one image that one pair of L1 tiles serves."""

    image: int
    first_pixel: int
    pixels: int


class Segment(NamedTuple):
    """A run of the reduction that lies in one pair of L1 tiles: pixels, at a depth of either side."""

    small_depth: int
    big_depth: int
    range: PixelRange


class Task(NamedTuple):
    """One base block over one part of the reduction."""

    group: int
    depth: int
    part: int
    first_row: int
    rows: int
    columns: Columns


def segment_of(pair: tuple[int, int], image: int, run: tuple[int, int]) -> Segment:
    """Return the run of the reduction at a pair of (small depth, big depth)."""
    small, big = pair
    return Segment(small, big, PixelRange(image, *run))
