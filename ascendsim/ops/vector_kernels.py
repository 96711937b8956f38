"""Schedules of the vector cores: zero fill, cast, ordered sum of parts, sum over batch and space."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ascendsim.cube.mmad import PipeBarrier
from ascendsim.ops.rings import Ring
from ascendsim.ops.tiling.plan import shares
from ascendsim.program import Core, CoreWork, Gm, GmTensor, Phase, Program, ProgramBuilder
from ascendsim.vector.instructions import (
    FLOAT32_LANES,
    Add,
    AddLanes,
    Cast,
    CopyGmToUb,
    CopyUbToGm,
    Fill,
    SumLanes,
)

if TYPE_CHECKING:
    from ascendsim.profile import Profile

# The largest piece that one vector instruction sequence works on; two copies of it and of its source fit in
# every product's UB, and 16 KiB is where the vendor calls a transfer efficient.
PIECE_BYTES = 16 * 1024

LANE_SUM_SLOTS = 5  # two loads, the lanes, two totals


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
        piece = min(count, _piece_elements(profile, tensor.itemsize))
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
        piece = min(count, _piece_elements(profile, widest))
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
        piece = min(count, _piece_elements(profile, 4))
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
    piece = min(max(end - start for _, start, end in runs), _piece_elements(profile, 4))
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


def _piece_elements(profile: Profile, itemsize: int) -> int:
    """Return how many elements a piece holds: four slots of it must fit in UB."""
    limit = min(PIECE_BYTES, profile.buffers["UB"].capacity_bytes // 4)
    return max(1, limit // itemsize // FLOAT32_LANES) * FLOAT32_LANES


def lane_sums(profile: Profile, source: GmTensor, sums: GmTensor) -> Phase:
    """Return the phase that sums each channel of `source` (N, C, space) over a part of the images.

    Order    per channel and part: 64 float32 lanes start at +0; image after image, each row of `space`
             elements is added 64 at a time from the left; then the lanes are added by halves
    Tensors  `sums` (parts, C); part p takes images N * p / parts ... N * (p + 1) / parts
    """
    batch, channels, space = source.shape
    parts = sums.shape[0]
    cores = vector_cores(profile)
    block = _channel_block(profile, space, source.itemsize)
    each = len(cores) // parts
    work: list[CoreWork] = []
    for part in range(parts):
        for share in shares(channels, each):
            first, count = _images(batch, parts, part)
            mine = _ChannelSums(part, first, count, share.start, len(share), min(block, len(share)))
            build = partial(_lane_sum_program, profile, source, sums, mine)
            work.append(CoreWork(cores[len(work)], (len(share), count, space), build))
    return Phase("lane sums", tuple(work))


def _channel_block(profile: Profile, space: int, itemsize: int) -> int:
    """Return how many channels are summed at once: as many as a piece holds, if UB holds all their lanes."""
    figures, most = profile.buffers["UB"], _piece_elements(profile, 4)
    each = 2 * min(space, most) * itemsize + FLOAT32_LANES * 4 + 2 * 4
    fitting = (figures.capacity_bytes - LANE_SUM_SLOTS * figures.alignment_bytes) // each
    return max(1, min(most // space, fitting))


def bias_parts(profile: Profile, batch: int, channels: int) -> int:
    """Return into how many parts of the batch the sum is cut, so that few channels still use all cores."""
    return max(1, min(batch, len(vector_cores(profile)) // channels))


class _ChannelSums(NamedTuple):
    """The share of one core: channels of a part, summed in blocks of channels."""

    part: int
    first_image: int
    images: int
    first_channel: int
    channels: int
    block: int


def _images(batch: int, parts: int, part: int) -> tuple[int, int]:
    """Return first image and number of images of one part."""
    first, last = batch * part // parts, batch * (part + 1) // parts
    return first, last - first


def _lane_sum_program(profile: Profile, source: GmTensor, sums: GmTensor, mine: _ChannelSums) -> Program:
    space, size = source.shape[2], source.itemsize
    b = ProgramBuilder(profile)
    piece = min(space, _piece_elements(profile, 4))
    loads = Ring(b.slots("UB", mine.block * piece * size, "in", 2))
    lanes = Ring(b.slots("UB", mine.block * FLOAT32_LANES * 4, "lanes", 1))
    totals = Ring(b.slots("UB", mine.block * 4, "total", 2))
    last_channel = mine.first_channel + mine.channels
    for channel in range(mine.first_channel, last_channel, mine.block):
        rows = min(mine.block, last_channel - channel)
        lane = lanes.next()
        b.add(Fill(lane, (rows, FLOAT32_LANES), rows * FLOAT32_LANES * 4))
        for image in range(mine.first_image, mine.first_image + mine.images):
            for start in range(0, space, piece):
                count = min(piece, space - start)
                load = loads.next()
                place = (image, slice(channel, channel + rows), slice(start, start + count))
                b.add(CopyGmToUb(load, Gm(source, place), rows * count * size, (rows, count)))
                b.add(PipeBarrier("V"))
                b.add(AddLanes(lane, load, rows, count))
        total = totals.next()
        b.add(PipeBarrier("V"))
        b.add(SumLanes(total, lane, rows))
        target = Gm(sums, (mine.part, slice(channel, channel + rows)))
        b.add(CopyUbToGm(target, total, rows * sums.itemsize))
    return b.build()
