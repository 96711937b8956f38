"""Does a legal plan, drawn at random, move the bytes of its tiles, and take what its instructions explain?

Two bounds, each worked out without an engine:

bytes    a task needs both operands of each run of its reduction (grad_weight: pixels; grad_input: boxes of
         taps) once. A nest that brought a tile again for every slice of base_k would be far beyond. Copies
         come in whole sectors of L2, which is what `IN_SECTORS` leaves room for: single rows of few channels
         are shorter than one.
cycles   no core takes longer than all instructions of the longest core one after the other, each with its
         latency and its fair share of the links, and the scalar unit that issues them before. So the factor
         is 1: what is beyond would be waiting that no instruction explains.
"""

from itertools import pairwise
from math import prod

import pytest

from ascendsim import ConvProblem, estimate, legal_tilings
from ascendsim.ops.problems.products import DgradGemm, WgradGemm
from ascendsim.ops.schedules.dgrad.nest import Dgrad
from ascendsim.ops.schedules.wgrad.cut import narrowed_to
from ascendsim.ops.schedules.wgrad.nest import Wgrad
from ascendsim.profile import load_profile

DEVICE = load_profile("910B2")
LAYERS = {
    "3x3": ConvProblem((2, 64, 28, 28), (96, 64, 3, 3), padding=1),
    "1x1": ConvProblem((3, 128, 14, 14), (160, 128, 1, 1)),
    "stride 2": ConvProblem((2, 48, 20, 22), (64, 48, 3, 3), 2, 1),
    "few channels": ConvProblem((1, 3, 50, 48), (32, 3, 7, 7), 2, 3),
    "dilated": ConvProblem((2, 32, 19, 17), (32, 32, 3, 2), 1, 2, 2),
    "3-D": ConvProblem((1, 16, 4, 12, 13), (32, 16, 2, 3, 3), padding=(0, 1, 1)),
}
DRAWN = 8
IN_SECTORS = 1.05
NESTS = {"grad_input": (Dgrad, DgradGemm), "grad_weight": (Wgrad, WgradGemm)}


def wgrad_bytes(nest, task):
    """Bytes of a task: of each run of pixels both operands, whether L1 still holds them or not."""
    size, cut = nest.gemm.sliding.itemsize, nest.tasks
    return sum(
        task.rows * pixels * size + cut.tile((first, pixels), task.columns.box).l1_bytes
        for _, _, (_, first, pixels) in cut.segments(task)
    )


def dgrad_bytes(nest, task):
    """Bytes of a task: of each kernel depth and box of taps both operands, likewise."""
    cut, s = nest.tasks, nest.gemm.sliding
    # Boxes of one operand may be longer than those of the other: then it stays for several segments.
    left, right = (
        sum(
            size(getattr(now, side))
            for part in cut.parts
            for before, now in pairwise((None, *part))
            if before is None or getattr(before, side) != getattr(now, side)
        )
        for side, size in (
            ("left", lambda box: cut.left_tiles[task.first_pixel, task.pixels, box].l1_bytes),
            ("right", lambda box: box.groups * s.c0 * task.columns * s.itemsize),
        )
    )
    return (left + right) * len(nest.gemm.depths[task.depth])


def serial_cycles(program, cores):
    """Cycles of all instructions one after the other, with so many cores on the links."""
    total = 0.0
    for instruction in program.instructions:
        cost = instruction.cost(DEVICE)
        own = float(cost.cycles)
        if moved := cost.traffic:
            link = DEVICE.links["l2_read" if moved.direction == "read" else "l2_write"]
            rate = min(float(moved.peak_bytes_per_cycle), float(link.total_bytes_per_cycle) / cores)
            own += float(max(moved.bytes, moved.occupied_bytes)) / rate
        total += max(own, float(cost.least_cycles), float(cost.pace_cycles or 0)) + cost.latency_cycles
    return total


def drawn(name, gradient):
    """Yield random plans of a layer with their nests and the kernel of the gradient, timed."""
    problem, (kind, gemm) = LAYERS[name], NESTS[gradient]
    mask = gradient == "grad_input", gradient == "grad_weight", False
    for tiling in legal_tilings(problem, gradient, DEVICE).sample(DRAWN, seed=7):
        made = estimate(problem, product=DEVICE, tiling={gradient: tiling}, output_mask=mask)
        kernel = next(kernel for kernel in made.kernels if kernel.plan)
        yield kind(gemm.of(problem, "float16"), tiling, DEVICE, "atomic"), kernel


@pytest.mark.parametrize("gradient", NESTS)
@pytest.mark.parametrize("name", LAYERS)
def test_a_legal_plan_takes_no_more_than_its_tiles_and_instructions_explain(name, gradient):
    of_task = wgrad_bytes if gradient == "grad_weight" else dgrad_bytes
    for nest, kernel in drawn(name, gradient):
        dealt = [tasks for tasks in map(list, nest.dealt()) if tasks]
        needed = sum(of_task(nest, task) for tasks in dealt for task in tasks)
        if gradient == "grad_input" and nest.tiling.k_split > 1:
            # Parts are added in float32, which vector cores read once to convert it.
            needed += prod(nest.gemm.output.shape) * 4
        assert kernel.bytes["l2_read"] <= IN_SECTORS * needed, nest.tiling
        programs = [nest.program(tasks) for tasks in nest.dealt() if len(tasks)]
        explained = max(
            serial_cycles(program, len(dealt)) + len(program) * DEVICE.scalar.issue_cycles
            for program in programs
        )
        phase = next(phase for phase in kernel.times.phases if phase.name == "compute")
        assert phase.end - phase.begin <= explained, nest.tiling


@pytest.mark.parametrize("name", LAYERS)
def test_legal_plans_of_grad_weight_have_blocks_as_wide_as_they_say(name):
    for tiling in legal_tilings(LAYERS[name], "grad_weight", DEVICE).sample(200, seed=3):
        nest = Wgrad(WgradGemm.of(LAYERS[name], "float16"), tiling, DEVICE, "atomic")
        assert narrowed_to(nest.gemm, tiling, nest.tasks.column_blocks) == 0, tiling
