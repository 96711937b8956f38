"""Time a kernel: one door, two engines.

"simpy"     the definition, event by event on SimPy (`simpy_engine.py`); it runs instruction after instruction
"compiled"  the same rules as compiled loops over integers (`compiled_engine.py`), which walk loop nests: same
            cycles, bytes, busy and waiting cycles, and spans where they are asked for
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ascendsim.errors import ConfigError, StoppedError
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.native.process import collector_paused
from ascendsim.program.kernel import Kernel, require_cores, teams_of
from ascendsim.timing import ENGINES
from ascendsim.timing.l2.account import Start
from ascendsim.timing.times import KernelTimes, PhaseAlone, stopped_words

if TYPE_CHECKING:
    from ascendsim.profile import Profile
    from ascendsim.timing.timeline import Timeline


@default_arithmetic
def time_kernel(
    kernel: Kernel, profile: Profile, *, folded: bool = True, l2_start: Start = "warm", engine: str = "simpy"
) -> Timeline:
    """Return the spans of all instructions of a kernel, in cycles of the cube clock, without its launch.

    Options  `folded` runs one core for all that promise equal costs; the spans are equal without it.
             `l2_start` says what L2 holds at the start: "warm", "cold", "handed", or what another kernel
             has left (`l2/account.py`). `engine` is one of `ENGINES`; all find equal spans
    Raises   ProgramError for a program that breaks the rules of the machine, ConfigError for an engine that
             there is not
    """
    _require_cores(kernel, profile)
    with collector_paused():
        if _compiled(engine):
            from ascendsim.timing.compiled_phase import timeline

            return timeline(kernel, profile, folded=folded, l2_start=l2_start)
        return _simpy(kernel, profile, folded, l2_start)


@default_arithmetic
def measure_kernel(
    kernel: Kernel,
    profile: Profile,
    *,
    folded: bool = True,
    l2_start: Start = "warm",
    engine: str = "compiled",
    stop_above: int | None = None,
    alone: Mapping[int, PhaseAlone] | None = None,
) -> KernelTimes:
    """Return where the cycles of a kernel went: as `time_kernel`, without spans.

    Its cycles are those of the device: the entry (`scalar.start_cycles`) is among them, the launch is not.
    A kernel of at most `stop_above` cycles is timed as without a bound. Of a longer one the compiled engine
    stops on its way, as soon as something is under way after that cycle; SimPy says so at the end. Phases
    that are known `alone`, by their numbers, the compiled one does not run again.

    Raises   also StoppedError for a kernel that takes more than `stop_above` cycles
    """
    _require_cores(kernel, profile)
    with collector_paused():
        if _compiled(engine):
            from ascendsim.timing.compiled_phase import times

            return times(
                kernel, profile, folded=folded, l2_start=l2_start, stop_above=stop_above, alone=alone or {}
            )
        from ascendsim.timing.timeline import times_of

        found = times_of(_simpy(kernel, profile, folded, l2_start))
        if stop_above is not None and found.cycles > stop_above:
            raise StoppedError(stopped_words(kernel.name, stop_above))
        return found


def _require_cores(kernel: Kernel, profile: Profile) -> None:
    for phase in kernel.phases:
        require_cores(phase.name, [core for work in phase.work for core in work.cores], profile)


def _compiled(engine: str) -> bool:
    if engine not in ENGINES:
        raise ConfigError(f"engine is {engine!r}; it must be one of {', '.join(ENGINES)}")
    return engine == "compiled"


def _simpy(kernel: Kernel, profile: Profile, folded: bool, l2_start: Start) -> Timeline:
    # Imported here: who only estimates needs no SimPy, and no timeline.
    from ascendsim.timing.l2.account import account_of
    from ascendsim.timing.simpy_engine import time_phase
    from ascendsim.timing.timeline import PhaseTimeline, Timeline
    from ascendsim.timing.times import CostBook

    book = CostBook(profile)
    phases = [teams_of(phase, folded, book.price) for phase in kernel.phases]
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
    return Timeline(kernel.name, now, tuple(timed), account.bytes, account.left)
