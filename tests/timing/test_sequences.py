"""Does a call find what those before it have left in L2, and the times that are remembered?"""

import gc
from dataclasses import replace
from weakref import ref

import numpy as np
import pytest

from ascendsim import ConvProblem, convolution_backward, estimate, legal_tilings, load_profile
from ascendsim.errors import ConfigError, StoppedError
from ascendsim.frozen import FrozenMap
from ascendsim.numerics.accumulation import AccumulationModel
from ascendsim.ops import graph_times as known
from ascendsim.ops.lowering.graph import GraphBuilder, VectorKernels
from ascendsim.ops.many import L2Left, estimate_behind, left_by_call
from ascendsim.ops.matmul import change_of
from ascendsim.ops.problems.views import View
from ascendsim.profile import parse_changes
from ascendsim.program.kernel import Deferred, Phase
from ascendsim.program.places import GmTensor
from ascendsim.studies.engine.measure import left_before, measure
from ascendsim.studies.engine.point import NETWORK, StudyPoint
from ascendsim.studies.hardware.gains import base_points
from ascendsim.studies.hardware.records import Question, StudiedLayer
from ascendsim.timing.kernel import measure_kernel
from ascendsim.timing.l2.account import left_by
from tests.helpers.toy_machines import toy_split, toy_unified

# --- Does a call behind others find in L2 what those have left, and nothing else? ----------------------

# A product whose kernels change no layouts, so that a call's tensors are those that the user knows.
ON = {"product": "910_95", "output_mask": (True, True, False)}
LATER = ConvProblem((2, 32, 14, 14), (48, 32, 1, 1))
EARLIER = ConvProblem((2, 64, 14, 14), (32, 64, 3, 3), padding=1)
OTHER = ConvProblem((2, 64, 14, 14), (40, 64, 3, 3), padding=1)
BOTH = (True, True, False)


def read_from_memory(result):
    return sum(kernel.bytes["memory_read"] for kernel in result.kernels)


def test_behind_nothing_is_chained():
    chained = estimate(EARLIER, l2_start="chained", **ON)
    behind = estimate_behind(L2Left(), EARLIER, **ON)
    assert behind.kernels == chained.kernels
    assert "L2 holds what the calls before this one have left" in " ".join(behind.notes)


def test_the_grad_input_of_the_layer_behind_is_found_as_grad_output():
    left = left_by_call(L2Left(), LATER, **ON)
    alone, behind = estimate(EARLIER, l2_start="chained", **ON), estimate_behind(left, EARLIER, **ON)
    # All tensors of both calls fit, so that just grad_output is not fetched: 2 x 32 x 14 x 14 numbers.
    assert read_from_memory(alone) - read_from_memory(behind) == 2 * 32 * 14 * 14 * 2


def test_what_has_another_size_is_fetched():
    left = left_by_call(L2Left(), LATER, **ON)
    alone, behind = estimate(OTHER, l2_start="chained", **ON), estimate_behind(left, OTHER, **ON)
    assert read_from_memory(alone) == read_from_memory(behind)


def test_weights_and_activations_of_another_call_are_not_found():
    # The same call once more: its tensors have the names and sizes of those in L2, and are others. What it
    # made is no grad_output of its size: 64 channels, not 32.
    left = left_by_call(L2Left(), EARLIER, **ON)
    alone, again = estimate(EARLIER, l2_start="chained", **ON), estimate_behind(left, EARLIER, **ON)
    assert read_from_memory(alone) == read_from_memory(again)


def test_of_two_grad_inputs_of_one_size_the_latest_is_found():
    held = FrozenMap({"call 0: grad_input": (100, 100), "call 1: grad_input": (50, 50)})
    count = 2 * 32 * 14 * 14
    made = (("call 1: grad_input", count, "float16"), ("call 0: grad_input", count, "float16"))
    found = L2Left(held, made, 2).found_by(EARLIER, "float16")
    assert dict(found) == {"call 0: grad_input": (100, 100), "grad_output": (50, 50)}
    # In another format it is another tensor.
    assert L2Left(held, made, 2).found_by(EARLIER, "float32") == held


