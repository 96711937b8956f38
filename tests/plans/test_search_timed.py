"""Does the search take the fastest of its best few candidates, at a cost that is bounded?"""

from dataclasses import replace

import pytest

from ascendsim import Plan, estimate
from ascendsim.errors import CapacityError, StoppedError
from ascendsim.ops.plan import Tiling
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.products import DgradGemm, MatmulGemm, MatmulProblem, WgradGemm
from ascendsim.ops.schedules.dgrad.nest import Dgrad
from ascendsim.ops.schedules.matmul import Matmul
from ascendsim.ops.schedules.wgrad.nest import Wgrad
from ascendsim.ops.tiling import timed
from ascendsim.ops.tiling.request import PlanRequest
from ascendsim.ops.tiling.search.dgrad import dgrad_tilings
from ascendsim.ops.tiling.search.plan import search_plan
from ascendsim.ops.tiling.search.wgrad import wgrad_tilings
from ascendsim.ops.tiling.timed import BEST_FEW, MOST_MMADS_OF_FEW, fastest_of_few
from ascendsim.profile import load_profile
from ascendsim.workloads.loader import load_workload
from tests.helpers.conv_cases import SPLIT
from tests.helpers.requests import chosen_plan

RESNET = load_workload("resnet50")
KINDS = {"grad_input": (DgradGemm, Dgrad, dgrad_tilings), "grad_weight": (WgradGemm, Wgrad, wgrad_tilings)}


def ranked(problem, gradient, profile):
    """Return the candidates of a gradient, as its costs rank them."""
    gemm, _, tilings = KINDS[gradient]
    return tilings(gemm.of(problem, "float16"), profile)


# --- the choice


# `place`: which candidate it is, where that is part of the question: the third, the second, and the first of
# three that take equally long. None: whichever it is.
@pytest.mark.parametrize(
    ("product", "layer", "gradient", "place"),
    [
        ("910B2", "s5b0_1x1b", "grad_weight", 2),
        ("910B2", "s4b1_3x3", "grad_weight", 1),
        ("910B2", "s2b0_1x1a", "grad_weight", 0),
        ("950PR_9589", "s4b0_1x1a", "grad_weight", None),
        ("310P3", "s4b1_3x3", "grad_input", 1),
        ("910A", "s3b1_1x1a", "grad_weight", None),
    ],
)
def test_the_search_takes_the_fastest_of_its_first_few_estimated_alone(product, layer, gradient, place):
    problem, profile = ConvProblem(**RESNET.layer(layer).problem_options(32)), load_profile(product)
    few = ranked(problem, gradient, profile)[:BEST_FEW]
    mask = (gradient == "grad_input", gradient == "grad_weight", False)
    times = []
    for tiling in few:
        plan = Plan(KINDS[gradient][1].name, tiling)
        made = estimate(problem, product=product, output_mask=mask, tiling={gradient: plan}, l2_start="warm")
        [kernel] = [kernel for kernel in made.kernels if kernel.name == gradient]
        times.append(kernel.time_us)
    # The first of the least.
    best = times.index(min(times))
    assert place is None or best == place
    chosen = chosen_plan(problem, gradient, "float16", profile, strategy="search")
    assert chosen.tiling == few[best]


@pytest.fixture
def cycles(monkeypatch):
    """Return what is timed, in turn, as (base_m, bound); a tiling takes 100 cycles for each core."""
    asked = []

    def take(schedule, profile, stop_above):
        del profile
        asked.append((schedule.tiling.base_m, stop_above))
        found = 100 * schedule.tiling.used_cores
        if found > stop_above:
            raise StoppedError("too long")
        return found

    monkeypatch.setattr(timed, "_timed", take)
    return asked


GEMM = DgradGemm.of(ConvProblem((1, 16, 4, 4), (16, 16, 1, 1)), "float16")


def tilings(*cores):
    """Return tilings on so many cores, told apart by base_m: 16, 32, ..."""
    return [Tiling(16 * (at + 1), 16, 16, used_cores=number) for at, number in enumerate(cores)]


@pytest.mark.parametrize(
    ("cores", "taken", "are_timed"),
    # The launch takes 500 cycles more for each core and a tiling 100: one on more cores than the fastest so
    # far has lost before it begins.
    [
        ((3, 2, 1), 48, [16, 32, 48]),
        ((2, 1, 3), 32, [16, 32]),
        ((1, 2, 3), 16, [16]),
        ((2, 1, 1), 32, [16, 32, 48]),
        ((2, 2, 2), 16, [16, 32, 48]),
        ((4, 4, 4, 1), 16, [16, 32, 48]),
    ],
)
def test_the_first_of_the_fastest_three_is_taken(cycles, cores, taken, are_timed):
    assert fastest_of_few(Dgrad, GEMM, SPLIT, tilings(*cores)).base_m == taken
    assert [base for base, _ in cycles] == are_timed


def test_the_launch_counts_and_a_longer_one_is_stopped_on_its_way(cycles):
    fastest_of_few(Dgrad, GEMM, SPLIT, tilings(3, 1, 2))
    launch = {cores: SPLIT.launch_us(cores) * SPLIT.clock.cube_mhz for cores in (1, 2, 3)}
    # Of the second is asked what is left of the first; the third is not, as its launch alone takes longer.
    assert launch[2] > launch[1] + 100
    bounds = [float("inf"), launch[3] + 300 - launch[1]]
    assert [bound for _, bound in cycles] == bounds


