"""Run a kernel for its results.

Instructions do what they mean on a `CoreMemory`; this module only decides in which order they are called. It
knows neither convolution nor time. Every tensor is held as its carrier: a float32 array whose values lie on
the grid of the tensor's dtype (all floating formats embed exactly in float32), converted once and not tile by
tile. In a kernel that multiplies integers every carrier is an int32 array.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ascendsim.errors import ProgramError
from ascendsim.kernel import Core, Kernel, Phase
from ascendsim.numerics.accumulate import accumulate
from ascendsim.numerics.casts import round_to
from ascendsim.numerics.dtypes import dtype as lookup_dtype
from ascendsim.numerics.integers import IntegerSum
from ascendsim.program import Gm, GmTensor, Instruction, Program, Slot

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.numerics.settings import MathSettings
    from ascendsim.timeline import Timeline

    Carrier = NDArray[Any]  # float32 or int32, all of one kernel alike


class CoreMemory:
    """What one core sees: all tensors in GM, and the tiles in its own slots.

    Tiles live in storage that belongs to their slot, so that overwriting a slot too early spoils what a late
    reader finds, as it would on the device. A slot that nothing has written cannot be read.
    """

    def __init__(self, gm: dict[str, Carrier], kernel: Kernel, indices: dict[Any, Any]) -> None:
        self.gm = gm
        self.math: MathSettings = kernel.math
        self.indices = indices
        self.accumulate = _accumulation(kernel.math)
        self._storage: dict[int, Carrier] = {}
        self._tiles: dict[int, Carrier] = {}

    def array(self, tensor: GmTensor) -> Carrier:
        """Return a tensor in GM in the shape that the instruction sees it in."""
        array = self.gm[tensor.name]
        return array if array.shape == tensor.shape else array.reshape(tensor.shape)

    def new_tile(self, slot: Slot, shape: tuple[int, ...]) -> Carrier:
        """Return the slot's storage as a tile of `shape`; what it holds is undefined until written."""
        size = 1
        for extent in shape:
            size *= extent
        storage = self._storage.get(slot.index)
        if storage is None or storage.size < size:
            storage = self._storage[slot.index] = aligned_empty(size).view(self.math.carrier)
        tile = storage[:size].reshape(shape)
        self._tiles[slot.index] = tile
        return tile

    def tile(self, slot: Slot) -> Carrier:
        """Return what was last written to the slot.

        Raises   ProgramError if nothing was
        """
        tile = self._tiles.get(slot.index)
        if tile is None:
            raise ProgramError(f"{slot!r} is read before anything has written it: a wait is missing")
        return tile

    def convert(self, values: Carrier, dtype: str) -> Carrier:
        """Round values to the grid of `dtype`, as Fixpipe and the vector Cast do."""
        if dtype == self.math.carrier:
            return values
        target = lookup_dtype(dtype)
        rounding = "ROUND" if dtype == "hifloat8" else "RINT"
        return round_to(values, target, rounding=rounding, overflow=self.math.overflow)

    def store(self, dst: Gm, values: Carrier, *, atomic: bool) -> None:
        """Write values to GM in the tensor's dtype, or add them there as they are."""
        target = self.array(dst.tensor)
        if atomic:
            target[dst.index] += values
        else:
            target[dst.index] = self.convert(values, dst.tensor.dtype)


def _accumulation(math: MathSettings) -> Callable[[Carrier, Carrier, Carrier], None]:
    """Return what adds a cube product to an accumulator."""
    model = math.accumulation
    return model.accumulate if isinstance(model, IntegerSum) else partial(accumulate, model)


def aligned_empty(size: int, alignment: int = 64) -> NDArray[np.float32]:
    """Return uninitialised float32 storage that begins on a cache line."""
    raw = np.empty(size * 4 + alignment, dtype=np.uint8)
    start = -raw.ctypes.data % alignment
    return raw[start : start + size * 4].view(np.float32)


class Step(NamedTuple):
    """One instruction to execute: which core, and which index of its program."""

    core: int
    at: int


Observer = Callable[[Phase, Core, Instruction], None]


