"""Instructions of the vector core that work element by element on one or two tiles of UB."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from math import ceil, prod
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeVar

import numpy as np

from ascendsim.errors import ProgramError
from ascendsim.instructions.vector import BLOCK_BYTES, on_the_cube_clock, vector_cost
from ascendsim.numerics.dtypes import ELEMENTS, find, itemsize_of
from ascendsim.numerics.format_rounding import narrow_to_odd
from ascendsim.program.instruction import WIDTH, Cost, SlotToSlot, Told, ToSlot
from ascendsim.program.places import Slot

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.profile import Profile
    from ascendsim.program.places import CoreMemory

Done = TypeVar("Done")
# What is done to two elements; NaN where one of them is, as nobody has published more.
BINARY: Final[Mapping[str, Callable[..., Any]]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Max": np.maximum,
    "Min": np.minimum,
    "Div": np.divide,
}
COMPARED: Final[Mapping[str, Callable[..., Any]]] = {
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
    "EQ": np.equal,
    "NE": np.not_equal,
}


def _precisely(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function in float64, so that the one rounding left is that to the format."""
    return lambda values, _: function(values.astype(np.float64))


def without_negative(values: NDArray[Any]) -> NDArray[Any]:
    """Return the values, +0 for each that is not above zero; NaN stays."""
    return np.where(values <= 0, values.dtype.type(0), values)


# What is done to an element; the number beside it is for Adds, Muls, Maxs and Mins.
UNARY: Final[Mapping[str, Callable[..., Any]]] = {
    **{f"{name}s": BINARY[name] for name in ("Add", "Mul", "Max", "Min")},
    **{name: _precisely(function) for name, function in (("Exp", np.exp), ("Ln", np.log))},
    "Sqrt": lambda values, _: np.sqrt(values),
    "Rsqrt": _precisely(lambda values: 1 / np.sqrt(values)),
    "Reciprocal": _precisely(lambda values: 1 / values),
    "Abs": lambda values, _: np.abs(values),
    "Relu": lambda values, _: without_negative(values),
}
# What takes repeats of another kind than its fellows.
_KINDS: Final[Mapping[str, str]] = {**dict.fromkeys(("Exp", "Ln", "Sqrt"), "exp"), "Div": "divide"}


def chosen(table: Mapping[str, Done], does: str) -> Done:
    """Return the function of a name.

    Raises   ProgramError for a name that the table lacks
    """
    if does not in table:
        raise ProgramError(
            f"nothing is done by the name of {does!r}; say one of {', '.join(table)}; "
            "of others derive an instruction of your own from `Command`"
        )
    return table[does]


def kind_of_repeat(profile: Profile, does: str, dtype: str, usual: str) -> str:
    """Return the kind of repeats that something takes: `usual` if no other, of its format where known."""
    kind = _KINDS.get(does, usual)
    own = f"{kind}_{8 * find(dtype, ELEMENTS).itemsize}bit"
    return own if own in profile.vector.repeat_cycles else kind


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
        widest = max(self.source_bytes, find(self.dtype, ELEMENTS).itemsize)
        repeats = ceil(self.elements * widest / profile.vector.bytes_per_cycle)
        return vector_cost(profile, "cast", repeats)


def _fields_of(made: Any) -> dict[str, Any]:
    fields: dict[str, Any] = made._asdict()
    return fields


class OnTiles(ToSlot):
    """Base of vector instructions on tiles of UB: it reads all slots among its fields but `dst`."""

    __slots__ = ()
    pipe = "V"
    gm: ClassVar[None] = None

    @property
    def where(self) -> Mapping[str, str]:  # type: ignore[override]  # the same for all
        """All in UB."""
        return dict.fromkeys(_fields_of(self), "UB")

    @property
    def reads(self) -> tuple[Slot, ...]:
        """All slots but the destination."""
        found = _fields_of(self).items()
        return tuple([each for name, each in found if name != "dst" and isinstance(each, Slot)])

    @property
    def shape(self) -> Hashable:
        """A key of all that is no slot, in which all is that the cost depends on."""
        found = _fields_of(self).values()
        return tuple([None if isinstance(each, Slot) else each or 0 for each in found])


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


