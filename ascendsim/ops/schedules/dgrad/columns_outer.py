"""The loop nest of grad_input with column blocks outermost: what stays in L1 is weights, not images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ascendsim.ops.schedules.base import TILES
from ascendsim.ops.schedules.dgrad.pieces import Task
from ascendsim.ops.schedules.dgrad.schedule import Dgrad


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
