"""How much sooner would two free cores be done than one?  Printed by `python -m benchmarks.gradients`.

On a machine that others use as well the clock does not tell: two threads are given two cores for a part of
the time only. Seconds of the processor do: those of the calling thread, and those by which the tasks that it
hands to others would end after its own. These go, in their order, to whichever of the other cores is free
first. What two cores take from each other (caches, memory) is in the seconds as far as both do run at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import get_ident
from time import thread_time
from unittest.mock import patch

from ascendsim.numerics.factor import Made, Threads


class Accounted(Threads):
    """Threads that note how long the calling one would wait for others on cores of their own."""

    waited = 0.0

    def run(self, function: Callable[..., Made], tasks: Iterable[tuple[object, ...]]) -> list[Made]:
        """Run the tasks, and add up what the calling thread would wait."""
        caller = get_ident()

        def timed(*task: object) -> tuple[Made, float, bool]:
            start = thread_time()
            made = function(*task)
            return made, thread_time() - start, get_ident() == caller

        done = super().run(timed, tasks)
        own, others = ([took for _, took, mine in done if mine is whose] for whose in (True, False))
        if others:
            type(self).waited += max(0.0, makespan(others, self.count - 1) - sum(own))
        return [made for made, _, _ in done]


def makespan(seconds: list[float], cores: int) -> float:
    """Return when the last of some tasks is done if each goes to the core that is free first."""
    free = [0.0] * cores
    for one in seconds:
        at = free.index(min(free))
        free[at] += one
    return max(free)


def on_free_cores(call: Callable[[], None]) -> float:
    """Return the seconds of a call whose threads have cores of their own."""
    with patch("ascendsim.ops.convolution_backward.Threads", Accounted):
        Accounted.waited, start = 0.0, thread_time()
        call()
        return thread_time() - start + Accounted.waited