def test_no_more_is_left_than_l2_holds():
    small = load_profile("910_95", overrides={"l2.capacity_bytes": 100_000})
    left = left_by_call(L2Left(), LATER, output_mask=BOTH, product=small)
    left = left_by_call(left, EARLIER, output_mask=BOTH, product=small)
    assert 0 < sum(held for held, _ in left.held.values()) <= 100_000
    assert all(0 <= dirty <= held for held, dirty in left.held.values())


# ---- As points of a study


def point(**options):
    before = ((LATER, BOTH),)
    return StudyPoint(EARLIER, "910_95", gradients=BOTH, l2_start=NETWORK, before=before, **options)


def test_a_point_is_the_call_behind_those_before_it():
    made = estimate_behind(left_by_call(L2Left(), LATER, **ON), EARLIER, **ON)
    answer = measure(point())
    assert (answer.cycles, answer.time_us) == (sum(k.cycles for k in made.kernels), made.time_us)


def test_the_key_knows_the_calls_before():
    assert (
        len({point().key, replace(point(), before=()).key, replace(point(), before=((OTHER, BOTH),)).key})
        == 3
    )


@pytest.mark.parametrize("path", ["paths.GM_L1.bytes_per_cycle", "links.memory.nominal_tb_per_s"])
def test_a_figure_of_speed_changes_nothing_of_what_is_left(path):
    # So `left_before` leaves such figures out; here they are in.
    fast = load_profile("910_95", overrides={path: 2 * load_profile("910_95").figures[path].value})
    assert left_by_call(L2Left(), LATER, output_mask=BOTH, product=fast) == left_before(point())


def test_a_smaller_l2_is_left_with_less():
    small = FrozenMap({"l2.capacity_bytes": 100_000})
    assert sum(held for held, _ in left_before(point(changes=small)).held.values()) <= 100_000


def test_the_layers_behind_run_before_the_last_one_first():
    layers = tuple(StudiedLayer(str(at), one, BOTH) for at, one in enumerate((OTHER, EARLIER, LATER)))
    points = base_points(Question("t", "910_95", layers, parse_changes("cores.cube=x2"), (NETWORK, "warm")))
    said = [points[layer, NETWORK].before for layer in layers]
    assert said == [((LATER, BOTH), (EARLIER, BOTH)), ((LATER, BOTH),), ()]
    assert points[layers[0], "warm"].before == ()


# --- Do kernels of one call find in L2 what those before them have left (`l2_start="chained"`)? --------

FLAT = ConvProblem((2, 32, 12, 12), (48, 32, 3, 3), 1, 1)


def kernels(product="910B", start="chained", problem=FLAT, mask=BOTH, **options):
    found = estimate(problem, product=product, output_mask=mask, l2_start=start, **options)
    return {kernel.name: kernel for kernel in found.kernels}


def from_memory(kernel):
    return kernel.bytes["memory_read"]


def test_the_first_kernel_begins_with_an_empty_l2():
    (first, *_), (cold, *_) = (list(kernels(start=start).values()) for start in ("chained", "cold"))
    assert (first.cycles, first.bytes) == (cold.cycles, cold.bytes)


def test_each_kernel_is_timed_with_what_the_ones_before_have_left():
    profile, held = load_profile("910B"), {}
    for made in kernels().values():
        assert made.cycles == measure_kernel(made.kernel, profile, l2_start=held).cycles, made.name
        held = left_by(made.kernel, profile, held)


def test_what_was_just_written_is_not_fetched():
    made, cold = kernels(), kernels(start="cold")
    # 2 x 48 x 144 and 2 x 32 x 144 numbers of 2 bytes are packed just before, and the weights
    for name in ("grad_input", "grad_weight", "transdata_grad_input", "transdata_grad_weight"):
        assert from_memory(made[name]) == 0, name
        assert from_memory(cold[name]) > 0, name
    # grad_output itself is still there when its layout is changed a second time.
    grad_output = 2 * 48 * 144 * 2
    assert from_memory(made["transdata_grad_output"]) == grad_output
    assert from_memory(made["transdata_grad_output_2"]) == 0
    assert made["transdata_grad_output_2"].cycles < made["transdata_grad_output"].cycles


