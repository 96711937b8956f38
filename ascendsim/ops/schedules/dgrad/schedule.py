"""The loop nest of grad_input: base blocks of pixels x channels, each with its whole reduction."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ascendsim.frozen import cached_property
from ascendsim.ops.problems.dgrad import DgradGemm
from ascendsim.ops.schedules.base import TILES
from ascendsim.ops.schedules.blocks import BlockSchedule
from ascendsim.ops.schedules.dgrad.nest import DgradNest
from ascendsim.ops.schedules.dgrad.tasks import DgradTasks, Task
from ascendsim.ops.schedules.order import DgradOrder
from ascendsim.ops.schedules.tiles import Sizes
from ascendsim.ops.schedules.vector.elementwise import cast, flat, zero_fill
from ascendsim.program.kernel import Phase
from ascendsim.program.nest import Nest
from ascendsim.program.places import GmTensor


@dataclass(frozen=True)
class Dgrad(BlockSchedule):
    """For each base block: for each part, kernel depth, box of taps in L1, slice of base_k: load, multiply.

    A reduction in parts adds them in float32, in order, to zeros in GM; a narrower result is then cast. Every
    task adds its own parts one after the other, so `sums` makes no difference.
    """

    gemm: DgradGemm

    name: ClassVar[str] = "dgrad"
    makes: ClassVar[str] = "grad_input"
    reads: ClassVar[frozenset[str]] = TILES | {"k_split", "batch_dim", "m_dim", "n_dim", "pixel_dim"}

    def __post_init__(self) -> None:
        """Take weights that vector cores of this kernel bring into the cube's layout for a workspace.

        Copies of them into L1 need not turn channels on the way, as those of the user's weights do.
        """
        merged = self.tiling.group_merge > 1 and not self.profile.generation.changes_layouts
        if merged or self.tiling.transpose_first:
            weights = replace(self.gemm.weights, role="workspace")
            object.__setattr__(self, "gemm", replace(self.gemm, weights=weights))
        super().__post_init__()

    @cached_property
    def tasks(self) -> DgradTasks:
        """The base blocks, and the cut of their reduction."""
        return DgradTasks(self.gemm, self.tiling, self.profile)

    @property
    def tensors(self) -> tuple[GmTensor, ...]:
        """The source, the weights, grad_input and the float32 sums, if any."""
        return self.gemm.source, self.gemm.weights, self.gemm.output, self.target

    @cached_property
    def target(self) -> GmTensor:
        """The tensor that receives the tiles: the output, or float32 sums where parts are added to it."""
        output = self.gemm.output
        # Added in a narrower format, every part would be rounded to it on the way.
        if self.tiling.k_split == 1 or output.dtype == "float32":
            return output
        return GmTensor.of("sums", output.shape, "float32", "workspace", output.layout)

    @property
    def casts_sums(self) -> bool:
        """Whether vector cores make the output from float32 sums."""
        return self.target is not self.gemm.output

    def nest(self, sizes: Sizes) -> Nest:
        """Return the loop nest of all cores that reserve so much."""
        return DgradNest(self.name, self.tasks, sizes, self.target)

    def order(self) -> DgradOrder:
        """Return the slices of each part of the reduction."""
        parts = [[run for segment in part for _, _, run in segment.slices] for part in self.tasks.parts]
        lengths = tuple(len(part) for part in parts) if len(parts) > 1 else ()
        return DgradOrder(self.gemm.sliding.c0, tuple(run for part in parts for run in part), lengths)

    @property
    def needs_zeros(self) -> bool:
        """Whether tiles are added to what GM holds, or some are missing."""
        # A depth that no kernel depth reaches has no task: without the zeros its gradient would never be
        # written.
        return self.tiling.k_split > 1 or not all(self.gemm.depths)

    def phases(self) -> tuple[Phase, ...]:
        """Return zeros where tiles are added or missing, the tiles, and the cast of float32 sums."""
        phases = [self.compute()]
        if self.needs_zeros:
            phases.insert(0, zero_fill(self.profile, flat(self.target)))
        if self.casts_sums:
            phases.append(cast(self.profile, flat(self.target), flat(self.gemm.output)))
        return tuple(phases)


@dataclass(frozen=True)
class DgradColumnsOuter(Dgrad):
    """As `Dgrad`, but a core makes all pixel tiles of one column block before it goes on to the next block.

    It pays where weights are larger than images: late layers, small batches. The order of the additions in a
    base block is the same, so are the bits.
    """

    name: ClassVar[str] = "dgrad_columns_outer"
    reads: ClassVar[frozenset[str]] = TILES | {"k_split"}

    def sequence(self) -> list[Task]:
        """Return all tasks, pixels fastest."""
        # Depth stands before the pixels because each depth meets kernel depths, and so weights, of its own.
        return sorted(self.tasks.tasks, key=lambda task: (task.group, task.first_column, task.depth))
