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

from abc import abstractmethod
from dataclasses import dataclass
from functools import partial
from math import gcd, prod
from typing import ClassVar, NamedTuple

import numpy as np

from ascendsim.instructions.cube import PipeBarrier, round_up
from ascendsim.instructions.relayout import OffDiagonal, OntoDiagonal, Turn
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
from ascendsim.ops.problems.convolution import C0_BYTES
from ascendsim.ops.schedules.vector.elementwise import piece_elements, runs, vector_cores
from ascendsim.ops.schedules.vector.relayout import Box, BoxSide, Index, Relayout, part
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
BLOCK_BYTES = 32
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
    block = _pixel_block(profile, space) if few(source) else _channel_block(profile, space, source.itemsize)
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


def _channel_block(profile: Profile, space: int, itemsize: int) -> int:
    """Return the number of channels that are summed at once: as many rows as UB holds, with their lanes."""
    figures = profile.buffers["UB"]
    room = figures.capacity_bytes - LANE_SUM_SLOTS * figures.alignment_bytes
    return max(1, room // (_row_bytes(min(space, _longest(profile, itemsize)), itemsize) + BESIDE_A_ROW))


def _longest(profile: Profile, itemsize: int) -> int:
    """Return the most pixels of one row that are in UB at once, whole groups of lanes."""
    figures = profile.buffers["UB"]
    room = figures.capacity_bytes - LANE_SUM_SLOTS * figures.alignment_bytes - BESIDE_A_ROW
    # One group at least: what it takes is refused with its size where UB does not hold it.
    return max(1, room // _row_bytes(FLOAT32_LANES, itemsize)) * FLOAT32_LANES


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
            most = min(self.space, _longest(profile, self.size))
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
            return AddRows(kept, slot, len(self.images[images]), rows * self.space)
        return AddLanes(kept, slot, rows, len(self.pixels[run]), self.size)

    def sum(self, total: Slot, kept: Slot, block: int) -> SumPixels | SumLanes:
        """Add what each channel has."""
        rows = self.blocks[block]
        return SumPixels(total, kept, rows, self.space) if self.small else SumLanes(total, kept, rows)

    def leave(self, total: Slot, block: int, channel: int, part: int) -> CopyUbToGm:
        """Bring the sums of a block to their place."""
        rows = self.blocks[block]
        place = Gm(self.sums, (part, slice(channel, channel + rows)))
        return CopyUbToGm(place, total, rows * self.sums.itemsize)


class TapRelayout(Relayout):
    """A change of weights or of their gradient; a run of taps goes on from one kernel depth to the next."""

    @property
    def planes(self) -> int:
        """Groups."""
        return self.packed.shape[0]

    @property
    def area(self) -> int:
        """Taps of all kernel depths, which follow each other row after row."""
        return self.plain.shape[3] * self.plain.shape[4]

    @property
    def depth_area(self) -> int:
        """Taps of one kernel depth."""
        return self.plain.shape[4]

    @property
    def lines_together(self) -> int:
        """As many rows of a result as are whole blocks, so that no two cores write parts of one."""
        row = self.plain.shape[2] * self.area * self.plain.itemsize
        return 1 if self.packs else C0_BYTES // gcd(C0_BYTES, row)

    def _kept_taps(self, box: Box) -> tuple[range, range]:
        """Return the kernel depths of a box and its taps of each: of whole depths, or a part of one."""
        each = self.depth_area
        depth, first = divmod(box.taps.start, each)
        if first == 0 and len(box.taps) >= each:
            return range(depth, box.taps.stop // each), range(each)
        return range(depth, depth + 1), range(first, first + len(box.taps))

    def rows_of(self, box: Box, c1: range) -> BoxSide:
        """Return some groups of channels of each row of a grad_weight."""
        depths, taps = self._kept_taps(box)
        shape = (len(depths), len(box.line), len(c1), len(taps), self.c0)
        # Sixteen rows of a tap make a fractal, which lies together on the device.
        runs = len(c1) * len(box.taps)
        run = len(box.line) * self.c0 * self.packed.itemsize
        place = (box.plane, part(depths), part(box.line), part(c1), part(taps))
        return BoxSide(place, shape, runs, run)


class ReadWeight(TapRelayout):
    """A change of a weight that grad_input reads: columns lie along the line."""

    c0_axis: ClassVar[int] = -2

    @property
    def line(self) -> int:
        """Columns, padded."""
        return self.packed.shape[5]

    def packed_side(self, box: Box) -> BoxSide:
        """Return C0 channels of each tap, a row of columns each; on the device fractals lie together."""
        depths, taps = self._kept_taps(box)
        size = len(box.line) * self.c0
        shape = (len(depths), len(box.c1), len(taps), self.c0, len(box.line))
        place = (box.plane, part(depths), part(box.c1), part(taps), slice(None), part(box.line))
        return BoxSide(place, shape, len(box.c1) * len(box.taps), size * self.packed.itemsize)


class ChannelRelayout(TapRelayout):
    """A change whose boxes have a run of channels of either side, row after row."""

    @abstractmethod
    def _channels(self, box: Box) -> tuple[slice, slice]:
        """Return the channels of both sides that a box has."""

    def loose(self, box: Box) -> int:
        """Return the blocks of 32 bytes that are taken apart; of a kernel with one tap none.

        Its channels lie side by side as they do in a group, so that whole blocks change places.
        """
        return super().loose(box) if self.area > 1 else 0

    def plain_shape(self, box: Box) -> tuple[int, ...]:
        """Return channels of both sides, kernel depths and taps."""
        first, second = self._channels(box)
        depths, taps = self._kept_taps(box)
        return first.stop - first.start, second.stop - second.start, len(depths), len(taps)

    def plain_side(self, box: Box) -> BoxSide:
        """Return where the taps of the channels lie, row after row."""
        first, second = self._channels(box)
        outer, inner = first.stop - first.start, second.stop - second.start
        depths, taps = self._kept_taps(box)
        # The taps of neighbouring channels follow each other.
        runs = outer if len(box.taps) == self.area else outer * inner
        run = outer * inner * len(box.taps) * self.plain.itemsize // max(1, runs)
        place = (box.plane, first, second, part(depths), part(taps))
        return BoxSide(place, (outer, inner, len(depths), len(taps)), runs, run)


@dataclass(frozen=True)
class WeightRelayout(ReadWeight, ChannelRelayout):
    """A change of a weight, which grad_input reads; `reduces_small`: in groups are the channels of S."""

    reduces_small: bool = True

    @property
    def line_there(self) -> int:
        """Columns without those that fill up the last fractal."""
        return self.plain.shape[2 if self.reduces_small else 1]

    def _channels(self, box: Box) -> tuple[slice, slice]:
        kept = self._kept(box.c1)
        # Lines are whole fractals: of few columns their last parts are nothing but zeros.
        there = self.line_there
        columns = slice(min(box.line.start, there), min(box.line.stop, there))
        return (kept, columns) if self.reduces_small else (columns, kept)

    def turn(self, box: Box) -> Turn:
        """Return (S, B, KD, T) -> (KD, C1, T, C0, columns)."""
        made = self.packed_side(box).shape
        depths, groups, taps, c0, columns = made
        if self.reduces_small:
            split: tuple[int, ...] = (groups, c0, columns, depths, taps)
            return Turn((groups * c0, columns, depths, taps), split, (3, 0, 4, 1, 2), made, made)
        split = (columns, groups, c0, depths, taps)
        return Turn((columns, groups * c0, depths, taps), split, (3, 1, 4, 2, 0), made, made)


class GradientRelayout(ChannelRelayout):
    """A change of a grad_weight, as it was made, back to row after row."""

    @property
    def line(self) -> int:
        """Rows, the channels of S."""
        return self.plain.shape[1]

    def _channels(self, box: Box) -> tuple[slice, slice]:
        return part(box.line), self._kept(box.c1)

    def packed_side(self, box: Box) -> BoxSide:
        """Return the groups of the box for each of its rows."""
        return self.rows_of(box, box.c1)

    def turn(self, box: Box) -> Turn:
        """Return (KD, rows, C1, T, C0) -> (rows, B, KD, T)."""
        made = self.packed_side(box).shape
        depths, rows, groups, taps, c0 = made
        merged = (rows, groups * c0, depths, taps)
        return Turn(made, made, (1, 2, 4, 0, 3), merged, self.plain_shape(box))


@dataclass(frozen=True)
class DiagonalRelayout(TapRelayout):
    """A change of weights whose groups are merged, `factor` of them at a time.

    small   channels of the small side in one group
    """

    factor: int = 1
    small: int = 1

    # A box has whole rows, and so do others that lie beside it.
    apart: ClassVar[bool] = False

    @property
    def block(self) -> tuple[int, int]:
        """Channels of one group, on the small and on the big side."""
        return self.small, self.plain.shape[2]

    @property
    def even(self) -> bool:
        """Return False: which blocks a box cuts depends on its place."""
        return False

    def mark(self, box: Box) -> tuple[int, ...]:
        """Return where the box lies, from which its blocks follow; the last merged group may have fewer."""
        return box.c1.start, box.line.start, int(box.plane == self.planes - 1)

    def together(self, planes: range) -> int:  # noqa: ARG002 - no two of them
        """Return one: boxes that read common rows are identified by their places."""
        return 1

    def _rows(self, box: Box, wanted: range) -> range:
        """Return which channels of the small side, of those wanted of a merged group, there are."""
        left = self.plain.shape[1] - box.plane * self.factor * self.small
        return range(wanted.start, max(wanted.start, min(wanted.stop, left)))

    @abstractmethod
    def _kept_rows(self, box: Box) -> range:
        """Return the channels of the small side of a merged group that a box reads or writes."""

    def plain_shape(self, box: Box) -> tuple[int, ...]:
        """Return channels of both sides, kernel depths and taps."""
        depths, taps = self._kept_taps(box)
        return len(self._kept_rows(box)), self.block[1], len(depths), len(taps)

    def plain_side(self, box: Box) -> BoxSide:
        """Return whole rows: channels of the small side, with the taps of all their own columns."""
        rows, (depths, taps) = self._kept_rows(box), self._kept_taps(box)
        columns, first = self.block[1], box.plane * self.factor * self.small
        whole = len(box.taps) == self.area
        runs = len(rows) if whole else len(rows) * columns
        run = len(box.taps) * self.plain.itemsize * (columns if whole else 1)
        place: Index = (
            *(0, slice(first + rows.start, first + rows.stop), slice(0, columns)),
            *(part(depths), part(taps)),
        )
        return BoxSide(place, (len(rows), columns, len(depths), len(taps)), runs, run)


@dataclass(frozen=True)
class DiagonalWeight(ReadWeight, DiagonalRelayout):
    """A change of a weight, which grad_input reads; `reduces_small`: in groups are the channels of S."""

    reduces_small: bool = True

    def _kept_rows(self, box: Box) -> range:
        # Those whose blocks lie in the box.
        small, big = self.block
        down, across = (small, big) if self.reduces_small else (big, small)
        channels = range(box.c1.start * self.c0, box.c1.stop * self.c0)
        first = max(channels.start // down, box.line.start // across)
        last = min(-(-channels.stop // down), -(-box.line.stop // across), self.factor)
        # Along the small side not even whole groups are needed.
        own = channels if self.reduces_small else box.line
        start = max(own.start, first * small)
        return self._rows(box, range(start, max(start, min(own.stop, last * small))))

    def turn(self, box: Box) -> OntoDiagonal:
        """Return (rows, B, KD, T) -> (KD, C1, T, C0, columns) with zeros beside the blocks."""
        depths, taps = self._kept_taps(box)
        padded = len(box.c1) * self.c0, len(box.line), len(depths), len(taps)
        first = box.c1.start * self.c0, box.line.start
        row = self._kept_rows(box).start
        return OntoDiagonal(padded, first, row, self.block, self.c0, self.reduces_small)


@dataclass(frozen=True)
class DiagonalGradient(DiagonalRelayout):
    """A change of a grad_weight, as it was made, back to row after row; a box has all columns of its rows."""

    @property
    def c1(self) -> int:
        """One: what a row keeps lies anywhere among its groups of channels, so a box has all of them."""
        return 1

    @property
    def line(self) -> int:
        """Rows of the merged matrix, without what fills them up."""
        return self.factor * self.small

    def _kept_rows(self, box: Box) -> range:
        return self._rows(box, box.line)

    def packed_side(self, box: Box) -> BoxSide:
        """Return all groups of channels of the rows."""
        return self.rows_of(box, range(self.packed.shape[3]))

    def turn(self, box: Box) -> OffDiagonal:
        """Return (KD, rows, C1, T, C0) -> (rows, B, KD, T), the blocks alone."""
        kept = len(self._kept_rows(box))
        return OffDiagonal(self.packed_side(box).shape, box.line.start, self.block, kept)
