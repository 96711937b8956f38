"""Instructions of the vector core that work element by element on one or two tiles of UB."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from math import ceil
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

import numpy as np

from ascendsim.instructions.vector import BLOCK_BYTES, on_the_cube_clock, vector_cost
from ascendsim.numerics.dtypes import ELEMENTS, find, itemsize_of
from ascendsim.program.instruction import WIDTH, Cost, SlotToSlot, Told, ToSlot
from ascendsim.program.places import Slot

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.profile import Profile
    from ascendsim.program.places import CoreMemory

# What is done to two elements; NaN where one of them is, as nobody has published more.
BINARY: Final[Mapping[str, Callable[..., Any]]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Max": np.maximum,
    "Min": np.minimum,
}


def _exp(values: NDArray[Any], scalar: Any) -> NDArray[Any]:
    """Return exponentials by way of float64, so that the one rounding left is that to the format."""
    del scalar
    return np.exp(values.astype(np.float64)).astype(np.float32)


# What is done to an element, with a number beside it but for Exp.
UNARY: Final[Mapping[str, Callable[..., Any]]] = {
    **{f"{name}s": BINARY[name] for name in ("Add", "Mul", "Max", "Min")},
    "Exp": _exp,
}


def _all_alike(tiles: tuple[Slot, ...], elements: int, dtype: str) -> tuple[Told, ...]:
    """Say that all tiles have so many elements of one format."""
    return Told("elements", elements, tiles), Told(
        f"dtype {dtype}", find(dtype, ELEMENTS).itemsize, tiles, WIDTH
    )


def _cost(profile: Profile, kind: str, elements: int, dtype: str) -> Cost:
    """Return the cycles of one repeat for each 256 bytes."""
    size = elements * find(dtype, ELEMENTS).itemsize
    return vector_cost(profile, kind, ceil(size / profile.vector.bytes_per_cycle))


def ub_cycles(sources: Sequence[UbOperand], target: UbOperand, repeats: int) -> int:
    """Return the cycles of some repeats of a binary instruction on a 910B, by the rules of its banks of UB.

    A repeat takes a cycle; or one for each row that is read from the group read most, or one for each access
    to the bank used most, where it writes what the repeat before has made.

    Source   samples of asc-devkit on bank conflicts: of its eight cases, all of which have been seen, 1 to 4,
             6 and 8 follow; 5 (an extra 50 cycles in 64 repeats, here 63) and 7 (44, here 32) do not
    """
    cycles = 0
    for repeat in range(repeats):
        rows = {row for source in sources for row in source.rows(repeat)}
        written = set(target.rows(repeat - 1)) if repeat else set()
        groups = Counter(row % UB_GROUPS for row in rows)
        banks = Counter((row % UB_GROUPS, row // BANK_LAYER_ROWS) for row in [*rows, *written])
        cycles += max(*groups.values(), *(banks[row % UB_GROUPS, row // BANK_LAYER_ROWS] for row in rows))
    return cycles


class UbOperand(NamedTuple):
    """Where an operand lies: its first byte, and its strides in blocks of 32 bytes."""

    at: int
    block_stride: int = 1
    repeat_stride: int = 8

    def rows(self, repeat: int) -> list[int]:
        """Return the eight rows of 32 bytes, counted through UB, that a repeat touches."""
        first = self.at // BLOCK_BYTES + repeat * self.repeat_stride
        return [first + block * self.block_stride for block in range(8)]


class _Cast(NamedTuple):
    dst: Slot
    src: Slot
    dtype: str
    elements: int
    source_bytes: int


class Cast(_Cast, SlotToSlot):
    """Convert a tile in UB to another format.

    `source_bytes` are those of one element before: 4 from float32 to float16.

    Pipe     V
    Cost     head + one cast repeat for each 256 bytes of the wider side
    Source   AscendC Cast page: float32 to float16 and bfloat16 round to nearest even (RINT)
    """

    __slots__ = ()
    where: ClassVar[Mapping[str, str]] = {"dst": "UB", "src": "UB"}
    pipe = "V"

    @property
    def touched_bytes(self) -> tuple[int, ...]:
        """The elements in both formats."""
        return self.elements * self.source_bytes, self.elements * itemsize_of(self.dtype)

    @property
    def shape(self) -> Hashable:
        """A key of all values that the cost depends on."""
        return self.elements, self.source_bytes, self.dtype

    @property
    def told(self) -> tuple[Told, ...]:
        """Both tiles have its elements, and those of the source so many bytes."""
        source = Told("source_bytes", self.source_bytes, (self.src,), WIDTH)
        return Told("elements", self.elements, (self.src, self.dst)), source

    def width(self, given: int, shape: tuple[int, ...]) -> int:
        """Return the bytes of an element of its format."""
        del given, shape
        return itemsize_of(self.dtype)

    def execute(self, memory: CoreMemory) -> None:
        """Round to the format's grid."""
        values = memory.convert(memory.tile(self.src), self.dtype)
        memory.new_tile(self.dst, values.shape)[...] = values

    def cost(self, profile: Profile) -> Cost:
        """Return the cycles of the repeats."""
        # A repeat covers 256 bytes of the wider side; the narrower one fills a part of its lanes.
        widest = max(self.source_bytes, itemsize_of(self.dtype))
        repeats = ceil(self.elements * widest / profile.vector.bytes_per_cycle)
        return vector_cost(profile, "cast", repeats)


