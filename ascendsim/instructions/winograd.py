"""Winograd's F(2x2, 3x3) turned round for grad_weight: nine taps of 2 x 2 pixels by 16 products, not 36.

Along one axis a tile is two pixels of the small side (grad_output) and the four of the big side (input) that
three taps bring together. Both are transformed to four points, the products at each point are summed over all
tiles, and three taps are made of the four sums. In a plane a tile is transformed down its columns first, then
along its rows: the order shows in the bits, since every sum is rounded.

The instructions work on tiles in UB: pixels to points, and sums at points to taps. The lines of arithmetic
take anything that adds: exact fractions, float32 numbers, or float32 arrays of many tiles.

Source   public ops-nn at e5c3fa932, as read: the Winograd kernel of grad_weight of 910_95
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from math import ceil, prod
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

import numpy as np

from ascendsim.instructions.vector import FLOAT32_LANES, on_the_cube_clock
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.numerics.dtypes import FLOAT32_BYTES
from ascendsim.program.instruction import Command, Cost, SlotToSlot, Told
from ascendsim.program.places import Slot

if TYPE_CHECKING:
    from ascendsim.profile import Profile
    from ascendsim.program.places import CoreMemory


# Points along one axis, pixels of a tile on the small side, pixels of it on the big side, and taps.
POINTS: Final = 4
PIXELS: Final = 2
WINDOW: Final = 4
TAPS: Final = 3

Line = Callable[..., tuple[Any, ...]]


@default_arithmetic
def small_line(s0: Any, s1: Any) -> tuple[Any, ...]:
    """Bring two pixels of the small side to four points."""
    return s0, s0 + s1, s0 - s1, -s1


@default_arithmetic
def big_line(s0: Any, s1: Any, s2: Any, s3: Any) -> tuple[Any, ...]:
    """Bring four pixels of the big side to four points."""
    return s0 - s2, s1 + s2, s2 - s1, s1 - s3


@default_arithmetic
def taps_line(s0: Any, s1: Any, s2: Any, s3: Any) -> tuple[Any, ...]:
    """Make three taps of the sums at four points."""
    half = (s1 + s2) / 2
    return s0 + half, (s1 - s2) / 2, half + s3


@default_arithmetic
def in_plane(line: Line, tile: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Return a tile, row by row, taken through a line down its columns, then along its rows.

    Shapes   2 x 2 (`small_line`) or 4 x 4 (`big_line`) -> 4 x 4 points; 4 x 4 points (`taps_line`) -> 3 x 3
    """
    columns = [line(*column) for column in zip(*tile, strict=True)]
    return [line(*row) for row in zip(*columns, strict=True)]


# Sums, copies and changes of sign of one tile: of a line times the columns, then times the rows it goes
# along. Columns of the small side leave s0 where it is; its rows write all four points.
SMALL_STEPS: Final = 3 * PIXELS + 4 * POINTS
BIG_STEPS: Final = 4 * WINDOW + 4 * POINTS
# Each line to taps takes two sums, two halvings and two sums more.
TAPS_STEPS: Final = 6 * POINTS + 6 * TAPS


class _ToPoints(NamedTuple):
    dst: Slot
    src: Slot
    small: bool
    tile_shape: tuple[int, int, int, int]
    tiles: tuple[int, int]
    begin: tuple[int, int]


