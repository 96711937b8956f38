"""grad_input by rows of taps, or by single taps: the steps of each pass, for the tiles that take it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ascendsim.ops.problems.sliding import Taps

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.ops.problems.sliding import Sliding
    from ascendsim.ops.schedules.base import DgradOrder

    Places = NDArray[np.int64]


class Steps(NamedTuple):
    """Some steps of a reduction at one kernel depth, in order: their numbers, and the lengths of Mmads.

    Numbers are those in (channel group, tap, channel), the order without passes.
    """

    numbers: Places
    mmads: Places


def steps_of_tile(
    sliding: Sliding, order: DgradOrder, channel_groups: int, tile: tuple[int, int]
) -> list[Steps]:
    """Return the steps of each part of the reduction for a tile (first pixel, pixels); [] if it has none."""
    rows, cols = sliding.kernel
    whole = np.arange(channel_groups * rows * cols * order.c0).reshape(channel_groups, rows * cols, order.c0)
    passes = list(_passes(order.tap_loop, rows, cols))
    met = [sliding.tile(*tile, taps).rows is not None for taps in passes]
    found, channel = [], 0
    for slices in order.runs() if any(met) else []:
        last = channel + sum(slices) // (rows * cols)
        numbers, mmads = [], []
        for taps, own, taken in zip(passes, _cut(slices, len(passes)), met, strict=True):
            if taken:
                first = taps.row * cols + taps.col
                numbers.append(whole[channel:last, first : first + taps.cols].reshape(-1))
                mmads.append(np.array(own) * order.c0)
        found.append(Steps(np.concatenate(numbers), np.concatenate(mmads)))
        channel = last
    return found


def _passes(tap_loop: str, rows: int, cols: int) -> Iterator[Taps]:
    """Yield the taps of each pass, of one channel group."""
    for row, col in product(range(rows), range(cols) if tap_loop == "khkw" else (0,)):
        yield Taps(0, 1, row, 1, col, 1 if tap_loop == "khkw" else cols)


def _cut(slices: Sequence[int], passes: int) -> list[list[int]]:
    """Return the slices of each pass: all passes of a part are equally long."""
    each = sum(slices) // passes
    found: list[list[int]] = [[]]
    for length in slices:
        if sum(found[-1]) == each:
            found.append([])
        found[-1].append(length)
    return found
