"""Does the search find what a plain one finds, and take the fastest of its best at a bounded cost?"""

from dataclasses import fields, replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ascendsim import estimate
from ascendsim.errors import CapacityError, StoppedError
from ascendsim.instructions.cube import TapRows, Transposed
from ascendsim.instructions.movers import LoadL0A, LoadL0B
from ascendsim.ops.plan import Plan, Tiling
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.matmul import MatmulGemm, MatmulProblem
from ascendsim.ops.problems.products import DgradGemm, WgradGemm
from ascendsim.ops.problems.sliding import Sliding, Taps
from ascendsim.ops.schedules.dgrad.nest import Dgrad
from ascendsim.ops.schedules.matmul import Matmul
from ascendsim.ops.schedules.wgrad.nest import Wgrad
from ascendsim.ops.tiling import choose, timed
from ascendsim.ops.tiling import choose as search_plans
from ascendsim.ops.tiling.choose import search_plan
from ascendsim.ops.tiling.request import PlanRequest
from ascendsim.ops.tiling.search.costs import NOWHERE, Rates, SearchCosts, TapBox
from ascendsim.ops.tiling.search.dgrad import dgrad_tilings
from ascendsim.ops.tiling.search.wgrad import wgrad_tilings
from ascendsim.ops.tiling.timed import BEST_FEW, MOST_MMADS_OF_FEW, fastest_of_few
from ascendsim.profile import load_profile
from ascendsim.profile.records import PROVENANCE
from ascendsim.workloads import load_workload
from tests.helpers import slow_tilings
from tests.helpers.conv_cases import SPLIT, problems, profile_of
from tests.helpers.slow_tilings import chosen_plan

# -------------------------------------------------------------------------------------------------------
# Does the search over whole arrays find what a plain one does, and a choice stay with its arguments?
# -------------------------------------------------------------------------------------------------------

PRODUCTS = ("910B2", "910_9382", "950PR_9589", "310P3", "910A")
LAYERS = load_workload("resnet50").convolutions
# A 910B2 whose commands of load3d make a matrix, or a line of it with cycles that differ by buffer.
COMMANDS = {
    "matrix": load_profile("910B2"),
    "line": load_profile(
        "910B2",
        {f"load3d.{to}.command_covers": "line" for to in ("L0A", "L0B")} | {"load3d.L0B.command_cycles": 15},
    ),
}


CUBES = ("8x8x8", "8x8x16", "32x16x16", "32x32x32", "64x64x16", "64x64x64")
COMMANDS |= {cube: load_profile("910B2", {"cube": cube}) for cube in CUBES}


def assert_same_choice(problem, profile, compute):
    """Compare both searches; of equal tilings the first stays first, so there is one answer."""
    gemm = DgradGemm.of(problem, compute)
    assert dgrad_tilings(gemm, profile) == slow_tilings.dgrad(gemm, profile)
    gemm = WgradGemm.of(problem, compute)
    slow = slow_tilings.wgrad(gemm, profile)
    # Where only a part of a row fits nothing is ranked.
    assert not slow or wgrad_tilings(gemm, profile) == slow


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("layer", LAYERS[::5], ids=lambda layer: layer.name)
def test_layers_get_what_a_plain_search_finds(layer, product):
    # One batch of each kind: fewer tasks than cores, a few rounds, many.
    batch = (1, 16, 256)[LAYERS.index(layer) % 3]
    assert_same_choice(ConvProblem(**layer.problem_options(batch)), profile_of(product), "float16")


@pytest.mark.parametrize("name", ["toy_split", "toy_unified", *PRODUCTS])
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_problem_gets_what_a_plain_search_finds(name, data):
    # The toys hold so little that rows are cut and reductions shortened.
    profile = profile_of(name)
    computes = sorted({"float16", "bfloat16", "float32", "hf32"} & set(profile.cube.rates))
    problem = data.draw(problems(*((30, 300) if name.startswith("toy") else (300, 9000))))
    assert_same_choice(problem, profile, data.draw(st.sampled_from(computes)))


@pytest.mark.parametrize("compute", ["float16", "float32"])
@pytest.mark.parametrize("cube", CUBES)
def test_any_cube_gets_what_a_plain_search_finds(cube, compute):
    for layer in LAYERS[::6]:
        assert_same_choice(ConvProblem(**layer.problem_options(4)), COMMANDS[cube], compute)


# Two base blocks, one the other turned round, with equal bounds: (product, input, weight). Taking the last of
# equal ones would give another tiling.
TIES = [
    ("950PR_9589", (2, 144, 7, 16), (592, 144, 1, 1)),
    ("310P3", (8, 448, 16, 14), (624, 448, 1, 1)),
    ("950PR_9589", (1, 496, 16, 7), (400, 496, 1, 1)),
    ("910A", (2, 176, 14, 32), (176, 176, 1, 1)),
]


@pytest.mark.parametrize(("product", "size", "weight"), TIES)
def test_of_equal_blocks_the_first_is_taken(product, size, weight):
    assert_same_choice(ConvProblem(size, weight), profile_of(product), "float16")


@pytest.mark.slow
@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.name)
def test_all_layers_get_what_a_plain_search_finds(layer, product):
    for batch in (1, 2, 16, 64, 256):
        for compute in sorted({"float16", "float32"} & set(profile_of(product).cube.rates)):
            assert_same_choice(ConvProblem(**layer.problem_options(batch)), profile_of(product), compute)


# --- costs of whole arrays