class ToPoints(_ToPoints, SlotToSlot):
    """Bring the tiles of a cluster from pixels to points.

    `tile_shape` is the shape of `src`: the pixels that the image has. `tiles` are the rows and columns of
    tiles, `begin` the row and the column at which the pixels of the image begin in the window that the tiles
    read; the rest of it is zero. `small` says which side it is: tiles of 2 x 2 side by side, or of 4 x 4 two
    pixels apart.

    Shapes   src (channel groups, rows, columns, C0) -> dst (channel groups, points, tiles, C0)
    Types    float32; each sum rounded to nearest even, columns first
    Pipe     V
    Cost     one vector function: a head and, for each step of a tile, a binary repeat for each 64 elements;
             where the window reaches beyond the image, another for each 64 elements of it, to clear it
    """

    __slots__ = ()
    where: ClassVar[Mapping[str, str]] = {"dst": "UB", "src": "UB"}
    pipe = "V"

    @property
    def touched_bytes(self) -> tuple[int, ...]:
        """The pixels and the points, in float32."""
        groups, *_, c0 = self.tile_shape
        points = groups * POINTS * POINTS * self.tiles[0] * self.tiles[1] * c0
        return FLOAT32_BYTES * prod(self.tile_shape), FLOAT32_BYTES * points

    @property
    def shape(self) -> Hashable:
        """A key of all values that the cost depends on."""
        return self.small, self.tile_shape[0], self.tile_shape[3], self.tiles, self._cleared

    @property
    def window(self) -> tuple[int, int]:
        """Rows and columns of pixels that the tiles read."""
        more = 0 if self.small else WINDOW - PIXELS
        return self.tiles[0] * PIXELS + more, self.tiles[1] * PIXELS + more

    @property
    def _cleared(self) -> bool:
        """Whether some of the window lies outside of the image."""
        return self.tile_shape[1:3] != self.window

    @property
    def told(self) -> tuple[Told, ...]:
        """Its pixels have the shape that it says."""
        return (Told("tile_shape", prod(self.tile_shape), (self.src,)),)

    def execute(self, memory: CoreMemory) -> None:
        """Put the pixels into their window and take all tiles through the lines at once."""
        groups, height, width, c0 = self.tile_shape
        window = np.zeros((groups, *self.window, c0), np.float32)
        down, right = self.begin
        window[:, down : down + height, right : right + width] = memory.tile(self.src)
        size, line = (PIXELS, small_line) if self.small else (WINDOW, big_line)
        # Element (i, j) of all tiles is every second pixel from there on.
        ends = [PIXELS * (count - 1) + 1 for count in self.tiles]
        tile = [
            [window[:, i : i + ends[0] : PIXELS, j : j + ends[1] : PIXELS] for j in range(size)]
            for i in range(size)
        ]
        points = memory.new_tile(self.dst, (groups, POINTS * POINTS, self.tiles[0] * self.tiles[1], c0))
        for i, row in enumerate(in_plane(line, tile)):
            for j, values in enumerate(row):
                points[:, POINTS * i + j] = values.reshape(groups, -1, c0)

    def cost(self, profile: Profile) -> Cost:
        """Return the cycles of the repeats."""
        groups, *_, c0 = self.tile_shape
        rows, columns = self.tiles
        repeats = ceil(groups * rows * columns * c0 / FLOAT32_LANES)
        repeats *= SMALL_STEPS if self.small else BIG_STEPS
        if self._cleared:
            repeats += ceil(groups * self.window[0] * self.window[1] * c0 / FLOAT32_LANES)
        return on_the_cube_clock(profile, profile.vector.instruction_cycles("binary", repeats))


class _ToTaps(NamedTuple):
    dst: Slot
    sums: tuple[Slot, ...]
    rows: int
    columns: int
    c0: int
    turned: bool


class ToTaps(_ToTaps, Command):
    """Bring sums at 16 points to nine taps, in the layout of weights.

    Shapes   sums (rows, columns) each -> dst (rows, columns / C0 * 9 * C0), groups of C0 columns with all
             their taps; `turned`: columns and rows change places first
    Types    float32; each sum rounded to nearest even, columns first
    Pipe     V
    Cost     one vector function: a head and, for each step, a binary repeat for each 64 elements; turned, a
             transpose repeat for each 64 taps as well
    """

    __slots__ = ()
    pipe = "V"

    @property
    def reads(self) -> tuple[Slot, ...]:
        """The sums at all points."""
        return self.sums

    @property
    def writes(self) -> tuple[Slot, ...]:
        """The taps."""
        return (self.dst,)

    @property
    def touched_bytes(self) -> tuple[int, ...]:
        """The sums at all points and the taps, in float32."""
        size = FLOAT32_BYTES * self.rows * self.columns
        return (*[size] * len(self.sums), TAPS * TAPS * size)

    @property
    def shape(self) -> Hashable:
        """A key of all values that the cost depends on."""
        return self.rows * self.columns, self.turned

    @property
    def told(self) -> tuple[Told, ...]:
        """All sums have so many elements."""
        return (Told("rows x columns", self.rows * self.columns, self.sums),)

    def execute(self, memory: CoreMemory) -> None:
        """Take all sums through the lines at once."""
        sums = [memory.tile(slot) for slot in self.sums]
        points = [sums[at : at + POINTS] for at in range(0, len(sums), POINTS)]
        taps = np.stack([values for row in in_plane(taps_line, points) for values in row])
        ordered = taps.transpose(2, 0, 1) if self.turned else taps.transpose(1, 0, 2)
        rows, count, columns = ordered.shape
        grouped = ordered.reshape(rows, count, columns // self.c0, self.c0).swapaxes(1, 2)
        memory.new_tile(self.dst, (rows, count * columns))[...] = grouped.reshape(rows, -1)

    def cost(self, profile: Profile) -> Cost:
        """Return the cycles of the repeats."""
        repeats = ceil(self.rows * self.columns / FLOAT32_LANES)
        cycles = profile.vector.instruction_cycles("binary", TAPS_STEPS * repeats)
        if self.turned:
            cycles += profile.vector.instruction_cycles("transpose", TAPS * TAPS * repeats)
        return on_the_cube_clock(profile, cycles)
