"""Schedule of the bias gradient: the sum of each channel over batch and space, on vector cores."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from ascendsim.cube.mmad import PipeBarrier
from ascendsim.ops.plan import shares
from ascendsim.ops.schedules.vector.elementwise import piece_elements, vector_cores
from ascendsim.profile import Profile
from ascendsim.program.builder import ProgramBuilder
from ascendsim.program.kernel import CoreWork, Phase
from ascendsim.program.places import Gm, GmTensor
from ascendsim.program.program import Program
from ascendsim.program.rings import Ring
from ascendsim.vector.instructions import FLOAT32_LANES, AddLanes, CopyGmToUb, CopyUbToGm, Fill
from ascendsim.vector.row_sums import AddRows, SumLanes, SumPixels

LANE_SUM_SLOTS = 5  # two loads, the lanes, two totals


def lane_sums(profile: Profile, source: GmTensor, sums: GmTensor) -> Phase:
    """Return the phase that sums each channel of `source` (N, C, space) over a part of the images.

    Order    per channel and part: 64 float32 lanes start at +0; image after image, each row of `space`
             elements is added 64 at a time from the left; then the lanes are added by halves
    Tensors  `sums` (parts, C); part p takes images N * p / parts ... N * (p + 1) / parts
    """
    batch, channels, space = source.shape
    parts = sums.shape[0]
    cores = vector_cores(profile)
    small = space < FLOAT32_LANES
    block = _pixel_block(profile, space) if small else _channel_block(profile, space, source.itemsize)
    program = _row_sum_program if small else _lane_sum_program
    each = len(cores) // parts
    work: list[CoreWork] = []
    for part in range(parts):
        for share in shares(channels, each):
            first, count = _images(batch, parts, part)
            mine = _ChannelSums(part, first, count, share.start, len(share), min(block, len(share)))
            build = partial(program, profile, source, sums, mine)
            work.append(CoreWork(cores[len(work)], (len(share), count, space), build))
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
    piece = min(space, piece_elements(profile, 4))
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


def _row_sum_program(profile: Profile, source: GmTensor, sums: GmTensor, mine: _ChannelSums) -> Program:
    """Sum channels of fewer pixels than lanes: pixel s is lane s; the pixels of all channels lie in a row.

    The additions are those of `_lane_sum_program`, without the lanes that no pixel ever reaches.
    """
    space, size = source.shape[2], source.itemsize
    b = ProgramBuilder(profile)
    most = max(1, piece_elements(profile, 4) // 2 // (mine.block * space))
    most = min(most, mine.images)
    loads = Ring(b.slots("UB", most * mine.block * space * size, "in", 2))
    (pixels,) = b.slots("UB", mine.block * space * 4, "pixels")
    totals = Ring(b.slots("UB", mine.block * 4, "total", 2))
    last_channel, last_image = mine.first_channel + mine.channels, mine.first_image + mine.images
    for channel in range(mine.first_channel, last_channel, mine.block):
        rows = min(mine.block, last_channel - channel)
        length = rows * space
        b.add(Fill(pixels, (length,), length * 4))
        for image in range(mine.first_image, last_image, most):
            count = min(most, last_image - image)
            load = loads.next()
            place = (slice(image, image + count), slice(channel, channel + rows))
            b.add(CopyGmToUb(load, Gm(source, place), count * length * size, (count, length)))
            b.add(PipeBarrier("V"))
            b.add(AddRows(pixels, load, count, length))
        total = totals.next()
        b.add(PipeBarrier("V"))
        b.add(SumPixels(total, pixels, rows, space))
        target = Gm(sums, (mine.part, slice(channel, channel + rows)))
        b.add(CopyUbToGm(target, total, rows * sums.itemsize))
    return b.build()
