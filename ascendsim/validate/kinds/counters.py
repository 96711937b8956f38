"""Busy times of the pipes, as the profiler counts them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ascendsim.program.posts import core_of

if TYPE_CHECKING:
    from ascendsim.profile import Profile
    from ascendsim.program.kernel import Core
    from ascendsim.timing.timeline import CoreTimeline, Timeline


def active_us(timeline: Timeline, profile: Profile) -> dict[str, float]:
    """Return the same as `active_cycles` in microseconds."""
    return {pipe: cycles / profile.clock.cube_mhz for pipe, cycles in active_cycles(timeline).items()}


def active_cycles(timeline: Timeline) -> dict[str, float]:
    """Return how long each pipe had an instruction under way, averaged over the cores that have the pipe.

    Of a kernel on cubes the cube cores alone count, as in the profiler's `aic_` columns: vector cores that
    add parts have columns of their own.

    An instruction is under way until its result is visible, which is what the profiler's counters see: an
    isolated copy counts with its latency, copies in flight together do not count twice.
    """
    totals: dict[str, int] = {}
    kinds: dict[str, set[str]] = {}
    cores: set[Core] = set()
    on_cubes = any(work.cores[0].kind == "cube" for phase in timeline.phases for work in phase.cores)
    for phase in timeline.phases:
        for work in phase.cores:
            if on_cubes and work.cores[0].kind != "cube":
                continue
            cores.update(work.cores)
            for pipe, cycles in core_active_cycles(work).items():
                totals[pipe] = totals.get(pipe, 0) + cycles * len(work.cores)
                kinds.setdefault(pipe, set()).add(work.cores[0].kind)
    return {pipe: total / sum(core.kind in kinds[pipe] for core in cores) for pipe, total in totals.items()}


def core_active_cycles(work: CoreTimeline) -> dict[str, int]:
    """Return the same of the first core of a program: the union of the spans of each pipe, start to done."""
    busy: dict[str, int] = {}
    until: dict[str, int] = {}
    # The spans of a pipe are in the order of their starts, so that one pass finds what was not covered yet.
    for pipe, start, done in zip(work.program.pipes, work.start, work.done, strict=True):
        if core_of(pipe):
            continue
        begin = max(start, until.get(pipe, start))
        if done > begin:
            busy[pipe] = busy.get(pipe, 0) + done - begin
        until[pipe] = max(done, until.get(pipe, done))
    return busy
