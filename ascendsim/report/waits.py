"""Where the cycles of a kernel went: what each pipe did with them, and the critical path spent them on."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from ascendsim.program.instruction import PIPES
from ascendsim.timing.critical_path import critical_path, cycles_by_cause
from ascendsim.timing.timeline import Occupation, occupation

if TYPE_CHECKING:
    from ascendsim.program.kernel import Core
    from ascendsim.timing.timeline import Timeline


def occupation_record(timeline: Timeline) -> dict[str, Any]:
    """Return the shares of the kernel's cycles in which each pipe was busy, waited (by cause) and was idle.

    Before them comes the entry, which is no pipe's: here it counts neither as busy nor as idle. The shares
    are averages over the used cores of the kinds that have the pipe, as in `average_busy`.
    """
    parts = [(cores, occupation(timeline, cores[0])) for cores in _alike(timeline)]
    kinds = {
        pipe: {cores[0].kind for cores, found in parts if pipe in found}
        for pipe in PIPES
        if any(pipe in found for _, found in parts)
    }
    return {
        pipe: _mean(
            [(len(cores), found.get(pipe)) for cores, found in parts if cores[0].kind in kinds[pipe]],
            timeline,
            in_busy=pipe == "S",
        )
        for pipe in kinds
    }


def critical_path_record(timeline: Timeline) -> dict[str, int]:
    """Return the cycles of the critical path by cause, the largest first; they add up to the kernel's."""
    return cycles_by_cause(critical_path(timeline))


def _alike(timeline: Timeline) -> list[list[Core]]:
    """Return the used cores in groups that did the same in every phase."""
    did: dict[Core, list[tuple[int, int]]] = {}
    for phase_number, phase in enumerate(timeline.phases):
        for number, work in enumerate(phase.cores):
            for core in work.cores:
                did.setdefault(core, []).append((phase_number, number))
    groups: dict[tuple[str, tuple[tuple[int, int], ...]], list[Core]] = {}
    for core, places in did.items():
        groups.setdefault((core.kind, tuple(places)), []).append(core)
    return list(groups.values())


def _mean(parts: list[tuple[int, Occupation | None]], timeline: Timeline, *, in_busy: bool) -> dict[str, Any]:
    """Average over cores, so many of each; a core that did not use the pipe left it idle.

    `in_busy` says whether the timeline has the entry of the kernel in the time of this pipe.
    """
    cores = sum(count for count, _ in parts)
    all_cycles, entry = max(timeline.cycles, 1) * cores, timeline.entry_cycles * cores
    busy, waiting = -entry if in_busy else 0, Counter[str]()
    for count, found in parts:
        if found is not None:
            busy += count * found.busy
            waiting.update({cause: count * waited for cause, waited in found.waiting.items()})
    return {
        "entry": entry / all_cycles,
        "busy": busy / all_cycles,
        "waiting": {cause: waiting[cause] / all_cycles for cause in PIPES if cause in waiting},
        "idle": (all_cycles - entry - busy - sum(waiting.values())) / all_cycles,
    }
