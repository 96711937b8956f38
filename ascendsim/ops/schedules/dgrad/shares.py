"""The loop nest of grad_input whose tasks are shares of pixels and channels, as the products deal them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ascendsim.errors import ConfigError
from ascendsim.frozen import cached_property
from ascendsim.ops.schedules.base import Schedule
from ascendsim.ops.schedules.blocks import Sizes
from ascendsim.ops.schedules.dgrad.nest import Dgrad
from ascendsim.ops.schedules.dgrad.tasks import DgradTasks, Task
from ascendsim.ops.schedules.ranges import (
    Ranges,
    Rotation,
    cut,
    cut_within,
    deal,
    moved_on,
    numbered,
    rotated,
)


@dataclass(frozen=True)
class ShareTasks(DgradTasks):
    """The cut of a dgrad whose base blocks end where tasks of single_core_m x single_core_n end."""

    operator: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse a tiling that no program can follow."""
        super().__post_init__()
        t, c0 = self.tiling, self.gemm.sliding.c0
        if t.single_core_k and (t.single_core_k % c0 or len(self.part_channels) != t.k_split):
            raise ConfigError(
                f"tiling of grad_input: single_core_k is {t.single_core_k} and k_split is {t.k_split}; take "
                f"whole groups of {c0} channels, and as many parts as cover {self.gemm.channel_groups} groups"
            )

    @property
    def slices_of(self) -> Callable[[int, int], list[tuple[int, int]]]:
        """What cuts a run of the reduction into slices: base_k each, as the products take them."""
        return cut

    @property
    def part_channels(self) -> list[tuple[int, int]]:
        """First channel group of each part of the reduction, and how many it has."""
        if not self.tiling.single_core_k:
            return super().part_channels
        return cut(self.gemm.channel_groups, self.tiling.single_core_k // self.gemm.sliding.c0)

    @cached_property
    def pixel_shares(self) -> Ranges:
        """Pixel ranges of the tasks of one image."""
        return cut(self.gemm.sliding.pixels, self.tiling.block_m)

    @cached_property
    def column_shares(self) -> Ranges:
        """Column ranges of the tasks."""
        return cut(self.gemm.columns, self.tiling.block_n)

    @cached_property
    def in_row(self) -> bool:
        """Whether pixel tiles must stay inside one row, because whole rows do not fit in L1."""
        # Tiles begin where tasks begin, which may be anywhere in a row: the tiles themselves tell their rows.
        box, tile = self.left_boxes[0], self.gemm.sliding.tile
        tiles = cut_within(self.pixel_shares, self.tiling.base_m)
        left = self.tiling.al1_buffers * max(tile(*pixels, box).l1_bytes for pixels in tiles)
        right = self.tiling.bl1_buffers * self._right_bytes(max(count for _, count in self.column_tiles))
        return left + right > self.profile.buffers["L1"].capacity_bytes

    @cached_property
    def pixel_tiles(self) -> list[tuple[int, int]]:
        """Pixel ranges of one image: those of the tasks, cut by base_m, and inside rows where need be."""
        ranges = self.pixel_shares
        if self.in_row:
            rows = cut(self.gemm.sliding.pixels, self.gemm.sliding.out_size[1])
            ranges = sorted(
                (max(a, c), min(a + b, c + d) - max(a, c))
                for a, b in ranges
                for c, d in rows
                if max(a, c) < min(a + b, c + d)
            )
        return cut_within(ranges, self.tiling.base_m)

    @cached_property
    def column_tiles(self) -> list[tuple[int, int]]:
        """Column ranges: those of the tasks, cut by base_n."""
        return cut_within(self.column_shares, self.tiling.base_n)

    def sizes(self, tasks: Sequence[Task]) -> Sizes:
        """Return what a core with these tasks reserves."""
        # Images need the same room, so one round tells all.
        return super().sizes(of_each_round(tasks))

    def signature(self, tasks: Sequence[Task]) -> Hashable:
        """Describe what decides the cost of a core's program: one round tells all where tasks come round."""
        if not isinstance(tasks, Rotation):
            return super().signature(tasks), self._places(tasks)
        each = of_each_round(tasks)
        return counts_of(tasks), self._spelled(each), self._places(each)

    def _places(self, tasks: Sequence[Task]) -> Hashable:
        """Return what places in L1 follow from beside the tiles: the numbers of blocks in their tasks."""
        if not self.counted:
            return ()
        (rows, left), (columns, right) = (
            ({first: number for (first, _), number in zip(tiles, numbers, strict=True)}, copies)
            for tiles, numbers, copies in (
                (self.pixel_tiles, self.pixel_numbers, self.tiling.al1_buffers),
                (self.column_tiles, self.column_numbers, self.tiling.bl1_buffers),
            )
        )
        return tuple((rows[own.first_pixel] % left, columns[own.first_column] % right) for own in tasks)


def counts_of(tasks: Rotation) -> Hashable:
    """Return how many rounds there are, and how many base blocks each has.

    Every round meets images of its own and the weights of the round before it: that, and what the first is
    like, tells what all of them cost.
    """
    return tuple((len(images), len(each)) for images, each in tasks.rounds)


def of_each_round(tasks: Sequence[Any]) -> Sequence[Any]:
    """Return the tasks of the first image of every range of images; of other tasks all."""
    if not isinstance(tasks, Rotation):
        return tasks
    return [task for images, each in tasks.rounds for task in moved_on(each, images.start)]


@dataclass(frozen=True)
class DgradShares(Dgrad):
    """As `Dgrad`, but dealt in tasks: single_core_m pixels x single_core_n channels of images and depths.

    Tasks are numbered along their axes as `task_order` says and go to the cores as `mapping` says; inside a
    task, image after image and depth after depth, its tiles go along the channels first. A reduction is taken
    in slices of base_k, the last one shorter, where `Dgrad` makes all of them even: where base_k divides it,
    the bits are the same. Its parts are even, or segments of single_core_k channels. With `transpose_first`
    the weights lie in the cube's layout already, in a workspace that vector cores have filled.

    Raises   ConfigError for `transpose_first` on cores that get all operands so from a kernel before
    """

    name: ClassVar[str] = "dgrad_shares"
    reads: ClassVar[frozenset[str]] = (
        Dgrad.reads - {"pixel_dim"}
        | {"single_core_m", "single_core_n", "single_core_k", "batch_dim", "depth_dim"}
        | {"mapping", "task_order", "transpose_first"}
    )

    def __post_init__(self) -> None:
        """Refuse a tiling that no program can follow."""
        if self.tiling.transpose_first and self.profile.generation.changes_layouts:
            raise ConfigError(
                "tiling of grad_input: transpose_first is on, but a kernel before (TransData) changes "
                f"the layout of the weights on {self.profile.variant}; take False"
            )
        super().__post_init__()

    @cached_property
    def tasks(self) -> ShareTasks:
        """The base blocks, and the cut of their reduction."""
        return ShareTasks(self.gemm, self.tiling, self.profile)

    def dealt(self) -> list[Sequence[Task]]:
        """Return the base blocks of each core, task after task."""
        gemm, t = self.gemm, self.tiling
        axes: dict[str, Sequence[Any]] = {
            "batch": cut(gemm.batch, -(-gemm.batch // (t.batch_dim or gemm.batch))),
            "group": range(gemm.groups),
            "d": self._depth_shares,
            "m": self.tasks.pixel_shares,
            "n": self.tasks.column_shares,
        }
        if self._comes_round:
            of_image = numbered("grad_input", t.task_order, axes | {"batch": [(0, 1)]})
            kinds = [tuple(self._blocks(**place)) for place in of_image]
            return [*rotated(gemm.batch, len(kinds), t.used_cores, lambda i, number: _at(kinds[number], i))]
        tasks = [list(self._blocks(**place)) for place in numbered("grad_input", t.task_order, axes)]
        return [*deal(tasks, t)]

    @property
    def _comes_round(self) -> bool:
        """Whether images are tasks of their own that are dealt in turn, one after the other."""
        t = self.tiling
        return t.mapping == "interleaved" and not t.batch_dim and t.task_order.split()[:1] == ["batch"]

    @property
    def _depth_shares(self) -> Ranges:
        """Depth ranges of the tasks; a depth that no kernel depth reaches is zeros and no task of its own."""
        depths, parts = self.gemm.depths, self.tiling.depth_dim
        shares = cut(len(depths), -(-len(depths) // (parts or len(depths))))
        return [share for share in shares if any(depths[share[0] : sum(share)])]

    def _checked(self) -> Sequence[Sequence[Any]]:
        """Return the tasks of each core, which must be all base blocks."""
        if type(self).dealt is not DgradShares.dealt:
            return super()._checked()
        # Numbers that are dealt leave none out and repeat none; what they stand for is counted.
        dealt, count = Schedule._checked(self), len(self.tasks.tasks)
        assert sum(map(len, dealt)) == count, (sum(map(len, dealt)), count)
        return dealt

    def _blocks(
        self,
        batch: tuple[int, int],
        group: int,
        d: tuple[int, int],
        m: tuple[int, int],
        n: tuple[int, int],
    ) -> Iterator[Task]:
        """Yield the base blocks of one task."""
        pixels = self._tiles_of[m]
        columns = _inside(self.tasks.column_tiles, n)
        for image in range(batch[0], sum(batch)):
            for depth in range(d[0], sum(d)):
                if self.gemm.depths[depth]:
                    for tile in pixels:
                        for wide in columns:
                            yield Task(group, image, depth, *tile, *wide)

    @cached_property
    def _tiles_of(self) -> dict[tuple[int, int], Ranges]:
        """The pixel tiles of each share."""
        return {share: _inside(self.tasks.pixel_tiles, share) for share in self.tasks.pixel_shares}


def _at(tasks: Sequence[Task], image: int) -> Sequence[Task]:
    """Return base blocks of image 0 for another image."""
    return tasks if image == 0 else [task._replace(image=image) for task in tasks]


def _inside(tiles: Ranges, share: tuple[int, int]) -> Ranges:
    """Return the tiles that lie in a share."""
    return [tile for tile in tiles if share[0] <= tile[0] < sum(share)]


@dataclass(frozen=True)
class DgradC04(DgradShares):
    """As `DgradShares`, but the reduction has four channels under each tap, where others have C0 of them.

    grad_output and weights of at most four channels lie so in L1 (`DgradGemm.in_fours`); four taps fill the
    32 bytes of a fractal. With 3 channels and 3 x 3 taps a pixel adds 36 products, which take 3 fractals of
    the cube, and not 144 in 9.

    Raises   ConfigError where the operands do not lie so, or the stride or the dilation is not one
    """

    name: ClassVar[str] = "dgrad_c04"
    reads: ClassVar[frozenset[str]] = DgradShares.reads - {*("k_split", "single_core_k", "transpose_first")}

    def __post_init__(self) -> None:
        """Take the product with its operands in fours, and refuse a tiling that no program can follow."""
        sliding = self.gemm.sliding
        plain = {*sliding.stride, *sliding.insert, *sliding.dilation} == {1} and self.gemm.backwards
        # Other cores get their tensors in C0 groups from a kernel before (TransData).
        if not plain or self.profile.generation.changes_layouts:
            raise ConfigError(
                "schedule dgrad_c04: it takes a convolution that is not transposed, of stride and dilation 1 "
                "in H and W, on cores that read the user's tensors as they lie; take dgrad_shares"
            )
        object.__setattr__(self, "gemm", self.gemm.in_fours())
        super().__post_init__()
