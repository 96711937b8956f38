"""The view of load3d: the patches of an image tile as the rows of a matrix, gathered on the fly."""

from __future__ import annotations

from collections.abc import Hashable
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ascendsim.cube.load3d import FRACTAL_BYTES, FRACTAL_ROWS, load3d_cycles

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.profile import Profile
    from ascendsim.program.memory import CoreMemory

# Of the reduction in a row of a fractal.
ROW_BYTES = FRACTAL_BYTES // FRACTAL_ROWS


class Window(NamedTuple):
    """An image tile in L1 and its place in a convolution.

    The tile holds `channels` groups of C0 channels, `rows` x `cols` pixels each. Output pixel (y, x) under
    tap (i, j) reads tile pixel (y * stride_h + i * dilation_h - top, x * stride_w + j * dilation_w - left);
    outside the tile it reads zero. `out_width` is the number of output pixels in one row.
    """

    channels: int
    rows: int
    cols: int
    top: int
    left: int
    out_width: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    c0: int

    @property
    def tile_shape(self) -> tuple[int, int]:
        """Shape of the flat tile: one row of C0 values for each pixel, and a last row of zeros."""
        # Flat, so that a pixel is one row and gathering it takes one index.
        return self.channels * self.rows * self.cols + 1, self.c0


class Im2col(NamedTuple):
    """load3d: output pixels `first_pixel` ... as rows, (channel group, tap, c0) `first_group` ... as columns.

    Shapes   tile (channels * rows * cols + 1, C0), last row zero -> (pixels, groups * C0)
    """

    window: Window
    first_pixel: int
    pixels: int
    first_group: int
    groups: int
    itemsize: int

    @property
    def shape(self) -> Hashable:
        """All that the cost depends on."""
        # The kernel is not part of it: a patch is gathered at one rate wherever its pixels lie. The place in
        # the row is, since it decides which fractals go over the end of a row.
        w = self.window
        offset = self.first_pixel % w.out_width
        return ("im2col", offset, self.pixels, self.groups, w.out_width, w.stride[1], w.c0, self.itemsize)

    def matrix(self, memory: CoreMemory, tile: NDArray[np.float32], out: NDArray[np.float32]) -> None:
        """Gather the patches of `tile` into `out`."""
        # The same read comes in task after task and on every core; its indices are found once.
        index = memory.shared.get(self)
        if index is None:
            index = memory.shared[self] = _patch_index(self)
        # All indices are inside; "clip" only spares numpy the copy of `out` that it makes to raise safely.
        tile.take(index, axis=0, out=out.reshape(self.pixels, self.groups, self.window.c0), mode="clip")

    def matrix_shape(self) -> tuple[int, int]:
        """Rows and columns of the matrix."""
        return self.pixels, self.groups * self.window.c0

    def cycles(self, profile: Profile, buffer: str) -> Fraction:
        """Cycles of load3d: fractals of 16 pixels at the rate of the output rows they span, and commands."""
        w = self.window
        run = self.first_pixel % w.out_width, self.pixels, w.out_width
        # Several taps of a few channels share the 32 bytes of a row of a fractal.
        groups = -(-self.groups * w.c0 * self.itemsize // ROW_BYTES)
        return load3d_cycles(profile, buffer, w.stride[1], run, groups, self.itemsize)

    def load2d_commands(self, profile: Profile) -> int:
        """None: it is load3d."""
        del profile
        return 0


def _patch_index(patches: Im2col) -> NDArray[np.intp]:
    """Return, for every (pixel, group), the row of the flat tile that holds its C0 channels."""
    w = patches.window
    pixel = np.arange(patches.first_pixel, patches.first_pixel + patches.pixels)
    group = np.arange(patches.first_group, patches.first_group + patches.groups)
    channel, tap = np.divmod(group, w.kernel[0] * w.kernel[1])
    tap_row, tap_col = np.divmod(tap, w.kernel[1])
    row = (pixel // w.out_width * w.stride[0])[:, None] + (tap_row * w.dilation[0] - w.top)[None, :]
    col = (pixel % w.out_width * w.stride[1])[:, None] + (tap_col * w.dilation[1] - w.left)[None, :]
    # Padding is not in the tile: what lies outside is read from the row of zeros behind the last pixel.
    inside = (row >= 0) & (row < w.rows) & (col >= 0) & (col < w.cols)
    flat: NDArray[Any] = (channel[None, :] * w.rows + row) * w.cols + col
    return np.where(inside, flat, w.channels * w.rows * w.cols).astype(np.intp)
