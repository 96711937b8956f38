"""Run a kernel for its cycles: build and price its programs, decide what L2 holds, run phase after phase."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ascendsim.errors import ProgramError
from ascendsim.program.kernel import Kernel, Phase
from ascendsim.timing.costing import CostBook
from ascendsim.timing.l2.account import Start, account_of
from ascendsim.timing.simpy_engine import Team, time_phase
from ascendsim.timing.timeline import PhaseTimeline, Timeline

if TYPE_CHECKING:
    from ascendsim.profile import Profile


def time_kernel(
    kernel: Kernel, profile: Profile, *, folded: bool = True, l2_start: Start = "warm"
) -> Timeline:
    """Return the spans of all instructions of a kernel, in cycles of the cube clock, without its launch.

    Options  `folded` runs one core for all that promise to cost the same; the spans are the same without.
             `l2_start` says what L2 holds at the start: "warm", "cold", "handed", or what another kernel
             has left (`l2/account.py`)
    Raises   ProgramError for a program that breaks the rules of the machine
    """
    with _collector_paused():
        book = CostBook(profile)
        phases = [_teams(phase, book, folded) for phase in kernel.phases]
        groups = [[(len(team.cores), team.programs[0]) for team in teams] for teams in phases]
        account = account_of(groups, kernel, profile, l2_start)
        # The entry is part of the cycles, as profilers count it in the core's time; the launch is not.
        now = profile.scalar.start_cycles
        timed: list[PhaseTimeline] = []
        for phase, teams, outcomes in zip(kernel.phases, phases, account.outcomes, strict=True):
            # Between phases all cores wait for each other; before the first there is nobody to wait for.
            if timed:
                now += profile.sync.barrier_cycles
            timed.append(time_phase(phase.name, teams, outcomes, now, profile))
            now = timed[-1].end
    return Timeline(kernel.name, now, tuple(timed), account.bytes)


def _teams(phase: Phase, book: CostBook, folded: bool) -> list[Team]:
    """Build the programs of one phase and look up their costs."""
    # Equal cores have equal rates on every link and equal outcomes in L2, so their spans are equal: one of
    # them run with the weight of all takes exactly their cycles.
    teams = []
    for works in phase.teams():
        first, cores = works[0], tuple(work.core for work in works)
        programs = tuple(
            book.price(work.build(), work.core.kind) for work in (works[:1] if folded else works)
        )
        # Folded there is one program and nothing to compare; without folding a wrong signature shows here.
        for core, program in zip(cores, programs, strict=False):
            if len(program.prices) != len(programs[0].prices):
                raise ProgramError(
                    f"phase {phase.name}: cores {first.core} and {core} have equal signatures, but "
                    f"{len(programs[0].prices)} and {len(program.prices)} instructions; a signature must "
                    "tell all that the cost of a program depends on"
                )
        teams.append(Team(cores, programs))
    return teams


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Pause the garbage collector: a run makes many objects, keeps most, and the search costs 20 %."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
