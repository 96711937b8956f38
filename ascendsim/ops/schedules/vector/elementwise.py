"""Schedules of the vector cores: zero fill, cast, sums of parts in order and as a tree."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ascendsim.instructions.elementwise import Cast
from ascendsim.instructions.flags import PipeBarrier
from ascendsim.instructions.vector import FLOAT32_LANES, Add, CopyGmToUb, CopyUbToGm, Fill
from ascendsim.ops.plan import shares
from ascendsim.profile import Profile
from ascendsim.program.kernel import Core, CoreWork, Deferred, Phase
from ascendsim.program.places import Gm, GmTensor, Ring, Slot
from ascendsim.program.program import Program, ProgramBuilder

if TYPE_CHECKING:
    from ascendsim.program.places import CoreMemory


# The largest piece that one vector instruction sequence works on; two copies of it and of its source fit in
# every product's UB, and 16 KiB is where the vendor calls a transfer efficient.
PIECE_BYTES = 16 * 1024
# Rows of a workspace that are added one after the other; where in them, and the shape of what lies there.
Sum = tuple[range, tuple[Any, ...], tuple[int, ...]]


def vector_cores(profile: Profile) -> tuple[Core, ...]:
    """Return the cores that run vector kernels: vector cores, or the unified cores themselves."""
    # Split cores have a cube and two vector cores side by side; unified ones have both in one core.
    if profile.core_structure == "split":
        return _cores("vector", profile.cores.vector)
    return _cores("cube", profile.cores.cube)


# A network has dozens of kernels that run on all of them.
@lru_cache(maxsize=16)
def _cores(kind: str, count: int) -> tuple[Core, ...]:
    return tuple([Core(kind, index) for index in range(count)])


def shared(profile: Profile, count: int) -> Iterator[tuple[Core, range]]:
    """Return each vector core that gets any of so many things, with its share of them."""
    cores = vector_cores(profile)
    return zip(cores, shares(count, len(cores)), strict=False)


def flat_phase(
    name: str, profile: Profile, size: int, itemsize: int, build: Callable[[Profile, int, int], Program]
) -> Phase:
    """Share `size` elements among all vector cores; `build(profile, first, count)` makes a program.

    Equal counts must have equal costs, and programs of other elements move other slices. The kernel keeps
    `build`, which must pickle if the kernel is to.
    """
    return Phase(name, Deferred(partial(_flat_work, profile, size, itemsize, build)), apart=True)


def _flat_work(
    profile: Profile, size: int, itemsize: int, build: Callable[[Profile, int, int], Program]
) -> tuple[CoreWork, ...]:
    """Return the work of every core that has some."""
    return tuple(
        [
            CoreWork(core, (last - first, itemsize), partial(build, profile, first, last - first))
            for core, first, last in _dealt(profile, size)
        ]
    )


def _dealt(profile: Profile, size: int) -> Iterator[tuple[Core, int, int]]:
    """Yield each core that gets work with its first element and the end of its range."""
    # In whole groups of lanes: a share that ended inside one would cost two repeats for it, one on each core.
    lanes = FLOAT32_LANES
    for core, share in shared(profile, -(-size // lanes)):
        yield core, share.start * lanes, min(share.stop * lanes, size)


def pieces(first: int, end: int, most: int) -> Iterator[tuple[int, int]]:
    """Cut a range into pieces of at most `most` elements; yield (first, count)."""
    for start in range(first, end, most):
        yield start, min(most, end - start)


def runs(whole: range, most: int) -> list[range]:
    """Cut a range into ranges of at most `most`."""
    return [range(start, start + count) for start, count in pieces(whole.start, whole.stop, most)]


def load(b: ProgramBuilder, ring: Ring, tensor: GmTensor, place: tuple[Any, ...], *shape: int) -> Slot:
    """Append the copy of a slice of GM into the next slot of a ring; return the slot."""
    slot = ring.next()
    b.add(CopyGmToUb(slot, Gm(tensor, place), prod(shape) * tensor.itemsize, shape))
    return slot


def store(b: ProgramBuilder, tensor: GmTensor, place: tuple[Any, ...], slot: Slot, count: int) -> None:
    """Append the copy of a slot to a slice of GM."""
    b.add(CopyUbToGm(Gm(tensor, place), slot, count * tensor.itemsize))


def zero_fill(profile: Profile, tensor: GmTensor, value: float = 0.0) -> Phase:
    """Return the phase that sets a whole flat tensor to zero (or another value, in its format)."""
    build = partial(_fill_program, tensor, value)
    phase = flat_phase("zero fill", profile, tensor.shape[0], tensor.itemsize, build)
    return phase._replace(at_once=partial(_filled, tensor, value), recipe=("fill", *_told(tensor)))


def _filled(tensor: GmTensor, value: float, memory: CoreMemory) -> None:
    """Set a whole flat tensor to one value, in its format: what the programs make, sooner."""
    values = np.full(tensor.shape, value, memory.math.carrier)
    memory.store(Gm(tensor, (slice(None),)), values, atomic=False)


def _fill_program(tensor: GmTensor, value: float, profile: Profile, first: int, count: int) -> Program:
    b = ProgramBuilder(profile)
    most = min(count, piece_elements(profile, tensor.itemsize))
    (slot,) = b.slots("UB", most * tensor.itemsize, "zeros")
    filled = 0
    for start, size in pieces(first, first + count, most):
        # One fill serves all whole pieces. A short last one is filled again: a tile is copied as a whole.
        if size != filled:
            b.add(Fill(slot, (size,), size * tensor.itemsize, value))
            filled = size
        store(b, tensor, (slice(start, start + size),), slot, size)
    return b.build()


def cast(profile: Profile, source: GmTensor, target: GmTensor) -> Phase:
    """Return the phase that converts a flat tensor to another format (nearest even)."""
    # The wider side decides how much fits into UB, and how many repeats V takes.
    widest = max(source.itemsize, target.itemsize)
    build = partial(_cast_program, source, target, widest)
    phase = flat_phase("cast", profile, source.shape[0], widest, build)
    recipe = "cast", *_told(source), *_told(target)
    return phase._replace(at_once=partial(_converted, source, target), recipe=recipe)


def _converted(source: GmTensor, target: GmTensor, memory: CoreMemory) -> None:
    """Convert a whole flat tensor to the format of another."""
    memory.store(Gm(target, (slice(None),)), memory.array(source), atomic=False)


def _told(tensor: GmTensor) -> tuple[Any, ...]:
    """Return the properties of a flat tensor that cycles may depend on."""
    return tensor.shape, tensor.dtype, tensor.itemsize, tensor.cached


def _cast_program(
    source: GmTensor, target: GmTensor, widest: int, profile: Profile, first: int, count: int
) -> Program:
    b = ProgramBuilder(profile)
    most = min(count, piece_elements(profile, widest))
    # Two slots each way: the next piece arrives, and the last one leaves, while this one is converted.
    loads = b.ring("UB", most * source.itemsize, "in", 2)
    results = b.ring("UB", most * target.itemsize, "out", 2)
    for start, size in pieces(first, first + count, most):
        place = (slice(start, start + size),)
        given, result = load(b, loads, source, place, size), results.next()
        b.add(Cast(result, given, target.dtype, size, source.itemsize))
        store(b, target, place, result, size)
    return b.build()


def ordered_sum(profile: Profile, parts: GmTensor, target: GmTensor) -> Phase:
    """Return the phase that adds the rows of `parts` (count, elements) one after the other, in float32.

    The sum begins with part 0 and takes the others in order; the result is stored in the target's format.
    """
    build = partial(_ordered_program, parts, target)
    return flat_phase("ordered sum", profile, target.shape[0], 4, build)


def _ordered_program(parts: GmTensor, target: GmTensor, profile: Profile, first: int, count: int) -> Program:
    rows = range(parts.shape[0])
    return _runs_program(profile, parts, target, [(rows, first, first + count)])


def tree_sum(profile: Profile, parts: GmTensor, target: GmTensor) -> tuple[Phase, ...]:
    """Return the phases that add the rows of `parts` (count, elements) as a binary tree, in float32.

    Order    rounds of stride 1, 2, 4, ...: row i takes row i + stride where i is a multiple of twice the
             stride; all cores meet between rounds; the last round stores in the target's format
    Tensors  `parts` is a workspace whose rows become partial sums
    """
    rounds = tree_rounds(parts.shape[0])
    return tuple(
        _tree_round(profile, parts, target if pairs is rounds[-1] else None, pairs) for pairs in rounds
    )


def tree_rounds(count: int) -> list[list[range]]:
    """Return the pairs of rows that meet in each round of a binary tree over so many."""
    # Rounds of their own phases: a row may be the sum that another core has made in the round before.
    strides = [1 << turn for turn in range((count - 1).bit_length())]
    return [[range(row, row + by + 1, by) for row in range(0, count - by, 2 * by)] for by in strides]


def _tree_round(profile: Profile, parts: GmTensor, target: GmTensor | None, pairs: Sequence[range]) -> Phase:
    """Return one round; its pairs of rows, laid end to end, are shared among all cores."""
    # Laid end to end, because there may be fewer pairs than cores: the last round has a single one.
    elements, work = parts.shape[1], []
    for core, first, last in _dealt(profile, len(pairs) * elements):
        runs = [
            (pair, max(first - at * elements, 0), min(last - at * elements, elements))
            for at, pair in enumerate(pairs)
            if first < (at + 1) * elements and last > at * elements
        ]
        signature = tuple(end - start for _, start, end in runs)
        work.append(CoreWork(core, signature, partial(_runs_program, profile, parts, target, runs)))
    return Phase(f"tree sum, stride {pairs[0].step}", tuple(work))


def _runs_program(
    profile: Profile, parts: GmTensor, target: GmTensor | None, runs: Sequence[tuple[range, int, int]]
) -> Program:
    """Add the rows of each run (rows, first element, end), piece by piece."""
    most = piece_elements(profile, 4)
    sums = [
        (rows, (slice(start, start + size),), (size,))
        for rows, first, end in runs
        for start, size in pieces(first, end, most)
    ]
    return sums_program(profile, parts, target, sums)


def sums_program(profile: Profile, parts: GmTensor, target: GmTensor | None, sums: Sequence[Sum]) -> Program:
    """Add the rows of each sum in float32.

    It goes to the target, or, where there is none, takes the place of the first row.
    """
    b = ProgramBuilder(profile)
    most = max(prod(shape) for _, _, shape in sums)
    loads = b.ring("UB", most * 4, "in", 2)
    totals = b.ring("UB", most * 4, "total", 2)
    for rows, place, shape in sums:
        total = load(b, totals, parts, (rows[0], *place), *shape)
        for number, row in enumerate(rows[1:]):
            other = load(b, loads, parts, (row, *place), *shape)
            if number:
                b.add(PipeBarrier("V"))  # each sum needs the one before
            b.add(Add(total, other, prod(shape)))
        gm = Gm(target or parts, place if target else (rows[0], *place))
        b.add(CopyUbToGm(gm, total, prod(shape) * gm.tensor.itemsize, converts=True))
    return b.build()


def piece_elements(profile: Profile, itemsize: int) -> int:
    """Return the number of elements of a piece: four slots of it must fit in UB."""
    limit = min(PIECE_BYTES, profile.buffers["UB"].capacity_bytes // 4)
    return max(1, limit // itemsize // FLOAT32_LANES) * FLOAT32_LANES


def flat(tensor: GmTensor) -> GmTensor:
    """Return a tensor as one axis, which is all that elementwise loops need to know of it."""
    return replace(tensor, shape=(prod(tensor.shape),))


class MatrixPiece(NamedTuple):
    """Some rows and columns of a matrix of a group at a kernel depth."""

    group: int
    depth: int
    first_row: int
    rows: int
    first_column: int
    columns: int

    @property
    def place(self) -> tuple[int | slice, ...]:
        """The piece's place in (groups, kernel depths, rows, columns)."""
        rows = slice(self.first_row, self.first_row + self.rows)
        return self.group, self.depth, rows, slice(self.first_column, self.first_column + self.columns)


