"""How much sooner would two free cores be done than one?  Printed by `python -m benchmarks.gradients`.

On a machine that others use as well the clock does not tell: two threads are given two cores for a part of
the time only. Seconds of the processor do: those of the calling thread, in which nothing is shared, and those
of every task of a pool. Tasks go, in their order, to whichever of so many cores is free first. What two cores
take from each other (caches, memory) is in the seconds as far as both do run at once.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from time import thread_time
from typing import Any
from unittest.mock import patch

POOL = "ascendsim.numerics.compiled.gathered.product.ThreadPoolExecutor"


class Accounted(ThreadPoolExecutor):
    """A pool that notes what its tasks take, and how long they would take on cores of their own."""

    shared = 0.0

    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        self._workers, self._took = workers, list[Future[float]]()

    def submit(self, task: Callable[..., Any], /, *args: Any, **_kwargs: Any) -> Future[Any]:
        """Run a task and note its seconds."""

        def timed() -> float:
            start = thread_time()
            task(*args)
            return thread_time() - start

        done = super().submit(timed)
        self._took.append(done)
        return done

    def shutdown(self, *args: Any, **kwargs: Any) -> None:
        """Add up what the tasks would take."""
        super().shutdown(*args, **kwargs)
        type(self).shared += makespan([done.result() for done in self._took], self._workers)


def makespan(seconds: list[float], cores: int) -> float:
    """Return when the last of some tasks is done if each goes to the core that is free first."""
    free = [0.0] * cores
    for one in seconds:
        at = free.index(min(free))
        free[at] += one
    return max(free)


def on_free_cores(call: Callable[[], None], runs: int) -> float:
    """Return the fewest seconds of several runs of a call, its pools' threads on cores of their own."""
    best = float("inf")
    with patch(POOL, Accounted):
        for _ in range(runs):
            Accounted.shared, start = 0.0, thread_time()
            call()
            best = min(best, thread_time() - start + Accounted.shared)
    return best
