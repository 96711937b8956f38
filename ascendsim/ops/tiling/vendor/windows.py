"""Rows and channels of an image that a piece of the product needs in L1."""

from __future__ import annotations

from ascendsim.ops.tiling.vendor.layer import Layer, ceil_div


def rows_touched(pixels: int, width: int) -> int:
    """Return the most rows of so many pixels that a run of consecutive ones touches, cut at its multiples."""
    if pixels % width == 0 or width % pixels == 0:
        return ceil_div(pixels, width)
    return pixels // width + 2 if pixels > width else 2


def dgrad_rows(layer: Layer, pixels: int) -> int:
    """Return the rows of grad_output, zeros inserted, that so many pixels of grad_input need."""
    expanded = (layer.output[1] - 1) * layer.stride[1] + 1
    return min(rows_touched(pixels, layer.input[2]) - 1 + layer.spans[1], expanded)


def wgrad_rows(layer: Layer, pixels: int) -> int:
    """Return the rows of input that so many pixels of grad_output need under the kernel."""
    rows = rows_touched(pixels, layer.output[2])
    return (rows - 1) * layer.stride[1] + layer.spans[1]


def wgrad_channels(columns: int, taps: int, c0: int) -> int:
    """Return the channels of input that so many columns of im2col need.

    Columns are (channel group, tap, channel): a run of them that begins inside a window ends in another one.
    """
    groups = ceil_div(columns, c0)
    lines = ceil_div(groups, taps)
    cut = taps % groups if taps > groups else 2 * groups % taps
    return (lines + (cut != 0)) * c0