class Binary(_Binary, OnTiles):
    """Combine two tiles of UB element by element, as `does` says: Add, Sub, Mul, Div, Max or Min.

    Shapes   all alike
    Types    all of `dtype`; each result rounds once, to nearest even (Div of a 950 makes subnormal results
             zero, which is not modelled)
    Pipe     V
    Cost     head + one binary repeat, of Div one divide repeat, for each 256 bytes; on a 910B, where all
             slots have addresses, but for Div what the banks of UB take (`ub_cycles`)
    Source   AscendC pages of Add, Sub, Mul, Div, Max, Min
    """

    __slots__ = ()

    @property
    def shape(self) -> Hashable:
        """A key of all values that the cost depends on."""
        return self.elements, self.dtype, self._addresses, self.does == "Div"

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
        made = chosen(BINARY, self.does)(memory.tile(self.a), memory.tile(self.b))
        memory.new_tile(self.dst, made.shape)[...] = memory.convert(made, self.dtype)

    def cost(self, profile: Profile) -> Cost:
        """Return the cycles of the repeats."""
        chosen(BINARY, self.does)
        vector, places = profile.vector, self._addresses
        if not places or profile.npu_arch != BANKED_ARCH or self.does == "Div":
            kind = kind_of_repeat(profile, self.does, self.dtype, "binary")
            return _cost(profile, kind, self.elements, self.dtype)
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
    """Change each element of a tile of UB, as `does` says: by a number or alone.

    Adds, Muls, Maxs, Mins take the number; Exp, Ln, Sqrt, Rsqrt, Reciprocal, Abs, Relu stand alone.

    Shapes   both alike
    Types    both of `dtype`, `scalar` a number of it; each result rounds once, to nearest even (of Exp, Ln,
             Rsqrt and Reciprocal the bits of the device are not published)
    Pipe     V
    Cost     head + one unary repeat, of Exp, Ln and Sqrt one exp repeat, for each 256 bytes
    Source   AscendC pages of these names; repeats of each were measured on a 910B (MSKPP)
    """

    __slots__ = ()
    where: ClassVar[Mapping[str, str]] = {"dst": "UB", "src": "UB"}
    pipe = "V"

    @property
    def shape(self) -> Hashable:
        """A key of all values that the cost depends on."""
        return self.does in _KINDS, self.elements, self.dtype

    @property
    def told(self) -> tuple[Told, ...]:
        """Both tiles have its elements, of its format."""
        return _all_alike((self.src, self.dst), self.elements, self.dtype)

    def execute(self, memory: CoreMemory) -> None:
        """Change."""
        made = chosen(UNARY, self.does)(memory.tile(self.src), np.float32(self.scalar))
        if made.dtype == np.float64:
            made = made.astype(np.float32) if self.dtype == "float32" else narrow_to_odd(made)
        memory.new_tile(self.dst, made.shape)[...] = memory.convert(made, self.dtype)

    def cost(self, profile: Profile) -> Cost:
        """Return the cycles of the repeats."""
        chosen(UNARY, self.does)
        return _cost(
            profile, kind_of_repeat(profile, self.does, self.dtype, "unary"), self.elements, self.dtype
        )

    def cost_unknown(self, profile: Profile) -> str:
        """Return that nobody has measured it, where that is so."""
        rare = self.does in ("Rsqrt", "Reciprocal") and profile.npu_arch != BANKED_ARCH
        return f"{self.does} on {profile.npu_arch}, here as other unary instructions" if rare else ""


class _MulAdd(NamedTuple):
    dst: Slot
    src: Slot
    by: Slot | None
    elements: int
    dtype: str = "float32"
    scalar: float = 0.0


class MulAdd(_MulAdd, OnTiles):
    """Add to a tile of UB another, times a tile `by` (MulAddDst) or, where that is None, a number (Axpy).

    Shapes   all alike
    Types    all of `dtype`; product and sum round once each, to nearest even (whether the device rounds the
             product is not published)
    Pipe     V
    Cost     head + one multiply_add repeat, of Axpy one binary repeat, for each 256 bytes
    Source   AscendC pages of MulAddDst and Axpy; MSKPP of a 910B1: VMLA 6 cycles a repeat, VAXPY 2
    """

    __slots__ = ()

    @property
    def reads(self) -> tuple[Slot, ...]:
        """The sum, and what is multiplied."""
        return (self.dst, self.src) if self.by is None else (self.dst, self.src, self.by)

    @property
    def told(self) -> tuple[Told, ...]:
        """All tiles have its elements, of its format."""
        return _all_alike(self.reads, self.elements, self.dtype)

    def execute(self, memory: CoreMemory) -> None:
        """Multiply and add."""
        factor = np.float32(self.scalar) if self.by is None else memory.tile(self.by)
        product = memory.convert(memory.tile(self.src) * factor, self.dtype)
        made = memory.convert(memory.tile(self.dst) + product, self.dtype)
        memory.new_tile(self.dst, made.shape)[...] = made

    def cost(self, profile: Profile) -> Cost:
        """Return the cycles of the repeats."""
        kind = "binary" if self.by is None else "multiply_add"
        return _cost(profile, kind, self.elements, self.dtype)


