"""The reference of a whole call: the orders that its plans fix, operands on their grid, output formats."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.numerics.formats.casts import round_to
from ascendsim.ops.lowering.call import Call, vector_overflow
from ascendsim.ops.reference.dilated import spread
from ascendsim.ops.reference.merged import merged_dgrad, merged_wgrad
from ascendsim.ops.reference.ordered import reduction_of
from ascendsim.ops.reference.products import ordered_product
from ascendsim.ops.reference.sums import bias_gradient
from ascendsim.ops.schedules.vector.channel_sums import bias_parts

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ascendsim.ops.reference.ordered import Floats, Reduce


@default_arithmetic
def reference_gradients(
    call: Call,
    grad_output: Floats,
    input: Floats,
    weight: Floats,
    arrivals: NDArray[np.int_] | None = None,
    mask: tuple[bool, bool, bool] = (True, True, True),
) -> dict[str, Floats]:
    """Return grad_input, grad_weight and grad_bias of a call in the ordered arithmetic, those of the mask.

    Shapes    float32 carriers of the call's tensors in the user's layout; so are the results
    arrivals  the order of atomic additions, see `WgradOrder`; None where the parts are added in order
    """
    reduce = reduction_of(call.accumulation, _macs(call))
    given = {"grad_output": grad_output, "input": input, "weight": weight}
    made: dict[str, Floats] = {}
    if mask[0]:
        a, _, w = (_operand(call, "grad_input", name, values) for name, values in given.items())
        made["grad_input"] = _grad_input(call, a, w, reduce)
    if mask[1]:
        a, x, _ = (_operand(call, "grad_weight", name, values) for name, values in given.items())
        sums = _grad_weight(call, a, x, arrivals, reduce)
        made["grad_weight"] = _cast(call, sums, "float16") if call.squeezed else sums
    if mask[2]:
        shape = call.problem.grad_output
        parts = bias_parts(call.profile, shape[0], shape[1])
        made["grad_bias"] = _cast(call, bias_gradient(grad_output, parts), call.leaves_in("grad_bias"))
    return {name: _cast(call, values, call.dtypes[name]) for name, values in made.items()}


def _macs(call: Call) -> int:
    """Return the multiply-adds of the largest product of a call."""
    return max([call.problem_of(name).macs for name in call.plans], default=0)


def _grad_input(call: Call, a: Floats, w: Floats, reduce: Reduce) -> Floats:
    """Return grad_input as it leaves the cube."""
    order, product, dilated = call.schedule("grad_input").order(), call.as_product("grad_input"), call.dilated
    # Parts are added in float32 and converted by vector cores, whose overflow may differ from Fixpipe's.
    target, overflow = call.leaves_in("grad_input"), call.math("grad_input").overflow
    if product:
        sums = ordered_product(product, {"grad_output": a, "weight": w}, order, reduce)
        return round_to(sums.reshape(call.problem.input), target, overflow=overflow)
    problem = dilated.problem if dilated else call.problem
    if dilated and dilated.spreads == "grad_output":
        a = spread(a, dilated)
    if folded := call.folded("grad_input"):
        problem, a, w = folded.problem, folded.rows_of(a), w.reshape(folded.problem.weight)
    sums = merged_dgrad(problem, call.merge_of("grad_input"), a, w, order, reduce)
    if dilated and dilated.spreads == "grad_input":
        sums = spread(sums, dilated)
    if folded:
        sums = folded.lines_of(sums)
    return round_to(sums, target, overflow=overflow)


def _grad_weight(
    call: Call, a: Floats, x: Floats, arrivals: NDArray[np.int_] | None, reduce: Reduce
) -> Floats:
    """Return grad_weight in float32, as it leaves the cube."""
    order = call.schedule("grad_weight").order()
    if product := call.as_product("grad_weight"):
        sums = ordered_product(product, {"grad_output": a, "input": x}, order, reduce)
        return sums.reshape(call.problem.weight)
    # Only parts that are added atomically arrive in an order of their own.
    order = order if arrivals is None else replace(order, arrivals=arrivals)
    problem, patches = call.problem, call.patches
    if patches:
        problem = patches.problem
        x = x.reshape(patches.split).transpose(patches.axes).reshape(problem.input)
    if folded := call.folded("grad_weight"):
        problem, a, x = folded.problem, folded.rows_of(a), folded.rows_of(x)
    sums = merged_wgrad(problem, call.merge_of("grad_weight"), a, x, order, reduce)
    return sums.reshape(call.problem.weight)


def _cast(call: Call, values: Floats, target: str) -> Floats:
    """Return what a vector kernel makes of values in another format."""
    return round_to(values, target, overflow=vector_overflow(call.profile, target))


def _operand(call: Call, gradient: str, name: str, values: Floats) -> Floats:
    """Return a tensor on the grid that the cube multiplies: cast to its storage format, then to HF32."""
    # Two roundings, as on the device: a Cast kernel before the cube, and HF32 as L0 is read.
    stored = _cast(call, values, call.storage.name) if call.dtypes[name] != call.storage.name else values
    return call.multiplied(stored, gradient)
