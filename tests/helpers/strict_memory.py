"""Kernels whose instructions are held to what they declare, and where their traffic with GM goes."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ascendsim.cube.movers import CopyGmToL1, CopyL0cToUb, FillL1, Fixpipe
from ascendsim.functional import run_kernel
from ascendsim.numerics.formats.dtypes import ELEMENTS, find
from ascendsim.program.places import CoreMemory, Gm
from ascendsim.program.program import Program
from ascendsim.vector.instructions import (
    Add,
    AddLanes,
    AddRows,
    Cast,
    CopyGmToUb,
    CopyUbToGm,
    Fill,
    SumLanes,
    SumPixels,
)
from ascendsim.vector.relayout import CopyUbToL1
from tests.helpers.conv_cases import kernels_with_inputs


class StrictMemory(CoreMemory):
    """Lends one instruction the memory of its core, and notes what it touches.

    What it writes without reading is poisoned first, so that a part it leaves out shows. What it only reads
    must be unchanged afterwards. A tile must fit in its slot.
    """

    def __init__(self, memory, instruction, itemsize):
        self.__dict__.update(memory.__dict__)
        self._instruction = instruction
        self._itemsize = itemsize
        self._before = []
        self._storing = False

    def new_tile(self, slot, shape):
        assert slot in self._instruction.writes, (
            f"{self._instruction} makes {slot}, which it does not declare"
        )
        need = tile_bytes(self._instruction, slot, shape, self._itemsize)
        assert need <= slot.size_bytes, f"{self._instruction} puts {need} bytes into {slot}"
        tile = super().new_tile(slot, shape)
        if slot not in self._instruction.reads:
            tile.view(np.float32).fill(np.nan)  # of integers: its bits
        return tile

    def accumulator(self, slot):
        known = {*self._instruction.reads, *self._instruction.writes}
        assert slot in known, f"{self._instruction} reads {slot}, which it does not declare"
        return super().accumulator(slot)

    def tile(self, slot):
        tile = super().tile(slot)
        if slot not in self._instruction.writes:
            self._before.append((slot, tile, tile.copy()))
        return tile

    def array(self, tensor):
        places = [place for place in gm_places(self._instruction) if place.gm.tensor.name == tensor.name]
        assert places, f"{self._instruction} touches {tensor.name}, which it does not name"
        array = super().array(tensor)
        if not self._storing:
            array = array.view()
            array.flags.writeable = False
        return array

    def store(self, dst, values, *, atomic):
        [place] = [place for place in gm_places(self._instruction) if place.kind != "read"]
        assert place == Place(dst, "atomic" if atomic else "write")
        self._storing = True
        super().store(dst, values, atomic=atomic)
        self._storing = False

    def check(self):
        for slot, tile, before in self._before:
            assert np.array_equal(tile, before, equal_nan=True), f"{self._instruction} changes {slot}"
        counted = elements_of(self._instruction)
        if counted is not None:
            slot, elements = counted
            assert self._tiles[slot.index].size == elements, f"{self._instruction} miscounts {slot}"


def tile_bytes(instruction, slot, shape, itemsize):
    """Return the bytes that a tile takes in its buffer on the device."""
    elements = int(np.prod(shape))
    if isinstance(instruction, CopyGmToL1 | FillL1) and len(shape) == 2:
        is_image = isinstance(instruction, FillL1) or instruction.window is not None
        return (elements - shape[1] * is_image) * itemsize  # the last row of zeros is the simulator's own
    if isinstance(instruction, CopyUbToL1) and slot is instruction.dst:
        return (elements - shape[1]) * itemsize
    if slot.buffer == "L0C" or isinstance(instruction, SumLanes | SumPixels):
        return elements * 4
    if isinstance(instruction, CopyGmToUb | Fill):
        return instruction.bytes
    if isinstance(instruction, Cast | CopyL0cToUb):
        return elements * find(instruction.dtype, ELEMENTS).itemsize
    return elements * itemsize


def elements_of(instruction):
    """Return the slot whose elements an instruction counts for its cost, and how many it says; or None."""
    match instruction:
        case Add() | Cast():
            return instruction.src, instruction.elements
        case CopyL0cToUb():
            return instruction.dst, instruction.elements
        case AddLanes():
            return instruction.src, instruction.rows * instruction.length
        case AddRows():
            return instruction.src, instruction.rows * instruction.length
        case SumLanes() | SumPixels():
            return instruction.dst, instruction.rows
        case Fixpipe():
            return instruction.src, instruction.bytes // instruction.dst.tensor.itemsize
        case CopyUbToGm():
            return instruction.src, instruction.bytes // instruction.dst.tensor.itemsize
    return None


@dataclass(frozen=True)
class Held:
    """An instruction that is executed on a strict memory."""

    inner: object
    itemsize: int

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def execute(self, memory):
        strict = StrictMemory(memory, self.inner, self.itemsize)
        self.inner.execute(strict)
        strict.check()


def strict(kernel, itemsize):
    """Return the kernel with every instruction held to what it declares; `itemsize` is the cube operands'."""

    def held(build):
        def program():
            p = build()
            instructions = tuple(Held(instruction, itemsize) for instruction in p.instructions)
            return Program(instructions, p.slots, p.buffer_bytes, p.hazards)

        return program

    phases = tuple(
        phase._replace(work=tuple(work._replace(build=held(work.build)) for work in phase.work))
        for phase in kernel.phases
    )
    return replace(kernel, phases=phases)


