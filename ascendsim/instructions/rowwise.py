"""Instructions of the vector core that reduce the rows of a tile of UB, or take one number for each row."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from math import ceil, inf
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

import numpy as np

from ascendsim.errors import ProgramError
from ascendsim.instructions.elementwise import BINARY, OnTiles, chosen, kind_of_repeat
from ascendsim.instructions.vector import BLOCK_BYTES, vector_cost
from ascendsim.numerics.dtypes import ELEMENTS, find
from ascendsim.program.instruction import WIDTH, Cost, SlotToSlot, Told
from ascendsim.program.places import Slot

if TYPE_CHECKING:
    from ascendsim.profile import Profile
    from ascendsim.program.places import CoreMemory

# What rows are reduced by, and what changes nothing then.
REDUCED: Final[Mapping[str, tuple[str, float]]] = {
    "Sum": ("Add", -0.0),
    "Max": ("Max", -inf),
    "Min": ("Min", inf),
}
REPEAT_BYTES: Final = 256


def in_repeat(dtype: str) -> int:
    """Return the elements of a format that a repeat covers."""
    return REPEAT_BYTES // find(dtype, ELEMENTS).itemsize


def in_block(dtype: str) -> int:
    """Return the elements of a format in a block of UB."""
    return BLOCK_BYTES // find(dtype, ELEMENTS).itemsize


def _of_format(dtype: str, *tiles: Slot) -> Told:
    return Told(f"dtype {dtype}", find(dtype, ELEMENTS).itemsize, tiles, WIDTH)


class _ReduceRows(NamedTuple):
    dst: Slot
    src: Slot
    scratch: Slot | None
    does: str
    rows: int
    columns: int
    dtype: str = "float32"


class ReduceRows(_ReduceRows, OnTiles):
    """Reduce each row of a tile to one number, as `does` says: Sum, Max or Min.

    Repeats of a row that is wider than one are combined first, from left to right, in `scratch`; then the
    lanes of the last one by halves.

    Shapes   src (rows, columns) -> dst (rows,); scratch (rows, 256 bytes), or None where a row is no wider
    Types    all of `dtype`; each sum rounds to it (the order inside WholeReduceSum is not published)
    Pipe     V
    Cost     for each repeat of a row but the first a binary instruction and the latency until its result is
             there; then one reduce repeat for each row, reduce_add or reduce_extreme
    Source   AscendC pages of WholeReduceSum, WholeReduceMax; pto-isa, TRowReduce: how wide rows are reduced,
             but for 64 x 128, 32 x 256, 16 x 512 and 8 x 1024 of float32: by groups there, not here
    """

    __slots__ = ()

    @property
    def reads(self) -> tuple[Slot, ...]:
        """The rows."""
        return (self.src,)

    @property
    def writes(self) -> tuple[Slot, ...]:
        """The numbers, and what they are made in."""
        return (self.dst,) if self.scratch is None else (self.dst, self.scratch)

    @property
    def told(self) -> tuple[Told, ...]:
        """It reads so many rows and columns of its format, and makes a number of each row."""
        read = Told("rows x columns", self.rows * self.columns, (self.src,))
        return read, Told("rows", self.rows, (self.dst,)), _of_format(self.dtype, self.src, self.dst)

    def execute(self, memory: CoreMemory) -> None:
        """Combine repeats, then halves.

        Raises   ProgramError for wide rows without a scratch tile
        """
        name, neutral = chosen(REDUCED, self.does)
        lanes = in_repeat(self.dtype)
        count = ceil(self.columns / lanes)
        if count > 1 and self.scratch is None:
            raise ProgramError(
                f"ReduceRows of {self.columns} columns of {self.dtype} has no scratch; a repeat covers "
                f"{lanes}: give it a slot of {self.rows * REPEAT_BYTES} bytes"
            )
        # Lanes beyond the end are masked on the device; what changes nothing stands in for them here.
        filled = np.full((self.rows, count * lanes), neutral, np.float32)
        filled[:, : self.columns] = memory.tile(self.src).reshape(self.rows, self.columns)
        first, *others = np.split(filled, count, axis=1)
        for other in others:
            first = memory.convert(BINARY[name](first, other), self.dtype)
        if self.scratch is not None:
            memory.new_tile(self.scratch, first.shape)[...] = first
        while first.shape[1] > 1:
            half = first.shape[1] // 2
            first = memory.convert(BINARY[name](first[:, :half], first[:, half:]), self.dtype)
        memory.new_tile(self.dst, (self.rows,))[...] = first[:, 0]

    def cost(self, profile: Profile) -> Cost:
        """Return the cycles of all repeats."""
        chosen(REDUCED, self.does)
        step, last = (vector_cost(profile, kind, self.rows) for kind in ("binary", self._kind(profile)))
        steps = ceil(self.columns / in_repeat(self.dtype)) - 1
        return Cost(steps * (step.cycles + step.latency_cycles) + last.cycles, last.latency_cycles)

    def _kind(self, profile: Profile) -> str:
        extreme = self.does != "Sum" and "reduce_extreme" in profile.vector.repeat_cycles
        return "reduce_extreme" if extreme else kind_of_repeat(profile, "", self.dtype, "reduce_add")

    def cost_unknown(self, profile: Profile) -> str:
        """Return that nobody has measured it, where that is so."""
        known = self.does == "Sum" or "reduce_extreme" in profile.vector.repeat_cycles
        return "" if known else f"{self.does} of rows on {profile.npu_arch}, here as Sum"


class _Brcb(NamedTuple):
    dst: Slot
    src: Slot
    rows: int
    dtype: str = "float32"


class Brcb(_Brcb, SlotToSlot):
    """Spread each number of a tile over a block of 32 bytes, as `BinaryRows` takes one for each row.

    Shapes   src (rows,) -> dst (rows, elements of a block)
    Types    both of `dtype`
    Pipe     V
    Cost     head + one unary repeat for each 8 blocks
    Source   AscendC Brcb page; MSKPP of a 910B1: VBRCB 1 cycle a repeat
    """

    __slots__ = ()
    where: ClassVar[Mapping[str, str]] = {"dst": "UB", "src": "UB"}
    pipe = "V"

    @property
    def shape(self) -> Hashable:
        """A key of all values that the cost depends on."""
        return self.rows

    @property
    def told(self) -> tuple[Told, ...]:
        """It reads so many numbers of its format."""
        return Told("rows", self.rows, (self.src,)), _of_format(self.dtype, self.src)

    def execute(self, memory: CoreMemory) -> None:
        """Spread."""
        numbers = memory.tile(self.src).reshape(self.rows, 1)
        memory.new_tile(self.dst, (self.rows, in_block(self.dtype)))[...] = numbers

    def cost(self, profile: Profile) -> Cost:
        """Return the cycles of the repeats."""
        return vector_cost(profile, "unary", ceil(self.rows * BLOCK_BYTES / REPEAT_BYTES))


class _BinaryRows(NamedTuple):
    dst: Slot
    a: Slot
    b: Slot
    does: str
    rows: int
    columns: int
    dtype: str = "float32"
    along: str = "rows"


class BinaryRows(_BinaryRows, OnTiles):
    """Combine each row of a tile with its own number, or all rows with one row, as `does` of `Binary` says.

    Along rows `b` has a block for each row, which `Brcb` makes and a block stride of 0 reads again and again;
    along columns it is one row, which a repeat stride of 0 reads again for each row.

    Shapes   a, dst (rows, columns); b (rows, elements of a block), `along` "columns": (columns,)
    Types    all of `dtype`; each result rounds once, to nearest even
    Pipe     V
    Cost     head + one binary repeat, of Div one divide repeat, for each 256 bytes begun of each row
    Source   AscendC BinaryRepeatParams page; pto-isa, TRowExpandBinOp
    """

    __slots__ = ()

    @property
    def told(self) -> tuple[Told, ...]:
        """Its tiles have so many rows and columns, and what is taken for each, of its format."""
        whole = Told("rows x columns", self.rows * self.columns, (self.a, self.dst))
        each = self.columns if self.along == "columns" else self.rows * in_block(self.dtype)
        return whole, Told(f"along {self.along}", each, (self.b,)), _of_format(self.dtype, *self.reads)

    def execute(self, memory: CoreMemory) -> None:
        """Combine."""
        each = memory.tile(self.b)
        each = each.reshape(self.rows, -1)[:, :1] if self.along == "rows" else each.reshape(1, self.columns)
        made = chosen(BINARY, self.does)(memory.tile(self.a).reshape(self.rows, self.columns), each)
        memory.new_tile(self.dst, made.shape)[...] = memory.convert(made, self.dtype)

    def cost(self, profile: Profile) -> Cost:
        """Return the cycles of the repeats."""
        chosen(BINARY, self.does)
        repeats = self.rows * ceil(self.columns / in_repeat(self.dtype))
        return vector_cost(profile, kind_of_repeat(profile, self.does, self.dtype, "binary"), repeats)

    def cost_unknown(self, profile: Profile) -> str:
        """Return the name of the conflicts of banks, which are not charged."""
        del profile
        return "conflicts of banks of UB where one operand is read again for each row"
