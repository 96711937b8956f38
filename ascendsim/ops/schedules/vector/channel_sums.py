"""Schedule of the bias gradient: the sum of each channel over batch and space, on vector cores."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from ascendsim.cube.mmad import PipeBarrier
from ascendsim.ops.plan import shares
from ascendsim.ops.schedules.vector.elementwise import load, piece_elements, pieces, store, vector_cores
from ascendsim.profile import Profile
from ascendsim.program.builder import ProgramBuilder
from ascendsim.program.kernel import CoreWork, Phase
from ascendsim.program.places import GmTensor
from ascendsim.program.program import Program
from ascendsim.vector.instructions import FLOAT32_LANES, AddLanes, Fill
from ascendsim.vector.row_sums import AddRows, SumLanes, SumPixels

LANE_SUM_SLOTS = 5  # two loads, the lanes, two totals


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
    work: list[CoreWork] = []
    for part in range(parts):
        images = range(batch * part // parts, batch * (part + 1) // parts)
        for share in shares(channels, each):
            mine = _ChannelSums(part, images, share, min(block, len(share)))
            build = partial(program, profile, source, sums, mine)
            work.append(CoreWork(cores[len(work)], (len(share), len(images), space), build))
    return Phase("lane sums", tuple(work))


def _pixel_block(profile: Profile, space: int) -> int:
    """Return how many channels of few pixels are summed at once: all their pixels in half a piece."""
    return max(1, piece_elements(profile, 4) // 2 // space)


def _channel_block(profile: Profile, space: int, itemsize: int) -> int:
    """Return how many channels are summed at once: as many as a piece holds, if UB holds all their lanes."""
    figures, most = profile.buffers["UB"], piece_elements(profile, 4)
    each = 2 * min(space, most) * itemsize + FLOAT32_LANES * 4 + 2 * 4
    fitting = (figures.capacity_bytes - LANE_SUM_SLOTS * figures.alignment_bytes) // each
    return max(1, min(most // space, fitting))


def bias_parts(profile: Profile, batch: int, channels: int) -> int:
    """Return into how many parts of the batch the sum is cut, so that few channels still use all cores."""
    # Whole images, so that the order inside an image does not depend on how many cores there are.
    return max(1, min(batch, len(vector_cores(profile)) // channels))


class _ChannelSums(NamedTuple):
    """The share of one core: channels of a part, summed in blocks of channels."""

    part: int
    images: range
    channels: range
    block: int

    def blocks(self) -> Iterator[tuple[slice, int]]:
        """Yield (slice of the channels, channels) of each block."""
        for first, rows in pieces(self.channels.start, self.channels.stop, self.block):
            yield slice(first, first + rows), rows


def _lane_sum_program(profile: Profile, source: GmTensor, sums: GmTensor, mine: _ChannelSums) -> Program:
    space, size = source.shape[2], source.itemsize
    b = ProgramBuilder(profile)
    most = min(space, piece_elements(profile, 4))
    loads = b.ring("UB", mine.block * most * size, "in", 2)
    (lanes,) = b.slots("UB", mine.block * FLOAT32_LANES * 4, "lanes")
    totals = b.ring("UB", mine.block * 4, "total", 2)
    for channels, rows in mine.blocks():
        b.add(Fill(lanes, (rows, FLOAT32_LANES), rows * FLOAT32_LANES * 4))
        for image in mine.images:
            for start, count in pieces(0, space, most):
                place = (image, channels, slice(start, start + count))
                given = load(b, loads, source, place, rows, count)
                # V delivers late: without a barrier the next addition would read the lanes before the last.
                b.add(PipeBarrier("V"))
                b.add(AddLanes(lanes, given, rows, count))
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
