"""The legal cuts of a filter product under the schedule `wgrad`."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import cache
from itertools import product
from math import prod
from typing import NamedTuple

from ascendsim.cube.load3d import FRACTAL_ROWS
from ascendsim.cube.tile_reads import round_up
from ascendsim.ops.plan import Tiling
from ascendsim.ops.problems.taps import Taps, first_box
from ascendsim.ops.problems.wgrad import WgradGemm
from ascendsim.ops.schedules.tiles import ACCUMULATOR_BYTES
from ascendsim.ops.schedules.wgrad.columns import range_in_row
from ascendsim.ops.tiling.legal.space import COPIES, Base, Cut, Footprint, Space
from ascendsim.profile import Profile


class _Room(NamedTuple):
    """What L1 leaves to the image tile under a run of pixels.

    in_row     whether runs stay inside a row
    channels   groups of channels of which it holds all taps
    groups     (channel group, tap) pairs of the largest box that it holds
    """

    in_row: bool
    channels: int
    groups: int


class WgradSpace(Space):
    """Cuts of a filter product: channels in groups of C0, pixels in whole fractals.

    Parts of the reduction go to different cores: as many as there are cores, or runs of pixels if those are
    fewer. Of numbers of columns that are cut into the same blocks, as L1 holds no more, the least.
    """

    schedule = "wgrad"
    # It writes rows of a plain matrix.
    c0 = 0

    def __init__(self, gemm: WgradGemm, profile: Profile) -> None:
        super().__init__(gemm, profile)
        s = gemm.sliding
        self.sizes = (
            range(s.c0, gemm.rows + 1, s.c0),
            range(s.c0, gemm.all_taps.groups * s.c0 + 1, s.c0),
            range(FRACTAL_ROWS, round_up(s.pixels, FRACTAL_ROWS) + 1, FRACTAL_ROWS),
        )
        self.splits = range(1, profile.cores.cube + 1)

    def steps(self, base_k: int, k_split: int) -> Sequence[tuple[int, int]]:
        """Return the (step_ka, step_kb), which are equal, up to a whole image."""
        del k_split
        return [(step, step) for step in range(1, -(-self.gemm.sliding.pixels // base_k) + 1)]

    def least(self, base: Base) -> Footprint:
        """Return the least that any cut with this base block takes."""
        return self._footprint(base, 1, 0, in_row=True)

    def footprint(self, cut: Cut) -> Footprint | None:
        """Return what a cut takes; None where L1 does not hold it, or where a smaller cut means the same."""
        room = self._room(cut.base, cut.steps[0], cut.copies)
        blocks = room and self._blocks(room, cut.base.n)
        if room is None or blocks is None or cut.k_split > self._segments(cut.base, cut.steps[0], room):
            return None
        groups, count = blocks
        tasks = count * self._parts(cut.base, cut.steps[0], room, cut.k_split)
        return self._footprint(cut.base, groups, tasks, in_row=room.in_row)

    def count(self) -> int:
        """Return the number of legal tilings; columns and parts are counted for all cuts that share them."""
        rows, columns, pixels = self.sizes
        total = 0
        blocks_in = cache(lambda room: [found for n in columns if (found := self._blocks(room, n))])
        for base_m, base_k in product(rows, pixels):
            base = Base(base_m, columns[0], base_k)
            completed = cache(
                lambda groups, in_row, base=base: self.completions(
                    self._footprint(base, groups, 0, in_row=in_row)
                )
            )
            for (step, _), *copies in product(self.steps(base_k, 1), COPIES, COPIES):
                room = self._room(base, step, (copies[0], copies[1]))
                if room is None:
                    continue
                cores = self._cores_of(base, step, room)
                for groups, blocks in blocks_in(room):
                    total += completed(groups, room.in_row) * cores(blocks)
        return total

    def _cores_of(self, base: Base, step: int, room: _Room) -> Callable[[int], int]:
        """Return what counts the (k_split, used_cores) for a number of column blocks."""
        most = min(len(self.splits), self._segments(base, step, room))
        parts = [self._parts(base, step, room, split) for split in range(1, most + 1)]
        return cache(lambda blocks: sum(self.most_cores(blocks * part) for part in parts))

    def _footprint(self, base: Base, groups: int, tasks: int, *, in_row: bool) -> Footprint:
        s, cube = self.gemm.sliding, self.profile.cube
        pixels = min(base.k, s.out_size[1] if in_row else s.pixels)
        k = round_up(pixels, cube.rates[self.gemm.compute_dtype].k0)
        m, n = round_up(base.m, cube.m0), round_up(groups * s.c0, cube.n0)
        return Footprint(m, k, n, ACCUMULATOR_BYTES, tasks)

    def _room(self, base: Base, step: int, copies: tuple[int, int]) -> _Room | None:
        """Return what L1 leaves to the image tile; None if not even one tap of it fits."""
        s, whole, pixels = self.gemm.sliding, self.gemm.all_taps, step * base.k
        rows = copies[0] * round_up(base.m, self.profile.cube.m0) * s.itemsize
        # No run is longer than an image.
        left = rows * min(pixels, s.pixels)
        budget = (self.profile.buffers["L1"].capacity_bytes - left) // copies[1]
        tiling = Tiling(*base, step, step)
        in_row = range_in_row(self.gemm, tiling, budget)

        def size(box: Taps) -> int:
            return int(s.tile_bytes(pixels, box, in_row=in_row))

        # What the schedule takes must leave the room that slots lose between them, where they lose any.
        budget = min(budget, (self.l1_room(copies) - left) // copies[1])
        boxes = range(1, whole.groups + 1)
        groups = bisect_right(boxes, budget, key=lambda taps: size(first_box(whole, taps * s.c0, s.c0)))
        if not groups:
            # The schedule then takes single taps. That room was reckoned for runs of full length: those that
            # end with the row are shorter.
            longest = min(pixels, s.out_size[1] if in_row else s.pixels)
            taken = rows * longest + copies[1] * size(first_box(whole, s.c0, s.c0))
            if taken > self.l1_room(copies):
                return None
        return _Room(in_row, budget // size(whole._replace(channels=1)), max(1, groups))

    def _blocks(self, room: _Room, base_n: int) -> tuple[int, int] | None:
        """Return the (channel group, tap) pairs of the largest column block, and the number of blocks.

        None where fewer columns are cut into the same blocks.
        """
        whole, c0 = self.gemm.all_taps, self.gemm.sliding.c0
        groups, taps = base_n // c0, whole.rows * whole.cols

        # A run of columns that begins at the last tap of a group touches one group more.
        if min(whole.channels, -(-(groups + taps - 1) // taps)) <= room.channels:
            return groups, -(-whole.groups // groups)
        box = first_box(whole, min(groups, room.groups) * c0, c0)
        # Blocks of fewer columns than asked for are those of a smaller base_n.
        if box.groups < groups:
            return None
        blocks = prod(-(-extent // part) for extent, part in zip(whole[1::2], box[1::2], strict=True))
        return int(box.groups), int(blocks)

    def _runs(self, base: Base, step: int, room: _Room) -> list[int]:
        """Return the runs of pixels that each kernel depth adds up."""
        runs = self.gemm.batch * self.gemm.sliding.pixel_tile_count(step * base.k, in_row=room.in_row)
        return [int(len(pairs) * runs) for pairs in self.gemm.depths]

    def _segments(self, base: Base, step: int, room: _Room) -> int:
        return max(1, max(self._runs(base, step, room)))

    def _parts(self, base: Base, step: int, room: _Room, k_split: int) -> int:
        """Return the tasks of one column block: what has no run of pixels is none."""
        parts = sum(min(k_split, runs) for runs in self._runs(base, step, room))
        return int(self.gemm.groups * -(-self.gemm.rows // base.m) * parts)