def test_a_launch_counts_all_cells_of_a_grid_that_take_turns(cycles):
    # 48 images are 48 cells, two for each core; of 24 cells each core has one.
    gemm = DgradGemm.of(ConvProblem((48, 16, 4, 4), (16, 16, 1, 1)), "float16")
    base = Tiling(16, 16, 16, used_cores=SPLIT.cores.cube)
    fastest_of_few(Dgrad, gemm, SPLIT, [replace(base, batch_dim=cells) for cells in (48, 24)])
    first, second = (SPLIT.launch_us(blocks) * SPLIT.clock.cube_mhz for blocks in (48, 24))
    taken = SPLIT.cores.cube * 100
    assert [bound for _, bound in cycles] == [float("inf"), first + taken - second]


def test_a_single_candidate_is_not_timed(cycles):
    assert fastest_of_few(Dgrad, GEMM, SPLIT, tilings(3)).base_m == 16
    assert cycles == []


# --- what it may cost


def test_only_so_many_candidates_are_timed_as_have_few_mmads_together(cycles):
    # 16 x 50 pixels by 16 columns by 80 channels: an image has 50 x 5 Mmads of 16 pixels, 25 x 5 of
    # 32 and 17 x 5 of 48.
    def count(batch):
        gemm = DgradGemm.of(ConvProblem((batch, 16, 16, 50), (80, 16, 1, 1)), "float16")
        cycles.clear()
        fastest_of_few(Dgrad, gemm, SPLIT, tilings(1, 1, 1))
        return len(cycles)

    assert MOST_MMADS_OF_FEW == 6000
    # All three have 460 an image: 13 images are 5,980. The first two have 375: 16 images are 6,000.
    assert [count(batch) for batch in (13, 14, 16, 17)] == [3, 2, 2, 0]


@pytest.mark.parametrize("gradient", KINDS)
def test_large_gradients_take_the_first_untimed(monkeypatch, gradient):
    def refuse(*_, **__):
        raise AssertionError("timed")

    monkeypatch.setattr(timed, "measure_kernel", refuse)
    # The first layer, 112 x 112 pixels and 7 x 7 taps: 25,088 Mmads and more.
    problem, profile = ConvProblem(**RESNET.layer("conv1").problem_options(32)), load_profile("910B2")
    found = search_plan(PlanRequest(problem, gradient, "float16", profile))
    assert found.tiling == ranked(problem, gradient, profile)[0]
    small = ConvProblem(**RESNET.layer("s4b1_3x3").problem_options(32))
    with pytest.raises(AssertionError, match="timed"):
        search_plan(PlanRequest(small, gradient, "float16", profile))


@pytest.mark.parametrize(
    ("kind", "gemm"),
    [
        # 6 x 8 = 48 pixels in 3 blocks, 32 columns in 2, 9 taps of 48 channels in 27 slices; 2 images.
        (Dgrad, DgradGemm.of(ConvProblem((2, 32, 6, 8), (48, 32, 3, 3), 1, 1), "float16")),
        # 48 rows in 3 blocks, 9 x 32 columns in 18, 48 pixels in 3 slices; 2 images.
        (Wgrad, WgradGemm.of(ConvProblem((2, 32, 6, 8), (48, 32, 3, 3), 1, 1), "float16")),
        # Three kernel depths over two depths with a padding of one: four pairs meet.
        (Dgrad, DgradGemm.of(ConvProblem((2, 16, 2, 4, 8), (16, 16, 3, 1, 1), 1, (1, 0, 0)), "float16")),
        (Wgrad, WgradGemm.of(ConvProblem((2, 16, 2, 4, 8), (16, 16, 3, 1, 1), 1, (1, 0, 0)), "float16")),
        (Matmul, MatmulGemm.of(MatmulProblem(50, 40, 33, batch=2), "float16")),
    ],
)
def test_a_product_has_as_many_mmads_as_its_programs(kind, gemm):
    schedule = kind(gemm, Tiling(16, 16, 16), SPLIT)
    programs = [schedule.program(tasks) for tasks in schedule.dealt() if tasks]
    found = sum(type(step).__name__ == "Mmad" for program in programs for step in program.instructions)
    assert gemm.mmads((16, 16, 16)) == found


# --- errors


def test_one_without_room_is_passed_over_and_of_all_the_call_tells_of_the_first(monkeypatch):
    short = set()

    def take(schedule, profile, stop_above):
        del profile, stop_above
        if schedule.tiling.base_m in short:
            raise CapacityError("short", buffer="L1")
        return schedule.tiling.base_m

    monkeypatch.setattr(timed, "_timed", take)
    few = tilings(1, 1, 1)
    for lost, taken in (({16}, 32), ({16, 32}, 48), ({32, 48}, 16), ({16, 32, 48}, 16)):
        short.clear()
        short.update(lost)
        assert fastest_of_few(Dgrad, GEMM, SPLIT, few).base_m == taken


@pytest.mark.parametrize("gradient", KINDS)
def test_where_nothing_fits_the_search_says_so(gradient):
    profile = load_profile("910B2", {"buffers.L1.capacity_bytes": 1024})
    problem = ConvProblem((1, 16, 64, 64), (16, 16, 3, 3), padding=1)
    # Two tiles of 16 pixels and 16 channels are 1024 bytes, as many as there are: it is the other operand,
    # which needs room besides, that does not fit.
    message = "fits in L1 of 910B2: .* needs 1024 bytes, the other operand more beside it, and L1 holds 1024"
    with pytest.raises(CapacityError, match=message):
        search_plan(PlanRequest(problem, gradient, "float16", profile))
