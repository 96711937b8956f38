"""Is a cube of another shape planned, timed and computed as that of a product is?"""

from fractions import Fraction

import numpy as np
import pytest

from ascendsim import (
    ConvProblem,
    MatmulProblem,
    Plan,
    Tiling,
    convolution_backward,
    estimate,
    estimate_matmul,
)
from ascendsim.errors import ConfigError
from ascendsim.instructions.cube import Im2col, Mmad, Submatrix, Transposed, Window
from ascendsim.instructions.fixpipe import Fixpipe
from ascendsim.instructions.movers import LoadL0A, LoadL0B
from ascendsim.profile import load_profile, parse_changes
from ascendsim.program.places import Gm, GmTensor, Slot
from ascendsim.workloads import load_workload, merged

CUBES = ("8x8x16", "32x16x16", "32x32x32", "64x64x16")
NOWHERE = Slot("L1", 0, "nowhere", 0)
# Layers that differ in kernel, stride, channels and dimensions.
CALLS = {
    "3x3": ConvProblem((2, 48, 13, 11), (40, 48, 3, 3), padding=1),
    "strided": ConvProblem((1, 3, 31, 29), (24, 3, 7, 7), stride=2, padding=3),
    "1x1": ConvProblem((2, 96, 7, 7), (80, 96, 1, 1)),
    "groups": ConvProblem((1, 64, 9, 9), (64, 2, 3, 3), padding=1, groups=32),
    "volume": ConvProblem((1, 16, 5, 8, 9), (24, 16, 3, 3, 3), padding=1),
}


def cube_of(cube, product="910B2"):
    return load_profile(product, {"cube": cube})


def gradients(problem, **keywords):
    """Return grad_input and grad_weight of random tensors, as bits."""
    rng = np.random.default_rng(7)
    output = (problem.input[0], problem.weight[0], *problem.output_size[-problem.rank :])
    made = (rng.standard_normal(size).astype("float16") for size in (output, problem.input, problem.weight))
    same = problem.stride, problem.padding, problem.dilation, False, problem.output_padding, problem.groups
    result = convolution_backward(*made, None, *same, (True, True, False), 0, **keywords)
    return [np.asarray(made).view(np.uint16) for made in (result.grad_input, result.grad_weight)]


@pytest.mark.parametrize("network", ["resnet50", "unet3d"])
@pytest.mark.parametrize("cube", CUBES)
def test_every_layer_of_a_network_is_timed_by_our_own_plan(network, cube):
    profile = cube_of(cube)
    layers = merged(load_workload(network).convolutions)
    for layer in layers if network == "unet3d" else layers[::3]:
        result = estimate(ConvProblem(**layer.problem_options(1)), product=profile)
        plans = [kernel.plan for kernel in result.kernels if kernel.plan]
        assert {plan.chosen_by for plan in plans} == {"search"}
        assert all(f"and this one is {cube.replace('x', ' x ')}" in plan.instead for plan in plans)
        assert any(note.startswith("Not taken: the product's plan") for note in result.notes)


@pytest.mark.parametrize("product", ["910B2", "950PR_9589", "310P3"])
@pytest.mark.parametrize("cube", CUBES)
def test_both_engines_agree_on_any_cube(cube, product):
    for name, problem in CALLS.items():
        if name == "volume" and product == "310P3":
            continue
        found = [
            estimate(problem, product=cube_of(cube, product), engine=engine).to_records()
            for engine in ("compiled", "simpy")
        ]
        assert [row["cycles"] for row in found[0]] == [row["cycles"] for row in found[1]], name


# Whole fractals of every cube, one part of the reduction.
TILING = Tiling(64, 64, 64, 2, 2, used_cores=2)


@pytest.mark.parametrize("cube", CUBES)
def test_the_same_plan_has_the_same_bits_on_any_cube(cube):
    # The model names its block, which another cube does not change.
    tiling = {"grad_input": Plan("dgrad", TILING), "grad_weight": Plan("wgrad", TILING)}
    for name in ("3x3", "strided", "1x1", "volume"):
        both = (
            gradients(CALLS[name], product=product, tiling=tiling) for product in ("910B2", cube_of(cube))
        )
        assert all(np.array_equal(one, other) for one, other in zip(*both, strict=True)), name


@pytest.mark.parametrize("cube", CUBES)
def test_a_program_of_our_own_plan_has_the_bits_of_its_definition(cube):
    for name, problem in CALLS.items():
        both = (gradients(problem, product=cube_of(cube), timing=timing) for timing in (True, False))
        assert all(np.array_equal(one, other) for one, other in zip(*both, strict=True)), name


@pytest.mark.parametrize("cube", CUBES)
def test_a_matrix_product_is_planned_by_the_search_on_another_cube(cube):
    result = estimate_matmul(MatmulProblem(300, 200, 500), product=cube_of(cube))
    assert result.kernels[0].plan.chosen_by == "search"


