"""What programs of grad_weight by Winograd are made of: operands, blocks of channels, clusters, windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from ascendsim.numerics.winograd import POINTS
from ascendsim.ops.problems.winograd import CLUSTER, Cluster
from ascendsim.program.places import GmTensor

FLOAT32_BYTES: Final = 4
PLANE: Final = POINTS * POINTS
WHOLE: Final = -1
# A Mmad takes the tiles of a cluster; L1 holds one cluster a tile, and L0C one tile a point.
FIXED: Final = {"base_k": CLUSTER, "step_ka": 1, "step_kb": 1, "cl0_buffers": 1}


class Task(NamedTuple):
    """A block of the result, in groups of C0 channels of the left and of the right side.

    part   which part of the reduction; WHOLE: all of it
    """

    left: int
    left_groups: int
    right: int
    right_groups: int
    part: int = WHOLE


class Load(NamedTuple):
    """One cluster of a task."""

    task: Task
    cluster: Cluster

    @property
    def first(self) -> int:
        """The first group of channels of the right side."""
        return self.task.right


class Window(NamedTuple):
    """The pixels of an image that a cluster reads, and where in the window of its tiles they begin."""

    rows: slice
    columns: slice
    begin: tuple[int, int]

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns of pixels."""
        return self.rows.stop - self.rows.start, self.columns.stop - self.columns.start


@dataclass(frozen=True)
class Side:
    """One operand: its tensor (1, N, 1, C1, H, W, C0), and whether it is the small side."""

    tensor: GmTensor
    small: bool

    @property
    def groups(self) -> int:
        """Groups of C0 channels."""
        return self.tensor.shape[3]

    @property
    def c0(self) -> int:
        """Channels of a group."""
        return self.tensor.shape[6]
