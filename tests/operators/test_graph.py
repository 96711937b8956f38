"""Is a call one graph of kernels over named tensors, each made once, in the layout that its readers need?"""

from dataclasses import replace

import numpy as np
import pytest

from ascendsim.ops.lowering.graph import Graph, GraphBuilder, TransData, touched
from ascendsim.ops.lowering.known import lower
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.strips import View
from ascendsim.program.kernel import Kernel
from ascendsim.program.places import GmTensor
from tests.helpers.conv_cases import call_of

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
