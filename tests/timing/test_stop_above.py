"""Does an estimate stop at its bound, and equal the one without a bound below it?"""

import pytest

from ascendsim import ConvProblem, estimate
from ascendsim.errors import ConfigError, StoppedError
from ascendsim.ops.lowering.known import lower
from ascendsim.ops.options.asked import planned_call
from ascendsim.ops.options.call import options_of
from ascendsim.studies.engine.measure import measure
from ascendsim.studies.engine.point import Point
from ascendsim.timing.fast import phase
from ascendsim.timing.fast.compiled import state as f
from ascendsim.timing.kernel import ENGINES, measure_kernel

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
    for kernel in each:
        free = measure_kernel(kernel, profile, engine=engine)
        assert measure_kernel(kernel, profile, engine=engine, stop_above=free.cycles) == free
        for bound in (free.cycles - 1, free.cycles // 2, 0):
            with pytest.raises(StoppedError, match=f"kernel {kernel.name}: .* pass {bound:,}, the bound"):
                measure_kernel(kernel, profile, engine=engine, stop_above=bound)


def test_the_compiled_engine_stops_on_its_way(kernels, monkeypatch):
    each, profile = kernels
    answers, run = [], phase.ENGINE
    monkeypatch.setattr(phase, "ENGINE", lambda *given: answers.append(run(*given)) or answers[-1])
    for kernel in each:
        begin = measure_kernel(kernel, profile).entry_cycles
        # Of transfers that nobody can slow down no event tells that the bound is passed.
        with pytest.raises(StoppedError):
            measure_kernel(kernel, profile, stop_above=begin + 1)
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
    free = Point(LAYER, "910B2")
    cycles = measure(free).cycles
    within, beyond = (Point(LAYER, "910B2", stop_above=bound) for bound in (cycles, cycles - 1))
    assert measure(within).text == measure(free).text
    answer = measure(beyond)
    assert answer.stopped
    assert answer.reason == "slower than its bound"
    assert not measure(free).stopped
    assert len({free.key, within.key, beyond.key}) == 3