class _Compare(NamedTuple):
    dst: Slot
    a: Slot
    b: Slot | None
    does: str
    elements: int
    dtype: str = "float32"
    scalar: float = 0.0


class Compare(_Compare, OnTiles):
    """Make a mask, a bit for each element: `a` LT, LE, GT, GE, EQ or NE `b`, where that is None a number.

    Shapes   all alike; the mask takes a byte for eight elements, and only `Select` reads it
    Types    a and b of `dtype`; NaN is equal to nothing
    Pipe     V
    Cost     head + one compare_to_mask repeat, with a number compare_scalar_to_mask, for each 256 bytes
    Source   AscendC pages of Compare and CompareScalar
    """

    __slots__ = ()

    @property
    def told(self) -> tuple[Told, ...]:
        """All tiles have its elements, those compared in its format."""
        compared = _all_alike(self.reads, self.elements, self.dtype)
        return *compared, Told("elements", self.elements, (self.dst,))

    def width(self, given: int, shape: tuple[int, ...]) -> int:
        """Return 1, the width of no format that is reckoned with: a mask is no operand."""
        del given, shape
        return 1

    def tile_bytes(self, shape: tuple[int, ...], width: int) -> int:
        """Return the bytes of the bits."""
        del width
        return ceil(prod(shape) / 8)

    def execute(self, memory: CoreMemory) -> None:
        """Compare."""
        other = np.float32(self.scalar) if self.b is None else memory.tile(self.b)
        made = chosen(COMPARED, self.does)(memory.tile(self.a), other)
        memory.new_tile(self.dst, made.shape)[...] = made

    def _kinds(self) -> tuple[str, str]:
        """Return the kind of its repeats, and that of its neighbours."""
        return ("compare_scalar_to_mask", "unary") if self.b is None else ("compare_to_mask", "binary")

    def cost(self, profile: Profile) -> Cost:
        """Return the cycles of the repeats."""
        chosen(COMPARED, self.does)
        kind, usual = self._kinds()
        kind = kind if kind in profile.vector.repeat_cycles else usual
        return _cost(profile, kind, self.elements, self.dtype)

    def cost_unknown(self, profile: Profile) -> str:
        """Return that nobody has measured it, where that is so."""
        kind, usual = self._kinds()
        measured = kind in profile.vector.repeat_cycles
        return "" if measured else f"Compare on {profile.npu_arch}, here as other {usual} instructions"


class _Select(NamedTuple):
    dst: Slot
    mask: Slot
    a: Slot
    b: Slot | None
    elements: int
    dtype: str = "float32"
    scalar: float = 0.0


class Select(_Select, OnTiles):
    """Take elements of `a` where the bit of a mask is set, else those of `b`, or where that is None a number.

    Shapes   all alike
    Types    all of `dtype` but the mask, which `Compare` makes
    Pipe     V
    Cost     head + one binary repeat for each 256 bytes
    Source   AscendC Select page; MSKPP of a 910B1: VSEL 2 cycles a repeat
    """

    __slots__ = ()

    @property
    def told(self) -> tuple[Told, ...]:
        """All tiles have its elements, all but the mask in its format."""
        alike = _all_alike((*self.reads[1:], self.dst), self.elements, self.dtype)
        return *alike, Told("elements", self.elements, (self.mask,)), Told("bits", 1, (self.mask,), WIDTH)

    def width(self, given: int, shape: tuple[int, ...]) -> int:
        """Return the bytes of an element of its format; those given are the mask's."""
        del given, shape
        return itemsize_of(self.dtype)

    def execute(self, memory: CoreMemory) -> None:
        """Select."""
        other = np.float32(self.scalar) if self.b is None else memory.tile(self.b)
        made = np.where(memory.tile(self.mask) != 0, memory.tile(self.a), other)
        memory.new_tile(self.dst, made.shape)[...] = made

    def cost(self, profile: Profile) -> Cost:
        """Return the cycles of the repeats."""
        return _cost(profile, "binary", self.elements, self.dtype)
