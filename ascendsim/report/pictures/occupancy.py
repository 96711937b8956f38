"""Reduce a timeline to what plots show: the spans of one core by pipe, and how busy it is over time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ascendsim.program.posts import bare, core_of
from ascendsim.timing.timeline import work_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.program.kernel import Core
    from ascendsim.timing.timeline import Timeline

    Cycles = NDArray[np.int64]

# From memory to the cube and back, as data flow; S holds no data and would be a line of one colour.
PIPE_ORDER = ("MTE2", "MTE1", "M", "FIX", "V", "MTE3")


@dataclass(frozen=True, slots=True)
class CoreSpans:
    """Spans (starts, ends) of one core over all phases of a kernel, by pipe, in order."""

    label: str
    pipes: tuple[str, ...]
    spans: dict[str, tuple[Cycles, Cycles]]


def core_name(core_structure: str, kind: str) -> str:
    """Name a kind of core as its product does: a core that has both cube and vector unit is an AI core."""
    return "AI core" if core_structure == "unified" and kind == "cube" else f"{kind} core"


def core_spans(timeline: Timeline, core_structure: str) -> list[CoreSpans]:
    """Return one core of each kind: of the kind's longest work in a phase, the first that does it."""
    # One core is enough: a plot of all would be a plot of none, and the longest decides when a phase ends.
    made = []
    for kind in ("cube", "vector"):
        works = [
            (core, number)
            for phase in timeline.phases
            for core in phase.cores
            for number in range(len(core.program.sizes))
            if core.cores[0].beside(number).kind == kind
        ]
        if works:
            longest, number = max(
                works, key=lambda work: work[0].done[-1] - work[0].issue[0] if work[0].done else 0
            )
            core = longest.cores[0].beside(number)
            made.append(_spans_of(timeline, core, core_name(core_structure, kind)))
    return [core for core in made if core.pipes]


def _spans_of(timeline: Timeline, core: Core, name: str) -> CoreSpans:
    starts: dict[str, list[int]] = {}
    ends: dict[str, list[int]] = {}
    # A core may stand for other ones in each phase; the label tells the most that ever did the same.
    alike = 0
    for phase in timeline.phases:
        work, number = work_of(phase, core)
        if work is None:
            continue
        alike = max(alike, len(work.cores))
        for pipe, start, end in zip(work.program.pipes, work.start, work.end, strict=True):
            if core_of(pipe) == number:
                starts.setdefault(bare(pipe), []).append(start)
                ends.setdefault(bare(pipe), []).append(end)
    pipes = tuple(pipe for pipe in PIPE_ORDER if pipe in starts)
    label = f"{name} {core.index}" + (f" (and {alike - 1} alike)" if alike > 1 else "")
    return CoreSpans(label, pipes, {pipe: (np.array(starts[pipe]), np.array(ends[pipe])) for pipe in pipes})


def coverage(starts: Cycles, ends: Cycles, begin: int, end: int, bins: int) -> NDArray[np.float64]:
    """Return the share of each of `bins` equal parts of [begin, end) that the spans cover.

    Spans are of one pipe: in order, not overlapping.
    """
    # Busy cycles so far are a line that rises by 1 in spans and is level between them: known at the spans'
    # ends, interpolated at the edges of the bins. A kernel has up to a million spans, so no loop over them.
    times = np.stack([starts, ends], axis=1).ravel()
    busy = np.concatenate([[0], np.cumsum(ends - starts)])
    level = np.stack([busy[:-1], busy[1:]], axis=1).ravel()
    edges = np.linspace(begin, end, bins + 1)
    shares = np.diff(np.interp(edges, times, level)) * bins / (end - begin)
    return np.asarray(np.clip(shares, 0.0, 1.0))  # interpolation is inexact in the last place


def middle_window(timeline: Timeline, core: CoreSpans, spans: int) -> tuple[int, int]:
    """Return a window about the middle of the core's work that holds about as many spans as asked for.

    All that follows the entry of the kernel, if there are no more.
    """
    # The middle, where pipes are filled and take turns; the beginning and the end of a kernel look different.
    starts = np.sort(np.concatenate([core.spans[pipe][0] for pipe in core.pipes]))
    if len(starts) <= spans:
        return timeline.entry_cycles, max(timeline.cycles, timeline.entry_cycles + 1)
    first = (len(starts) - spans) // 2
    begin, end = int(starts[first]), int(starts[first + spans])
    return begin, max(end, begin + 1)
