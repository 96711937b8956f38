"""Are remembered times of vector kernels those that they would take if they were timed?"""

import gc
from dataclasses import replace
from weakref import ref

import pytest

from ascendsim import ConvProblem, estimate, legal_tilings, load_profile
from ascendsim.errors import StoppedError
from ascendsim.frozen import FrozenMap
from ascendsim.numerics.accumulation.models import AccumulationModel
from ascendsim.ops import graph_times as known
from ascendsim.ops.lowering.graph import GraphBuilder
from ascendsim.ops.lowering.vector import VectorKernels
from ascendsim.ops.matmul import change_of
from ascendsim.ops.problems.strips import View
from ascendsim.program.kernel import Deferred, Phase
from ascendsim.program.places import GmTensor
from ascendsim.timing.kernel import measure_kernel
from tests.helpers.toy_profiles import toy_split, toy_unified

SPLIT = toy_split(**{"cores.cube": 2, "cores.vector": 4, "buffers.UB.capacity_bytes": 4096})
STARTS = ("warm", "cold", "handed")


@pytest.fixture(autouse=True)
def _nothing_is_known():
    known._remembered.cache_clear()
    known._remembered_phase.cache_clear()


def kernels(profile, add, given=()):
    """Return the kernels that `add` appends for some tensors, name -> (shape, dtype)."""
    inputs = {name: GmTensor.of(name, shape, dtype) for name, (shape, dtype) in dict(given).items()}
    graph = GraphBuilder(inputs)
    add(VectorKernels(graph, profile, AccumulationModel("exact")))
    return graph.build(()).kernels


def change(words, shape, dtype="float16", c0=16):
    return lambda on: on.transdata("transdata", change_of(words, shape, dtype, c0))


def convert(shape, given, asked):
    return lambda on: on.convert("x", asked), {"x": (shape, given)}


def view(shape, strides):
    return lambda on: on.contiguous("x", View(shape, strides)), {"x": (shape, "float16")}


def bias(shape, given, made):
    return lambda on: on.grad_bias(made, made), {"grad_output": (shape, given)}


# Neighbours differ in one thing each: the way, the shape, a format, the strides, what is made.
FAMILY = [
    (change("NCHW->NC1HWC0", (3, 32, 4, 4)),),
    (change("NC1HWC0->NCHW", (3, 32, 4, 4)),),
    (change("NCHW->NC1HWC0", (3, 31, 4, 4)),),
    (change("NCHW->NC1HWC0", (3, 32, 4, 4), "float32", 8),),
    (change("NCHW->FRACTAL_Z", (3, 32, 4, 4)),),
    (change("FRACTAL_Z->NCHW", (3, 32, 4, 4)),),
    convert((4096,), "float32", "float16"),
    convert((4096,), "float16", "float32"),
    convert((4096,), "float16", "bfloat16"),
    convert((8192,), "float16", "float32"),
    view((64, 64), (1, 64)),
    view((64, 64), (128, 2)),
    (lambda on: on.fill("x", (4096,), "float16"),),
    (lambda on: on.fill("x", (4096,), "float32"),),
    (lambda on: on.clear("x", GmTensor.of("x", (64, 64), "float32", "output")),),
    bias((2, 8, 3, 3), "float16", "float32"),
    bias((2, 8, 9, 9), "float16", "float32"),
    bias((2, 8, 9, 9), "float16", "float16"),
    bias((3, 8, 9, 9), "float16", "float16"),
]


@pytest.mark.parametrize("folded", [True, False])
@pytest.mark.parametrize("start", STARTS)
def test_no_kernel_is_given_the_times_of_another(start, folded):
    others = SPLIT, toy_unified(), toy_split(), toy_split(**{"paths.GM_UB.row_cycles": 7})
    made = [(kernel, profile) for profile in others for one in FAMILY for kernel in kernels(profile, *one)]
    # Twice: the second time all is known.
    for _ in range(2):
        for kernel, profile in made:
            timed = measure_kernel(kernel, profile, folded=folded, l2_start=start)
            assert known.known_times(kernel, profile, folded=folded, l2_start=start) == timed


def test_starts_and_folding_are_told_apart():
    [kernel] = kernels(SPLIT, change("NCHW->NC1HWC0", (3, 32, 4, 4)))
    for folded in (True, False):
        for start in STARTS:
            known.known_times(kernel, SPLIT, folded=folded, l2_start=start)
    assert known._remembered.cache_info().misses == 6


def unbuildable(kernel):
    """The same kernel, of which nobody can plan the work."""

    def fail():
        raise AssertionError("it was planned")

    return replace(kernel, phases=tuple(Phase(phase.name, Deferred(fail)) for phase in kernel.phases))


