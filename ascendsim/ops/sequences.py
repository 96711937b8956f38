"""Calls one after the other, as a backward pass runs them: each finds what those before have left in L2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any, Unpack

from ascendsim.frozen import FrozenMap
from ascendsim.ops.graph_times import left_by_graph
from ascendsim.ops.lowering.known import lower
from ascendsim.ops.options.asked import planned_call
from ascendsim.ops.options.call import CallOptions, options_of
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.results import Estimate
from ascendsim.ops.running import common_fields, time_graph
from ascendsim.timing.l2.words import CHAINED, L2_NOTES

if TYPE_CHECKING:
    from ascendsim.ops.options.asked import Format, Mask

SEQUENCE_NOTE = (
    "L2 holds what the calls before this one have left; each kernel finds there what came before it."
)


@dataclass(frozen=True, slots=True)
class L2Left:
    """Data that calls have left in L2.

    held   name of a tensor -> (its bytes there, how many of them are dirty), the one used longest ago first
    made   for each grad_input that was made, the latest first: its name in `held`, its elements, its format
    calls  how many calls there were
    """

    held: Mapping[str, tuple[int, ...]] = FrozenMap()
    made: tuple[tuple[str, int, str], ...] = ()
    calls: int = 0

    def found_by(self, problem: ConvProblem, dtype: str) -> Mapping[str, tuple[int, ...]]:
        """Return the data in L2 for a call: its grad_output is the latest grad_input of its size and format.

        What lies between two convolutions (an activation, a normalisation, an addition) makes the one of the
        other, of the same size; its own effect on L2 is not modelled.
        """
        asked = prod(problem.grad_output), dtype
        own = next((name for name, *said in self.made if tuple(said) == asked), None)
        return FrozenMap({"grad_output" if name == own else name: b for name, b in self.held.items()})


def left_by_call(
    left: L2Left,
    problem: ConvProblem,
    dtype: Format | Sequence[Format] = "float16",
    cube_math_type: int = 0,
    *,
    output_mask: Mask = (True, True, True),
    **keywords: Unpack[CallOptions],
) -> L2Left:
    """Return the content of L2 after a call that followed others.

    Raises   as `estimate`
    """
    options = options_of("left_by_call", keywords)
    decision, call = planned_call(problem, options, dtype, cube_math_type, output_mask)
    graph = options.within(lower(call, decision.wanted))
    state = left_by_graph(graph, options.profile, left.found_by(problem, call.dtypes["grad_output"]))
    # The next call has tensors of the same names, which are others.
    names = {name: f"call {left.calls}: {name}" for name in state if name not in left.held}
    held = {names.get(name, name): bytes_ for name, bytes_ in state.items()}
    made = left.made
    if "grad_input" in graph.outputs:
        tensor = graph.outputs["grad_input"]
        name = names.get(tensor.name, "")
        made = ((name, prod(problem.input), call.dtypes["grad_input"]), *made)
    return L2Left(FrozenMap(held), tuple(one for one in made if one[0] in held), left.calls + 1)


def estimate_behind(
    left: L2Left,
    problem: ConvProblem,
    dtype: Format | Sequence[Format] = "float16",
    cube_math_type: int = 0,
    *,
    output_mask: Mask = (True, True, True),
    **keywords: Unpack[CallOptions],
) -> Estimate:
    """Estimate the cycles of a call that finds in L2 what others have left.

    Keywords as those of `estimate`, but l2_start
    Returns, Raises   as `estimate`
    """
    said: dict[str, Any] = {**keywords, "l2_start": CHAINED}
    options = options_of("estimate_behind", said)
    decision, call = planned_call(problem, options, dtype, cube_math_type, output_mask)
    found = left.found_by(problem, call.dtypes["grad_output"])
    graph = options.within(lower(call, decision.wanted))
    results = time_graph(graph, options.profile, found, options.engine)
    made = Estimate(**common_fields(options, decision, str(call.accumulation), results, call.plans))
    notes = tuple(SEQUENCE_NOTE if note == L2_NOTES[CHAINED] else note for note in made.notes)
    return replace(made, notes=notes)
