"""Places of tiles: slots in the on-chip buffers of a core, and slices of tensors in global memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ascendsim.errors import CapacityError, ProgramError
from ascendsim.numerics.accumulation import IntegerSum, products_of, rounds_once
from ascendsim.numerics.casts import rounded
from ascendsim.numerics.compiled.accumulate import accumulate
from ascendsim.numerics.dtypes import ELEMENTS, find

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.numerics.accumulation import MathSettings
    from ascendsim.profile import Profile

    Carrier = NDArray[Any]  # float32 or int32, all of one kernel alike


# Compared by identity, since two slots of one size in one buffer are still two: were they equal, an
# instruction on one would wait for those on the other.
class Slot:
    """A range of one on-chip buffer of one core, reserved for one tile after another; compared by identity.

    `index` numbers the slots of a program from zero, in the order they were reserved; `at` is its first byte
    in the buffer, -1 where the program does not say it.
    """

    __slots__ = ("at", "buffer", "index", "name", "size_bytes")

    def __init__(self, buffer: str, size_bytes: int, name: str, index: int, at: int = -1) -> None:
        self.buffer = buffer
        self.at = at
        self.size_bytes = size_bytes
        self.name = name
        self.index = index

    def __repr__(self) -> str:
        return f"{self.buffer}:{self.name}({self.size_bytes} B)"


# The layouts of a convolution's operands, whose innermost axis is a group of channels.
CHANNELS_LAST = frozenset({"NDC1HWC0", "DC1HWC0N"})


# By identity: two kernels may see one tensor in two shapes, and know by its name that it is one.
@dataclass(frozen=True, slots=True, eq=False)
class GmTensor:
    """A tensor in global memory, as one kernel sees it; the kernels of a call know each other's by name.

    Shapes   `shape` in elements, along the axes of the layout; two kernels may fold the axes differently
    Layout   the order of its elements: "ND" (row after row), "NDC1HWC0", ... (`ops/lowering/layouts.py`)
    Types    `dtype` is the name of the storage format; `itemsize` its bytes
    Role     "input", "output" or "workspace"; an output or workspace is written by the kernel
    Cached   whether L2 keeps what is read and written (SetL2CacheHint); if not, it passes L2 by
    Permuted (stored shape, axes) of a tensor whose elements the kernel takes in the order of other axes
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    itemsize: int
    role: str = "input"
    cached: bool = True
    layout: str = "ND"
    permuted: tuple[tuple[int, ...], tuple[int, ...]] | None = None

    @classmethod
    def of(
        cls, name: str, shape: tuple[int, ...], dtype: str, role: str = "input", layout: str = "ND"
    ) -> GmTensor:
        """Return a tensor of a named format.

        Raises   UnsupportedError for a format that nobody knows
        """
        return cls(name, shape, dtype, find(dtype, ELEMENTS).itemsize, role, layout=layout)

    @property
    def laid_out(self) -> bool:
        """Whether it lies in a layout of a convolution's operands on the cube."""
        return self.layout in CHANNELS_LAST

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole tensor."""
        size = self.itemsize
        for extent in self.shape:
            size *= extent
        return size


class Gm(NamedTuple):
    """A slice of a tensor in global memory; `index` is a tuple of slices and integers."""

    tensor: GmTensor
    index: tuple[Any, ...]  # type: ignore[assignment]  # hides tuple.index

    @property
    def counts(self) -> tuple[int, ...]:
        """How many indices it takes along each axis of its tensor.

        Raises   ProgramError where it leaves its tensor, or its index is no tuple
        """
        tensor, index = self
        if not isinstance(index, tuple):
            raise ProgramError(f"a slice of {tensor.name} has the index {index!r}; write ({index!r},)")
        if len(index) > len(tensor.shape):
            raise ProgramError(f"{self.text} has {len(index)} indices, its tensor {len(tensor.shape)} axes")
        counts = []
        for at, extent in zip(index, tensor.shape, strict=False):
            if isinstance(at, slice):
                first, last, step = at.start or 0, extent if at.stop is None else at.stop, at.step or 1
            else:
                first, last, step = at, at + 1, 1
            if not (0 <= first < last <= extent and step > 0):
                raise ProgramError(
                    f"{self.text} leaves {tensor.name} of shape {tensor.shape}; indices go from 0 to the "
                    "extent, the first before the last"
                )
            counts.append(-(-(last - first) // step))
        return (*counts, *tensor.shape[len(index) :])

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the slice, in elements; an index that is a number leaves no axis."""
        numbers = [not isinstance(at, slice) for at in self.index]
        return tuple([count for at, count in enumerate(self.counts) if not any(numbers[at : at + 1])])

    @property
    def size_bytes(self) -> int:
        """Bytes of the slice in its tensor's format."""
        return prod(self.counts) * self.tensor.itemsize

    @property
    def runs(self) -> int:
        """The runs of bytes in GM of which it consists, its tensor being row after row."""
        # From the innermost axis on a run goes through whole axes, and through a part of one more.
        steps = [isinstance(at, slice) and (at.step or 1) > 1 for at in self.index]
        runs, whole = 1, True
        for at, count in reversed(list(enumerate(self.counts))):
            apart = any(steps[at : at + 1])
            runs *= count if apart or not whole else 1
            whole = whole and count == self.tensor.shape[at] and not apart
        return runs

    @property
    def text(self) -> str:
        """It as one writes it: "x[3, 0:512]"."""
        ends = [
            [None if end is None else str(end) for end in (at.start, at.stop, at.step)]
            if isinstance(at, slice)
            else [str(at)]
            for at in self.index
        ]
        parts = [":".join(end or "" for end in own[:2] + [end for end in own[2:] if end]) for own in ends]
        return f"{self.tensor.name}[{', '.join(parts)}]"


