"""Do both engines give the same cycles, bytes, waits, spans, order of arrivals, and end at a bound?"""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from ascendsim import ConvProblem, estimate, load_profile
from ascendsim.errors import ConfigError, StoppedError
from ascendsim.ops.lowering.kernels import lower
from ascendsim.ops.options.asked import planned_call
from ascendsim.ops.options.call import options_of
from ascendsim.program.kernel import Core, CoreWork, Kernel, Phase
from ascendsim.studies.engine.measure import measure
from ascendsim.studies.engine.point import StudyPoint
from ascendsim.timing import compiled_flows as f
from ascendsim.timing import compiled_phase as phase
from ascendsim.timing.kernel import ENGINES, measure_kernel, time_kernel
from ascendsim.timing.timeline import CoreTimeline, PhaseTimeline, Timeline, arrivals, times_of
from ascendsim.workloads import load_workload
from tests.helpers.both_engines import (
    MATMULS,
    PRODUCTS,
    assert_engines_agree,
    layer_kernels,
    matmul_kernels,
    random_call,
    random_matmul,
    random_tiling,
)
from tests.helpers.conv_cases import TOY, both_of, nest_kernel
from tests.helpers.toy_machines import Fake, FakeProfile, kernel, program

# -------------------------------------------------------------------------------------------------------
# Do both engines give the same cycles, bytes, waits, spans and order of arrivals, on all that is timed?
# -------------------------------------------------------------------------------------------------------

LAYERS = [layer.name for layer in load_workload("resnet50").convolutions]
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
from tests.helpers.both_engines import MATMULS, assert_engines_agree, matmul_kernels, random_call
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


# --- Do the instructions of a timed kernel arrive in the order in which they leave their pipes? --------

A, B, C = (Core("vector", index) for index in range(3))


def arrived(*phases):
    """The order in each phase; a phase is a list of (cores of one timeline, cycles in which they end).

    Results show long after the end, the later the earlier that was: they must not matter.
    """
    timed = tuple(
        PhaseTimeline("p", 0, 0, tuple(_spans(cores, ends) for cores, ends in phase)) for phase in phases
    )
    made = tuple(
        Phase("p", tuple(CoreWork(core, 0, program) for cores, _ in phase for core in cores))
        for phase in phases
    )
    return arrivals(Kernel("k", made, {}, math=None), Timeline("k", 0, timed, {}))


def _spans(cores, ends):
    done = [1000 - end for end in ends]
    return CoreTimeline(cores, program(), [], [], ends, done)


def test_who_leaves_its_pipe_first_arrives_first():
    assert arrived([((A,), [5, 9]), ((B,), [7, 8])]) == [[(A, 0), (B, 0), (B, 1), (A, 1)]]


def test_program_order_is_not_arrival_order():
    # Two pipes: the second instruction is the quicker one.
    assert arrived([((A,), [9, 4])]) == [[(A, 1), (A, 0)]]


def test_ties_go_by_core_and_then_by_program_order():
    assert arrived([((A,), [5, 5]), ((B,), [5, 4])]) == [[(B, 1), (A, 0), (A, 1), (B, 0)]]


def test_the_order_of_cores_is_that_of_the_kernel_and_not_of_their_numbers():
    assert arrived([((C,), [5]), ((A,), [5])]) == [[(C, 0), (A, 0)]]


def test_cores_that_were_folded_arrive_one_by_one():
    assert arrived([((A, C), [5, 6]), ((B,), [5])]) == [[(A, 0), (C, 0), (B, 0), (A, 1), (C, 1)]]


def test_phases_stay_apart():
    # The second phase begins after the first, so its cycles are never compared with it.
    assert arrived([((A,), [50])], [((B,), [60]), ((A,), [55])]) == [[(A, 0)], [(A, 0), (B, 0)]]
    assert arrived([]) == [[]]


# --- Does an estimate stop at its bound, and equal the one without a bound below it? -------------------

LAYER = ConvProblem((2, 32, 14, 14), (32, 32, 3, 3), padding=1)


@pytest.fixture(scope="module")
def kernels():
    """The kernels of a call: of one phase and of several, with and without vector cores."""
    options = options_of("estimate", {"product": "910B2"})
    decision, call = planned_call(LAYER, options)
    return lower(call, decision.wanted).kernels, options.profile


@pytest.mark.parametrize("engine", ENGINES)
def test_every_kernel_is_equal_at_its_cycles_and_stopped_a_cycle_below(kernels, engine):
    each, profile = kernels
    for each_kernel in each:
        free = measure_kernel(each_kernel, profile, engine=engine)
        assert measure_kernel(each_kernel, profile, engine=engine, stop_above=free.cycles) == free
        for bound in (free.cycles - 1, free.cycles // 2, 0):
            with pytest.raises(
                StoppedError, match=f"kernel {each_kernel.name}: .* pass {bound:,}, the bound"
            ):
                measure_kernel(each_kernel, profile, engine=engine, stop_above=bound)


def test_the_compiled_engine_stops_on_its_way(kernels, monkeypatch):
    each, profile = kernels
    answers, run = [], phase.ENGINE
    monkeypatch.setattr(phase, "ENGINE", lambda *given: answers.append(run(*given)) or answers[-1])
    for each_kernel in each:
        begin = measure_kernel(each_kernel, profile).entry_cycles
        # Of transfers that nobody can slow down no event tells that the bound is passed.
        with pytest.raises(StoppedError):
            measure_kernel(each_kernel, profile, stop_above=begin + 1)
        assert answers[-1] == f.STOPPED


@pytest.mark.parametrize("engine", [None, "simpy"])
def test_a_call_stops_where_all_of_its_kernels_together_pass_the_bound(engine):
    free = estimate(LAYER, engine=engine)
    assert estimate(LAYER, engine=engine, stop_above=free.cycles) == free
    # The bound that is told is the caller's, not what the kernels before have left of it.
    told = f"kernel {free.kernels[-1].name}: with it the cycles pass {free.cycles - 1:,}, the bound"
    with pytest.raises(StoppedError, match=told):
        estimate(LAYER, engine=engine, stop_above=free.cycles - 1)
    with pytest.raises(StoppedError, match=f"kernel {free.kernels[0].name}: with it the cycles pass 0, the"):
        estimate(LAYER, engine=engine, stop_above=0)


@pytest.mark.parametrize("bound", [-1, 1.5, "many"])
def test_a_bound_is_a_number_of_cycles(bound):
    with pytest.raises(ConfigError, match=r"stop_above is .*; it must be 0 or more cycles, or None"):
        estimate(LAYER, stop_above=bound)


def test_a_point_keeps_that_it_is_slower_than_its_bound_under_a_key_of_its_own():
    free = StudyPoint(LAYER, "910B2")
    cycles = measure(free).cycles
    within, beyond = (StudyPoint(LAYER, "910B2", stop_above=bound) for bound in (cycles, cycles - 1))
    assert measure(within).text == measure(free).text
    answer = measure(beyond)
    assert answer.stopped
    assert answer.reason == "slower than its bound"
    assert not measure(free).stopped
    assert len({free.key, within.key, beyond.key}) == 3
