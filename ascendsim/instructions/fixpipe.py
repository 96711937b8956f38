"""What Fixpipe does to values on their way out of L0C, the way from there to L1, and the tables it reads."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from math import ceil
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

import numpy as np

from ascendsim.errors import ProgramError, UnsupportedError
from ascendsim.instructions.elementwise import without_negative
from ascendsim.numerics.dtypes import FLOAT32_BYTES, itemsize_of
from ascendsim.program.instruction import WIDTH, Cost, SlotToSlot, Told
from ascendsim.program.places import Slot

if TYPE_CHECKING:
    from ascendsim.profile import Profile
    from ascendsim.profile.memory import DataPath
    from ascendsim.program.places import Carrier, CoreMemory

# Of a scale Fixpipe keeps the sign, the exponent and ten bits behind the point.
SCALE_BITS: Final = np.uint32(0xFFFF_E000)
SCALE_BYTES: Final = 8  # in FB, with offset and shift
# The architecture whose Fixpipe scales float32 into floats (QF322F16_PRE and its like).
SCALED_FLOATS_ARCH: Final = "3510"


# A scale: of all values, or in FB one for each column.
Scale = float | Slot | None


def finished(memory: CoreMemory, src: Slot, dtype: str, relu: bool, scale: Scale) -> Carrier:
    """Return the values of an accumulator after ReLU, then a scale, and before their conversion.

    Of a scale it takes a sign, an exponent and 10 bits. The product is rounded to float32 here, then to the
    format, to nearest even each time; how the device rounds it is not published. Offsets, shifts and uint8
    are not modelled.

    Types    without a scale float32 to float32 or another float, int32 to int32. With one, float32 or int32
             to int8, int32 to float16; on a 950 also float32 to floats, and int32 to bfloat16
    Source   AscendC pages on quantisation and ReLU on the way out of L0C (F322F16, QF322B8_PRE, DEQF16, REQ8)
    Raises   ProgramError for formats that no Fixpipe makes of the tile's
    """
    values, whole, scaled = memory.tile(src), memory.math.carrier == "int32", scale is not None
    of = memory.profile
    floats = not scaled or of is None or of.npu_arch == SCALED_FLOATS_ARCH
    made = _made(whole=whole, scaled=scaled, floats=floats)
    other_float = not whole and "float32" in made and dtype not in ("int8", "int32")
    if dtype not in made and not other_float:
        where = f" on {of.variant}" if of is not None else ""
        raise ProgramError(
            f"Fixpipe makes {dtype} of {memory.math.carrier} {'with' if scaled else 'without'} a scale; "
            f"it makes {', '.join(made)}{where}"
        )
    if relu:
        values = without_negative(values)
    if scale is None:
        return values
    given = memory.tile(scale).reshape(1, -1) if isinstance(scale, Slot) else np.array([[scale]], np.float32)
    return values.astype(np.float32) * (given.view(np.uint32) & SCALE_BITS).view(np.float32)


def finish_unknown(relu: bool, scale: Scale) -> str:
    """Return the names of the costs of ReLU and a scale, which are not charged; "" without both."""
    plain = not relu and scale is None
    return "" if plain else "ReLU and scales of Fixpipe, here nothing beside the conversion"


def _made(*, whole: bool, scaled: bool, floats: bool) -> tuple[str, ...]:
    """Return the formats made of float32 (beside it other floats), or of int32 if `whole`.

    floats   whether it makes floats, as all do without a scale; float16 of int32 all make with one
    """
    if whole:
        return ("int8", "float16", *["bfloat16"] * floats) if scaled else ("int32",)
    return (*("float32", "float16", "bfloat16") * floats, *["int8"] * scaled)


def path_of(profile: Profile, name: str) -> DataPath:
    """Return a path of a product; UnsupportedError where it has none."""
    if name not in profile.paths:
        raise UnsupportedError(f"{profile.variant} has no path {name}; it has {', '.join(profile.paths)}")
    return profile.paths[name]


class _CopyL0cToL1(NamedTuple):
    dst: Slot
    src: Slot
    elements: int
    dtype: str
    relu: bool = False
    scale: float | Slot | None = None


class CopyL0cToL1(_CopyL0cToL1, SlotToSlot):
    """Move an accumulator tile to L1 in the format of an operand, for a product that follows.

    `relu` and `scale` as of `Fixpipe`.

    Shapes   tile (m, n) -> the same; fractals count in the cost alone
    Types    as `finished` says
    Pipe     FIX
    Cost     head + bytes / rate + latency of the path L0C_L1; of 8 bits as many elements in a cycle as of 16
    Source   AscendC Fixpipe page; cube performance summary: 64 elements a cycle of 16 or 8 bits, 32 of 32
    """

    __slots__ = ()
    where: ClassVar[Mapping[str, str]] = {"dst": "L1", "src": "L0C", "scale": "FB"}
    pipe = "FIX"

    @property
    def reads(self) -> tuple[Slot, ...]:
        """The accumulator, and scales of columns."""
        return (self.src, self.scale) if isinstance(self.scale, Slot) else (self.src,)

    @property
    def shape(self) -> Hashable:
        """A key of all values that the cost depends on."""
        return self.elements, self.dtype

    @property
    def told(self) -> tuple[Told, ...]:
        """Both tiles have its elements."""
        return (Told("elements", self.elements, (self.src, self.dst)),)

    def width(self, given: int, shape: tuple[int, ...]) -> int:
        """Return the bytes of an element of its format."""
        del given, shape
        return itemsize_of(self.dtype)

    def execute(self, memory: CoreMemory) -> None:
        """Convert and copy.

        Raises   ProgramError for floats of sums of int8
        """
        if memory.math.carrier == "int32" and self.dtype != "int8":
            raise ProgramError(
                f"CopyL0cToL1 makes {self.dtype} of int32, as Fixpipe can; but a kernel here multiplies "
                "int8 or floats alone: store it with Fixpipe, and multiply in another kernel"
            )
        values = finished(memory, self.src, self.dtype, self.relu, self.scale)
        memory.new_tile(self.dst, values.shape)[...] = memory.convert(values, self.dtype)

    def cost(self, profile: Profile) -> Cost:
        """Return the cycles of the path."""
        path = path_of(profile, "L0C_L1")
        size = self.elements * max(2, itemsize_of(self.dtype))
        return Cost(path.head_cycles + ceil(size / path.bytes_per_cycle), path.latency_cycles)

    def cost_unknown(self, profile: Profile) -> str:
        """Return the names of its costs that are not charged."""
        del profile
        read = "reading L0C before writing L1, here no cycles beside the rate of the path"
        return "; ".join(filter(None, (read, finish_unknown(self.relu, self.scale))))


class _CopyToTable(NamedTuple):
    dst: Slot
    src: Slot
    elements: int


class CopyL1ToBt(_CopyToTable, SlotToSlot):
    """Copy a row of bias from L1 to the bias table, for `Mmad`.

    Shapes   both alike
    Types    float32, of int8 products int32
    Pipe     MTE1
    Cost     head + bytes / rate + latency of the path L1_BT, but least_cycles in all
    """

    __slots__ = ()
    where: ClassVar[Mapping[str, str]] = {"dst": "BT", "src": "L1"}
    pipe = "MTE1"
    path: ClassVar[str] = "L1_BT"
    itemsize: ClassVar[int] = FLOAT32_BYTES

    @property
    def shape(self) -> Hashable:
        """A key of all values that the cost depends on."""
        return self.elements

    @property
    def told(self) -> tuple[Told, ...]:
        """Both tiles have its elements, of the table's width."""
        both = self.src, self.dst
        return Told("elements", self.elements, both), Told("the table", self.itemsize, both, WIDTH)

    def execute(self, memory: CoreMemory) -> None:
        """Copy."""
        values = memory.tile(self.src)
        memory.new_tile(self.dst, values.shape)[...] = values

    def cost(self, profile: Profile) -> Cost:
        """Return the cycles of the path."""
        path = path_of(profile, self.path)
        cycles = path.head_cycles + ceil(self.elements * self.itemsize / path.bytes_per_cycle)
        return Cost(cycles, path.latency_cycles, least_cycles=path.least_cycles)


class CopyL1ToFb(CopyL1ToBt):
    """Copy the scales of columns from L1 to the Fixpipe buffer.

    Shapes   both alike
    Types    8 bytes each: GmTensor("scale", (n,), "float32", 8), given as float32; in a kernel of int8
             products (`MathSettings(IntegerSum())`) as its bits: `scale.view(np.int32)`
    Pipe     FIX
    Cost     head + bytes / rate + latency of the path L1_FB, but least_cycles in all
    """

    __slots__ = ()
    where: ClassVar[Mapping[str, str]] = {"dst": "FB", "src": "L1"}
    pipe = "FIX"
    path: ClassVar[str] = "L1_FB"
    itemsize: ClassVar[int] = SCALE_BYTES