class Post(NamedTuple):
    """The core that an instruction runs on, and the slots in GM that it reads and writes for a hand-over."""

    core: int = 0
    reads: tuple[Slot, ...] = ()
    writes: tuple[Slot, ...] = ()


# Vector cores beside a cube core, of the generations that have them apart.
VECTOR_CORES = 2
# Of an instruction of which nothing is said.
HOME = Post()


def pipe_on(core: int, pipe: str) -> str:
    """Return the name of a pipe of one core of a program."""
    return f"AIV{core - 1}.{pipe}" if core else pipe


def core_of(name: str) -> int:
    """Return the number of the core that a pipe belongs to."""
    return int(name[3 : name.index(".")]) + 1 if "." in name else 0


def bare(name: str) -> str:
    """Return the name that a pipe has on its own core."""
    return name.rpartition(".")[2]


def seen_from(core: int, name: str) -> str:
    """Return a core's name of a pipe: bare names for its own pipes, "AIC.FIX" for one of the cube core."""
    other = core_of(name)
    if other == core:
        return bare(name)
    return name if other else f"AIC.{name}"


class Storage:
    """The storage of slots, by their numbers.

    One for each slot, as on the device: a tile written too early must spoil what a late reader finds. A fresh
    array for each tile would hide a missing wait.
    """

    def __init__(self, carrier: str) -> None:
        self._carrier = carrier
        self._whole: dict[int, Carrier] = {}
        # Slots hold tiles of few shapes, and to make a view of an array takes as long as to copy a small one.
        self._tiles: dict[tuple[int, tuple[int, ...]], Carrier] = {}

    def tile(self, index: int, shape: tuple[int, ...]) -> Carrier:
        """Return the storage of a slot as a tile of a shape."""
        tile = self._tiles.get((index, shape))
        if tile is None:
            size = prod(shape)
            whole = self._whole.get(index)
            if whole is None or whole.size < size:
                whole = self._whole[index] = aligned_empty(size).view(self._carrier)
                self._tiles = {key: tile for key, tile in self._tiles.items() if key[0] != index}
            tile = self._tiles[index, shape] = whole[:size].reshape(shape)
        return tile


