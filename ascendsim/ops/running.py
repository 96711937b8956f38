"""Run and time the graph of a call, kernel after kernel; graphs are remembered from call to call.

A training run makes the same backward calls in every step, on other values. The kernels of a call, their
instructions and the cycles of these follow from the call alone; so they are worked out once. A result for
which every instruction is executed then takes little more than the work of the instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from math import prod
from threading import local
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ascendsim.errors import whole
from ascendsim.native.process import keep_freed_memory
from ascendsim.ops.graph_times import GraphTimes
from ascendsim.ops.lowering.call import Call, Mask, told_of
from ascendsim.ops.lowering.formats import vector_overflow
from ascendsim.ops.lowering.graph import Graph, TransData, touched
from ascendsim.ops.lowering.kernels import lower
from ascendsim.ops.options.call import Options
from ascendsim.ops.options.keywords import l2_begun
from ascendsim.ops.plan import Plan, saying_whose
from ascendsim.ops.problems.convolution import as_multiplied, full_name
from ascendsim.ops.results import ConvolutionBackwardResult, KernelResult
from ascendsim.ops.schedules.base import schedule_named
from ascendsim.profile import Profile
from ascendsim.program.kernel import CoreWork, Deferred, Kernel, Phase
from ascendsim.program.program import Program
from ascendsim.rules import Decision
from ascendsim.timing.timeline import arrivals

if TYPE_CHECKING:
    from ascendsim.numerics.factor import Threads
    from ascendsim.ops.lowering.call import Tensors
    from ascendsim.ops.operands import Operand
    from ascendsim.timing.l2.account import Start


class Done(NamedTuple):
    """The outcome of a call.

    results   the times of its kernels; none without timing
    made      the call's names of its gradients -> carriers, row after row
    model     the accumulation model; "none" where the cube makes nothing
    plans     those of the gradients that the cube makes
    overflowed  kernels that cut off a value; None: not known
    """

    results: list[KernelResult]
    made: Tensors
    model: str
    plans: Mapping[str, Plan]
    overflowed: tuple[str, ...] | None = None


def time_graph(
    graph: Graph,
    profile: Profile,
    l2_start: Start,
    engine: str | None = None,
    *,
    stop_above: int | None = None,
) -> list[KernelResult]:
    """Return the cycles of every kernel; `l2_start` as of a call, or what L2 holds.

    Raises   StoppedError where they are more than `stop_above` in all
    """
    begun = l2_begun(l2_start, graph.inputs, profile)
    times = GraphTimes(profile, begun, engine, stop_above=stop_above)
    for node in graph.nodes:
        if isinstance(node, TransData):
            times.rename(node)
        else:
            times.add(node)
    return times.results


def run_graph(
    graph: Graph,
    profile: Profile,
    l2_start: Start,
    given: Tensors,
    order: str | int,
    engine: str | None = None,
    *,
    timing: bool = True,
    cut: set[str] | None = None,
) -> tuple[list[KernelResult], Tensors]:
    """Execute the kernels of a call; return their cycles, and the tensors that they make.

    Tensors  the call's names -> carriers, row after row
    Order    "program", "arrival" or a seed
    Timing   without it no cycles, but where the order of execution is that of arrival
    Cut      gains the names of kernels that saturate a value, as `cuts_a_value_off` finds them
    """
    # Any seed must give the same bits, unless parts are added atomically: a seed is given to show this.
    seed = whole(order)
    gm = {tensor.name: given[name].reshape(tensor.shape) for name, tensor in graph.inputs.items()}
    times = None
    if timing or order == "arrival":
        # Arrivals are those of single cores; folded, equal cores are timed as one, in equal cycles.
        begun = l2_begun(l2_start, graph.inputs, profile)
        times = GraphTimes(profile, begun, engine, folded=order != "arrival")
    for at, node in enumerate(graph.nodes):
        if isinstance(node, TransData):
            if times is not None:
                times.rename(node)
            source = gm[node.source.name].reshape(node.source.shape)
            gm[node.target.name] = node.convert(source)
        else:
            result = None if times is None else times.add(node)
            run_as = arrivals(node, result.timeline) if result and order == "arrival" else seed
            execute(node, profile, gm, "program" if run_as is None else run_as)
            if cut is not None and cuts_a_value_off(node, profile, gm):
                cut.add(node.name)
        # A large call holds a tensor in several formats and layouts: what no later node needs goes at once.
        needed = {tensor.name for tensor in graph.outputs.values()}
        needed.update(*(touched(later) for later in graph.nodes[at + 1 :]))
        for name in gm.keys() - needed:
            del gm[name]
    made = {name: gm[tensor.name].reshape(tensor.shape) for name, tensor in graph.outputs.items()}
    return [] if times is None else times.results, made


def cuts_a_value_off(kernel: Kernel, profile: Profile, gm: Tensors) -> bool:
    """Return whether a kernel that has run saturated a value: a Cast exactly, other ones by what they made.

    A result at the largest value counts where the kernel converts; one that moves elements only does not.
    """
    import numpy as np

    from ascendsim.numerics.casts import cuts_off
    from ascendsim.numerics.dtypes import FLOAT_NAMES, dtype

    tensors = kernel.tensors.items()
    given = [(tensor.dtype, gm[name]) for name, tensor in tensors if tensor.role == "input"]
    for name, tensor in tensors:
        kind, values = tensor.dtype, gm[name] if tensor.role == "output" else None
        if values is None or kind not in FLOAT_NAMES or vector_overflow(profile, kind) == "ieee":
            continue
        if kernel.macs or len(given) != 1 or given[0][1].size != values.size:
            moves = not kernel.macs and all(source == kind for source, _ in given)
            cut = not moves and bool((np.abs(values) == dtype(kind).max_finite).any())
        else:
            cut = given[0][0] != kind and cuts_off(given[0][1], kind)
        if cut:
            return True
    return False


def make_gradients(
    call: Call, wanted: Mask, given: Tensors, options: Options, order: str | int, threads: Threads
) -> tuple[Tensors, tuple[str, ...]]:
    """Return the gradients of a call, made without instructions where the order of additions says all.

    Returns  them, and the kernels that cut off a value; those that the executor runs by `cuts_a_value_off`
    Tensors  the call's names -> carriers, row after row; those of binary16 may be as they are stored, and
             then gradients in binary16 are so too
    """
    from ascendsim.numerics.casts import as_carrier
    from ascendsim.ops.gradients.call import Gradients

    gradients = Gradients(call, given, order, threads)
    possible = gradients.possible(wanted)
    made = gradients.make(possible)
    cut = set(gradients.overflowed)
    left = cast("Mask", tuple(ask and not can for ask, can in zip(wanted, possible, strict=True)))
    if any(left):
        graph, start = options.within(lower(call, left)), options.l2_start
        carriers = {name: as_carrier(values, threads) for name, values in given.items()}
        engine = options.engine
        made |= run_graph(graph, call.profile, start, carriers, order, engine, timing=False, cut=cut)[1]
    return made, tuple(sorted(cut))


def execute(
    kernel: Kernel, profile: Profile, gm: Tensors, order: Any = "program", observe: Any = None
) -> None:
    """Run a kernel on tensors in GM, which gain its outputs; its workspaces are its own."""
    from ascendsim.functional import run_kernel

    # Operands that the cube rounds as it reads, HF32, are rounded once, and not tile by tile; GM is
    # unchanged.
    own = {
        name: as_multiplied(gm[name], kernel.compute_dtype, profile, kernel.math.hf32_ties)
        for name, tensor in kernel.tensors.items()
        if tensor.role == "input"
    }
    for name, tensor in kernel.tensors.items():
        # What a kernel before has begun, such as zeros to which this one adds.
        if tensor.role == "output" and name in gm:
            own[name] = gm[name].reshape(tensor.shape)
    with saying_whose(kernel.name, kernel.facts.get("plan")):
        run_kernel(kernel, own, order=order, observe=observe, at_once=True, checked=_is_own(kernel))
    gm.update({name: own[name] for name, tensor in kernel.tensors.items() if tensor.role == "output"})


def _is_own(kernel: Kernel) -> bool:
    """Return whether a kernel follows a schedule of the user's own: its programs are checked as they run."""
    plan = kernel.facts.get("plan")
    return plan is not None and not schedule_named(plan.schedule).__module__.startswith("ascendsim.")


