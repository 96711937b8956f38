"""Turn a tile in UB from row after row into the cube's layout, or back."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from fractions import Fraction
from math import ceil, prod
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from ascendsim.instructions.vector import on_the_cube_clock, vector_cost
from ascendsim.program.instruction import WIDTH, Cost, SlotOntoSlot, SlotToSlot, Told
from ascendsim.program.places import Slot

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ascendsim.profile import Profile
    from ascendsim.program.places import CoreMemory

    Places = NDArray[np.int_]


class OntoDiagonal(NamedTuple):
    """The change of some groups' blocks into a part of a block-diagonal matrix in the cube's layout.

    The tile is (rows, columns of a block, depths, taps): row i is channel `row` + i of the small side of all
    merged groups, its columns are the channels of the big side in its own group. They land on the diagonal
    of a matrix whose side along C0 is the small side's channels (`reduces_small`) or the big side's. Of this
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


class Turn(NamedTuple):
    """How the axes of a tile change places.

    The tile is filled up with zeros to `padded` and seen as `split`, its axes are taken in the order `axes`;
    the result is seen as `merged`, of which the corner `kept` stays. The channels that a group lacks are
    zeros in the cube's layout, and are dropped on the way back.
    """

    padded: tuple[int, ...]
    split: tuple[int, ...]
    axes: tuple[int, ...]
    merged: tuple[int, ...]
    kept: tuple[int, ...]

    def turned(self, tile: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the tile with its axes changed."""
        import numpy as np

        box = tile
        if tile.shape != self.padded:
            box = np.zeros(self.padded, tile.dtype)
            box[tuple(map(slice, tile.shape))] = tile
        made = box.reshape(self.split).transpose(self.axes).reshape(self.merged)
        return made[tuple(map(slice, self.kept))]


AnyTurn = Turn | OntoDiagonal | OffDiagonal


class _TurnTile(NamedTuple):
    dst: Slot
    src: Slot
    turn: AnyTurn
    itemsize: int
    blocks: int
    loose: int


class TurnTile(_TurnTile, SlotToSlot):
    """Turn a tile in UB from row after row into the cube's layout, or back (TransDataTo5HD).

    `dst` may be `src`: then the tile is turned in place.

    `blocks` counts the blocks of 32 bytes that rows of pixels have, which begin at blocks. `loose` counts
    what is placed by itself: blocks of weights whose channels lie a kernel apart, rows that begin anywhere.

    Shapes   as `turn` says
    Pipe     V
    Cost     head + one transpose repeat for each 256 bytes, filled up, + pixel_block_cycles for each block
             + tap_block_cycles for all that is loose
    Source   AscendC TransDataTo5HD page: a command takes 16 rows of 32 bytes by their addresses
    """

    __slots__ = ()
    where: ClassVar[Mapping[str, str]] = {"dst": "UB", "src": "UB"}
    pipe = "V"

    @property
    def touched_bytes(self) -> tuple[int, ...]:
        """The tile as the repeats take it, filled up, and turned."""
        return (prod(self.turn.padded) * self.itemsize,) * 2

    @property
    def shape(self) -> Hashable:
        """A key of all values that the cost depends on."""
        return prod(self.turn.padded) * self.itemsize, self.blocks, self.loose

    @property
    def told(self) -> tuple[Told, ...]:
        """The tile that is turned has elements of so many bytes."""
        return (Told("itemsize", self.itemsize, (self.src,), WIDTH),)

    def execute(self, memory: CoreMemory) -> None:
        """Change the axes."""
        values = self.turn.turned(memory.tile(self.src))
        memory.new_tile(self.dst, values.shape)[...] = values

    def cost(self, profile: Profile) -> Cost:
        """Return the cycles of the repeats and the blocks."""
        vector = profile.vector
        size = prod(self.turn.padded) * self.itemsize
        apart = self.blocks * Fraction(vector.pixel_block_cycles)
        apart += self.loose * Fraction(vector.tap_block_cycles)
        cycles = vector.instruction_cycles("transpose", ceil(size / vector.bytes_per_cycle))
        return on_the_cube_clock(profile, cycles + ceil(apart))


class PieceToL1(SlotToSlot):
    """An instruction that copies a piece of `bytes` from UB to its place in a tile in L1."""

    __slots__ = ()
    pipe = "MTE3"
    bytes: int

    @property
    def touched_bytes(self) -> tuple[int, ...]:
        """The piece, out of UB and into L1."""
        return (self.bytes,) * 2

    @property
    def shape(self) -> Hashable:
        """A key of all values that the cost depends on."""
        return self.bytes

    @property
    def told(self) -> tuple[Told, ...]:
        """The piece has so many bytes."""
        return (Told("bytes", self.bytes, (self.src,), "bytes at least"),)

    def cost(self, profile: Profile) -> Cost:
        """Return the cycles of the path."""
        path = profile.paths["UB_L1"]
        return Cost(path.head_cycles + ceil(self.bytes / path.bytes_per_cycle), path.latency_cycles)


class _FractalsToL1(NamedTuple):
    dst: Slot
    src: Slot
    bytes: int
    tile_shape: tuple[int, int]
    begin: tuple[int, int]


class FractalsToL1(_FractalsToL1, PieceToL1):
    """Copy a piece of a matrix, turned into fractals in UB, to its place in a tile in L1.

    `begin` is its first row and column in the tile; the piece at (0, 0) comes first, and begins the tile.

    Shapes   `tile_shape` is (rows, columns) of the tile; fractals count in the cost alone
    Pipe     MTE3
    Cost     head + bytes / rate + latency of the path UB_L1
    """

    __slots__ = ()
    where: ClassVar[Mapping[str, str]] = {"dst": "L1", "src": "UB"}

    def execute(self, memory: CoreMemory) -> None:
        """Copy."""
        piece, (row, column) = memory.tile(self.src), self.begin
        first = self.begin == (0, 0)
        tile = memory.new_tile(self.dst, self.tile_shape) if first else memory.tile(self.dst)
        tile[row : row + piece.shape[0], column : column + piece.shape[1]] = piece


class _Rearrange(NamedTuple):
    dst: Slot
    src: Slot
    bytes: int


class Rearrange(_Rearrange, SlotToSlot):
    """Copy a tile in UB so that elements which lay in blocks of their own, or across rows, become neighbours.

    The carrier of a tile holds its elements in the order in which they are used, so only the cost is seen.

    Pipe     V
    Cost     head + one transpose repeat for each 256 of the `bytes` that the tile takes before
    Source   AscendC TransDataTo5HD and Transpose pages (blocks of 32 bytes)
    """

    __slots__ = ()
    where: ClassVar[Mapping[str, str]] = {"dst": "UB", "src": "UB"}
    pipe = "V"

    @property
    def touched_bytes(self) -> tuple[int, ...]:
        """The tile, before and after."""
        return (self.bytes,) * 2

    @property
    def shape(self) -> Hashable:
        """A key of all values that the cost depends on."""
        return self.bytes

    @property
    def told(self) -> tuple[Told, ...]:
        """Its tile takes so many bytes, filled up where elements lie in blocks of their own."""
        return (Told("bytes", self.bytes, (self.src,), "bytes at least"),)

    def execute(self, memory: CoreMemory) -> None:
        """Copy."""
        # Where bytes lie inside a tile is not modelled; a schedule that forgot this would be too fast, not
        # wrong.
        values = memory.tile(self.src)
        memory.new_tile(self.dst, values.shape)[...] = values

    def cost(self, profile: Profile) -> Cost:
        """Return the cycles of the repeats."""
        return vector_cost(profile, "transpose", ceil(self.bytes / profile.vector.bytes_per_cycle))


class _SpreadPixels(NamedTuple):
    dst: Slot
    src: Slot
    channels: int
    rows: int
    cols: int
    pixel_bytes: int
    first: tuple[int, int]
    step: tuple[int, int]


class SpreadPixels(_SpreadPixels, SlotOntoSlot):
    """Copy the pixels of `src` into a piece of zeros in UB, a step apart (Copy with a stride).

    `first` is the row and the column of the first of them, `step` how far they lie apart along both.

    Shapes   src (channels, rows, cols, C0), dst (channels, expanded rows, expanded cols, C0)
    Pipe     V
    Cost     a command for each row of each channel group: head + one unary repeat for each 256 bytes
    """

    __slots__ = ()
    where: ClassVar[Mapping[str, str]] = {"dst": "UB", "src": "UB"}
    pipe = "V"

    @property
    def touched_bytes(self) -> tuple[int, ...]:
        """Its pixels, read and written; the zeros between them are not touched."""
        size = self.channels * self.rows * self.cols * self.pixel_bytes
        return 0, size, size

    @property
    def shape(self) -> Hashable:
        """A key of all values that the cost depends on."""
        return self.channels * self.rows, self.cols * self.pixel_bytes

    @property
    def told(self) -> tuple[Told, ...]:
        """So many pixels are copied, of so many bytes."""
        size = self.channels * self.rows * self.cols * self.pixel_bytes
        return (Told("channels x rows x cols x pixel_bytes", size, (self.src,), "bytes"),)

    def execute(self, memory: CoreMemory) -> None:
        """Copy; what lies between keeps its zeros."""
        rows, cols = (
            slice(first, first + (count - 1) * step + 1, step)
            for first, count, step in zip(self.first, (self.rows, self.cols), self.step, strict=True)
        )
        memory.tile(self.dst)[:, rows, cols] = memory.tile(self.src)

    def cost(self, profile: Profile) -> Cost:
        """Return the cycles of all commands."""
        # A repeat takes 8 blocks of 32 bytes wherever they go, so the step between pixels costs nothing.
        repeats = ceil(self.cols * self.pixel_bytes / profile.vector.bytes_per_cycle)
        each = profile.vector.instruction_cycles("unary", repeats)
        return on_the_cube_clock(profile, self.channels * self.rows * each)


class _CopyUbToL1(NamedTuple):
    dst: Slot
    src: Slot
    bytes: int
    tile_shape: tuple[int, int, int, int]
    begin: tuple[int, int, int]
    first: bool


class CopyUbToL1(_CopyUbToL1, PieceToL1):
    """Copy a piece of an image tile, both (channels, rows, cols, C0), from UB to its place in L1.

    `begin` is the first channel group, row and column of the piece in the tile. The `first` piece begins the
    tile; im2col reads the row of zeros at its end.

    Pipe     MTE3
    Cost     head + bytes / rate + latency of the path UB_L1
    """

    __slots__ = ()
    where: ClassVar[Mapping[str, str]] = {"dst": "L1", "src": "UB"}

    def tile_bytes(self, shape: tuple[int, ...], width: int) -> int:
        """Return its bytes, without the row of zeros behind an image."""
        return (prod(shape) - shape[-1]) * width

    def execute(self, memory: CoreMemory) -> None:
        """Copy."""
        piece, (*extent, c0) = memory.tile(self.src), self.tile_shape
        flat = prod(extent) + 1, c0
        tile = memory.new_tile(self.dst, flat) if self.first else memory.tile(self.dst)
        tile[-1] = 0
        image = tile[:-1].reshape(self.tile_shape)
        box = tuple(slice(at, at + size) for at, size in zip(self.begin, piece.shape, strict=False))
        image[box] = piece