def block_sums(
    profile: Profile, parts: GmTensor, target: GmTensor, blocks: Sequence[MatrixPiece], *, tree: bool
) -> list[Phase]:
    """Return the phases that add the parts of some blocks in float32, into the same blocks of a tensor.

    Shapes   parts (count, groups, kernel depths, rows, columns), target without the first
    Order    0, 1, 2, ...; or as a binary tree in rounds of stride 1, 2, 4, ...: part i takes part i + stride
             where i is a multiple of twice the stride; all cores meet between rounds
    """
    pieces = [piece for block in blocks for piece in _cut(profile, block)]
    if not tree:
        rows = range(parts.shape[0])
        return [_phase("ordered sum", profile, parts, target, [(rows, piece) for piece in pieces])]
    phases, rounds = [], tree_rounds(parts.shape[0])
    for pairs in rounds:
        goal = target if pairs is rounds[-1] else None
        sums = [(pair, piece) for pair in pairs for piece in pieces]
        phases.append(_phase(f"tree sum, stride {pairs[0].step}", profile, parts, goal, sums))
    return phases


def _cut(profile: Profile, block: MatrixPiece) -> Iterator[MatrixPiece]:
    """Cut a block into pieces of whole rows that fit in UB."""
    each = max(1, piece_elements(profile, 4) // block.columns)
    for first in range(0, block.rows, each):
        rows = min(each, block.rows - first)
        yield block._replace(first_row=block.first_row + first, rows=rows)


def _phase(
    name: str,
    profile: Profile,
    parts: GmTensor,
    target: GmTensor | None,
    sums: Sequence[tuple[range, MatrixPiece]],
) -> Phase:
    """Return the phase in which all vector cores share some sums; without a target as `sums_program`."""
    work = []
    for core, share in shared(profile, len(sums)):
        own = [
            (rows, piece.place, (piece.rows, piece.columns)) for rows, piece in sums[share.start : share.stop]
        ]
        signature = tuple([(len(rows), *shape) for rows, _, shape in own])
        work.append(CoreWork(core, signature, partial(sums_program, profile, parts, target, own)))
    return Phase(name, tuple(work))