class Place(NamedTuple):
    """A slice of GM that an instruction reads, writes or adds to."""

    gm: Gm
    kind: str


def gm_places(instruction):
    """Return the slices of GM that an instruction touches."""
    places = []
    if isinstance(getattr(instruction, "src", None), Gm):
        places.append(Place(instruction.src, "read"))
    if isinstance(getattr(instruction, "dst", None), Gm):
        places.append(Place(instruction.dst, "atomic" if instruction.atomic else "write"))
    return places


def check_gm(kernel):
    """Check the traffic of a kernel with GM; return how often each element of each tensor is written.

    In a phase no tensor is both read and written, plain and atomic writes do not meet, and no element is
    written twice. Every slice lies inside its tensor, every copy names as many bytes as its slice has.
    """
    counts = {name: np.zeros(tensor.shape, int) for name, tensor in kernel.tensors.items()}
    for phase in kernel.phases:
        kinds, written = {}, {}
        for work in phase.work:
            for instruction in work.build().instructions:
                for place in gm_places(instruction):
                    _check_place(place, instruction, kernel)
                    tensor = place.gm.tensor
                    kinds.setdefault(tensor.name, set()).add(place.kind)
                    if place.kind == "read":
                        continue
                    counts[tensor.name].reshape(tensor.shape)[place.gm.index] += 1
                    here = written.setdefault(
                        tensor.name, np.zeros(tensor.size_bytes // tensor.itemsize, int)
                    )
                    here.reshape(tensor.shape)[place.gm.index] += 1
        for name, found in kinds.items():
            assert len(found) == 1, f"phase {phase.name} does {sorted(found)} on {name}"
            if found == {"write"}:
                assert written[name].max() <= 1, f"phase {phase.name} writes elements of {name} twice"
    return counts


def _check_place(place, instruction, kernel):
    tensor = place.gm.tensor
    assert tensor.name in kernel.tensors
    assert tensor.size_bytes == kernel.tensors[tensor.name].size_bytes
    size = tensor.itemsize
    for at, extent in zip(place.gm.index, tensor.shape, strict=False):
        first, last = (
            (at.start or 0, extent if at.stop is None else at.stop)
            if isinstance(at, slice)
            else (int(at), int(at) + 1)
        )
        assert 0 <= first < last <= extent, f"{instruction} leaves {tensor.name} {tensor.shape}"
        size *= last - first
    for extent in tensor.shape[len(place.gm.index) :]:
        size *= extent
    assert size == instruction.bytes, f"{instruction} moves {instruction.bytes} bytes of a slice of {size}"


def assert_as_declared(call, tensors, *wanted):
    """Run the kernels of a call strictly and in another order: nothing may fail or change a result."""
    for kernel, gm in kernels_with_inputs(call, tensors, *wanted):
        strict_gm = dict(gm)
        run_kernel(kernel, gm)
        run_kernel(strict(kernel, call.storage.itemsize), strict_gm, order=5)
        for output in [name for name, tensor in kernel.tensors.items() if tensor.role == "output"]:
            assert np.array_equal(gm[output], strict_gm[output], equal_nan=True), output