# Of UB of a 910B, 48 banks of 4 KiB (AscendC page on bank conflicts): rows that follow each other lie in
# groups in turn; a group has a bank in each 64 KiB.
UB_GROUPS, BANK_LAYER_ROWS, BANKED_ARCH = 16, 2048, "2201"


class _Binary(NamedTuple):
    dst: Slot
    a: Slot
    b: Slot
    does: str
    elements: int
    dtype: str = "float32"


class Binary(_Binary, ToSlot):
    """Combine two tiles of UB element by element, as `does` says: Add, Sub, Mul, Max or Min.

    Shapes   all alike
    Types    all of `dtype`; each result rounds once, to nearest even
    Pipe     V
    Cost     head + one binary repeat for each 256 bytes; on a 910B, where all slots have
             addresses, what the banks of UB take (`ub_cycles`)
    Source   AscendC pages of Add, Sub, Mul, Max, Min
    """

    __slots__ = ()
    where: ClassVar[Mapping[str, str]] = {"dst": "UB", "a": "UB", "b": "UB"}
    pipe = "V"
    gm: ClassVar[None] = None

    @property
    def reads(self) -> tuple[Slot, ...]:
        """Both operands."""
        return self.a, self.b

    @property
    def shape(self) -> Hashable:
        """A key of all values that the cost depends on."""
        return self.elements, self.dtype, self._addresses

    @property
    def _addresses(self) -> tuple[int, ...]:
        """Where its tiles lie; nothing where one of them has no address."""
        found = self.a.at, self.b.at, self.dst.at
        return found if min(found) >= 0 else ()

    @property
    def told(self) -> tuple[Told, ...]:
        """All tiles have its elements, of its format."""
        return _all_alike((self.a, self.b, self.dst), self.elements, self.dtype)

    def execute(self, memory: CoreMemory) -> None:
        """Combine."""
        # A float32 sum, difference or product of narrower formats rounds again without harm: 24 bits are more
        # than twice theirs and two.
        made = BINARY[self.does](memory.tile(self.a), memory.tile(self.b))
        memory.new_tile(self.dst, made.shape)[...] = memory.convert(made, self.dtype)

    def cost(self, profile: Profile) -> Cost:
        """Return the cycles of the repeats."""
        vector, places = profile.vector, self._addresses
        if not places or profile.npu_arch != BANKED_ARCH:
            return _cost(profile, "binary", self.elements, self.dtype)
        repeats = ceil(self.elements * find(self.dtype, ELEMENTS).itemsize / vector.bytes_per_cycle)
        *sources, target = map(UbOperand, places)
        cycles = max(vector.least_cycles, vector.head_cycles + ub_cycles(sources, target, repeats))
        return on_the_cube_clock(profile, cycles)


class _Unary(NamedTuple):
    dst: Slot
    src: Slot
    does: str
    elements: int
    dtype: str = "float32"
    scalar: float = 0.0


class Unary(_Unary, SlotToSlot):
    """Change each element of a tile of UB, as `does` says: Adds, Muls, Maxs or Mins with a number, or Exp.

    Shapes   both alike
    Types    both of `dtype`, `scalar` a number of it; each result rounds once, to nearest even (of Exp the
             bits of the device are not published)
    Pipe     V
    Cost     head + one unary repeat, of Exp one exp repeat, for each 256 bytes
    Source   AscendC pages of Adds, Muls, Maxs, Mins, Exp
    """

    __slots__ = ()
    where: ClassVar[Mapping[str, str]] = {"dst": "UB", "src": "UB"}
    pipe = "V"

    @property
    def shape(self) -> Hashable:
        """A key of all values that the cost depends on."""
        return self.does == "Exp", self.elements, self.dtype

    @property
    def told(self) -> tuple[Told, ...]:
        """Both tiles have its elements, of its format."""
        return _all_alike((self.src, self.dst), self.elements, self.dtype)

    def execute(self, memory: CoreMemory) -> None:
        """Change."""
        made = UNARY[self.does](memory.tile(self.src), np.float32(self.scalar))
        memory.new_tile(self.dst, made.shape)[...] = memory.convert(made, self.dtype)

    def cost(self, profile: Profile) -> Cost:
        """Return the cycles of the repeats."""
        kind = "unary"
        if self.does == "Exp":
            wide = self.dtype == "float32" and "exp_32bit" in profile.vector.repeat_cycles
            kind = "exp_32bit" if wide else "exp"
        return _cost(profile, kind, self.elements, self.dtype)
