"""Schedule of the bias gradient: the sum of each channel over batch and space, on vector cores.

    for each block of channels that is mine:
        for each image:
            GM -> UB, a row of pixels for each channel    MTE2 (of rows too long for UB: a part of each)
            add each row to 64 lanes of its own           V     each 64 pixels wait for those before
        add the lanes, UB -> GM                           V, MTE3

The loops of the vendor's operator are published nowhere. That cores take equal numbers of channels, in as
many blocks as that makes, and that nothing overlaps, was read off measured kernels: their block counts, and
pipes whose busy times add up to the time of the core.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import NamedTuple

import numpy as np

from ascendsim.instructions.cube import round_up
from ascendsim.instructions.flags import PipeBarrier
from ascendsim.instructions.vector import (
    FLOAT32_LANES,
    AddLanes,
    AddRows,
    CopyGmToUb,
    CopyUbToGm,
    Fill,
    SumLanes,
    SumPixels,
)
from ascendsim.ops.plan import chunks
from ascendsim.ops.problems.views import BLOCK_BYTES
from ascendsim.ops.schedules.vector.elementwise import piece_elements, runs, vector_cores
from ascendsim.profile import Profile
from ascendsim.program.kernel import CoreWork, Deferred, Phase
from ascendsim.program.nest import Nest
from ascendsim.program.places import Gm, GmTensor, Slot
from ascendsim.program.program import NestProgram
from ascendsim.program.walk import Axis

LANE_SUM_SLOTS = 4  # a load, the lanes, two totals
# Blocks that an operator deals channels to, if not one for each core: parts of the first generation with 30
# cores run 32 of them, in two rounds.
BLOCKS = {"1001": 32}
# The lanes of a row, and two totals.
BESIDE_A_ROW = FLOAT32_LANES * 4 + 2 * 4


def lane_sums(profile: Profile, source: GmTensor, sums: GmTensor) -> Phase:
    """Return the phase that sums each channel of `source` (N, C, space) over a part of the images.

    Order    per channel and part: 64 float32 lanes start at +0; image after image, each row of `space`
             elements is added 64 at a time from the left; then the lanes are added by halves
    Tensors  `sums` (parts, C); part p takes images N * p / parts ... N * (p + 1) / parts
    """
    return Phase("lane sums", Deferred(partial(_work, profile, source, sums)))


def _work(profile: Profile, source: GmTensor, sums: GmTensor) -> tuple[CoreWork, ...]:
    """Return the work of every core that has some."""
    batch, channels, space = source.shape
    parts = sums.shape[0]
    cores = vector_cores(profile)
    block = _pixel_block(profile, space) if few(source) else _channel_block(profile, source.itemsize)
    each = len(cores) // parts
    count = BLOCKS.get(profile.npu_arch, each) if parts == 1 else each
    images = [range(batch * part // parts, batch * (part + 1) // parts) for part in range(parts)]
    dealt = [[rows for run in own for rows in runs(run, block)] for own in _dealt(channels, count, each)]
    own = [_Share(part, images[part], blocks) for part in range(parts) for blocks in dealt]
    nests: dict[Kind, SumsNest] = {}
    return tuple(
        CoreWork(core, share.kind, partial(_program, profile, source, sums, share, nests))
        for core, share in zip(cores, own, strict=False)
    )


def few(source: GmTensor) -> bool:
    """Return whether most lanes would be empty: then one command takes many channels, a pixel to a lane."""
    return source.shape[2] < FLOAT32_LANES


def _dealt(channels: int, blocks: int, cores: int) -> list[tuple[range, ...]]:
    """Return the channels of each core: equal blocks but for the last, block b on core b modulo them."""
    cut = chunks(channels, blocks)
    return [tuple(cut[core::cores]) for core in range(min(cores, len(cut)))]


def _pixel_block(profile: Profile, space: int) -> int:
    """Return how many channels with few pixels are summed at once: all their pixels in half a piece."""
    return max(1, piece_elements(profile, 4) // 2 // space)


def _channel_block(profile: Profile, itemsize: int) -> int:
    """Return the number of channels that are summed at once: as many as UB holds with 64 pixels of each."""
    return max(1, _room(profile) // (_row_bytes(FLOAT32_LANES, itemsize) + BESIDE_A_ROW))


def _longest(profile: Profile, itemsize: int, rows: int) -> int:
    """Return the most pixels of each of some rows that are in UB at once, whole groups of lanes."""
    room = _room(profile) // rows - BESIDE_A_ROW
    # One group at least: what it takes is refused with its size where UB does not hold it.
    return max(1, room // _row_bytes(FLOAT32_LANES, itemsize)) * FLOAT32_LANES


def _room(profile: Profile) -> int:
    """Return the bytes of UB for rows of pixels and what lies beside them."""
    figures = profile.buffers["UB"]
    return figures.capacity_bytes - LANE_SUM_SLOTS * figures.alignment_bytes


def _row_bytes(pixels: int, itemsize: int) -> int:
    """Return the bytes of a row in UB: whole blocks, and its copy in float32 if it is narrower."""
    wide = 4 * pixels if itemsize < 4 else 0
    return round_up(pixels * itemsize, BLOCK_BYTES) + wide


def bias_parts(profile: Profile, batch: int, channels: int) -> int:
    """Return into how many parts of the batch the sum is cut, so that few channels still use all cores."""
    # Whole images, so that the order inside an image does not depend on how many cores there are.
    return max(1, min(batch, len(vector_cores(profile)) // channels))


# How many channels the blocks of a core have, and how many images it sums.
Kind = tuple[tuple[int, ...], int]


class _Share(NamedTuple):
    """The share of one core: blocks of channels, summed one after the other over a part of the images."""

    part: int
    images: range
    blocks: list[range]

    @property
    def kind(self) -> Kind:
        """A key of the task's cost."""
        return tuple(map(len, self.blocks)), len(self.images)


