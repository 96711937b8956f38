"""Do bounds and rules of timing hold for the kernels of real layers, and explain their cycles?"""

from itertools import pairwise
from math import prod

import pytest

from ascendsim import (
    ConvProblem,
    MatmulProblem,
    Tiling,
    estimate,
    estimate_matmul,
    legal_tilings,
    load_profile,
)
from ascendsim.instructions.fixpipe import StallCube
from ascendsim.ops.problems.products import DgradGemm, WgradGemm
from ascendsim.ops.schedules.dgrad.nest import Dgrad
from ascendsim.ops.schedules.wgrad.cut import narrowed_to
from ascendsim.ops.schedules.wgrad.nest import Wgrad
from ascendsim.ops.tiling.legal_tilings import least_time
from ascendsim.ops.tiling.request import PlanRequest
from ascendsim.timing.critical_path import critical_path
from ascendsim.timing.timeline import times_of
from ascendsim.timing.times import occupation
from ascendsim.workloads import load_workload
from tests.helpers.both_engines import time_kernel
from tests.helpers.conv_cases import blocks_of, segments_of
from tests.helpers.oracles_timing import unfolded_spans

# --- Is no plan faster than its gradient's bound, and is the bound what the figures say? ---------------

GRADIENTS = {"grad_input": (True, False, False), "grad_weight": (False, True, False)}
LAYERS = {
    "3x3": ConvProblem((4, 64, 14, 14), (64, 64, 3, 3), padding=1),
    "strided": ConvProblem((2, 40, 15, 9), (72, 40, 3, 2), stride=2, padding=1),
    "grouped": ConvProblem((2, 64, 9, 9), (96, 32, 3, 3), padding=1, groups=2),
    "deep": ConvProblem((2, 32, 3, 7, 7), (32, 32, 3, 3, 3), padding=1),
    "wide": ConvProblem((1, 32, 2, 700), (32, 32, 1, 5)),
}
PRODUCTS = ("910B2", "950PR_9589", "310P3", "910A")


def time_of(problem, gradient, product, tiling):
    """Microseconds of the gradient's own kernel."""
    made = estimate(problem, product=product, output_mask=GRADIENTS[gradient], tiling=tiling)
    return next(kernel.time_us for kernel in made.kernels if kernel.plan is not None)


def test_one_fractal_by_hand():
    # 16 pixels x 16 channels x 16: one core, one Mmad of one fractal. load3d makes a fractal of 16 pixels in
    # four rows: 2 cycles, and one for each row, beside 2 + 6 of the load and its command. Weights: 512 bytes
    # at 128 a cycle and 11 to turn the block, beside one of the load. All that is on MTE1.
    profile = load_profile("910B2")
    bound = least_time(
        PlanRequest(ConvProblem((1, 16, 4, 4), (16, 16, 1, 1)), "grad_input", "float16", profile)
    )
    cycles = profile.scalar.start_cycles + (2 + 4 + 2 + 6) + (4 + 11 + 1)
    assert bound.pipe == "MTE1"
    assert bound.time_us == pytest.approx(profile.launch_us(1) + cycles / profile.clock.cube_mhz)


def test_where_l2_is_slow_the_operands_are_the_bound():
    profile = load_profile("910B2", {"links.l2_read.nominal_tb_per_s": 0.1})
    bound = least_time(
        PlanRequest(ConvProblem((64, 16, 56, 56), (16, 16, 1, 1)), "grad_weight", "float16", profile)
    )
    assert bound.pipe == "MTE2"
    # Both activations, 3136 pixels x 16 channels x 2 bytes an image; launched on as few cores as keep up.
    link = profile.links["l2_read"].total_bytes_per_cycle
    cycles = profile.scalar.start_cycles + 2 * 64 * 3136 * 16 * 2 / link
    least, most = (profile.launch_us(cores) + cycles / profile.clock.cube_mhz for cores in (1, 24))
    assert least <= bound.time_us <= most


@pytest.mark.parametrize(
    ("product", "layer"),
    # The first generation takes no volumes.
    [(product, name) for product in PRODUCTS for name in LAYERS if name != "deep" or product in PRODUCTS[:2]],
)
@pytest.mark.parametrize("gradient", GRADIENTS)
def test_no_legal_tiling_is_faster_than_the_bound(layer, product, gradient):
    problem = LAYERS[layer]
    profile = load_profile(product)
    bound = least_time(PlanRequest(problem, gradient, "float16", profile))
    legal = legal_tilings(problem, gradient, profile)
    times = [time_of(problem, gradient, product, tiling) for tiling in legal.sample(4, seed=2)]
    times += [time_of(problem, gradient, product, "search")]
    assert 0 < bound.time_us <= min(times)


