"""The phases of grad_input under a stride: each meets a kernel of its own, and no zeros are inserted.

An example: stride 2, 3 taps, padding 1. Pixel x of grad_input meets tap k if x + 1 - k is even: even pixels
meet the middle tap alone, odd ones the other two. So grad_input is two convolutions with kernels of 1 and 2
taps over grad_output as it is; each makes every second pixel.
"""

from __future__ import annotations

from typing import NamedTuple

from ascendsim.ops.problems.sliding import Pair, Sliding

# The axes that the stride splits -> whether H is one of them, whether W is.
AXES = {"h": (True, False), "hw": (True, True)}


class Phase(NamedTuple):
    """The output pixels `first`, `first` + `step`, ... along H and W, and how their kernel slides.

    sliding      the pixels of the phase, counted by themselves; its kernel has the taps that they meet
    rows, cols   which taps these are, in the kernel as it is stored
    """

    first: Pair
    step: Pair
    sliding: Sliding
    rows: slice
    cols: slice

    @property
    def taps(self) -> int:
        """Taps that a pixel meets; 0: its gradient is zero."""
        return self.sliding.kernel[0] * self.sliding.kernel[1]


class _Along(NamedTuple):
    """A phase along one axis."""

    first: int
    step: int
    made: int
    taps: int
    pad: int
    insert: int
    stored: slice


def phases_of(sliding: Sliding, axes: str) -> tuple[Phase, ...]:
    """Return the phases of a backward sliding, those along W the fastest.

    axes   "h" or "hw", along which the stride splits the kernel; there is no gap between taps along these
    """
    rows, cols = (_along(sliding, axis, split=split) for axis, split in enumerate(AXES[axes]))
    return tuple(
        Phase(
            (row.first, col.first),
            (row.step, col.step),
            sliding._replace(
                out_size=(row.made, col.made),
                kernel=(row.taps, col.taps),
                pad=(row.pad, col.pad),
                insert=(row.insert, col.insert),
            ),
            row.stored,
            col.stored,
        )
        for row in rows
        for col in cols
    )


def _along(sliding: Sliding, axis: int, *, split: bool) -> list[_Along]:
    """Return the phases along one axis; without a split there is one."""
    size, kernel, pad = sliding.out_size[axis], sliding.kernel[axis], sliding.pad[axis]
    stride = sliding.insert[axis]
    if not split:
        return [_Along(0, 1, size, kernel, pad, stride, slice(0, kernel))]
    found = []
    for first in range(min(stride, size)):
        # Pixel first + i * stride under tap t, of the kernel turned round, reads the expanded image at
        # first + i * stride + t - pad, which is a pixel if the stride divides it.
        tap = (pad - first) % stride
        taps = max(0, -(-(kernel - tap) // stride))
        last = kernel - 1 - tap
        stored = slice(last - stride * (taps - 1), last + 1, stride) if taps else slice(0, 0)
        made = -(-(size - first) // stride)
        found.append(_Along(first, stride, made, taps, (pad - first - tap) // stride, 1, stored))
    return found


def together(phases: tuple[Phase, ...]) -> Sliding:
    """Return what slides over all pixels that any of the phases reads, for as many pixels as each makes."""
    some = [phase.sliding for phase in phases if phase.taps]
    pads, kernels = [], []
    for axis in (0, 1):
        # Offsets of the first and the last tap from the pixel; with one phase along an axis they are its own.
        low = min(-own.pad[axis] for own in some)
        high = max(own.kernel[axis] - own.pad[axis] for own in some)
        pads.append(-low)
        kernels.append(high - low)
    return some[0]._replace(pad=(pads[0], pads[1]), kernel=(kernels[0], kernels[1]))
