"""Does the search over whole arrays find what a plain one does, and a choice stay with its arguments?"""

from dataclasses import fields, replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ascendsim.cube.loads import TapRows, Transposed
from ascendsim.cube.movers import LoadL0A, LoadL0B
from ascendsim.ops.plan import Plan, Tiling
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.products import DgradGemm, WgradGemm
from ascendsim.ops.problems.sliding import Sliding, Taps
from ascendsim.ops.tiling import choose
from ascendsim.ops.tiling.search import plan as search_plans
from ascendsim.ops.tiling.search.costs import NOWHERE, Box, Costs, Rates
from ascendsim.ops.tiling.search.dgrad import dgrad_tilings
from ascendsim.ops.tiling.search.wgrad import wgrad_tilings
from ascendsim.profile import load_profile
from ascendsim.profile.records import PROVENANCE
from ascendsim.workloads.loader import load_workload
from tests.helpers import slow_tilings
from tests.helpers.conv_cases import SPLIT, problems, profile_of
from tests.helpers.requests import chosen_plan

PRODUCTS = ("910B2", "910_9382", "950PR_9589", "310P3", "910A")
LAYERS = load_workload("resnet50").layers
# A 910B2 whose commands of load3d make a matrix, or a line of it with cycles that differ by buffer.
COMMANDS = {
    "matrix": load_profile("910B2"),
    "line": load_profile(
        "910B2",
        {f"load3d.{to}.command_covers": "line" for to in ("L0A", "L0B")} | {"load3d.L0B.command_cycles": 15},
    ),
}


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
    st.sampled_from(["matrix", "line"]),
)
def test_a_load_of_patches_costs_what_the_instruction_says(out_size, stride, pixels, groups, load, covers):
    # No load has more pixels than L0 of 64 KiB has rows.
    sliding = Sliding(out_size, (400, 400), (3, 3), (1, stride), (1, 1), (1, 1), (1, 1), 16, 2)
    profile, (buffer, kind) = COMMANDS[covers], load
    costs = Costs(Rates(profile, "float16", 24), sliding, buffer)
    read = slow_tilings.image_read(sliding, pixels, groups)
    assert costs.load_image(pixels, groups) == kind(NOWHERE, NOWHERE, read).cost(profile).cycles


@pytest.mark.parametrize("product", PRODUCTS)
@given(st.integers(1, 30), st.integers(1, 40), st.booleans(), st.sampled_from([(16, 2), (8, 4)]))
def test_loads_of_weights_cost_what_the_instruction_says(product, groups, columns, backwards, held):
    profile, (c0, itemsize) = profile_of(product), held
    sliding = Sliding((9, 9), (9, 9), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), c0, itemsize)
    costs = Costs(Rates(profile, "float16", 24), sliding, "L0A")
    for taps in (1, 9):
        read = TapRows(taps, backwards, 0, groups, c0, 16 * columns - 3, itemsize)
        found = costs.load_weights(groups * c0, 16 * columns - 3, backwards=backwards, taps=taps)
        assert found == LoadL0B(NOWHERE, NOWHERE, read).cost(profile).cycles


@pytest.mark.parametrize("product", PRODUCTS)
@given(st.tuples(st.integers(1, 9), st.integers(1, 40)), st.integers(1, 30), st.integers(1, 500))
def test_turning_pixels_over_costs_what_the_instruction_says(product, out_size, groups, pixels):
    profile, width = profile_of(product), out_size[1]
    sliding = Sliding(out_size, (400, 400), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 16, 2)
    costs = Costs(Rates(profile, "float16", 24), sliding, "L0B")
    read = Transposed(groups, 0, pixels, 16, 2, 0, width)
    assert costs.load_turned(pixels, groups) == LoadL0A(NOWHERE, NOWHERE, read).cost(profile).cycles


@given(problems(40, 900), st.integers(1, 1200), st.data())
def test_tiles_take_what_the_image_says(problem, pixels, data):
    sliding = Sliding.of(problem, 2)
    channels, rows, cols = (data.draw(st.integers(1, most)) for most in (5, *sliding.kernel))
    found = Costs(Rates(SPLIT, "float16", 5), sliding, "L0B").tile_bytes(pixels, Box(channels, rows, cols))
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