@pytest.mark.parametrize(("start", "fetched"), [("handed", 0), ("chained", 1), ("cold", 1)])
def test_a_change_of_layout_finds_what_it_reads_where_each_kernel_is_handed_its_first_input(start, fetched):
    made = kernels(start=start)
    # The first readers of the tensors of the user, be it the gradient that the layer behind has just written
    # or what the forward pass has left long ago.
    sizes = {"grad_output": 2 * 48 * 144, "weight": 48 * 32 * 9, "input": 2 * 32 * 144}
    for name, size in sizes.items():
        found = from_memory(made[f"transdata_{name}"])
        # Numbers of 2 bytes; what does not begin at a sector comes with the rest of it.
        assert bool(found) == bool(fetched), name
        assert found >= fetched * size * 2, name


def test_a_tensor_that_the_cube_reads_as_it_is_stays_known():
    # The 950 packs nothing: its grad_weight finds the grad_output that grad_input has read.
    # Planned by our search: stream-K has vector cores that read parts of the sum from memory, too.
    made, alone = (kernels("910_95", mask=mask, tiling="search") for mask in (BOTH, (False, True, False)))
    assert from_memory(alone["grad_weight"]) - from_memory(made["grad_weight"]) == 2 * 48 * 144 * 2


@pytest.mark.parametrize("product", ["910B", "910_95", "310P"])
def test_both_engines_and_a_run_with_tensors_say_the_same(product):
    found = kernels(product)
    simpy = kernels(product, engine="simpy")
    random = np.random.default_rng(0)
    shapes = (FLAT.grad_output, FLAT.input, FLAT.weight)
    tensors = [random.standard_normal(shape).astype(np.float16) for shape in shapes]
    run = convolution_backward(
        *tensors, None, 1, 1, 1, False, 0, 1, BOTH, 0, product=product, l2_start="chained"
    )
    ran = {kernel.name: kernel for kernel in run.kernels}
    for name, kernel in found.items():
        assert kernel.cycles == simpy[name].cycles == ran[name].cycles == kernel.timeline.cycles, name
        assert kernel.bytes == simpy[name].bytes == ran[name].bytes, name


def test_the_result_says_how_its_kernels_found_l2():
    notes = estimate(FLAT, l2_start="chained", output_mask=BOTH).notes
    assert any("what those before it have left" in note for note in notes)
    with pytest.raises(ConfigError, match="warm, cold, handed, chained"):
        estimate(FLAT, l2_start="linked")


# --- Are remembered times of vector kernels those that they would take if they were timed? -------------

SPLIT = toy_split(**{"cores.cube": 2, "cores.vector": 4, "buffers.UB.capacity_bytes": 4096})
STARTS = ("warm", "cold", "handed")


@pytest.fixture
def _nothing_is_known():
    known._remembered.cache_clear()
    known._remembered_phase.cache_clear()


def kernels_known(profile, add, given=()):
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


@pytest.mark.usefixtures("_nothing_is_known")
@pytest.mark.parametrize("folded", [True, False])
@pytest.mark.parametrize("start", STARTS)
def test_no_kernel_is_given_the_times_of_another(start, folded):
    others = SPLIT, toy_unified(), toy_split(), toy_split(**{"paths.GM_UB.row_cycles": 7})
    made = [
        (kernel, profile) for profile in others for one in FAMILY for kernel in kernels_known(profile, *one)
    ]
    # Twice: the second time all is known.
    for _ in range(2):
        for kernel, profile in made:
            timed = measure_kernel(kernel, profile, folded=folded, l2_start=start)
            assert known.known_times(kernel, profile, folded=folded, l2_start=start) == timed


@pytest.mark.usefixtures("_nothing_is_known")
def test_starts_and_folding_are_told_apart():
    [kernel] = kernels_known(SPLIT, change("NCHW->NC1HWC0", (3, 32, 4, 4)))
    for folded in (True, False):
        for start in STARTS:
            known.known_times(kernel, SPLIT, folded=folded, l2_start=start)
    assert known._remembered.cache_info().misses == 6