class CoreMemory:
    """The memory of one core: all tensors in GM, and the tiles in its own slots.

    `profile` is the product that its program was written for, if a run looks at that (`checked.py`).
    `shared` is a store for all cores of a kernel: what is gathered once and only read, such as the indices of
    an im2col. `storage` is that of the slots; a core that is done may leave it to another one, which finds no
    tiles in it.

    Tiles live in storage that belongs to their slot, so that overwriting a slot too early spoils what a late
    reader finds, as it would on the device. A slot that nothing has written cannot be read.
    """

    def __init__(
        self,
        gm: dict[str, Carrier],
        math: MathSettings,
        shared: dict[Any, Any],
        storage: Storage | None = None,
    ) -> None:
        self.gm = gm
        self.math = math
        self.shared = shared
        self.profile: Profile | None = None
        self.accumulate = _accumulation(math)
        self._rounds_once = rounds_once(math.accumulation)
        self._slices: dict[int, list[tuple[Carrier, Carrier]]] = {}
        self._unrounded: set[int] = set()
        self._storage = Storage(math.carrier) if storage is None else storage
        self._tiles: dict[int, Carrier] = {}

    def array(self, tensor: GmTensor) -> Carrier:
        """Return a tensor in GM in the shape that the instruction sees it in."""
        array = self.gm[tensor.name]
        if tensor.permuted is not None:
            array = self._permuted(tensor.name, *tensor.permuted)
        return array if array.shape == tensor.shape else array.reshape(tensor.shape)

    def _permuted(self, name: str, stored: tuple[int, ...], axes: tuple[int, ...]) -> Carrier:
        """Return the elements of a tensor in the order of other axes, brought there once for all cores."""
        # A copy, as its elements lie in another order; right only for tensors that the kernel does not write.
        if name not in self.shared:
            self.shared[name] = np.ascontiguousarray(self.gm[name].reshape(stored).transpose(axes))
        elements: Carrier = self.shared[name]
        return elements

    def new_tile(self, slot: Slot, shape: tuple[int, ...]) -> Carrier:
        """Return the slot's storage as a tile of `shape`; what it holds is undefined until written."""
        tile = self._storage.tile(slot.index, shape)
        self._tiles[slot.index] = tile
        if self._slices:
            self._slices.pop(slot.index, None)
            self._unrounded.discard(slot.index)
        return tile

    def begin(self, slot: Slot, shape: tuple[int, int], row: Carrier | None = None) -> None:
        """Begin an accumulator tile with zero, or with a row of numbers for each of its rows."""
        tile = self.new_tile(slot, shape)
        if row is None or self._rounds_once:
            tile.fill(0)
        else:
            tile[...] = row.reshape(1, -1)
        # What rounds once counts them among its products: each is 1 times itself.
        if row is not None and self._rounds_once:
            self.add_product(slot, np.ones((shape[0], 1), np.float32), row.reshape(1, -1))

    def add_product(self, slot: Slot, a: Carrier, b: Carrier) -> None:
        """Add a cube product to the accumulator tile in a slot."""
        if self._rounds_once:
            # Nothing is rounded before somebody reads the tile; copies, since the operands' slots move on.
            self._slices.setdefault(slot.index, []).append((a.copy(), b.copy()))
            self._unrounded.add(slot.index)
        else:
            self.accumulate(a, b, self._tiles[slot.index])

    def accumulator(self, slot: Slot) -> Carrier:
        """Return the accumulator tile of a slot for a further product, its sum perhaps not rounded yet.

        Raises   ProgramError if nothing was written to the slot
        """
        tile = self._tiles.get(slot.index)
        if tile is None:
            raise ProgramError(f"{slot!r} is read before anything has written it: a wait is missing")
        return tile

    def tile(self, slot: Slot) -> Carrier:
        """Return the tile that was last written to the slot.

        Raises   ProgramError if nothing was
        """
        tile = self.accumulator(slot)
        if slot.index in self._unrounded:
            self._round(slot.index, tile)
        return tile

    def _round(self, index: int, tile: Carrier) -> None:
        """Put the sum of all products so far into an accumulator tile, rounded once."""
        # They are kept: a further Mmad adds to the exact sum, not to the rounded one.
        tile.fill(0)
        for a, b in products_of(self.math.accumulation, self._slices[index]):
            self.accumulate(a, b, tile)
        self._unrounded.discard(index)

    def convert(self, values: Carrier, dtype: str) -> Carrier:
        """Round values to the grid of `dtype`, as Fixpipe and the vector Cast do.

        To int8 they round to nearest even and saturate; NaN, of which nothing is published, becomes 0.
        """
        if dtype == self.math.carrier:
            return values
        if dtype == "int8":
            whole: Carrier = np.nan_to_num(np.rint(values).clip(-128, 127))
            return whole
        # Both round ties of hifloat8 away from zero, and ties of every other format to even.
        rounding = "ROUND" if dtype == "hifloat8" else "RINT"
        return rounded(values, dtype, self.math.overflow, rounding)

    def store(self, dst: Gm, values: Carrier, *, atomic: bool) -> None:
        """Write values to GM in the tensor's dtype, or add them there as they are."""
        target = self.array(dst.tensor)[dst.index]
        # A run of pixels may lie in rows and columns there.
        if values.shape != target.shape:
            values = values.reshape(target.shape)
        # Additions are in float32 (or int32) and round once each; so their order shows in the bits.
        if atomic:
            target += values
        else:
            target[...] = self.convert(values, dst.tensor.dtype)


