"""Do both engines give the same cycles, bytes, waits, spans and order of arrivals, on all that is timed?"""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from ascendsim import ConvProblem, estimate, load_profile
from ascendsim.errors import ConfigError
from ascendsim.timing.kernel import ENGINES, measure_kernel, time_kernel
from ascendsim.timing.timeline import times_of
from ascendsim.workloads import load_workload
from tests.helpers.engine_samples import (
    MATMULS,
    PRODUCTS,
    assert_engines_agree,
    layer_kernels,
    matmul_kernels,
    random_call,
    random_matmul,
    random_tiling,
)
from tests.helpers.fake_machine import Fake, FakeProfile, kernel, program
from tests.helpers.nests import TOY, both_of, nest_kernel

LAYERS = [layer.name for layer in load_workload("resnet50").layers]
# A stride and a large kernel; rows of few pixels; 1x1; many channels.
SOME_LAYERS = ("s3b0_3x3", "s5b1_3x3", "s4b1_1x1a", "s5b0_proj")
SMALL_PROBLEMS = (
    ConvProblem((4, 32, 14, 14), (48, 32, 3, 3), 1, 1),
    ConvProblem((2, 40, 9, 11), (24, 40, 2, 3), 2, 1),
    ConvProblem((9, 16, 7, 7), (64, 16, 1, 1)),
)


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("layer", SOME_LAYERS)
def test_layers(layer, product, batch):
    assert_engines_agree(layer_kernels(layer, product, batch), load_profile(product))


@pytest.mark.parametrize("product", PRODUCTS)
def test_a_layer_with_loops_over_images(product):
    # 16 images of 14 x 14: every core goes through several.
    assert_engines_agree(layer_kernels("s4b1_1x1a", product, 16), load_profile(product), "cold", spans=False)


@pytest.mark.parametrize("case", MATMULS, ids=lambda case: f"{case[1]}-{case[0].m}x{case[0].n}")
def test_matrix_products(case):
    problem, product, options = case
    kernels = matmul_kernels(problem, product, **options)
    start = options.get("l2_start", "warm")
    assert_engines_agree(kernels, load_profile(product), start, folded=(True, False))


@pytest.mark.parametrize("seed", range(40))
def test_random_matrix_products(seed):
    # A tile whose row and column are equal numbers must not lend its name to tiles of the other operand.
    kernels, profile = random_matmul(random.Random(seed))
    assert_engines_agree(kernels, profile, ("warm", "cold", "handed")[seed % 3])


@pytest.mark.parametrize("seed", range(40))
def test_random_calls(seed):
    kernels, profile, l2_start = random_call(random.Random(seed))
    assert_engines_agree(kernels, profile, l2_start, folded=(True,) if seed % 4 else (True, False))


@pytest.mark.parametrize("seed", range(40))
def test_random_tilings(seed):
    kernels, profile = random_tiling(random.Random(seed), SMALL_PROBLEMS)
    assert_engines_agree(kernels, profile, folded=(True,) if seed % 4 else (True, False))


@pytest.mark.parametrize("l2_start", ["warm", "cold", "handed"])
@pytest.mark.parametrize("seed", range(30))
def test_random_loop_nests(seed, l2_start):
    # Several cores, so that slices that move from round to round are shared, missed and written back.
    rng = random.Random(seed)
    programs = [both_of(rng)[0] for _ in range(rng.randint(1, 3))]
    profile = TOY if seed % 2 else load_profile("910B2", overrides={"l2.capacity_bytes": 1000})
    assert_engines_agree([nest_kernel(*programs)], profile, l2_start)


def test_bytes_are_told_by_source_and_alike():
    kernels = layer_kernels("s5b1_3x3", "910B2", 1)
    profile = load_profile("910B2")
    for one in kernels:
        compiled, simpy = (
            measure_kernel(one, profile, engine=engine, l2_start="cold").bytes for engine in ENGINES
        )
        assert compiled == simpy
        assert set(simpy) == {"l2_read", "l2_write", "memory", "memory_read", "memory_write"}


# --- the doors


def test_an_engine_that_there_is_not_is_named():
    made = kernel([program(Fake("M", 3))])
    for call in (time_kernel, measure_kernel):
        with pytest.raises(ConfigError, match="engine is 'fast'; it must be one of simpy, compiled"):
            call(made, FakeProfile(), engine="fast")


def test_the_door_of_measuring_gives_the_times_of_either_engine():
    made = kernel([program(Fake("M", 3, 2), (Fake("V", 4), [0]))])
    measured = [measure_kernel(made, FakeProfile(), engine=engine) for engine in ENGINES]
    assert measured[0] == measured[1] == measure_kernel(made, FakeProfile())
    # M ends at 3, is visible at 5; V until 9.
    (work,) = measured[0].phases[0].cores
    assert (measured[0].cycles, work.busy, work.waiting) == (9, {"S": 0, "M": 3, "V": 4}, {"V": {"M": 5}})


@pytest.mark.parametrize(
    ("asked", "engine"), [(None, "compiled"), ("compiled", "compiled"), ("simpy", "simpy")]
)
def test_a_result_says_which_engine_found_its_cycles(asked, engine):
    result = estimate(SMALL_PROBLEMS[2], engine=asked)
    assert {each.engine for each in result.kernels} == {engine}
    assert all(each.times == times_of(each.timeline) for each in result.kernels)
    assert result == estimate(SMALL_PROBLEMS[2])


# --- all of it


@pytest.mark.slow
@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("layer", LAYERS)
def test_every_layer_at_every_batch_that_simpy_bears(layer, product):
    for batch in (1, 2, 16, 64):
        kernels = layer_kernels(layer, product, batch)
        assert_engines_agree(kernels, load_profile(product), spans=batch <= 2)


@pytest.mark.slow
@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("layer", SOME_LAYERS)
def test_some_layers_at_batch_256(layer, product):
    assert_engines_agree(layer_kernels(layer, product, 256), load_profile(product), spans=False)


@pytest.mark.slow
def test_every_layer_without_folding():
    for layer in LAYERS:
        for product in PRODUCTS:
            kernels = layer_kernels(layer, product, 2)
            assert_engines_agree(kernels, load_profile(product), "cold", spans=False, folded=(False,))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40, 540))
def test_many_random_calls(seed):
    kernels, profile, l2_start = random_call(random.Random(seed))
    assert_engines_agree(kernels, profile, l2_start, folded=(True, False))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40, 540))
def test_many_random_tilings(seed):
    kernels, profile = random_tiling(random.Random(seed), SMALL_PROBLEMS)
    assert_engines_agree(kernels, profile, folded=(True, False))


# --- bounds

CHECKED = """
import random
from tests.helpers.engine_samples import MATMULS, assert_engines_agree, matmul_kernels, random_call
from ascendsim import load_profile
for seed in range(6):
    kernels, profile, start = random_call(random.Random(seed))
    assert_engines_agree(kernels, profile, start)
problem, product, options = MATMULS[1]
assert_engines_agree(matmul_kernels(problem, product, **options), load_profile(product))
print("checked")
"""


@pytest.mark.slow
def test_with_every_index_checked_the_compiled_engine_says_the_same():
    # Slow, because the engine has to be compiled once more.
    root = Path(__file__).parents[2]
    environment = os.environ | {"NUMBA_BOUNDSCHECK": "1", "PYTHONPATH": str(root)}
    done = subprocess.run(
        [sys.executable, "-c", CHECKED], env=environment, cwd=root, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "checked\n"), done.stderr[-2000:]
