"""The loop nest of grad_weight whose tasks are shares of all three sides, as the products deal them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ascendsim.frozen import cached_property
from ascendsim.ops.schedules.base import Schedule, WgradOrder
from ascendsim.ops.schedules.ranges import TaskRange, cut, cut_within, deal, numbered, numbers_within
from ascendsim.ops.schedules.wgrad.cut import Columns, Task, segment_of
from ascendsim.ops.schedules.wgrad.fractals import PixelShares
from ascendsim.ops.schedules.wgrad.nest import Wgrad

if TYPE_CHECKING:
    from ascendsim.ops.problems.strips import Numbers


@dataclass(frozen=True)
class ShareTasks(PixelShares):
    """The cut of a wgrad whose parts are shares of single_core_k pixels of one image at one small depth."""

    operator: ClassVar[bool] = True

    @property
    def begins(self) -> Numbers:
        """Whether a task of an image begins with a range."""
        firsts = {first for first, _ in self.pixel_shares}
        return np.array([first in firsts for first, _ in self.ranges_of_image])

    @property
    def column_numbers(self) -> Numbers:
        """The number in its task of the tile in L1 of each block of columns; kernel depths begin anew."""
        depths, width = range(len(self.gemm.depths)), self.gemm.output.shape[3]
        firsts = [[(at * width + own.first_column, own.box) for own in self.column_blocks] for at in depths]
        return np.array([numbers_within(own, self.tiling.block_n) for own in firsts])

    @property
    def by_grid(self) -> bool:
        """Shares say themselves what a part is."""
        return False

    @property
    def splits(self) -> int:
        """Parts of the reduction: shares of all images at all depths of the small side."""
        return self.gemm.batch * self.gemm.small.shape[2] * len(self.pixel_shares)

    def place(self, part: int) -> tuple[int, int, slice]:
        """Return the image, the small depth and the ranges of a part."""
        place, share = divmod(part, len(self.pixel_shares))
        return *divmod(place, self.gemm.small.shape[2]), self.ranges_of_share[share]

    def part(self, depth: int, part: int) -> TaskRange:
        """Return the segments of one part of the reduction at a kernel depth; none where it meets padding."""
        image, small, ranges = self.place(part)
        begin = image * len(self.ranges_of_image)
        pairs, numbers = [], range(0)
        if self.reduces(depth, part):
            pairs = [(small, self._bigs[depth][small])]
            numbers = range(begin + ranges.start, begin + ranges.stop)
        return TaskRange(pairs, self.gemm.batch, self.ranges_of_image, segment_of, numbers)

    def reduces(self, depth: int, part: int) -> bool:
        """Return whether a part has any segment at a kernel depth."""
        return part // len(self.pixel_shares) % self.gemm.small.shape[2] in self._bigs[depth]

    @cached_property
    def _bigs(self) -> list[dict[int, int]]:
        """For each kernel depth the depth of the big side that meets one of the small side."""
        return [dict(pairs) for pairs in self.gemm.depths]

    @cached_property
    def _reducing(self) -> Numbers:
        """Of each kernel depth and part the depth of the big side; -1 where it reduces nothing."""
        small = self.gemm.small.shape[2]
        bigs = np.array([[own.get(depth, -1) for depth in range(small)] for own in self._bigs])
        return np.tile(np.repeat(bigs, len(self.pixel_shares), axis=1), self.gemm.batch)

    @cached_property
    def _part_shapes(self) -> Numbers:
        """Numbers of the parts by their share of the pixels, from which the tiles follow."""
        shares = np.arange(self.splits) % len(self.pixel_shares)
        return np.where(self._reducing >= 0, shares, -1)

    @cached_property
    def reductions(self) -> tuple[Numbers, Numbers]:
        """What each (kernel depth, part) reduces: its share of one image at one depth."""
        depth, part = np.nonzero(self._reducing >= 0)
        place, share = np.divmod(part, len(self.pixel_shares))
        image, small = np.divmod(place, self.gemm.small.shape[2])
        ranges = np.array([(own.start, own.stop - own.start) for own in self.ranges_of_share])[share]
        found = np.column_stack([small, self._reducing[depth, part], image, np.ones_like(image), ranges])
        return found, (self._reducing >= 0).reshape(-1).astype(np.int64)

    @property
    def count(self) -> int:
        """How many base blocks there are."""
        reducing = int(np.count_nonzero(self._reducing >= 0))
        return self.gemm.groups * reducing * len(self.row_tiles) * len(self.column_blocks)

    @cached_property
    def tasks(self) -> list[Task]:
        """All base blocks that reduce anything."""
        rows_of = self.row_tiles
        return [
            Task(group, depth, part, *rows, columns)
            for part in range(self.splits)
            for group in range(self.gemm.groups)
            for depth in range(len(self.gemm.depths))
            if self.reduces(depth, part)
            for rows in rows_of
            for columns in self.column_blocks
        ]

    @property
    def has_gaps(self) -> bool:
        """Whether some part of some kernel depth reduces nothing, so that no tile is written there."""
        return any(len(pairs) < self.gemm.small.shape[2] for pairs in self.gemm.depths)

    @property
    def order_shares(self) -> tuple[int, ...]:
        """How many ranges each share has."""
        return tuple(ranges.stop - ranges.start for ranges in self.ranges_of_share)


@dataclass(frozen=True)
class WgradShares(Wgrad):
    """As `Wgrad`, but dealt in tasks of single_core_m rows x single_core_n columns x single_core_k pixels.

    A task has the pixels of one image at one depth of the small side; its columns may be of several kernel
    depths. Each of its base blocks is added to the result, or kept apart, when its pixels are through. Tasks
    are numbered along their axes as `task_order` says and go to the cores as `mapping` says. With `batch_dim`
    a task has one of so many shares of all images and depths, as on a grid of cores.
    """

    name: ClassVar[str] = "wgrad_shares"
    reads: ClassVar[frozenset[str]] = (
        Wgrad.reads - {"k_split"}
        | {"single_core_m", "single_core_n", "single_core_k", "batch_dim"}
        | {"mapping", "task_order"}
    )

    @cached_property
    def tasks(self) -> ShareTasks:
        """The base blocks, and the cut of their reduction."""
        return ShareTasks(self.gemm, self.tiling, self.profile)

    @property
    def cleared_apart(self) -> bool:
        """Whether a MemSet comes before: measured calls of the 910B2 list one before every such kernel."""
        return self.needs_zeros and self.target is self.gemm.output

    def order(self) -> WgradOrder:
        """Return the runs of pixels, and which of them make a part."""
        runs, shares = tuple(self.tasks.ranges_of_image), self.tasks.order_shares
        return WgradOrder(runs, self.tiling.base_k, self.parts, tree=self.sums == "tree", shares=shares)

    @cached_property
    def units(self) -> list[list[Task]]:
        """The base blocks of each task, in order; a task that meets padding alone is none."""
        gemm, cut_ = self.gemm, self.tasks
        depths, parts = gemm.small.shape[2], self.tiling.batch_dim
        images = gemm.batch * depths
        axes: dict[str, Sequence[Any]] = {
            "group": range(gemm.groups),
            # On a grid a task has many images, each with all of its depths, added one after the other.
            "batch": cut(images, -(-images // parts)) if parts else cut(images, depths),
            "d": [None] if parts else range(depths),
            "k": range(len(cut_.pixel_shares)),
            "m": cut(gemm.rows, self.tiling.block_m),
            # Columns go through all kernel depths, one after the other.
            "n": cut(len(gemm.depths) * gemm.output.shape[3], self.tiling.block_n),
        }
        places = numbered("grad_weight", self.tiling.task_order, axes)
        return [task for place in places if (task := list(self._blocks(**place)))]

    def dealt(self) -> list[list[Task]]:
        """Return the base blocks of each core, task after task."""
        return deal(self.units, self.tiling)

    def _checked(self) -> Sequence[Sequence[Any]]:
        """Return the tasks of each core, which must be all base blocks."""
        own = type(self)
        if own.dealt is not WgradShares.dealt or own.units is not WgradShares.units:
            return super()._checked()
        # Numbers that are dealt leave none out and repeat none; what they stand for is counted.
        dealt, count = Schedule._checked(self), self.tasks.count
        assert sum(map(len, dealt)) == count, (sum(map(len, dealt)), count)
        return dealt

    def _blocks(
        self,
        group: int,
        batch: tuple[int, int],
        d: int | None,
        k: int,
        m: tuple[int, int],
        n: tuple[int, int],
    ) -> Iterator[Task]:
        """Yield the base blocks of one task: images, rows, kernel depths, columns."""
        rows_of, shares, depths = (
            cut_within([m], self.tiling.base_m),
            len(self.tasks.pixel_shares),
            self.gemm.small.shape[2],
        )
        # `batch` counts images and depths together, as parts do.
        for place in range(batch[0], sum(batch)) if d is None else [batch[0] + d]:
            columns = self._columns_of(place % depths, n)
            for row, rows in rows_of:
                for depth, wide in columns:
                    yield Task(group, depth, place * shares + k, row, rows, wide)

    @cached_property
    def _columns_of(self) -> Callable[[int, tuple[int, int]], list[tuple[int, Columns]]]:
        """Return the blocks of some columns at each kernel depth that meets a depth of the small side."""
        cut_, width = self.tasks, self.gemm.output.shape[3]

        def found(small: int, n: tuple[int, int]) -> list[tuple[int, Columns]]:
            return [
                (depth, wide)
                for depth in range(len(self.gemm.depths))
                if cut_.reduces(depth, small * len(cut_.pixel_shares))
                for wide in cut_.column_blocks
                if n[0] <= depth * width + wide.first_column < sum(n)
            ]

        return cache(found)
