"""The times of the kernels of a call, one after the other, and what each leaves of L2 to the next."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import NamedTuple
from weakref import ref

from ascendsim.errors import StoppedError
from ascendsim.frozen import FrozenMap
from ascendsim.ops.lowering.graph import Graph, TransData
from ascendsim.ops.plan import saying_whose
from ascendsim.ops.results import KernelResult, Retimed
from ascendsim.profile import Profile
from ascendsim.program.kernel import Kernel
from ascendsim.program.places import GmTensor
from ascendsim.timing.kernel import measure_kernel, time_kernel
from ascendsim.timing.l2.account import Start, left_by, only_hits
from ascendsim.timing.l2.held import L2State
from ascendsim.timing.times import KernelTimes, PhaseAlone, average_busy, bound_by, stopped_words


def known_times(
    kernel: Kernel, profile: Profile, *, folded: bool, l2_start: Start, stop_above: int | None = None
) -> KernelTimes:
    """Return where the cycles of a kernel went, as `measure_kernel` does.

    Raises   StoppedError where a kernel that is not remembered takes more than `stop_above` cycles
    """
    if kernel.recipe is None or not isinstance(l2_start, str):
        # What another kernel has left in L2 names tensors, and is hardly ever met again.
        alone = _alone(kernel, profile, folded) if only_hits(kernel, profile, l2_start) else {}
        return measure_kernel(
            kernel, profile, folded=folded, l2_start=l2_start, stop_above=stop_above, alone=alone
        )
    tensors = tuple([_Shaped.of(tensor) for tensor in kernel.tensors.values()])
    asked = _KernelTimesKey(kernel.recipe, tensors, folded, l2_start, profile.told, ref(kernel), ref(profile))
    return _remembered(asked)._replace(kernel=kernel.name)


def _alone(kernel: Kernel, profile: Profile, folded: bool) -> dict[int, PhaseAlone]:
    """Return the phases of a kernel that misses nothing which are remembered, by their numbers."""
    return {
        number: _remembered_phase(
            _PhaseTimesKey(phase.recipe, folded, profile.told, number, ref(kernel), ref(profile))
        )
        for number, phase in enumerate(kernel.phases)
        if phase.recipe is not None
    }


class _Shaped(NamedTuple):
    """A tensor without its name."""

    shape: tuple[int, ...]
    dtype: str
    itemsize: int
    role: str
    cached: bool
    laid_out: bool

    @classmethod
    def of(cls, tensor: GmTensor) -> _Shaped:
        """Return the properties of a tensor that cycles may depend on."""
        return cls(tensor.shape, tensor.dtype, tensor.itemsize, tensor.role, tensor.cached, tensor.laid_out)


@dataclass(frozen=True)
class _KernelTimesKey:
    """A key of a kernel's times; it does not keep the kernel or the profile alive."""

    recipe: Hashable
    tensors: tuple[_Shaped, ...]
    folded: bool
    l2_start: str
    machine: str
    kernel: ref[Kernel] = field(compare=False)
    profile: ref[Profile] = field(compare=False)


@dataclass(frozen=True)
class _PhaseTimesKey:
    """A key of a phase's times, with the number of its first appearance."""

    recipe: Hashable
    folded: bool
    machine: str
    number: int = field(compare=False)
    kernel: ref[Kernel] = field(compare=False)
    profile: ref[Profile] = field(compare=False)


# So many are the changes of layout, zeros and sums of a network of a hundred layers.
@lru_cache(maxsize=512)
def _remembered(asked: _KernelTimesKey) -> KernelTimes:
    kernel, profile = asked.kernel(), asked.profile()
    # They are the caller's, who still holds them.
    assert kernel is not None
    assert profile is not None
    return measure_kernel(kernel, profile, folded=asked.folded, l2_start=asked.l2_start)


@lru_cache(maxsize=512)
def _remembered_phase(asked: _PhaseTimesKey) -> PhaseAlone:
    kernel, profile = asked.kernel(), asked.profile()
    assert kernel is not None
    assert profile is not None
    made = measure_kernel(
        replace(kernel, phases=(kernel.phases[asked.number],)), profile, folded=asked.folded
    )
    return PhaseAlone(made.phases[0], made.bytes)


def summarise(
    kernel: Kernel,
    profile: Profile,
    times: KernelTimes,
    timed: Retimed,
    engine: str,
    l2_start: Start = "warm",
) -> KernelResult:
    """Return the cycles, microseconds and shares of one kernel."""
    # Read off the times: `Kernel.blocks` and `Kernel.cores_used` would have the work of the cores planned.
    cores = times.cores
    busy, launch_us = average_busy(times, cores), profile.launch_us(kernel.blocks_on(cores))
    return KernelResult(
        name=kernel.name,
        cycles=times.cycles,
        time_us=times.cycles / profile.clock.cube_mhz + launch_us,
        launch_us=launch_us,
        cores_used=len(cores),
        busy=busy,
        bound_by=bound_by(busy),
        bytes=times.bytes,
        macs=kernel.macs,
        cube_utilisation=_cube_utilisation(kernel, profile, times.cycles),
        kernel=kernel,
        times=times,
        timed=timed,
        engine=engine,
        l2_start=l2_start,
    )


