"""The memory that a core sees while it runs: tensors in global memory, and the tiles in its own slots.

Every tensor is held as its carrier: a float32 array whose values lie on the grid of the tensor's dtype (all
floating formats embed exactly in float32), converted once and not tile by tile. In a kernel that multiplies
integers every carrier is an int32 array.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ascendsim.errors import ProgramError
from ascendsim.numerics.accumulation.integers import IntegerSum
from ascendsim.numerics.accumulation.reduction import products_of, rounds_once
from ascendsim.numerics.compiled.accumulate import accumulate
from ascendsim.numerics.quick_casts import rounded
from ascendsim.program.places import Gm, GmTensor, Slot

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.numerics.accumulation.settings import MathSettings

    Carrier = NDArray[Any]  # float32 or int32, all of one kernel alike


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
        """Return what was last written to the slot.

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
        """Round values to the grid of `dtype`, as Fixpipe and the vector Cast do."""
        if dtype == self.math.carrier:
            return values
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
