"""Is a call one graph of kernels over named tensors, and that of a call made again the same?"""

import gc
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from weakref import ref

import numpy as np
import pytest

from ascendsim import convolution_backward
from ascendsim.ops import running
from ascendsim.ops.graph_times import known_times
from ascendsim.ops.lowering import call as lowered_call
from ascendsim.ops.lowering.call import Call
from ascendsim.ops.lowering.graph import Graph, GraphBuilder, TransData, touched
from ascendsim.ops.lowering.kernels import lower
from ascendsim.ops.plan import Plan
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.views import View
from ascendsim.ops.schedules import Dgrad
from ascendsim.profile import load_profile
from ascendsim.program.kernel import Kernel
from ascendsim.program.places import GmTensor
from ascendsim.timing.kernel import measure_kernel
from tests.helpers.conv_cases import SPLIT, UNIFIED, call_of, split

# -------------------------------------------------------------------------------------------------------
# Is a call one graph of kernels over named tensors, each made once, in the layout that its readers need?
# -------------------------------------------------------------------------------------------------------

ALL = (True, True, True)
PROBLEM = ConvProblem((2, 20, 5, 6), (24, 20, 3, 3), 1, 1)


def builder():
    return GraphBuilder({"x": GmTensor.of("x", (2, 3), "float16")})


def kernel(name, *tensors):
    return Kernel(name, (), {tensor.name: tensor for tensor in tensors}, None)


def double(values):
    return values * 2


# --- the builder


def test_a_tensor_is_what_the_user_gave_until_a_kernel_makes_another():
    graph = builder()
    assert graph.now("x").name == "x"
    made = graph.make("x", (6,), "float32", "x in float32")
    graph.add(kernel("cast_x", graph.now("x"), made))
    graph.holds("x", made, (2, 3))
    now = graph.now("x")
    assert (now.name, now.shape, now.dtype, now.role) == ("x in float32", (2, 3), "float32", "input")


def test_names_of_tensors_are_unique():
    graph = builder()
    names = []
    for _ in range(3):
        made = graph.make("x", (6,), "float16")
        graph.add(kernel("copy", made))
        names.append(made.name)
    assert names == ["x 2", "x 3", "x 4"]  # x is the user's
    assert graph.make("y", (1,), "float16").name == "y"
    assert graph.make("y", (1,), "float16", "x 3").name == "x 3 2"


def test_a_layout_is_made_once_for_all_its_readers():
    graph = builder()
    target = GmTensor.of("x NC1HWC0", (1, 2, 16), "float16", layout="NC1HWC0")
    graph.packed("x", target, double)
    graph.packed("x", replace(target), double)
    [node] = graph.build(()).nodes
    assert isinstance(node, TransData)
    assert (node.source.name, node.target.name) == ("x", "x NC1HWC0")
    assert node.convert(np.ones(2)).tolist() == [2, 2]


def test_what_comes_back_from_a_layout_is_a_tensor_of_the_call():
    graph = builder()
    source = GmTensor.of("y packed", (1, 16), "float32", "output", "NC1HWC0")
    graph.add(kernel("product", graph.now("x"), source))
    graph.unpacked("y", source, (3, 4), double)
    built = graph.build(("y", "z"))  # nothing makes z
    assert {name: (t.name, t.shape, t.layout) for name, t in built.outputs.items()} == {
        "y": ("y", (3, 4), "ND")
    }
    assert [type(node) for node in built.nodes] == [Kernel, TransData]
    assert built.kernels == (built.nodes[0],)


def test_a_node_touches_what_it_reads_and_makes():
    one, other = (GmTensor.of(name, (4,), "float16") for name in "ab")
    assert touched(kernel("k", one, other)) == touched(TransData(one, other, double)) == {"a", "b"}


def test_a_graph_without_nodes_gives_back_nothing():
    assert Graph((), {}, {}).kernels == ()


# --- the graphs of calls


def names(graph):
    return [
        f"{node.source.name} -> {node.target.name}" if isinstance(node, TransData) else node.name
        for node in graph.nodes
    ]


