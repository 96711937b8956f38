"""What moves over the shared links while a kernel runs, told from its spans."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ascendsim.program.instruction import Instruction, Traffic
from ascendsim.report.trace.events import DEVICE_PID, Clock, Event, counter

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.ops.results import KernelResult
    from ascendsim.profile import Profile
    from ascendsim.timing.timeline import Timeline

# Of each kernel; a span of a thousand cycles is an eye's width of it.
BINS = 200
L2_NAME, MEMORY_NAME = "L2 GB/s", "main memory GB/s, mean of the kernel"


class Bytes:
    """Which traffic instructions have on a product, each asked once for its cost."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._known: dict[tuple[object, ...], Traffic | None] = {}

    def of(self, instruction: Instruction) -> Traffic | None:
        """Return the traffic of an instruction; None: it moves no byte over a shared link."""
        key = type(instruction), instruction.pipe, instruction.shape
        if key not in self._known:
            traffic = instruction.cost(self._profile).traffic
            self._known[key] = traffic if traffic and traffic.bytes else None
        return self._known[key]


def counters(kernel: KernelResult, clock: Clock, moved: Bytes) -> Iterator[Event]:
    """Yield what passes L2 over time, and what crosses main memory on average, from all cores."""
    timeline = kernel.timeline
    if timeline.cycles <= timeline.entry_cycles:
        return
    edges, rates = l2_rates(timeline, moved)
    shown: dict[str, float] = {}
    for at, cycle in enumerate(edges[:-1]):
        values = {way: _gb_per_s(rate[at], clock) for way, rate in rates.items()}
        # A value holds until the next one.
        if values != shown:
            yield counter(DEVICE_PID, L2_NAME, clock.us(cycle), values)
        shown = values
    yield counter(DEVICE_PID, L2_NAME, clock.us(timeline.cycles), {"read": 0, "write": 0})
    # Which of a transfer's bytes L2 misses is told of the whole kernel, so that their course is not drawn.
    cycles = timeline.cycles - timeline.entry_cycles
    means = {
        way: _gb_per_s(kernel.bytes.get(f"memory_{way}", 0) / cycles, clock) for way in ("read", "write")
    }
    yield counter(DEVICE_PID, MEMORY_NAME, clock.us(timeline.entry_cycles), means)
    yield counter(DEVICE_PID, MEMORY_NAME, clock.us(timeline.cycles), {"read": 0, "write": 0})


def _gb_per_s(bytes_per_cycle: float, clock: Clock) -> float:
    # A byte in each of a million cycles a second is a megabyte a second.
    return round(float(bytes_per_cycle) * clock.mhz / 1e3, 3)


def l2_rates(timeline: Timeline, moved: Bytes) -> tuple[NDArray[np.float64], dict[str, NDArray[np.float64]]]:
    """Return the edges of equal parts of the time after the entry, and in each the bytes in a cycle.

    These are by direction, "read" and "write", of all cores. The bytes of an instruction are spread evenly
    over the time that it holds its pipe.
    """
    cycles = timeline.cycles - timeline.entry_cycles
    edges = np.linspace(timeline.entry_cycles, timeline.cycles, min(BINS, cycles) + 1)
    found: dict[str, list[tuple[int, int, float]]] = {"read": [], "write": []}
    for phase in timeline.phases:
        for work in phase.cores:
            for index, instruction in enumerate(work.program.instructions):
                traffic = moved.of(instruction)
                if traffic is not None:
                    start, end = work.start[index], max(work.end[index], work.start[index] + 1)
                    found[traffic.direction].append((start, end, traffic.bytes * len(work.cores)))
    return edges, {way: _mean_rates(np.array(spans, np.float64), edges) for way, spans in found.items()}


def _mean_rates(spans: NDArray[np.float64], edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean of what flows between edges; a row is (start, end, bytes)."""
    if not len(spans):
        return np.zeros(len(edges) - 1)
    starts, ends, sizes = spans.T
    # The sum of what has flowed is a line with a corner wherever a span begins or ends.
    times = np.concatenate([starts, ends])
    slopes = np.concatenate([sizes, -sizes]) / np.tile(ends - starts, 2)
    order = np.argsort(times, kind="stable")
    times, slope = times[order], np.cumsum(slopes[order])
    sums = np.concatenate([[0.0], np.cumsum(slope[:-1] * np.diff(times))])
    # Adding up floats leaves hairs below 0.
    rates: NDArray[np.float64] = np.maximum(np.diff(np.interp(edges, times, sums)) / np.diff(edges), 0.0)
    return rates
