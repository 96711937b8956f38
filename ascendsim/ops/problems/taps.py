"""Boxes of (channel group, tap): how a reduction, or the columns of a filter, is cut for L1."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple


class Taps(NamedTuple):
    """A box of (channel group, kernel row, kernel column) that one tile in L1 serves."""

    channel: int
    channels: int
    row: int
    rows: int
    col: int
    cols: int

    @property
    def groups(self) -> int:
        """Number of (channel group, tap) pairs."""
        return self.channels * self.rows * self.cols


class Segment(NamedTuple):
    """A run of the reduction that lies in one left and one right tile in L1.

    `slices` are the (first group in the left tile, first group in the right tile, groups) of each Mmad.
    """

    left: Taps
    right: Taps
    slices: tuple[tuple[int, int, int], ...]


def even_slices(run: int, most: int) -> list[tuple[int, int]]:
    """Cut a run into the fewest (first, count) slices of at most `most`, as equal as they can be.

    Equal slices keep ping-pong going: a short slice between long ones would make every long one wait for the
    one before.
    """
    # Edges at run * part / count keep the lengths within one of each other, in an order that no rest spoils.
    count = -(-run // most)
    edges = [run * part // count for part in range(count + 1)]
    return [(first, last - first) for first, last in pairwise(edges)]


def segments_of(
    left: tuple[Taps, ...],
    right: tuple[Taps, ...],
    most: int,
    slices_of: Callable[[int, int], list[tuple[int, int]]] = even_slices,
) -> tuple[Segment, ...]:
    """Walk two cuts of one reduction side by side, in slices of at most `most` groups.

    The boxes of a cut are consecutive runs of the reduction, so a run ends where either box ends.
    """
    # Both cuts keep the order of the reduction, so one pass over both finds all runs. The order must not
    # change: the blocks of an accumulation model begin where Mmads begin.
    found = []
    at_left = at_right = done_left = done_right = 0
    while at_left < len(left):
        a, b = left[at_left], right[at_right]
        run = min(a.groups - done_left, b.groups - done_right)
        slices = tuple(
            (done_left + first, done_right + first, count) for first, count in slices_of(run, most)
        )
        found.append(Segment(a, b, slices))
        done_left, done_right = done_left + run, done_right + run
        if done_left == a.groups:
            at_left, done_left = at_left + 1, 0
        if done_right == b.groups:
            at_right, done_right = at_right + 1, 0
    return tuple(found)


def first_box(whole: Taps, elements: int, c0: int) -> Taps:
    """Return the first box of `cut_taps`, which is also its largest."""
    # In the order of the reduction a box that is not whole along one axis must have length 1 on all axes
    # before it: only then are the boxes consecutive runs. At least one tap, even where it is too much.
    budget = max(1, elements // c0)
    if budget >= whole.rows * whole.cols:
        return whole._replace(channels=min(whole.channels, budget // (whole.rows * whole.cols)))
    if budget >= whole.cols:
        return whole._replace(channels=1, rows=budget // whole.cols)
    return whole._replace(channels=1, rows=1, cols=budget)


def first_boxes(whole: Taps, slice_elements: int, c0: int) -> dict[int, Taps]:
    """Return the different first boxes of numbers of slices, each by the least number that cuts it."""
    step, box = 1, first_box(whole, slice_elements, c0)
    found = {step: box}
    while box.groups < whole.groups:
        # The next box has one kernel column more, else one row, else one channel group.
        inner = whole.rows * whole.cols if box.rows == whole.rows else whole.cols
        more = inner if box.cols == whole.cols else 1
        step = -(-(box.groups + more) * c0 // slice_elements)
        box = found[step] = first_box(whole, step * slice_elements, c0)
    return found


def cut_taps(whole: Taps, elements: int, c0: int) -> tuple[Taps, ...]:
    """Cut a box into boxes of at most so many reduction elements, in the order of the reduction.

    Whole channel groups where they fit, else whole kernel rows of one group, else a part of one row.
    """
    box = first_box(whole, elements, c0)
    return tuple(
        Taps(
            channel,
            min(box.channels, whole.channel + whole.channels - channel),
            row,
            min(box.rows, whole.row + whole.rows - row),
            col,
            min(box.cols, whole.col + whole.cols - col),
        )
        for channel in range(whole.channel, whole.channel + whole.channels, box.channels)
        for row in range(whole.row, whole.row + whole.rows, box.rows)
        for col in range(whole.col, whole.col + whole.cols, box.cols)
    )
