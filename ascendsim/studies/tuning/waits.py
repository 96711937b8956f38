"""Where the cycles of a gradient go under two plans: parts that add up to the cycles of each, exactly."""

from __future__ import annotations

from ascendsim.ops.results import Estimate, KernelResult
from ascendsim.studies.engine.measure import planned
from ascendsim.studies.tuning.records import Part, Waits
from ascendsim.timing.times import occupation

PIPE = "M"


def waits_of(start: str, gradient: str, before: Estimate, after: Estimate, cube_mhz: float) -> Waits:
    """Return the parts of both plans: of M of the core that ends last, and the kernels beside the product.

    Busy, each wait and idle of one pipe of one core add up to the cycles of the kernel; the other kernels
    are a part of their own. So differences of parts add up to the difference of cycles. Changes of layout are
    left out, as in the times by which plans are scored.
    """
    sides = [_parts(gradient, result) for result in (before, after)]
    names = list(dict.fromkeys(name for side in sides for name in side))
    parts = tuple(Part(name, sides[0].get(name, 0), sides[1].get(name, 0)) for name in names)
    cycles = _cycles(before), _cycles(after)
    times_us = (sum(kernel.time_us for kernel in planned(result)) for result in (before, after))
    first_us, second_us = (us - spent / cube_mhz for us, spent in zip(times_us, cycles, strict=True))
    return Waits(start, PIPE, *cycles, parts, (first_us, second_us))


def _cycles(result: Estimate) -> int:
    return sum(kernel.cycles for kernel in planned(result))


def _parts(gradient: str, result: Estimate) -> dict[str, int]:
    product = next(kernel for kernel in result.kernels if kernel.name == gradient)
    found = kernel_parts(product)
    others = _cycles(result) - product.cycles
    return found | ({"other kernels": others} if others else {})


def kernel_parts(kernel: KernelResult, pipe: str = PIPE) -> dict[str, int]:
    """Return the cycles of a kernel by busy, each wait and idle of a pipe of the core that ends last."""
    # Of the last phase whose cores have the pipe: a kernel may end with vector cores alone.
    last = max(
        (work for phase in kernel.times.phases for work in phase.cores if pipe in work.busy),
        key=lambda work: work.done,
    )
    spent = occupation(kernel.times, last.cores[0])[pipe]
    waits = {f"waits for {cause}": cycles for cause, cycles in sorted(spent.waiting.items())}
    return {"busy": spent.busy, **waits, "idle": spent.idle}