def test_both_gradients_share_one_layout_of_grad_output():
    assert names(lower(call_of(PROBLEM), (True, True, False))) == [
        "grad_output -> grad_output NDC1HWC0",
        "weight -> weight DC1HWC0N",
        "grad_input",
        "grad_input NDC1HWC0 -> grad_input",
        "input -> input NDC1HWC0",
        "grad_weight",
        "grad_weight DNC1HWC0 -> grad_weight",
        "cast_grad_weight",
    ]


def test_a_sum_over_rows_changes_no_layout():
    graph = lower(call_of(PROBLEM), (False, False, True))
    assert names(graph) == ["grad_bias"]
    assert {t.layout for node in graph.kernels for t in node.tensors.values()} == {"ND"}


def test_what_is_not_contiguous_is_copied_first_and_read_from_the_copy():
    shape = PROBLEM.grad_output
    view = replace(View.row_major(shape), strides=tuple(2 * s for s in View.row_major(shape).strides))
    graph = lower(replace(call_of(PROBLEM), views={"grad_output": view}), (True, False, False))
    assert names(graph)[:2] == [
        "contiguous_grad_output",
        "grad_output in order -> grad_output NDC1HWC0",
    ]


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("mask", [ALL, (True, False, True), (False, True, False)])
def test_every_tensor_is_made_before_it_is_read_and_made_once(mask, dtype):
    graph = lower(call_of(PROBLEM, dtype), mask)
    there = {tensor.name for tensor in graph.inputs.values()}
    for node in graph.nodes:
        if isinstance(node, TransData):
            reads, makes = {node.source.name}, [node.target.name]
        else:
            reads = {name for name, t in node.tensors.items() if t.role == "input"}
            makes = [name for name, t in node.tensors.items() if t.role == "output"]
        assert reads <= there
        assert not there & set(makes)
        there |= set(makes)
    assert {t.name for t in graph.outputs.values()} <= there
    assert list(graph.outputs) == [
        name for name, wanted in zip(("grad_input", "grad_weight", "grad_bias"), mask, strict=True) if wanted
    ]


def test_layouts_change_at_transdata_and_nowhere_else():
    graph = lower(call_of(PROBLEM), ALL)
    layouts = {tensor.name: tensor.layout for tensor in graph.inputs.values()}
    for node in graph.nodes:
        if isinstance(node, TransData):
            assert node.source.layout != node.target.layout
            assert layouts[node.source.name] == node.source.layout
            layouts[node.target.name] = node.target.layout
        else:
            for name, tensor in node.tensors.items():
                assert layouts.setdefault(name, tensor.layout) == tensor.layout
    # C0 = 16 of float16: 24 channels of grad_output in two groups, 20 of grad_input in two. The nest of
    # grad_input takes rows of pixels, that of grad_weight runs of them: the same bytes under two shapes.
    tensors = {node.name: node.tensors for node in graph.kernels}
    assert tensors["grad_input"]["grad_output NDC1HWC0"].shape == (1, 2, 1, 2, 5, 6, 16)
    assert tensors["grad_weight"]["grad_output NDC1HWC0"].shape == (1, 2, 1, 2, 30, 16)
    assert tensors["grad_input"]["weight DC1HWC0N"].shape == (1, 1, 2, 3, 3, 16, 32)
    assert tensors["grad_input"]["grad_input NDC1HWC0"].shape == (1, 2, 1, 2, 30, 16)
    assert tensors["grad_weight"]["grad_weight DNC1HWC0"].shape == (1, 1, 32, 2 * 9 * 16)


# -------------------------------------------------------------------------------------------------------
# Are the kernels of a call that is made again those of the first time, and those of another call others?
# -------------------------------------------------------------------------------------------------------

BOTH = (True, True, False)
SMALL = ConvProblem((1, 20, 7, 6), (19, 20, 3, 3), padding=1)
DEVICE = load_profile("910B2")


class Own(Dgrad):
    """A schedule of the user's."""

    name = "own"


@pytest.fixture
def _nothing_is_known():
    running._OWN.remembered.cache_clear()