@given(
    st.tuples(st.integers(1, 40), st.integers(1, 40)),
    st.integers(1, 9),
    st.integers(1, 500),
    st.integers(1, 40),
    st.sampled_from([("L0A", LoadL0A), ("L0B", LoadL0B)]),
    st.sampled_from(sorted(COMMANDS)),
)
def test_a_load_of_patches_costs_what_the_instruction_says(out_size, stride, pixels, groups, load, covers):
    # No load has more pixels than L0 of 64 KiB has rows.
    sliding = Sliding(out_size, (400, 400), (3, 3), (1, stride), (1, 1), (1, 1), (1, 1), 16, 2)
    profile, (buffer, kind) = COMMANDS[covers], load
    costs = SearchCosts(Rates(profile, "float16", 24), sliding, buffer)
    read = slow_tilings.image_read(sliding, pixels, groups)
    assert costs.load_image(pixels, groups) == kind(NOWHERE, NOWHERE, read).cost(profile).cycles


@pytest.mark.parametrize("product", [*PRODUCTS, *CUBES])
@given(st.integers(1, 30), st.integers(1, 40), st.booleans(), st.sampled_from([(16, 2), (8, 4)]))
def test_loads_of_weights_cost_what_the_instruction_says(product, groups, columns, backwards, held):
    profile, (c0, itemsize) = COMMANDS.get(product) or profile_of(product), held
    sliding = Sliding((9, 9), (9, 9), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), c0, itemsize)
    costs = SearchCosts(Rates(profile, "float16", 24), sliding, "L0A")
    for taps in (1, 9):
        read = TapRows(taps, backwards, 0, groups, c0, 16 * columns - 3, itemsize)
        found = costs.load_weights(groups * c0, 16 * columns - 3, backwards=backwards, taps=taps)
        assert found == LoadL0B(NOWHERE, NOWHERE, read).cost(profile).cycles


@pytest.mark.parametrize("product", PRODUCTS)
@given(st.tuples(st.integers(1, 9), st.integers(1, 40)), st.integers(1, 30), st.integers(1, 500))
def test_turning_pixels_over_costs_what_the_instruction_says(product, out_size, groups, pixels):
    profile, width = profile_of(product), out_size[1]
    sliding = Sliding(out_size, (400, 400), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 16, 2)
    costs = SearchCosts(Rates(profile, "float16", 24), sliding, "L0B")
    read = Transposed(groups, 0, pixels, 16, 2, 0, width)
    assert costs.load_turned(pixels, groups) == LoadL0A(NOWHERE, NOWHERE, read).cost(profile).cycles


@given(problems(40, 900), st.integers(1, 1200), st.data())
def test_tiles_take_what_the_image_says(problem, pixels, data):
    sliding = Sliding.of(problem, 2)
    channels, rows, cols = (data.draw(st.integers(1, most)) for most in (5, *sliding.kernel))
    found = SearchCosts(Rates(SPLIT, "float16", 5), sliding, "L0B").tile_bytes(
        pixels, TapBox(channels, rows, cols)
    )
    assert found == sliding.tile_bytes(pixels, Taps(0, channels, 0, rows, 0, cols), in_row=False)


# --- what is remembered

PROBLEM = ConvProblem((2, 64, 14, 14), (64, 64, 3, 3), 1, 1)
TILING = Tiling(16, 16, 16)


@pytest.fixture
def searched(monkeypatch):
    """Return what is searched from now on; other tests have asked for nothing of it."""
    found = []

    def search(request):
        found.append(request)
        return Plan(str(len(found)), TILING)

    monkeypatch.setattr(search_plans, "search_plan", search)
    choose._remembered.cache_clear()
    yield found
    choose._remembered.cache_clear()


def test_a_choice_is_searched_once_for_equal_arguments(searched):
    # Another problem of equal numbers, and another profile that says the same.
    first, again = (
        chosen_plan(problem, "grad_input", "float16", load_profile("910B2"), strategy="search")
        for problem in (PROBLEM, replace(PROBLEM, stride=[1, 1]))
    )
    assert first.schedule == again.schedule == "1"
    assert len(searched) == 1


def test_whatever_differs_is_searched_anew(searched):
    profile = load_profile("910B2")
    edited = load_profile("910B2", {"sync.barrier_us": 99.0})
    calls = [
        (PROBLEM, "grad_input", "float32", profile),
        (PROBLEM, "grad_weight", "float32", profile),
        (PROBLEM, "grad_input", "float16", profile),
        (PROBLEM, "grad_input", "float32", edited),
        (replace(PROBLEM, padding=0), "grad_input", "float32", profile),
    ]
    numbers = [chosen_plan(*call, strategy="search").schedule for call in calls]
    assert numbers == ["1", "2", "3", "4", "5"]
    assert chosen_plan(*calls[0], hf32=True, strategy="search").schedule == "6"
    assert chosen_plan(*calls[0], out_dtype="float16", strategy="search").schedule == "7"
    assert searched[3].profile.sync.barrier_cycles > searched[0].profile.sync.barrier_cycles
    assert (searched[5].compute_dtype, searched[6].out_dtype) == ("hf32", "float16")


@pytest.mark.parametrize("name", [field.name for field in fields(SPLIT) if field.name not in PROVENANCE])
def test_every_value_of_a_profile_is_part_of_its_content(name):
    assert replace(SPLIT, **{name: "something else"}).content != SPLIT.content


def test_where_a_figure_is_from_is_not_part_of_its_content():
    assert replace(SPLIT, figures={}, sources={}).content == SPLIT.content


# --- Does the search take the fastest of its best few candidates, at a cost that is bounded? -----------

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
    programs = [schedule.program(tasks) for tasks in schedule.dealt() if len(tasks)]
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
