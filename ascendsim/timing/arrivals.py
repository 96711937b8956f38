"""The order in which the instructions of a timed kernel arrive; atomic additions depend on it.

Float addition is not associative: a gradient that cores add to as they come has other bits in another order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ascendsim.program.kernel import Core, Kernel

if TYPE_CHECKING:
    from ascendsim.timing.timeline import Timeline


def arrivals(kernel: Kernel, timeline: Timeline) -> list[list[tuple[Core, int]]]:
    """Return, phase by phase, all instructions by the cycle in which they leave their pipe.

    Ties    by core and program order
    Legal   an instruction that needs or overwrites what another one touches starts no earlier than that one
            leaves its pipe; the order in which results become visible would not be legal: what overwrites a
            slot may be quicker to show than the slow result of a late reader. Atomic additions of one path
            have one latency, so they arrive in the order in which they leave
    """
    orders = []
    for phase, timed in zip(kernel.phases, timeline.phases, strict=True):
        place = {work.core: at for at, work in enumerate(phase.work)}
        # Cores that were folded into one have its spans, each its own data.
        ends = [
            (end, place[core], core, index)
            for spans in timed.cores
            for core in spans.cores
            for index, end in enumerate(spans.end)
        ]
        # The place of the core comes before its name: ties go by the order in which the kernel lists its
        # cores.
        orders.append([(core, index) for _, _, core, index in sorted(ends)])
    return orders
