"""Blocks of channels in UB, brought onto the diagonal of a matrix of zeros, or taken off it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Places = NDArray[np.int_]


class OntoDiagonal(NamedTuple):
    """How the blocks of some groups become a part of a block-diagonal matrix in the cube's layout.

    The tile is (rows, columns of a block, depths, taps): row i is channel `row` + i of the small side of all
    merged groups, its columns are the channels of the big side in its own group. They land on the diagonal
    of a matrix whose side along C0 is the small side's channels (`reduces_small`) or the big side's. Of that
    matrix the part `padded` is made, as (C1 * C0, columns, depths, taps) from `first` on, and given as
    (depths, C1, taps, C0, columns); what no block covers is zero.

    block   channels of one group: small side, big side
    """

    padded: tuple[int, ...]
    first: tuple[int, int]
    row: int
    block: tuple[int, int]
    c0: int
    reduces_small: bool

    def turned(self, tile: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the part of the matrix."""
        import numpy as np

        rows, columns, depths, taps = self.padded
        matrix = np.zeros(self.padded, tile.dtype)
        small, big = _places(self.row, tile.shape[0], self.block)
        down, across = (small, big) if self.reduces_small else (big, small)
        down, across = down - self.first[0], across - self.first[1]
        inside = (down >= 0) & (down < rows) & (across >= 0) & (across < columns)
        matrix[down[inside], across[inside]] = tile[inside]
        split = matrix.reshape(rows // self.c0, self.c0, columns, depths, taps)
        return split.transpose(3, 0, 4, 1, 2)


class OffDiagonal(NamedTuple):
    """How the blocks on the diagonal of some rows of a merged matrix are picked out.

    The tile is (depths, rows, C1, taps, C0), all columns of the rows from `row` on; the result holds the
    first `kept` rows as (rows, columns of a block, depths, taps).

    block   channels of one group: small side, big side
    """

    padded: tuple[int, ...]
    row: int
    block: tuple[int, int]
    kept: int

    def turned(self, tile: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the blocks."""
        depths, rows, groups, taps, c0 = self.padded
        matrix = tile.transpose(1, 2, 4, 0, 3).reshape(rows, groups * c0, depths, taps)
        small, big = _places(self.row, self.kept, self.block)
        return matrix[small - self.row, big]


def _places(row: int, rows: int, block: tuple[int, int]) -> tuple[Places, Places]:
    """Return row and column, on the small and the big side, of each element of the blocks of some rows."""
    import numpy as np

    small = np.arange(row, row + rows)[:, None] + np.zeros((1, block[1]), np.int_)
    return small, small // block[0] * block[1] + np.arange(block[1])