@pytest.mark.usefixtures("_nothing_is_known")
def test_an_equal_call_has_the_same_kernels_and_programs():
    first, again = (running.known_graph(call_of(SMALL, profile=DEVICE), BOTH) for _ in range(2))
    assert again is first
    cube = [kernel for kernel in first.kernels if kernel.op_type.startswith("Conv")]
    assert len(cube) == 2
    for kernel in cube:
        for work in kernel.phases[-1].work:
            assert work.build() is work.build()


def chosen_by(name):
    call = call_of(SMALL)
    return replace(call, plans={key: replace(plan, chosen_by=name) for key, plan in call.plans.items()})


def written(form):
    call = call_of(SMALL)
    return replace(call, dtypes={**call.dtypes, "grad_input": form})


# Each differs from the first in one thing that kernels follow from.
OTHERS = {
    "another mask": (call_of(SMALL), (True, False, False)),
    "another problem": (replace(call_of(SMALL), problem=replace(SMALL, dilation=2)), BOTH),
    "another format": (call_of(SMALL, "bfloat16"), BOTH),
    "another product": (call_of(SMALL, profile=UNIFIED), BOTH),
    "another variant": (call_of(SMALL, profile=replace(SPLIT, variant="another")), BOTH),
    "another model": (call_of(SMALL, accumulation="seq:RNE"), BOTH),
    "another sum of parts": (call_of(SMALL, deterministic=True), BOTH),
    "another tiling": (split(call_of(SMALL), 2, 0), BOTH),
    "another chooser": (chosen_by("somebody"), BOTH),
    "another format of grad_input alone": (written("float32"), BOTH),
    "another format on the cube alone": (replace(call_of(SMALL), compute_dtype="bfloat16"), BOTH),
    "another view": (replace(call_of(SMALL), views={"input": View(SMALL.input, (1, 42, 1, 7))}), BOTH),
    "another page on Fixpipe": (replace(call_of(SMALL), fixpipe="c-api-pages"), BOTH),
    "another way out": (replace(call_of(SMALL), direct_outputs=True), BOTH),
    "packed tensors": (replace(call_of(SMALL), packed=True), BOTH),
}


@pytest.mark.usefixtures("_nothing_is_known")
@pytest.mark.parametrize("name", OTHERS)
def test_a_call_that_differs_in_one_thing_has_kernels_of_its_own(name):
    usual = running.known_graph(call_of(SMALL), BOTH)
    call, mask = OTHERS[name]
    assert running.known_graph(call, mask) is not usual
    assert running.known_graph(call_of(SMALL), BOTH) is usual


@pytest.mark.usefixtures("_nothing_is_known")
def test_every_field_of_a_call_tells_it_from_others():
    # A field that is added to `Call` needs a case above, which fails until it is part of what is compared.
    usual = call_of(SMALL)

    def changed(call):
        return {
            field.name for field in fields(Call) if getattr(call, field.name) != getattr(usual, field.name)
        }

    alone = [changed(call) for call, _ in OTHERS.values() if len(changed(call)) == 1]
    every = {field.name for field in fields(Call)}
    assert set.union(*alone) == every


@pytest.mark.usefixtures("_nothing_is_known")
def test_times_that_are_remembered_are_those_that_are_measured():
    graph = running.known_graph(call_of(SMALL, profile=DEVICE), BOTH)
    fresh = lower(call_of(SMALL, profile=DEVICE), BOTH)
    for _ in range(2):
        for kernel, measured in zip(graph.kernels, fresh.kernels, strict=True):
            found = known_times(kernel, DEVICE, folded=True, l2_start="warm")
            assert found == measure_kernel(measured, DEVICE, l2_start="warm")