def _accumulation(math: MathSettings) -> Callable[[Carrier, Carrier, Carrier], None]:
    """Return the function that adds a cube product to an accumulator."""
    # Chosen once and not for each product: integers are exact, so they need no model of rounding.
    model = math.accumulation
    return model.accumulate if isinstance(model, IntegerSum) else partial(accumulate, model)


def aligned_empty(size: int, alignment: int = 64) -> NDArray[np.float32]:
    """Return uninitialised float32 storage that begins on a cache line."""
    # numpy aligns to 16 bytes; compiled kernels read whole cache lines faster when they begin on one.
    raw = np.empty(size * 4 + alignment, dtype=np.uint8)
    start = -raw.ctypes.data % alignment
    return raw[start : start + size * 4].view(np.float32)


MOST_SLOTS = 1 << 16


class Ring:
    """Tiles of slots that are used in turn (ping-pong); a tile is one slot, or `width` of them.

    A program that is appended instruction by instruction asks it for the next slot. A loop nest only names
    it: its walk knows for every core whose turn it is, and what the tiles hold.
    """

    def __init__(self, slots: tuple[Slot, ...], width: int = 1) -> None:
        self.slots = slots
        self.width = width
        self.first = slots[0].index
        self.count = len(slots) // width
        self._turn = -1

    @property
    def name(self) -> str:
        """The name of its tiles."""
        return self.slots[0].name.partition("[")[0]

    @property
    def last(self) -> Slot:
        """The first slot of the tile whose turn it was last."""
        return self.slots[self._turn * self.width]

    @property
    def turn(self) -> int:
        """The number of the tile, from 0."""
        return self._turn

    def next(self) -> Slot:
        """Return the next slot in turn."""
        self._turn = (self._turn + 1) % self.count
        return self.last


def _mixed(buffer: str) -> ProgramError:
    return ProgramError(f"{buffer} has slots with addresses and without; give each of them one, or none")