def unbuildable(kernel):
    """The same kernel, of which nobody can plan the work."""

    def fail():
        raise AssertionError("it was planned")

    return replace(kernel, phases=tuple(Phase(phase.name, Deferred(fail)) for phase in kernel.phases))


@pytest.mark.usefixtures("_nothing_is_known")
def test_a_kernel_that_is_known_is_not_planned_again_and_keeps_its_name():
    [first] = kernels_known(SPLIT, change("NCHW->NC1HWC0", (3, 32, 4, 4)))
    timed = known.known_times(first, SPLIT, folded=True, l2_start="warm")
    [again] = kernels_known(SPLIT, change("NCHW->NC1HWC0", (3, 32, 4, 4)))
    other = {f"other {name}": replace(t, name=f"other {name}") for name, t in again.tensors.items()}
    again = replace(unbuildable(again), name="another", tensors=other)
    found = known.known_times(again, SPLIT, folded=True, l2_start="warm")
    assert found == timed._replace(kernel="another")


@pytest.mark.usefixtures("_nothing_is_known")
def test_what_another_kernel_left_and_kernels_without_a_recipe_are_timed():
    [kernel] = kernels_known(SPLIT, change("NCHW->NC1HWC0", (3, 32, 4, 4)))
    left = FrozenMap({"plain": (3 * 32 * 16 * 2, 0)})
    bare = replace(kernel, recipe=None)
    for one, start in ((kernel, left), (bare, "cold")):
        timed = measure_kernel(one, SPLIT, l2_start=start)
        assert known.known_times(one, SPLIT, folded=True, l2_start=start) == timed
    assert known._remembered.cache_info().currsize == 0


@pytest.mark.usefixtures("_nothing_is_known")
def test_what_is_known_keeps_neither_kernel_nor_profile_alive():
    profile = toy_split()
    [kernel] = kernels_known(profile, change("NCHW->NC1HWC0", (3, 32, 4, 4)))
    known.known_times(kernel, profile, folded=True, l2_start="warm")
    gone = ref(kernel), ref(profile)
    del kernel, profile
    gc.collect()
    assert [one() for one in gone] == [None, None]


@pytest.mark.usefixtures("_nothing_is_known")
def test_a_second_call_takes_what_it_knows_and_says_the_same():
    problem = ConvProblem((2, 32, 14, 14), (48, 32, 3, 3), padding=1)
    first = estimate(problem, product="910B2", l2_start="warm")
    before = known._remembered.cache_info()
    second = estimate(problem, product="910B2", l2_start="warm")
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
                on = {"product": profile, "tiling": given, "l2_start": "warm"}
                timed = estimate(problem, dtype, output_mask=mask, **on)
                made += [each.kernel for each in timed.kernels if each.kernel.macs]
    return made


@pytest.mark.usefixtures("_nothing_is_known")
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


@pytest.mark.usefixtures("_nothing_is_known")
def test_phases_are_remembered_only_where_nothing_is_missed():
    profile = load_profile("910B2")
    made = cube_kernels(profile, count=2)
    known._remembered_phase.cache_clear()
    for kernel in made:
        for start in ("cold", "handed"):
            timed = measure_kernel(kernel, profile, l2_start=start)
            assert known.known_times(kernel, profile, folded=True, l2_start=start) == timed
    assert known._remembered_phase.cache_info().currsize == 0


@pytest.mark.usefixtures("_nothing_is_known")
def test_a_kernel_with_known_phases_stops_where_it_would():
    profile = load_profile("910B2")
    for kernel in cube_kernels(profile):
        cycles = measure_kernel(kernel, profile).cycles
        found = known.known_times(kernel, profile, folded=True, l2_start="warm", stop_above=cycles)
        assert found.cycles == cycles
        with pytest.raises(StoppedError):
            known.known_times(kernel, profile, folded=True, l2_start="warm", stop_above=cycles - 1)


@pytest.mark.usefixtures("_nothing_is_known")
def test_known_phases_keep_no_kernel_alive():
    made = cube_kernels(load_profile("910B2"), count=3)
    assert known._remembered_phase.cache_info().currsize
    gone = [ref(kernel) for kernel in made]
    del made
    gc.collect()
    assert [one() for one in gone] == [None] * len(gone)