def _cube_utilisation(kernel: Kernel, profile: Profile, cycles: int) -> float:
    """Return the share of the chip's peak for the kernel's dtype that the asked-for arithmetic reached."""
    # Of the whole chip's peak: cores without work count as well.
    if not kernel.macs or not cycles:
        return 0.0
    peak = profile.cores.cube * profile.cube.rates[kernel.compute_dtype].macs_per_cycle
    return kernel.macs / (cycles * peak)


def kernel_result(kernel: Kernel, profile: Profile) -> KernelResult:
    """Return the result of a kernel of your own on a warm L2, such as `write_trace` takes."""
    return GraphTimes(profile, "warm", None).add(kernel)


_log = logging.getLogger(__name__)


class GraphTimes:
    """Times the kernels of a call in their order; `results` are those so far.

    l2_start   a word for how each kernel finds L2; or what the first one finds there, and each later one as
               those before it have left it
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
        self._start = l2_start
        self._starts: list[Start] = []
        self._layouts = Layouts(profile.l2.capacity_bytes)
        self.results: list[KernelResult] = []

    def add(self, kernel: Kernel) -> KernelResult:
        """Time the next kernel of the call."""
        if not isinstance(self._start, str):
            self._start = self._layouts.seen_as(self._start, kernel.tensors.values())
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
        if result.times.left is not None:
            self._start = _to_others(kernel, result.times.left)
        return result

    def rename(self, change: TransData) -> None:
        """Note that the next kernel sees a tensor in another layout: what L2 holds of it has another name."""
        if not isinstance(self._start, str):
            self._start = self._layouts.changed(self._start, change)

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
            times = times_of(timed.timeline)
            return summarise(kernel, self._profile, times, timed, self._engine, self._start)
        # Two gradients change the layout of grad_output alike, each for itself.
        for start, before in zip(self._starts, self.results, strict=True):
            if before.kernel.phases is kernel.phases and start == self._start:
                times = before.times._replace(kernel=kernel.name)
                break
        else:
            start, left = self._start, self._left
            times = known_times(kernel, self._profile, folded=self._folded, l2_start=start, stop_above=left)
        return summarise(kernel, self._profile, times, Retimed(make), "compiled", self._start)


class Layouts:
    """The layouts in which kernels of a call see a tensor where no kernel changes it: L2 holds it but once.

    It is there under the name that was used last. A kernel counts the bytes of the layout that it sees, with
    channels filled up, so the same share of the tensor is there in each. Dirty bytes were written once: they
    stay as many.
    """

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity = capacity_bytes
        # Name in any layout -> all layouts of that tensor so far, by name.
        self._same: dict[str, dict[str, GmTensor]] = {}

    def changed(self, held: L2State, change: TransData) -> L2State:
        """Return the content of L2 behind a change of layout that takes no cycles."""
        source, target = change.source, change.target
        same = self._same.setdefault(source.name, {source.name: source})
        same[target.name] = target
        self._same[target.name] = same
        return self.seen_as(held, [target])

    def seen_as(self, held: L2State, tensors: Iterable[GmTensor]) -> L2State:
        """Return the content of L2 by the names and sizes of these tensors, in unchanged order."""
        for tensor in tensors:
            same = self._same.get(tensor.name, {})
            for name in [name for name in same if name in held and name != tensor.name]:
                there, dirty, *even = held[name]
                room = self._capacity - sum(bytes_[0] for bytes_ in held.values()) + there
                share = there * tensor.size_bytes // same[name].size_bytes
                there = max(dirty, min(share, tensor.size_bytes, room))
                held = _renamed({**held, name: (there, dirty, *even)}, {name: tensor.name})
        return held


def left_by_graph(graph: Graph, profile: Profile, start: L2State) -> L2State:
    """Return the content of L2 after the kernels of a call; the first kernel finds `start`."""
    layouts = Layouts(profile.l2.capacity_bytes)
    for node in graph.nodes:
        if isinstance(node, TransData):
            start = layouts.changed(start, node)
        else:
            start = _to_others(node, left_by(node, profile, layouts.seen_as(start, node.tensors.values())))
    return start


def _to_others(kernel: Kernel, left: L2State) -> L2State:
    """Return the content of L2 after a kernel, with the kernel's name on its workspaces."""
    own = {name for name, tensor in kernel.tensors.items() if tensor.role == "workspace"}
    # Another kernel may call a workspace of its own alike.
    return _renamed(left, {name: f"{kernel.name}: {name}" for name in own})


def _renamed(held: L2State, names: Mapping[str, str]) -> FrozenMap[str, tuple[int, ...]]:
    """Return the content of L2 with tensors renamed, in unchanged order."""
    return FrozenMap({names.get(name, name): bytes_ for name, bytes_ in held.items()})
