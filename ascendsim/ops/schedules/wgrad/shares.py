"""The loop nest of grad_weight whose tasks are shares of all three sides, as the products deal them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ascendsim.errors import ConfigError
from ascendsim.frozen import cached_property
from ascendsim.ops.schedules.numbering import Ranges, cut, cut_within, deal, numbered
from ascendsim.ops.schedules.order import WgradOrder
from ascendsim.ops.schedules.ranges import TaskRange
from ascendsim.ops.schedules.wgrad.columns import Columns, column_blocks, range_in_row, whole_taps
from ascendsim.ops.schedules.wgrad.pieces import PixelRange, Task, segment_of
from ascendsim.ops.schedules.wgrad.schedule import Wgrad
from ascendsim.ops.schedules.wgrad.tasks import WgradTasks


@dataclass(frozen=True)
class ShareTasks(WgradTasks):
    """The cut of a wgrad whose parts are shares of single_core_k pixels of one image at one small depth."""

    one_length: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Refuse a tiling that no program can follow."""
        super().__post_init__()
        t = self.tiling
        if max(t.step_ka, t.step_kb) % min(t.step_ka, t.step_kb):
            raise ConfigError(
                f"tiling of grad_weight: step_ka is {t.step_ka} and step_kb is {t.step_kb}; one must divide "
                "the other, so that a tile of one operand serves whole tiles of the other"
            )
        if range_in_row(self.gemm, t, self.l1_budget):
            raise ConfigError(
                "tiling of grad_weight: whole rows of the image do not fit in L1, so that its pixels cannot "
                "be cut by single_core_k; make base_n or step_kb smaller"
            )

    @cached_property
    def pixel_shares(self) -> Ranges:
        """Pixel ranges of the tasks of one image."""
        pixels = self.gemm.sliding.pixels
        return cut(pixels, min(self.tiling.single_core_k or pixels, pixels))

    @cached_property
    def ranges_of_image(self) -> list[tuple[int, int]]:
        """The pixels of each range in one image: those of the tasks, cut for the shorter tiles in L1."""
        t = self.tiling
        return cut_within(self.pixel_shares, min(t.step_ka, t.step_kb) * t.base_k)

    @cached_property
    def column_blocks(self) -> list[Columns]:
        """Column blocks at one kernel depth, with all taps of what they touch if L1 holds these."""
        blocks = whole_taps(self.gemm, self.tiling)
        pixels, tile_bytes = self.tiling.step_kb * self.tiling.base_k, self.gemm.sliding.tile_bytes
        # The blocks themselves tell what they touch: where windows and blocks divide each other, less than a
        # block that may begin anywhere.
        need = max(tile_bytes(pixels, block.box, in_row=False) for block in blocks)
        return blocks if need <= self.l1_budget else column_blocks(self.gemm, self.tiling, self.l1_budget)

    def left_run(self, run: PixelRange) -> PixelRange:
        """Return the pixels of the left tile in L1 that serves a run of the reduction."""
        return self._tile_run(run, self.tiling.step_ka)

    def right_run(self, run: PixelRange) -> PixelRange:
        """Return the pixels of the right tile in L1 that serves a run of the reduction."""
        return self._tile_run(run, self.tiling.step_kb)

    def _tile_run(self, run: PixelRange, step: int) -> PixelRange:
        """Return the tile of so many slices, counted from where its task begins, that a run lies in."""
        share, length = self._share_of(run.first_pixel), step * self.tiling.base_k
        first = share[0] + (run.first_pixel - share[0]) // length * length
        return PixelRange(run.image, first, min(length, sum(share) - first))

    def _share_of(self, pixel: int) -> tuple[int, int]:
        """Return the pixel range of the task that a pixel of an image belongs to."""
        return self.pixel_shares[pixel // self.pixel_shares[0][1]]

    @property
    def right_ranges(self) -> list[tuple[int, int]]:
        """The pixels of each right tile in one image."""
        return cut_within(self.pixel_shares, self.tiling.step_kb * self.tiling.base_k)

    @cached_property
    def _firsts(self) -> list[slice]:
        """The ranges of each share."""
        step = min(self.tiling.step_ka, self.tiling.step_kb) * self.tiling.base_k
        counts = [-(-pixels // step) for _, pixels in self.pixel_shares]
        ends = [sum(counts[: at + 1]) for at in range(len(counts))]
        return [slice(end - count, end) for end, count in zip(ends, counts, strict=True)]

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
        return *divmod(place, self.gemm.small.shape[2]), self._firsts[share]

    def part(self, depth: int, part: int) -> TaskRange:
        """Return the segments of one part of the reduction at a kernel depth; none where it meets padding."""
        image, small, ranges = self.place(part)
        pairs = [pair for pair in self.gemm.depths[depth] if pair[0] == small]
        whole = TaskRange(pairs, self.gemm.batch, self.ranges_of_image, segment_of, mark=small)
        begin = image * len(self.ranges_of_image)
        made: TaskRange = whole[begin + ranges.start : begin + ranges.stop] if pairs else whole
        return made

    @cached_property
    def tasks(self) -> list[Task]:
        """All base blocks that reduce anything."""
        gemm, t = self.gemm, self.tiling
        return [
            Task(group, depth, part, *rows, columns)
            for part in range(self.splits)
            for group in range(gemm.groups)
            for depth in range(len(gemm.depths))
            if len(self.part(depth, part))
            for rows in cut_within(cut(gemm.rows, t.block_m), t.base_m)
            for columns in self.column_blocks
        ]

    @property
    def has_gaps(self) -> bool:
        """Whether some part of some kernel depth reduces nothing, so that no tile is written there."""
        return any(len(pairs) < self.gemm.small.shape[2] for pairs in self.gemm.depths)

    @property
    def order_shares(self) -> tuple[int, ...]:
        """How many ranges each share has."""
        return tuple(ranges.stop - ranges.start for ranges in self._firsts)


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
        cut_, width = self.tasks, self.gemm.output.shape[3]
        # `batch` counts images and depths together, as parts do.
        for place in range(batch[0], sum(batch)) if d is None else [batch[0] + d]:
            part = place * len(cut_.pixel_shares) + k
            columns = [
                (depth, wide)
                for depth in range(len(self.gemm.depths))
                if len(cut_.part(depth, part))
                for wide in cut_.column_blocks
                if n[0] <= depth * width + wide.first_column < sum(n)
            ]
            for row, rows in cut_within([m], self.tiling.base_m):
                for depth, wide in columns:
                    yield Task(group, depth, part, row, rows, wide)
