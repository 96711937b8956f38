"""Describe one timed kernel, with where its cycles went: those of each pipe, and of the critical path."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

from ascendsim.program.instruction import PIPES
from ascendsim.report.columns import Entry
from ascendsim.timing.critical_path import critical_path, cycles_by_cause
from ascendsim.timing.times import Occupation, occupation

if TYPE_CHECKING:
    from ascendsim.ops.plan import Plan
    from ascendsim.ops.results import KernelResult
    from ascendsim.profile import Profile
    from ascendsim.program.kernel import Core
    from ascendsim.timing.times import KernelTimes


def kernel_entry(kernel: KernelResult, profile: Profile, *, path: bool = True) -> Entry:
    """Describe one kernel with the columns of `KERNEL`.

    path   whether its critical path is among them: it is told from spans, of which a large batch has millions
    """
    # A kernel without instructions takes no cycle, and its shares are 0.
    cycles, mhz = max(kernel.cycles, 1), profile.clock.cube_mhz
    entry, blocks = kernel.times.entry_cycles, kernel.kernel.blocks
    # The record has the entry in the time of S; beside the entry it would count twice.
    own = {pipe: busy - entry if pipe == "S" else busy for pipe, busy in kernel.busy.items()}
    return {
        "name": kernel.name,
        "cycles": kernel.cycles,
        "time_us": kernel.time_us,
        "launch_us": profile.launch_us(blocks),
        "entry_us": entry / mhz,
        "entry_cycles": entry,
        "core_us": (kernel.cycles - entry) / mhz,
        "blocks": blocks,
        "cores_used": kernel.cores_used,
        "cubes_used": sum(len(cores) for cores in _alike(kernel.times) if cores[0].kind == "cube"),
        "cube_utilisation": kernel.cube_utilisation,
        "busy": {pipe: busy / cycles for pipe, busy in own.items()},
        "engine": kernel.engine,
        "bound_by": kernel.bound_by,
        "occupation": occupation_entry(kernel.times),
        **({"critical_path": cycles_by_cause(critical_path(kernel.timeline))} if path else {}),
        "macs": kernel.macs,
        "bytes": dict(kernel.bytes),
        "note": kernel.kernel.note,
        "plan": None if kernel.plan is None else plan_entry(kernel.plan),
    }


def plan_entry(plan: Plan) -> Entry:
    """Describe a plan by its schedule, its fields, and who chose it."""
    # A class of the user's own goes by its name: a report is read, not run.
    return {**replace(plan, schedule=plan.nest).to_dict(), "chosen_by": plan.chosen_by}


def occupation_entry(times: KernelTimes) -> Entry:
    """Return the shares of the kernel's cycles in which each pipe was busy, waited (by cause) and was idle.

    Before them comes the entry, which is no pipe's: here it counts neither as busy nor as idle. The shares
    are averages over the used cores of one kind, as in `average_busy`.
    """
    parts = [(cores, occupation(times, cores[0])) for cores in _alike(times)]
    found: Entry = {}
    # A vector core is no idle cube core: each kind is averaged by itself, and the busier one counts.
    for kind, pipe in product(dict.fromkeys([cores[0].kind for cores, _ in parts]), PIPES):
        if own := _of_kind(parts, kind, pipe):
            mean = _mean(own, times, in_busy=pipe == "S")
            if pipe not in found or mean["busy"] > found[pipe]["busy"]:
                found[pipe] = mean
    return {pipe: found[pipe] for pipe in PIPES if pipe in found}


def _of_kind(
    parts: list[tuple[list[Core], dict[str, Occupation]]], kind: str, pipe: str
) -> list[tuple[int, Occupation | None]]:
    """Return how many cores of a kind did what with a pipe; nothing if none of them has used it."""
    own = [(len(cores), found.get(pipe)) for cores, found in parts if cores[0].kind == kind]
    return own if any(found is not None for _, found in own) else []


def _alike(times: KernelTimes) -> list[list[Core]]:
    """Return the used cores in groups that did the same in every phase."""
    # Cores that share times in one phase may part in the next; only those that never do are one group.
    did: dict[Core, list[tuple[int, int]]] = {}
    for phase_number, phase in enumerate(times.phases):
        for number, work in enumerate(phase.cores):
            for core in work.cores:
                did.setdefault(core, []).append((phase_number, number))
    groups: dict[tuple[str, tuple[tuple[int, int], ...]], list[Core]] = {}
    for core, places in did.items():
        groups.setdefault((core.kind, tuple(places)), []).append(core)
    return list(groups.values())


def _mean(parts: list[tuple[int, Occupation | None]], times: KernelTimes, *, in_busy: bool) -> dict[str, Any]:
    """Average over cores, so many of each; a core that did not use the pipe left it idle.

    `in_busy` says whether the record has the entry of the kernel in the time of this pipe.
    """
    # Whole cycles are added up and divided once, so that the four shares add up to 1.
    cores = sum(count for count, _ in parts)
    all_cycles, entry = max(times.cycles, 1) * cores, times.entry_cycles * cores
    busy, waiting = -entry if in_busy else 0, Counter[str]()
    for count, found in parts:
        if found is not None:
            busy += count * found.busy
            waiting.update({cause: count * waited for cause, waited in found.waiting.items()})
    return {
        "entry": entry / all_cycles,
        "busy": busy / all_cycles,
        "waiting": {
            cause: waiting[cause] / all_cycles
            for cause in dict.fromkeys((*PIPES, *sorted(waiting)))
            if cause in waiting
        },
        "idle": (all_cycles - entry - busy - sum(waiting.values())) / all_cycles,
    }
