"""The kernels of calls, remembered from call to call with their programs and times.

A training run makes the same backward calls in every step, on other values. The kernels of a
call, their instructions and the cycles of these follow from the call alone; so they are worked out once. A
result for which every instruction is executed then takes little more than the work of the instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from threading import local

from ascendsim.ops.lowering.call import GRADIENTS, INPUTS, Call, Mask, squeezed
from ascendsim.ops.lowering.graph import Graph, GraphBuilder
from ascendsim.ops.lowering.kernels import grad_input, grad_weight, product_kernel
from ascendsim.ops.lowering.vector_kernels import VectorKernels
from ascendsim.ops.problems.folded import GradientProduct
from ascendsim.ops.problems.views import View
from ascendsim.program.kernel import CoreWork, Deferred, Kernel, Phase
from ascendsim.program.places import GmTensor
from ascendsim.program.program import Program


def gradient_by_product(call: Call, graph: GraphBuilder, gradient: str, product: GradientProduct) -> None:
    """Append the kernel of a gradient that is one matrix product, and the Transpose of its axes, if any."""
    p, schedule = product.problem, call.schedule(gradient)
    a = replace(graph.now(product.left), shape=p.stored_a)
    b = replace(graph.now(product.right), shape=p.stored_b)
    c = graph.make(gradient, (p.batch, p.m, p.n), call.leaves_in(gradient))
    bound = replace(schedule, gemm=replace(schedule.gemm, a=a, b=b, c=c))
    plan, math = call.plans[gradient], call.math(gradient)
    op_type = "BatchMatMul" if p.batch > 1 else "MatMul"
    graph.add(product_kernel(gradient, bound, plan, math, p.macs, call.compute_dtype, op_type))
    graph.holds(gradient, c, product.result or call.shape_of(gradient))
    if product.axes:
        VectorKernels(graph, call.profile, call.accumulation).transpose(gradient, product.axes)
        graph.holds(gradient, graph.now(gradient), call.shape_of(gradient))


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


# The programs of a larger call take up more memory than the time to write them is worth: its products alone
# take seconds.
MOST_MACS = 1 << 30
# Instructions of a program that is kept.
MOST_INSTRUCTIONS = 2048


def known_graph(call: Call, mask: Mask) -> Graph:
    """Return the kernels of a call as `lower` does; equal calls of moderate size have the same ones."""
    told = told_of(call)
    return lower(call, mask) if told is None else _OWN.remembered(_LoweringKey(told, mask, call))


@dataclass(frozen=True)
class _LoweringKey:
    """A key of a call: everything that its kernels depend on."""

    told: Hashable
    mask: Mask
    call: Call = field(compare=False)


def told_of(call: Call) -> Hashable:
    """Return a key of the call; None if nothing about the call may be remembered."""
    # A schedule of the user's own may be another one tomorrow, under the same name.
    own = any(not isinstance(plan.schedule, str) for plan in call.plans.values())
    if own or call.problem.macs > MOST_MACS:
        return None
    # Two plans are equal whoever chose them, but the kernels say who did.
    plans = [
        (name, plan, plan.chosen_by, plan.instead, plan.rule, plan.file) for name, plan in call.plans.items()
    ]
    mappings = tuple(call.dtypes.items()), tuple(plans), tuple(call.views.items())
    others: tuple[Hashable, ...] = call.accumulation, call.compute_dtype, call.deterministic, call.fixpipe
    others += call.direct_outputs, call.packed
    return call.problem, call.profile.told, call.profile.variant, mappings, others


def _lowered(asked: _LoweringKey) -> Graph:
    graph = lower(asked.call, asked.mask)
    nodes = tuple([_keeping(node, asked) if isinstance(node, Kernel) else node for node in graph.nodes])
    return graph._replace(nodes=nodes)


class _OfThread(local):
    """Memory of one thread: the programs of a schedule come from one builder, which threads cannot share."""

    def __init__(self) -> None:
        # As many as the layers of a large network that differ.
        self.remembered = lru_cache(maxsize=32)(_lowered)


_OWN = _OfThread()


def _keeping(kernel: Kernel, asked: _LoweringKey) -> Kernel:
    """Return a kernel that keeps its programs, and whose times are remembered."""
    recipe = kernel.recipe or (kernel.name, asked.told, asked.mask)
    return replace(kernel, phases=tuple(map(_kept, kernel.phases)), recipe=recipe)


def _kept(phase: Phase) -> Phase:
    # What is done at once needs no program, and is timed once for all calls.
    if phase.at_once is not None:
        return phase
    return phase._replace(work=Deferred(partial(_kept_work, phase.work)))


def _kept_work(work: Sequence[CoreWork]) -> tuple[CoreWork, ...]:
    return tuple([one._replace(build=KeptProgram(one.build)) for one in work])


class KeptProgram:
    """Builds a program once, if it is a short one; a pickle holds how, and not the program."""

    __slots__ = ("_build", "_program")

    def __init__(self, build: Callable[[], Program]) -> None:
        self._build = build
        self._program: Program | None = None

    def __reduce__(self) -> tuple[type[KeptProgram], tuple[Callable[[], Program]]]:
        """Pickle without the program."""
        return KeptProgram, (self._build,)

    def __call__(self) -> Program:
        """Return the program."""
        if self._program is not None:
            return self._program
        program = self._build()
        if len(program) <= MOST_INSTRUCTIONS:
            self._program = program
        return program