@pytest.mark.parametrize("name", ["s2b0_1x1a", "s3b0_3x3", "s5b1_1x1a"])
@pytest.mark.parametrize("gradient", GRADIENTS)
def test_the_products_own_plan_is_no_faster_either(name, gradient):
    problem = ConvProblem(**load_workload("resnet50").layer(name).problem_options(32))
    bound = least_time(PlanRequest(problem, gradient, "float16", load_profile("910B2")))
    usual = time_of(problem, gradient, "910B2", "product")
    # Nor is it so far below that it says nothing.
    assert usual / 4 < bound.time_us <= usual


# --- Do the rules of timing hold for the kernels of real layers? ---------------------------------------

# Uneven pieces: channels and pixels that no core count divides, a stride, and a large kernel.
PROBLEMS = {
    "3x3": ConvProblem(input=(2, 128, 28, 28), weight=(128, 128, 3, 3), padding=1),
    "strided": ConvProblem(input=(1, 72, 31, 29), weight=(40, 72, 3, 3), stride=2, padding=1),
    "5x5": ConvProblem(input=(3, 33, 14, 14), weight=(65, 33, 5, 5), padding=2),
}
RUNS = [(problem, product) for problem in PROBLEMS for product in ("910B", "310P", "910_95")]


@pytest.fixture(scope="module", params=RUNS, ids=lambda run: "-".join(run))
def run(request):
    problem, product = request.param
    return load_profile(product), estimate(PROBLEMS[problem], product=product, l2_start="warm").kernels


def test_folded_equals_unfolded(run):
    profile, kernels = run
    for result in kernels:
        unfolded = time_kernel(result.kernel, profile, folded=False)
        assert unfolded_spans(unfolded) == unfolded_spans(result.timeline)
        assert (unfolded.cycles, unfolded.bytes) == (result.cycles, result.bytes)


def test_folded_equals_unfolded_where_l2_misses(run):
    # Cold, and with less L2 than the kernels touch: slices miss again, and what is written leaves.
    profile, kernels = run
    small = load_profile(profile.product, overrides={"l2.capacity_bytes": 150_000})
    for result in kernels:
        for start in ("warm", "cold"):
            folded, unfolded = (
                time_kernel(result.kernel, small, folded=f, l2_start=start) for f in (True, False)
            )
            assert unfolded_spans(unfolded) == unfolded_spans(folded)
            assert (unfolded.cycles, unfolded.bytes) == (folded.cycles, folded.bytes)


def test_estimates_come_from_the_compiled_engine_and_timelines_from_simpy(run):
    _, kernels = run
    for result in kernels:
        assert result.engine == "compiled"
        assert result.times == times_of(result.timeline)


def test_memory_serves_what_it_must(run):
    # Cold, each input is read once at least as far as it is touched; nothing more is read than asked for, or
    # as often more as L2 fetches what several cores miss at one time.
    profile, kernels = run
    for result in kernels:
        cold = time_kernel(result.kernel, profile, l2_start="cold").bytes
        assert cold["memory"] == cold["memory_read"] + cold["memory_write"]
        assert cold["memory_write"] == 0
        inputs = sum(t.size_bytes for t in result.kernel.tensors.values() if t.role == "input")
        assert 0.5 * inputs <= cold["memory_read"] <= cold["l2_read"] + cold["l2_write"]
        touched = sum(t.size_bytes for t in result.kernel.tensors.values())
        assert cold["memory_read"] <= touched * profile.l2.most_fetches * 1.01


def test_a_cold_l2_never_makes_it_faster(run):
    profile, kernels = run
    for result in kernels:
        cold = time_kernel(result.kernel, profile, l2_start="cold")
        assert cold.cycles >= result.cycles
        assert cold.bytes["memory"] >= result.bytes["memory"]


def test_no_kernel_beats_its_arithmetic_or_its_bytes(run):
    profile, kernels = run
    for result in kernels:
        assert result.cube_utilisation <= 1
        for link, figures in profile.links.items():
            total = max(figures.total_bytes_per_cycle, figures.vector_total_bytes_per_cycle)
            assert result.cycles * total >= result.bytes[link]


def test_busy_waiting_and_idle_add_up(run):
    _, kernels = run
    for result in kernels:
        for core in {core for _, core in unfolded_spans(result.timeline)}:
            for pipe in occupation(result.times, core).values():
                assert pipe.busy + sum(pipe.waiting.values()) + pipe.idle == result.cycles
                assert pipe.idle >= 0


def test_the_critical_path_adds_up(run):
    _, kernels = run
    for result in kernels:
        assert sum(step.end - step.begin for step in critical_path(result.timeline)) == result.cycles


