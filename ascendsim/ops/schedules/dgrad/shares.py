"""The loop nest of grad_input whose tasks are shares of pixels and channels, as the products deal them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ascendsim.errors import ConfigError
from ascendsim.frozen import cached_property
from ascendsim.ops.problems.sliding import Pair
from ascendsim.ops.schedules.dgrad.image_tiles import tile_kinds
from ascendsim.ops.schedules.dgrad.nest import Dgrad
from ascendsim.ops.schedules.dgrad.tasks import DgradTasks
from ascendsim.ops.schedules.ranges import Ranges, cut, cut_at, cut_within, deal, numbered, parts_of

if TYPE_CHECKING:
    from ascendsim.ops.schedules.ranges import Numbers, Tasks


@dataclass(frozen=True)
class DgradShareTasks(DgradTasks):
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
        """The function that cuts a run of the reduction into slices of base_k, as the products take them."""
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
        # Tiles begin where tasks begin, which may be anywhere in a row: the tiles themselves have their rows.
        box, tile = self.left_boxes[0], self.gemm.sliding.tile
        tiles = cut_within(self.pixel_shares, self.tiling.base_m)
        some: list[Pair] = [tiles[at] for at in tile_kinds(*self.reads, tiles)[0].tolist()]
        left = self.tiling.al1_buffers * max(tile(*run, box).l1_bytes for run in some)
        right = self.tiling.bl1_buffers * self._right_bytes(max(count for _, count in self.column_tiles))
        return left + right > self.profile.buffers["L1"].capacity_bytes

    @cached_property
    def pixel_tiles(self) -> list[tuple[int, int]]:
        """Pixel ranges of one image: those of the tasks, cut by base_m, and inside rows where need be."""
        ranges = self.pixel_shares
        if self.in_row:
            ranges = sorted(cut_at(ranges, self.gemm.sliding.out_size[1]))
        return cut_within(ranges, self.tiling.base_m)

    @cached_property
    def column_tiles(self) -> list[tuple[int, int]]:
        """Column ranges: those of the tasks, cut by base_n."""
        return cut_within(self.column_shares, self.tiling.base_n)

    def signature(self, tasks: Tasks) -> Hashable:
        """Describe what decides the cost of a core's program; places in L1 follow from numbers in tasks."""
        told = super().signature(tasks)
        if not self.counted:
            return told
        rows = self.pixel_numbers[tasks["pixels"]] % self.tiling.al1_buffers
        columns = self.column_numbers[tasks["columns"]] % self.tiling.bl1_buffers
        return told, rows.tobytes(), columns.tobytes()

    def shares_of(self, tasks: Tasks) -> tuple[Numbers, int]:
        """Return the number of the pixel range that each base block is in, and how many there are."""
        of, count = parts_of(self.pixel_tiles, self.tiling.block_m)
        return of[tasks["pixels"]], count


@dataclass(frozen=True)
class DgradShares(Dgrad):
    """As `Dgrad`, but dealt in tasks: single_core_m pixels x single_core_n channels of images and depths.

    Tasks are numbered along their axes as `task_order` says and go to the cores as `mapping` says; inside a
    task, image after image and depth after depth, its tiles go along the channels first. A reduction is taken
    in slices of base_k, the last one shorter, where `Dgrad` makes all of them even: where base_k divides it,
    the bits are equal. Its parts are even, or segments of single_core_k channels. With `transpose_first`
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
    def tasks(self) -> DgradShareTasks:
        """The base blocks, and the cut of their reduction."""
        return DgradShareTasks(self.gemm, self.tiling, self.profile)

    def dealt(self) -> list[Tasks]:
        """Return the base blocks of each core, task after task."""
        gemm, t, cut_ = self.gemm, self.tiling, self.tasks
        tasks, extents = cut_.tasks, (gemm.batch, len(gemm.depths))
        # How many images and depths a task has.
        images, depths = (
            -(-extent // (dim or extent))
            for extent, dim in zip(extents, (t.batch_dim, t.depth_dim), strict=True)
        )
        # Depths that no kernel depth reaches are zeros, and no task of their own.
        met, own = np.unique(tasks["depth"] // depths, return_inverse=True)
        column, columns = parts_of(cut_.column_tiles, t.block_n)
        axes = {
            "batch": (tasks["image"] // images, -(-gemm.batch // images)),
            "group": (tasks["group"], gemm.groups),
            "d": (own, len(met)),
            "m": cut_.shares_of(tasks),
            "n": (column[tasks["columns"]], columns),
        }
        units = numbered("grad_input", t.task_order, axes)
        return deal(tasks, *units, t.used_cores, in_turn=t.mapping == "interleaved")


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