def test_a_kernel_that_is_known_is_not_planned_again_and_keeps_its_name():
    [first] = kernels(SPLIT, change("NCHW->NC1HWC0", (3, 32, 4, 4)))
    timed = known.known_times(first, SPLIT, folded=True, l2_start="warm")
    [again] = kernels(SPLIT, change("NCHW->NC1HWC0", (3, 32, 4, 4)))
    other = {f"other {name}": replace(t, name=f"other {name}") for name, t in again.tensors.items()}
    again = replace(unbuildable(again), name="another", tensors=other)
    found = known.known_times(again, SPLIT, folded=True, l2_start="warm")
    assert found == timed._replace(kernel="another")


def test_what_another_kernel_left_and_kernels_without_a_recipe_are_timed():
    [kernel] = kernels(SPLIT, change("NCHW->NC1HWC0", (3, 32, 4, 4)))
    left = FrozenMap({"plain": (3 * 32 * 16 * 2, 0)})
    bare = replace(kernel, recipe=None)
    for one, start in ((kernel, left), (bare, "cold")):
        timed = measure_kernel(one, SPLIT, l2_start=start)
        assert known.known_times(one, SPLIT, folded=True, l2_start=start) == timed
    assert known._remembered.cache_info().currsize == 0


def test_what_is_known_keeps_neither_kernel_nor_profile_alive():
    profile = toy_split()
    [kernel] = kernels(profile, change("NCHW->NC1HWC0", (3, 32, 4, 4)))
    known.known_times(kernel, profile, folded=True, l2_start="warm")
    gone = ref(kernel), ref(profile)
    del kernel, profile
    gc.collect()
    assert [one() for one in gone] == [None, None]


def test_a_second_call_takes_what_it_knows_and_says_the_same():
    problem = ConvProblem((2, 32, 14, 14), (48, 32, 3, 3), padding=1)
    first = estimate(problem, product="910B2")
    before = known._remembered.cache_info()
    second = estimate(problem, product="910B2")
    after = known._remembered.cache_info()
    assert second == first
    assert [k.times for k in second.kernels] == [k.times for k in first.kernels]
    # All kernels of vector cores: the changes of layout, the sum of the bias and the zeros.
    vector = [kernel for kernel in second.kernels if kernel.plan is None]
    assert after.misses == before.misses
    assert after.hits - before.hits == len(vector) - 1  # grad_output is changed twice, and found in the call


# --- phases of kernels of the cube


def cube_kernels(profile, count=6):
    """Kernels of both gradients under some tilings, of layers of several sizes and formats."""
    made = []
    for dtype, channels in (("float16", 32), ("bfloat16", 32), ("float16", 40)):
        problem = ConvProblem((2, channels, 9, 9), (48, channels, 3, 3), padding=1)
        if dtype not in profile.cube.rates:
            continue
        for gradient in ("grad_input", "grad_weight"):
            mask = (gradient == "grad_input", gradient == "grad_weight", False)
            for tiling in legal_tilings(problem, gradient, profile, dtype).sample(count, seed=3):
                given = {gradient: tiling}
                timed = estimate(problem, dtype, product=profile, tiling=given, output_mask=mask)
                made += [each.kernel for each in timed.kernels if each.kernel.macs]
    return made


@pytest.mark.parametrize("product", ["910B2", "950PR_9589", "310P3", "910A"])
def test_no_phase_is_given_the_times_of_another(product):
    profile = load_profile(product)
    made = cube_kernels(profile)
    names = {phase.name for kernel in made for phase in kernel.phases if phase.recipe}
    assert {"zero fill", "cast"} <= names
    known._remembered_phase.cache_clear()
    for folded in (True, False):
        # Twice: the second time all phases are known.
        for _ in range(2):
            for kernel in made:
                timed = measure_kernel(kernel, profile, folded=folded)
                assert known.known_times(kernel, profile, folded=folded, l2_start="warm") == timed


def test_phases_are_remembered_only_where_nothing_is_missed():
    profile = load_profile("910B2")
    made = cube_kernels(profile, count=2)
    known._remembered_phase.cache_clear()
    for kernel in made:
        for start in ("cold", "handed"):
            timed = measure_kernel(kernel, profile, l2_start=start)
            assert known.known_times(kernel, profile, folded=True, l2_start=start) == timed
    assert known._remembered_phase.cache_info().currsize == 0


def test_a_kernel_with_known_phases_stops_where_it_would():
    profile = load_profile("910B2")
    for kernel in cube_kernels(profile):
        cycles = measure_kernel(kernel, profile).cycles
        found = known.known_times(kernel, profile, folded=True, l2_start="warm", stop_above=cycles)
        assert found.cycles == cycles
        with pytest.raises(StoppedError):
            known.known_times(kernel, profile, folded=True, l2_start="warm", stop_above=cycles - 1)


def test_known_phases_keep_no_kernel_alive():
    made = cube_kernels(load_profile("910B2"), count=3)
    assert known._remembered_phase.cache_info().currsize
    gone = [ref(kernel) for kernel in made]
    del made
    gc.collect()
    assert [one() for one in gone] == [None] * len(gone)
