"""The loop nest of grad_weight whose tasks are shares of all three sides, as the products deal them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ascendsim.errors import ConfigError
from ascendsim.frozen import cached_property
from ascendsim.ops.schedules.base import WgradOrder
from ascendsim.ops.schedules.ranges import chunks_of, deal, numbered, numbers_within, parts_of, tasks_of
from ascendsim.ops.schedules.wgrad.cut import Reduced
from ascendsim.ops.schedules.wgrad.fractals import PixelShares
from ascendsim.ops.schedules.wgrad.nest import Wgrad

if TYPE_CHECKING:
    from ascendsim.ops.schedules.ranges import Numbers, Tasks


@dataclass(frozen=True)
class WgradShareTasks(PixelShares):
    """The cut of a wgrad whose parts are shares of single_core_k pixels of one image at one small depth."""

    operator: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse a tiling that no program can follow."""
        super().__post_init__()
        t, images = self.tiling, self.gemm.batch * self.gemm.small.shape[2]
        if (t.depth_dim or t.single_core_batch) and not t.batch_dim:
            raise ConfigError(
                "tiling of grad_weight: depth_dim and single_core_batch are of a grid of cores, but "
                "batch_dim is 0; give the parts of the images and depths, 1 for all of them"
            )
        if t.single_core_batch and -(-images // t.single_core_batch) != t.batch_dim:
            raise ConfigError(
                f"tiling of grad_weight: single_core_batch is {t.single_core_batch}, so that {images} images "
                f"and depths make {-(-images // t.single_core_batch)} parts, but batch_dim is {t.batch_dim}; "
                "make them agree, or leave single_core_batch out for even parts"
            )

    @property
    def begins(self) -> Numbers:
        """Whether a task of an image begins with a range."""
        firsts = {first for first, _ in self.pixel_shares}
        return np.array([first in firsts for first, _ in self.ranges_of_image])

    @property
    def column_numbers(self) -> Numbers:
        """The number in its task of the tile in L1 of each block of columns; kernel depths begin anew."""
        if self.tiling.depth_dim:
            return super().column_numbers
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

    def part(self, depth: int, part: int) -> list[Reduced]:
        """Return what one part of the reduction has at a kernel depth; nothing where it meets padding."""
        image, small, ranges = self.place(part)
        big = self._bigs[depth].get(small)
        count = ranges.stop - ranges.start
        return [] if big is None else [Reduced(small, big, image, 1, ranges.start, count)]

    @cached_property
    def _bigs(self) -> list[dict[int, int]]:
        """For each kernel depth the depth of the big side that meets one of the small side."""
        return [dict(pairs) for pairs in self.gemm.depths]

    @cached_property
    def _reducing(self) -> Numbers:
        """The depth of the big side for each kernel depth and part; -1 where nothing is reduced."""
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
        """The work of each (kernel depth, part): a share of one image at one depth."""
        depth, part = np.nonzero(self._reducing >= 0)
        place, share = np.divmod(part, len(self.pixel_shares))
        image, small = np.divmod(place, self.gemm.small.shape[2])
        ranges = np.array([(own.start, own.stop - own.start) for own in self.ranges_of_share])[share]
        found = np.column_stack([small, self._reducing[depth, part], image, np.ones_like(image), ranges])
        return found, (self._reducing >= 0).reshape(-1).astype(np.int64)

    @cached_property
    def tasks(self) -> Tasks:
        """All base blocks that reduce anything: images, rows, kernel depths, columns."""
        parts, groups, depths = self._outer
        rows, columns = range(len(self.row_tiles)), range(len(self.column_blocks))
        return self.reducing_of(tasks_of("group part row depth column", groups, parts, rows, depths, columns))

    @property
    def has_gaps(self) -> bool:
        """Whether some part of some kernel depth reduces nothing, so that no tile is written there."""
        return any(len(pairs) < self.gemm.small.shape[2] for pairs in self.gemm.depths)

    @property
    def order_shares(self) -> tuple[int, ...]:
        """The number of ranges of each share."""
        return tuple(ranges.stop - ranges.start for ranges in self.ranges_of_share)


@dataclass(frozen=True)
class WgradShares(Wgrad):
    """As `Wgrad`, but dealt in tasks of single_core_m rows x single_core_n columns x single_core_k pixels.

    A task has the pixels of one image at one depth of the small side; its columns may be of several kernel
    depths. Each of its base blocks is added to the result, or kept apart, when its pixels are through. Tasks
    are numbered along their axes as `task_order` says and go to the cores as `mapping` says. With `batch_dim`
    a task has one of so many shares of all images and depths, as on a grid of cores; with `depth_dim` besides
    its columns are those of a part of the kernel depths, cut alike at each of them.
    """

    name: ClassVar[str] = "wgrad_shares"
    reads: ClassVar[frozenset[str]] = (
        Wgrad.reads - {"k_split"}
        | {"single_core_m", "single_core_n", "single_core_k", "single_core_batch", "batch_dim", "depth_dim"}
        | {"mapping", "task_order"}
    )

    @cached_property
    def tasks(self) -> WgradShareTasks:
        """The base blocks, and the cut of their reduction."""
        return WgradShareTasks(self.gemm, self.tiling, self.profile)

    @property
    def cleared_apart(self) -> bool:
        """Whether a MemSet comes before: measured calls of the 910B2 have one before each such kernel."""
        return self.needs_zeros and self.target is self.gemm.output

    def order(self) -> WgradOrder:
        """Return the runs of pixels, and which of them make a part."""
        runs, shares = tuple(self.tasks.ranges_of_image), self.tasks.order_shares
        return WgradOrder(runs, self.tiling.base_k, self.parts, tree=self.sums == "tree", shares=shares)

    @cached_property
    def units(self) -> Numbers:
        """The number of the task that each base block belongs to; one that meets padding alone is none."""
        gemm, t, cut_, tasks = self.gemm, self.tiling, self.tasks, self.tasks.tasks
        depths, kernel, width = gemm.small.shape[2], len(gemm.depths), gemm.output.shape[3]
        images, count, parts = gemm.batch * depths, len(cut_.pixel_shares), t.batch_dim
        # Parts count images, depths and shares of pixels. On a grid a task has many images, each with all of
        # its depths, added one after the other.
        place, share = np.divmod(tasks["part"], count)
        each = (t.single_core_batch or -(-images // parts)) if parts else depths
        row, rows = parts_of(cut_.row_tiles, t.block_m)
        first = np.array([block.first_column for block in cut_.column_blocks])[tasks["column"]]
        if not t.depth_dim:
            # Columns go through all kernel depths, one after the other.
            first, width = first + tasks["depth"] * width, kernel * width
        axes = {
            "group": (tasks["group"], gemm.groups),
            "batch": (place // each, -(-images // each)),
            "d": chunks_of(tasks["depth"], kernel, t.depth_dim) if parts else (place % depths, depths),
            "k": (share, count),
            "m": (row[tasks["row"]], rows),
            "n": (first // t.block_n, -(-width // t.block_n)),
        }
        number, _ = numbered("grad_weight", t.task_order, axes)
        found: Numbers = np.unique(number, return_inverse=True)[1]
        return found

    def dealt(self) -> list[Tasks]:
        """Return the base blocks of each core, task after task."""
        t, units = self.tiling, self.units
        count = int(units.max(initial=-1)) + 1
        return deal(self.tasks.tasks, units, count, t.used_cores, in_turn=t.mapping == "interleaved")
