"""The ways out of L0C: Fixpipe, to GM, L1 or UB, what it does to values, and the tables it reads."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

import numpy as np

from ascendsim.errors import ProgramError, UnsupportedError
from ascendsim.instructions.elementwise import without_negative
from ascendsim.numerics.dtypes import FLOAT32_BYTES, itemsize_of
from ascendsim.program.instruction import WIDTH, Command, Cost, SlotToSlot, Told, Traffic
from ascendsim.program.places import Gm, Slot

if TYPE_CHECKING:
    from numpy.typing import NDArray

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


def in_channel_groups(tile: NDArray[np.float32], c0: int) -> NDArray[np.float32]:
    """Return a (pixels, channels) tile as (channel groups, pixels, C0), or unchanged if `c0` is 0."""
    # NC1HWC0 in GM has the C0 channels of a group side by side, and the groups (C1) outside of the pixels.
    if not c0:
        return tile
    return tile.reshape(tile.shape[0], -1, c0).transpose(1, 0, 2)


class _Fixpipe(NamedTuple):
    dst: Gm
    src: Slot
    bytes: int
    c0: int = 0
    atomic: bool = False
    cut: bool = False
    read_out: bool = False
    posted: bool = False
    relu: bool = False
    scale: float | Slot | None = None


class Fixpipe(_Fixpipe, Command):
    """Write an accumulator tile to GM, converted to the tensor's dtype, or add it there.

    Each value passes ReLU first where `relu` says so, and takes a `scale`: a number, or a slot of FB with one
    for each column.

    Shapes   tile (m, n) -> slice (m, n), or (n / C0, m, C0) if `c0` is set; scales (n,)
    Types    as `finished` says
    Pipe     FIX
    Cost     head, then the result's bytes over shared links, but least_cycles in all (plain matrix:
             fixpipe.matrix_least_cycles). Piece by piece it reads L0C at fixpipe.read_bytes_per_cycle, then
             writes at the rate of path L0C_GM (fixpipe.channel_split_bytes_per_cycle where fractals are cut
             into groups of 8): the links see the mean. They are cut where `c0` says so, or `cut`: weights of
             4 bytes, written here as a plain matrix, lie in these groups on the device. One that is `posted`
             has the adds of the groups on the way when L0C is free again, and its pipe busy until they have
             arrived (fixpipe.channel_split_atomic_bytes_per_cycle). Of a tile that a `ReadOut` has taken
             before only the writing is left. Of 8 bits as many elements leave in a cycle as of 16
    Raises   (from the machine) two cores may touch one element only by atomic add, which is float32
    Source   AscendC Fixpipe page: F322F16 and F322BF16 round to nearest even; cube performance summary: 64
             elements a cycle of 16 or 8 bits, 32 of 32
    """

    __slots__ = ()
    where: ClassVar[Mapping[str, str]] = {"src": "L0C", "scale": "FB"}
    pipe = "FIX"

    @property
    def drains(self) -> bool:  # type: ignore[override]  # a field says it, and no other class has one
        """Where adds arrive after the tile has left L0C, the next one waits for them."""
        return self.posted

    @property
    def reads(self) -> tuple[Slot, ...]:
        """The accumulator, or what has been read out of it; and the scales."""
        return (self.src, self.scale) if isinstance(self.scale, Slot) else (self.src,)

    @property
    def touched_bytes(self) -> tuple[int, ...]:
        """The accumulator in float32, unless a `ReadOut` has taken it before."""
        elements = self.bytes // self.dst.tensor.itemsize
        read = 0 if self.read_out else FLOAT32_BYTES * elements
        return (read, self.scale.size_bytes) if isinstance(self.scale, Slot) else (read,)

    @property
    def shape(self) -> Hashable:
        """A key of all values that the cost depends on."""
        return self.dst.tensor.name, self.bytes, self.atomic, self.c0, self.cut, self.read_out, self.posted

    def execute(self, memory: CoreMemory) -> None:
        """Convert and store, or add in float32."""
        values = finished(memory, self.src, self.dst.tensor.dtype, self.relu, self.scale)
        memory.store(self.dst, in_channel_groups(values, self.c0), atomic=self.atomic)

    def cost_unknown(self, profile: Profile) -> str:
        """Return the names of the costs of its ReLU and scales, which are not charged."""
        del profile
        return finish_unknown(self.relu, self.scale)

    def cost(self, profile: Profile) -> Cost:
        """Return head, traffic and latency of the path L0C_GM; reading L0C in turns slows the traffic."""
        path, unit = profile.paths["L0C_GM"], profile.fixpipe
        rate, least = Fraction(path.bytes_per_cycle), path.least_cycles
        # A fractal of L0C has n0 columns; groups of fewer (8 of float32) cut each in parts, and that is slow.
        added = Fraction(0)
        if self.cut or 0 < self.c0 < profile.cube.n0:
            rate = Fraction(unit.channel_split_bytes_per_cycle or rate)
            added = Fraction(unit.channel_split_atomic_bytes_per_cycle) if self.posted else added
        if self.dst.tensor.itemsize == 1:
            rate /= 2
        # A plain matrix has its fractals turned into rows on the way (NZ to ND), which has a least of its
        # own.
        if not (self.c0 or self.cut) and unit.matrix_least_cycles:
            least = unit.matrix_least_cycles
        # It reads, then writes, in turns: cycles per byte add up. What is read is float32, what is written
        # may be half of it. The links see the mean of both.
        if unit.read_bytes_per_cycle and not self.read_out:
            read = Fraction(FLOAT32_BYTES, self.dst.tensor.itemsize) / Fraction(unit.read_bytes_per_cycle)
            rate = 1 / (1 / rate + read)
            added = 1 / (1 / added + read) if added else added
        # The tile is out of L0C when its bytes are; the adds arrive later.
        pace = path.head_cycles + ceil(self.bytes / added) if added else 0
        traffic = Traffic(self.dst.tensor, "atomic" if self.atomic else "write", self.bytes, rate)
        return Cost(path.head_cycles, path.latency_cycles, traffic, least, pace)


class _ReadOut(NamedTuple):
    dst: Slot
    src: Slot
    elements: int


class ReadOut(_ReadOut, SlotToSlot):
    """Read an accumulator tile out of L0C under the unit flag, for the `Fixpipe` that follows.

    Pipe     FIX, whose two parts together take what a lone Fixpipe takes
    Cost     float32 bytes at fixpipe.read_bytes_per_cycle. It takes up its pipe before the tile is finished,
             begins with the last product into it, and is through with the last fixpipe.unit_flag_bytes of
             L0C after that. The next tile's first product begins then. On the device that product follows
             Fixpipe piece by piece; either way it does not wait for the writing
    Source   unit flag as in the 910B's file; that writing delays no product: products of a short reduction,
             whose time is that of the cube although a tile takes Fixpipe half as long as the cube or more
    """

    __slots__ = ()
    pipe = "FIX"
    trails = True

    @property
    def touched_bytes(self) -> tuple[int, ...]:
        """The tile in float32; what takes it up is no buffer."""
        return FLOAT32_BYTES * self.elements, 0

    @property
    def shape(self) -> Hashable:
        """A key of all values that the cost depends on."""
        return self.elements

    @property
    def told(self) -> tuple[Told, ...]:
        """Its tile has so many elements."""
        return (Told("elements", self.elements, (self.src,)),)

    def tile_bytes(self, shape: tuple[int, ...], width: int) -> int:
        """Return 0: what it reads is on the way through Fixpipe, and lies nowhere."""
        del shape, width
        return 0

    def execute(self, memory: CoreMemory) -> None:
        """Copy the tile, as its slot may be overwritten from now on."""
        tile = memory.tile(self.src)
        memory.new_tile(self.dst, tile.shape)[...] = tile

    def cost(self, profile: Profile) -> Cost:
        """Return the cycles of reading float32, and of the last piece."""
        unit = profile.fixpipe
        if not unit.read_bytes_per_cycle:
            return Cost(0)
        rate = Fraction(unit.read_bytes_per_cycle)
        return Cost(
            ceil(FLOAT32_BYTES * self.elements / rate), piece_cycles=ceil(unit.unit_flag_bytes / rate)
        )


class _CopyL0cToUb(NamedTuple):
    dst: Slot
    src: Slot
    first_column: int
    columns: int
    dtype: str
    elements: int
    c0: int = 0
    pipe: str = "V"


class CopyL0cToUb(_CopyL0cToUb, SlotToSlot):
    """Move columns of an accumulator tile to UB, converted to `dtype`.

    Shapes   tile (m, n) -> (m, columns), or (columns / C0, m, C0) if `c0` is set
    Pipe     V on a unified core (the profile's path L0C_UB says which)
    Cost     head + float32 bytes / rate of the path L0C_UB
    """

    __slots__ = ()
    where: ClassVar[Mapping[str, str]] = {"dst": "UB", "src": "L0C"}

    @property
    def touched_bytes(self) -> tuple[int, ...]:
        """The columns in float32, and converted."""
        return FLOAT32_BYTES * self.elements, self.elements * itemsize_of(self.dtype)

    @property
    def shape(self) -> Hashable:
        """A key of all values that the cost depends on."""
        return self.elements

    @property
    def told(self) -> tuple[Told, ...]:
        """It makes so many elements."""
        return (Told("elements", self.elements, (self.dst,)),)

    def width(self, given: int, shape: tuple[int, ...]) -> int:
        """Return the bytes of an element of its format."""
        del given, shape
        return itemsize_of(self.dtype)

    def execute(self, memory: CoreMemory) -> None:
        """Convert and copy."""
        part = memory.tile(self.src)[:, self.first_column : self.first_column + self.columns]
        values = in_channel_groups(memory.convert(part, self.dtype), self.c0)
        memory.new_tile(self.dst, values.shape)[...] = values

    def cost(self, profile: Profile) -> Cost:
        """Return the cycles of reading float32 out of L0C."""
        # A unified core has no Fixpipe: the vector unit reads L0C, float32 at a time, whatever it converts
        # to.
        path = profile.paths["L0C_UB"]
        return Cost(path.head_cycles + ceil(4 * self.elements / path.bytes_per_cycle), path.latency_cycles)


class _StallCube(NamedTuple):
    elements: int


class StallCube(_StallCube, Command):
    """Keep M still while the vector unit reads a finished tile of so many elements out of L0C.

    Cost     a share of the cycles of reading float32 (`m_stall_share` of the path L0C_UB). Where M would wait
             for that tile anyway it costs nothing
    """

    __slots__ = ()
    pipe = "M"

    @property
    def shape(self) -> Hashable:
        """A key of all values that the cost depends on."""
        return self.elements

    def execute(self, memory: CoreMemory) -> None:
        """Do nothing to the data."""

    def cost(self, profile: Profile) -> Cost:
        """Return the cycles that M loses."""
        path = profile.paths["L0C_UB"]
        return Cost(ceil(path.m_stall_share * (4 * self.elements / path.bytes_per_cycle)))
