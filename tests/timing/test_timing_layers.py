"""Do the rules of timing hold for the kernels of real layers?"""

import pytest

from ascendsim import ConvProblem, estimate
from ascendsim.profile import load_profile
from ascendsim.timing.critical_path import critical_path
from ascendsim.timing.timeline import times_of
from ascendsim.timing.times import occupation
from tests.helpers.both_engines import time_kernel
from tests.helpers.oracles_timing import unfolded_spans

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
    return load_profile(product), estimate(PROBLEMS[problem], product=product).kernels


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
