"""Run and time the steps of a call, kernel after kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ascendsim.arguments import whole
from ascendsim.errors import ConfigError
from ascendsim.ops.lowering.call import Node
from ascendsim.ops.lowering.hf32 import full_name
from ascendsim.ops.results import KernelResult
from ascendsim.ops.summary import summarise
from ascendsim.timing.arrivals import arrivals
from ascendsim.timing.kernel import time_kernel

if TYPE_CHECKING:
    from ascendsim.ops.lowering.call import Tensors
    from ascendsim.ops.options import Options
    from ascendsim.profile import Profile
    from ascendsim.rules import Decision


def time_steps(steps: Sequence[Node], profile: Profile, l2_start: str) -> list[KernelResult]:
    """Return the cycles of every kernel."""
    return [_timed(step, profile, l2_start, folded=True) for step in steps]


def run_steps(
    steps: Sequence[Node], profile: Profile, l2_start: str, tensors: Tensors, order: str | int
) -> list[KernelResult]:
    """Execute every kernel on the call's tensors, which gain what the kernels make; return their cycles.

    Raises   ConfigError for an order without a meaning
    """
    from ascendsim.functional import run_kernel

    seed = whole(order)
    if order not in ("program", "arrival") and (seed is None or seed < 0):
        raise ConfigError(
            f'order is {order!r}; it must be "program", "arrival" or a whole number of 0 or more, the seed'
        )
    results = []
    for step in steps:
        results.append(_timed(step, profile, l2_start, folded=order != "arrival"))
        gm = step.bind(tensors)
        timed = results[-1]
        run_kernel(
            step.kernel, gm, order=arrivals(timed.kernel, timed.timeline) if order == "arrival" else order
        )
        tensors.update(step.collect(gm))
    return results


def common_fields(
    options: Options, decision: Decision, model: str, results: list[KernelResult]
) -> dict[str, Any]:
    """Return the fields that every result has."""
    gathered = any(result.name.startswith(("contiguous", "transpose")) for result in results)
    return {
        "product": options.profile.product,
        "variant": options.profile.variant,
        "compute_dtype": full_name(decision.compute_dtype, options.profile),
        "accumulation": model,
        "kernels": tuple(results),
        "notes": options.notes(decision, strided=gathered),
    }


def name_of(order: str | int) -> str:
    """Return the order of execution in words."""
    return order if isinstance(order, str) else f"seed {order}"


def _timed(step: Node, profile: Profile, l2_start: str, *, folded: bool) -> KernelResult:
    timeline = time_kernel(step.kernel, profile, folded=folded, l2_start=l2_start)
    return summarise(step.kernel, profile, timeline)
