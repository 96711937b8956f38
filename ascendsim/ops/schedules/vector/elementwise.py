"""Schedules of the vector cores: zero fill, cast, sums of parts in order and as a tree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import prod

from ascendsim.cube.mmad import PipeBarrier
from ascendsim.ops.plan import shares
from ascendsim.profile import Profile
from ascendsim.program.builder import ProgramBuilder
from ascendsim.program.kernel import Core, CoreWork, Phase
from ascendsim.program.places import Gm, GmTensor
from ascendsim.program.program import Program
from ascendsim.program.rings import Ring
from ascendsim.vector.instructions import FLOAT32_LANES, Add, Cast, CopyGmToUb, CopyUbToGm, Fill

# The largest piece that one vector instruction sequence works on; two copies of it and of its source fit in
# every product's UB, and 16 KiB is where the vendor calls a transfer efficient.
PIECE_BYTES = 16 * 1024


def vector_cores(profile: Profile) -> list[Core]:
    """Return the cores that run vector kernels: vector cores, or the unified cores themselves."""
    if profile.core_structure == "split":
        return [Core("vector", index) for index in range(profile.cores.vector)]
    return [Core("cube", index) for index in range(profile.cores.cube)]


def flat_phase(
    name: str, profile: Profile, size: int, itemsize: int, build: Callable[[Profile, int, int], Program]
) -> Phase:
    """Share `size` elements among all vector cores; `build(profile, first, count)` makes a program.

    Equal counts must cost the same.
    """
    cores = vector_cores(profile)
    step = FLOAT32_LANES
    units = -(-size // step)
    work = []
    for core, share in zip(cores, shares(units, len(cores)), strict=False):
        first, last = share.start * step, min(share.stop * step, size)
        signature = (last - first, itemsize)
        work.append(CoreWork(core, signature, partial(build, profile, first, last - first)))
    return Phase(name, tuple(work))


def zero_fill(profile: Profile, tensor: GmTensor, value: float = 0.0) -> Phase:
    """Return the phase that sets a whole flat tensor to zero (or another value, in its format)."""

    def program(profile: Profile, first: int, count: int) -> Program:
        b = ProgramBuilder(profile)
        piece = min(count, piece_elements(profile, tensor.itemsize))
        (slot,) = b.slots("UB", piece * tensor.itemsize, "zeros")
        b.add(Fill(slot, (piece,), piece * tensor.itemsize, value))
        # A short last piece is filled again, because a tile is copied as a whole.
        for start in range(first, first + count, piece):
            size = min(piece, first + count - start)
            if size < piece:
                b.add(Fill(slot, (size,), size * tensor.itemsize, value))
            b.add(CopyUbToGm(Gm(tensor, (slice(start, start + size),)), slot, size * tensor.itemsize))
        return b.build()

    return flat_phase("zero fill", profile, tensor.shape[0], tensor.itemsize, program)


def cast(profile: Profile, source: GmTensor, target: GmTensor) -> Phase:
    """Return the phase that converts a flat tensor to another format (nearest even)."""
    widest = max(source.itemsize, target.itemsize)

    def program(profile: Profile, first: int, count: int) -> Program:
        b = ProgramBuilder(profile)
        piece = min(count, piece_elements(profile, widest))
        loads = Ring(b.slots("UB", piece * source.itemsize, "in", 2))
        results = Ring(b.slots("UB", piece * target.itemsize, "out", 2))
        for start in range(first, first + count, piece):
            size = min(piece, first + count - start)
            place = (slice(start, start + size),)
            load, result = loads.next(), results.next()
            b.add(CopyGmToUb(load, Gm(source, place), size * source.itemsize, (size,)))
            b.add(Cast(result, load, target.dtype, size, widest))
            b.add(CopyUbToGm(Gm(target, place), result, size * target.itemsize))
        return b.build()

    return flat_phase("cast", profile, source.shape[0], widest, program)


def ordered_sum(profile: Profile, parts: GmTensor, target: GmTensor) -> Phase:
    """Return the phase that adds the rows of `parts` (count, elements) one after the other, in float32.

    The sum begins with part 0 and takes the others in order; the result is stored in the target's format.
    """

    def program(profile: Profile, first: int, count: int) -> Program:
        b = ProgramBuilder(profile)
        piece = min(count, piece_elements(profile, 4))
        loads = Ring(b.slots("UB", piece * 4, "in", 2))
        totals = Ring(b.slots("UB", piece * 4, "total", 2))
        for start in range(first, first + count, piece):
            size = min(piece, first + count - start)
            place = slice(start, start + size)
            total = totals.next()
            b.add(CopyGmToUb(total, Gm(parts, (0, place)), size * 4, (size,)))
            for part in range(1, parts.shape[0]):
                load = loads.next()
                b.add(CopyGmToUb(load, Gm(parts, (part, place)), size * 4, (size,)))
                if part > 1:
                    b.add(PipeBarrier("V"))  # each sum needs the one before
                b.add(Add(total, load, size))
            b.add(CopyUbToGm(Gm(target, (place,)), total, size * target.itemsize))
        return b.build()

    return flat_phase("ordered sum", profile, target.shape[0], 4, program)


def tree_sum(profile: Profile, parts: GmTensor, target: GmTensor) -> tuple[Phase, ...]:
    """Return the phases that add the rows of `parts` (count, elements) as a binary tree, in float32.

    Order    rounds of stride 1, 2, 4, ...: row i takes row i + stride where i is a multiple of twice the
             stride; all cores meet between rounds; the last round stores in the target's format
    Tensors  `parts` is a workspace whose rows become partial sums
    """
    count = parts.shape[0]
    strides = [1 << round_ for round_ in range((count - 1).bit_length())]
    return tuple(
        _tree_round(profile, parts, target if stride == strides[-1] else None, stride) for stride in strides
    )


def _tree_round(profile: Profile, parts: GmTensor, target: GmTensor | None, stride: int) -> Phase:
    """Return one round; its pairs of rows, laid end to end, are shared among all cores."""
    count, elements = parts.shape
    rows = range(0, count - stride, 2 * stride)
    work = []
    cores = vector_cores(profile)
    units = -(-len(rows) * elements // FLOAT32_LANES)
    for core, share in zip(cores, shares(units, len(cores)), strict=False):
        first, last = share.start * FLOAT32_LANES, min(share.stop * FLOAT32_LANES, len(rows) * elements)
        runs = tuple(
            (row, max(first - at * elements, 0), min(last - at * elements, elements))
            for at, row in enumerate(rows)
            if first < (at + 1) * elements and last > at * elements
        )
        signature = tuple(end - start for _, start, end in runs)
        build = partial(_tree_program, profile, parts, target, stride, runs)
        work.append(CoreWork(core, signature, build))
    return Phase(f"tree sum, stride {stride}", tuple(work))


def _tree_program(
    profile: Profile,
    parts: GmTensor,
    target: GmTensor | None,
    stride: int,
    runs: tuple[tuple[int, int, int], ...],
) -> Program:
    """Add row + stride to row for each run (row, first element, end)."""
    b = ProgramBuilder(profile)
    piece = min(max(end - start for _, start, end in runs), piece_elements(profile, 4))
    loads = Ring(b.slots("UB", piece * 4, "in", 2))
    totals = Ring(b.slots("UB", piece * 4, "total", 2))
    for row, first, end in runs:
        for start in range(first, end, piece):
            size = min(piece, end - start)
            place = slice(start, start + size)
            total, load = totals.next(), loads.next()
            b.add(CopyGmToUb(total, Gm(parts, (row, place)), size * 4, (size,)))
            b.add(CopyGmToUb(load, Gm(parts, (row + stride, place)), size * 4, (size,)))
            b.add(Add(total, load, size))
            goal = Gm(target, (place,)) if target is not None else Gm(parts, (row, place))
            b.add(CopyUbToGm(goal, total, size * goal.tensor.itemsize))
    return b.build()


def piece_elements(profile: Profile, itemsize: int) -> int:
    """Return how many elements a piece holds: four slots of it must fit in UB."""
    limit = min(PIECE_BYTES, profile.buffers["UB"].capacity_bytes // 4)
    return max(1, limit // itemsize // FLOAT32_LANES) * FLOAT32_LANES


def flat(tensor: GmTensor) -> GmTensor:
    """Return a tensor as one axis, which is all that elementwise loops need to know of it."""
    return replace(tensor, shape=(prod(tensor.shape),))