# -------------------------------------------------------------------------------------------------------
# Does a legal plan, drawn at random, move the bytes of its tiles, and take what its instructions explain?
# -------------------------------------------------------------------------------------------------------
# Two bounds, each worked out without an engine:
#
# bytes    a task needs both operands of each run of its reduction (grad_weight: pixels; grad_input: boxes
# of
#          taps) once. A nest that brought a tile again for every slice of base_k would be far beyond.
#          Copies
#          come in whole sectors of L2, which is what `IN_SECTORS` leaves room for: single rows of few
#          channels
#          are shorter than one.
# cycles   no core takes longer than all instructions of the longest core one after the other, each with its
#          latency and its fair share of the links, and the scalar unit that issues them before. So the
#          factor
#          is 1: what is beyond would be waiting that no instruction explains.

DEVICE = load_profile("910B2")
EXPLAINED_CYCLES_LAYERS = {
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
        for _, _, (_, first, pixels) in segments_of(cut, task.depth, task.part)
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
            ("left", lambda box: cut.tile((task.first_pixel, task.pixels), box).l1_bytes),
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
    problem, (kind, gemm) = EXPLAINED_CYCLES_LAYERS[name], NESTS[gradient]
    mask = gradient == "grad_input", gradient == "grad_weight", False
    for tiling in legal_tilings(problem, gradient, DEVICE).sample(DRAWN, seed=7):
        made = estimate(problem, product=DEVICE, tiling={gradient: tiling}, output_mask=mask)
        kernel = next(kernel for kernel in made.kernels if kernel.plan)
        yield kind(gemm.of(problem, "float16"), tiling, DEVICE, "atomic"), kernel


@pytest.mark.parametrize("gradient", NESTS)
@pytest.mark.parametrize("name", EXPLAINED_CYCLES_LAYERS)
def test_a_legal_plan_takes_no_more_than_its_tiles_and_instructions_explain(name, gradient):
    of_task = wgrad_bytes if gradient == "grad_weight" else dgrad_bytes
    for nest, kernel in drawn(name, gradient):
        dealt = [blocks_of(nest.tasks, tasks) for tasks in nest.dealt() if len(tasks)]
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


@pytest.mark.parametrize("name", EXPLAINED_CYCLES_LAYERS)
def test_legal_plans_of_grad_weight_have_blocks_as_wide_as_they_say(name):
    for tiling in legal_tilings(EXPLAINED_CYCLES_LAYERS[name], "grad_weight", DEVICE).sample(200, seed=3):
        nest = Wgrad(WgradGemm.of(EXPLAINED_CYCLES_LAYERS[name], "float16"), tiling, DEVICE, "atomic")
        assert narrowed_to(nest.gemm, tiling, nest.tasks.column_blocks) == 0, tiling


# --- Do products wait while V reads another tile out of L0C, and where does that cost nothing? ---------

SHARE = "paths.L0C_UB.m_stall_share"
# 128 x 128 tiles with 1024 of the reduction: 8 x 8 x 64 fractal products each, which MTE2 and MTE1 outrun.
TILING = {"base_m": 128, "base_n": 128, "base_k": 128, "step_ka": 8, "step_kb": 8, "used_cores": 1}


def stalls(kernel):
    """Instructions of a kernel that keep M still."""
    cores = [core for phase in kernel.timeline.phases for core in phase.cores]
    return sum(isinstance(one, StallCube) for core in cores for one in core.program.instructions)


def cycles(product, share, m, cl0_buffers):
    """Cycles of a product of m x 1024 x 128 on one core, and its instructions that keep M still."""
    profile = load_profile(product, overrides={SHARE: share})
    tiling = TILING | {"cl0_buffers": cl0_buffers}
    problem = MatmulProblem(m, 1024, 128, layout="NZ")
    kernel = estimate_matmul(problem, "float16", product=profile, tiling=Tiling(**tiling)).kernels[-1]
    return kernel.cycles, stalls(kernel)


@pytest.mark.parametrize("product", ["910A", "310P3"])
def test_every_tile_but_the_last_takes_its_share_of_the_reads_from_the_products(product):
    # A tile is 65536 bytes of float32. V reads the last one while M has nothing left to do.
    reads = 65536 // load_profile(product).paths["L0C_UB"].bytes_per_cycle
    without, none = cycles(product, 0, 512, 2)
    half, tiles = cycles(product, 0.5, 512, 2)
    assert (none, tiles) == (0, 4)
    assert half - without == 3 * reads // 2


def test_a_lone_tile_loses_nothing():
    assert cycles("910A", 0.5, 128, 2)[0] == cycles("910A", 0, 128, 2)[0]


def test_products_that_wait_for_l0c_to_be_read_lose_nothing_more():
    # With one tile in L0C no product begins before V has read all of it.
    assert cycles("910A", 1, 512, 1) == cycles("910A", 0, 512, 1)


def test_both_gradients_of_a_product_with_fixpipe_have_no_such_instruction():
    layer = ConvProblem(input=(2, 32, 14, 14), weight=(32, 32, 3, 3), padding=1)
    for kernel in estimate(layer, product="910B2", output_mask=(True, True, False)).kernels:
        assert stalls(kernel) == 0