# (cube, buffer, what is loaded, cycles), reckoned by hand: 910B2 moves 256 and 128 bytes a cycle into L0A and
# L0B by load2d, and load3d 512 bytes in 2 cycles, for each step of the stride, two more in L0B,
# and 6 a command.
WINDOW = Window(4, 16, 16, 0, 0, 16, (1, 1), (1, 1), (1, 1), 16)
PATCHES = Im2col(WINDOW, 0, 16, 0, 1, 2)
LOADS = [
    ("16x16x16", LoadL0A, PATCHES, 8),
    # 64 rows of a fractal: three more steps of 16 pixels.
    ("64x64x16", LoadL0A, PATCHES, 14),
    # 64 bytes of the reduction, of which the tap fills half.
    ("32x32x32", LoadL0A, PATCHES, 14),
    # In L0B pixels are the reduction.
    ("16x16x16", LoadL0B, PATCHES, 10),
    ("64x64x16", LoadL0B, PATCHES, 10),
    ("32x32x32", LoadL0B, PATCHES, 14),
    ("16x16x16", LoadL0A, Submatrix(0, 16, 0, 16, False, 2), 2),
    ("32x32x32", LoadL0A, Submatrix(0, 16, 0, 16, False, 2), 8),
    ("8x8x16", LoadL0A, Submatrix(0, 8, 0, 16, False, 2), 1),
    # Turned by load3d, a channel group at a time: pixels are the reduction.
    ("16x16x16", LoadL0A, Transposed(1, 0, 16, 16, 2), 8),
    ("32x32x32", LoadL0A, Transposed(1, 0, 16, 16, 2), 10),
]


@pytest.mark.parametrize(("cube", "load", "read", "cycles"), LOADS)
def test_loads_bring_whole_fractals_of_the_cube(cube, load, read, cycles):
    profile = cube_of(cube)
    assert read.cycles(profile, load.buffer) == cycles


@pytest.mark.parametrize(
    ("cube", "cycles"),
    [("16x16x16", 64), ("32x32x32", 8), ("64x64x16", 4), ("8x8x16", 256), ("16x16x64", 16)],
)
def test_the_cube_multiplies_a_fractal_a_cycle(cube, cycles):
    profile = cube_of(cube)
    cost = Mmad(NOWHERE, NOWHERE, NOWHERE, 64, 64, 64, "float16", True).cost(profile)
    assert cost.cycles == profile.cube.mmad_head_cycles + cycles


def test_fixpipe_cuts_the_fractals_of_a_wide_cube_into_groups_of_channels():
    made = GmTensor.of("y", (4, 64, 16), "float16", "output")
    usual, wide = (
        Fixpipe(Gm(made, ()), NOWHERE, 8192, 16).cost(load_profile("910B2", {"cube": cube, **split}))
        for cube, split in (("16x16x16", {}), ("64x64x16", {"fixpipe.channel_split_bytes_per_cycle": 8}))
    )
    # For a byte two of L0C are read, 229 a cycle; then it is written, in groups at the rate of the split.
    read, write = Fraction(229, 2), Fraction("114.5")
    assert 1 / usual.traffic.peak_bytes_per_cycle == 1 / read + 1 / write
    assert 1 / wide.traffic.peak_bytes_per_cycle == 1 / read + Fraction(1, 8)


BUFFERS = [("950PR_9589", "L0A", 32768, (4, 96, 112, 112), (24, 96, 1, 1))]


@pytest.mark.parametrize(("product", "buffer", "size", "image", "weight"), BUFFERS)
def test_a_rule_whose_plan_the_buffers_do_not_hold_gives_way_to_the_search(
    product, buffer, size, image, weight
):
    profile = load_profile(product, {f"buffers.{buffer}.capacity_bytes": size})
    result = estimate(ConvProblem(image, weight), product=profile)
    (plan,) = (kernel.plan for kernel in result.kernels if kernel.name == "grad_input")
    assert plan.chosen_by == "search"
    assert f"{buffer} of {product} holds {size} bytes" in plan.instead


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cube.m0": 17}, "cube.m0.value: got 17, expected a power of two from 8 to 64"),
        ({"cube.n0": 128}, "cube.n0.value: got 128, expected a power of two from 8 to 64"),
        ({"cube.rates.float16.k0": 32}, "bfloat16.k0: got 16, but float16, as wide, has 32"),
        ({"cube.rates.int8.k0": 8}, "int8.k0: got 8, a row of 8 bytes in a fractal; expected 16 to 128"),
        ({"cube": "17x16x16"}, "got '17x16x16'; expected m0 x n0 x k0 of float16"),
        ({"cube": 32}, "got 32; expected m0 x n0 x k0 of float16"),
    ],
)
def test_a_cube_that_cannot_be_is_refused_at_load(changes, words):
    with pytest.raises(ConfigError, match=words):
        load_profile("910B2", changes)


def test_a_whole_cube_is_one_change_and_takes_its_formats_along():
    (change,) = parse_changes("cube=32x16x32")
    values = change.on(load_profile("910B2"))
    assert values["cube.m0"] == 32
    assert "cube.n0" not in values
    assert (values["cube.rates.float32.k0"], values["cube.rates.float32.block_k"]) == (16, 8)
    rate = cube_of("32x16x32").cube.rates["float16"]
    assert (rate.k0, rate.macs_per_cycle) == (32, 32 * 16 * 32)
    # One product a cycle is the least.
    assert cube_of("16x16x8", "950PR_9589").cube.rates["float32"].block_k == 1
