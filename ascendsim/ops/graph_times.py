"""The times of the kernels of a call, one after the other, and what each leaves of L2 to the next."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial

from ascendsim.errors import StoppedError
from ascendsim.frozen import FrozenMap
from ascendsim.ops.known_times import known_times
from ascendsim.ops.lowering.graph import Graph, TransData
from ascendsim.ops.plan_text import saying_whose
from ascendsim.ops.results import KernelResult, Retimed
from ascendsim.ops.summary import summarise
from ascendsim.profile import Profile
from ascendsim.program.kernel import Kernel
from ascendsim.timing.kernel import time_kernel
from ascendsim.timing.l2.account import Start, left_by
from ascendsim.timing.l2.stack import L2State
from ascendsim.timing.times import stopped_words

# How the kernels of a call find L2, if not each alike.
CHAINED = "chained"
_log = logging.getLogger(__name__)


class GraphTimes:
    """Times the kernels of a call in their order; `results` are those so far.

    l2_start   how each kernel finds L2; "chained": the first one empty, each later one as those before it
               have left it; or what the first one finds of calls before
    folded     time one core for all that are alike
    stop_above   cycles of all kernels above which nobody wants to know: then StoppedError is raised
    """

    def __init__(
        self,
        profile: Profile,
        l2_start: Start,
        engine: str | None,
        *,
        folded: bool = True,
        stop_above: int | None = None,
    ) -> None:
        self._profile, self._engine, self._folded = profile, engine, folded
        self._stop_above = self._left = stop_above
        self._chained = l2_start == CHAINED or not isinstance(l2_start, str)
        self._start: Start = FrozenMap() if l2_start == CHAINED else l2_start
        self._starts: list[Start] = []
        self.results: list[KernelResult] = []

    def add(self, kernel: Kernel, *, last: bool = False) -> KernelResult:
        """Time the next kernel of the call; what the `last` one leaves of L2 is not asked for."""
        try:
            with saying_whose(kernel.name, kernel.facts.get("plan")):
                result = self._timed(kernel)
        except StoppedError:  # by what the kernels before had left of the bound
            raise self._stopped(kernel) from None
        _log.debug("%s on %s: %s cycles", kernel.name, self._profile.variant, f"{result.cycles:,}")
        if self._left is not None:
            self._left -= result.cycles
            if self._left < 0:
                raise self._stopped(kernel)
        self.results.append(result)
        self._starts.append(self._start)
        if self._chained and not last:
            self._start = _left_to_others(kernel, self._profile, self._start)
        return result

    def rename(self, change: TransData) -> None:
        """Note that the next kernel sees a tensor in another layout: what L2 holds of it has another name."""
        if self._chained and not isinstance(self._start, str):
            self._start = _renamed(self._start, {change.source.name: change.target.name})

    def _stopped(self, kernel: Kernel) -> StoppedError:
        assert self._stop_above is not None
        return StoppedError(stopped_words(kernel.name, self._stop_above))

    def _timed(self, kernel: Kernel) -> KernelResult:
        # As a call that pickles: a timeline itself is too large to travel. Unless the caller names an engine,
        # cycles come from the fast one and spans, if somebody asks for them, from the one that defines them.
        time = partial(time_kernel, folded=self._folded, l2_start=self._start)
        make = partial(time, kernel, self._profile, engine=self._engine or "simpy")
        if self._engine == "simpy":
            # Imported here: who only estimates looks at no timeline.
            from ascendsim.timing.timeline import times_of

            timed = Retimed(make)
            return summarise(kernel, self._profile, times_of(timed.timeline), timed, self._engine)
        # Two gradients change the layout of grad_output alike, each for itself.
        for start, before in zip(self._starts, self.results, strict=True):
            if before.kernel.phases is kernel.phases and start == self._start:
                times = before.times._replace(kernel=kernel.name)
                break
        else:
            start, left = self._start, self._left
            times = known_times(kernel, self._profile, folded=self._folded, l2_start=start, stop_above=left)
        return summarise(kernel, self._profile, times, Retimed(make), "compiled")


def left_by_graph(graph: Graph, profile: Profile, start: L2State) -> L2State:
    """Return what L2 holds after the kernels of a call, the first of which finds `start`."""
    for node in graph.nodes:
        if isinstance(node, TransData):
            start = _renamed(start, {node.source.name: node.target.name})
        else:
            start = _left_to_others(node, profile, start)
    return start


def _left_to_others(kernel: Kernel, profile: Profile, start: Start) -> L2State:
    """Return what L2 holds after a kernel, whose workspaces are named as its own."""
    left = left_by(kernel, profile, start)
    own = {name for name, tensor in kernel.tensors.items() if tensor.role == "workspace"}
    # Another kernel may call a workspace of its own alike.
    return _renamed(left, {name: f"{kernel.name}: {name}" for name in own})


def _renamed(
    held: Mapping[str, tuple[int, int]], names: Mapping[str, str]
) -> FrozenMap[str, tuple[int, int]]:
    """Return what L2 holds under other names, in the same order."""
    return FrozenMap({names.get(name, name): bytes_ for name, bytes_ in held.items()})