def _program(
    profile: Profile, source: GmTensor, sums: GmTensor, share: _Share, nests: dict[Kind, SumsNest]
) -> NestProgram:
    """Return the program of a core; those of a kind differ in where they begin."""
    if share.kind not in nests:
        nests[share.kind] = SumsNest(profile, source, sums, *share.kind)
    first, part = share.images.start, share.part
    rows = [(number, block.start, first, part) for number, block in enumerate(share.blocks)]
    return NestProgram(nests[share.kind], np.array(rows))


class SumsNest(Nest):
    """Blocks of so many channels, one after the other, each in so many images.

    Pixel s of a row is added to lane s modulo 64, image after image. Of channels of fewer pixels than lanes
    pixel s is lane s, and the pixels of all channels lie in a row: the same additions, without the lanes that
    no pixel ever reaches.
    """

    def __init__(
        self, profile: Profile, source: GmTensor, sums: GmTensor, blocks: tuple[int, ...], images: int
    ) -> None:
        super().__init__(profile, "lane sums")
        self.source, self.sums, self.blocks, block = source, sums, blocks, max(blocks)
        self.space, self.size, self.small = source.shape[2], source.itemsize, few(source)
        if self.small:
            length = block * self.space
            # As many images at once as the other half of a piece holds: each copy has a head of its own.
            most = min(max(1, piece_elements(profile, 4) // 2 // length), images)
            self.images, self.pixels = runs(range(images), most), [range(self.space)]
            given = self.ring("UB", most * length * self.size, "in", 2)
            (kept,) = self.slots("UB", length * 4, "pixels")
        else:
            most = min(self.space, _longest(profile, self.size, block))
            self.images, self.pixels = runs(range(images), 1), runs(range(self.space), most)
            # One slot: the next rows are fetched once these have been added.
            given = self.ring("UB", block * _row_bytes(most, self.size), "in")
            (kept,) = self.slots("UB", block * FLOAT32_LANES * 4, "lanes")
        totals = self.ring("UB", block * 4, "total", 2)
        images_of, pixels_of = (Axis(len(own), list(map(len, own))) for own in (self.images, self.pixels))
        batch, channels, _ = source.shape
        own, channel, image, part = self.task(
            block=Axis(len(blocks), blocks), channel=channels, image=batch, part=sums.shape[0]
        )
        self.emit(self.clear, [kept], [own])
        with self.loop(images_of, "images") as some, self.loop(pixels_of, "pixels") as run:
            slot = self.next(given)
            self.emit(self.fetch, [slot], [own, channel, image, some, run])
            # V delivers late: without a barrier the next addition would read the sums before the last.
            self.emit(self.barrier)
            self.emit(self.add, [kept, slot], [own, some, run])
        total = self.next(totals)
        self.emit(self.barrier)
        self.emit(self.sum, [total, kept], [own])
        self.emit(self.leave, [total], [own, channel, part])

    def clear(self, kept: Slot, block: int) -> Fill:
        """Begin with zeros."""
        rows = self.blocks[block]
        shape = (rows * self.space,) if self.small else (rows, FLOAT32_LANES)
        return Fill(kept, shape, prod(shape) * 4)

    def fetch(self, slot: Slot, block: int, channel: int, image: int, images: int, run: int) -> CopyGmToUb:
        """Bring pixels of all channels of a block into UB."""
        rows, some, pixels = self.blocks[block], self.images[images], self.pixels[run]
        first, channels = image + some.start, slice(channel, channel + rows)
        if self.small:
            shape = len(some), rows * self.space
            given = Gm(self.source, (slice(first, first + len(some)), channels))
            return CopyGmToUb(slot, given, prod(shape) * self.size, shape)
        row_bytes = len(pixels) * self.size
        # Each row begins at a block of UB, as repeats do.
        padded = rows if row_bytes % BLOCK_BYTES else 0
        given = Gm(self.source, (first, channels, slice(pixels.start, pixels.stop)))
        return CopyGmToUb(slot, given, rows * row_bytes, (rows, len(pixels)), padded)

    def barrier(self) -> PipeBarrier:
        """Let V deliver."""
        return PipeBarrier("V")

    def add(self, kept: Slot, slot: Slot, block: int, images: int, run: int) -> AddRows | AddLanes:
        """Add the pixels to those before."""
        rows = self.blocks[block]
        if self.small:
            return AddRows(kept, slot, len(self.images[images]), rows * self.space, self.size)
        return AddLanes(kept, slot, rows, len(self.pixels[run]), self.size)

    def sum(self, total: Slot, kept: Slot, block: int) -> SumPixels | SumLanes:
        """Add what each channel has."""
        rows = self.blocks[block]
        return SumPixels(total, kept, rows, self.space) if self.small else SumLanes(total, kept, rows)

    def leave(self, total: Slot, block: int, channel: int, part: int) -> CopyUbToGm:
        """Bring the sums of a block to their place."""
        rows = self.blocks[block]
        place = Gm(self.sums, (part, slice(channel, channel + rows)))
        return CopyUbToGm(place, total, rows * self.sums.itemsize, converts=True)
