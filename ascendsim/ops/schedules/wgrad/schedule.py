"""The loop nest of grad_weight: base blocks of channels x (channel, tap), over parts of all pixels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar

from ascendsim.frozen import cached_property
from ascendsim.ops.problems.wgrad import WgradGemm
from ascendsim.ops.schedules.base import TILES
from ascendsim.ops.schedules.blocks import BlockSchedule
from ascendsim.ops.schedules.order import WgradOrder
from ascendsim.ops.schedules.tiles import Sizes
from ascendsim.ops.schedules.vector.elementwise import flat, ordered_sum, tree_sum, zero_fill
from ascendsim.ops.schedules.wgrad.nest import WgradNest
from ascendsim.ops.schedules.wgrad.tasks import WgradTasks
from ascendsim.program.kernel import Phase
from ascendsim.program.places import GmTensor


@dataclass(frozen=True)
class Wgrad(BlockSchedule):
    """For each base block and part: for each pair of depths, image, run of pixels in L1, base_k: multiply.

    Parts of the reduction lie on different cores. They are added atomically to zeros in GM, in the order in
    which they arrive, or kept apart in a workspace (parts, *output) and added by vector cores.
    """

    gemm: WgradGemm

    name: ClassVar[str] = "wgrad"
    makes: ClassVar[str] = "grad_weight"
    reads: ClassVar[frozenset[str]] = TILES | {"k_split", "batch_dim", "m_dim", "n_dim", "k_dim"}

    @staticmethod
    def image_units(gemm: WgradGemm) -> int:
        """Return how many units of an image `k_dim` deals: its rows."""
        height: int = gemm.sliding.out_size[0]
        return height

    @cached_property
    def tasks(self) -> WgradTasks:
        """The base blocks, and the cut of their reduction."""
        return WgradTasks(self.gemm, self.tiling, self.profile)

    @property
    def tensors(self) -> tuple[GmTensor, ...]:
        """The small side, the big side, grad_weight and its parts, if they are kept apart."""
        return self.gemm.small, self.gemm.big, self.gemm.output, self.target

    @property
    def parts(self) -> int:
        """Parts of the reduction."""
        return self.tasks.splits

    @property
    def atomic(self) -> bool:
        """Whether tiles are added to a zeroed output."""
        return self.parts > 1 and self.sums == "atomic"

    @cached_property
    def target(self) -> GmTensor:
        """The tensor that receives the tiles."""
        output = self.gemm.output
        if self.parts == 1 or self.atomic:
            return output
        return GmTensor.of("parts", (self.parts, *output.shape), "float32", "workspace")

    def nest(self, sizes: Sizes) -> WgradNest:
        """Return the loop nest of all cores that reserve so much."""
        return WgradNest(self.tasks, sizes, self.gemm.output, self.target, atomic=self.atomic)

    def order(self) -> WgradOrder:
        """Return the runs of pixels, and how the parts are added; in which order they arrive is not told."""
        runs, t = tuple(self.tasks.ranges_of_image), self.tiling
        grid = tuple(self.tasks.grid_parts) if self.tasks.by_grid else ()
        return WgradOrder(runs, t.base_k, self.parts, tree=self.sums == "tree", grid=grid)

    @property
    def needs_zeros(self) -> bool:
        """Whether tiles are added to what GM holds, or some are missing."""
        return self.tasks.has_gaps or self.atomic

    @property
    def cleared_apart(self) -> bool:
        """Whether a kernel before this one (MemSet) writes the zeros, as before grids of the library."""
        return self.needs_zeros and self.tasks.by_grid and self.target is self.gemm.output

    def phases(self) -> tuple[Phase, ...]:
        """Return zeros where tiles are added or missing, the tiles, and the sums of parts kept apart."""
        output, profile = self.gemm.output, self.profile
        phases = [self.compute()]
        # A part without pixels, or a kernel depth that meets only padding, writes no tile. Its place would
        # keep what GM held before, and vector cores, or the user, would read that.
        if self.needs_zeros and not self.cleared_apart:
            phases.insert(0, zero_fill(profile, flat(self.target)))
        if self.target is not output:
            parts = replace(self.target, shape=(self.parts, prod(output.shape)))
            if self.sums == "tree":
                phases += tree_sum(profile, parts, flat(output))
            else:
                phases.append(ordered_sum(profile, parts, flat(output)))
        return tuple(phases)