def carriers_of(operands: Mapping[str, Operand], threads: Threads, *, keep_halves: bool = False) -> Tensors:
    """Return the values of the operands as float32; `keep_halves`: those of binary16 as they are stored."""
    # Here a call begins to take memory, with instructions or without.
    keep_freed_memory()
    return {name: operand.carrier(threads, keep_halves=keep_halves) for name, operand in operands.items()}


def encoded(
    made: Tensors, shapes: Mapping[str, tuple[int, ...]], decision: Decision, threads: Threads
) -> dict[str, Any]:
    """Return the gradients as the user gets them, in the decided formats; None where masked.

    A gradient without elements is made by no kernel.
    """
    import numpy as np

    from ascendsim.numerics.casts import is_stored, stored

    gradients: dict[str, Any] = dict.fromkeys(shapes)
    for (name, shape), wanted in zip(shapes.items(), decision.wanted, strict=True):
        if wanted:
            values = made[name] if prod(shape) else np.zeros(shape, np.float32)
            if is_stored(values):
                gradients[name] = np.ascontiguousarray(values)
            else:
                gradients[name] = stored(values, decision.dtypes[name], threads)
    return gradients


def result_of(
    done: Done,
    gradients: Mapping[str, Any],
    options: Options,
    decision: Decision,
    order: str | int,
    *,
    timing: bool,
) -> ConvolutionBackwardResult:
    """Return the user's result of a call; `gradients` are as `encoded` returns them."""
    common = common_fields(options, decision, done.model, done.results, done.plans, timing=timing)
    order_name = name_of(order)
    return ConvolutionBackwardResult(
        **common, **gradients, order=order_name, timing=timing, overflowed=done.overflowed
    )


def common_fields(
    options: Options,
    decision: Decision,
    model: str,
    results: list[KernelResult],
    plans: Mapping[str, Plan],
    *,
    timing: bool = True,
) -> dict[str, Any]:
    """Return the fields that every result has; `plans` are those of the gradients that the cube makes."""
    # Kernels that gather elements note their strides.
    gathered = any("strides" in result.kernel.facts for result in results)
    return {
        "product": options.profile.product,
        "variant": options.profile.variant,
        "compute_dtype": full_name(decision.compute_dtype, options.profile),
        "accumulation": model,
        "kernels": tuple(results),
        "notes": (*options.notes(decision, plans, strided=gathered, timing=timing), *notes_of(results)),
    }


def notes_of(results: list[KernelResult]) -> tuple[str, ...]:
    """Return the notes of a call's kernels, each sentence once."""
    return tuple(dict.fromkeys(result.kernel.note for result in results if result.kernel.note))


def name_of(order: str | int) -> str:
    """Return the order of execution in words."""
    return order if isinstance(order, str) else f"seed {order}"


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