@pytest.mark.usefixtures("_nothing_is_known")
def test_times_of_what_all_calls_do_are_shared_and_those_of_gradients_are_of_their_call():
    # A Cast of so many elements takes as long in every call; a gradient hangs on all that tells its call.
    plain = {kernel.name: kernel.recipe for kernel in lower(call_of(SMALL, profile=DEVICE), BOTH).kernels}
    assert plain["cast_grad_weight"] == "cast"
    assert plain["grad_input"] is None
    one, other = (
        {kernel.name: kernel.recipe for kernel in running.known_graph(call, BOTH).kernels}
        for call in (call_of(SMALL, profile=DEVICE), call_of(SMALL, profile=DEVICE, deterministic=True))
    )
    assert one["cast_grad_weight"] == other["cast_grad_weight"] == "cast"
    assert None not in (one["grad_input"], other["grad_input"])
    assert one["grad_input"] != other["grad_input"]
    assert one["grad_input"] != one["grad_weight"]


@pytest.mark.usefixtures("_nothing_is_known")
def test_a_call_made_again_gives_its_bits_and_cycles_on_other_values():
    rng = np.random.default_rng(0)
    shapes = SMALL.grad_output, SMALL.input, SMALL.weight
    rest = None, 1, 1, 1, False, 0, 1, BOTH, 0
    cycles = set()
    for _ in range(3):
        tensors = [rng.standard_normal(shape).astype(np.float16) for shape in shapes]
        again = convolution_backward(*tensors, *rest, product="910B2")
        running._OWN.remembered.cache_clear()
        first = convolution_backward(*tensors, *rest, product="910B2")
        assert again.grad_input.tobytes() == first.grad_input.tobytes()
        assert again.grad_weight.tobytes() == first.grad_weight.tobytes()
        cycles |= {again.cycles, first.cycles}
    assert len(cycles) == 1


@pytest.mark.usefixtures("_nothing_is_known")
@pytest.mark.parametrize("name", ["large", "own schedule"])
def test_large_calls_and_schedules_of_the_user_are_not_remembered(name, monkeypatch):
    call = call_of(SMALL)
    if name == "large":
        monkeypatch.setattr(lowered_call, "MOST_MACS", SMALL.macs - 1)
    else:
        plans = {"grad_input": Plan(Own, call.plans["grad_input"].tiling)}
        call = replace(call, plans={**call.plans, **plans})
    assert running.known_graph(call, BOTH) is not running.known_graph(call, BOTH)
    assert running._OWN.remembered.cache_info().currsize == 0


@pytest.mark.usefixtures("_nothing_is_known")
def test_long_programs_are_not_kept_and_no_program_is_pickled(monkeypatch):
    graph = running.known_graph(call_of(SMALL, profile=DEVICE), BOTH)
    work = next(kernel for kernel in graph.kernels if kernel.name == "grad_input").phases[-1].work[0]
    kept = work.build()
    copy = pickle.loads(pickle.dumps(work.build))
    assert copy._program is None
    assert len(copy()) == len(kept)
    monkeypatch.setattr(running, "MOST_INSTRUCTIONS", len(kept) - 1)
    long = pickle.loads(pickle.dumps(work.build))
    assert long() is not long()


@pytest.mark.usefixtures("_nothing_is_known")
def test_threads_that_make_the_same_call_get_its_bits():
    rng = np.random.default_rng(0)
    shapes = SMALL.grad_output, SMALL.input, SMALL.weight
    tensors = [rng.standard_normal(shape).astype(np.float16) for shape in shapes]

    def made(_):
        rest = None, 1, 1, 1, False, 0, 1, BOTH, 0
        result = convolution_backward(*tensors, *rest, product="910B2")
        return result.grad_input.tobytes(), result.grad_weight.tobytes(), result.cycles

    usual = sys.getswitchinterval()
    # Threads take turns far more often than usual, in the middle of the writing of programs.
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(6) as threads:
            found = set(threads.map(made, range(12)))
    finally:
        sys.setswitchinterval(usual)
    assert found == {made(0)}


@pytest.mark.usefixtures("_nothing_is_known")
def test_what_is_forgotten_is_not_kept_alive():
    kernel = ref(running.known_graph(call_of(SMALL), BOTH).kernels[0])
    running._OWN.remembered.cache_clear()
    gc.collect()
    assert kernel() is None