def run_kernel(
    kernel: Kernel,
    gm: dict[str, Carrier],
    *,
    order: str | int = "program",
    timeline: Timeline | None = None,
    observe: Observer | None = None,
) -> None:
    """Execute a kernel on tensors in GM, which it changes in place.

    Shapes   `gm`: tensor name -> carrier of the tensor's shape; missing outputs and workspaces are made,
             poisoned with NaN (integers: with its bits)
    Order    "program": core after core; "arrival": as in `timeline` (unfolded); an integer: a random order
             that respects the waits and the order inside every pipe, drawn from that seed
    Observe  is called after each instruction, with its phase and core
    Raises   ProgramError where a program reads what was never written
    """
    for name, tensor in kernel.tensors.items():
        if name not in gm:
            gm[name] = np.full(tensor.shape, np.nan, dtype=np.float32).view(kernel.math.carrier)
    indices: dict[Any, Any] = {}
    with np.errstate(all="ignore"):
        for number, phase in enumerate(kernel.phases):
            memories = {work.core: CoreMemory(gm, kernel, indices) for work in phase.work}
            for core, instruction in _steps(phase, number, order, timeline):
                instruction.execute(memories[core])
                if observe is not None:
                    observe(phase, core, instruction)


def _steps(
    phase: Phase, number: int, order: str | int, timeline: Timeline | None
) -> Iterator[tuple[Core, Instruction]]:
    """Yield the instructions of a phase in the asked order."""
    if order == "program":
        for work in phase.work:
            for instruction in work.build().instructions:
                yield work.core, instruction
        return
    cores = [work.core for work in phase.work]
    programs = [work.build() for work in phase.work]
    if order == "arrival":
        if timeline is None:
            raise ProgramError("order 'arrival' needs the kernel's timeline; time the kernel first")
        steps = _arrival_order(cores, number, timeline)
    else:
        steps = _random_order(programs, random.Random(int(order)))
    for step in steps:
        yield cores[step.core], programs[step.core].instructions[step.at]


def _arrival_order(cores: list[Core], number: int, timeline: Timeline) -> Iterator[Step]:
    """Yield all instructions by the cycle in which they leave their pipe; ties by core and program order.

    An instruction that needs or overwrites what another one touches starts no earlier than that one leaves
    its pipe, so this order is legal; the order in which results become visible is not: what overwrites a
    slot may be quicker to show than the slow result of a late reader. Atomic additions of one path have one
    latency, so they arrive in the order in which they leave.
    """
    place = {core: at for at, core in enumerate(cores)}
    timed = [
        (end, place[core], index)
        for spans in timeline.phases[number].cores
        for core in spans.cores
        for index, end in enumerate(spans.end)
    ]
    for _, core_at, index in sorted(timed):
        yield Step(core_at, index)


def _random_order(programs: list[Program], rng: random.Random) -> Iterator[Step]:
    """Yield a random order in which every pipe stays in order and every wait is respected."""
    queues: list[dict[str, list[int]]] = []
    for program in programs:
        pipes: dict[str, list[int]] = {}
        for index, instruction in enumerate(program.instructions):
            pipes.setdefault(instruction.pipe, []).append(index)
        queues.append({pipe: indices[::-1] for pipe, indices in pipes.items()})
    finished = [bytearray(len(program)) for program in programs]
    heads = [(core, pipe) for core, pipes in enumerate(queues) for pipe in pipes]
    while heads:
        # Favouring one end of the list at random makes some pipes run far ahead, which is what finds gaps.
        at = rng.randrange(len(heads))
        core, pipe = heads[at]
        for _ in range(rng.randrange(1, 8)):
            if not _ready(programs[core], finished[core], queues[core][pipe][-1]):
                break
            index = queues[core][pipe].pop()
            finished[core][index] = 1
            yield Step(core, index)
            if not queues[core][pipe]:
                heads.pop(at)
                break


def _ready(program: Program, finished: bytearray, index: int) -> bool:
    waits = *program.after_done[index], *program.after_end[index], *program.trailed(index)
    return all(finished[i] for i in waits)