class Reserved:
    """Reserved parts of the buffers of one core, or of a cube core and the vector cores beside it."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.slots_reserved: list[Slot] = []
        self.used_bytes: dict[str, int] = {}
        # By buffer, those whose address the program says.
        self._placed: dict[str, list[Slot]] = {}

    def slots(
        self, buffer: str, size_bytes: int, name: str, copies: int = 1, on: int = 0
    ) -> tuple[Slot, ...]:
        """Reserve `copies` slots of one buffer of core `on`.

        Raises   CapacityError naming buffer, need and capacity, or the buffers that the product has;
                 ProgramError where other slots of the buffer have addresses
        """
        if self._placed.get(pipe_on(on, buffer)):
            raise _mixed(pipe_on(on, buffer))
        return self._taken(buffer, size_bytes, name, copies, on)

    def _taken(self, buffer: str, size_bytes: int, name: str, copies: int, on: int) -> tuple[Slot, ...]:
        figures = self.profile.buffers.get(buffer)
        if figures is None:
            raise CapacityError(
                f"{self.profile.variant} has no buffer {buffer}; it has {', '.join(self.profile.buffers)}"
            )
        alignment = figures.alignment_bytes
        size = -(-size_bytes // alignment) * alignment
        own = pipe_on(on, buffer)
        need = self.used_bytes.get(own, 0) + copies * size
        if need > figures.capacity_bytes:
            raise CapacityError(
                f"{own} of {self.profile.variant} holds {figures.capacity_bytes} bytes, but {name} "
                f"({copies} x {size}) brings the need to {need}; take a smaller tile or fewer copies",
                buffer,
            )
        self.used_bytes[own] = need
        return self._made(buffer, size, name, copies)

    def slot_at(self, buffer: str, at: int, size_bytes: int, name: str, on: int = 0) -> Slot:
        """Reserve bytes of one buffer of core `on` from `at` on; all slots of a buffer say where, or none.

        Raises   CapacityError as `slots`; ProgramError for bytes that are taken, or begin off the alignment
        """
        own = pipe_on(on, buffer)
        before = self._placed.setdefault(own, [])
        known = self.profile.buffers.get(buffer)
        if known is not None and (at < 0 or at % known.alignment_bytes):
            raise ProgramError(
                f"{own}:{name} begins at {at:#x}; slots of {buffer} of {self.profile.variant} start at "
                f"multiples of {known.alignment_bytes} bytes"
            )
        used = self.used_bytes.get(own, 0)
        for other in before:
            if at < other.at + other.size_bytes and other.at < at + size_bytes:
                raise ProgramError(
                    f"{own}:{name} takes bytes {at:#x} to {at + size_bytes:#x}, of which {other!r} at "
                    f"{other.at:#x} has some: nothing would order their users; take one slot, or other bytes"
                )
        if used != max([other.at + other.size_bytes for other in before], default=0):
            raise _mixed(own)
        # From there on it takes its size, behind what is free.
        self.used_bytes[own] = at
        [slot] = self._taken(buffer, size_bytes, name, 1, on)
        slot.at = at
        self.used_bytes[own] = max(used, self.used_bytes[own])
        before.append(slot)
        return slot

    def room(self, buffer: str) -> int:
        """Return the bytes of a buffer of core 0 that are not reserved yet."""
        return self.capacity(buffer) - self.used_bytes.get(buffer, 0)

    def capacity(self, buffer: str) -> int:
        """Return the bytes of a buffer."""
        return self.profile.buffers[buffer].capacity_bytes

    def _made(self, buffer: str, size: int, name: str, copies: int) -> tuple[Slot, ...]:
        # A row of a nest names a slot by 16 bits.
        if len(self.slots_reserved) + copies > MOST_SLOTS:
            raise CapacityError(f"{name}: a core has at most {MOST_SLOTS} slots; take fewer copies", buffer)
        made = []
        for copy in range(copies):
            label = f"{name}[{copy}]" if copies > 1 else name
            made.append(Slot(buffer, size, label, len(self.slots_reserved)))
            self.slots_reserved.append(made[-1])
        return tuple(made)

    def ring(
        self, buffer: str, size_bytes: int, name: str, copies: int = 1, on: int = 0, width: int = 1
    ) -> Ring:
        """Reserve tiles of core `on` that are used in turn, each of `width` slots of so many bytes.

        Raises   CapacityError as `slots`
        """
        return Ring(self.slots(buffer, size_bytes, name, copies * width, on), width)

    def handover(self, size_bytes: int, name: str, copies: int = 1) -> Ring:
        """Name pieces of a workspace in global memory that cores of this program use in turn.

        A slot of it stands for its piece: who writes the piece writes the slot, who reads it reads the slot
        (`ProgramBuilder.add`), and so they wait for each other. `Ring.turn` is the number of the piece.
        """
        return Ring(self._made("GM", size_bytes, name, copies))
