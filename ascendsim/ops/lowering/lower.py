"""From a call to the graph of kernels that the device runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ascendsim.ops.lowering.call import GRADIENTS, INPUTS, Call, Mask
from ascendsim.ops.lowering.cube import grad_input, grad_weight
from ascendsim.ops.lowering.graph import Graph, GraphBuilder
from ascendsim.ops.lowering.notes import squeezed
from ascendsim.ops.lowering.products import gradient_by_product
from ascendsim.ops.lowering.vector import VectorKernels
from ascendsim.ops.problems.views import View
from ascendsim.program.places import GmTensor


def lower(call: Call, output_mask: Mask) -> Graph:
    """Return the kernels of a call in the order in which the device runs them.

    Order    row-major copies of strided inputs (whatever is asked for, as the operator does), then as
             `append_gradients` says, then copies of gradients to places of their own
    """
    given = {name: GmTensor.of(name, call.shape_of(name), call.dtypes[name]) for name in INPUTS}
    graph = GraphBuilder(given)
    # Whatever is asked for: the operator makes its inputs contiguous before it looks at the mask.
    on = VectorKernels(graph, call.profile, call.accumulation)
    for name in INPUTS:
        if name in call.views:
            on.contiguous(name, call.views[name])
    append_gradients(call, output_mask, graph)
    wanted = tuple(name for name, asked in zip(GRADIENTS, output_mask, strict=True) if asked)
    append_view_copies(on, wanted, call.views)
    return graph.build(wanted)


def append_view_copies(on: VectorKernels, gradients: Iterable[str], views: Mapping[str, View]) -> None:
    """Append the copies (ViewCopy) of those gradients whose elements do not lie row after row."""
    for name in gradients:
        if name in views and not views[name].is_contiguous:
            on.view_copy(name, views[name])


def append_gradients(call: Call, output_mask: Mask, graph: GraphBuilder) -> None:
    """Append the kernels that make gradients of contiguous inputs.

    Order    the bias gradient from grad_output as given; casts to the compute type; grad_input and its cast;
             grad_weight and its casts
    """
    want_input, want_weight, want_bias = output_mask
    on = VectorKernels(graph, call.profile, call.accumulation)
    # First, from grad_output as it is given: the casts below may narrow it.
    if want_bias:
        on.grad_bias(call.dtypes["grad_bias"], call.leaves_in("grad_bias"))
    needed = {"grad_output": want_input or want_weight, "weight": want_input, "input": want_weight}
    for name, used in needed.items():
        if used and call.dtypes[name] != call.storage.name:
            on.convert(name, call.storage.name)
    if want_input:
        if product := call.as_product("grad_input"):
            gradient_by_product(call, graph, "grad_input", product)
        else:
            grad_input(call, graph)
        asked, made = call.dtypes["grad_input"], call.leaves_in("grad_input")
        if asked != made:
            on.convert("grad_input", asked, note=squeezed("grad_input", made, asked))
    if want_weight:
        if product := call.as_product("grad_weight"):
            gradient_by_product(call, graph, "grad_weight", product)
        else:
            grad_weight(call, graph)
        # The cube makes it in float32; squeezed, it has only the values of float16, whatever is asked for.
        if call.squeezed:
            note = squeezed("grad_weight", "float16", call.dtypes["grad_weight"])
            on.convert("grad_weight", "float16", "squeeze_grad_weight", note)
        if call.squeezed or call.dtypes["grad_weight"] != "float32":
            on.convert("grad_weight", call.dtypes["grad_weight"])
