"""The loop nest of grad_weight by Winograd."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from ascendsim.frozen import cached_property
from ascendsim.numerics.winograd import TAPS
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.wgrad import WgradGemm
from ascendsim.ops.schedules.base import TILES, Schedule
from ascendsim.ops.schedules.order import WinogradOrder
from ascendsim.ops.schedules.vector.blocks import Piece, block_sums
from ascendsim.ops.schedules.winograd.cut import FIXED, PLANE, WHOLE, Task, WinogradCut
from ascendsim.ops.schedules.winograd.nest import WinogradNest
from ascendsim.ops.schedules.winograd.points import left_points
from ascendsim.program.kernel import Core, CoreWork, Phase
from ascendsim.program.places import GmTensor
from ascendsim.program.posts import VECTOR_CORES
from ascendsim.program.program import NestProgram


@dataclass(frozen=True)
class WgradWinograd(Schedule):
    """For each block of channels: for each cluster of 32 tiles, at each of 16 points: multiply; then taps.

    base_m, base_n   channels of the small and of the big side in a block, whose sums fill L0C at all points
    k_split          parts of the tasks of the last round, added one after the other by vector cores

    Its vector cores read activations row after row and bring them into groups of channels, in phases of their
    own before (`relaid`).
    """

    gemm: WgradGemm

    name: ClassVar[str] = "wgrad_winograd"
    makes: ClassVar[str] = "grad_weight"
    reads: ClassVar[frozenset[str]] = TILES | {"k_split"}
    fixed: ClassVar[Mapping[str, int]] = FIXED

    def __post_init__(self) -> None:
        """Refuse a tiling that would be obeyed in part, or that no program can follow."""
        super().__post_init__()
        _ = self.cut

    @cached_property
    def cut(self) -> WinogradCut:
        """The blocks, the clusters, and who makes what."""
        return WinogradCut(self.gemm, self.tiling, self.profile)

    @property
    def tensors(self) -> tuple[GmTensor, ...]:
        """Both sides, grad_weight, the points of the left side, and the parts, if there are any."""
        sides = (side.tensor for side in self.cut.sides)
        return *sides, self.gemm.output, self.points, self.target

    @property
    def relaid(self) -> Mapping[str, GmTensor]:
        """Both sides, which its vector cores bring into groups of C0 channels."""
        # The first word of their names is that of the call's tensor.
        return {side.tensor.name.split()[0]: side.tensor for side in self.cut.sides}

    @cached_property
    def points(self) -> GmTensor:
        """The points of the left side."""
        return self.cut.points()

    @cached_property
    def target(self) -> GmTensor:
        """The workspace of the parts, or the output where there are none."""
        output = self.gemm.output
        if not self.cut.tail:
            return output
        return GmTensor.of("parts", (self.cut.parts, *output.shape), "float32", "workspace")

    def macs_of(self, problem: ConvProblem) -> int:
        """Return those at 16 points of each tile of 2 x 2 pixels, in place of nine for each pixel."""
        _, height, width = problem.small_size
        tiles = problem.batch * -(-height // 2) * -(-width // 2)
        return tiles * PLANE * problem.small_channels * problem.big_channels

    def dealt(self) -> list[list[Task]]:
        """Return the tasks of each core."""
        return self.cut.dealt()

    @cached_property
    def _nest(self) -> WinogradNest:
        return WinogradNest(self.cut, self.points, (self.gemm.output, self.target))

    def program(self, tasks: Sequence[Task]) -> NestProgram:
        """Return the program of a cube core with these tasks, and of its vector cores."""
        told = [(task.left, task.right, task.part - WHOLE) for task in tasks]
        return NestProgram(self._nest, np.array(told), self.hazards)

    def signature(self, tasks: Sequence[Task]) -> Hashable:
        """Return what decides the cost of these tasks."""
        return self.cut.signature(tasks)

    def order(self) -> WinogradOrder:
        """Return the clusters, and which blocks are added in parts."""
        cut = self.cut
        streamed = tuple(cut.block(task) for task in cut.streamed)
        return WinogradOrder(cut.clusters, cut.parts if streamed else 1, streamed)

    def phases(self) -> tuple[Phase, ...]:
        """Return the points of the left side, the products, and the sums of the last round's parts."""
        phases = [left_points(self.cut, self.points), self.compute()]
        if self.cut.tail:
            c0 = self.gemm.sliding.c0
            pieces = [
                Piece(0, 0, block.first_small, block.small, block.first_big * TAPS**2, block.big * TAPS**2)
                for block in map(self.cut.block, self.cut.streamed)
            ]
            assert all(piece.columns % c0 == 0 for piece in pieces)
            phases += block_sums(self.profile, self.target, self.gemm.output, pieces, tree=False)
        return tuple(phases)

    def _work(self) -> tuple[CoreWork, ...]:
        return tuple(
            CoreWork(Core("cube", index), self.signature(tasks), partial(self.program, tasks), VECTOR_CORES)
            for index, tasks in enumerate(self._checked())
        )
