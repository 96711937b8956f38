"""Views: how a tile in L1 is read as a matrix on its way to L0A or L0B.

Four ways to read: `Im2col` (load3d: im2col on the fly), `TapRows` (load2d over weights, taps forwards or
backwards), `Transposed` (channels become rows) and `Submatrix` (a part of a plain matrix). A read knows the
matrix it makes, what moving it takes, and how many load2d commands that is (0: load3d, whose commands are in
its cycles); which buffer it feeds decides the rate.

The cube takes whole fractals of 512 bytes: 16 rows (of L0B columns) by 32 bytes of the reduction. So all
cycles here are reckoned in fractals, and what a matrix lacks to a whole one is moved all the same.
"""

from __future__ import annotations

from collections.abc import Hashable
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ascendsim.cube.im2col import ROW_BYTES, Im2col
from ascendsim.cube.load3d import FRACTAL_ROWS, load3d_cycles

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.profile import Profile
    from ascendsim.program.memory import CoreMemory


class TapRows(NamedTuple):
    """load2d over weights: rows are (channel group, tap, c0), the last tap first if `backwards`.

    grad_input is a convolution with the kernel turned round, so it takes the taps backwards.

    Shapes   tile (channels * taps, C0 * columns) -> (groups * C0, columns)
    """

    taps: int
    backwards: bool
    first_group: int
    groups: int
    c0: int
    columns: int
    itemsize: int

    @property
    def shape(self) -> Hashable:
        """All that the cost depends on."""
        return ("tap rows", self.groups, self.c0, self.columns, self.itemsize, self.backwards, self.taps == 1)

    def matrix(self, memory: CoreMemory, tile: NDArray[np.float32], out: NDArray[np.float32]) -> None:
        """Copy the rows of the taps in the order of the reduction."""
        index = memory.shared.get(self)
        if index is None:
            group = np.arange(self.first_group, self.first_group + self.groups)
            tap = group % self.taps
            taken = self.taps - 1 - tap if self.backwards else tap
            # The tap is turned round inside its channel group; the group stays.
            index = memory.shared[self] = group - tap + taken
        tile.take(index, axis=0, out=out.reshape(self.groups, -1), mode="clip")

    def matrix_shape(self) -> tuple[int, int]:
        """Rows and columns of the matrix."""
        return self.groups * self.c0, self.columns

    def cycles(self, profile: Profile, buffer: str) -> Fraction:
        """Cycles of the data, whole fractals at the path's rate, and of turning over blocks of weights."""
        elements = self._rows * round_up(self.columns, FRACTAL_ROWS)
        data = Fraction(elements * self.itemsize) / profile.paths[f"L1_{buffer}"].bytes_per_cycle
        if not self.backwards:
            return data
        # Backwards, rows and columns of the weights as they lie change places, block by block. Two slices of
        # 8 channels share a block, so that each pays for half of its command.
        blocks = Fraction(elements, FRACTAL_ROWS * FRACTAL_ROWS)
        return data + blocks * profile.load2d.turned_block_cycles

    def load2d_commands(self, profile: Profile) -> int:
        """One, as the rows follow each other; one for each tap of each group if they are taken backwards.

        Where each block of weights has a command of its own, those are in the cycles.
        """
        # A command goes forwards from fractal to fractal, so backwards each tap takes one of its own.
        # None turns round taps that share a fractal: they lie so in L1.
        whole = self.c0 * self.itemsize >= ROW_BYTES
        each = self.backwards and self.taps > 1 and whole and not profile.load2d.turned_block_cycles
        return self.groups if each else 1

    @property
    def _rows(self) -> int:
        """Rows of the matrix, in whole fractals."""
        return round_up(self.groups * self.c0, ROW_BYTES // self.itemsize)


class Transposed(NamedTuple):
    """Channels become rows, pixels `first_pixel` ... become columns: load2d with transpose, or load3d.

    Channels are groups of C0, those from `first_channel` on.

    In grad_weight the reduction is over pixels, so grad_output is needed with its pixels as columns. Of these
    the first lies at `place` in a row of `width` pixels of the image (0: all pixels are one row).

    Shapes   tile (channels, pixels of the tile, C0) -> (channels * C0, pixels)
    """

    channels: int
    first_pixel: int
    pixels: int
    c0: int
    itemsize: int
    place: int = 0
    width: int = 0
    first_channel: int = 0

    @property
    def shape(self) -> Hashable:
        """All that the cost depends on."""
        return ("transposed", self.channels, self.pixels, self.c0, self.itemsize, self.place, self.width)

    def matrix(self, memory: CoreMemory, tile: NDArray[np.float32], out: NDArray[np.float32]) -> None:
        """Copy the pixels of every channel into a row."""
        del memory
        channels = slice(self.first_channel, self.first_channel + self.channels)
        part = tile[channels, self.first_pixel : self.first_pixel + self.pixels]
        out.reshape(self.channels, self.c0, self.pixels)[...] = part.transpose(0, 2, 1)

    def matrix_shape(self) -> tuple[int, int]:
        """Rows and columns of the matrix."""
        return self.channels * self.c0, self.pixels

    def cycles(self, profile: Profile, buffer: str) -> Fraction:
        """Cycles of load2d's data, whole fractals at the path's rate, or those of load3d over one tap."""
        if profile.load3d[buffer].transposes:
            run = self.place, self.pixels, self.width or self.place + self.pixels
            law = profile.load3d[buffer]
            turned: Fraction = law.turned(-(-self.pixels // FRACTAL_ROWS) * self.channels, self.itemsize)
            if turned:
                return turned + law.command_cycles
            return load3d_cycles(profile, buffer, 1, run, self.channels, self.itemsize)
        elements = self.channels * self.c0 * round_up(self.pixels, FRACTAL_ROWS)
        return Fraction(elements * self.itemsize) / profile.paths[f"L1_{buffer}"].bytes_per_cycle

    def load2d_commands(self, profile: Profile) -> int:
        """One for each group of channels or each fractal of pixels, none where load3d turns them over."""
        # Both ends of this path are on L0A: grad_output is the left matrix.
        if profile.load3d["L0A"].transposes:
            return 0
        # A command repeats at one step, through the pixels of a group or from group to group: whichever
        # leaves the fewest commands.
        return min(self.channels, -(-self.pixels // FRACTAL_ROWS))


class Submatrix(NamedTuple):
    """Rows `first_row` ... and columns `first_column` ... of a plain matrix, or of the transpose of the tile.

    Shapes   tile (all rows, all columns), or the other way round if `transposed` -> (rows, columns)
    """

    first_row: int
    rows: int
    first_column: int
    columns: int
    transposed: bool
    itemsize: int

    @property
    def shape(self) -> Hashable:
        """All that the cost depends on."""
        return ("submatrix", self.rows, self.columns, self.transposed, self.itemsize)

    def matrix(self, memory: CoreMemory, tile: NDArray[np.float32], out: NDArray[np.float32]) -> None:
        """Copy the part."""
        del memory
        whole = tile.T if self.transposed else tile
        rows = slice(self.first_row, self.first_row + self.rows)
        out[...] = whole[rows, self.first_column : self.first_column + self.columns]

    def matrix_shape(self) -> tuple[int, int]:
        """Rows and columns of the matrix."""
        return self.rows, self.columns

    def cycles(self, profile: Profile, buffer: str) -> Fraction:
        """Cycles of the data: whole fractals, 16 rows or columns by 32 bytes of the reduction.

        L0A holds its matrix row by row and L0B column by column, so L0B turns over what is not transposed.
        """
        reduction, other = (self.columns, self.rows) if buffer == "L0A" else (self.rows, self.columns)
        size = round_up(reduction * self.itemsize, ROW_BYTES) * round_up(other, FRACTAL_ROWS)
        path = profile.paths[f"L1_{buffer}"]
        turned = self.transposed == (buffer == "L0A")
        slower = path.transposing_bytes_per_cycle
        return Fraction(size) / (slower if turned and slower else path.bytes_per_cycle)

    def load2d_commands(self, profile: Profile) -> int:
        """None: matmul kernels fetch a whole part with one load3d."""
        del profile
        return 0


TileRead = Im2col | TapRows | Transposed | Submatrix


def round_up(value: int, step: int) -> int:
    """Return the smallest multiple of `step` that is not below `value`."""
    return -(-value // step) * step
