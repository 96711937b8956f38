"""Schedule of the bias gradient: the sum of each channel over batch and space, on vector cores.

    for each block of channels that is mine:
        for each image:
            GM -> UB, a row of pixels for each channel    MTE2
            add each row to 64 lanes of its own           V     each 64 pixels wait for those before
        add the lanes, UB -> GM                           V, MTE3

The loops of the vendor's operator are published nowhere. That cores take equal numbers of channels, in as
many blocks as that makes, and that nothing overlaps, was read off measured kernels: their block counts, and
pipes whose busy times add up to the time of the core.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from ascendsim.cube.mmad import PipeBarrier
from ascendsim.cube.tile_reads import round_up
from ascendsim.ops.plan import chunks
from ascendsim.ops.schedules.vector.elementwise import load, piece_elements, pieces, store, vector_cores
from ascendsim.profile import Profile
from ascendsim.program.builder import ProgramBuilder
from ascendsim.program.kernel import CoreWork, Phase
from ascendsim.program.places import Gm, GmTensor
from ascendsim.program.program import Program
from ascendsim.vector.instructions import FLOAT32_LANES, AddLanes, CopyGmToUb, Fill
from ascendsim.vector.row_sums import AddRows, SumLanes, SumPixels

LANE_SUM_SLOTS = 4  # a load, the lanes, two totals
# Blocks that an operator deals channels to, if not one for each core: parts of the first generation with 30
# cores run 32 of them, in two rounds.
BLOCKS = {"1001": 32}
BLOCK_BYTES = 32
# The lanes of a row, and two totals.
BESIDE_A_ROW = FLOAT32_LANES * 4 + 2 * 4


def lane_sums(profile: Profile, source: GmTensor, sums: GmTensor) -> Phase:
    """Return the phase that sums each channel of `source` (N, C, space) over a part of the images.

    Order    per channel and part: 64 float32 lanes start at +0; image after image, each row of `space`
             elements is added 64 at a time from the left; then the lanes are added by halves
    Tensors  `sums` (parts, C); part p takes images N * p / parts ... N * (p + 1) / parts
    """
    # Few pixels leave most lanes empty: then one command takes many channels, a pixel to a lane.
    batch, channels, space = source.shape
    parts = sums.shape[0]
    cores = vector_cores(profile)
    small = space < FLOAT32_LANES
    block = _pixel_block(profile, space) if small else _channel_block(profile, space, source.itemsize)
    program = _row_sum_program if small else _lane_sum_program
    each = len(cores) // parts
    blocks = BLOCKS.get(profile.npu_arch, each) if parts == 1 else each
    work: list[CoreWork] = []
    for part in range(parts):
        images = range(batch * part // parts, batch * (part + 1) // parts)
        for own in _dealt(channels, blocks, each):
            mine = _ChannelSums(part, images, own, min(block, max(map(len, own))))
            build = partial(program, profile, source, sums, mine)
            signature = tuple(map(len, own)), len(images), space
            work.append(CoreWork(cores[len(work)], signature, build))
    return Phase("lane sums", tuple(work))


def _dealt(channels: int, blocks: int, cores: int) -> list[tuple[range, ...]]:
    """Return the channels of each core: equal blocks but for the last, block b on core b modulo them."""
    cut = chunks(channels, blocks)
    return [tuple(cut[core::cores]) for core in range(min(cores, len(cut)))]


def _pixel_block(profile: Profile, space: int) -> int:
    """Return how many channels of few pixels are summed at once: all their pixels in half a piece."""
    return max(1, piece_elements(profile, 4) // 2 // space)


def _channel_block(profile: Profile, space: int, itemsize: int) -> int:
    """Return how many channels are summed at once: as many rows as UB holds, with their lanes."""
    figures = profile.buffers["UB"]
    room = figures.capacity_bytes - LANE_SUM_SLOTS * figures.alignment_bytes
    return max(1, room // (_row_bytes(min(space, _longest(profile, itemsize)), itemsize) + BESIDE_A_ROW))


def _longest(profile: Profile, itemsize: int) -> int:
    """Return the most pixels of one row that are in UB at once, whole groups of lanes."""
    figures = profile.buffers["UB"]
    room = figures.capacity_bytes - LANE_SUM_SLOTS * figures.alignment_bytes - BESIDE_A_ROW
    return room // _row_bytes(FLOAT32_LANES, itemsize) * FLOAT32_LANES


def _row_bytes(pixels: int, itemsize: int) -> int:
    """Return what a row takes in UB: whole blocks, and its copy in float32 if it is narrower."""
    wide = 4 * pixels if itemsize < 4 else 0
    return round_up(pixels * itemsize, BLOCK_BYTES) + wide


def bias_parts(profile: Profile, batch: int, channels: int) -> int:
    """Return into how many parts of the batch the sum is cut, so that few channels still use all cores."""
    # Whole images, so that the order inside an image does not depend on how many cores there are.
    return max(1, min(batch, len(vector_cores(profile)) // channels))


class _ChannelSums(NamedTuple):
    """The share of one core: runs of channels of a part, at most `block` of them summed at once."""

    part: int
    images: range
    channels: tuple[range, ...]
    block: int

    def blocks(self) -> Iterator[tuple[slice, int]]:
        """Yield (slice of the channels, channels) of each block."""
        for run in self.channels:
            for first, rows in pieces(run.start, run.stop, self.block):
                yield slice(first, first + rows), rows


def _lane_sum_program(profile: Profile, source: GmTensor, sums: GmTensor, mine: _ChannelSums) -> Program:
    space, size = source.shape[2], source.itemsize
    b = ProgramBuilder(profile)
    most = min(space, _longest(profile, size))
    # One slot: the next rows are fetched once these have been added.
    (given,) = b.slots("UB", mine.block * _row_bytes(most, size), "in")
    (lanes,) = b.slots("UB", mine.block * FLOAT32_LANES * 4, "lanes")
    totals = b.ring("UB", mine.block * 4, "total", 2)
    for channels, rows in mine.blocks():
        b.add(Fill(lanes, (rows, FLOAT32_LANES), rows * FLOAT32_LANES * 4))
        for image in mine.images:
            for start, count in pieces(0, space, most):
                place = Gm(source, (image, channels, slice(start, start + count)))
                # Each row begins at a block of UB, as repeats do.
                padded = rows if count * size % BLOCK_BYTES else 0
                b.add(CopyGmToUb(given, place, rows * count * size, (rows, count), padded))
                # V delivers late: without a barrier the next addition would read the lanes before the last.
                b.add(PipeBarrier("V"))
                b.add(AddLanes(lanes, given, rows, count, size))
        total = totals.next()
        b.add(PipeBarrier("V"))
        b.add(SumLanes(total, lanes, rows))
        store(b, sums, (mine.part, channels), total, rows)
    return b.build()


def _row_sum_program(profile: Profile, source: GmTensor, sums: GmTensor, mine: _ChannelSums) -> Program:
    """Sum channels of fewer pixels than lanes: pixel s is lane s; the pixels of all channels lie in a row.

    The additions are those of `_lane_sum_program`, without the lanes that no pixel ever reaches.
    """
    space = source.shape[2]
    b = ProgramBuilder(profile)
    # As many images at once as the other half of a piece holds: each copy has a head of its own.
    most = max(1, piece_elements(profile, 4) // 2 // (mine.block * space))
    most = min(most, len(mine.images))
    loads = b.ring("UB", most * mine.block * space * source.itemsize, "in", 2)
    (pixels,) = b.slots("UB", mine.block * space * 4, "pixels")
    totals = b.ring("UB", mine.block * 4, "total", 2)
    for channels, rows in mine.blocks():
        length = rows * space
        b.add(Fill(pixels, (length,), length * 4))
        for image, count in pieces(mine.images.start, mine.images.stop, most):
            given = load(b, loads, source, (slice(image, image + count), channels), count, length)
            b.add(PipeBarrier("V"))
            b.add(AddRows(pixels, given, count, length))
        total = totals.next()
        b.add(PipeBarrier("V"))
        b.add(SumPixels(total, pixels, rows, space))
        store(b, sums, (mine.part, channels), total, rows)
    return b.build()
