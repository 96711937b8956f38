"""From a call to the kernels that the device runs, one after another."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from ascendsim.numerics.accumulation.models import AccumulationModel
from ascendsim.ops.lowering.call import Call, Node
from ascendsim.ops.lowering.cube import dgrad_gemm, grad_input, grad_weight, wgrad_gemm
from ascendsim.ops.lowering.vector import Named, Vectors, contiguous, converted, filled, grad_bias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ascendsim.ops.lowering.call import Tensors
    from ascendsim.profile import Profile

__all__ = ["Call", "Node", "dgrad_gemm", "lower", "wgrad_gemm", "zero_steps"]

INPUTS = ("grad_output", "input", "weight")


def lower(call: Call, output_mask: tuple[bool, bool, bool]) -> list[Node]:
    """Return the kernels of a call in the order in which the device runs them.

    Order    row-major copies of strided inputs (whatever is asked for, as the operator does); the bias
             gradient from grad_output as given; casts to the compute type; grad_input and its cast;
             grad_weight and its casts
    """
    want_input, want_weight, want_bias = output_mask
    on = Vectors(call.profile, call.accumulation)
    steps = [
        contiguous(on, name, call.dtypes[name], call.views[name]) for name in INPUTS if name in call.views
    ]
    if want_bias:
        steps += grad_bias(on, call.problem.grad_output, call.dtypes["grad_output"], call.dtypes["grad_bias"])
    needed = {"grad_output": want_input or want_weight, "weight": want_input, "input": want_weight}
    for name, used in needed.items():
        if used and call.dtypes[name] != call.storage.name:
            steps.append(_cast(on, call, name, call.dtypes[name], call.storage.name))
    if want_input:
        steps.append(grad_input(call))
        if call.dtypes["grad_input"] != call.storage.name:
            steps.append(_cast(on, call, "grad_input", call.storage.name, call.dtypes["grad_input"]))
    if want_weight:
        steps.append(grad_weight(call))
        steps += _leave_float32(on, call)
    return steps


def _cast(on: Vectors, call: Call, name: str, source: str, target: str, kernel_name: str = "") -> Node:
    return converted(on, Named(name, call.shape_of(name)), source, target, kernel_name)


def _leave_float32(on: Vectors, call: Call) -> list[Node]:
    """Return the casts of grad_weight, which the cube makes in float32, to the asked format."""
    asked = call.dtypes["grad_weight"]
    if call.squeezed:
        return [
            _cast(on, call, "grad_weight", "float32", "float16", "squeeze_grad_weight"),
            _cast(on, call, "grad_weight", "float16", asked),
        ]
    return [_cast(on, call, "grad_weight", "float32", asked)] if asked != "float32" else []


def zero_steps(
    profile: Profile, shapes: Mapping[str, tuple[int, ...]], dtypes: Mapping[str, str], tensors: Tensors
) -> list[Node]:
    """Return the kernels that make gradients of zeros; those without elements are put among the tensors."""
    import numpy as np

    on = Vectors(profile, AccumulationModel("exact"))
    tensors.update({name: np.zeros(shape, np.float32) for name, shape in shapes.items() if not prod(shape)})
    return [filled(on, Named(name, shape), dtypes[name]) for name, shape in shapes.items() if prod(shape)]
