"""The kernels of calls, remembered from call to call with their programs and times.

A training run makes the same backward calls in every step, on other values. The kernels of a
call, their instructions and the cycles of these follow from the call alone; so they are worked out once. A
result for which every instruction is executed then takes little more than the work of the instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from threading import local

from ascendsim.ops.lowering.call import Call, Mask
from ascendsim.ops.lowering.graph import Graph
from ascendsim.ops.lowering.kernels import lower
from ascendsim.program.kernel import CoreWork, Deferred, Kernel, Phase
from ascendsim.program.program import Program

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
